"""Store directories go back and forth between Apache's broker and our store, and nothing is lost.

What happens to them is in `store_acts`, here is what must be true after each act.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from firearrow.hot import parse_offset_message_id
from firearrow.model.message import FLAG_COMPRESSION

from .store_acts import (
    APACHES,
    APPENDS_PER_QUEUE,
    CURTAILED,
    FILLED,
    GROUP,
    OURS,
    SENDS_PER_QUEUE,
    SYSTEM_QUEUES,
    TAIL_MESSAGES,
    Directory,
    Look,
    Stage,
)
from .stores import Facts, Queue, Survey, by_place, ends_of, read_committed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .processes import Bench


@pytest.fixture(scope="module")
def written(bench: Bench) -> Stage:
    """After act 1."""
    stage = Stage(bench)
    stage.write()
    return stage


@pytest.fixture(scope="module")
def opened_by_apache(written: Stage) -> Stage:
    """After act 2."""
    written.open_with_apache()
    return written


@pytest.fixture(scope="module")
def opened_by_us(opened_by_apache: Stage) -> Stage:
    """After act 3."""
    opened_by_apache.open_with_our_store()
    return opened_by_apache


@pytest.fixture(scope="module")
def opened_again(opened_by_us: Stage) -> Iterator[Stage]:
    """After act 4; the brokers end with this module to free the memory."""
    brokers = opened_by_us.open_with_apache_again()
    yield opened_by_us
    for broker in brokers:
        broker.process.kill()


# --- our directories ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", OURS)
def test_java_client_reads_every_message_of_our_directory_from_apache(
    opened_by_apache: Stage, name: str
) -> None:
    directory = opened_by_apache[name]
    told, view = by_place(directory.told), directory.looks[0].view

    assert len(told) > 500
    assert {place: view.messages.get(place) for place in told} == told
    # A killed writer may have written more than it could still tell; never anything else.
    tail = f"{directory.prefix}tail"
    more = [facts for place, facts in view.messages.items() if place not in told]
    assert all(facts["topic"] == tail for facts in more)
    assert len(more) <= (1 if name == "ours-killed" else 0)
    ends = ends_of(view.messages)
    assert view.ends == {queue: (0, end) for queue, end in ends.items()}


@pytest.mark.parametrize("name", OURS)
def test_our_directory_has_several_files_of_each_kind(written: Stage, name: str) -> None:
    root = written[name].root
    assert len(list(root.glob("commitlog/*"))) >= 3
    assert len(list(root.glob("index/*"))) >= 3
    assert len(list(root.glob(f"consumequeue/{name}-plain/0/*"))) >= 2


@pytest.mark.parametrize("name", OURS)
def test_apache_finds_our_messages_by_key_and_unique_key_and_id(
    opened_by_apache: Stage, name: str
) -> None:
    # After a kill Apache goes on with the message that its index ended with, not behind it, and so
    # finds that one twice; after a clean stop nothing is found twice.
    expect_found(opened_by_apache[name].looks[0], twice_at_most=int(name == "ours-killed"))


@pytest.mark.parametrize("name", OURS)
def test_apache_finds_our_offsets_by_time(opened_by_apache: Stage, name: str) -> None:
    view = opened_by_apache[name].looks[0].view
    stored: dict[Queue, list[int]] = {}
    for (topic, queue_id, _), facts in sorted(view.messages.items()):
        stored.setdefault((topic, queue_id), []).append(facts["storeTimestamp"])
    assert view.times
    for (topic, queue_id, timestamp), (lower, upper) in view.times.items():
        times = stored[topic, queue_id]
        assert lower == sum(time < timestamp for time in times)
        assert upper == max(0, sum(time <= timestamp for time in times) - 1)


@pytest.mark.parametrize("name", OURS)
def test_apache_goes_on_with_the_offsets_that_we_committed(
    opened_by_apache: Stage, name: str
) -> None:
    assert opened_by_apache[name].looks[0].committed == [10, 11, 12, 13]


@pytest.mark.parametrize("name", OURS)
def test_new_messages_get_the_next_offsets_of_our_queues(
    opened_by_apache: Stage, name: str
) -> None:
    directory = opened_by_apache[name]
    expect_next_offsets(directory, directory.looks[0])


@pytest.mark.parametrize("name", OURS)
def test_our_store_opens_its_directory_after_apache_has_written_to_it(
    opened_by_us: Stage, name: str
) -> None:
    directory = opened_by_us[name]
    found, view = directory.surveys[0], directory.looks[0].view

    assert found.clean is (name == "ours-clean")
    assert found.damage == []
    assert {place: found.messages.get(place) for place in view.messages} == view.messages
    more = {place: facts for place, facts in found.messages.items() if place not in view.messages}
    ids = [identity for place in directory.looks[0].sent for identity in place["offsetMsgIds"]]
    assert sorted(facts["offsetMsgId"] for facts in more.values()) == sorted(ids)
    expect_dense(found)
    expect_keys(found)
    expect_appended(found, directory)


def test_apache_has_what_is_left_after_we_have_removed_a_file_of_the_log(
    opened_again: Stage,
) -> None:
    directory = opened_again[CURTAILED]
    found, look = directory.surveys[0], directory.looks[1]
    queues = directory.looks[0].view.ends.keys()
    file_bytes = directory.sizes["mappedFileSizeCommitLog"]
    left = {
        place: facts
        for place, facts in (found.messages | by_place(found.appended)).items()
        if place[:2] in queues and facts["physicalOffset"] >= file_bytes
    }

    assert 0 < len(left) < len(found.messages)
    assert look.view.messages == left
    assert look.view.ends == {queue: found.left[queue] for queue in queues}
    # Some queues have lost all they had before, some a part, and they count on.
    assert {0 < least < most for least, most in look.view.ends.values()} == {True, False}
    expect_next_offsets(directory, look)
    expect_found(look)


# --- directories of Apache ------------------------------------------------------------------------


@pytest.mark.parametrize("name", APACHES)
def test_our_store_reads_every_message_of_a_directory_of_apache(
    opened_by_us: Stage, name: str
) -> None:
    directory = opened_by_us[name]
    found, view = directory.surveys[0], directory.looks[0].view

    assert found.clean is (name == "apache-clean")
    assert found.damage == []
    assert len(view.messages) > 300
    for place, facts in view.messages.items():
        expect_same(found.messages[place], facts)
    expect_dense(found)


@pytest.mark.parametrize("name", APACHES)
def test_our_store_has_no_message_that_apache_did_not_have(opened_by_us: Stage, name: str) -> None:
    directory = opened_by_us[name]
    found, view = directory.surveys[0], directory.looks[0].view
    more = [
        facts
        for place, facts in found.messages.items()
        if place not in view.messages and directory.owns(place[:2])
    ]
    # Of the burst, one message may have been stored and not been acknowledged.
    assert {facts["topic"] for facts in more} <= {f"{directory.prefix}tail"}
    sent = directory.looks[0].sent
    assert len(more) - len(sent) in ({0, 1} if sent else {0})


def test_nothing_is_missing_that_a_killed_broker_acknowledged(opened_by_us: Stage) -> None:
    directory = opened_by_us["apache-killed"]
    found, sent = directory.surveys[0], directory.looks[0].sent
    assert len(sent) >= TAIL_MESSAGES
    for place in sent:
        facts = found.messages[place["topic"], place["queueId"], place["queueOffset"]]
        assert [facts["offsetMsgId"]] == place["offsetMsgIds"]


@pytest.mark.parametrize("name", APACHES)
def test_our_store_finds_by_key_what_apache_has_found(opened_by_us: Stage, name: str) -> None:
    directory = opened_by_us[name]
    found = directory.surveys[0]
    for (kind, topic, text), ids in directory.looks[0].found:
        if kind == "key":
            assert found.by_key[topic, text] == ids
        elif kind == "unique":
            assert set(ids) <= set(found.by_key[topic, text])
    expect_keys(found)


@pytest.mark.parametrize("name", [*OURS, *APACHES])
def test_our_store_finds_the_offsets_by_time_that_apache_has_found(
    opened_by_us: Stage, name: str
) -> None:
    """A queue that grew since then may answer differently behind its former end."""
    directory = opened_by_us[name]
    view = directory.looks[0].view
    compared = 0
    for (topic, queue_id, timestamp), offsets in directory.surveys[0].times.items():
        last = max(offset for t, q, offset in view.messages if (t, q) == (topic, queue_id))
        if timestamp <= view.messages[topic, queue_id, last]["storeTimestamp"]:
            assert offsets == view.times[topic, queue_id, timestamp]
            compared += 1
    assert compared > 20


@pytest.mark.parametrize("name", APACHES)
def test_offsets_that_apache_wrote_down_are_those_that_were_committed(
    opened_by_us: Stage, name: str
) -> None:
    directory = opened_by_us[name]
    table = read_committed(directory.root)[f"{directory.prefix}plain@{GROUP}"]

    assert directory.looks[0].committed == [7, 8, 9, 10]
    assert [table[queue_id] for queue_id in range(4)] == directory.looks[0].committed


@pytest.mark.parametrize("name", APACHES)
def test_apache_reads_all_of_its_directory_after_we_have_added_to_it(
    opened_again: Stage, name: str
) -> None:
    directory = opened_again[name]
    found, view = directory.surveys[0], directory.looks[1].view
    expected = found.messages | by_place(found.appended)

    assert len(found.appended) == APPENDS_PER_QUEUE * sum(FILLED.values())
    expect_appended(found, directory)
    queues = set(directory.filled_queues())
    for place, facts in expected.items():
        if place[:2] in queues:
            expect_same(facts, view.messages[place])
    more = {place[0] for place in view.messages.keys() - expected.keys()}
    # A broker that was killed may not have written down which delayed messages it had delivered.
    again = {f"{directory.prefix}delay", *(topic for topic, _ in SYSTEM_QUEUES)}
    assert more <= (again if name == "apache-killed" else set())
    assert directory.looks[1].committed == directory.looks[0].committed


@pytest.mark.parametrize("name", APACHES)
def test_apache_finds_by_key_and_id_also_what_we_have_added(opened_again: Stage, name: str) -> None:
    directory = opened_again[name]
    expect_found(directory.looks[1])
    asked = {text for (kind, _, text), _ in directory.looks[1].found if kind == "key"}
    assert {"added-0", "added-1"} & asked


@pytest.mark.parametrize("name", APACHES)
def test_new_messages_get_the_offsets_behind_those_that_we_have_added(
    opened_again: Stage, name: str
) -> None:
    directory = opened_again[name]
    expect_next_offsets(directory, directory.looks[1])


# --- what holds for every directory ---------------------------------------------------------------


def expect_same(ours: Facts, javas: Facts) -> None:
    """Bodies in LZ4 and Zstandard are unpacked by us only where a package for them is installed."""
    packed = ours["bodySize"] != javas["bodySize"] and ours["sysFlag"] & FLAG_COMPRESSION
    left_out = {"bodySize", "bodySha256"} if packed else set()
    for name in javas.keys() - left_out:
        assert ours[name] == javas[name], (name, javas)


def expect_dense(found: Survey) -> None:
    offsets: dict[Queue, list[int]] = {}
    for topic, queue_id, offset in found.messages:
        offsets.setdefault((topic, queue_id), []).append(offset)
    for queue, (least, most) in found.ends.items():
        assert offsets.get(queue, []) == list(range(least, most)), queue


def expect_keys(found: Survey) -> None:
    """Every message is found by each of its keys, and nothing else is."""
    wanted: dict[tuple[str, str], list[str]] = {}
    for facts in found.messages.values():
        properties = facts["properties"]
        keys = {properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")} - {""}
        for key in keys:
            wanted.setdefault((facts["topic"], key), []).append(facts["offsetMsgId"])
    for name, ids in wanted.items():
        # The newest, if there are very many.
        newest = sorted(ids, key=lambda text: parse_offset_message_id(text)[2])[-64:]
        assert found.by_key[name] == sorted(newest), name


def expect_found(look: Look, *, twice_at_most: int = 0) -> None:
    """What Apache found by key, unique key and id are the messages that the client has read."""
    messages = look.view.messages.values()
    assert {kind for (kind, _, _), _ in look.found} == {"key", "unique", "id"}
    for (kind, topic, text), ids in look.found:
        if kind == "key":
            wanted = [
                facts["offsetMsgId"]
                for facts in messages
                if facts["topic"] == topic and text in facts["properties"].get("KEYS", "").split()
            ]
            assert sorted(set(ids)) == sorted(wanted), (topic, text)
            assert len(ids) <= len(wanted) + twice_at_most, (topic, text)
        elif kind == "id":
            assert ids == [text]
        else:
            wanted = [
                facts["offsetMsgId"]
                for facts in messages
                if facts["topic"] == topic and facts["properties"].get("UNIQ_KEY") == text
            ]
            assert len(ids) == 1
            assert ids[0] in wanted, (topic, text)


def expect_next_offsets(directory: Directory, look: Look) -> None:
    """What a client sent got the offsets behind those of the messages that were there."""
    offsets: dict[Queue, list[int]] = {}
    for place in look.sent:
        offsets.setdefault((place["topic"], place["queueId"]), []).append(place["queueOffset"])
    assert set(offsets) == {queue for queue in look.view.ends if directory.owns(queue)}
    for queue, given in offsets.items():
        end = look.view.ends[queue][1]
        # The last one is the first of a batch.
        assert given == list(range(end, end + SENDS_PER_QUEUE + 1))


def expect_appended(found: Survey, directory: Directory) -> None:
    """What we added got the next offsets."""
    given: dict[Queue, list[int]] = {}
    for facts in found.appended:
        given.setdefault((facts["topic"], facts["queueId"]), []).append(facts["queueOffset"])
    for queue, offsets in given.items():
        end = found.ends.get(queue, (0, 0))[1]
        assert offsets == list(range(end, end + APPENDS_PER_QUEUE)), queue
    assert set(given) == {queue for queue in directory.looks[0].view.ends if directory.owns(queue)}

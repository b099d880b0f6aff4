"""`firearrow group` on a real broker."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli_runs import Commands
from tests.support import PATIENCE_S

from firearrow import Message, Producer, PushConsumer
from firearrow.testing import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT = 10


@pytest.fixture(scope="module")
def cli() -> Iterator[Commands]:
    with LocalCluster() as cluster:
        commands = Commands(cluster)
        commands.run("topic", "create", "orders", "--queues", 2)
        with Producer("p", nameservers=cluster.nameservers) as producer:
            for one in range(COUNT):
                producer.send(Message("orders", f"{one}"))
        yield commands


def test_group_is_created_listed_changed_and_removed(cli: Commands) -> None:
    cli.run("group", "create", "life", "--retries", 3)
    (row,) = cli.json("group", "ls", "life")
    assert (row["group"], row["retries"], row["consumes"]) == ("life", 3, True)
    changed = cli.json("group", "update", "life", "--no-consume", "--retries", 3)
    assert [one["setting"] for one in changed["rows"]] == ["consume_enable"]
    assert cli.json("group", "ls", "life")[0]["consumes"] is False
    assert cli.json("group", "rm", "life", "--dry-run")["members"] == 0
    cli.run("group", "rm", "life")
    assert cli.json("group", "ls", "life") == []
    assert "%RETRY%life" not in cli.run("topic", "ls", "--all").stdout


def test_group_that_is_there_otherwise_is_refused_also_when_tried_dry(cli: Commands) -> None:
    cli.run("group", "create", "there", "--retries", 3)
    for words in (["--dry-run"], []):
        refused = cli.run("group", "create", "there", "--retries", 5, *words, code=1).stderr
        assert "retry_max_times is 3, not 5" in refused
    cli.run("group", "create", "there", "--retries", 3)


def test_reset_is_previewed_then_made_then_seen_in_the_lag(cli: Commands) -> None:
    cli.run("group", "create", "moved")
    plan = cli.json("group", "reset", "moved", "-t", "orders", "--skip", "--dry-run")
    assert (plan["skipped"], plan["again"], plan["queues"]) == (COUNT, 0, 2)
    assert cli.json("group", "lag", "moved") == []
    done = cli.json("group", "reset", "moved", "-t", "orders", "--skip")
    assert done["skipped"] == COUNT
    assert sum(one["lag"] for one in cli.json("group", "lag", "moved", "-t", "orders")) == 0
    again = cli.json("group", "reset", "moved", "-t", "orders", "--to", "-1h", "--dry-run")
    assert again["again"] == COUNT
    one = cli.json("group", "reset", "moved", "-t", "orders", "--offset", "broker-a:0=1")
    assert [(row["queue"], row["target"]) for row in one["rows"]] == [(0, 1)]
    kept = cli.json("group", "reset", "moved", "-t", "orders", "--to", "latest", "--back-only")
    assert kept["skipped"] == 0
    (row,) = cli.json("group", "ls", "moved", "--lag")
    assert row["lag"] == one["rows"][0]["again"]


def test_place_of_a_group_is_cloned(cli: Commands) -> None:
    for name in ("source", "heir"):
        cli.run("group", "create", name)
    cli.run("group", "reset", "source", "-t", "orders", "--skip")
    planned = cli.json("group", "clone", "source", "heir", "--dry-run")
    done = cli.json("group", "clone", "source", "heir", "-t", "orders")
    assert planned["rows"] == done["rows"]
    assert sum(one["lag"] for one in cli.json("group", "lag", "heir")) == 0


def wait_for(true: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while not true():
        assert time.monotonic() < deadline, what
        pause.wait(0.02)


def test_members_and_what_they_disagree_on_are_shown(cli: Commands) -> None:
    nameservers = cli.cluster.nameservers
    one, two = (
        PushConsumer("team", nameservers=nameservers),
        PushConsumer("team", nameservers=nameservers),
    )
    one.subscribe("orders", "TagA")(lambda _: None)
    with one:
        members = cli.json("group", "members", "team")
        assert [row["client"] for row in members] == [one.client_id]
        assert members[0]["language"] == "PYTHON"
        assert "1 member of group team agree" in cli.run("group", "divergence", "team").stderr
        said = cli.json("group", "member", "team", one.client_id)
        assert said["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        two.subscribe("orders", "TagB")(lambda _: None)
        with two:
            wait_for(lambda: cli.json("group", "divergence", "team"), "the disagreement")
            found = cli.json("group", "divergence", "team")
            assert {row["wants"] for row in found} == {"TagA", "TagB"}
            shown = cli.json("group", "show", "team")
            assert shown["divergent_topics"] == ["orders"]
            assert shown["members"] == 2
            reasons = cli.json("cluster", "health", code=1)["reasons"]
            assert "firearrow group show team" in {one["remedy"] for one in reasons}
            gone = cli.run("group", "rm", "team", "--dry-run")
            assert "stop its members first" in gone.stderr


def test_producers_are_listed(cli: Commands) -> None:
    with Producer("sender", nameservers=cli.cluster.nameservers) as producer:
        producer.send(Message("orders", "one more"))
        wait_for(lambda: cli.json("group", "producers", "sender"), "the producer's heartbeat")
        (row,) = cli.json("group", "producers", "sender")
        assert row["client"] == producer.client_id


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["show", "nobody"], 4, "group nobody does not exist"),
        (["members", "nobody"], 4, "Start a consumer of the group"),
        (["rm", "nobody"], 4, "does not exist"),
        (["reset", "moved", "-t", "orders"], 2, "say where to go"),
        (["reset", "moved", "-t", "orders", "--to", "soon"], 2, "a time expected"),
        (["reset", "moved", "-t", "orders", "--offset", "x"], 2, "BROKER:QUEUE=OFFSET"),
        (["reset", "moved", "-t", "nowhere", "--skip"], 4, "no broker serves topic"),
        (["update", "moved"], 2, "no setting is given"),
    ],
)
def test_what_cannot_be_is_one_line_with_a_remedy(
    cli: Commands, words: list[str], code: int, said: str
) -> None:
    cli.run("group", "create", "moved")
    assert said in cli.run("group", *words, code=code).stderr

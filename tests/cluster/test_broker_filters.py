"""SQL92 subscriptions on a whole broker: refused when off, exact when on, kept over a restart."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any, Final

import pytest
from tests.broker_requests import (
    GROUP,
    TOPIC,
    heartbeat,
    properties_of,
    pull,
    pulled,
    records,
    send,
    send_back,
    sent,
    subscription,
    texts,
)
from tests.support import ServedBroker, running_broker, until

from firearrow.broker.filtering import PARTS_A_TURN
from firearrow.filters.expression import filter_for
from firearrow.filters.sql import compile_sql
from firearrow.model.errors import ResponseCode
from firearrow.model.group import SubscriptionData
from firearrow.testing import ManualClock
from firearrow.wire import bodies, headers, java_json
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, request
from firearrow.wire.headers import PullFlag

RECORDED: Final = json.loads(
    (Path(__file__).parents[1] / "conformance" / "data" / "sql92.json").read_text("utf-8")
)
REFUSED: Final = ResponseCode.SUBSCRIPTION_PARSE_FAILED
APACHE_WORDS: Final = "The broker does not support consumer to filter message by SQL92"


def sql(expression: str, version: int = 1, topic: str = TOPIC) -> SubscriptionData:
    return SubscriptionData.of(topic, expression, version=version, expression_type="SQL92")


def sql_pull(expression: str, offset: int = 0, **fields: Any) -> Command:
    return pull(offset, expression=expression, expression_type="SQL92", **fields)


def check(wanted: SubscriptionData) -> Command:
    body = bodies.CheckClientRequestBody(client_id="c", group=GROUP, subscription_data=wanted)
    return request(RequestCode.CHECK_CLIENT_CONFIG, body=java_json.encode(body))


async def fill(served: ServedBroker, *values: int) -> None:
    for value in values:
        sent(await served.ask(send(str(value).encode(), properties={"a": str(value)})))


async def test_filters_are_refused_in_apaches_words_unless_they_are_enabled(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as served:
        await fill(served, 1)
        await served.ask(heartbeat("c", sql("a > 0")))
        for asked in (check(sql("a > 0")), sql_pull("a > 0"), pull(expression=None)):
            reply = await served.ask(asked)
            assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, APACHE_WORDS)


async def test_recorded_expressions_get_the_same_answers_as_from_apache(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enable_property_filter=True) as served:
        for number, message in enumerate(RECORDED["messages"]):
            properties = message["props"] | {"WAIT": "true", "TRACE_ON": "true"}
            for name in ("tags", "keys"):
                if name in message:
                    properties[name.upper()] = message[name]
            sent(await served.ask(send(str(number).encode(), properties=properties)))
        tried = 0
        for group in ("numbers", "strings", "between", "contains-starts-ends", "null"):
            for expression, code, matching in RECORDED["groups"][group]:
                reply = await served.ask(check(sql(expression)))
                assert reply.code == code, expression
                reply = await served.ask(sql_pull(expression))
                if code:
                    assert reply.code == REFUSED, expression
                elif matching:
                    assert [int(text) for text in texts(reply)] == matching, expression
                else:
                    assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY, expression
                    assert pulled(reply).next_begin_offset == 12
                tried += 1
        assert tried > 60


async def test_wrong_expressions_are_refused_with_the_place_of_the_mistake(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enable_property_filter=True) as served:
        await fill(served, 1)
        for asked in (check(sql("a >>= (")), sql_pull("a >>= (")):
            reply = await served.ask(asked)
            assert reply.code == REFUSED
            assert reply.remark is not None
            assert "character 4" in reply.remark
        reply = await served.ask(sql_pull(""))
        assert reply.code == REFUSED
        strange = SubscriptionData.of(TOPIC, "x", version=1, expression_type="LUA")
        assert (await served.ask(check(strange))).code == REFUSED


async def test_subscription_of_a_heartbeat_filters_pulls_once_the_broker_has_it(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path, enable_property_filter=True) as served:
        await fill(served, 1, 5, 3, 9)
        reply = await served.ask(pull(expression=None))
        assert reply.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        await served.ask(heartbeat("c", sql("a > 2 AND a < 9", 7)))
        assert texts(await served.ask(pull(expression=None, sub_version=7))) == [b"5", b"3"]
        newer = await served.ask(pull(expression=None, sub_version=8))
        assert newer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        await served.ask(heartbeat("c", sql("a >", 8)))
        wrong = await served.ask(pull(expression=None, sub_version=8))
        assert wrong.code == ResponseCode.FILTER_DATA_NOT_EXIST
        await served.ask(heartbeat("c", sql("a = 9", 9)))
        assert texts(await served.ask(pull(expression=None, sub_version=9))) == [b"9"]


async def test_filter_older_than_the_subscription_is_not_used(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enable_property_filter=True) as served:
        await fill(served, 1)
        await served.ask(heartbeat("c", sql("a > 0", 5)))
        known = served.broker.state.filters.get(TOPIC, GROUP)
        assert known is not None
        known.version = 4
        reply = await served.ask(pull(expression=None, sub_version=5))
        assert reply.code == ResponseCode.FILTER_DATA_NOT_LATEST


async def test_held_pull_sleeps_until_a_message_fits_its_filter(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enable_property_filter=True) as served:
        await fill(served, 1)
        async with served.another_client() as other:
            waiting = asyncio.create_task(
                other.invoke(
                    served.broker.address, sql_pull("a > 5", 1, flags=PullFlag.SUSPEND), 20_000
                )
            )
            held = served.broker.state.held
            await until(lambda: held.statistics().waiting == 1)
            await fill(served, 2, 3, 4)
            store = served.broker.state.store
            await until(lambda: store.lookup.max_offset(TOPIC, 0) == 4)
            assert held.statistics().waiting == 1
            await fill(served, 6)
            reply = await waiting
            assert texts(reply) == [b"6"]
            assert pulled(reply).next_begin_offset == 5


async def test_held_pull_whose_time_is_up_skips_what_did_not_fit(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock, enable_property_filter=True) as served:
        await fill(served, 1)
        async with served.another_client() as other:
            waiting = asyncio.create_task(
                other.invoke(
                    served.broker.address, sql_pull("a > 5", 1, flags=PullFlag.SUSPEND), 20_000
                )
            )
            held = served.broker.state.held
            await until(lambda: held.statistics().waiting == 1)
            await fill(served, 2, 3)
            assert held.statistics().waiting == 1
            await clock.advance(15_200)
            reply = await waiting
            assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert pulled(reply).next_begin_offset == 3


async def test_filters_survive_a_restart_in_rocketmqs_file(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enable_property_filter=True) as served:
        await fill(served, 1, 2)
        await served.ask(heartbeat("c", sql("a > 1", 7)))
    saved = json.loads((tmp_path / "config" / "consumerFilter.json").read_text("utf-8"))
    entry = saved["filterDataByTopic"][TOPIC]["groupFilterData"][GROUP]
    assert (entry["expression"], entry["dead"], entry["clientVersion"]) == ("a > 1", True, 7)
    assert entry["bloomFilterData"]["bitNum"] == 112
    async with running_broker(tmp_path, enable_property_filter=True) as served:
        known = served.broker.state.filters.get(TOPIC, GROUP)
        assert known is not None
        assert known.dead_ms > 0
        await served.ask(heartbeat("c", sql("a > 1", 7)))
        assert known.dead_ms == 0
        assert texts(await served.ask(pull(expression=None, sub_version=7))) == [b"2"]


async def test_filter_dies_when_the_last_member_leaves(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enable_property_filter=True) as served:
        async with served.another_client() as other:
            await other.invoke(served.broker.address, heartbeat("c", sql("a > 1")), 20_000)
            known = served.broker.state.filters.get(TOPIC, GROUP)
            assert known is not None
            assert known.dead_ms == 0
        await until(lambda: known.dead_ms > 0)


@pytest.mark.parametrize("support", [False, True])
async def test_messages_that_come_again_are_filtered_as_in_their_own_topic_if_asked_for(
    tmp_path: Path, support: bool
) -> None:
    settings = {"enable_property_filter": True, "filter_support_retry": support}
    clock = ManualClock()
    async with running_broker(tmp_path, clock, **settings) as served:
        await fill(served, 1, 9)
        await served.ask(
            heartbeat("c", sql("a > 5", 3), subscription(f"%RETRY%{GROUP}", version=3))
        )
        got = await served.ask(pull())
        for record in records(got):
            reply = await served.ask(send_back(record.physical_offset, delay_level=1))
            assert reply.code == 0
        await clock.advance(3_000)
        lookup = served.broker.state.store.lookup
        await until(lambda: lookup.max_offset(f"%RETRY%{GROUP}", 0) == 2)
        retry: dict[str, Any] = {"topic": f"%RETRY%{GROUP}"}
        # Clients subscribe to their retry topic with "*": nothing is filtered.
        everything = await served.ask(pull(expression=None, sub_version=3, **retry))
        assert sorted(texts(everything)) == [b"1", b"9"]
        assert properties_of(records(everything)[0])["RETRY_TOPIC"] == TOPIC
        # An expression for the retry topic itself, or for the topic of origin.
        reply = await served.ask(sql_pull("a < 5", **retry))
        assert texts(reply) == ([b"9"] if support else [b"1"])


async def test_entries_of_a_queue_show_which_messages_a_filter_lets_through(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path, enable_property_filter=True) as served:
        await fill(served, 1, 9)
        await served.ask(heartbeat("c", sql("a > 5")))
        header = headers.QueryConsumeQueueRequest(
            topic=TOPIC, queue_id=0, index=0, count=10, consumer_group=GROUP
        )
        reply = await served.ask(request(RequestCode.QUERY_CONSUME_QUEUE, header))
        found = java_json.decode(reply.body, bodies.QueryConsumeQueueBody)
        assert [entry.eval for entry in found.queue_data] == [False, True]
        assert found.filter_data == "SQL92: a > 5"


# --- large expressions ------------------------------------------------------------------------


def one_of(count: int) -> str:
    """An expression that costs a lot for all messages but those whose `a` is above a thousand."""
    return " OR ".join(f"a = {1_000 + number}" for number in range(1, count + 1))


async def test_long_expressions_are_compiled_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, str] = {}

    def watched(subscription: SubscriptionData) -> object:
        threads[subscription.sub_string] = threading.current_thread().name
        return filter_for(subscription)

    monkeypatch.setattr("firearrow.broker.filter_table.filter_for", watched)
    loop_thread = threading.current_thread().name
    async with running_broker(tmp_path, enable_property_filter=True) as served:
        await fill(served, 1_007, 5)
        assert texts(await served.ask(sql_pull("a = 5"))) == [b"5"]
        assert (await served.ask(check(sql(one_of(100))))).code == 0
        assert texts(await served.ask(sql_pull(one_of(101)))) == [b"1007"]
        assert (await served.ask(heartbeat("c", sql(one_of(102))))).code == 0
        assert texts(await served.ask(pull(expression=None))) == [b"1007"]
        assert (await served.ask(sql_pull(one_of(100) + " OR"))).code == REFUSED
    assert threads.pop("a = 5") == loop_thread
    assert len(threads) == 4
    assert loop_thread not in threads.values()


async def test_costly_expression_looks_at_fewer_messages_at_a_time_and_misses_none(
    tmp_path: Path,
) -> None:
    costly = one_of(500)
    async with running_broker(tmp_path, enable_property_filter=True) as served:
        await fill(served, *range(70), 1_499)
        offset, ends = 0, []
        while (reply := await served.ask(sql_pull(costly, offset))).code != 0:
            assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            offset = pulled(reply).next_begin_offset
            ends.append(offset)
        assert texts(reply) == [b"1499"]
        looks = PARTS_A_TURN // compile_sql(costly).parts
        assert ends == [looks, 2 * looks]

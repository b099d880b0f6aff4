"""The data layer without a cluster: paging, health, history, bodies, pipelines."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from firearrow.cli.root import command_of
from firearrow.client.admin_results import BrokerInfo
from firearrow.console.data.bodies import MASK, hex_dump, preview, view_body
from firearrow.console.data.catalog import GroupRow, Kept, topic_rows
from firearrow.console.data.health import Severity, findings, score
from firearrow.console.data.history import History
from firearrow.console.data.paging import Query, page_of
from firearrow.console.data.pipelines import is_spark_group, read_pipelines
from firearrow.model.topic import TopicConfig
from firearrow.testing import ManualClock

if TYPE_CHECKING:
    from pathlib import Path


def words(query: Query) -> list[str]:
    rows = [f"w{number:03}" for number in range(100)]
    return page_of(rows, query, text=lambda row: row).rows


def test_a_page_is_cut_from_what_fits() -> None:
    assert words(Query(size=3)) == ["w000", "w001", "w002"]
    assert words(Query(size=3, page=2)) == ["w003", "w004", "w005"]
    assert words(Query(text="W01", size=50)) == [f"w01{number}" for number in range(10)]
    assert words(Query(size=2, descending=True)) == ["w099", "w098"]


def test_a_page_behind_the_end_is_the_last_one() -> None:
    page = page_of(list("abcde"), Query(page=9, size=2), text=str)
    assert (page.rows, page.total, page.page) == (["e"], 5, 3)
    assert page_of([], Query(page=3), text=str).rows == []


def test_rows_are_sorted_by_another_key_if_asked() -> None:
    keys = {"size": len}
    query = Query(sort="size", descending=True)
    assert page_of(["a", "ccc", "bb"], query, text=str, keys=keys).rows == ["ccc", "bb", "a"]


def test_topics_are_told_apart_by_kind() -> None:
    names = ["orders", "%RETRY%g", "%DLQ%g", "TBW102", "DefaultCluster", "fifo"]
    table = {name: {"a": TopicConfig(topic_name=name)} for name in names}
    fifo = TopicConfig(topic_name="fifo", attributes={"message.type": "FIFO"})
    table["fifo"] = {"a": fifo, "b": fifo}
    rows = {row.name: row for row in topic_rows(table, frozenset({"DefaultCluster"}))}
    assert {name: row.kind for name, row in rows.items()} == {
        "orders": "normal",
        "%RETRY%g": "retry",
        "%DLQ%g": "dlq",
        "TBW102": "system",
        "DefaultCluster": "system",
        "fifo": "fifo",
    }
    assert rows["fifo"].brokers == ("a", "b")
    assert rows["fifo"].write_queues == 2 * fifo.write_queue_nums


# --- what is kept -----------------------------------------------------------------------------


async def test_a_kept_value_is_fetched_once_for_all_who_ask_together() -> None:
    clock = ManualClock()
    asked = 0

    async def fetch() -> int:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return asked

    kept = Kept(fetch, clock)
    assert list(await asyncio.gather(kept.get(), kept.get(), kept.get())) == [1, 1, 1]
    assert await kept.get() == 1
    await clock.advance(60_000)
    assert await kept.get() == 1  # the old one, while a new one is on its way
    await asyncio.sleep(0.01)
    assert await kept.get() == 2
    kept.forget()
    assert await kept.get() == 3
    await kept.close()


async def test_a_failed_look_does_not_take_away_the_last_one() -> None:
    clock = ManualClock()
    outcomes: list[int | Exception] = [1, ValueError("away"), 3]

    async def fetch() -> int:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    kept = Kept(fetch, clock)
    assert await kept.get() == 1
    await clock.advance(60_000)
    assert await kept.get() == 1
    await asyncio.sleep(0.01)
    assert await kept.get() == 1
    await asyncio.sleep(0.01)
    assert await kept.get() == 3
    await kept.close()


# --- health -----------------------------------------------------------------------------------


def broker(error: str | None = None, **runtime: str) -> BrokerInfo:
    return BrokerInfo(
        cluster="c", name="a", broker_id=0, address="h:1", runtime=runtime, error=error
    )


def group(name: str = "g", **fields: Any) -> GroupRow:
    return GroupRow(
        name=name, brokers=("a",), enabled=True, orderly=False, retry_max=16, system=False, **fields
    )


def test_a_healthy_cluster_has_nothing_to_say() -> None:
    found = findings([broker(commitLogDiskRatio="0.2", putLatency99="3.00")], [group(lag=5)])
    assert found == []
    assert score(found) == 100


TROUBLES: list[tuple[list[BrokerInfo], list[GroupRow], str, Severity]] = [
    ([], [], "health.no_broker", Severity.DOWN),
    ([broker(error="refused")], [], "health.broker_silent", Severity.CRITICAL),
    ([broker(commitLogDiskRatio="0.80")], [], "health.disk", Severity.WARNING),
    ([broker(commitLogDiskRatio="0.95")], [], "health.disk", Severity.CRITICAL),
    ([broker(putLatency99="2500.00")], [], "health.slow_disk", Severity.WARNING),
    ([broker(openTransactionAgeMax="900000")], [], "health.old_transaction", Severity.WARNING),
    ([broker(parkedTransactions="2")], [], "health.parked_transactions", Severity.NOTICE),
    ([broker(timerReadBehind="60")], [], "health.timers_late", Severity.WARNING),
    ([broker(dispatchBehindBytes="99999999")], [], "health.dispatch_behind", Severity.WARNING),
    ([broker()], [group(divergent=True)], "health.divergent", Severity.CRITICAL),
    ([broker()], [group(lag=20_000)], "health.lag", Severity.WARNING),
]


@pytest.mark.parametrize(("brokers", "groups", "key", "severity"), TROUBLES)
def test_each_trouble_is_named_with_its_weight(
    brokers: list[BrokerInfo], groups: list[GroupRow], key: str, severity: Severity
) -> None:
    (found,) = findings(brokers, groups)
    assert (found.key, found.severity) == (key, severity)
    assert score([found]) == 100 - severity


@pytest.mark.parametrize(("brokers", "groups"), [one[:2] for one in TROUBLES])
def test_what_should_be_done_about_it_can_be_typed(
    brokers: list[BrokerInfo], groups: list[GroupRow]
) -> None:
    (found,) = findings(brokers, groups)
    if found.fix:
        program, family, *words = found.fix.split()
        assert program == "firearrow"
        command: Any = command_of(family)
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        with command.make_context(command.name, words):  # raises what it cannot understand
            pass


def test_the_worst_comes_first() -> None:
    found = findings([broker(parkedTransactions="1")], [group(lag=99_999), group(divergent=True)])
    assert [one.severity for one in found] == sorted((one.severity for one in found), reverse=True)


def test_nonsense_in_a_brokers_table_is_no_trouble() -> None:
    assert findings([broker(commitLogDiskRatio="", putLatency99="?")], []) == []


# --- history ----------------------------------------------------------------------------------


def test_rates_come_from_the_difference_of_totals() -> None:
    history = History()
    history.add(1_000, [broker(msgPutTotalTodayNow="100", msgGetTotalTodayNow="10")], [])
    groups = [group("slow", lag=7), group("quick")]
    sample = history.add(
        3_000, [broker(msgPutTotalTodayNow="300", msgGetTotalTodayNow="50")], groups
    )
    assert (sample.put_rate, sample.get_rate, sample.lag) == (100.0, 20.0, 7)
    assert history.lag_lines() == {"slow": [(1_000, 0), (3_000, 7)]}


def test_a_broker_that_begins_anew_makes_no_negative_rate() -> None:
    history = History()
    history.add(1_000, [broker(msgPutTotalTodayNow="100")], [])
    assert history.add(2_000, [broker(msgPutTotalTodayNow="3")], []).put_rate == 0


# --- bodies -----------------------------------------------------------------------------------


def test_a_body_is_shown_as_json_text_and_hex_as_far_as_it_is_that() -> None:
    view = view_body('{"a": "火箭"}'.encode(), may_see=True)
    assert view.json == '{\n  "a": "火箭"\n}'
    assert view.text == '{"a": "火箭"}'
    assert view.hex.startswith("00000000  7b 22 61 22 3a 20 22 e7")
    assert view_body(b"plain", may_see=True).json is None
    assert view_body(b"{broken", may_see=True).json is None
    assert view_body(b"\xff\xfe", may_see=True).text is None
    assert view_body(b"[" * 100_000, may_see=True).json is None


def test_who_may_not_see_a_body_sees_its_size_only() -> None:
    view = view_body(b"secret", may_see=False)
    assert (view.text, view.json, view.hex, view.size) == (MASK, None, MASK, 6)
    assert preview(b"secret", may_see=False) == MASK


def test_a_large_body_is_cut() -> None:
    view = view_body(b"x" * 1_000_000, may_see=True)
    assert view.cut
    assert view.text is not None
    assert len(view.text) == 64 * 1024


def test_hex_has_sixteen_bytes_a_line() -> None:
    lines = hex_dump(bytes(range(20))).splitlines()
    assert lines[1] == "00000010  10 11 12 13" + " " * 38 + "...."


def test_a_preview_is_one_short_line() -> None:
    assert preview(b"a\n  b", may_see=True) == "a b"
    assert preview(b"y" * 500, may_see=True, chars=10) == "yyyyyyyyy…"


# --- pipelines --------------------------------------------------------------------------------


def test_status_files_are_read_as_far_as_they_are_understood(tmp_path: Path) -> None:
    folder = tmp_path / ".firearrow" / "runs"
    folder.mkdir(parents=True)
    stream = {"name": "s", "rows": 5, "batches": "many", "lagTotal": 3}
    (folder / "good.json").write_text(json.dumps({"state": "running", "streams": [stream, 7]}))
    (folder / "other.json").write_text('{"unrelated": 1}')
    (folder / "broken.json").write_text("{")
    (folder / "list.json").write_text("[]")
    written_ms = (folder / "good.json").stat().st_mtime_ns // 1_000_000
    (found,) = read_pipelines([tmp_path, tmp_path / "nowhere"], written_ms + 1_000)
    assert (found.name, found.state) == ("good", "running")
    assert [(one.name, one.rows, one.batches, one.lag) for one in found.streams] == [("s", 5, 0, 3)]
    (later,) = read_pipelines([tmp_path], written_ms + 120_000)
    assert later.state == "silent"


def test_groups_of_spark_are_known_by_their_names() -> None:
    assert is_spark_group("spark-orders")
    assert not is_spark_group("billing")

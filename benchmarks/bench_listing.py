"""Listings of a large cluster, as the command line makes them: 50,000 topics, 5,000 groups.

One request to each broker, however many topics there are. What is timed is the whole: the
broker's answer, decoding it, and printing the table. Large, the ninety-ninth percentile of many
listings is reported as well.
"""

from __future__ import annotations

import io
import time
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from benchmarks.harness import Measured, Stopwatch, is_large, measure_part
from firearrow.cli import group_commands, topic_commands
from firearrow.cli.contexts import Where
from firearrow.cli.output import OutputFormat, print_shown
from firearrow.cli.target import Target
from firearrow.client.portal import portal
from firearrow.model.group import SubscriptionGroupConfig
from firearrow.model.topic import TopicConfig
from firearrow.testing import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from firearrow.cli.output import Table

ROUNDS: Final = 30  # of which the slowest is near the ninety-ninth percentile
SHARE: Final = 0.99


def fill(cluster: LocalCluster, topics: int, groups: int) -> None:
    """Put topics and groups into the broker's tables: what is measured is listing them."""
    broker = cluster._broker  # noqa: SLF001 - it is in this process
    assert broker is not None

    async def put() -> None:
        for number in range(topics):
            name = f"orders-{number:06d}"
            broker.state.topics.put(TopicConfig(topic_name=name, read_queue_nums=1))
        for number in range(groups):
            broker.state.groups.put(SubscriptionGroupConfig(group_name=f"billing-{number:06d}"))

    portal.call(put)


def list_all(
    count: int,
    watch: Stopwatch,
    *,
    look: Callable[[Target], Table],
    groups: bool,
    slowest: list[float],
) -> Iterable[bytes]:
    with LocalCluster() as cluster:
        fill(cluster, 0 if groups else count, count if groups else 0)
        where = Where(nameservers=cluster.nameservers, source="benchmark")
        page = io.StringIO()
        with Target(where, timeout_s=60) as target:
            look(target)  # connects
            spans: list[float] = []
            for _ in range(ROUNDS if is_large() else 1):
                page = io.StringIO()
                began = time.perf_counter()
                once = watch if not spans else Stopwatch()
                with once, redirect_stdout(page):
                    print_shown(look(target), OutputFormat.TABLE)
                spans.append(time.perf_counter() - began)
    spans.sort()
    slowest.append(spans[min(len(spans) - 1, int(len(spans) * SHARE))])
    return [str(len(page.getvalue().splitlines()) == count + 1).encode()]


def run() -> list[Measured]:
    found = []
    kinds: list[tuple[str, Any, bool, int]] = [
        ("topic ls", topic_commands.ls, False, 50_000),
        ("group ls", group_commands.ls, True, 5_000),
        ("group ls --lag", partial(group_commands.ls, lag=True), True, 5_000),
    ]
    for name, look, groups, large in kinds:
        slowest: list[float] = []
        work = partial(list_all, look=look, groups=groups, slowest=slowest)
        one = measure_part(name, "rows", work, small=100, large=large, rounds=1)
        if is_large():
            found.append(replace(one, remark=f"a listing of {large:,}: p99 {slowest[-1]:.2f} s"))
        else:
            found.append(one)
    return found

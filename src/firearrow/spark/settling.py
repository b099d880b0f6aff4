"""The driver's side of an exactly-once write: decide once, then end what was decided.

commit   decision log: append, read back: which attempt counts?
         END_TRANSACTIONS to each broker: what counts is delivered, all else of this epoch and
         earlier ones is rolled back
again    the same after a crash, by whoever comes: the first decision is found, nothing is
         delivered twice
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, NamedTuple

from firearrow.spark import decisions
from firearrow.spark.decisions import Decision, Group, Place, Target, Written, unpack_places
from firearrow.spark.errors import ConnectorError
from firearrow.wire.headers import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from firearrow.spark.decision_log import DecisionLog
    from firearrow.spark.sink_cluster import SinkCluster
    from firearrow.spark.write_options import WriteOptions


class Attempt(NamedTuple):
    """What one attempt of one partition has prepared."""

    partition: int
    attempt: str
    written: list[Written]


class Settling:
    """Decides and ends on behalf of one driver."""

    def __init__(self, cluster: SinkCluster, log: DecisionLog, options: WriteOptions) -> None:
        self._cluster = cluster
        self._log = log
        self._options = options

    async def commit(self, scope: str, epoch: int, attempts: Sequence[Attempt]) -> Decision:
        """Deliver these attempts, unless others were decided on; returns what counts."""
        singles = {one.target for attempt in attempts for one in attempt.written if not one.staged}
        heads = {target: (await self._cluster.bounds(target))[1] for target in singles}
        mine = decisions.decision_of(
            scope,
            epoch,
            uuid.uuid4().hex,
            group=self._options.group,
            attempts=attempts,
            heads=heads,
        )
        counts = await self._log.decide(mine)
        await self.end(counts, is_first=counts.decider == mine.decider)
        if counts.decider != mine.decider:
            await self._roll_back_singles(mine)
        return counts

    async def abort(self, scope: str, epoch: int, attempts: Sequence[Attempt]) -> Decision:
        """Have nothing of a step delivered, unless it was decided already that it is."""
        mine = decisions.decision_of(
            scope, epoch, uuid.uuid4().hex, group=self._options.group, attempts=attempts, heads={}
        )
        verdict = Decision(
            scope, epoch, mine.decider, outcome=decisions.ABORT, group=self._options.group
        )
        counts = await self._log.decide(verdict)
        await self.end(counts, is_first=False, also=mine.groups)
        if counts.outcome == decisions.ABORT:
            await self._roll_back_singles(mine)
        return counts

    async def end(self, decision: Decision, *, is_first: bool, also: Sequence[Group] = ()) -> None:
        """Deliver what a decision lists; roll back what else is open of its work."""
        by_broker: dict[str, list[Group]] = {}
        for group in decision.groups:
            by_broker.setdefault(group.broker, []).append(group)
        topics = {group.broker: group.topic for group in (*decision.groups, *also)}
        topics |= await self._others(decision, topics)
        await asyncio.gather(
            *(
                self._end_on(broker, topic, by_broker.get(broker, []), decision, is_first=is_first)
                for broker, topic in topics.items()
            )
        )

    async def _others(self, decision: Decision, known: dict[str, str]) -> dict[str, str]:
        """Brokers that may have half messages of attempts that came to nothing."""
        found: dict[str, str] = {}
        session = await self._cluster.open()
        topics = {group.topic for group in decision.groups}
        if self._options.topic is not None:  # a task that failed has told nobody where it wrote
            topics.add(session.wrap(self._options.topic))
        for topic in sorted(topics):
            route = session.known_route(topic) or await session.refresh_route(topic)
            for queue in () if route is None else route.publish:
                if queue.broker_name not in known:
                    found[queue.broker_name] = topic
        return found

    async def _end_on(
        self,
        broker: str,
        topic: str,
        groups: Sequence[Group],
        decision: Decision,
        *,
        is_first: bool,
    ) -> None:
        cluster, timeout_ms = self._cluster, self._options.delivery_timeout_ms
        places: list[Place] = [place for group in groups for place in unpack_places(group.places)]
        swept = await cluster.end_many(
            broker,
            topic,
            places,
            group=decision.group,
            timeout_ms=timeout_ms,
            outcome=TRANSACTION_COMMIT,
            sweep=(decision.scope, decision.epoch),
        )
        if swept:
            return
        if any(group.staged for group in groups):
            raise ConnectorError(
                f"broker {broker} has staged batches and does not know how to end them: it must "
                "run FireArrow, as it did when they were written"
            )
        await asyncio.gather(
            *(
                cluster.end_singles(
                    group.target,
                    unpack_places(group.places),
                    group=decision.group,
                    timeout_ms=timeout_ms,
                    from_offset=max(0, group.from_offset),
                    is_first=is_first,
                )
                for group in groups
            )
        )

    async def _roll_back_singles(self, loser: Decision) -> None:
        """Half messages on brokers that sweep nothing; ours have swept them with the end."""
        await asyncio.gather(
            *(
                self._cluster.end_singles(
                    Target(group.broker, group.topic, group.queue_id),
                    unpack_places(group.places),
                    group=loser.group,
                    timeout_ms=self._options.delivery_timeout_ms,
                    from_offset=0,
                    is_first=True,
                    outcome=TRANSACTION_ROLLBACK,
                )
                for group in loser.groups
                if not group.staged
            )
        )

"""How long requests took, by code and answer: what `rocketmq_rpc_latency` shows."""

from __future__ import annotations

from typing import Final

from firearrow.base.histogram import Histogram
from firearrow.wire.codes import RequestCode

BOUNDS_MS: Final = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)  # RocketMQ's
KINDS_MAX: Final = 4_096  # codes come from peers, answers from us


class RpcTimes:
    """Kept while requests are served. Pulls that wait for messages are not in it: they wait."""

    def __init__(self) -> None:
        self.kinds: dict[tuple[int, int], Histogram] = {}

    def observe(self, code: int, response_code: int, took_ms: int, times: int = 1) -> None:
        found = self.kinds.get((code, response_code))
        if found is None:
            if len(self.kinds) >= KINDS_MAX:
                return
            found = self.kinds[code, response_code] = Histogram(BOUNDS_MS)
        found.observe(took_ms, times)

    def stored(self, answer: int, took_ms: int, times: int) -> None:
        """Messages whose senders have waited for disk and slaves, or did not have to."""
        self.observe(RequestCode.SEND_MESSAGE_V2, answer, took_ms, times)

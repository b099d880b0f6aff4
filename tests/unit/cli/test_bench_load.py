from __future__ import annotations

import pytest

from firearrow.cli.bench_load import Outcome, hint

SYNC = {"flushDiskType": "sync_flush"}


@pytest.mark.parametrize(
    ("outcome", "settings", "paced", "words"),
    [
        (Outcome(failed=2, first_error="no route"), {}, False, "2 sends failed: no route"),
        (Outcome(), {}, True, "the rate was given"),
        (Outcome(wall_s=1, cpu_s=0.97, in_flight=64), SYNC, False, "this client"),
        (Outcome(wall_s=1, in_flight=1, latencies_ms=[2.0]), SYNC, False, "Raise --in-flight"),
        (Outcome(wall_s=1, in_flight=64), SYNC, False, "waits for its disk"),
        (Outcome(wall_s=1, in_flight=64), {}, False, "the broker or the network"),
        (Outcome(wall_s=1, in_flight=0), SYNC, False, "more consumers"),
    ],
)
def test_hint_names_what_limits(
    outcome: Outcome, settings: dict[str, str], paced: bool, words: str
) -> None:
    assert words in hint(outcome, settings, paced=paced)


def test_percentiles_are_of_what_was_measured() -> None:
    outcome = Outcome(latencies_ms=[float(one) for one in range(1, 101)])
    assert outcome.percentile(50) == 51.0
    assert outcome.percentile(99.9) == 100.0
    assert Outcome().percentile(50) is None

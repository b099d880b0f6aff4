from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from firearrow.client.local_offsets import LocalOffsetFile
from firearrow.model.topic import MessageQueue

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
QUEUES = st.builds(
    MessageQueue,
    topic=st.text(),
    broker_name=st.text(),
    queue_id=st.integers(-(1 << 31), (1 << 31) - 1),
)


@given(st.lists(st.dictionaries(QUEUES, INT64, max_size=6), max_size=3))
def test_what_is_saved_is_loaded_whatever_the_names(saves: list[dict[MessageQueue, int]]) -> None:
    expected: dict[MessageQueue, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = LocalOffsetFile(Path(folder) / "offsets.json")
        for offsets in saves:
            file.save(offsets)
            expected |= offsets
        assert file.load() == expected

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.stores import message, open_store, put_all, read_all

if TYPE_CHECKING:
    from pathlib import Path

FILE_BYTES = 8192


def forget_second_file(root: Path) -> None:
    for path in root.iterdir():
        if path.is_file():
            path.unlink()
    (root / "abort").touch()
    (root / "commitlog" / f"{FILE_BYTES:020}").unlink()


async def test_a_filler_is_kept_when_the_file_behind_it_is_lost(tmp_path: Path) -> None:
    """A slave may hold the filler, and go on behind it: what is there must not be written over."""
    settings: dict[str, Any] = {"mapped_file_size_commit_log": FILE_BYTES}
    async with open_store(tmp_path, **settings) as store:
        while store.statistics().end_offset <= FILE_BYTES:
            await put_all(store, [message(bytes(500))])
        count = len(read_all(store))
    # As after a loss of power before the second file's name, and all that speaks of it, was safe.
    forget_second_file(tmp_path)
    async with open_store(tmp_path, **settings) as store:
        assert store.statistics().end_offset == FILE_BYTES
        assert len(read_all(store)) == count - 1
        await put_all(store, [message(b"small")])
        assert len(read_all(store)) == count
        assert store.statistics().end_offset > FILE_BYTES

"""Files are torn, zeroed, flipped, cut and gone: the store opens, and serves what is intact.

Every case starts from one of two directories with the same eighty messages, all acknowledged: one
that was stopped cleanly, and one whose process died a while after its last checkpoint. More cases:
``FIREARROW_DAMAGE_SEEDS=100 pytest tests/unit/store/test_damage.py``.
"""

from __future__ import annotations

import contextlib
import os
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.stores import FOREVER_MS, small_config
from tests.storing import Sender, Sent, read_queue, stepped_threads, turns

from firearrow.store.store import MessageStore
from firearrow.testing.faults import ManualClock
from firearrow.testing.lying_disk import LyingDisk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from firearrow.store.recovery import Recovered

SEEDS = int(os.environ.get("FIREARROW_DAMAGE_SEEDS", "4"))
QUEUES = [("orders", 0), ("orders", 1), ("payments", 0), ("payments", 1)]
MESSAGES = 80
CHECKPOINT_BEHIND = 60  # messages; later ones are in no queue file
LOG_FILE_BYTES = 4096


@dataclass(slots=True)
class Directory:
    """A store directory, and what was put into it."""

    root: Path
    disk: LyingDisk
    sender: Sender
    damaged: set[int] = field(default_factory=set)  # messages whose bytes are not theirs any more

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[MessageStore]:
        stepped_threads()
        store = MessageStore(small_config(self.root), ManualClock(), disk=self.disk)
        await store.start()
        try:
            yield store
        finally:
            await store.stop()

    def files(self, kind: str) -> list[Path]:
        """The files of a kind, oldest first."""
        top = self.root / kind
        found = [top] if self.disk.size_of(top) is not None else []
        folders = [top]
        while folders:
            folder = folders.pop()
            for name in self.disk.names(folder):
                path = folder / name
                (folders if self.disk.size_of(path) is None else found).append(path)
        return sorted(found)

    def damage(self, path: Path, change: Callable[[bytearray], object] | None) -> None:
        """Change a file, or remove it; remember which messages that has hit."""
        before = self.disk.read(path)
        assert before is not None
        if change is None:
            self.disk.remove(path)
            self.disk.sync_folder(path.parent)
        else:
            self.disk.damage(path, change)
        if path.parent.name == "commitlog":
            after = (self.disk.read(path) or b"").ljust(len(before), b"\0")
            start = int(path.name)
            for sent in self.sender.sent:
                low = sent.message.physical_offset - start
                place = slice(max(low, 0), max(low + sent.message.size, 0))
                if before[place] != after[place]:
                    self.damaged.add(sent.number)

    def intact(self) -> list[Sent]:
        """Messages that must be there.

        Behind what is known to have been flushed, the first damage ends the log, because it looks
        like a write that a crash has cut.
        """
        tail = self._flushed_to()
        hit = [self.sender.sent[number].message.physical_offset for number in self.damaged]
        end = min((place for place in hit if place >= tail), default=1 << 62)
        return [
            sent
            for sent in self.sender.sent
            if sent.number not in self.damaged and sent.message.physical_offset < end
        ]

    def is_known_to_have_been_flushed(self, numbers: set[int]) -> bool:
        """Whether losing one of these is more than a crash can do."""
        flushed_to = self._flushed_to()
        return any(self.sender.sent[n].message.physical_offset < flushed_to for n in numbers)

    def _flushed_to(self) -> int:
        raw = self.disk.read(self.root / "firearrow.json")
        if raw is None or not self.damaged:
            return 0
        return int(msgspec.json.decode(raw.splitlines()[0])["flushedTo"])


class Filled:
    """Both directories are made once; each test gets a copy."""

    def __init__(self) -> None:
        self._made: dict[bool, Directory] = {}

    async def copy(self, root: Path, *, clean: bool) -> Directory:
        if clean not in self._made:
            self._made[clean] = Directory(root, LyingDisk(root, seed=1), Sender())
            await self._fill(self._made[clean], clean=clean)
        made = self._made[clean]
        disk = made.disk.after_process_crash()
        return Directory(made.root, disk, Sender(list(made.sender.sent)))

    @staticmethod
    async def _fill(directory: Directory, *, clean: bool) -> None:
        choose = random.Random(7)
        async with directory.open() as store:
            for number in range(MESSAGES):
                sent = directory.sender.make(
                    *choose.choice(QUEUES),
                    choose.choice([0, 30, 100, 300, 700]),
                    key=f"key{number % 9}",
                    tag=choose.choice(["a", "b"]),
                )
                await store.wait_flushed(store.put(sent.message))
                await turns()
                if number == CHECKPOINT_BEHIND:
                    await store.checkpoint()
            if not clean:
                dead = directory.disk.after_process_crash()
        if not clean:
            directory.disk = dead


FILLED = Filled()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


# --- what must be true afterwards -------------------------------------------------------------


def serves(directory: Directory, store: MessageStore) -> set[int]:
    """Read everything: whatever is served is a message of ours, whole, and in its place."""
    unsure = frozenset(directory.damaged)
    served = set()
    for topic, queue_id in QUEUES:
        for offset, record in read_queue(store, topic, queue_id).items():
            sent = directory.sender.of(record, unsure=unsure)
            assert sent.place == (topic, queue_id, offset)
            served.add(sent.number)
    for sent in directory.sender.sent:
        found = store.lookup.by_queue_offset(*sent.place)
        if found is not None:
            assert directory.sender.of(found, unsure=unsure).place == sent.place
    for topic, key in {(sent.message.topic, sent.key) for sent in directory.sender.sent}:
        for number in numbers_by_key(directory, store, topic, key):
            assert number in unsure or directory.sender.sent[number].key == key
    return served


def numbers_by_key(directory: Directory, store: MessageStore, topic: str, key: str) -> set[int]:
    records = store.lookup.by_key(topic, key, limit=10_000, begin_ms=0, end_ms=FOREVER_MS)
    unsure = frozenset(directory.damaged)
    return {directory.sender.of(record, unsure=unsure).number for record in records}


def must_be_found_by_key(directory: Directory, store: MessageStore, wanted: list[Sent]) -> None:
    found: dict[tuple[str, str], set[int]] = {}
    for sent in wanted:
        for key in (f"ID{sent.number}", sent.key):
            asked = (sent.message.topic, key)
            if asked not in found:
                found[asked] = numbers_by_key(directory, store, *asked)
            assert sent.number in found[asked], f"{sent} is not found by {key}"


async def must_go_on(directory: Directory, store: MessageStore, *, above: bool) -> None:
    """New messages get offsets that nobody had, and are read back."""
    for topic, queue_id in QUEUES:
        used = [
            s.message.queue_offset for s in directory.sender.sent if s.queue == (topic, queue_id)
        ]
        sent = directory.sender.make(topic, queue_id, 50, key="new", tag="a")
        end = store.put(sent.message)
        await store.wait_flushed(end)
        await turns()
        assert sent.message.queue_offset == store.lookup.max_offset(topic, queue_id) - 1
        if above:
            assert sent.message.queue_offset > max(used), "an offset is given out again"
        record = store.lookup.by_queue_offset(*sent.place)
        assert record is not None
        assert directory.sender.of(record) is sent


async def must_survive(
    directory: Directory, *, by_key: bool = True, above: bool = True
) -> Recovered:
    """Open it twice: what is mended stays mended."""
    intact = directory.intact()
    first = None
    for attempt in range(2):
        async with directory.open() as store:
            first = first or store.recovered
            served = serves(directory, store)
            missing = [sent for sent in intact if sent.number not in served]
            assert not missing, f"intact and not served at start {attempt}: {missing[:3]}"
            if by_key:
                must_be_found_by_key(directory, store, intact)
            await must_go_on(directory, store, above=above)
            intact += directory.sender.sent[-len(QUEUES) :]
            serves(directory, store)
    assert first is not None
    return first


def is_named(recovered: Recovered, caplog: pytest.LogCaptureFixture) -> bool:
    said = [record for record in caplog.records if record.levelname in {"WARNING", "ERROR"}]
    return bool(recovered.damage or [r for r in said if "not stopped cleanly" not in r.message])


# --- ways to damage a file --------------------------------------------------------------------


def cut_to_nothing(content: bytearray, _: random.Random) -> None:
    content.clear()


def cut_short(content: bytearray, choose: random.Random) -> None:
    del content[choose.randrange(1, len(content)) :]


def zero_all(content: bytearray, _: random.Random) -> None:
    content[:] = bytes(len(content))


def zero_some(content: bytearray, choose: random.Random) -> None:
    at = choose.randrange(len(content))
    stop = min(len(content), at + choose.choice([1, 16, 100, 512]))
    content[at:stop] = bytes(stop - at)


def scramble_some(content: bytearray, choose: random.Random) -> None:
    at = choose.randrange(len(content))
    stop = min(len(content), at + choose.choice([1, 16, 100, 512]))
    content[at:stop] = choose.randbytes(stop - at)


def flip_a_bit(content: bytearray, choose: random.Random) -> None:
    content[choose.randrange(len(content))] ^= 1 << choose.randrange(8)


DAMAGES: dict[str, Callable[[bytearray, random.Random], None] | None] = {
    "missing": None,
    "empty": cut_to_nothing,
    "short": cut_short,
    "zeroed": zero_all,
    "zeros-inside": zero_some,
    "garbage-inside": scramble_some,
    "a-bit": flip_a_bit,
}
WHOLE = ["missing", "empty", "short", "zeroed"]  # damages of which nobody can miss the sight
WHERE = {"first": 0, "middle": 0.5, "last": 1}


def apply(directory: Directory, path: Path, how: str, choose: random.Random) -> None:
    change = DAMAGES[how]
    directory.damage(path, None if change is None else lambda content: change(content, choose))


def chosen(files: list[Path], where: str) -> Path:
    return files[int((len(files) - 1) * WHERE[where])]


# --- the tests --------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "crashed"])
async def test_without_damage_everything_is_there(
    root: Path, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    directory = await FILLED.copy(root, clean=clean)
    assert len(directory.intact()) == MESSAGES
    recovered = await must_survive(directory)
    assert recovered.clean == clean
    assert not is_named(recovered, caplog)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "crashed"])
async def test_a_damaged_log_file_costs_what_it_held_and_no_more(  # noqa: PLR0917 - parametrized
    root: Path, clean: bool, where: str, how: str, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    directory = await FILLED.copy(root, clean=clean)
    apply(directory, chosen(directory.files("commitlog"), where), how, random.Random(seed))
    known = directory.is_known_to_have_been_flushed(directory.damaged)
    recovered = await must_survive(directory, above=False)
    if how in WHOLE and (clean or known):
        assert is_named(recovered, caplog)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "crashed"])
async def test_a_damaged_queue_file_costs_nothing(
    root: Path, clean: bool, where: str, how: str, seed: int
) -> None:
    directory = await FILLED.copy(root, clean=clean)
    choose = random.Random(seed)
    topic, queue_id = choose.choice(QUEUES)
    files = directory.files(f"consumequeue/{topic}/{queue_id}")
    apply(directory, chosen(files, where), how, choose)
    await must_survive(directory)


@pytest.mark.parametrize("lost", ["consumequeue", "consumequeue/orders", "consumequeue/orders/0"])
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "crashed"])
async def test_queues_whose_folders_are_gone_are_made_again(
    root: Path, clean: bool, lost: str
) -> None:
    directory = await FILLED.copy(root, clean=clean)
    directory.disk.remove(root / lost)
    await must_survive(directory)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "crashed"])
async def test_a_damaged_index_file_is_made_again_or_does_no_harm(
    root: Path, clean: bool, where: str, how: str, seed: int
) -> None:
    directory = await FILLED.copy(root, clean=clean)
    apply(directory, chosen(directory.files("index"), where), how, random.Random(seed))
    await must_survive(directory, by_key=how in WHOLE)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", ["checkpoint", "firearrow.json", "abort"])
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "crashed"])
async def test_a_damaged_note_costs_nothing(
    root: Path, clean: bool, name: str, how: str, seed: int
) -> None:
    directory = await FILLED.copy(root, clean=clean)
    files = directory.files(name)
    if not files:
        assert clean, "only a clean stop removes the abort file"
        return
    apply(directory, files[0], how, random.Random(seed))
    await must_survive(directory)


@pytest.mark.parametrize("content", [b"", b"lock", b"no lock at all", bytes(9_000)])
async def test_whatever_the_lock_file_holds_the_store_opens(root: Path, content: bytes) -> None:
    directory = await FILLED.copy(root, clean=True)
    (root / "lock").write_bytes(content)
    await must_survive(directory)
    (root / "lock").unlink()
    await must_survive(directory)


@pytest.mark.parametrize("how", ["zeros", "the end of the file"])
async def test_the_last_record_can_be_cut_at_every_byte(root: Path, how: str) -> None:
    size = (await FILLED.copy(root, clean=False)).sender.sent[-1].message.size
    for kept in range(size):
        directory = await FILLED.copy(root, clean=False)
        last = directory.sender.sent[-1].message
        position = last.physical_offset % LOG_FILE_BYTES + kept

        def cut(content: bytearray, position: int = position) -> None:
            del content[position:]
            if how == "zeros":
                content.extend(bytes(LOG_FILE_BYTES - position))

        directory.damage(directory.files("commitlog")[-1], cut)
        async with directory.open() as store:
            served = serves(directory, store)
            assert served == set(range(MESSAGES - 1)), f"with {kept} bytes of the last"
            await must_go_on(directory, store, above=False)

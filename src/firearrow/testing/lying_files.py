"""Files and folders that know two truths: what is written, and what would survive a power loss.

    content   | durable | version | version | ... | live |     per page of 4 KiB
    folder    | durable | name -> later | later | ... |        per name

A sync moves `durable` forward. A power loss takes, for each page and each name, any one of these
states by itself, because that is the order in which a real disk writes them: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

T = TypeVar("T")

PAGE_BYTES: Final = 4096
SECTOR_BYTES: Final = 512
VERSIONS_MAX: Final = 8  # of one page between two syncs; more add nothing new


class HoleWritten(BaseException):
    """Memory was written for which the full disk has no space; a real process would be dead.

    Not an Exception, so that nobody takes it for a failure that one can go on from.
    """


class Content:
    """The bytes of one file, whatever its name is."""

    def __init__(self) -> None:
        self.live = bytearray()
        self.modified_ms = 0
        self._durable = b""
        self._seen = b""  # what `observe` saw last
        self._versions: dict[int, list[tuple[int, bytes]]] = {}  # by page: moment, bytes
        self._moment = 0
        self._allocated: set[int] = set()  # pages that have space on the disk
        self._filled: set[int] = set()  # holes that were written into
        self._given_up: dict[int, bytes] = {}  # pages that a failed sync counts as clean

    def observe(self, now_ms: int) -> None:
        """Take note of what was written since the last time."""
        if self.live == self._seen:
            return
        self.modified_ms = now_ms
        self._moment += 1
        for page in range(pages_of(max(len(self.live), len(self._seen)))):
            now = page_of(self.live, page)
            if now != page_of(self._seen, page):
                versions = self._versions.setdefault(page, [])
                versions.append((self._moment, bytes(now)))
                if len(versions) > VERSIONS_MAX:
                    del versions[len(versions) // 2]
                if page not in self._allocated and any(now):
                    self._filled.add(page)
                    self._allocated.add(page)
        self._seen = bytes(self.live)

    def take_filled_holes(self) -> set[int]:
        filled, self._filled = self._filled, set()
        return filled

    # --- becoming durable ---------------------------------------------------------------------

    def capture(self) -> tuple[int, bytes]:
        """A moment that a sync begun now makes durable."""
        self.observe(self.modified_ms)
        return self._moment, bytes(self.live)

    def settle(self, moment: tuple[int, bytes]) -> None:
        """The sync has ended: nothing from before that moment can come back."""
        number, content = moment
        durable = bytearray(content)
        for page, given_up in self._given_up.items():
            if page_of(content, page) == given_up:
                place = slice(page * PAGE_BYTES, page * PAGE_BYTES + len(given_up))
                durable[place] = page_of(self._durable, page).ljust(len(given_up), b"\0")
        self._durable = bytes(durable)
        for page, versions in list(self._versions.items()):
            self._versions[page] = [version for version in versions if version[0] > number]

    def forget(self) -> None:
        """The sync has failed: pages count as clean, and are not what the disk has."""
        for page in range(pages_of(len(self.live))):
            now = page_of(self.live, page)
            if now != page_of(self._durable, page):
                self._given_up[page] = bytes(now)

    def rewrite(self, position: int) -> None:
        """Write everything from there on again: pages that were given up are dirty now."""
        first = position // PAGE_BYTES
        self._given_up = {page: now for page, now in self._given_up.items() if page < first}

    def replace_all(self, content: bytearray) -> None:
        """Other bytes, maybe of another length. Old maps keep what they had."""
        self.live = content
        self._allocated = {page for page in self._allocated if page < pages_of(len(content))}

    # --- space --------------------------------------------------------------------------------

    @property
    def allocated_bytes(self) -> int:
        return len(self._allocated) * PAGE_BYTES

    def missing_bytes(self, position: int, size: int) -> int:
        return len(_pages_in(position, size) - self._allocated) * PAGE_BYTES

    def allocate(self, position: int, size: int) -> None:
        self._allocated |= _pages_in(position, size)

    def fitting_bytes(self, position: int, size: int, free_bytes: int) -> int:
        """How many bytes can be written there before the disk is full."""
        while size and self.missing_bytes(position, size) > free_bytes:
            size = max(0, (position + size - 1) // PAGE_BYTES * PAGE_BYTES - position)
        return size

    # --- what is left -------------------------------------------------------------------------

    def states_of(self, page: int) -> list[bytes]:
        """What may be on the disk of this page, oldest first."""
        states = [page_of(self._durable, page)]
        states += [content for _, content in self._versions.get(page, [])]
        return states

    @property
    def lengths(self) -> list[int]:
        return sorted({len(self._durable), len(self.live)})

    @classmethod
    def surviving(cls, content: bytes, modified_ms: int) -> Content:
        made = cls()
        made.live = bytearray(content)
        made.modified_ms = modified_ms
        made._seen = made._durable = bytes(content)
        made._allocated = {
            page for page in range(pages_of(len(content))) if any(page_of(content, page))
        }
        return made

    def copied(self) -> Content:
        made = Content()
        made.live = bytearray(self.live)
        made.modified_ms = self.modified_ms
        made._durable, made._seen, made._moment = self._durable, self._seen, self._moment
        made._versions = {page: list(known) for page, known in self._versions.items()}
        made._allocated = set(self._allocated)
        made._given_up = dict(self._given_up)
        return made


class Folder:
    """Names, as they are and as a power loss may leave them."""

    def __init__(self) -> None:
        self.entries: dict[str, Folder | Content] = {}
        self._durable: dict[str, Folder | Content] = {}
        self._later: dict[str, list[Folder | Content | None]] = {}  # since the last sync

    def put(self, name: str, node: Folder | Content | None) -> None:
        """Give a name to something, or take it away."""
        if node is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = node
        self._later.setdefault(name, []).append(node)

    def settle(self) -> None:
        self._durable = dict(self.entries)
        self._later.clear()

    @property
    def is_settled(self) -> bool:
        return not self._later

    def states_of(self, name: str) -> list[Folder | Content | None]:
        return [self._durable.get(name), *self._later.get(name, [])]

    @property
    def names(self) -> list[str]:
        """Everything that may be there."""
        return sorted({*self._durable, *self._later})

    def contents(self) -> Iterator[Content]:
        for node in self.entries.values():
            if isinstance(node, Folder):
                yield from node.contents()
            else:
                yield node

    @classmethod
    def surviving(cls, entries: dict[str, Folder | Content]) -> Folder:
        made = cls()
        made.entries = entries
        made.settle()
        return made

    def copied(self, known: dict[int, Folder | Content]) -> Folder:
        """The same, independent of this one; `known` keeps files with two names one file."""

        def copy(node: Folder | Content) -> Folder | Content:
            if id(node) not in known:
                known[id(node)] = node.copied(known) if isinstance(node, Folder) else node.copied()
            return known[id(node)]

        made = Folder()
        made.entries = {name: copy(node) for name, node in self.entries.items()}
        made._durable = {name: copy(node) for name, node in self._durable.items()}
        made._later = {
            name: [None if node is None else copy(node) for node in later]
            for name, later in self._later.items()
        }
        return made


class Survivors:
    """One power loss: decides what is left.

    Half of them mix old and new freely; the others keep nothing that was not synced, or all of it,
    since pure chance would rarely come to these two.
    """

    def __init__(self, choose: random.Random, torn_sectors: bool) -> None:  # noqa: FBT001
        self._choose = choose
        self._torn_sectors = torn_sectors
        self._mood = choose.choice(["mixed", "mixed", "nothing", "everything"])
        self._known: dict[int, Folder | Content] = {}

    def of_folder(self, folder: Folder) -> Folder:
        entries: dict[str, Folder | Content] = {}
        for name in folder.names:
            node = self._pick(folder.states_of(name))
            if node is not None:
                if id(node) not in self._known:
                    self._known[id(node)] = (
                        self.of_folder(node) if isinstance(node, Folder) else self._of_content(node)
                    )
                entries[name] = self._known[id(node)]
        return Folder.surviving(entries)

    def _of_content(self, content: Content) -> Content:
        length = self._pick(content.lengths)
        pages = [self._of_page(content.states_of(page)) for page in range(pages_of(length))]
        whole = b"".join(page.ljust(PAGE_BYTES, b"\0") for page in pages)
        return Content.surviving(whole[:length], content.modified_ms)

    def _of_page(self, states: list[bytes]) -> bytes:
        if not self._torn_sectors or len(states) == 1:
            return self._pick(states)
        size = max(len(state) for state in states)
        return b"".join(
            self._pick(states).ljust(size, b"\0")[at : at + SECTOR_BYTES]
            for at in range(0, size, SECTOR_BYTES)
        )

    def _pick(self, states: list[T]) -> T:
        if self._mood == "nothing":
            return states[0]
        if self._mood == "everything":
            return states[-1]
        return self._choose.choice(states)


def pages_of(length: int) -> int:
    return -(-length // PAGE_BYTES)


def page_of(content: bytes | bytearray, page: int) -> bytes:
    return bytes(content[page * PAGE_BYTES : (page + 1) * PAGE_BYTES])


def _pages_in(position: int, size: int) -> set[int]:
    return set(range(position // PAGE_BYTES, pages_of(position + size))) if size else set()

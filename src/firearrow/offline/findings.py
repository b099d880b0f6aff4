"""What a checker has to say: which rule is broken, where, and in words.

The rules are those of the facts about RocketMQ's store (its section of invariants); those that
need a second broker to compare with are not here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

RULES: Final = {
    "C1": "commit log files follow each other without a gap, all of one size",
    "C2": "records lie back to back from the beginning of a file to its end",
    "C3": "every record is sound and lies where it says",
    "C4": "a full file ends in a blank that reaches its end; there are no other blanks",
    "C5": "store times are set and do not run backwards",
    "C6": "queue offsets count up without a gap",
    "C7": "prepared and rolled-back records have no queue offset",
    "C8": "a committed transaction points back to its half message",
    "C9": "record checksums are right, where there are any",
    "Q1": "every unit points to a record of its queue and offset",
    "Q2": "units do not point behind the end of the log",
    "Q3": "tags codes follow from the record",
    "Q4": "filler stands only in front of a queue",
    "Q5": "every record has its unit",
    "Q6": "a queue begins with its first record and ends with its last",
    "Q7": "no queue file is kept for messages that are gone",
    "I1": "index chains and counters are consistent",
    "I2": "index entries point forward, to records that have that key",
    "I3": "times of index entries are those of their records",
    "I4": "index files follow each other, all but the last full",
    "O1": "no group has consumed more than a queue holds",
    "O2": "delayed messages were delivered up to a place in their queue, and not early",
    "O3": "transactions were checked up to a place in their queues; op messages list offsets",
    "O4": "the checkpoint is not ahead of the log",
    "O5": "queue folders belong to topics with that many queues",
    "O6": "timer slots lead through the timer log to messages of the timer topic",
    "O9": "a store that was closed cleanly has nothing left to dispatch",
}
SHOWN_PER_RULE_MAX: Final = 100  # the rest is counted


class Finding(NamedTuple):
    """One broken rule; `places` in a row are one finding."""

    code: str
    where: str
    what: str
    places: int = 1

    def __str__(self) -> str:
        more = f" ({self.places} in a row)" if self.places > 1 else ""
        return f"{self.code} {self.where}: {self.what}{more}"


class Findings:
    """Collects findings, those about neighbours as one, and only so many of each rule."""

    def __init__(self) -> None:
        self._found: list[Finding] = []
        self._counts: dict[str, int] = {}
        self._run: tuple[str, str, str, str, int, int] | None = None

    def add(self, code: str, where: str, what: str, places: int = 1) -> None:
        self._end_run()
        assert code in RULES, code
        count = self._counts[code] = self._counts.get(code, 0) + 1
        if count <= SHOWN_PER_RULE_MAX:
            self._found.append(Finding(code, where, what, places))

    def add_numbered(self, code: str, folder: str, kind: str, number: int, what: str) -> None:
        """A finding about unit 7 of a queue, say; one about unit 8 will be added to it."""
        run = self._run
        if run is not None and run[:4] == (code, folder, kind, what) and run[5] == number - 1:
            self._run = (code, folder, kind, what, run[4], number)
            return
        self._end_run()
        self._run = (code, folder, kind, what, number, number)

    def merge(self, other: Findings) -> None:
        """Add what was found somewhere else."""
        self._end_run()
        other._end_run()
        for finding in other._found:
            count = self._counts[finding.code] = self._counts.get(finding.code, 0) + 1
            if count <= SHOWN_PER_RULE_MAX:
                self._found.append(finding)
        for code, count in other._counts.items():  # those that were not shown there either
            self._counts[code] += max(0, count - SHOWN_PER_RULE_MAX)

    def _end_run(self) -> None:
        if self._run is not None:
            code, folder, kind, what, first, last = self._run
            self._run = None
            span = f"{kind} {first}" if first == last else f"{kind}s {first} to {last}"
            self.add(code, f"{folder} {span}", what, last - first + 1)

    def sorted(self) -> list[Finding]:
        """By rule, in the order of RULES; within a rule as found."""
        self._end_run()
        order = {code: place for place, code in enumerate(RULES)}
        found = sorted(self._found, key=lambda finding: order[finding.code])
        hidden = {
            code: count - SHOWN_PER_RULE_MAX
            for code, count in self._counts.items()
            if count > SHOWN_PER_RULE_MAX
        }
        for code, count in hidden.items():
            found.append(Finding(code, "…", f"and {count} more of this kind"))
        return sorted(found, key=lambda finding: order[finding.code])

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow.console.audit import Audit
from firearrow.testing import ManualClock

if TYPE_CHECKING:
    from pathlib import Path


def write(audit: Audit, target: str, outcome: str = "done") -> None:
    audit.add(
        user="ann", address="h", action="topic.create", target=target, details="", outcome=outcome
    )


def test_entries_come_newest_first_and_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = Audit(path, ManualClock())
    write(audit, "one")
    write(audit, "two\nlines", "failed")
    again = Audit(path, ManualClock())
    assert [entry.target for entry in again.newest()] == ["two\nlines", "one"]
    assert path.stat().st_mode & 0o077 == 0
    assert len(path.read_text("utf-8").splitlines()) == 2


def test_entries_are_found_by_any_of_their_words(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "a" / "audit.jsonl", ManualClock())
    write(audit, "orders")
    write(audit, "refunds", "refused")
    assert [entry.target for entry in audit.newest("REFUSED")] == ["refunds"]
    assert audit.newest("nothing") == []


def test_half_a_line_of_a_crash_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write(Audit(path, ManualClock()), "one")
    with path.open("a") as file:
        file.write('{"at_ms": 1, "us')
    again = Audit(path, ManualClock())
    assert [entry.target for entry in again.newest()] == ["one"]
    write(again, "two")
    assert [entry.target for entry in Audit(path, ManualClock()).newest()] == ["two", "one"]

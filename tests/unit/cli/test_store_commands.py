from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.store_builder import sample_store
from tests.unit.offline.test_check_healthy import BROKER
from typer.testing import CliRunner

from firearrow.cli.root import app

if TYPE_CHECKING:
    from pathlib import Path

FIREARROW = [sys.executable, "-m", "firearrow", "store"]


class Ran(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


def run(*arguments: object) -> Ran:
    result = CliRunner().invoke(app, ["store", *map(str, arguments)])
    return Ran(result.exit_code, result.stdout, result.stderr)


# --- dump -----------------------------------------------------------------------------------------


def test_dump_prints_a_table(tmp_path: Path) -> None:
    sample_store(tmp_path)
    result = run("dump", tmp_path, "--topic", "Orders", "--queue", 1, "--limit", 2)
    assert result.exit_code == 0
    header, *rows = result.stdout.splitlines()
    assert header.replace("log offset", "at").split() == [
        *("at", "topic", "queue", "offset", "stored", "tags", "keys", "size", "id")
    ]
    assert len(rows) == 2
    assert "Orders" in rows[0]
    assert rows[0].index("Orders") == header.index("topic")


def test_dump_prints_json_lines(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    result = run("dump", tmp_path, "--json", "--body", "--offset", "1-2", "-t", "Batches")
    messages = [json.loads(line) for line in result.stdout.splitlines()]
    assert [message["body"] for message in messages] == ["two", "three"]
    everything = run("dump", tmp_path, "--json").stdout.splitlines()
    assert len(everything) == len(sample.builder.stored) + 2


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (["--key", "k5"], 1),
        (["--tag", "Tag1"], 5),
        (["--id", "U-half"], 2),
        (["--offset", "3"], 3),
        (["--from", "2048", "--to", "2049"], 1),
        (["--from", "2026-11-15T08:56:22+00:00"], 2),
        (["--from", "@1794732982999"], 1),
        (["--to", "@1794732955701"], 1),
    ],
)
def test_dump_selects(options: list[str], count: int, tmp_path: Path) -> None:
    sample_store(tmp_path)
    result = run("dump", tmp_path, "--json", *options)
    assert len(result.stdout.splitlines()) == count


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--from", "yesterday"], "--from 'yesterday': a log offset"),
        (["--to", "@soon"], "--to '@soon'"),
        (["--offset", "x"], "--offset 'x': a queue offset or two"),
        (["--offset", "1-"], "--offset '1-'"),
        (["--limit", "0"], "--limit"),
        (["--colour"], "--colour"),
    ],
)
def test_dump_says_what_it_expects(options: list[str], words: str, tmp_path: Path) -> None:
    sample_store(tmp_path)
    result = run("dump", tmp_path, *options)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_dump_names_damage_and_shows_the_rest(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    sample.patch_log(sample.keyless.offset + 88, b"?")
    result = run("dump", tmp_path, "--json")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"C3 commitlog {sample.keyless.offset}: ")
    assert len(result.stdout.splitlines()) == len(sample.builder.stored) + 1


def test_a_message_cannot_talk_to_the_terminal(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    sample.builder.root = tmp_path / "evil"
    evil = "\x1b[2J\x07"
    sample.builder.append("Evil", body=evil.encode(), properties={"KEYS": evil, "TAGS": evil})
    sample.builder.write_log()
    result = run("dump", tmp_path / "evil", "-t", "Evil", "--body")
    assert "\x1b" not in result.stdout
    assert "\\x1b[2J" in result.stdout


def test_dump_into_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    sample_store(tmp_path)
    command = " ".join([*FIREARROW, "dump", str(tmp_path), "--json"])
    result = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | true"], capture_output=True, check=False
    )
    assert result.stderr == b""


# --- check ----------------------------------------------------------------------------------------


def test_check_of_a_sound_store_says_so(tmp_path: Path) -> None:
    sample_store(tmp_path)
    result = run("check", tmp_path)
    assert result.exit_code == 0
    assert "40 records" in result.stdout
    assert result.stdout.endswith("sound: none of the 27 rules is broken\n")


def test_check_lists_what_is_broken_by_rule_and_place(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    sample.patch_unit("Orders/0", 6, bytes(40))
    sample.patch_log(sample.op.offset + 4, b"oops")
    result = run("check", tmp_path)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[1].startswith(f"C2 commitlog {sample.op.offset}: ")
    assert lines[2].startswith("Q5 consumequeue/Orders/0: no unit for queue offset 6 to 7")
    assert f"firearrow store rebuild {tmp_path}" in result.stdout
    assert f"firearrow store dump {tmp_path}" in result.stdout


def test_check_reports_in_json(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    (tmp_path / "abort").touch()
    sample.patch_unit("Orders/0", 6, bytes(40))
    result = run("check", tmp_path, "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["sound"] is False
    (finding,) = report["findings"]
    assert (finding["code"], finding["where"], finding["places"]) == (
        "Q5",
        "consumequeue/Orders/0",
        2,
    )
    assert finding["rule"] == "every record has its unit"
    assert "not closed cleanly" in report["notes"][0]
    assert report["maxOffset"] == sample.last.offset + sample.last.size


def test_check_shows_its_progress_on_a_terminal_only(tmp_path: Path) -> None:
    sample_store(tmp_path)
    command = [*FIREARROW, "check", str(tmp_path)]
    plain = subprocess.run(command, capture_output=True, check=True)
    assert plain.stderr == b""
    leader, follower = pty.openpty()
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower) as process:
            assert process.stdout is not None
            assert process.stdout.read() == plain.stdout
            assert process.wait() == 0
        shown = os.read(leader, 65536)
    finally:
        os.close(follower)
        os.close(leader)
    assert b"checking" in shown


# --- rebuild --------------------------------------------------------------------------------------


def test_rebuild_makes_what_was_lost(tmp_path: Path) -> None:
    sample_store(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue/Paid")
    assert run("check", tmp_path).exit_code == 1
    result = run("rebuild", tmp_path, "--dry-run")
    assert result.stdout.startswith("would make from 40 records:\n  9 queues with 39 units\n")
    assert not (tmp_path / "consumequeue/Paid").exists()
    result = run("rebuild", tmp_path)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("made from 40 records:\n  9 queues with 39 units\n")
    assert run("check", tmp_path).exit_code == 0


def test_rebuild_of_one_of_the_two_says_nothing_about_the_other(tmp_path: Path) -> None:
    sample_store(tmp_path)
    result = run("rebuild", tmp_path, "--only", "index")
    assert "index files" in result.stdout
    assert "queues" not in result.stdout
    assert run("rebuild", tmp_path, "--only", "log").exit_code == 2


def test_rebuild_takes_sizes_from_the_brokers_configuration(tmp_path: Path) -> None:
    sample_store(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "broker.conf").write_text("mappedFileSizeConsumeQueue = 40\n")
    assert run("rebuild", tmp_path, "-c", tmp_path / "broker.conf").exit_code == 0
    (path, *_) = sorted((tmp_path / "consumequeue/Orders/0").iterdir())
    assert path.stat().st_size == 40


def test_rebuild_names_what_it_could_not_read(tmp_path: Path) -> None:
    sample = sample_store(tmp_path)
    sample.patch_log(sample.keyless.offset + 88, b"?")
    result = run("rebuild", tmp_path)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"C3 commitlog {sample.keyless.offset}: ")


def test_rebuild_is_refused_while_a_broker_runs(tmp_path: Path) -> None:
    sample_store(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", BROKER, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        result = run("rebuild", tmp_path)
        broker.communicate("")
    assert result.exit_code == 2
    assert result.stderr.startswith("firearrow store rebuild: ")
    assert "Stop it first" in result.stderr


# --- all ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["dump", "check", "rebuild"])
def test_a_folder_that_is_no_store_is_refused_with_advice(command: str, tmp_path: Path) -> None:
    result = run(command, tmp_path)
    assert result.exit_code == 2
    assert "is not a store directory" in result.stderr
    assert "storePathRootDir" in result.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read"), ("maxIndexNum=many", "maxIndexNum=many")],
)
def test_a_configuration_that_cannot_be_used_is_named(
    content: str | None, words: str, tmp_path: Path
) -> None:
    sample_store(tmp_path)
    path = tmp_path / "broker.conf"
    if content is not None:
        path.write_text(content)
    result = run("check", tmp_path, "-c", path)
    assert result.exit_code == 2
    assert words in result.stderr


@pytest.mark.parametrize("command", ["dump", "check", "rebuild"])
def test_help_has_examples(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"firearrow store {command} ~/store" in result.stdout

"""`firearrow msg` and `firearrow bench` on a real broker."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from tests.cli_runs import Commands
from tests.support import PATIENCE_S

from firearrow import DeadLetter, Message, Producer, PushConsumer
from firearrow.testing import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def cli() -> Iterator[Commands]:
    with LocalCluster() as cluster:
        commands = Commands(cluster)
        commands.run("topic", "create", "orders", "--queues", 1)
        yield commands


def test_message_is_sent_and_found_in_every_way(cli: Commands) -> None:
    words = ("--tag", "paid", "-k", "42", "-p", "region=EU", "--trace")
    sent = cli.json("msg", "send", "orders", '{"order": 42}', *words)
    (row,) = sent["rows"]
    assert row["status"] == "SEND_OK"
    by_key = cli.json("msg", "query", "orders", "--key", "42")
    assert [one["msg_id"] for one in by_key] == [row["msg_id"]]
    found = cli.json("msg", "get", row["msg_id"], "--topic", "orders")
    assert found["properties"]["region"] == "EU"
    assert found["tags"] == "paid"
    by_place = cli.json(
        "msg", "get", "-t", "orders", "-q", f"broker-a:{row['queue']}", "--offset", row["offset"]
    )
    assert by_place["msg_id"] == row["msg_id"]
    by_offset_id = cli.run("msg", "get", found["offset_msg_id"], "--body", "json").stdout
    assert '"order": 42' in by_offset_id
    assert "7b 22 6f" in cli.run("msg", "get", found["offset_msg_id"], "--body", "hex").stdout


def test_messages_are_found_by_time_tag_and_text(cli: Commands) -> None:
    cli.run("topic", "create", "timed", "--queues", 2)
    for number in range(4):
        tag = "even" if number % 2 == 0 else "odd"
        cli.run("msg", "send", "timed", f"number {number}", "--tag", tag)
    assert len(cli.json("msg", "query", "timed", "--from", "-1h")) == 4
    assert cli.json("msg", "query", "timed", "--to", "-1h") == []
    assert len(cli.json("msg", "query", "timed", "--tag", "odd")) == 2
    (one,) = cli.json("msg", "query", "timed", "--contains", "number 3")
    assert one["body"] == "number 3"
    limited = cli.run("msg", "query", "timed", "--limit", "2")
    assert len(limited.rows) == 2
    assert "--limit shows more" in limited.stderr


def test_dry_run_sends_nothing(cli: Commands) -> None:
    cli.run("topic", "create", "unsent", "--queues", 3)
    said = cli.json("msg", "send", "unsent", "x" * 10, "--count", 5, "--dry-run")
    assert (said["messages"], said["bytes"], said["queues"]) == (5, 50, 3)
    assert cli.json("topic", "show", "unsent")["messages"] == 0


def test_body_comes_from_a_file_or_from_standard_input(cli: Commands, tmp_path: Path) -> None:
    cli.run("topic", "create", "bodies", "--queues", 1)
    file = tmp_path / "body.bin"
    file.write_bytes(b"\x00\xff")
    cli.run("msg", "send", "bodies", f"@{file}")
    cli.run("msg", "send", "bodies", "-", input="typed")
    assert [one["body"] for one in cli.json("msg", "query", "bodies")] == ["00 ff", "typed"]
    assert str(file) + "x" in cli.run("msg", "send", "bodies", f"@{file}x", code=2).stderr


def test_tail_prints_what_comes_and_moves_nobody(cli: Commands) -> None:
    cli.run("topic", "create", "live", "--queues", 1)
    cli.run("msg", "send", "live", "before", "--tag", "a")
    ran = cli.run("msg", "tail", "live", "--from", "earliest", "--count", 1)
    assert ran.stdout.rstrip().endswith("[a]  before")
    got: list[str] = []
    tailing = threading.Thread(
        target=lambda: got.append(
            cli.run("msg", "tail", "live", "--count", 2, "--tag", "b", "-O", "json").stdout
        )
    )
    tailing.start()
    with Producer("live", nameservers=cli.cluster.nameservers) as producer:
        while tailing.is_alive():  # whenever it begins to listen, something comes
            producer.send(Message("live", "after", tags="b"))
            producer.send(Message("live", "other", tags="c"))
            tailing.join(0.05)
    bodies = [json.loads(line)["body"] for line in got[0].splitlines()]
    assert bodies == ["after", "after"]
    assert not any("tail" in one["group"] for one in cli.json("group", "ls", "--all"))


def test_message_is_sent_again_with_its_properties(cli: Commands) -> None:
    cli.run("topic", "create", "again", "--queues", 1)
    sent = cli.json("msg", "send", "again", "once", "--tag", "t", "-k", "k", "-p", "a=b")
    msg_id = sent["rows"][0]["msg_id"]
    planned = cli.json("msg", "resend", msg_id, "-t", "again", "--dry-run")
    assert (planned["topic"], planned["groups"]) == ("again", 0)
    cli.run("msg", "resend", msg_id, "-t", "again")
    first, second = cli.json("msg", "query", "again", "--key", "k")
    assert first["msg_id"] != second["msg_id"]
    copy = cli.json("msg", "get", second["msg_id"], "-t", "again")
    assert (copy["body"], copy["tags"], copy["properties"]["a"]) == ("once", "t", "b")


def test_life_of_a_traced_message_is_shown_and_a_member_consumes_it(cli: Commands) -> None:
    cli.run("topic", "create", "traced", "--queues", 1)
    sent = cli.json("msg", "send", "traced", "look", "--trace")
    msg_id = sent["rows"][0]["msg_id"]
    (row,) = cli.json("msg", "trace", msg_id)
    assert (row["event"], row["group"], row["success"]) == ("sent", "firearrow-cli", True)
    consumer = PushConsumer("hands", nameservers=cli.cluster.nameservers)
    got: list[str] = []
    consumer.subscribe("traced")(lambda message: got.append(message.text))
    with consumer:
        said = cli.json(
            "msg", "deliver", msg_id, "-t", "traced", "-g", "hands", "--client", consumer.client_id
        )
    assert said["result"] == "CR_SUCCESS"
    assert "look" in got


def test_dead_letters_are_listed_exported_and_given_another_chance(
    cli: Commands, tmp_path: Path
) -> None:
    cli.run("topic", "create", "doomed", "--queues", 1)
    consumer = PushConsumer("gives-up", nameservers=cli.cluster.nameservers)
    seen: list[str] = []
    first, second = threading.Event(), threading.Event()

    @consumer.subscribe("doomed")
    def refuse(message: object) -> None:
        seen.append(message.text)  # type: ignore[attr-defined]
        (second if len(seen) > 1 else first).set()
        raise DeadLetter("no good")

    with consumer:
        cli.run("msg", "send", "doomed", "hopeless", "-k", "dead")
        assert first.wait(20)
        while not (letters := cli.json("msg", "dlq", "ls", "gives-up")):
            first.wait(0.02)
        (letter,) = letters
        assert letter["body"] == "hopeless"
        planned = cli.json("msg", "dlq", "resend", "gives-up", "--dry-run")
        assert planned["messages"] == 1
        cli.run("msg", "dlq", "resend", "gives-up", "--id", letter["msg_id"])
        assert second.wait(20)
    for name in ("letters.json", "letters.csv"):
        cli.run("msg", "dlq", "export", "gives-up", tmp_path / name)
    exported = json.loads((tmp_path / "letters.json").read_text().splitlines()[0])
    assert exported["body"] == "hopeless"
    with (tmp_path / "letters.csv").open() as file:
        assert next(csv.DictReader(file))["keys"] == "dead"
    assert (
        "among its first"
        in cli.run("msg", "dlq", "resend", "gives-up", "--id", "nothing", code=2).stderr
    )


def test_bench_sends_and_consumes_with_percentiles(cli: Commands) -> None:
    sent = cli.json("bench", "send", "load", "--count", 200, "--size", 100)
    assert (sent["sent"], sent["failed"]) == (200, 0)
    assert sent["p50_millis"] <= sent["p99.9_millis"]
    assert sent["limit"]
    got = cli.json("bench", "consume", "load", "--count", 200)
    assert got["consumed"] == 200
    assert (
        "would send 5 messages" in cli.run("bench", "send", "load", "-c", "5", "--dry-run").stdout
    )


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["get"], 2, "name the message"),
        (["get", "0" * 32, "-t", "nowhere"], 4, "no broker serves"),
        (["get", "-t", "orders", "-q", "x", "--offset", "1"], 2, "BROKER:QUEUE"),
        (["send", "orders", "x", "--delay", "1s", "--at", "now"], 2, "say once when"),
        (["send", "orders", "x", "-p", "novalue"], 2, "KEY=VALUE expected"),
        (["trace", "0" * 32], 4, "was it sent with trace"),
        (["dlq", "export", "g", "letters.txt"], 2, ".json, .jsonl or .csv"),
    ],
)
def test_what_cannot_be_is_one_line_with_a_remedy(
    cli: Commands, words: list[str], code: int, said: str
) -> None:
    assert said in cli.run("msg", *words, code=code).stderr


def test_a_place_without_a_message_is_named(cli: Commands) -> None:
    cli.run("topic", "create", "placed", "--queues", 1)
    where = ["msg", "get", "-t", "placed", "-q", "broker-a:0", "--offset", "99"]
    assert "is empty" in cli.run(*where, code=4).stderr
    cli.run("msg", "send", "placed", "only one")
    assert "at offset 99" in cli.run(*where, code=4).stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["msg", "tail", "stopped", "--from", "earliest"], 0),
        (["topic", "ls", "stopped", "--watch", "30"], 130),
    ],
)
def test_ctrl_c_ends_a_tail_well_and_a_watch_without_a_traceback(
    cli: Commands, words: list[str], code: int
) -> None:
    cli.run("topic", "create", "stopped", "--queues", 1)
    cli.run("msg", "send", "stopped", "once")
    command = [sys.executable, "-m", "firearrow", *words, "-n", cli.cluster.nameservers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()  # it is under way
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code
    assert b"Traceback" not in complaint

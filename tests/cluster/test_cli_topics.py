"""`firearrow topic` on a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cli_runs import Commands
from typer.testing import CliRunner

from firearrow import Message, Producer
from firearrow.cli.root import app
from firearrow.testing import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def cli() -> Iterator[Commands]:
    with LocalCluster() as cluster:
        yield Commands(cluster)


def test_topic_is_created_listed_changed_and_removed(cli: Commands) -> None:
    assert cli.json("topic", "create", "life", "--queues", 3, "--type", "fifo")["queues"] == 3
    (row,) = cli.json("topic", "ls", "life")
    assert (row["topic"], row["type"], row["read_queues"], row["perm"]) == (
        "life",
        "FIFO",
        3,
        "RW-",
    )
    changed = cli.json("topic", "update", "life", "--queues", 5, "--attribute", "message.type=")
    assert {one["setting"]: one["after"] for one in changed["rows"]} == {
        "read_queue_nums": 5,
        "write_queue_nums": 5,
        "message.type": None,
    }
    cli.run("topic", "perm", "life", "r")
    (row,) = cli.json("topic", "ls", "life")
    assert (row["type"], row["read_queues"], row["perm"]) == (None, 5, "R--")
    assert "removed topic life with 0 messages in 5 queues" in cli.run("topic", "rm", "life").stdout
    assert cli.json("topic", "ls", "life") == []


def test_dry_runs_change_nothing_and_count(cli: Commands) -> None:
    said = cli.run("topic", "create", "dry", "--dry-run").stdout
    assert said.startswith("would create topic dry with 8 queues on each of 1 broker")
    assert cli.json("topic", "ls", "dry") == []
    cli.run("topic", "create", "dry", "--queues", 2)
    with Producer("p", nameservers=cli.cluster.nameservers) as producer:
        for one in range(3):
            producer.send(Message("dry", f"{one}"))
    assert cli.json("topic", "update", "dry", "--queues", 4, "--dry-run")["changes"] == 2
    for words in (["--dry-run"], []):  # dry, it is refused for the same reason
        refused = cli.run("topic", "create", "dry", "--queues", 3, *words, code=1).stderr
        assert "read_queue_nums is 2, not 3; write_queue_nums is 2, not 3" in refused
    same = cli.run("topic", "create", "dry", "--queues", 2, "--dry-run").stdout
    assert "1 have it already" in same
    gone = cli.json("topic", "rm", "dry", "--dry-run")
    assert (gone["messages"], gone["queues"], gone["groups"]) == (3, 2, 0)
    assert cli.json("topic", "show", "dry")["messages"] == 3


def test_queues_route_and_groups_are_shown(cli: Commands) -> None:
    cli.run("topic", "create", "shown", "--queues", 2)
    cli.run("group", "create", "reader")
    with Producer("p", nameservers=cli.cluster.nameservers) as producer:
        producer.send(Message("shown", "one"))
    cli.run("group", "reset", "reader", "-t", "shown", "--to", "earliest")
    queues = cli.json("topic", "status", "shown")
    assert sum(one["messages"] for one in queues) == 1
    assert max(one["last_stored_ms"] or 0 for one in queues) > 10**12
    (route,) = cli.json("topic", "route", "shown")
    assert (route["broker"], route["write_queues"]) == ("broker-a", 2)
    assert route["addresses"] == [f"0={cli.cluster.broker_address}"]
    assert cli.json("topic", "groups", "shown") == [{"group": "reader", "lag": 1}]
    assert "reader" in cli.run("topic", "show", "shown").stdout


def test_listing_all_shows_topics_of_every_kind(cli: Commands) -> None:
    cli.run("group", "create", "kinds")
    kinds = {one["topic"]: one["kind"] for one in cli.json("topic", "ls", "--all")}
    assert kinds["%RETRY%kinds"] == "retry"
    assert kinds["TBW102"] == kinds["DefaultCluster"] == "system"
    assert "TBW102" not in {one["topic"] for one in cli.json("topic", "ls")}


def test_listing_is_watched_and_ends_when_told(cli: Commands) -> None:
    ran = cli.run("topic", "ls", "nothing", "--watch", "0.01", "--looks", "3", "-O", "csv")
    assert ran.stdout.count("topic,kind") == 3


def test_order_of_a_topic_is_written_down_and_forgotten(cli: Commands) -> None:
    assert cli.json("topic", "order", "kept", "broker-a=4")["after"] == {"broker-a": 4}
    assert cli.json("topic", "order", "kept", "--dry-run")["before"] == {"broker-a": 4}
    assert cli.json("topic", "order", "kept")["before"] == {"broker-a": 4}
    assert cli.json("topic", "order", "kept", "--dry-run")["before"] == {}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["show", "nowhere"], 4, "Create the topic"),
        (["create", "bad*name"], 2, "letters, digits"),
        (["create", "x", "--perm", "all"], 2, "rw (6), r (4), w (2)"),
        (["create", "x", "--broker", "broker-z"], 4, "only broker-a"),
        (["create", "x", "--cluster", "nowhere"], 2, "only DefaultCluster"),
        (["create", "x", "--queues", "0"], 2, "Invalid value"),
        (["update", "nowhere"], 4, "no broker serves"),
        (["perm", "x", "none"], 2, "topic rm"),
    ],
)
def test_what_cannot_be_is_one_line_with_a_remedy(
    cli: Commands, words: list[str], code: int, said: str
) -> None:
    ran = cli.run("topic", *words, code=code)
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_name_server_that_is_not_there_is_exit_code_3(cli: Commands) -> None:
    cli.run("topic", "ls")  # it is not the command
    ran = CliRunner().invoke(app, ["topic", "ls", "-n", "127.0.0.1:1"])
    assert ran.exit_code == 3
    assert len(ran.stderr.strip().splitlines()) == 1
    assert "Check that the server runs" in ran.stderr


def test_names_of_topics_are_completed(cli: Commands) -> None:
    cli.run("topic", "create", "completed-one")
    environment = {
        "_FIREARROW_COMPLETE": "complete_bash",
        "COMP_WORDS": "firearrow topic show compl",
        "COMP_CWORD": "3",
        "NAMESRV_ADDR": cli.cluster.nameservers,
    }
    ran = CliRunner().invoke(app, [], env=environment, prog_name="firearrow")
    assert ran.stdout.split() == ["completed-one"]

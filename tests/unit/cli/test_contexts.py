from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from firearrow.base.errors import ConfigError
from firearrow.cli.contexts import ContextFile
from firearrow.cli.root import app

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FIREARROW_CONFIG_DIR", str(tmp_path / "config"))
    for name in ("FIREARROW_NAMESERVERS", "FIREARROW_CONTEXT", "NAMESRV_ADDR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "config"


def run(*words: str, code: int = 0) -> str:
    ran = CliRunner().invoke(app, ["context", *words])
    assert ran.exit_code == code, ran.output
    return ran.output


def test_contexts_are_added_listed_chosen_and_removed(home: Path) -> None:
    run("add", "local", "127.0.0.1:9876")
    run("add", "far", "10.0.0.1:9876;10.0.0.2:9876", "--description", "production")
    assert run("ls").splitlines()[1:] == [
        "-     far    10.0.0.1:9876;10.0.0.2:9876  -          production",
        "*     local  127.0.0.1:9876               -          -",
    ]
    run("use", "far")
    assert run("show") == "10.0.0.1:9876;10.0.0.2:9876 (context far)\n"
    run("rm", "far")
    assert run("show") == "127.0.0.1:9876 (default)\n"
    assert (home / "contexts.json").exists()


def test_dry_run_changes_no_context(home: Path) -> None:
    assert run("add", "local", "127.0.0.1:9876", "--dry-run").startswith("would add context local")
    assert not (home / "contexts.json").exists()


def test_flag_wins_over_context_over_environment_over_file(home: Path) -> None:
    run("add", "one", "one:1")
    run("add", "two", "two:2")
    environment = {
        "FIREARROW_CONFIG_DIR": str(home),
        "NAMESRV_ADDR": "three:3",
        "FIREARROW_CONTEXT": "two",
    }
    file = ContextFile(environment)
    assert file.resolve("four:4", "one").nameservers == "four:4"
    assert file.resolve(None, "one").nameservers == "one:1"
    assert file.resolve(None, None).nameservers == "two:2"
    del environment["FIREARROW_CONTEXT"]
    assert file.resolve(None, None).nameservers == "three:3"
    del environment["NAMESRV_ADDR"]
    assert file.resolve(None, None).nameservers == "one:1"
    environment["FIREARROW_NAMESERVERS"] = "five:5"
    assert file.resolve(None, None).nameservers == "five:5"


@pytest.mark.parametrize("wrong", ["", "host", "host:0", "host:70000", "a b:1", "host:x"])
def test_address_that_cannot_be_is_refused(home: Path, wrong: str) -> None:
    assert "host:port expected" in run("add", "x", wrong, code=2)
    assert not home.exists()


def test_unknown_context_is_named_with_those_there_are(home: Path) -> None:
    run("add", "local", "127.0.0.1:9876")
    assert "no context remote (--context), only local" in run("show", "--context", "remote", code=2)
    assert "firearrow context ls" in run("rm", "remote", code=2)
    assert home.exists()


def test_file_that_is_no_list_of_contexts_is_named(home: Path) -> None:
    home.mkdir()
    (home / "contexts.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"contexts\.json"):
        ContextFile({"FIREARROW_CONFIG_DIR": str(home)}).load()

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.testing import CliRunner

from firearrow.cli.root import app

if TYPE_CHECKING:
    from pathlib import Path


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["filter", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def test_expression_is_tried_on_properties() -> None:
    assert run("try", "a > 5 AND b = 'x y'", "a=7", "b=x y") == (0, "match\n", "")
    assert run("try", "a > 5", "a=3") == (1, "no match\n", "")
    assert run("try", "a IS NULL") == (0, "match\n", "")


def test_wrong_expression_or_property_is_named() -> None:
    code, _, said = run("try", "a >")
    assert (code, "character 4" in said) == (2, True)
    code, _, said = run("try", "a > 1", "a")
    assert (code, "NAME=VALUE" in said) == (2, True)


def test_broker_that_does_not_answer_is_named(tmp_path: Path) -> None:
    file = tmp_path / "large.py"
    file.write_text("def matches(properties, body): return True\n")
    for arguments in (("install", "large", file), ("rm", "large"), ("ls",)):
        code, _, said = run(*arguments, "-b", "127.0.0.1:1")
        assert (code, "127.0.0.1:1" in said) == (2, True)


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    code, _, said = run("install", "large", tmp_path / "none.py", "-b", "127.0.0.1:1")
    assert (code, "none.py" in said) == (2, True)

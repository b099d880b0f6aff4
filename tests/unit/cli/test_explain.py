from __future__ import annotations

import json

from typer.testing import CliRunner

from firearrow.cli.explain_command import errors, explanations
from firearrow.cli.root import app
from firearrow.model.errors import ResponseCode
from firearrow.wire.codes import RequestCode


def test_every_code_is_explained() -> None:
    for code in [*ResponseCode.__members__, *RequestCode.__members__]:
        found = explanations(code)
        assert found, code
        assert all(one["what"] and one["do"] for one in found), code


def test_every_error_of_ours_is_explained_by_its_name() -> None:
    assert len(errors()) > 40
    for name in errors():
        (found,) = [one for one in explanations(name) if one["kind"] == "error"]
        assert found["what"].endswith((".", "?", "!")), name


def test_number_may_be_a_response_and_a_request() -> None:
    assert [one["name"] for one in explanations("17")] == [
        "TOPIC_NOT_EXIST",
        "UPDATE_AND_CREATE_TOPIC",
    ]
    assert explanations("10005")[0]["name"] == "NoRoute"


def test_pop_is_said_not_to_be_built() -> None:
    assert "POP is not built" in explanations("POP_MESSAGE")[0]["do"]


def test_explanations_are_printed_in_every_form() -> None:
    def run(*words: str) -> str:
        return CliRunner().invoke(app, ["explain", *words]).output

    assert run("SYSTEM_BUSY").startswith("SYSTEM_BUSY (response 2)\n  what  Flow control.")
    assert json.loads(run("2", "-O", "json"))[0]["name"] == "SYSTEM_BUSY"
    assert run("2", "-O", "csv").splitlines()[0] == "code,name,kind,what,do"
    assert len(run("-O", "csv").splitlines()) > 250


def test_unknown_code_is_answered_with_the_nearest() -> None:
    ran = CliRunner().invoke(app, ["explain", "SYSTM_BUSY"])
    assert ran.exit_code == 2
    assert "did you mean SYSTEM_BUSY" in ran.stderr

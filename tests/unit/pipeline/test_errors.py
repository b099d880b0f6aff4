"""What is left of Spark's many words."""

from __future__ import annotations

import pytest

from firearrow.base.errors import ConfigError
from firearrow.pipeline.errors import explain
from firearrow.pipeline.sessions import parse_conf

TRACEBACK = """[STREAM_FAILED] Query [id = 1] terminated with exception: boom
Traceback (most recent call last):
  File "worker.py", line 12, in main
    process()
{words}

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
"""


def test_our_own_words_come_out_of_a_traceback() -> None:
    words = "firearrow.spark.errors.DataLoss: orders@a@0: offset 7 is gone"
    assert explain(RuntimeError(TRACEBACK.format(words=words))) == "orders@a@0: offset 7 is gone"


def test_a_python_error_keeps_its_name() -> None:
    error = RuntimeError(TRACEBACK.format(words="ValueError: not a number: 'x'"))
    assert explain(error) == "ValueError: not a number: 'x'"


def test_java_stack_traces_are_left_out() -> None:
    text = "[PATH_NOT_FOUND] Path does not exist: file:/nowhere.\n\tat org.apache.Foo(Foo.scala:1)"
    assert explain(RuntimeError(text)) == "[PATH_NOT_FOUND] Path does not exist: file:/nowhere."


def test_an_error_without_words_has_its_name() -> None:
    assert explain(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_settings_of_sparks_are_key_and_value() -> None:
    given = ["spark.ui.enabled=false", "spark.a=b=c"]
    assert parse_conf(given) == {"spark.ui.enabled": "false", "spark.a": "b=c"}


@pytest.mark.parametrize("text", ["spark.ui.enabled", "ui=false", "=x"])
def test_a_setting_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"spark\.some\.setting=value expected"):
        parse_conf([text])

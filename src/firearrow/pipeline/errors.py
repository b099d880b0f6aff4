"""What can go wrong with a job, in words for the person who started it."""

from __future__ import annotations

import re
from typing import Final

from firearrow.base.errors import FirearrowError

# How Python ends a traceback that Spark carries in its own error: "package.Name: what happened".
_LAST_LINE: Final = re.compile(r"^(?:\S+: )?((?:\w+\.)*\w*(?:Error|Exception|[A-Z]\w+)): (.+)$")
_OURS: Final = re.compile(r"^firearrow\.[\w.]+: (.+)$", re.MULTILINE)
_JVM_NOISE: Final = re.compile(r"\n?(JVM stacktrace:|== SQL|\s+at [\w.$]+\().*", re.DOTALL)
_TEXT_MAX: Final = 1_000


class PipelineError(FirearrowError):
    """A job could not do its work; the text says why and what to do."""

    remedy = "Do what the text says and start the job again: it goes on from its checkpoint."


class Stopped(PipelineError):
    """The job was told to stop while a piece of work was under way."""

    remedy = "Start the job again: it goes on from its checkpoint."


def explain(error: BaseException) -> str:
    """What is behind an error of Spark's: our own words if there are any, else its first line."""
    if isinstance(error, FirearrowError):
        return str(error)
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1]).strip()[:_TEXT_MAX]
    python = _python_words(text)
    if python:
        return python[:_TEXT_MAX]
    if text.startswith("["):  # Spark's own: [CONDITION] words SQLSTATE: 42P01; then the whole plan
        text = text.partition(" SQLSTATE:")[0].partition("\n")[0]
    return _JVM_NOISE.sub("", text).strip()[:_TEXT_MAX] or type(error).__name__


def _python_words(text: str) -> str | None:
    """The last line of a Python traceback within `text`."""
    start = text.rfind("Traceback (most recent call last)")
    if start < 0:
        return None
    for line in text[start:].splitlines()[1:]:
        if line[:1].isspace():
            continue
        found = _LAST_LINE.match(line.strip())
        if found:
            return f"{found[1].rpartition('.')[2]}: {found[2]}"
    return None

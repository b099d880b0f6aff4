"""SQL92 expressions that nobody thought of: Apache's own classes and ours say the same of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .sql_expressions import (
    Grower,
    apaches_answers,
    compiled,
    is_complete_before_its_end,
    matches_of,
)

if TYPE_CHECKING:
    from .processes import Bench

COUNT = 4_000


@pytest.mark.parametrize("seed", [1, 2])
def test_grown_expressions_mean_to_us_what_they_mean_to_apache(bench: Bench, seed: int) -> None:
    grower = Grower(seed)
    messages = [grower.message() for _ in range(24)]
    expressions = [grower.expression() for _ in range(COUNT)]
    answers = apaches_answers(messages, expressions, bench.new_folder("sql"))
    odd: list[tuple[str, list[int] | None, list[int] | None]] = []
    matched = refused = 0
    for expression, matching in zip(expressions, answers, strict=True):
        wanted = compiled(expression)
        ours = None if wanted is None else matches_of(wanted, messages)
        matched += bool(matching)
        refused += matching is None
        if ours != matching and not (
            ours is None
            and matching is not None
            and is_complete_before_its_end(expression, messages, matching)
        ):
            odd.append((expression, matching, ours))
    assert odd == []
    assert min(matched, refused) > COUNT // 8  # else they are not of every kind

"""Conditions of tests, read and evaluated."""

from __future__ import annotations

import pytest

from egg.knowledge.condition import Condition, ConditionError, Outcome, parse
from egg.knowledge.vocabulary import VOCABULARY

NUMBERS = sorted(name for name, f in VOCABULARY.items() if f.kind in ("number", "integer"))
TRUTHS = sorted(name for name, f in VOCABULARY.items() if f.kind == "truth")


def outcome(text: str, **values: float | int | bool | str) -> Outcome:
    return parse(text).evaluate(values)


def refusal(text: str) -> ConditionError:
    with pytest.raises(ConditionError) as caught:
        parse(text)
    return caught.value


def attempt(text: str) -> Condition | ConditionError:
    try:
        return parse(text)
    except ConditionError as error:
        return error

"""The names that conditions may use."""

from __future__ import annotations

import math
from types import MappingProxyType

import pytest

from egg.analysis.features import FEATURES, Feature
from egg.knowledge import vocabulary
from egg.knowledge.condition import Condition, ConditionError, parse
from egg.knowledge.vocabulary import CODE, HARDWARE, POLICY, PROGRAM, REFUSED, VOCABULARY, WORDS, complete


def test_the_vocabulary_is_all_groups_without_a_clash():
    groups = (FEATURES, PROGRAM, CODE, HARDWARE, POLICY, REFUSED)
    assert sum(len(group) for group in groups) == len(VOCABULARY)
    with pytest.raises(ValueError, match="two meanings: rows"):
        vocabulary._joined({"rows": PROGRAM["rows"]}, {"rows": PROGRAM["rows"]})


@pytest.mark.parametrize("name", VOCABULARY)
def test_every_name_can_be_asked_for(name):
    feature = VOCABULARY[name]
    kinds = {"number": float, "integer": int, "truth": bool, "word": str}
    assert type(feature.neutral) is kinds[feature.kind]
    assert feature.meaning
    text = {"truth": name, "word": f"{name} != 'x1'"}.get(feature.kind, f"{name} >= 0")
    gate = parse(text, words={})
    assert gate.names == {name}
    assert isinstance(gate, Condition)
    if name in WORDS:
        assert feature.kind == "word"
        assert feature.neutral in WORDS[name]


def test_completing_values():
    values = complete({"rows": 12.0, "waves": math.nan, "has_tma": 1, "flops": None, "sms": 132})
    assert values.keys() == VOCABULARY.keys()
    assert (values["rows"], values["waves"], values["has_tma"], values["flops"]) == (12, 1.0, True, 0.0)
    assert type(values["rows"]) is int
    with pytest.raises(ValueError, match="not in the vocabulary: rowz"):
        complete({"rowz": 1})


def test_another_vocabulary_can_be_given():
    own = MappingProxyType({"x": Feature("number", "", "a number", 1.0)})
    assert parse("x > 0.5", own).evaluate({}).holds
    with pytest.raises(ConditionError, match="unknown name rows"):
        parse("rows > 1", own)

"""Properties of conditions over any text, and held against what Python makes of the same text."""

from __future__ import annotations

import ast

from hypothesis import example, given, settings
from hypothesis import strategies as st

from egg.knowledge.condition import ConditionError, parse
from egg.knowledge.vocabulary import VOCABULARY, WORDS
from tests.knowledge.conditions import NUMBERS, TRUTHS, attempt

CHARACTERS = st.text(
    st.one_of(st.sampled_from("rows()<>=!+-*/.,'\" \t\n019eE_[]{}:;@#\\%&|^~`$?"), st.characters()),
    max_size=120,
)
WORDS_AND_MARKS = (
    *"()<>+-*/,.[]{}:'\"\x00",
    *("<=", "==", "!=", "**", "//", ":=", "and", "or", "not", "in"),
    *("is", "if", "else", "lambda", "for", "await", "None", "True", "false", "__import__"),
    *("rows", "waves", "dtype", "limiter", "has_tma", "x", "é", "'dram'", '"l2"', "f'a'"),
    *("0", "1", "3.5", "1e300", "99999999999999999999"),
)
PIECES = st.lists(st.sampled_from(WORDS_AND_MARKS), max_size=40).map(" ".join)
ODD_VALUES = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.integers(-(10**400), 10**400),
    st.booleans(),
    st.text(max_size=5),
    st.none(),
)
ANY_VALUES = st.dictionaries(st.sampled_from(["rows", "waves", "dtype", "limiter", "has_tma"]), ODD_VALUES)


@settings(max_examples=400, deadline=2000)
@given(text=st.one_of(CHARACTERS, PIECES), values=ANY_VALUES)
@example("rows > 1", {"rows": 10**400})
def test_any_text_is_a_gate_or_a_refusal_with_a_position(text, values):
    gate = attempt(text)
    if isinstance(gate, ConditionError):
        assert 0 <= gate.position <= len(text)
        assert gate.message
        return
    found = gate.evaluate(values)
    assert 0.0 <= found.strength <= 1.0
    assert found.holds or found.strength == 0
    assert found.reason
    allowed = (ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Compare, ast.Name, ast.Constant, ast.Tuple)
    assert all(isinstance(node, allowed) for node in ast.walk(gate._tree) if isinstance(node, ast.expr))


def _arithmetic() -> st.SearchStrategy[str]:
    leaf = st.one_of(st.sampled_from(NUMBERS[:12]), st.sampled_from(["0", "1", "2.5", "1e9", "1e-9"]))
    return st.recursive(
        leaf,
        lambda part: st.one_of(
            st.tuples(part, st.sampled_from("+-*/"), part).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
            part.map(lambda p: f"-{p}"),
        ),
        max_leaves=4,
    )


def _conditions() -> st.SearchStrategy[str]:
    marks = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    leaf = st.one_of(
        st.sampled_from(TRUTHS[:6]),
        st.sampled_from(["true", "false", "limiter == 'dram'", "dtype in ('float32', 'float16')"]),
        st.tuples(_arithmetic(), marks, _arithmetic()).map(" ".join),
        st.tuples(_arithmetic(), marks, _arithmetic(), marks, _arithmetic()).map(" ".join),
    )
    return st.recursive(
        leaf,
        lambda part: st.one_of(
            st.tuples(part, part).map(lambda p: f"({p[0]}) and ({p[1]})"),
            st.tuples(part, part).map(lambda p: f"({p[0]}) or ({p[1]})"),
            part.map(lambda p: f"not ({p})"),
        ),
        max_leaves=6,
    )


SANE_VALUES = st.fixed_dictionaries(
    {},
    optional={
        **{name: st.one_of(st.integers(0, 10**12), st.floats(-1e6, 1e12)) for name in NUMBERS[:12]},
        **{name: st.booleans() for name in TRUTHS[:6]},
        "limiter": st.sampled_from(WORDS["limiter"]),
        "dtype": st.sampled_from(WORDS["dtype"]),
    },
)


def _by_python(text: str, values) -> bool | None:
    """The same expression as Python means it, or ``None`` where that raises or is not finite. The text is
    of this file's own making."""
    names = {name: VOCABULARY[name].neutral for name in VOCABULARY} | values | {"true": True, "false": False}
    names = {
        k: float(v) if isinstance(v, int | float) and not isinstance(v, bool) else v for k, v in names.items()
    }
    try:
        return bool(eval(text, {"__builtins__": {}}, names))
    except ZeroDivisionError:
        return None


@settings(max_examples=300, deadline=2000)
@given(text=_conditions(), values=SANE_VALUES)
def test_sound_conditions_mean_what_python_means(text, values):
    gate = attempt(text)
    if isinstance(gate, ConditionError):
        assert "nested" in gate.message or "parts" in gate.message
        return
    found, opposite = gate.evaluate(values), parse(f"not ({text})").evaluate(values)
    meant = _by_python(text, values)
    assert 0.0 <= found.strength <= 1.0
    assert not (found.holds and opposite.holds)
    undefined = not found.holds and not opposite.holds
    if not undefined and meant is not None:
        assert found.holds is meant
    if undefined:
        assert "division by zero" in found.reason or "no finite number" in found.reason
    assert gate.evaluate(values) == found, "the same values, the same outcome"


@given(text=_conditions(), other=_conditions(), values=SANE_VALUES)
@settings(max_examples=150, deadline=2000)
def test_and_is_the_weaker_and_or_the_stronger(text, other, values):
    try:
        one, two = parse(text).evaluate(values), parse(other).evaluate(values)
        both, either = parse(f"({text}) and ({other})"), parse(f"({text}) or ({other})")
    except ConditionError:
        return
    assert both.evaluate(values).strength == min(one.strength, two.strength)
    assert either.evaluate(values).strength == max(one.strength, two.strength)
    assert both.evaluate(values).holds is (one.holds and two.holds)
    assert either.evaluate(values).holds is (one.holds or two.holds)


@given(high=st.floats(1e-6, 1e6), factor=st.floats(1.0, 4.0))
def test_further_beyond_is_never_weaker(high, factor):
    gate = parse("waves > 1")
    assert gate.evaluate({"waves": high * factor}).strength >= gate.evaluate({"waves": high}).strength

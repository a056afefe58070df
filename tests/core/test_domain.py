"""A domain as a value: what it admits, what it refuses, how it reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.core.codec import from_json, to_json
from egg.core.domain import (
    Argument,
    Call,
    Domain,
    Gradients,
    Layout,
    Mode,
    Size,
    TensorFacts,
    TensorInput,
    ValueInput,
)
from egg.core.domain_words import words_of
from egg.core.errors import KernelFileError
from egg.core.sizes import names_in, value_of

LINEAR = Domain(
    inputs=(
        TensorInput("x", ("float32",), ("batch", "2 * pairs")),
        TensorInput("y", ("float32",), ("batch", 3), Layout.CONTIGUOUS),
        ValueInput("scale", free=True),
        ValueInput("mask", None),
    ),
    sizes=(Size("batch", least=2), Size("pairs", module=True)),
    arguments=(Argument("features", free=True), Argument("stride", [1, 2])),
    modes=(Mode.TRAIN,),
)


def call(x: object, y: object = None, **changes: object) -> Call:
    facts = y or TensorFacts("float32", (4, 3))
    inputs = {"x": x, "y": facts, "scale": 0.5, "mask": None} | changes
    return Call(inputs, {"features": 8, "stride": (1, 2)})  # type: ignore[arg-type]


X = TensorFacts("float32", (4, 16))


def test_a_call_inside_is_not_outside() -> None:
    assert LINEAR.outside(call(X)) == ""


TIED = Domain(
    inputs=(TensorInput("x", ("float32",), ("batch", "patches * patch", "patches * patch", "width")),),
    sizes=(
        Size("batch"),
        Size("patches", module=True),
        Size("patch", module=True),
        Size("width", module=True, argument="width"),
    ),
    arguments=(Argument("width", free=True), Argument("sizes", ["any", "same"])),
)


def test_sizes_that_the_constructor_ties() -> None:
    def outside(*shape: int, width: int = 8, sizes: tuple[int, ...] = (5, 5)) -> str:
        asked = Call({"x": TensorFacts("float32", shape)}, {"width": width, "sizes": sizes})
        return TIED.outside(asked, built if width == 8 else None)

    first = Call({"x": TensorFacts("float32", (2, 12, 12, 8))}, {"width": 8, "sizes": [5, 5]})
    built = TIED.built(first)
    assert built == {"patches * patch": 12, "width": 8}
    assert not outside(3, 12, 12, 8)
    assert outside(3, 12, 13, 8) == "dimension 2 of x is 13, not 12: patches * patch"
    assert "patches * patch = 16, not 12" in outside(3, 16, 16, 8)
    assert outside(3, 12, 12, 8, width=9) == "dimension 3 of x is 8, not width"
    assert not outside(3, 16, 16, 9, width=9)
    assert not outside(3, 12, 12, 8, sizes=(6, 6))
    assert "sizes = (6, 7)" in outside(3, 12, 12, 8, sizes=(6, 7))
    assert Domain.of_literal(TIED.literal()) == TIED


@pytest.mark.parametrize(
    ("outside", "reason"),
    [
        (call(TensorFacts("bfloat16", (4, 16))), "x is bfloat16"),
        (call(TensorFacts("float32", (4, 16, 1))), "3 dimensions"),
        (call(TensorFacts("float32", (5, 16))), "dimension 0 of y is 4"),
        (call(TensorFacts("float32", (1, 16)), TensorFacts("float32", (1, 3))), "batch = 1"),
        (call(X, TensorFacts("float32", (4, 4))), "dimension 1 of y is 4, not 3"),
        (call(X, TensorFacts("float32", (4, 3), frozenset())), "y is not contiguous"),
        (call(X, scale=None), "scale is no number"),
        (call(X, mask=X), "mask is a tensor"),
        (call(X, mask=1), "mask = 1, not None"),
        (call(None), "x is None"),
        (Call(call(X).inputs, {"features": 8, "stride": 2}), "stride = 2"),
        (Call(call(X).inputs, {"features": 8, "stride": [1, 2]}, Mode.EVAL), "eval mode"),
    ],
)
def test_outside_says_why(outside: Call, reason: str) -> None:
    assert reason in LINEAR.outside(outside)


def test_a_flag_is_not_the_number_it_equals() -> None:
    domain = Domain((ValueInput("causal", True),))
    assert domain.outside(Call({"causal": 1}, {}))
    assert not domain.outside(Call({"causal": True}, {}))


def test_it_reads_as_a_person_would_say_it() -> None:
    assert words_of(LINEAR) == (
        "any batch (at least 2); pairs as constructed; x in float32, contiguous or not; "
        "y in float32, contiguous only, 3 in dimension 1 only; mask = None only; stride = [1, 2] only; "
        "train mode only; forward only"
    )


def test_the_literal_and_the_json_mean_the_same_value() -> None:
    assert Domain.of_source(f"DOMAIN = {LINEAR.literal()!r}\n") == LINEAR
    assert from_json(Domain, to_json(LINEAR)) == LINEAR


def test_a_file_without_a_domain_states_none() -> None:
    assert Domain.of_source("class ModelNew: ...\n") is None


@pytest.mark.parametrize(
    "text",
    [
        "DOMAIN = {}",
        "DOMAIN = make()",
        "DOMAIN = {'inputs': {'x': {'dtypes': ['float32'], 'shape': ['n'], 'layout': 'any'}}}",
        "DOMAIN = {'inputs': {'x': {'dtypes': ['float32'], 'shape': ['n('], 'layout': 'any'}}}",
        "DOMAIN = {'inputs': {'x': {'dtypes': ['float32'], 'shape': [3], 'layout': 'sideways'}}}",
        "DOMAIN = {'inputs': {}, 'gradients': 'maybe'}",
    ],
)
def test_a_malformed_domain_is_an_error_with_its_line(text: str) -> None:
    with pytest.raises(KernelFileError, match="line 2: DOMAIN cannot be read"):
        Domain.of_source(f'"""Kernels."""\n{text}\n')


NAMES = st.sampled_from(["a", "b", "c"])
EXPRESSIONS = st.recursive(
    NAMES | st.integers(0, 64).map(str),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
    max_leaves=6,
)


@given(EXPRESSIONS, st.integers(1, 99), st.integers(1, 99), st.integers(1, 99))
def test_arithmetic_on_sizes_is_pythons(text: str, a: int, b: int, c: int) -> None:
    sizes = {"a": a, "b": b, "c": c}
    assert names_in(text) <= sizes.keys()
    assert value_of(text, sizes) == eval(text, {}, sizes)


@given(st.integers(1, 9), st.integers(1, 9))
def test_multiples_and_least_sizes_are_kept(value: int, multiple: int) -> None:
    domain = Domain(
        (TensorInput("x", ("float32",), ("n",)),),
        (Size("n", least=3, multiple=multiple),),
        gradients=Gradients.BACKWARD,
    )
    outside = domain.outside(Call({"x": TensorFacts("float32", (value,))}, {}))
    assert bool(outside) == (value < 3 or value % multiple != 0)


def test_a_dimension_that_is_a_multiple_of_a_size_settles_it() -> None:
    paired = TensorInput("x", ("float32",), ("2 * pairs", "pairs"))
    domain = Domain((paired,), (Size("pairs"),))

    def reason(*shape: int) -> str:
        return domain.outside(Call({"x": TensorFacts("float32", shape)}, {}))

    assert reason(6, 3) == ""
    assert reason(5, 3) == "dimension 0 of x is 5, not 2 * pairs"
    assert reason(6, 4) == "dimension 1 of x is 4, not pairs"


def test_a_size_that_follows_from_the_constructor_is_not_the_callers_to_change() -> None:
    built = LINEAR.built(call(X))
    assert built == {"pairs": 8}
    other = call(TensorFacts("float32", (4, 18)))
    assert LINEAR.outside(other) == ""
    assert "pairs follows from the constructor" in LINEAR.outside(other, built)
    assert LINEAR.outside(call(TensorFacts("float32", (6, 16)), TensorFacts("float32", (6, 3))), built) == ""


def test_numbers_of_elements_have_an_end() -> None:
    wide = TensorInput("x", ("float32",), ("rows", 1024))
    domain = Domain((wide,), (Size("rows"),), elements=("rows * 1024 * 3",))

    def reason(rows: int) -> str:
        return domain.outside(Call({"x": TensorFacts("float32", (rows, 1024))}, {}))

    assert reason(690_000) == ""
    assert "elements, not fewer than 2130706432" in reason(700_000)
    assert Domain.of_literal(domain.literal()) == domain
    assert "fewer than 2**31 - 2**24 elements in a tensor" in words_of(domain)
    with pytest.raises(ValueError, match="columns"):
        Domain((wide,), (Size("rows"),), elements=("rows * columns",))

"""Whether an answer needs what own kernels compute: asked with kernels that copy in their place."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import _disable_current_modes
from triton.tools.tensor_descriptor import TensorDescriptor

from egg.evaluator.operators.contributed import Draw, aligned, contributes
from egg.evaluator.operators.copied import Copied, Written, carried, every_way, tensors_of
from egg.evaluator.operators.ops import Recorder

ROWS, FEATURES = 32, 64
WEIGHT = torch.randn(FEATURES, FEATURES, generator=torch.Generator().manual_seed(0))
LAUNCHED: list[Any] = []
"""What launches are handed to."""


def kernel(
    name: str, compute: Callable[..., torch.Tensor], made: torch.Tensor, *read: torch.Tensor
) -> torch.Tensor:
    """Launch a kernel that writes ``made``."""

    def run() -> None:
        with _disable_current_modes():
            made.copy_(compute(*read))

    bound = {"out": made} | {f"in_{place}": one for place, one in enumerate(read)}
    LAUNCHED[-1].launch(name, bound, run)
    return made


def own(compute: Callable[..., torch.Tensor], *read: torch.Tensor) -> torch.Tensor:
    """What a kernel makes of tensors, of the form of the first."""
    return kernel(str(getattr(compute, "__code__", compute)), compute, torch.empty_like(read[0]), *read)


def needs(forward: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype = torch.float32) -> bool:
    written, draws = Written(), []
    for _ in range(6):
        x, draw = torch.randn(ROWS, FEATURES).to(dtype), Draw(7)
        _called(forward, x, draw, written)
        draw.copied.extend(every_way(written, lambda call, x=x: _called(forward, x, call, call), 7))
        draws.append(draw)
    return contributes(aligned(draws)) and not carried(draws)


def _called(forward: Callable[..., torch.Tensor], x: torch.Tensor, draw: Draw, launched: Any) -> None:
    draw.begin([x])
    if isinstance(draw, Copied):
        draw.have([WEIGHT])
    LAUNCHED.append(launched)
    with Recorder(flow=draw, fill_empties=lambda t: t.fill_(float("nan") if t.is_floating_point() else 0)):
        result = forward(x)
    LAUNCHED.pop()
    draw.end([result])


def codes(x: torch.Tensor) -> torch.Tensor:
    bits = x.view(torch.int32)
    return torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


def floats(c: torch.Tensor) -> torch.Tensor:
    return torch.where(c < 0, c ^ 0x7FFFFFFF, c).view(torch.float32)


def shifted(x: torch.Tensor) -> torch.Tensor:
    return own(lambda h: h + h.sum(1, keepdim=True), x)


def turned(x: torch.Tensor) -> torch.Tensor:
    return (x + x.sum(1, keepdim=True)).t()


def shifted_beside_others(x: torch.Tensor) -> torch.Tensor:
    """Eight operands that do not vary, one again and again, and one of a type without comparison."""
    others = [torch.full_like(x, number) for number in range(8)] + [x.relu()] * 8
    others.append(torch.ones_like(x, dtype=torch.float8_e4m3fn))
    return kernel("h", lambda *h: h[-1] + h[-1].sum(1, keepdim=True), torch.empty_like(x), *others, x)


def largest_of_codes(x: torch.Tensor) -> torch.Tensor:
    made = kernel("codes", codes, torch.empty_like(x, dtype=torch.int32), x)
    found = torch.sort(made, descending=True).values[:, :4].contiguous()
    return kernel("floats", floats, torch.empty_like(found, dtype=torch.float32), found)


def apart(x: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
    """Rows multiplied and shifted, with something else between their elements."""

    def spread(h: torch.Tensor) -> torch.Tensor:
        shifted = factor * h + 5 * h.sum(1, keepdim=True)
        return torch.stack([h * h, shifted], 2).view(ROWS, -1)

    return kernel(f"apart {factor}", spread, x.new_empty(ROWS, 2 * FEATURES), x)


def tripled(x: torch.Tensor) -> torch.Tensor:
    return own(lambda h: 3 * h + 5 * h.sum(1, keepdim=True), x)


def raises_without(x: torch.Tensor) -> torch.Tensor:
    """Two operands of the result's size: with a copy of the other one nothing is answered."""
    found = kernel("or", lambda h, other: h + h.sum(1, keepdim=True), torch.empty_like(x), x, x.relu())
    if bool((found.amin(1) == 0).all()):
        raise ValueError("a row of zeros")
    return torch.softmax(found, 1)


def product_between_shifts(x: torch.Tensor) -> torch.Tensor:
    made, sums, columns = shifted(x) @ WEIGHT, x.sum(1, keepdim=True), WEIGHT.sum(0)
    return F.gelu(own(lambda h, s, c: h - s * c, made, sums, columns))


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: torch.softmax(shifted(x), 1),
        lambda x: own(lambda h: h * torch.arange(1, FEATURES + 1), F.layer_norm(shifted(x), (FEATURES,))),
        lambda x: own(lambda h, given: h + given, F.gelu(own(torch.neg, x)), x),
        lambda x: F.normalize(own(lambda h: h * h.amax(1, keepdim=True), x)),
        lambda x: torch.softmax(kernel("t", turned, x.new_empty(FEATURES, ROWS), x), 0),
        lambda x: torch.softmax(shifted_beside_others(x), 1),
        lambda x: torch.softmax(apart(x)[:, 1::2], 1),
        lambda x: torch.softmax(apart(x, 3.0)[:, 1::2] / 3, 1),
        lambda x: torch.softmax(apart(x)[:, torch.arange(FEATURES) * 2 + 1], 1),
        lambda x: torch.softmax(tripled(x) / 3, 1),
        raises_without,
        product_between_shifts,
        largest_of_codes,
    ],
)  # fmt: skip
def test_what_the_answer_does_not_need(forward: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert not needs(forward)


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: own(F.gelu, x @ WEIGHT),
        lambda x: own(lambda h: F.layer_norm(h, (FEATURES,)), x) @ WEIGHT,
        lambda x: own(lambda h, given: h + given, x @ WEIGHT, x),
        lambda x: torch.softmax(own(lambda h: h * 2 + h.sum(0), x), 1),
        lambda x: torch.softmax(apart(x)[:, ::2], 1),
        lambda x: torch.softmax(own(lambda h: h * h.sum(1, keepdim=True), x) / 3, 1),
        lambda x: torch.sort(own(lambda h: h * h, x)).values,
    ],
)
def test_what_the_answer_needs(forward: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert needs(forward)


def test_tensors_of_descriptors() -> None:
    x = torch.zeros(4, 16)
    bound = {"x": x, "d": TensorDescriptor(x, [4, 16], [16, 1], [2, 16]), "n": 3}
    assert {name: tensor is x for name, tensor in tensors_of(bound).items()} == {"x": True, "d": True}


def test_calls_that_are_never_alike() -> None:
    calls = itertools.count(1)

    def forward(x: torch.Tensor) -> torch.Tensor:
        torch.zeros(next(calls)).add(1)
        return torch.softmax(shifted(x), 1)

    assert not needs(forward)


def test_what_an_earlier_call_left_is_not_copied() -> None:
    """Pieces are as large as no result: there is nothing to copy, and what lies there is the kernel's own."""
    kept = torch.empty(ROWS, FEATURES)

    def forward(x: torch.Tensor) -> torch.Tensor:
        kernel("norm", lambda *p: F.layer_norm(torch.cat(p), (FEATURES,)), kept, *x.split(8))
        return own(lambda h: h * 2, kept) @ WEIGHT

    assert needs(forward)

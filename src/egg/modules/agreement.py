"""Whether a captured task answers as the module does: on the person's own inputs, before anybody uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from egg.core.errors import TaskError
from egg.modules.binding import built, executed, tensors_of
from egg.modules.capture_types import Captured
from egg.modules.state import KeptValues, Snapshot
from egg.modules.structure import flatten

SEED = 71_993
TOLERANCE = 1e-3
"""Relative to the largest element of a result: the same operators on the same numbers."""


def check_agreement(captured: Captured, module: nn.Module, leaves: Sequence[Any]) -> None:
    """Run both on copies of the inputs; :class:`TaskError` where results or buffers then differ."""
    expected, buffers = _run_original(captured, module, leaves)
    answered, own_buffers = _run_task(captured, module, leaves)
    for what, one, other in (
        ("its results", expected, answered),
        ("what it leaves in its buffers", buffers, own_buffers),
    ):
        if len(one) != len(other) or not all(map(_close, one, other)):
            raise TaskError(
                f"{captured.task.name}: the captured program differs from the module in {what}",
                "optimize the parts one by one; please report the module",
            )


def _run_original(
    captured: Captured, module: nn.Module, leaves: Sequence[Any]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    copies, snapshot = [_copy(leaf) for leaf in leaves], Snapshot(module)
    copies = [copies[twin] for twin in captured.twins]
    try:
        with KeptValues(module), torch.no_grad():
            torch.manual_seed(SEED)
            args, kwargs = captured.arguments.built(copies)
            found, form = flatten(module(*args, **kwargs))
            buffers = [t.clone() for t in _held(captured, module)]
    finally:
        snapshot.restore()
    if form != captured.returned:
        raise TaskError(
            f"{captured.task.name}: the module returns another structure than its capture",
            "return the same structure from every call",
        )
    computed: dict[int, torch.Tensor] = {}
    for result, leaf in zip(captured.results, found, strict=True):
        if result.kind == "computed":
            computed[result.place] = leaf
    return [*(computed[i] for i in sorted(computed)), *(copies[i] for i in captured.written)], buffers


def _run_task(
    captured: Captured, module: nn.Module, leaves: Sequence[Any]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    given = [_copy(leaves[i]) for i in captured.given]
    mutable = {b.attribute for b in captured.bindings if b.role == "buffer"}
    tensors = {n: t.clone() if n in mutable else t for n, t in tensors_of(captured, module).items()}
    with KeptValues(module), torch.no_grad():
        source = executed(captured.task.source, "task")
        model = built(source.__dict__["Model"], tensors)
        torch.manual_seed(SEED)
        answer = model(*given)
    buffers = [tensors[b.attribute] for b in captured.bindings if b.role == "buffer"]
    answers = list(answer) if isinstance(answer, tuple | list) else [answer]
    computed = answers if any(result.kind == "computed" for result in captured.results) else []
    return [*computed, *(given[captured.given.index(place)] for place in captured.written)], buffers


def _held(captured: Captured, module: nn.Module) -> list[torch.Tensor]:
    tensors = tensors_of(captured, module)
    return [tensors[b.attribute] for b in captured.bindings if b.role == "buffer"]


def _copy(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not (one.is_floating_point() or one.is_complex()):
        return torch.equal(one, other)
    wide = torch.complex128 if one.is_complex() else torch.float64
    exact = other.to(wide)
    finite = exact[torch.isfinite(exact)]
    scale = float(finite.abs().max()) if finite.numel() else 0.0
    return torch.allclose(one.to(wide), exact, rtol=TOLERANCE, atol=TOLERANCE * scale, equal_nan=True)

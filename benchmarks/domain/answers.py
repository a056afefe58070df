"""What a side answers to a call, and in what two answers differ.

Right is what the judge's own rule calls right (:mod:`egg.evaluator.compare.compare`). What misses that rule
and still agrees with the reference as closely as KernelBench asks, or as TF32 products do, or nearly as the
rule asks, is ``inexact``: another rounding, no wrong answer. (A file for a GPU takes TF32 where PyTorch may
there, at every shape; PyTorch does so at some shapes only, and a CPU has none.) So is every number where the
reference itself is far from the exact result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from benchmarks.domain.calls import Call
from benchmarks.domain.outcomes import Outcome, brief, is_memory
from egg.core.domain import Format, Output
from egg.core.policy import Precision
from egg.evaluator.compare.compare import LeafError, compare
from egg.evaluator.task.precision import double_scope
from egg.evaluator.task.program import map_tensors, outputs_of, to_double

FORWARD_SEED = 1234
NEAR = 4.0
"""Times what is allowed up to which an answer is another rounding: what is read wrongly is wrong by more."""
TF32_RMS = 1e-3
"""A relative rms error in fp32 up to which it may come of products in TF32."""
UNCERTAIN = {torch.float16: 0.1, torch.bfloat16: 0.1}
"""A relative error of the reference itself beyond which nothing can be concluded; else ``UNCERTAIN_FP32``."""
UNCERTAIN_FP32 = 1e-2


@dataclass(frozen=True)
class Answer:
    """What a side returned, and what the call did to its module and inputs."""

    outputs: list[tuple[str, Any]]
    buffers: list[tuple[str, Any]]
    inputs: list[tuple[str, Any]]
    module: nn.Module
    leaves: list[torch.Tensor]
    """Tensors that a gradient was asked of."""
    drew: bool
    """Whether it drew random numbers, which an fp64 run would draw otherwise."""


@dataclass(frozen=True)
class Exact:
    """What an fp64 run returned, and its buffers after it."""

    outputs: list[tuple[str, Any]]
    buffers: list[tuple[str, Any]]


# -- one side ------------------------------------------------------------------------------------------


def answered(module: nn.Module, call: Call) -> Answer:
    """One forward on copies of the inputs, after the seed that both sides share."""
    inputs, named = call.fresh()
    given = [held for _, held in tensors_in([inputs, named])]
    leaves = [held for held in given if held.is_floating_point()] if call.gradient else []
    for held in leaves:
        held.requires_grad_(True)
    torch.manual_seed(FORWARD_SEED)
    before = _random_state()
    with torch.set_grad_enabled(call.gradient):
        outputs = outputs_of(module(*inputs, **named))
    drew = any(not torch.equal(a, b) for a, b in zip(before, _random_state(), strict=True))
    buffers = {name: held.detach().clone() for name, held in module.named_buffers()}
    return Answer(outputs, list(buffers.items()), tensors_in([inputs, named]), module, leaves, drew)


def _random_state() -> list[torch.Tensor]:
    used = torch.cuda.is_available() and torch.cuda.is_initialized()
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if used else [])]


def exact(module: nn.Module, call: Call) -> Exact | None:
    """What an fp64 run gives; ``None`` where there is none (a dtype fixed in code, random numbers)."""
    inputs, named = call.fresh()
    try:
        module64, inputs64 = to_double(module, [*inputs, named])
        torch.manual_seed(FORWARD_SEED)
        with double_scope(), torch.no_grad():
            outputs = outputs_of(module64(*inputs64[:-1], **inputs64[-1]))
        return Exact(outputs, list(module64.named_buffers()))
    except Exception:  # the reference's own run decides whether the call is one at all
        return None


def tensors_in(value: Any) -> list[tuple[str, torch.Tensor]]:
    found: list[torch.Tensor] = []
    map_tensors(value, lambda held: (found.append(held), held)[1])
    return [(str(at), held) for at, held in enumerate(found)]


# -- what differs --------------------------------------------------------------------------------------

Named = list[tuple[str, Any]]


@dataclass(frozen=True)
class Difference:
    outcome: Outcome
    detail: str
    of_values: bool = False
    """Numbers of an output differ, which rounding may explain; anything else it cannot."""


def differences(
    call: Call, got: Answer, wanted: Answer, golden: Exact | None, precision: Precision
) -> Difference | None:
    """The first thing in which the sides differ: outputs, buffers, inputs they wrote to, gradients."""
    outputs, buffers = (golden.outputs, golden.buffers) if golden is not None else (None, None)
    found = _differ(got.outputs, wanted.outputs, outputs, precision, "output")
    if found is None:
        found = _differ(got.buffers, wanted.buffers, buffers, precision, "buffer")
        found = found or _differ(got.inputs, wanted.inputs, None, precision, "input after the call")
        found = found and replace(found, of_values=False)
    return found or (_gradients_differ(got, wanted, precision) if call.gradient else None)


def _differ(
    got: Named, wanted: Named, golden: Named | None, precision: Precision, what: str
) -> Difference | None:
    if [name for name, _ in got] != [name for name, _ in wanted]:
        return Difference(Outcome.WRONG, f"{what}: {len(got)} of them, not {len(wanted)}")
    exacts = golden if golden is not None and len(golden) == len(wanted) else wanted
    worst: Difference | None = None
    for (name, c), (_, r), (_, g) in zip(got, wanted, exacts, strict=True):
        one, two, three = map(torch.as_tensor, (c, r, g))
        found = _leaf_differs(one, two, three, precision)
        if found is not None and (worst is None or found.outcome is Outcome.WRONG):
            worst = replace(found, detail=f"{what} {name}: {found.detail}")
            if found.outcome is Outcome.WRONG:
                break
    return worst


def _leaf_differs(
    c: torch.Tensor, r: torch.Tensor, g: torch.Tensor, precision: Precision
) -> Difference | None:
    if c.shape != r.shape:
        return Difference(Outcome.WRONG, f"shape {list(c.shape)}, not {list(r.shape)}")
    if c.dtype != r.dtype:
        return Difference(Outcome.WRONG, f"{c.dtype}, not {r.dtype}")
    if not r.numel():
        return None
    c, r, g = (held.detach() for held in (c, r, g if g.shape == r.shape else r))
    if r.is_floating_point():
        alike = (c.isnan() & r.isnan()) | (c == r) & r.isinf()
        c, r, g = (held.masked_fill(alike, 0.0) for held in (c, r, g))
    error = compare(c, r, g, precision)
    if error.passed:
        return None
    shown = error.problem or f"{max(error.max_ratio, error.rms_ratio):.3g} times what is allowed"
    shown += f", relative error {error.relative:.2g}, the reference's own {error.reference_relative:.2g}"
    near = error.kernelbench or _rounding(error, compare(c, r, g, Precision.TF32), r.dtype)
    outcome = Outcome.INEXACT if near else Outcome.WRONG
    return Difference(outcome, f"{shown}, shape {list(r.shape)}", of_values=True)


def _rounding(error: LeafError, tf32: LeafError, dtype: torch.dtype) -> bool:
    """Whether another rounding explains an error. One in rms alone would hide a few wrong elements."""
    if error.problem:
        return False
    in_tf32 = dtype is torch.float32 and error.relative <= TF32_RMS and tf32.max_ratio < NEAR
    uncertain = error.reference_relative > UNCERTAIN.get(dtype, UNCERTAIN_FP32)
    return tf32.passed or in_tf32 or uncertain or max(error.max_ratio, error.rms_ratio) < NEAR


def _gradients_differ(got: Answer, wanted: Answer, precision: Precision) -> Difference | None:
    """Where the reference's outputs have gradients, the file's have the same or say that there are none."""
    pairs = [
        (c, r)
        for (_, c), (_, r) in zip(got.outputs, wanted.outputs, strict=True)
        if isinstance(r, torch.Tensor) and r.requires_grad
    ]
    if not pairs:
        return None
    if not all(c.requires_grad for c, _ in pairs):
        return Difference(Outcome.WRONG, "an output does not require a gradient, the reference's does")
    generator = torch.Generator().manual_seed(5)
    weights = [torch.randn(r.shape, generator=generator).to(r) for _, r in pairs]
    try:
        torch.autograd.backward([c for c, _ in pairs], weights)
        if any(held.is_cuda for held in weights):
            torch.cuda.synchronize()
    except Exception as error:
        return Difference(Outcome.CRASH, f"backward: {brief(error)}") if is_memory(error) else None
    torch.autograd.backward([r for _, r in pairs], weights)
    sides = [_gradients(side) for side in (got, wanted)]
    lost = [name for name, held in sides[1].items() if held is not None and sides[0].get(name) is None]
    if lost:
        return Difference(Outcome.WRONG, f"no gradient arrives at {', '.join(lost[:3])}")
    named = [name for name, held in sides[1].items() if held is not None]
    found = [[(name, side[name]) for name in named] for side in sides]
    differ = _differ(found[0], found[1], None, precision, "gradient of")
    if differ is None or differ.outcome is Outcome.INEXACT:
        return None
    return replace(differ, of_values=False)


def _gradients(side: Answer) -> dict[str, torch.Tensor | None]:
    parameters = {name: held.grad for name, held in side.module.named_parameters()}
    inputs = {f"input {at}": held.grad for at, held in enumerate(side.leaves)}
    side.module.zero_grad(set_to_none=True)
    return parameters | inputs


def other_strides(got: Named, wanted: Named, stated: Sequence[Output]) -> str:
    """The first output that lies otherwise in memory than the reference's; empty where none does.

    The stride of a dimension of 1 leads nowhere. An output that the file leaves unstated may lie in any
    layout.
    """
    for at, ((name, c), (_, r)) in enumerate(zip(got, wanted, strict=True)):
        if not isinstance(c, torch.Tensor) or not isinstance(r, torch.Tensor):
            continue
        if at < len(stated) and stated[at].format is Format.UNSTATED:
            continue
        if any(size > 1 and a != b for size, a, b in zip(r.shape, c.stride(), r.stride(), strict=True)):
            return f"output {name} has the strides {c.stride()}, the reference's {r.stride()}"
    return ""

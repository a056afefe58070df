"""Inside a worker without a GPU: capture the candidate's launches at full size and compile them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from egg.evaluator.offline import Capture, CaptureUnsupported, GpuTarget, capture
from egg.evaluator.offline.compile import Binary, binaries
from egg.evaluator.offline.launch import CompileFailed
from egg.evaluator.offline.reach import problems
from egg.evaluator.operators.ops import NEUTRAL
from egg.evaluator.transport import exchange, protocol
from egg.evaluator.transport.arena import extent
from egg.evaluator.work.arguments import numbers_in

EVERY_SECONDS = 60.0
"""In which configurations behind the first that fits are compiled."""


def precompile(
    make: Callable[[], nn.Module], asked: protocol.Capture, make_small: Callable[[], nn.Module] | None = None
) -> tuple[protocol.Captured, list[Binary]]:
    """The reply, and what the launches compile to; or the reason why they could not be captured.

    Host code that needs values is followed on the request's example, inputs that have some. Where those are
    smaller than the task's own (``make_small`` builds the module for them), it is followed at full size as
    well, and reads there what it read on the example.
    """
    inputs = partial(_inputs, asked.inputs, asked.specs)
    gpu = GpuTarget.of(asked.target)
    try:
        every_s = EVERY_SECONDS if asked.every else 0.0
        captured = capture(make, inputs, gpu, backward=asked.backward, every_s=every_s)
    except CaptureUnsupported as reason:
        if asked.example is None:
            return protocol.Captured(unsupported=str(reason)), []
        try:
            captured = _with_values(make, inputs, gpu, asked.example, make_small)
        except CaptureUnsupported as again:
            return protocol.Captured(unsupported=str(again)), []
    return _answer(captured, gpu)


def followed(make: Callable[[], nn.Module], asked: protocol.Follow) -> protocol.Launches:
    """The kernels of a warm call, each with the numbers it is launched with; or why they are not known."""
    inputs = partial(_inputs, asked.inputs, asked.specs)
    try:
        captured = capture(make, inputs, GpuTarget.of(asked.target), compile_budget_s=0)
    except (CaptureUnsupported, CompileFailed) as reason:
        return protocol.Launches(unsupported=str(reason))
    return protocol.Launches(
        tuple((launch.kernel, tuple(numbers_in(launch.arguments))) for launch in captured.each)
    )


def _inputs(structure: str, specs: Sequence[protocol.InputForm]) -> list[Any]:
    return exchange.unpack(structure, tensors_like(specs))


def tensors_like(specs: Sequence[protocol.InputForm]) -> list[torch.Tensor]:
    """Without values; parts of one storage are that here too."""
    parts: dict[tuple[int, str], list[protocol.InputForm]] = {}
    for spec in specs:
        parts.setdefault((spec.storage, spec.dtype), []).append(spec)
    whole = {place: _storage(members) for place, members in parts.items()}
    tensors = [
        whole[spec.storage, spec.dtype].as_strided(spec.shape, spec.stride, spec.lead) for spec in specs
    ]
    return [made.requires_grad_(spec.learns) for made, spec in zip(tensors, specs, strict=True)]


def _storage(members: Sequence[protocol.InputForm]) -> torch.Tensor:
    size = max(spec.lead + extent(spec.shape, spec.stride, 1) for spec in members)
    return torch.empty(size, dtype=getattr(torch, members[0].dtype))


def _with_values(
    make: Callable[[], nn.Module],
    inputs: Callable[[], list[Any]],
    gpu: GpuTarget,
    example: str,
    make_small: Callable[[], nn.Module] | None,
) -> Capture:
    seen = capture(make_small or make, lambda: exchange.unwhole(example), gpu, real=True)
    if make_small is None:
        return seen
    binaries(seen, gpu)  # what cannot be compiled there is refused
    return capture(make, inputs, gpu, answers=seen.scalars)


def _answer(captured: Capture, gpu: GpuTarget) -> tuple[protocol.Captured, list[Binary]]:
    found = binaries(captured, gpu)
    launches = (*captured.first_call_launches, *captured.launches)
    kernels = {**{b.key: b.kernel for b in found}, **captured.kernels}
    faults = [protocol.Complaint(p.reason, p.evidence) for p in problems(captured, kernels)]
    ops = {name.removeprefix("aten."): count for name, count in captured.seen_ops.items()}
    reply = protocol.Captured(
        compiled=len(found),
        launched=bool(launches),
        kernels=tuple(sorted({launch.kernel for launch in captured.launches or launches})),
        ops={name: count for name, count in ops.items() if name not in NEUTRAL},
        faults=tuple(faults[:4]),
        uncompiled=captured.uncompiled,
    )
    return reply, found

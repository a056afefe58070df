"""What a call beside the task's own leaves behind: the module's state, outputs that a caller holds.

The gate ``state`` asks this of the task's own call. A file may keep a cache, a buffer or a statistic only
where the module is in its other mode, or in another dtype.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from egg.evaluator.gates.moved import arrived, is_counter
from egg.evaluator.gates.second import Beside
from egg.evaluator.reference.answers import same_bytes
from egg.evaluator.reference.case import Case
from egg.evaluator.reference.probes import Change
from egg.evaluator.reference.reference import Reference
from egg.evaluator.transport import exchange, protocol
from egg.evaluator.worker.outputs import handed_back


@dataclass(frozen=True)
class Before:
    """What both modules hold before a call."""

    ours: Mapping[str, torch.Tensor]
    theirs: Mapping[str, torch.Tensor]


def state_of(reference: Reference) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in reference.module.state_dict().items()}


def left_otherwise(other: Beside, before: Before) -> str:
    """What of the candidate's state is not what the reference's call leaves there, in words.

    What the reference moves must arrive where it does; all else must be what it was.
    """
    theirs, ours = other.connection.candidate_state(), state_of(other.reference)
    for name in other.connection.names.values():
        if is_counter(name, ours[name]):
            continue
        if same_bytes(ours[name], before.ours[name]):
            if not same_bytes(theirs[name], before.theirs[name]):
                return f"the call moves {name}"
        elif not arrived(theirs[name], ours[name], before.ours[name], singly=False):
            return f"the call does not leave in {name} what Model's leaves there"
    return ""


def overwritten(other: Beside, case: Case, change: Change, inputs: list[Any]) -> str:
    """Whether a later call, on ``inputs``, changes what the call before it returned and kept; in words."""
    call = other.buffers.call_set(case, 0)
    first = other.buffers.snapshot()
    other.buffers.place(replace(case, inputs=inputs, tensors=exchange.pack(inputs)[1]))
    other.connection.request(
        protocol.Forward(call, case.seed + 1, protocol.Options(training=change.training))
    )
    other.buffers.poison(0)
    other.connection.request(protocol.Recheck(call.outputs))
    moving = handed_back(case.outputs, case.inputs)
    pairs = enumerate(zip(first, other.buffers.outputs(), strict=True))
    kept = (pair for index, pair in pairs if index not in moving)
    if all(same_bytes(a, b) for a, b in kept if a is not None and b is not None):
        return ""
    return "a later call changes what an earlier one returned, which the caller holds"

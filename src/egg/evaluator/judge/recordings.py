"""A recording of torch.compile for the reference of a task, made with the module of its baselines."""

from __future__ import annotations

from collections.abc import Callable

import torch

from egg.core.recording import Recording
from egg.evaluator.task.precision import precision_scope
from egg.evaluator.task.seeds import FORWARD_SEED
from egg.evaluator.tensors import memory
from egg.evaluator.timing.compiling import compiling_within
from egg.evaluator.timing.launch_times import launch_times
from egg.evaluator.timing.opponents import Opponents
from egg.evaluator.timing.recorded import NotRecorded, recorded

REASON = 300
"""Characters of what a compiler says."""


def recording_of(opponents: Opponents, gpu: str, alone: Callable[[], None]) -> Recording:
    """Compile under the opponents' precision and note what was generated; ``alone`` takes the GPU for timing.

    A compiler may raise anything. That is no fault of the machine: the record says that there is none.
    """
    inputs = opponents.program.inputs(FORWARD_SEED, opponents.device, opponents.precision)
    with precision_scope(opponents.precision), torch.no_grad():
        try:
            compiled = opponents.module(opponents.precision)
            with compiling_within(opponents.apart):
                graph, module, call = recorded(compiled, inputs, opponents.device)
        except NotRecorded as reason:
            return Recording(None, str(reason), gpu=gpu)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[:REASON]
        else:
            alone()
            return Recording(graph, "", launch_times(module, call, opponents.device), gpu)
    memory.collect(opponents.device)
    return Recording(None, reason, gpu=gpu)

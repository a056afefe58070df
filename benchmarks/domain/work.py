"""One task in a process of its own: its file, and every call of it, told line by line.

Lines are what is known even where the process dies: the file's first, then one as each call begins and one
as it ends. A process that goes on after another died skips the calls that were begun before.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.domain.calls import Call, Kind, Signatures
from benchmarks.domain.files import written
from benchmarks.domain.probes import Probes
from benchmarks.domain.trial import Outcome, Sides, Tried, brief
from egg.core.domain import Domain, TensorInput, names_in
from egg.core.errors import EggError
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task.program import Program
from egg.evaluator.task.rescale import CannotRescale, rescale
from egg.evaluator.venues import smallest
from egg.evaluator.worker.importing import import_candidate
from egg.expert.assemble import Fault, NothingToWrite
from egg.expert.parts import Unfit

Tell = Callable[[dict[str, Any]], None]
GPU_ELEMENTS, GPU_FLOPS = 50_000_000, 2e11
"""What a call may take on a GPU: some 200 MB in fp32."""


def file_of(task: Task) -> dict[str, Any]:
    """What is known of a task's file before it runs; ``source`` is missing where there is none."""
    started = time.perf_counter()
    try:
        source = written(task).source
    except Fault as error:
        return {"reason": str(error)[:400], "fault": True}
    except (NothingToWrite, Unfit, EggError) as error:
        return {"reason": str(error).splitlines()[0][:400]}
    except Exception as error:
        return {"reason": f"not foreseen: {brief(error)}", "fault": True}
    return {"source": source, "writing": round(time.perf_counter() - started, 2), **_stated(source)}


def _stated(source: str) -> dict[str, Any]:
    domain = Domain.of_source(source)
    if domain is None:
        return {"domain": None}
    return {"domain": domain.words(), "batch_claimed": _claims_batch(domain)}


def _claims_batch(domain: Domain) -> bool:
    """Whether the first dimension of the first tensor is the caller's choice."""
    module = {size.name for size in domain.sizes if size.module}
    for given in domain.inputs:
        if isinstance(given, TensorInput) and given.shape:
            return bool(names_in(given.shape[0]) - module)
    return False


# -- trying ---------------------------------------------------------------------------------------------


def tried_calls(task: Task, source: str, device: torch.device, skip: int, until: float, tell: Tell) -> None:
    """Every call from the ``skip``-th on, as long as there is time."""
    base_task, changes = at_size(task, device)
    tell({"size": changes})
    with Program.load(base_task) as program, tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sides = _sides(program, source, device)
        if isinstance(sides, Tried):
            tell({"begin": sides.name})
            tell({"end": sides.to_json()})
            return
        for at, call in enumerate(Probes(_base(program, sides, device), sides)):
            if at < skip:
                continue
            if time.monotonic() > until:
                tell({"cut": at})
                return
            tell({"begin": call.name, "kind": call.kind.value})
            ended = sides.tried(call)
            tell({"end": ended.to_json()})
            if ended.outcome is Outcome.CRASH and device.type == "cuda":
                os._exit(0)  # the device is lost to this process


def _sides(program: Program, source: str, device: torch.device) -> Sides | Tried:
    try:
        module = import_candidate(source)
    except Exception as error:
        return Tried(Kind.CAPTURED.value, "import", Outcome.ERROR, brief(error), error=type(error).__name__)
    model = program.module.__dict__["Model"]
    return Sides(model, module.ModelNew, Signatures.of(program), Domain.of_source(source), device)


def _base(program: Program, sides: Sides, device: torch.device) -> Call:
    args, kwargs = program.init_arguments()
    inputs = program.inputs(0, device, Precision.MATCH)
    arguments = sides.signatures.arguments(args, kwargs)
    return Call(Kind.CAPTURED, "the captured call", arguments, tuple(inputs))


def at_size(task: Task, device: torch.device) -> tuple[Task, dict[str, list[int]]]:
    """The task at a size that the device runs quickly, and what was changed of it."""
    if device.type == "cpu":
        small = smallest(task)
    else:
        try:
            small = rescale(task, max_flops=GPU_FLOPS, max_elements=GPU_ELEMENTS)
        except CannotRescale:
            return task, {}
    return small.task, {name: list(change) for name, change in small.changes.items()}

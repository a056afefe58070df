"""One task in a process of its own: its file, and every call of it, told line by line.

Lines are what is known even where the process dies: the file's first, then one as each call begins and one
as it ends. A process that goes on after another died skips the calls that were begun before.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
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
from egg.evaluator.task.rescale import CannotRescale, Rescaled, rescale
from egg.evaluator.venues import smallest
from egg.evaluator.worker.importing import import_candidate
from egg.expert.assemble import Fault, NothingToWrite
from egg.expert.parts import Unfit

Tell = Callable[[dict[str, Any]], None]
INTERPRETED = ((1e6, 4_000), (5e6, 12_000))
"""FLOPs and elements of a call under the interpreter, smallest first; then what the judge takes there."""
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


@dataclass(frozen=True)
class Terms:
    """How a task's calls are tried."""

    device: torch.device
    until: float
    """Begin no call after that, by the monotonic clock."""
    rescale: bool = True
    """Whether the task is brought to a size that the device runs quickly."""
    sample: int = 0
    """So many calls besides the captured one, by lot; 0 is all of them."""


def tried_calls(task: Task, source: str, terms: Terms, skip: int, tell: Tell) -> None:
    """Every call from the ``skip``-th on, as long as there is time."""
    device = terms.device
    base_task, changes = at_size(task, device) if terms.rescale else (task, {})
    tell({"size": changes})
    with Program.load(base_task) as program, tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sides = _sides(program, source, device)
        if isinstance(sides, Tried):
            tell({"begin": sides.name})
            tell({"end": sides.to_json()})
            return
        calls: Iterable[Call] = Probes(_base(program, sides, device), sides)
        if terms.sample:
            first, *rest = calls
            drawn = Random(task.hash).sample(range(len(rest)), min(terms.sample, len(rest)))
            calls = [first, *(rest[at] for at in sorted(drawn))]
        for at, call in enumerate(calls):
            if at < skip:
                continue
            if time.monotonic() > terms.until:
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
    budgets = INTERPRETED if device.type == "cpu" else ((GPU_FLOPS, GPU_ELEMENTS),)
    for flops, elements in budgets:
        with contextlib.suppress(CannotRescale):
            return _changed(rescale(task, max_flops=flops, max_elements=elements))
    return _changed(smallest(task)) if device.type == "cpu" else (task, {})


def _changed(small: Rescaled) -> tuple[Task, dict[str, list[int]]]:
    return small.task, {name: list(change) for name, change in small.changes.items()}

"""One task in a process of its own: its file, and every call of it, reported line by line.

Lines are what is known even where the process dies: the file's first, then one as each call begins and one
as it ends. A process that goes on after another died skips the calls that were begun before.
"""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from types import ModuleType
from typing import Any

import torch

from benchmarks.domain.bases import bases
from benchmarks.domain.calls import Call, Kind, Signatures
from benchmarks.domain.files import written
from benchmarks.domain.outcomes import Outcome, Report, Tried, brief, failed
from benchmarks.domain.probes import Probes
from benchmarks.domain.trial import DeviceLost, Sides
from egg.core.domain import Domain, TensorInput
from egg.core.domain_words import words_of
from egg.core.errors import EggError
from egg.core.sizes import names_in
from egg.core.source import Task
from egg.evaluator.task.program import Program
from egg.evaluator.worker.importing import import_candidate
from egg.expert.assemble import Fault, NothingToWrite
from egg.expert.parts import Unfit


def file_of(task: Task) -> dict[str, Any]:
    """What is known of a task's file before it runs; ``source`` is missing where there is none."""
    started = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
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
    return {"domain": words_of(domain), "batch_claimed": _claims_batch(domain)}


def _claims_batch(domain: Domain) -> bool:
    """Whether the first dimension of the first tensor is the caller's choice."""
    module = {size.name for size in domain.sizes if size.module}
    for given in domain.inputs:
        if isinstance(given, TensorInput) and given.shape:
            return bool(names_in(given.shape[0]) - module)
    return False


# -- trying ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Before:
    """What earlier processes of a task left: calls that ended, and those of which the reference died."""

    calls: Sequence[Tried] = ()
    fatal: Collection[str] = ()


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
    kind: str = ""
    """Calls of one kind only, besides the captured one."""


LOST = 3
"""How a process ends that lost its device: the next one goes on behind the call."""


def tried_calls(task: Task, source: str, terms: Terms, before: Before, report: Report) -> None:
    """Every call, as long as there is time; an earlier process has reported the first ones."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            module = import_candidate(source)
        except Exception as error:
            ended = replace(failed(error), kind=Kind.CAPTURED.value, name="import")
            report({"begin": "import"})
            report({"end": ended.to_json()})
            return
        domain = Domain.of_source(source)

        def sides_of(program: Program) -> Sides:
            model = program.module.__dict__["Model"]
            _resize_constants(module, program)
            two = (model, module.ModelNew, Signatures.of(program), domain, terms.device)
            return Sides(*two, report=report, fatal=before.fatal)

        try:
            _all(task, sides_of, terms, before.calls, report)
        except DeviceLost:
            os._exit(LOST)


def _resize_constants(module: ModuleType, program: Program) -> None:
    """Give integers that both the task and its file name at module level the task's values.

    A constructor may read such an integer (``torch.zeros(batch_size, width)``) instead of an argument, so its
    file holds it too. At another size of the task the file is then the file of a task that names that size.
    """
    for name, value in vars(program.module).items():
        if type(value) is int and type(vars(module).get(name)) is int:
            setattr(module, name, value)


def _all(
    task: Task, sides_of: Callable[[Program], Sides], terms: Terms, done: Sequence[Tried], report: Report
) -> None:
    known = iter(done)
    for sides, call in _calls(task, sides_of, terms, report):
        held = next(known, None)
        if held is not None:
            sides.last = held
            sides.slowest = max(sides.slowest, held.seconds)
            continue
        if time.monotonic() > terms.until:
            report({"cut": True})
            return
        report({"begin": call.name, "kind": call.kind.value})
        report({"end": sides.tried(call).to_json()})
        if sides.lost():
            raise DeviceLost(call.name)


def _calls(
    task: Task, sides_of: Callable[[Program], Sides], terms: Terms, report: Report
) -> Iterator[tuple[Sides, Call]]:
    """The first base that the file does not refuse, and what is made from it."""
    for base in bases(task, terms.rescale, terms.device, sides_of):
        report({"size": base.size})
        yield base.sides, base.call
        if base.sides.last.outcome is not Outcome.ERROR:
            probes = _drawn(Probes(base.call, base.sides), terms.sample, task.hash)
            yield from ((base.sides, call) for call in probes if terms.kind in ("", call.kind))
            return


def _drawn(probes: Iterable[Call], sample: int, seed: str) -> Iterable[Call]:
    if not sample:
        return probes
    held = list(probes)
    return [held[at] for at in sorted(Random(seed).sample(range(len(held)), min(sample, len(held))))]

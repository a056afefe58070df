"""From what a user asks for to a run that is under way."""

from __future__ import annotations

import os
import secrets as randomness
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from egg.api.apart import check_loads, facts_of, prepare
from egg.api.clients import OutsideClient
from egg.api.inheriting import inherit, owes
from egg.api.lessons import EXEMPLARS, Remembering, recall, recall_kernels
from egg.api.runs import Progress, advance, start
from egg.api.skills import advisor_of
from egg.api.teams import ASKING, EXPERT, check_model, team_maker
from egg.api.tools import Workbench
from egg.api.watching import Behind, Joined, Watcher
from egg.core.errors import MachineError, UsageError
from egg.core.exemplar import Exemplar
from egg.core.facts import Facts
from egg.core.parts import FEW_SHOT, reduced
from egg.core.recording import use_of_recordings
from egg.core.settings import Settings
from egg.core.source import Candidate, Task
from egg.core.stage import Stage
from egg.engine.journal import Judge
from egg.engine.judges import LocalJudge, OfflineJudge
from egg.engine.redaction import Redactor
from egg.engine.state import RunState
from egg.hardware.detect import present_gpus
from egg.hardware.gpus import Gpu, find, resolve
from egg.knowledge.catalogue import load
from egg.llm.connect import secrets
from egg.memory.standing import Standing

DEFAULT_TARGET = "H200"
OFFLINE = "offline"


def begin(
    task: Task,
    settings: Settings,
    folder: Path,
    environ: Mapping[str, str],
    name: str | None = None,
    first: Candidate | None = None,
) -> Settings:
    """Check the settings, gather the facts and write the first event; returns the settings as recorded.

    ``first`` is a kernel file that the run begins with: the judge sees it before any team is asked.
    """
    if settings.device != OFFLINE:
        prepare()
    settled = inheriting(settle(settings, environ), first)
    gpu = target_for(settled)
    if settings.device != OFFLINE:
        check_loads(task, settled.device)
    facts = facts_of(task, gpu, settings.precision)
    if settings.device != OFFLINE:
        facts = replace(facts, software=software())
    lessons = recalled(settled, facts)
    start(
        folder,
        task,
        settled,
        facts,
        name=name or run_name(task),
        redactor=redactor_for(settled, environ),
        lessons=lessons,
        first=first,
        exemplars=examples_for(settled, facts, task.name),
    )
    return settled


def settle(settings: Settings, environ: Mapping[str, str]) -> Settings:
    """The settings as runs under them record them; settings that can work for no task are refused now."""
    if settings.team in ASKING and settings.model is None:
        raise UsageError(
            f"the {settings.team} team needs a model",
            "give --model NAME (and --base-url for a server of your own)",
        )
    if settings.device == "auto" and not present_gpus():
        settings = replace(settings, device="cpu")
    gpu = target_for(settings)
    model = settings.model and check_model(settings.model, settings.caps, environ)
    models = {role: check_model(own, settings.caps, environ) for role, own in settings.models.items()}
    compiled = use_of_recordings(settings.team, settings.device)
    return reduced(replace(settings, target=gpu.name, model=model, models=models, compiled=compiled))


def inheriting(settings: Settings, first: Candidate | None) -> Settings:
    """A hybrid run begins with the built-in team's own run, unless it was given a kernel file."""
    if first is not None:
        return replace(settings, first="")
    return replace(settings, first=EXPERT) if settings.team == "hybrid" else settings


def recalled(settings: Settings, facts: Facts) -> dict[Stage, dict[str, Standing]]:
    """The standings of the skills on offer to a run; a fault in a skill or in the store raises now."""
    if settings.skills is None:
        return {}
    catalogue = load(tuple(Path(folder) for folder in settings.skills))
    known = recall(Path(settings.lessons), facts) if settings.lessons is not None else {}
    offered = {stage: {n: s for n, s in found.items() if n in catalogue} for stage, found in known.items()}
    return {stage: found for stage, found in offered.items() if found}


def examples_for(settings: Settings, facts: Facts, task: str) -> tuple[Exemplar, ...]:
    """Kernels of earlier runs for the prompts of a run; the built-in team reads none.

    A run that begins with the built-in team's kernel has it as its base, and needs no earlier copy of it.
    """
    if settings.lessons is None or settings.team == EXPERT or FEW_SHOT in settings.without:
        return ()
    found = recall_kernels(Path(settings.lessons), facts, 2 * EXEMPLARS)
    begins = settings.first == EXPERT
    fresh = [one for one in found if not (begins and one.team == EXPERT and one.task == task)]
    return tuple(fresh[:EXEMPLARS])


def carry_on(
    folder: Path,
    state: RunState,
    watcher: Watcher,
    environ: Mapping[str, str],
    *,
    outside: OutsideClient | None = None,
    judge: Judge | None = None,
) -> Progress:
    """Go on with a run under its own settings until it ends or has to wait.

    ``outside`` answers its questions in the place of the team that the settings name. ``judge``
    evaluates its kernels; without one this machine does, unless the run is judged offline.
    What its steps teach goes into the store of lessons that the settings name.
    """
    settings = state.started.settings
    if owes(state):
        redactor = redactor_for(settings, environ)
        waiting = inherit(
            folder, state, redactor, lambda own, at: carry_on(own, at, Behind(watcher), environ, judge=judge)
        )
        if waiting is not None:
            return Progress(state, waiting)
    if settings.lessons is not None:
        watcher = Joined(watcher, Remembering(folder, Path(settings.lessons), watcher.trouble))
    with ExitStack() as held:
        if judge is None:
            judge = held.enter_context(closing(_own_judge(settings, watcher)))
        bench = held.enter_context(closing(Workbench(settings, folder, judge, environ)))
        return advance(
            folder,
            team_maker(settings, environ, watcher, outside=outside, bench=bench),
            bench,
            watcher=watcher,
            redactor=redactor_for(settings, environ),
            advisor=advisor_of(state.started),
        )


def _own_judge(settings: Settings, watcher: Watcher) -> LocalJudge | OfflineJudge:
    return OfflineJudge() if settings.device == OFFLINE else LocalJudge(settings.device, watcher.judging)


def target_for(settings: Settings) -> Gpu:
    """The GPU that is written for: the one named, the one that will judge, or the default.

    A present GPU that the table does not know is described by what its driver says.
    """
    if settings.target is not None:
        return find(settings.target) or _described(settings.target) or resolve(settings.target)
    present = () if settings.device in (OFFLINE, "cpu") else present_gpus()
    if not present:
        return resolve(DEFAULT_TARGET)
    index = int(settings.device.partition(":")[2] or 0)
    if index >= len(present):
        raise MachineError(
            f"no GPU {index} here: {len(present)} visible", "use another --device, or run `egg doctor`"
        )
    found = present[index].best_row
    if found is None:
        raise UsageError(
            f"the GPU {present[index].name!r} is not in the table, nor is its architecture",
            "name the nearest one with --target",
        )
    return found


def _described(name: str) -> Gpu | None:
    """A present GPU of that name, as its driver describes it."""
    return next((found.best_row for found in present_gpus() if found.name == name), None)


def redactor_for(settings: Settings, environ: Mapping[str, str]) -> Redactor:
    return Redactor(
        tuple(dict.fromkeys(s for choice in settings.all_models for s in secrets(choice, environ)))
    )


def run_name(task: Task) -> str:
    """Unique enough to tell jobs of many runs apart in one batch."""
    moment = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return f"{task.name}-{moment}-{randomness.token_hex(2)}"


def software() -> str:
    """The versions of PyTorch and Triton here, without importing them."""
    found = {name: version(name) for name in ("torch", "triton") if find_spec(name) is not None}
    return ", ".join(f"{name} {number}" for name, number in found.items())


def environment() -> Mapping[str, str]:
    return os.environ

"""From what a user asks for to a run that is under way."""

from __future__ import annotations

import os
import secrets as randomness
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from egg.api.runs import Progress, advance, start
from egg.api.teams import check_model, team_maker
from egg.api.watching import Watcher
from egg.core.errors import UsageError
from egg.core.facts import Facts
from egg.core.policy import Precision
from egg.core.settings import Settings
from egg.core.source import Task
from egg.engine.judges import LocalJudge, OfflineJudge
from egg.engine.redaction import Redactor
from egg.engine.state import RunState
from egg.hardware.detect import present_gpus
from egg.hardware.gpus import Gpu, find, resolve
from egg.llm.connect import secrets

DEFAULT_TARGET = "H200"
OFFLINE = "offline"


def begin(
    task: Task, settings: Settings, folder: Path, environ: Mapping[str, str], name: str | None = None
) -> Settings:
    """Check the settings, gather the facts and write the first event; returns the settings as recorded."""
    if settings.team == "llm" and settings.model is None:
        raise UsageError(
            "the llm team needs a model", "give --model NAME (and --base-url for a server of your own)"
        )
    if settings.device == "auto" and not present_gpus():
        settings = replace(settings, device="cpu")
    gpu = target_for(settings)
    model = settings.model and check_model(settings.model, settings.caps, environ)
    settled = replace(settings, target=gpu.name, model=model)
    if settings.device != OFFLINE:
        check_loads(task)
    facts = facts_of(task, gpu, settings.precision)
    start(folder, task, settled, facts, name=name or run_name(task), redactor=redactor_for(settled, environ))
    return settled


def carry_on(folder: Path, state: RunState, watcher: Watcher, environ: Mapping[str, str]) -> Progress:
    """Go on with a run under its own settings, judging on this machine unless it is judged offline."""
    settings = state.started.settings
    judge = OfflineJudge() if settings.device == OFFLINE else LocalJudge(settings.device, watcher.judging)
    try:
        return advance(
            folder,
            team_maker(settings, environ, watcher),
            judge,
            watcher=watcher,
            redactor=redactor_for(settings, environ),
        )
    finally:
        judge.close()


def target_for(settings: Settings) -> Gpu:
    """The GPU that is written for: the one named, the one present, or the default."""
    if settings.target is not None:
        return resolve(settings.target)
    present = [] if settings.device in (OFFLINE, "cpu") else present_gpus()
    if not present:
        return resolve(DEFAULT_TARGET)
    found = find(present[0].name)
    if found is None:
        raise UsageError(
            f"the GPU {present[0].name!r} is not in the table", "name the nearest one with --target"
        )
    return found


def check_loads(task: Task) -> None:
    """A task that cannot be loaded is its author's error now, and not after somebody was paid."""
    from egg.evaluator.task.program import Program

    with Program.load(task):
        pass


def facts_of(task: Task, gpu: Gpu, precision: Precision) -> Facts:
    from egg.evaluator.task.facts import gpu_facts, program_facts

    program = program_facts(task)
    return Facts(gpu_facts(gpu, precision, program), program)


def redactor_for(settings: Settings, environ: Mapping[str, str]) -> Redactor:
    return Redactor(secrets(settings.model, environ) if settings.model is not None else ())


def run_name(task: Task) -> str:
    """Unique enough to tell jobs of many runs apart in one batch."""
    moment = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return f"{task.name}-{moment}-{randomness.token_hex(2)}"


def environment() -> Mapping[str, str]:
    return os.environ

"""The tools of ``egg mcp``: the verbs of the command line as functions of plain values.

An agent that has these plays the model of a run: EGG asks (``next_question``), the agent answers (``reply``),
the judge decides. Besides it can judge and profile a kernel on its own, and read the experts' skills. Every
function returns JSON values; mistakes are :class:`~egg.core.errors.EggError`, and the agent reads them with
their hint.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from egg.cli import judging, run_options
from egg.cli.inputs import check_device, check_target, read_task
from egg.core.errors import UsageError
from egg.core.policy import Level, LibraryCalls, Policy, Precision
from egg.core.settings import Settings
from egg.core.source import Candidate

if TYPE_CHECKING:
    from egg.api.runs import Progress

Task = Annotated[str, Field(description="A task file, or FILE.jsonl:LEVEL/ID.")]
Run = Annotated[str, Field(description="The run's folder, as start_run returned it.")]
Kernel = Annotated[str, Field(description="The text of a kernel file that defines ModelNew.")]
Gpu = Annotated[
    str | None, Field(description="The GPU to write for: H200, sm_90; this machine's by default.")
]
Device = Annotated[str, Field(description="Where kernels are judged: auto, cpu, cuda:N.")]

INSTRUCTIONS = """EGG turns PyTorch programs into verified Triton kernels. You can play the model of a run:
start_run, then answer each question with reply until `waiting` is null. The question has the program, the
base with its measurements, what was tried, and the form of the answer. compile, code, judge, profile and
skills work on any kernel beside a run: use them before you answer. Report only speedups that the judge
measured."""


def start_run(
    task: Task,
    folder: Annotated[str | None, Field(description="A new folder for the run.")] = None,
    start: Annotated[
        str,
        Field(description="nothing, expert (the built-in team writes the first kernel), or a kernel file."),
    ] = "expert",
    budget: Literal["sketch", "quick", "standard", "deep"] = "standard",
    precision: Precision = Precision.MATCH,
    library_calls: LibraryCalls = LibraryCalls.ALLOW,
    device: Annotated[str, Field(description="auto, cpu, cuda:N, or offline: judged elsewhere.")] = "auto",
    target: Gpu = None,
    max_steps: int | None = None,
    without: Annotated[str | None, Field(description="Parts to leave out, for an experiment.")] = None,
) -> dict[str, Any]:
    """Begin a run in which you answer every question, and go on to the first one."""
    from egg.cli.runs import begin_run

    begins = Path(start) if start != "nothing" else None
    team, first_team, first = run_options.start_of("step", begins)
    settings = Settings(
        team=team,
        budget=run_options.budget(budget, None),
        precision=precision,
        library_calls=library_calls,
        device=run_options.check_place(device),
        target=check_target(target),
        caps=run_options.caps(None, None, max_steps, None),
        first=first_team,
        without=run_options.without(team, without, 1),
        skills=run_options.skill_folders([], False, os.environ),
        lessons=run_options.lesson_store(None, False, os.environ),
    )
    place = begin_run(read_task(task), settings, Path(folder) if folder is not None else None, first)
    return resume_run(str(place))


def resume_run(run: Run) -> dict[str, Any]:
    """Go on with a run that was stopped, to the next question or to its end."""
    from egg.api import runs as api
    from egg.api.clients import OutsideClient
    from egg.api.optimizing import carry_on, environment
    from egg.api.teams import ANSWERED_OUTSIDE
    from egg.api.watching import Watcher

    folder = _run_folder(run)
    state = api.state_of(folder)
    if state.closed is not None:
        return _standing(folder, api.Progress(state, None))
    if state.started.settings.team not in ANSWERED_OUTSIDE:
        raise UsageError("this run has a team of its own", "start_run begins one in which you answer")
    return _standing(folder, carry_on(folder, state, Watcher(), environment(), outside=OutsideClient()))


def next_question(run: Run) -> dict[str, Any]:
    """Where a run stands: the open question and the form of its answer, or what it waits for."""
    from egg.api.runs import look

    folder = _run_folder(run)
    return _standing(folder, look(folder))


def reply(
    run: Run,
    text: Annotated[str, Field(description="The answer in the form that the question asks for.")],
) -> dict[str, Any]:
    """Answer the open question of a run; kernels are judged, and the next question comes back."""
    from egg.api import offline
    from egg.api.optimizing import environment
    from egg.api.watching import Watcher

    folder = _run_folder(run)
    if not text.strip():
        raise UsageError("the reply is empty", "answer the question that next_question returns")
    return _standing(folder, offline.reply(folder, text, Watcher(), environment()))


def compile_kernel(
    task: Task,
    kernel: Kernel,
    precision: Precision = Precision.MATCH,
    target: Gpu = None,
) -> dict[str, Any]:
    """Compile a kernel for a GPU without running it: errors, or registers, spills, instructions.

    Seconds, and no GPU is needed. Use it before judge.
    """
    from egg.api.optimizing import DEFAULT_TARGET
    from egg.api.tool_words import compiled
    from egg.engine.effects import BEHIND_COMPILING

    gpu = check_target(target) or DEFAULT_TARGET
    evaluation = judging.evaluate(
        read_task(task),
        Candidate(kernel, "given"),
        Policy(precision=precision),
        device="cpu",
        target=gpu,
        skip=BEHIND_COMPILING,
    )
    return {"compiles": evaluation.accepted, "target": gpu, "summary": compiled(evaluation, gpu)}


def code(
    task: Task,
    kernel: Kernel,
    name: Annotated[
        str, Field(description="The kernel's function; NAME:2 for its second specialisation.")
    ] = "",
    precision: Precision = Precision.MATCH,
    device: Device = "auto",
    target: Gpu = None,
    most: Annotated[int, Field(description="Characters of the answer.")] = 24_000,
) -> dict[str, Any]:
    """The compiled code of one kernel: instructions by kind, the hottest loop in machine code and PTX.

    No GPU is needed. Every instruction has the line of the file that it comes from.
    """
    from egg.api.listing import listing_of
    from egg.evaluator.offline.digest import digest

    options = _seeing(device, target, precision, counters=False)
    listing, gpu = listing_of(read_task(task), Candidate(kernel, "given"), name, options)
    return {"kernel": listing.kernel, "target": gpu, "code": digest(listing, gpu, most)}


def judge(
    task: Task,
    kernel: Kernel,
    level: Level = Level.QUICK,
    precision: Precision = Precision.MATCH,
    library_calls: LibraryCalls = LibraryCalls.ALLOW,
    device: Device = "auto",
    target: Gpu = None,
) -> dict[str, Any]:
    """Judge a kernel beside any run: right on hidden inputs, and how fast where a GPU measures it."""
    policy = Policy(precision=precision, library_calls=library_calls, level=level)
    evaluation = judging.evaluate(
        read_task(task),
        Candidate(kernel, "given"),
        policy,
        device=check_device(device),
        target=check_target(target),
    )
    return evaluation.to_json()


def profile(
    task: Task,
    kernel: Annotated[str | None, Field(description="A kernel file's text; the facts alone without.")] = None,
    precision: Precision = Precision.MATCH,
    device: Device = "auto",
    target: Gpu = None,
    counters: bool = True,
) -> dict[str, Any]:
    """What a program has to do at least; with a kernel: where its time goes and what limits it."""
    from egg.api.profiling import report_on

    candidate = Candidate(kernel, "given") if kernel is not None else None
    return report_on(read_task(task), candidate, _seeing(device, target, precision, counters)).to_json()


def skills(
    task: Task,
    kernel: Annotated[
        str | None, Field(description="A kernel file's text, to change; the seed's without.")
    ] = None,
    failure: Annotated[str, Field(description="A refusal to repair: verdict.refusal.reason.")] = "",
    stage: Literal["", "seed", "structure", "mapping", "tiling", "memory"] = "",
    precision: Precision = Precision.MATCH,
    device: Device = "auto",
    target: Gpu = None,
) -> dict[str, Any]:
    """Which expert techniques fit a program and kernel, best first, with the number that decided."""
    from egg.api.skills import folders_for, why
    from egg.knowledge.catalogue import load
    from egg.knowledge.skill import SkillStage
    from egg.knowledge.why import STAGES

    candidate = Candidate(kernel, "given") if kernel is not None else None
    options = _seeing(device, target, precision, counters=False)
    asked = (SkillStage(stage),) if stage else STAGES
    report = why(
        read_task(task), candidate, load(folders_for([], os.environ)), options, stages=asked, failure=failure
    )
    offered = [
        {
            "stage": answer.stage.value,
            "skills": [
                {"name": found.skill.name, "description": found.skill.description, "reason": found.reason}
                for found in answer.offered
            ],
        }
        for answer in report.answers
    ]
    return {"offered": offered, "unknown": report.unknown or None}


def skill(name: Annotated[str, Field(description="As `skills` names it.")]) -> dict[str, Any]:
    """One technique in full: when, how, what it brings, its risks, and patterns that run."""
    from egg.api.skills import folders_for
    from egg.knowledge.assets import pattern_of
    from egg.knowledge.catalogue import load

    found = load(folders_for([], os.environ))[name]
    return {
        "name": found.name,
        "description": found.description,
        "text": found.body,
        "patterns": [pattern_of(asset) for asset in found.assets],
    }


def kernels(
    task: Task,
    runs: Annotated[str, Field(description="A folder with runs.")] = str(run_options.RUNS),
    precision: Precision = Precision.MATCH,
    target: Gpu = None,
    most: int = 3,
) -> dict[str, Any]:
    """Accepted kernels of earlier runs for programs like this one, with their text and speed."""
    from egg.api.alike import kernels_alike
    from egg.api.apart import facts_of
    from egg.api.optimizing import DEFAULT_TARGET
    from egg.hardware.gpus import resolve

    if not Path(runs).is_dir():
        raise UsageError(f"no such folder: {runs}", "give the folder that holds the runs")
    facts = facts_of(read_task(task), resolve(target or DEFAULT_TARGET), precision)
    return {"kernels": [found.to_json() for found in kernels_alike(facts, Path(runs), most)]}


TOOLS = {
    "start_run": start_run,
    "resume_run": resume_run,
    "next_question": next_question,
    "reply": reply,
    "compile": compile_kernel,
    "code": code,
    "judge": judge,
    "profile": profile,
    "skills": skills,
    "skill": skill,
    "kernels": kernels,
}


def _run_folder(run: str) -> Path:
    folder = Path(run)
    if not folder.is_dir():
        raise UsageError(f"no such run: {run}", "start_run returns the folder of a new one")
    return folder


def _seeing(device: str, target: str | None, precision: Precision, counters: bool) -> Any:
    from egg.api.profiling import ProfileOptions
    from egg.hardware.calibration import default_folder

    where = default_folder(os.environ)
    return ProfileOptions(check_device(device), check_target(target), precision, counters, None, where)


def _standing(folder: Path, progress: Progress) -> dict[str, Any]:
    """Where a run stands after a verb, with the open question and, at its end, the kernel."""
    from egg.api.offline import open_question, waiting_words, waits_for, ways_on
    from egg.api.result import kernel_source, summary

    question = open_question(progress)
    state = progress.state
    standing: dict[str, Any] = {
        "run": str(folder),
        "waiting": "reply" if question is not None else waits_for(progress),
        "summary": waiting_words(progress),
        "result": _brief(summary(state)),
    }
    if question is not None:
        messages = [{"speaker": m.speaker.value, "text": m.text} for m in question.messages]
        standing["question"] = {"purpose": question.purpose, "messages": messages, "schema": question.schema}
    elif progress.waiting is not None:
        standing["ways_on"] = list(ways_on(progress, folder))
    if state.closed is not None:
        standing["kernel"] = kernel_source(state)
    return standing


def _brief(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result without its long parts: those are in the run's folder."""
    return {name: value for name, value in result.items() if not isinstance(value, list | dict)}

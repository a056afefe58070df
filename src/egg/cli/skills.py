"""The commands of expert knowledge: what is known, whether it is sound, and why a skill is offered or not."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from egg.cli.errors import error_boundary
from egg.cli.inputs import check_device, check_target, read_task
from egg.cli.lazy import command_group
from egg.cli.options import (
    DebugOption,
    DeviceOption,
    JsonOption,
    LessonsOption,
    LibraryCallsOption,
    NoLessonsOption,
    PrecisionOption,
    SkillsOption,
    TaskArgument,
)
from egg.cli.progress import busy
from egg.cli.render import clean, console
from egg.cli.run_options import lesson_store
from egg.cli.tables import pairs, table
from egg.cli.words import one_line, plural
from egg.core.errors import UsageError
from egg.core.policy import LibraryCalls, Precision
from egg.core.source import Candidate

if TYPE_CHECKING:
    from egg.api.skills import WhyReport
    from egg.knowledge.select import Selected
    from egg.knowledge.skill import Catalogue, SkillFile, SkillStage
    from egg.knowledge.why import Answer

PANEL = "Look at what is known"

StageOption = Annotated[
    str | None, typer.Option("--stage", metavar="STAGE", help="Of one stage only; debugging is one, too.")
]
skills = command_group("skills", "What experts know: list it, read it, check it, ask why it is offered.")


def register(app: typer.Typer) -> None:
    app.add_typer(skills, rich_help_panel=PANEL)


@skills.command("list")
def list_skills(
    folders: SkillsOption = None,
    stage: StageOption = None,
    target: Annotated[
        str | None, typer.Option(metavar="GPU", help="Only those for this GPU, by name or as sm_90.")
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Every skill, with its stage, what it promises, and one sentence."""
    with error_boundary(debug=debug, as_json=as_json):
        from egg.hardware.gpus import resolve

        known, wanted = _catalogue(folders), _stage(stage)
        gpu = resolve(target) if target is not None else None
        found = [
            skill
            for skill in known
            if (wanted is None or skill.serves(wanted)) and (gpu is None or skill.fits(gpu))
        ]
        if as_json:
            print(json.dumps({"skills": [_row(skill) for skill in found]}, indent=2))
            return
        shown = table("skill", "stage", "gain", "what it is for")
        for skill in found:
            mark = "" if skill.origin == "built-in" else " *"
            shown.add_row(f"{skill.name}{mark}", _stages(skill), _gain(skill), clean(skill.description))
        console().print(shown)
        print(_counted(found, known))


@skills.command("show")
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A skill's name.")],
    folders: SkillsOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """One skill in full: when it applies, how it is done, what it brings, what can go wrong."""
    with error_boundary(debug=debug, as_json=as_json):
        skill = _named(_catalogue(folders), name)
        if as_json:
            print(json.dumps({**_row(skill), "body": skill.body}, indent=2))
            return
        console().print(pairs(_facts(skill)), "")
        print(clean(skill.body))


@skills.command("check")
def check(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="FOLDER", help="A folder of skills, or of one; all known where left out."),
    ] = None,
    run: Annotated[
        bool,
        typer.Option("--run", help="Run the patterns beside them, too, and compile them for their GPUs."),
    ] = False,
    folders: SkillsOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Are skills sound? Exit 0 when nothing is wrong with them, 1 with every fault by file and line."""
    with error_boundary(debug=debug, as_json=as_json):
        from egg.api.skills import folders_for
        from egg.knowledge.catalogue import built_in_folder
        from egg.knowledge.check import check as problems_in
        from egg.knowledge.check import skill_folders

        if folder is not None and not folder.is_dir():
            raise UsageError(f"no such folder: {folder}", "give a folder that holds skills, or one skill's")
        known = [built_in_folder(), *folders_for(folders or [], os.environ)]
        places = known if folder is None else [folder, *(folders or [])]
        problems = problems_in(places)
        count = sum(len(skill_folders(place)[0]) for place in places)
        counted, ran = plural(count, "skill"), None
        if run:
            from egg.api.patterns import patterns_in, run_patterns

            found = patterns_in(places)
            with busy(f"running {plural(len(found), 'pattern')}"):
                problems += run_patterns(found)
            counted, ran = f"{counted}, {plural(len(found), 'pattern')} run", len(found)
        if as_json:
            faults = [{"file": str(p.file), "line": p.line, "message": p.message} for p in problems]
            print(json.dumps({"skills": count, "patterns": ran, "problems": faults}, indent=2))
        else:
            print("".join(f"{clean(str(problem))}\n" for problem in problems), end="")
            wrong = plural(len(problems), "fault") if problems else "nothing is wrong"
            print(f"{counted}: {wrong}")
        raise typer.Exit(1 if problems else 0)


@skills.command("why")
def why(
    task: TaskArgument,
    kernel: Annotated[
        Path | None,
        typer.Argument(metavar="KERNEL", help="The kernel file that is built on; none yet without."),
    ] = None,
    folders: SkillsOption = None,
    stage: StageOption = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="GPU", help="The GPU to write for, by name or as sm_90; H200 without one."),
    ] = None,
    failure: Annotated[
        str,
        typer.Option(metavar="REASON", help="The refusal to fix, as egg eval names it: correctness.error."),
    ] = "",
    precision: PrecisionOption = Precision.MATCH,
    library_calls: LibraryCallsOption = LibraryCalls.ALLOW,
    lessons: LessonsOption = None,
    no_lessons: NoLessonsOption = False,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """For every skill: is it offered for this task (and kernel), and which number decided?"""
    with error_boundary(debug=debug, as_json=as_json):
        from egg.api.profiling import ProfileOptions
        from egg.api.skills import why as ask
        from egg.knowledge.skill import SkillStage
        from egg.knowledge.why import STAGES

        program = read_task(task)
        candidate = Candidate.from_file(kernel) if kernel is not None else None
        known, wanted = _catalogue(folders), _stage(stage)
        _check_failure(failure)
        stages = STAGES if wanted is None else (wanted,)
        if wanted is None and candidate is not None:
            stages = tuple(one for one in STAGES if one is not SkillStage.SEED)
        store = lesson_store(lessons, no_lessons, os.environ)
        terms = ProfileOptions(check_device(device), check_target(target), precision, counters=False)
        with busy(f"looking at {clean(program.name)}"):
            report = ask(
                program,
                candidate,
                known,
                terms,
                library_calls=library_calls,
                stages=stages,
                failure=failure,
                store=Path(store) if store is not None else None,
            )
        if as_json:
            print(json.dumps(report.to_json(), indent=2))
        else:
            console().print(why_view(report))


# -- reading ---------------------------------------------------------------------------------------


def _catalogue(folders: list[Path] | None) -> Catalogue:
    from egg.api.skills import folders_for
    from egg.knowledge.catalogue import load

    return load(folders_for(folders or [], os.environ))


def _stage(name: str | None) -> SkillStage | None:
    from egg.knowledge.skill import SkillStage

    known = [stage.value for stage in SkillStage]
    if name is not None and name not in known:
        raise UsageError(f"unknown stage: {name!r}", f"one of {', '.join(known)}")
    return SkillStage(name) if name is not None else None


def _check_failure(reason: str) -> None:
    from egg.knowledge.skill import SIGNATURES

    if reason and reason.partition(".")[0] not in SIGNATURES:
        raise UsageError(f"no refusal is called {reason!r}", f"it begins with one of {', '.join(SIGNATURES)}")


def _named(known: Catalogue, name: str) -> SkillFile:
    import difflib

    if name not in known:
        near = difflib.get_close_matches(name, [skill.name for skill in known], n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "`egg skills list` shows them all"
        raise UsageError(f"no skill is called {name!r}", hint)
    return known[name]


# -- in words --------------------------------------------------------------------------------------


def _row(skill: SkillFile) -> dict[str, Any]:
    return {
        "name": skill.name,
        "description": skill.description,
        "stages": [stage.value for stage in skill.stages],
        "categories": [category.value for category in skill.categories],
        "families": [family.value for family in skill.families],
        "hardware": [hardware.text for hardware in skill.hardware],
        "gate": skill.gate.text,
        "veto": skill.veto.text if skill.veto is not None else None,
        "gain": [skill.gain.low, skill.gain.high],
        "signatures": list(skill.signatures),
        "assets": [str(asset) for asset in skill.assets],
        "origin": skill.origin,
        "path": str(skill.path),
        "overrides": [str(path) for path in skill.overrides],
    }


def _facts(skill: SkillFile) -> Iterable[tuple[str, RenderableType]]:
    rows = (
        ("skill", skill.name),
        ("for", skill.description),
        ("stage", ", ".join(skill.stages)),
        ("kind", ", ".join(skill.categories)),
        ("operators", ", ".join(skill.families) or "any"),
        ("hardware", ", ".join(hardware.text for hardware in skill.hardware) or "any"),
        ("fixes", ", ".join(skill.signatures)),
        ("gate", skill.gate.text),
        ("veto", skill.veto.text if skill.veto is not None else ""),
        ("promises", _gain(skill)),
        ("patterns", "\n".join(str(asset) for asset in skill.assets)),
        ("from", str(skill.path)),
        ("instead of", "\n".join(str(path) for path in skill.overrides)),
    )
    return [(name, clean(value)) for name, value in rows if value]


def _stages(skill: SkillFile) -> str:
    return ", ".join(stage.value for stage in skill.stages)


def _gain(skill: SkillFile) -> str:
    return f"{skill.gain}x" if skill.gain.high > 1 else ""


def _counted(found: list[SkillFile], known: Catalogue) -> str:
    own = sum(skill.origin != "built-in" for skill in found)
    more = f", {own} (*) of folders of your own" if own else ""
    return f"{plural(len(found), 'skill')} of {len(known)}{more}"


def why_view(report: WhyReport) -> RenderableType:
    """One table a stage, what is offered first."""
    built_on = f" with {clean(report.candidate)}" if report.candidate else ", no kernel yet"
    about = clean(report.task) + built_on
    parts: list[RenderableType] = [Text(f"{about}, for {clean(report.gpu.name)}", style="bold")]
    if report.unknown:
        parts.append(Text(f"nothing is known of the program: {one_line(report.unknown)}", style="yellow"))
    if report.failure is not None:
        reason = (
            f"the kernel cannot be looked at: {one_line(report.failure.evidence or report.failure.reason)}"
        )
        parts.append(Text(reason, style="yellow"))
    for answer in report.answers:
        parts += ["", Text(_heading(answer), style="bold"), _answer_view(answer)]
    return Group(*parts)


def _heading(answer: Answer) -> str:
    room = sum(one.tokens for one in answer.offered)
    offered = f"{len(answer.offered)} of {plural(len(answer.verdicts), 'skill')} offered"
    return f"{answer.stage.value}: {offered}" + (f", {room:,} tokens" if room else "")


def _answer_view(answer: Answer) -> RenderableType:
    shown = table("", "skill", "because", "rank")
    for place, one in enumerate(answer.verdicts, 1):
        shown.add_row(*_cells(one, place))
    return shown


def _cells(one: Selected, place: int) -> tuple[RenderableType, ...]:
    from egg.knowledge.why import AGAINST, numbers

    style = "" if one.offered else "dim"
    reason = one.reason if one.offered else f"{AGAINST[one.cause]}: {one.reason}"
    if one.remembered:
        reason += f"\n{one.remembered}"
    number = str(place) if one.offered else "-"
    cells = (number, one.skill.name, clean(reason), numbers(one))
    return tuple(Text(cell, style=style, overflow="fold") for cell in cells)

"""All skills that are known: those of the package, then those of the users' folders.

A user's skill takes the place of an earlier one of the same name, and remembers whose place it took:
so a team can correct what ships, and ``egg skills show`` still says that something was corrected. One
skill that cannot be read stops the load, with every fault named: advice that is silently missing would
pass unnoticed.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType

from egg.knowledge.check import examine, skill_folders
from egg.knowledge.frontmatter import Problem
from egg.knowledge.skill import BUILT_IN, Catalogue, SkillError, SkillFile

__all__ = ["Catalogue", "built_in_folder", "load"]

FAULTS_SHOWN = 8


def built_in_folder() -> Path:
    """Where the package keeps its own skills."""
    return Path(str(importlib.resources.files("egg.knowledge").joinpath("skills")))


def load(folders: Sequence[Path] = (), *, built_in: bool = True) -> Catalogue:
    """The package's skills and those in ``folders``; later ones override earlier ones by name.

    Raises :class:`SkillError` naming every file and line at fault.
    """
    own = [built_in_folder()] if built_in else []
    distinct = list(dict.fromkeys(path.expanduser().resolve() for path in (*own, *folders)))
    skills: dict[str, SkillFile] = {}
    problems: list[Problem] = []
    for number, folder in enumerate(distinct):
        origin = BUILT_IN if built_in and number == 0 else str(folder)
        inside, faults = skill_folders(folder)
        problems += faults
        for path in inside:
            examined = examine(path, origin)
            problems += examined.problems
            if examined.skill is not None:
                _add(skills, examined.skill)
    if problems:
        raise _refused(sorted(set(problems)))
    return Catalogue(MappingProxyType(skills), tuple(distinct))


def _add(skills: dict[str, SkillFile], skill: SkillFile) -> None:
    earlier = skills.get(skill.name)
    if earlier is not None:
        skill = dataclasses.replace(skill, overrides=(*earlier.overrides, earlier.path))
    skills[skill.name] = skill


def _refused(problems: Sequence[Problem]) -> SkillError:
    lines = [str(problem) for problem in problems[:FAULTS_SHOWN]]
    if len(problems) > FAULTS_SHOWN:
        lines.append(f"and {len(problems) - FAULTS_SHOWN} more")
    noun = "fault" if len(problems) == 1 else "faults"
    return SkillError(
        "\n".join((f"{len(problems)} {noun} in skills:", *lines)), "`egg skills check` shows all"
    )

"""Is a skill sound? Everything that can be checked without running it, each fault with file and line.

:func:`examine` makes the skill and finds the faults in one pass, so that what is loaded and what is
checked can never disagree: a skill without faults exists, one with faults does not.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from egg.core.facts import Family
from egg.core.stage import Category
from egg.knowledge.assets import asset_problems
from egg.knowledge.condition import Condition, ConditionError, parse
from egg.knowledge.frontmatter import Document, Entry, Problem, entries, read
from egg.knowledge.skill import (
    CATEGORIES,
    SECTIONS,
    SIGNATURES,
    SKILL_FILE,
    Catalogue,
    Gain,
    Hardware,
    SkillFile,
    SkillStage,
)

__all__ = ["Examined", "Problem", "check", "examine", "skill_folders"]

DESCRIPTION = 200
NAME = 64
KEYS = ("name", "description", "license", "compatibility", "allowed-tools")
"""Of the Agent Skills form, besides ``metadata``; the last three are not read."""
METADATA = (
    "stage",
    "categories",
    "families",
    "hardware",
    "gate",
    "veto",
    "gain",
    "signature",
    "author",
    "version",
)
DEBUGGING_ONLY = (SkillStage.DEBUGGING,)

_Word = TypeVar("_Word", bound=StrEnum)


@dataclass(frozen=True)
class Examined:
    """A skill's folder after a look at it; ``skill`` is there exactly where there are no problems."""

    skill: SkillFile | None
    problems: tuple[Problem, ...]


def check(target: Catalogue | Path | Sequence[Path]) -> tuple[Problem, ...]:
    """Everything wrong with a catalogue, a folder of skills, several of them, or one skill's folder."""
    match target:
        case Catalogue():
            folders: Sequence[Path] = target.folders
        case Path():
            folders = (target,)
        case _:
            folders = target
    problems: list[Problem] = []
    for folder in folders:
        inside, faults = skill_folders(folder)
        problems += faults
        for own in inside:
            problems += examine(own, str(folder)).problems
    return tuple(sorted(set(problems)))


def skill_folders(folder: Path) -> tuple[tuple[Path, ...], tuple[Problem, ...]]:
    """The folders of skills in a folder, by name; one that has a ``SKILL.md`` itself is one skill."""
    if (folder / SKILL_FILE).is_file():
        return (folder,), ()
    try:
        inside = sorted(p for p in folder.iterdir() if p.is_dir() and p.name[0] not in "._")
    except OSError as error:
        return (), (Problem(folder, 1, f"no folder of skills: {error.strerror or error}"),)
    good = tuple(own for own in inside if (own / SKILL_FILE).is_file())
    bare = (own for own in inside if own not in good)
    return good, tuple(Problem(own, 1, f"a folder without a {SKILL_FILE}") for own in bare)


def examine(folder: Path, origin: str) -> Examined:
    """Read one skill's folder."""
    document = read(folder / SKILL_FILE)
    if document.problems and not document.keys:
        return Examined(None, tuple(document.problems))  # nothing was read: what is missing says nothing
    reader = _Reader(document)
    assets = tuple(sorted((folder / "assets").glob("*.py")))
    for asset in assets:
        document.problems += asset_problems(asset)
    name, description = reader.name(folder.resolve().name), reader.description()
    stages = reader.words("stage", SkillStage, needed=True)
    categories = reader.categories(stages)
    families = reader.words("families", Family, unless="any")
    hardware = reader.hardware()
    gate, veto = reader.condition("gate", needed=True), reader.condition("veto")
    gain = reader.gain(stages)
    signatures = reader.signatures(stages)
    texts = reader.sections()
    reader.unknown_keys()
    if document.problems or gate is None or gain is None:
        return Examined(None, tuple(sorted(document.problems)))
    skill = SkillFile(
        name=name,
        description=description,
        stages=stages,
        categories=categories,
        families=families,
        hardware=hardware,
        gate=gate,
        veto=veto,
        gain=gain,
        when=texts[0],
        how=texts[1],
        expected=texts[2],
        risks=texts[3],
        path=document.path,
        origin=origin,
        signatures=signatures,
        assets=assets,
    )
    return Examined(skill, ())


class _Reader:
    """Turns the entries of one document into values, and says what is wrong with them."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._fault = document.fault

    def unknown_keys(self) -> None:
        for known, block, where in (
            (KEYS, self._document.keys, ""),
            (METADATA, self._document.metadata, " in metadata"),
        ):
            for key, entry in block.items():
                if key in known:
                    continue
                if key in METADATA and not where:
                    self._fault(entry.line, f"{key} belongs below metadata, indented")
                else:
                    self._fault(entry.line, f"unknown key {key}{where}{_near(key, known)}")

    def name(self, folder: str) -> str:
        entry = self._needed(self._document.keys, "name")
        if entry is None or not entry.text:
            return ""
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", entry.text) or len(entry.text) > NAME:
            self._fault(entry.line, f"name: lower-case words joined by hyphens, {NAME} characters at most")
        if entry.text != folder:
            self._fault(
                entry.line, f"name is {entry.text}, but its folder is {folder}: they must be the same"
            )
        return entry.text

    def description(self) -> str:
        entry = self._needed(self._document.keys, "description")
        if entry and len(entry.text) > DESCRIPTION:
            self._fault(
                entry.line, f"description has {len(entry.text)} characters, {DESCRIPTION} are allowed"
            )
        return entry.text if entry else ""

    def words(
        self, key: str, kind: type[_Word], *, needed: bool = False, unless: str = ""
    ) -> tuple[_Word, ...]:
        """A comma list of words of one kind; ``unless`` stands for all of them, and has to stand alone."""
        if needed:
            self._needed(self._document.metadata, key)
        known = [word.value for word in kind]
        found = []
        for part in self._parts(key, unless):
            if part.text in known:
                found.append(kind(part.text))
            else:
                self._fault(part.line, f"{key}: unknown {part.text!r}{_near(part.text, known)}")
        return tuple(found)

    def categories(self, stages: Sequence[SkillStage]) -> tuple[Category, ...]:
        found = self.words("categories", Category)
        entry = self._document.metadata.get("categories")
        if tuple(stages) == DEBUGGING_ONLY:
            if entry:
                self._fault(entry.line, "categories: a debugging skill has none, it has a signature")
            return ()
        line = entry.line if entry else self._document.closed
        for category in found:
            if stages and not any(category in CATEGORIES[stage] for stage in stages):
                self._fault(line, f"categories: {category} is none of {', '.join(stages)}")
        for stage in stages:
            if stage in (SkillStage.SEED, SkillStage.DEBUGGING) or set(CATEGORIES[stage]) & set(found):
                continue
            if not entry or entry.text:
                self._fault(line, f"categories: none for {stage}, which has {', '.join(CATEGORIES[stage])}")
        if entry and len(found) > max(2, len(stages)):
            self._fault(entry.line, "categories: one or two, a skill is one kind of change")
        return found

    def hardware(self) -> tuple[Hardware, ...]:
        found = []
        for part in self._parts("hardware", "any"):
            try:
                found.append(Hardware(part.text))
            except ValueError as why:
                self._fault(part.line, f"hardware: {why}")
        return tuple(found)

    def condition(self, key: str, *, needed: bool = False) -> Condition | None:
        metadata = self._document.metadata
        entry = self._needed(metadata, key) if needed else metadata.get(key)
        if entry is None or not entry.text:
            return None
        try:
            return parse(entry.text)
        except ConditionError as error:
            hint = f" ({error.hint})" if error.hint else ""
            self._fault(entry.line, f"{key}: {error.message}{hint}")
            return None

    def gain(self, stages: Sequence[SkillStage]) -> Gain | None:
        metadata = self._document.metadata
        if tuple(stages) == DEBUGGING_ONLY and "gain" not in metadata:
            return Gain(1.0, 1.0)
        entry = self._needed(metadata, "gain")
        if entry is None or not entry.text:
            return None
        number = r"([0-9]{1,6}(?:\.[0-9]{1,6})?)"
        found = re.fullmatch(rf"{number} ?- ?{number}", entry.text)
        try:
            if found is None:
                raise ValueError(f"a range of factors like 1.2-3, not {entry.text!r}")
            return Gain(float(found[1]), float(found[2]))
        except ValueError as why:
            self._fault(entry.line, f"gain: {why}")
            return None

    def signatures(self, stages: Sequence[SkillStage]) -> tuple[str, ...]:
        metadata = self._document.metadata
        if SkillStage.DEBUGGING not in stages:
            if "signature" in metadata:
                self._fault(metadata["signature"].line, "signature: only a debugging skill has one")
            return ()
        self._needed(metadata, "signature")
        found = []
        for part in self._parts("signature"):
            first = part.text.partition(".")[0]
            if not re.fullmatch(r"[a-z_]+(\.[a-z_]+)?", part.text):
                self._fault(part.line, f"signature: {part.text!r} is no reason like build.compile")
            elif first not in SIGNATURES:
                self._fault(part.line, f"signature: no refusal begins with {first}{_near(first, SIGNATURES)}")
            else:
                found.append(part.text)
        return tuple(found)

    def sections(self) -> list[str]:
        sections = self._document.sections
        for title, entry in sections.items():
            if title not in SECTIONS:
                self._fault(entry.line, f"section {title!r} is none of {', '.join(SECTIONS)}")
            elif not entry.text.strip():
                self._fault(entry.line, f"section {title} is empty")
        for title in SECTIONS:
            if title not in sections:
                self._fault(self._document.closed, f"section {title} is missing (## {title})")
        present = [title for title in sections if title in SECTIONS]
        for title, expected in zip(present, sorted(present, key=SECTIONS.index), strict=True):
            if title != expected:
                self._fault(sections[title].line, f"section {title} stands where {expected} should")
                break
        return [sections[title].text if title in sections else "" for title in SECTIONS]

    def _needed(self, block: dict[str, Entry], key: str) -> Entry | None:
        if key not in block:
            inside = " in metadata" if block is self._document.metadata else ""
            self._fault(self._document.closed, f"{key} is missing{inside}")
        return block.get(key)

    def _parts(self, key: str, unless: str = "") -> list[Entry]:
        """Of a comma list, those that are not empty and not there twice."""
        parts = entries(self._document.metadata, key)
        if unless and any(part.text == unless for part in parts):
            self._is(len(parts) == 1, parts[0], f"{key}: {unless} stands alone")
            return []
        kept: dict[str, Entry] = {}
        for part in parts:
            if self._is(part.text != "", part, f"{key}: a comma too many") and self._is(
                part.text not in kept, part, f"{key}: {part.text} stands there twice"
            ):
                kept[part.text] = part
        return list(kept.values())

    def _is(self, good: bool, part: Entry, message: str) -> bool:
        if not good:
            self._fault(part.line, message)
        return good


def _near(word: str, known: Iterable[str]) -> str:
    known = list(known)
    near = difflib.get_close_matches(word[:NAME], known, 1)
    return f": did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"

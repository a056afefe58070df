"""Moves: the edits of the built-in team as typed values, and the recipe that a sequence of them makes.

A kernel file is a function of a task and a :class:`Recipe`. A plan names its moves in brackets behind the
sentence for people, so a run's log holds all that is needed to come to the same file again: the recipe of the
base is the recipe of the seed, changed by the moves of every step that was kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from egg.expert.parts import Setting

FILE = "file"
"""Stands for a group in the settings that hold for all of them."""


@dataclass(frozen=True)
class Without:
    """Leave what a pattern would write to the next one on the list, in the end to PyTorch."""

    pattern: str
    at: str = ""
    """Only the operator that makes this value; empty for all of them."""

    def __str__(self) -> str:
        return f"without {self.pattern}{_at(self.at)}"


@dataclass(frozen=True)
class Alone:
    """A pattern's groups take nothing along."""

    pattern: str
    at: str = ""
    """Only the group around the operator that makes this value; empty for all of them."""

    def __str__(self) -> str:
        return f"alone {self.pattern}{_at(self.at)}"


@dataclass(frozen=True)
class Grade:
    """How exact a pattern's products are."""

    pattern: str
    grade: str

    def __str__(self) -> str:
        return f"grade {self.pattern} {self.grade}"


@dataclass(frozen=True)
class Set:
    """A constant or an option of one group."""

    group: str
    name: str
    value: Setting

    def __str__(self) -> str:
        return f"set {self.group} {self.name} {self.value}"


@dataclass(frozen=True)
class Open:
    """Have a constant of a group measured at these values; the first is the most promising one."""

    group: str
    name: str
    values: tuple[int, ...]

    def __str__(self) -> str:
        return f"open {self.group} {self.name} {','.join(str(value) for value in self.values)}"


Move = Without | Alone | Grade | Set | Open


def _at(name: str) -> str:
    return f" at {name}" if name else ""


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a kernel file besides the task and the GPU."""

    without: frozenset[str] = frozenset()
    alone: frozenset[str] = frozenset()
    left: frozenset[tuple[str, str]] = frozenset()
    """Pattern and value: the operator that makes the value is not to be written by the pattern."""
    apart: frozenset[tuple[str, str]] = frozenset()
    """Pattern and value: what makes the value takes nothing along."""
    grades: Mapping[str, str] = field(default_factory=dict)
    """By pattern; a pattern that is not here decides by the dtype."""
    settings: Mapping[str, Mapping[str, Setting]] = field(default_factory=dict)
    """By group."""
    open: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    """By group: constants that a sweep may change, and the values it may try."""

    def __hash__(self) -> int:
        patterns = self.without, self.alone, self.left, self.apart, frozenset(self.grades.items())
        tables = (
            frozenset((group, frozenset(own.items())) for group, own in table.items())
            for table in (self.settings, self.open)
        )
        return hash((*patterns, *tables))

    def closed(self) -> Recipe:
        """With nothing left to a sweep."""
        return replace(self, open={})

    def after(self, *moves: Move) -> Recipe:
        recipe = self
        for move in moves:
            recipe = recipe._after(move)
        return recipe

    def _after(self, move: Move) -> Recipe:
        match move:
            case Without(pattern, at):
                if at:
                    return replace(self, left=self.left | {(pattern, at)})
                return replace(self, without=self.without | {pattern})
            case Alone(pattern, at):
                if at:
                    return replace(self, apart=self.apart | {(pattern, at)})
                return replace(self, alone=self.alone | {pattern})
            case Grade(pattern, grade):
                return replace(self, grades={**self.grades, pattern: grade})
            case Set(group, name, value):
                own = {**self.settings.get(group, {}), name: value}
                return replace(self, settings={**self.settings, group: own})
            case Open(group, name, values):
                opened = {**self.open.get(group, {}), name: values}
                return replace(self, open={**self.open, group: opened})


class BadMove(ValueError):
    """A text that names no move."""


_MOVES = re.compile(r"\[([^\]]*)\]\s*$")


def change_text(sentence: str, moves: Iterable[Move]) -> str:
    """A plan's change: a sentence for people, and its moves for the file that is written from it."""
    return f"{sentence} [{'; '.join(str(move) for move in moves)}]"


def moves_in(change: str) -> tuple[Move, ...]:
    """The moves that :func:`change_text` wrote; none in another author's sentence, whatever its brackets."""
    found = _MOVES.search(change)
    try:
        return tuple(parsed(text) for text in found[1].split(";") if text.strip()) if found else ()
    except BadMove:
        return ()


def parsed(text: str) -> Move:
    match text.split():
        case ["without", pattern]:
            return Without(pattern)
        case ["without", pattern, "at", name]:
            return Without(pattern, name)
        case ["alone", pattern]:
            return Alone(pattern)
        case ["alone", pattern, "at", name]:
            return Alone(pattern, name)
        case ["grade", pattern, grade]:
            return Grade(pattern, grade)
        case ["set", group, name, value]:
            return Set(group, name, _setting(value))
        case ["open", group, name, values] if re.fullmatch(r"\d+(,\d+)*", values):
            return Open(group, name, tuple(int(value) for value in values.split(",")))
    raise BadMove(f"no move: {text.strip()!r}")


def _setting(text: str) -> Setting:
    if text in ("True", "False"):
        return text == "True"
    return int(text) if re.fullmatch(r"-?\d+", text) else text

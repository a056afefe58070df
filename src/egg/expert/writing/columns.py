"""The table that a loop of ``forward`` goes over: what differs from pass to pass, each under a name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from egg.expert.emit.names import numbered
from egg.expert.writing.slots import Kind, Slot, path_steps

NEUTRAL = {Kind.PATH: "layer", Kind.NUMBER: "size", Kind.NAME: "given"}
"""What a column is called whose entries do not say it themselves."""


class Columns:
    """Columns by their entries, so that what two slots have in common is listed once."""

    def __init__(self, passes: int, taken: set[str]) -> None:
        self._passes = passes
        self._taken = set(taken)
        self._columns: dict[tuple[str, ...], str] = {}

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._columns.values())

    def spelled(self, slots: Sequence[Slot]) -> str:
        """How the loop spells a slot, given what it is in each pass."""
        texts = tuple(slot.text for slot in slots)
        if len(set(texts)) == 1:
            return texts[0]
        kind = slots[0].kind
        if kind is not Kind.PATH:
            wish = slots[0].keyword.lower() or _common_words(texts) or NEUTRAL[kind]
            return self._named(texts, f"run_{wish.removeprefix('compute_')}" if slots[0].called else wish)
        paths = [path_steps(text) for text in texts]
        shared = 0
        while len({path[-1 - shared] for path in paths}) == 1:
            shared += 1
        heads = tuple("".join(path[: len(path) - shared]) for path in paths)
        tail = "".join(paths[0][len(paths[0]) - shared :])
        last = {path[-1 - shared].strip(".") for path in paths} if not tail else set[str]()
        return self._named(heads, _common_words(tuple(last)) or NEUTRAL[kind]) + tail

    def _named(self, entries: tuple[str, ...], wish: str) -> str:
        if entries not in self._columns:
            self._columns[entries] = self.free(wish)
        return self._columns[entries]

    def free(self, wish: str) -> str:
        name = numbered(wish, self._taken)
        self._taken.add(name)
        return name

    def header(self) -> str:
        """``for layer, size in (...):``; where the one column counts, without a table."""
        if not self._columns:
            return f"for _ in range({self._passes}):"
        names = ", ".join(self.names)
        if len(self._columns) == 1:
            (entries,) = self._columns
            return f"for {names} in {self._counted(entries) or _tuple(entries)}:"
        rows = [f"({', '.join(row)})" for row in zip(*self._columns, strict=True)]
        return f"for {names} in {_tuple(rows)}:"

    def _counted(self, entries: tuple[str, ...]) -> str | None:
        """``range(...)``, or the layers of one container whose numbers are one."""
        if numbers := _range(entries):
            return numbers
        found = [re.fullmatch(r"(self.*)\[(\d+)\]", entry) for entry in entries]
        if not all(found):
            return None
        containers = {match[1] for match in found if match}
        numbers = _range([match[2] for match in found if match])
        if numbers is None or len(containers) > 1:
            return None
        at = self.free("at")
        return f"({containers.pop()}[{at}] for {at} in {numbers})"


def _range(entries: Sequence[str]) -> str | None:
    if not all(re.fullmatch(r"\d+", entry) for entry in entries):
        return None
    numbers = [int(entry) for entry in entries]
    step = numbers[1] - numbers[0]
    if step <= 0 or numbers != list(range(numbers[0], numbers[-1] + 1, step)):
        return None
    stop = numbers[-1] + 1
    if step > 1:
        return f"range({numbers[0]}, {stop}, {step})"
    return f"range({numbers[0]}, {stop})" if numbers[0] else f"range({stop})"


def _tuple(entries: Sequence[str]) -> str:
    return f"({', '.join(entries)})"


def _common_words(names: Sequence[str]) -> str:
    """Words that all names end with, or else begin with, but for a number at their end."""
    split = [re.sub(r"(_?\d+)+$", "", name).lower().split("_") for name in names]
    for way in (-1, 1):
        common: list[str] = []
        for words in zip(*(name[::way] for name in split), strict=False):
            if len(set(words)) > 1:
                break
            common.append(words[0])
        text = "_".join(common[::way])
        if text.isidentifier():
            return text
    return ""

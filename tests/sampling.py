"""Which tests `make test` runs: decided once, in the process that starts the others.

A test file that passed with the same inputs is left out. Of the others, all tests run that cost little, all
tests of a file that itself changed or has never passed, and every test that is new. Dear groups of tests
(:mod:`tests.costs`) run in part, so that the whole run stays within :data:`BUDGET`. Where a helper changed
that a test file imports, or a module that the file or its helpers import, the file is *near* the change: its
groups may cost more, and a member of each runs. Elsewhere a test may have to wait for its turn; so it is
everywhere where a change is near to more files than the budget has room for. Tests that share a dear fixture
run together or not at all: leaving out some of them saves nothing.

A hash of a member's name and of all inputs of the file ranks the members: another change of the code draws
others, and the same tree always the same. `make nightly` runs all members.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.costs import Costs, Group, Shared, family_of, short
from tests.ledger import SYSTEM, Files, is_sorted

BUDGET = 670.0
"""CPU seconds of tests. Two cores have 960 in eight minutes; each process starts, collects and waits."""
NEAR, FAR = 4.0, 1.0
LEAST = {NEAR: 1, FAR: 0}
SMALLER = 0.8
SMALLEST = 0.001


@dataclass(frozen=True)
class Drawing:
    """How members of the dear groups of one file are drawn."""

    inputs: str
    """A hash of all that the file depends on."""
    weight: float
    """How near it is to what changed."""
    scale: float = 1.0
    """How much of their limits the groups may use; from this and the weight."""

    @property
    def least(self) -> int:
        return LEAST[self.weight]

    def rest(self, members: Sequence[pytest.Item], group: Group) -> Iterable[pytest.Item]:
        """Those that do not run."""
        ranked = sorted(members, key=self._rank)
        names = [short(item.nodeid) for item in ranked]
        lot = self._lot(family_of(members[0].nodeid))
        return ranked[group.affordable(names, self.scale * self.weight, self.least, lot) :]

    def affords(self, name: str, shared: Shared) -> bool:
        return shared.is_affordable(self.scale * self.weight, self.least, self._lot(name))

    def _rank(self, item: pytest.Item) -> float:
        return self._lot(item.nodeid)

    def _lot(self, name: str) -> float:
        """A number between 0 and 1 for ``name``, another one whenever the inputs change."""
        return int.from_bytes(hashlib.sha256(f"{self.inputs} {name}".encode()).digest()[:6], "big") / 2**48


@dataclass(frozen=True)
class Selection:
    """What is known of the test files of a run, by their paths below the repository."""

    unchanged: frozenset[str]
    """Those that passed with the same inputs."""
    drawings: Mapping[str, Drawing]
    """Of the others whose own text passed before."""

    @classmethod
    def of(cls, files: Files, costs: Costs, budget: float = BUDGET) -> Selection:
        unchanged = frozenset(map(files.name_of, files.left_out()))
        running = {files.name_of(path): path for path in files.all() if files.name_of(path) not in unchanged}
        near = files.near({str(path) for path in running.values()})
        drawings = {
            name: Drawing(files.key(path), NEAR if str(path) in near else FAR)
            for name, path in running.items()
            if files.is_text_unchanged(path)
        }
        scale = _scale(running, drawings, costs, budget)
        if scale <= SMALLEST:
            drawings = {name: Drawing(drawing.inputs, FAR) for name, drawing in drawings.items()}
            scale = _scale(running, drawings, costs, budget)
        return cls(unchanged, {n: Drawing(d.inputs, d.weight, scale) for n, d in drawings.items()})

    def to_json(self) -> dict[str, Any]:
        drawn = {name: [d.inputs, d.weight, d.scale] for name, d in self.drawings.items()}
        return {"unchanged": sorted(self.unchanged), "drawings": drawn}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Selection:
        drawn = {name: Drawing(*fields) for name, fields in data["drawings"].items()}
        return cls(frozenset(data["unchanged"]), drawn)

    def leaves_out(self, name: str, path: Path) -> bool:
        """Whether no test of the file runs; a file that marks some tests as ``system`` runs those."""
        return name in self.unchanged and not is_sorted(path)

    def settled(self, items: Iterable[pytest.Item]) -> set[pytest.Item]:
        """Tests of unchanged files, but for those that depend on the system."""
        return {
            item for item in items if _file(item) in self.unchanged and not item.get_closest_marker(SYSTEM)
        }

    def not_drawn(self, items: Iterable[pytest.Item], costs: Costs) -> set[pytest.Item]:
        """Tests with a dear fixture, and members of dear groups, for which there is no time."""
        found: dict[str, list[pytest.Item]] = {}
        items = list(items)
        left = self._without_fixtures(items, costs)
        for item in items:
            if item in left:
                continue
            name = family_of(item.nodeid)
            known = costs.groups[name].members if name in costs.groups else {}
            if short(item.nodeid) in known and _file(item) in self.drawings:
                found.setdefault(name, []).append(item)
        return left | {
            item
            for name, members in found.items()
            for item in self.drawings[_file(members[0])].rest(members, costs.groups[name])
        }

    def _without_fixtures(self, items: Iterable[pytest.Item], costs: Costs) -> set[pytest.Item]:
        """Tests that ask for a fixture for which there is no time."""
        users: dict[str, set[str]] = {}
        for name, shared in costs.shared.items():
            drawing = self.drawings.get(file := name.partition("::")[0])
            if drawing is not None and not drawing.affords(name, shared):
                users.setdefault(file, set()).update(shared.users)
        return {item for item in items if short(item.nodeid) in users.get(_file(item), ())}


def _scale(running: Iterable[str], drawings: Mapping[str, Drawing], costs: Costs, budget: float) -> float:
    """The largest share of their limits that all groups can have within ``budget``."""
    whole = {name for name in running if name not in drawings}
    fixed = sum(costs.rest.get(name, 0.0) for name in running)
    fixed += sum(group.seconds for name in whole for group in costs.of_file(name))
    groups = [(group, drawing) for name, drawing in drawings.items() for group in costs.of_file(name)]
    scale = 1.0
    while scale > SMALLEST:
        if fixed + sum(g.spends(scale * d.weight, d.least) for g, d in groups) <= budget:
            break
        scale *= SMALLER
    return scale


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]

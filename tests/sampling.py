"""Which tests `make test` runs: decided once, in the process that starts the others.

A test file that passed with the same inputs is left out. Of a parametrized test that is dear
(:mod:`tests.costs`), as many members run as a family may cost, and two at least: where something changed that
the file depends on. All of them run where the file itself changed or has never passed, and a member that is
new always runs. A hash of a member's name and of all inputs of the file ranks the members: another change of
the code draws others, and the same tree always the same. `make nightly` runs all members.

``@pytest.mark.sampled(n)`` gives a family another least number of members.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.costs import Family, family_of, short
from tests.ledger import SYSTEM, Files, is_sorted

SAMPLED = "sampled"
LEAST = 2


@dataclass(frozen=True)
class Selection:
    """What is known of the test files of a run, by their paths."""

    unchanged: frozenset[str]
    """Those that passed with the same inputs."""
    inputs: Mapping[str, str]
    """Of the others that have dear families and whose own text passed before: a hash of all inputs."""

    @classmethod
    def of(cls, files: Files, dear: Iterable[Path]) -> Selection:
        unchanged = frozenset(map(str, files.left_out()))
        sampled = (path for path in dear if str(path) not in unchanged and files.is_text_unchanged(path))
        return cls(unchanged, {str(path): files.key(path) for path in sampled})

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "unchanged": sorted(self.unchanged)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Selection:
        return cls(frozenset(data["unchanged"]), data["inputs"])

    def leaves_out(self, path: Path) -> bool:
        """Whether no test of the file runs; a file that marks some tests as ``system`` runs those."""
        return str(path) in self.unchanged and not is_sorted(path)

    def settled(self, items: Iterable[pytest.Item]) -> set[pytest.Item]:
        """Tests of unchanged files, but for those that depend on the system."""
        return {
            item for item in items if str(item.path) in self.unchanged and not item.get_closest_marker(SYSTEM)
        }

    def not_drawn(self, items: Iterable[pytest.Item], costs: Mapping[str, Family]) -> set[pytest.Item]:
        """Members of dear families for which there is no time."""
        found: dict[str, list[pytest.Item]] = {}
        for item in items:
            if family_of(item.nodeid) in costs and str(item.path) in self.inputs:
                found.setdefault(family_of(item.nodeid), []).append(item)
        return {item for name, family in found.items() for item in self._rest(family, costs[name])}

    def _rest(self, family: Sequence[pytest.Item], cost: Family) -> Iterable[pytest.Item]:
        mark, inputs = family[0].get_closest_marker(SAMPLED), self.inputs[str(family[0].path)]
        least = mark.args[0] if mark else LEAST
        known = [item for item in family if short(item.nodeid) in cost.members]
        ranked = sorted(known, key=lambda item: hashlib.sha256(f"{inputs} {item.name}".encode()).digest())
        return ranked[max(cost.affordable, least) :]

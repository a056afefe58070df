"""Which tests `make test` runs: decided once, in the process that starts the others.

A test file that passed with the same inputs is left out. Where something changed that the file depends on,
its dear groups of tests (:mod:`tests.costs`) run in part: as many members as a group may cost, and two at
least. All of them run where the file itself changed or has never passed, and a member that is new always
runs. A hash of a member's name and of all inputs of the file ranks the members: another change of the code
draws others, and the same tree always the same. `make nightly` runs all members.

``@pytest.mark.sampled(n)`` gives a family another least number of members.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.costs import Group, family_of, short
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

    def not_drawn(self, items: Iterable[pytest.Item], groups: Mapping[str, Group]) -> set[pytest.Item]:
        """Members of dear groups for which there is no time."""
        found: dict[str, list[pytest.Item]] = {}
        for item in items:
            name = family_of(item.nodeid)
            if (
                str(item.path) in self.inputs
                and name in groups
                and short(item.nodeid) in groups[name].members
            ):
                found.setdefault(name, []).append(item)
        return {item for name, members in found.items() for item in self._rest(members, groups[name])}

    def _rest(self, members: Sequence[pytest.Item], group: Group) -> Iterable[pytest.Item]:
        mark, inputs = members[0].get_closest_marker(SAMPLED), self.inputs[str(members[0].path)]
        ranked = sorted(members, key=lambda item: hashlib.sha256(f"{inputs} {item.name}".encode()).digest())
        names = [short(item.nodeid) for item in ranked]
        return ranked[group.affordable(names, mark.args[0] if mark else LEAST) :]

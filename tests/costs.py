"""What each test costs: CPU seconds of its process and of every process below it.

CPU time is the same on a busy machine as on an idle one, unlike the duration that pytest prints.
`make nightly` measures all tests and writes ``tests/data/costs.json``. A parametrized test is a group there,
and so are the other tests of a file that take long: each member, as a short hash of its name, with what it
takes. A fixture that several tests of a file share is counted apart from them (:class:`Shared`): one test is
enough to pay for it. What the remaining tests of a file take is one number. `make test` finds there which
members of a group, and which shared fixtures, it can afford (:mod:`tests.sampling`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FAMILY = 4.0
"""CPU seconds that the members of one parametrized test may take together, before the budget is looked at."""
SINGLES = 10.0
"""The same for the dear single tests of one file."""
SINGLE = 1.0
"""CPU seconds from which a test without parameters is dear."""
GROUP = 1.0
"""CPU seconds from which it pays to leave out members of a group."""
SHORT = 0.1
SAMPLES_ITSELF = {"tests/evaluator/test_corpus.py::test_the_judge_gets_it_right": 8}
"""Families whose ledger draws one member in so many by content (``tests.ledgers.SHARE``)."""
TICK = os.sysconf("SC_CLK_TCK")
Apart = Mapping[str, tuple[float, Sequence[str]]]
"""Fixtures by ``file::name``: what they took, and the tests that ask for them."""


@dataclass(frozen=True)
class Group:
    """Tests of which some can stand for all."""

    limit: float
    members: Mapping[str, float]
    """CPU seconds by the hashes of their names."""

    @property
    def most(self) -> float:
        """What a member is taken to cost at most: the dearest of several starts what the others share."""
        return sorted(self.members.values())[-2:][0]

    @property
    def seconds(self) -> float:
        return sum(min(spent, self.most) for spent in self.members.values())

    def spends(self, scale: float, least: int) -> float:
        """About what the members that can be afforded take."""
        lowest = least * self.seconds / len(self.members)
        return min(self.seconds, max(self.limit * scale, lowest))

    def affordable(self, ranked: Sequence[str], scale: float, least: int, lot: float) -> int:
        """How many of the members, from the first, can run.

        The last one that begins within the limit and ends beyond it runs with the probability that lets the
        group cost its limit on average; ``lot`` between 0 and 1 decides.
        """
        left = self.limit * scale
        for count, name in enumerate(ranked):
            cost = min(self.members[name], self.most)
            if count >= least and cost > left:
                return count + (left > lot * cost)
            left -= cost
        return len(ranked)


@dataclass(frozen=True)
class Shared:
    """A fixture that is set up once for several tests of a file. It runs for all of them, or for none."""

    seconds: float
    users: frozenset[str]
    """The hashes of the tests that ask for it, themselves or by another fixture."""

    def spends(self, scale: float, least: int) -> float:
        """What it takes on average."""
        return self.seconds if least else min(self.seconds, SINGLES * scale)

    def is_affordable(self, scale: float, least: int, lot: float) -> bool:
        """With the probability that lets it cost its limit on average; ``lot`` between 0 and 1 decides."""
        return self.spends(scale, least) > lot * self.seconds


@dataclass(frozen=True)
class Costs:
    groups: Mapping[str, Group]
    rest: Mapping[str, float]
    """CPU seconds of the tests in no group, by file."""
    shared: Mapping[str, Shared] = field(default_factory=dict)
    """Fixtures, by ``file::name``."""

    def of_file(self, file: str) -> Iterator[Group | Shared]:
        """All that can be left out of one file."""
        known = (*self.groups.items(), *self.shared.items())
        return (cost for name, cost in known if name.partition("::")[0] == file)

    def expected(self, tests: Iterable[str]) -> dict[str, float]:
        """About what these tests take, by file. The same number in every process, whatever the order of sets
        there: workers that sort by it must agree."""
        names: dict[str, set[str]] = {}
        for test in tests:
            names.setdefault(test.partition("::")[0], set()).add(short(test))
        found = Counter({file: self.rest.get(file, 0.0) for file in names})
        for name, group in self.groups.items():
            file = name.partition("::")[0]
            taken = names.get(file, set()) & group.members.keys()
            found[file] += math.fsum(group.members[test] for test in taken)
        for name, shared in self.shared.items():
            file = name.partition("::")[0]
            found[file] += 0.0 if shared.users.isdisjoint(names.get(file, ())) else shared.seconds
        return {file: found[file] for file in names}


@dataclass
class Clock:
    """Measures one test after another in this process."""

    seconds: dict[str, float] = field(default_factory=dict)
    """By the names of tests, without the fixtures that are counted apart."""
    shared: dict[str, tuple[float, list[str]]] = field(default_factory=dict)
    """Those fixtures."""
    _used: float = field(default_factory=lambda: cpu_seconds())
    _now: float = field(default_factory=time.monotonic)

    def stop(self, test: str) -> None:
        """``test`` has ended. One that was over at once cost nothing: it is not worth a look at ``/proc``."""
        before, self._now = self._now, time.monotonic()
        if self._now - before < SHORT:
            self.seconds[test] = 0.0
        else:
            before, self._used = self._used, cpu_seconds()
            self.seconds[test] = round(max(self._used - before, 0.0), 2)

    @contextmanager
    def apart(self, fixture: str, users: list[str]) -> Iterator[None]:
        """What happens inside is set up for all of ``users``, and is no cost of the running test."""
        before = cpu_seconds()
        yield
        spent = max(cpu_seconds() - before, 0.0)
        self._used += spent
        earlier, _ = self.shared.get(fixture, (0.0, users))
        self.shared[fixture] = round(earlier + spent, 2), users


def cpu_seconds() -> float:
    """Of this process, of its children that ended and of all living processes below it."""
    parents, used = {}, {}
    for pid, parent, ticks in _processes():
        parents.setdefault(parent, []).append(pid)
        used[pid] = ticks
    total, waiting = 0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        total += used.get(pid, 0)
        waiting += parents.get(pid, ())
    return total / TICK


def _processes() -> Iterator[tuple[int, int, int]]:
    """Number, parent and clock ticks of each, those of its ended children included."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        yield int(name), int(fields[1]), sum(map(int, fields[11:15]))


def short(test: str) -> str:
    return hashlib.sha256(test.encode()).hexdigest()[:5]


def family_of(test: str) -> str:
    """The name of a group: the test function; of a test without parameters, the file."""
    name, bracket, _ = test.partition("[")
    return name if bracket else f"{test.partition('::')[0]}::"


def limit_of(group: str) -> float:
    return SINGLES if group.endswith("::") else FAMILY


def measured(seconds: Mapping[str, float], apart: Apart | None = None) -> Costs:
    """The costs of tests that ran, and of the fixtures that were counted apart."""
    found: dict[str, dict[str, float]] = {}
    rest: Counter[str] = Counter()
    for test, spent in seconds.items():
        if ("[" in test or spent >= SINGLE) and family_of(test) not in SAMPLES_ITSELF:
            found.setdefault(family_of(test), {})[short(test)] = spent
        else:
            rest[test.partition("::")[0]] += spent / SAMPLES_ITSELF.get(family_of(test), 1)
    groups = {name: Group(limit_of(name), members) for name, members in found.items()}
    dear = {name: group for name, group in groups.items() if group.seconds > GROUP}
    for name in found.keys() - dear.keys():
        rest[name.partition("::")[0]] += sum(found[name].values())
    shared = {}
    for name, (spent, users) in (apart or {}).items():
        if spent > GROUP:
            shared[name] = Shared(spent, frozenset(map(short, users)))
        else:
            rest[name.partition("::")[0]] += spent
    return Costs(dear, {file: round(spent, 1) for file, spent in rest.items()}, shared)


def by_folder(seconds: Mapping[str, float]) -> dict[str, float]:
    """CPU seconds of the folders of tests, the dearest first."""
    found: Counter[str] = Counter()
    for test, spent in seconds.items():
        found["/".join(test.partition("::")[0].split("/")[:-1][:2])] += spent
    return dict(found.most_common())


def read(path: Path) -> Costs:
    found = json.loads(path.read_text()) if path.exists() else {"groups": {}, "rest": {}}
    groups = {name: Group(limit_of(name), members) for name, members in found["groups"].items()}
    shared = {
        name: Shared(row["seconds"], frozenset(row["users"])) for name, row in found.get("shared", {}).items()
    }
    return Costs(groups, found["rest"], shared)


def write(path: Path, seconds: Mapping[str, float], apart: Apart | None = None) -> None:
    """What was measured now; of files that did not run, what is known already."""
    before, now = read(path), measured(seconds, apart)
    ran = {test.partition("::")[0] for test in seconds}
    merged = {
        "groups": {name: group.members for name, group in _joined(before.groups, now.groups, ran).items()},
        "rest": _joined(before.rest, now.rest, ran),
        "shared": {
            name: {"seconds": shared.seconds, "users": sorted(shared.users)}
            for name, shared in _joined(before.shared, now.shared, ran).items()
        },
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(merged, sort_keys=True, indent=0) + "\n")


def _joined(before: Mapping[str, Any], now: Mapping[str, Any], ran: set[str]) -> dict[str, Any]:
    """By names that begin with a file: of the files that ran what is known now, of others what was known."""
    return {**{name: cost for name, cost in before.items() if name.partition("::")[0] not in ran}, **now}

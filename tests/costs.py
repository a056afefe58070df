"""What each test costs: CPU seconds of its process and of every process below it.

CPU time is the same on a busy machine as on an idle one, unlike the duration that pytest prints.
`make nightly` measures all tests and keeps the families that are dear in ``tests/data/costs.json``: what a
member takes, and which members there are, as short hashes of their names. `make test` reads there how many
members of a family it can afford.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

DEAR = 4.0
"""CPU seconds that one parametrized test may take in `make test`, with all members that run."""
SHORT = 0.1
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Family:
    """A test function with its members: the parameters with which it is called."""

    each: float
    """CPU seconds of a member. The dearest is not counted: it starts what the others share."""
    members: frozenset[str]
    """Hashes of their names."""

    @property
    def affordable(self) -> int:
        """How many members fit into what a family may take."""
        return int(DEAR / max(self.each, 0.001))


@dataclass
class Clock:
    """Measures one test after another in this process."""

    seconds: dict[str, float] = field(default_factory=dict)
    """By the names of tests."""
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
    return test.partition("[")[0]


def families(seconds: Mapping[str, float]) -> dict[str, Family]:
    """The families among tests that were measured whose members take too long together."""
    found: dict[str, list[str]] = {}
    for test in seconds:
        found.setdefault(family_of(test), []).append(test)
    costs = {name: _family(tests, seconds) for name, tests in found.items() if len(tests) > 1}
    return {name: cost for name, cost in costs.items() if cost.affordable < len(cost.members)}


def _family(tests: Sequence[str], seconds: Mapping[str, float]) -> Family:
    others = sorted(seconds[test] for test in tests)[:-1]
    return Family(round(sum(others) / len(others), 2), frozenset(map(short, tests)))


def by_folder(seconds: Mapping[str, float]) -> dict[str, float]:
    """CPU seconds of the folders of tests, the dearest first."""
    found: Counter[str] = Counter()
    for test, spent in seconds.items():
        found["/".join(test.partition("::")[0].split("/")[:-1][:2])] += spent
    return dict(found.most_common())


def read(path: Path) -> dict[str, Family]:
    rows = json.loads(path.read_text()) if path.exists() else {}
    return {name: Family(each, frozenset(members.split())) for name, (each, members) in rows.items()}


def write(path: Path, seconds: Mapping[str, float]) -> None:
    """What was measured now; of files that did not run, what is known already."""
    ran = {test.partition("::")[0] for test in seconds}
    kept = {name: cost for name, cost in read(path).items() if name.partition("::")[0] not in ran}
    rows = {
        name: [cost.each, " ".join(sorted(cost.members))]
        for name, cost in sorted({**kept, **families(seconds)}.items())
    }
    path.write_text(json.dumps(rows, indent=0) + "\n")

"""What each test costs: CPU seconds of its process and of every process below it.

CPU time is the same on a busy machine as on an idle one, unlike the duration that pytest prints.
`make nightly` measures all tests and keeps the groups that are dear in ``tests/data/costs.json``: each
member, as a short hash of its name, with what it takes. A parametrized test is a group, and so are the other
tests of a file that take long. `make test` reads there which members of a group it can afford.
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

FAMILY = 4.0
"""CPU seconds that the members of one parametrized test may take together in `make test`."""
SINGLES = 10.0
"""CPU seconds that the dear single tests of one file may take together."""
SINGLE = 2.0
"""CPU seconds from which a test without parameters is dear."""
SHORT = 0.1
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Group:
    """Tests of which some can stand for all."""

    limit: float
    members: Mapping[str, float]
    """CPU seconds by the hashes of their names."""

    @property
    def seconds(self) -> float:
        """Of all members. The dearest counts as the next one: it starts what the others share."""
        _, *others = sorted(self.members.values(), reverse=True)
        return sum(others) + max(others, default=0.0)

    def affordable(self, ranked: Sequence[str], least: int) -> int:
        """How many of the members, from the first, can run; each at most as dear as the second dearest."""
        most = sorted(self.members.values())[-2]
        count, spent = 0, 0.0
        for name in ranked:
            spent += min(self.members[name], most)
            if count >= least and spent > self.limit:
                break
            count += 1
        return count


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
    """The name of a group: the test function; of a test without parameters, the file."""
    name, bracket, _ = test.partition("[")
    return name if bracket else f"{test.partition('::')[0]}::"


def limit_of(group: str) -> float:
    return SINGLES if group.endswith("::") else FAMILY


def groups(seconds: Mapping[str, float]) -> dict[str, Group]:
    """The groups among tests that were measured whose members take too long together."""
    found: dict[str, dict[str, float]] = {}
    for test, spent in seconds.items():
        if "[" in test or spent >= SINGLE:
            found.setdefault(family_of(test), {})[short(test)] = spent
    made = {name: Group(limit_of(name), members) for name, members in found.items() if len(members) > 1}
    return {name: group for name, group in made.items() if group.seconds > group.limit}


def by_folder(seconds: Mapping[str, float]) -> dict[str, float]:
    """CPU seconds of the folders of tests, the dearest first."""
    found: Counter[str] = Counter()
    for test, spent in seconds.items():
        found["/".join(test.partition("::")[0].split("/")[:-1][:2])] += spent
    return dict(found.most_common())


def read(path: Path) -> dict[str, Group]:
    rows = json.loads(path.read_text()) if path.exists() else {}
    return {name: Group(limit_of(name), members) for name, members in rows.items()}


def write(path: Path, seconds: Mapping[str, float]) -> None:
    """What was measured now; of files that did not run, what is known already."""
    ran = {test.partition("::")[0] for test in seconds}
    kept = {name: group for name, group in read(path).items() if name.partition("::")[0] not in ran}
    rows = (
        f"{json.dumps(name)}: {json.dumps(dict(sorted(group.members.items())), separators=(',', ':'))}"
        for name, group in sorted({**kept, **groups(seconds)}.items())
    )
    path.parent.mkdir(exist_ok=True)
    path.write_text("{\n" + ",\n".join(rows) + "\n}\n")

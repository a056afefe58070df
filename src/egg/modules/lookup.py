"""What the store knows of a graph: its entry, the route that it takes, and the kernel that answers it.

Shared by graphs of Dynamo (:mod:`egg.modules.backend`) and by the forward and backward graphs of training
(:mod:`egg.modules.training`).
"""

from __future__ import annotations

import atexit
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from egg import __version__
from egg.core.errors import MachineError, TaskError, UsageError
from egg.core.policy import LibraryCalls, Precision
from egg.modules.arithmetic import precision_here
from egg.modules.counts import Call, Counts
from egg.modules.fake_run import NoMemory, Unsuitable
from egg.modules.fallback import INDUCTOR
from egg.store import (
    Claim,
    Entry,
    Outline,
    Policy,
    Recorded,
    Rejected,
    Seen,
    Step,
    Store,
    Tuned,
    package_version,
)

if TYPE_CHECKING:
    from egg.modules.dynamo import Program
    from egg.modules.stored_kernel import StoredKernel

log = logging.getLogger("egg")
Notice = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """What ``torch.compile(..., options={...})`` may say to this backend; all else goes to the fallback."""

    store: str | Path | None = None
    """The folder of the store; ``EGG_STORE``, or the user's own."""
    tune: bool = False
    """Tune a graph that is not known, and wait for it."""
    budget: str = "quick"
    """Of such a tuning."""
    unmeasured: bool = False
    """Use kernels that are verified and that no GPU measured."""
    replay: bool = True
    """Try a graph that was tuned as a CUDA graph, too."""
    fallback: str = INDUCTOR
    library_calls: str = LibraryCalls.ALLOW.value

    @classmethod
    def split(cls, given: Mapping[str, Any] | None) -> tuple[Options, dict[str, Any]]:
        """Ours, and those for the fallback."""
        names = {found.name for found in fields(cls)}
        own = {name: value for name, value in (given or {}).items() if name in names}
        return cls(**own), {name: value for name, value in (given or {}).items() if name not in names}


@dataclass
class Graph:
    """One graph of this process: the route it takes, why, and how its calls were answered."""

    route: str
    reason: str = ""
    key: str = ""
    part: str = ""
    """``forward`` or ``backward`` of a graph that trains."""
    places: int = 1
    """How often it occurs in the graph around it."""
    counts: Counts = field(default_factory=Counts)
    pending: bool = False
    """Its calls are still being timed in several forms."""
    milliseconds: dict[str, float] = field(default_factory=dict)
    """Of a call in each form that was timed."""
    given_up: dict[str, str] = field(default_factory=dict)
    """Forms that could not be timed, each with the reason."""
    settled: bool = False
    """The store has an entry for it, or its nodes show that it is left: the next process need not read it."""


@dataclass(frozen=True)
class Lookup:
    """Looks graphs up in one store, under the options of one call of ``torch.compile``."""

    store: Store
    chosen: Options
    rows: list[Graph]
    """Of the process: every graph that is looked up gets one."""
    notice: Notice

    def look_up(
        self,
        reading: Callable[[], Program],
        places: int = 1,
        values: Callable[[], Sequence[Any]] | None = None,
    ) -> tuple[Graph, Program | None]:
        """The row of a graph, which is counted, and its program where the store has a kernel to use.

        ``values`` computes the arguments of a call for a graph that is not known, whose examples have none.
        """
        found = Graph("left", places=places)
        self.rows.append(found)
        with self.named(found):
            program = reading()
            self._routed(self._entry(program, places, values), found)
            _count_at_exit(self.store, found)
            return found, program if found.route == "kernel" else None
        return found, None

    def look_up_functional(
        self, reading: Callable[[], Program], part: str, places: int = 1
    ) -> tuple[Graph, Program | None, Callable[[Sequence[Any]], bool] | None]:
        """As :meth:`look_up`, for a graph whose examples have no values.

        Third, for a graph that the store does not have: what records it, given the arguments of a call, and
        says whether there is a kernel to use now.
        """
        found = Graph("left", part=part, places=places)
        self.rows.append(found)
        with self.named(found):
            program = reading()
            claim = self._claim(program)
            known = self.store.find(claim)
            if known is None:
                _ = program.traffic  # raises for a graph that no kernel may answer
                found.route, found.key = "recorded", claim.key
                return found, program, lambda args: self._record(found, program, args)
            self._routed(self.store.record(claim, known.task, Seen(places)), found)
            _count_at_exit(self.store, found)
            return found, program if found.route == "kernel" else None, None
        return found, None, None

    def without_kernels(self, step: Step) -> list[Graph] | None:
        """The rows of a graph that trains, where none of its graphs has a kernel to use or to wait for."""
        found = [self._row(Graph("left", part.reason, part.key, part.part)) for part in step.parts]
        rows = [row for row in found if row is not None and row.route != "kernel"]
        if len(rows) < len(found):
            return None
        for row in rows:
            if row.key:
                self.store.count(row.key, Seen(1))
                _count_at_exit(self.store, row)
        self.rows.extend(rows)
        return rows

    def outlined(self, outline: Outline) -> list[Graph] | None:
        """The rows of what an earlier process found in a graph, not yet counted; ``None`` where an entry is
        gone, or waits for a tuning."""
        kinds = outline.kinds
        found = [self._row(Graph("left", k.reason, k.key, places=len(k.spans) or 1)) for k in kinds]
        rows = [row for row in found if row is not None]
        return rows if len(rows) == len(found) else None

    def count(self, rows: Sequence[Graph]) -> None:
        """Count rows as those of the process; the store has their counts when it ends, in one write."""
        for row in rows:
            self.rows.append(row)
            if row.key:
                _count_at_exit(self.store, row, compiled=row.places)

    def key(self, program: Program) -> str:
        """Of the entry of a program."""
        return self._claim(program).key

    def kernel(
        self, found: Graph, program: Program, fallback: Call, *, direct: bool = False
    ) -> StoredKernel | None:
        """What answers a graph that has a kernel; ``None`` where the kernel cannot be used after all.

        ``direct``: a kernel file that replays its launches makes them one by one, for the graph around it
        is replayed as a whole.
        """

        def failed(error: BaseException) -> None:
            self.notice(f"kernel {found.key} failed and is out of use in this process: {error}")
            with store_errors(self.notice):
                self.store.failed(found.key, f"{type(error).__name__}: {error}")

        entry = self.store.get(found.key)
        path = self.store.kernel_path(entry) if entry is not None else None
        if path is None:
            found.route, found.reason = "left", "its kernel is damaged or was removed"
            return None
        from egg.modules.stored_kernel import StoredKernel

        try:
            return StoredKernel(path, program, fallback, found.counts, failed, direct=direct)
        except Exception as error:  # a kernel file that does not load is out of use, as one that fails
            found.route, found.reason = "left", f"its kernel does not load: {error}".splitlines()[0]
            failed(error)
            return None

    @contextmanager
    def named(self, found: Graph) -> Iterator[None]:
        """What stops a lookup is the reason of the row, and stops no program."""
        try:
            yield
            return
        except (Unsuitable, TaskError) as reason:
            found.reason = str(reason).splitlines()[0]
            found.settled = isinstance(reason, Unsuitable) and not isinstance(reason, NoMemory)
        except (MachineError, OSError) as error:
            found.reason = str(error).splitlines()[0]
            self.notice(f"the store is not used: {found.reason}")
        except Exception as error:  # a fault of ours is logged, and does not stop the program
            found.reason = f"internal error: {type(error).__name__}: {error}".splitlines()[0]
            self.notice(f"{found.reason}; please report it")
        found.route = "left"

    def _entry(self, program: Program, places: int, values: Callable[[], Sequence[Any]] | None) -> Entry:
        """The entry of a graph, counted once more; one that is new is recorded, and tuned where asked."""
        claim = self._claim(program)
        known = self.store.find(claim)
        if known is not None:
            return self._tuned(self.store.record(claim, known.task, Seen(places)))
        seen = Seen(places, 0, program.traffic)
        task = program.task(values() if values is not None else None)
        return self._tuned(self.store.record(claim, task, seen))

    def _record(self, found: Graph, program: Program, args: Sequence[Any]) -> bool:
        """Write the task of a functional graph from the arguments of a call."""
        with self.named(found):
            seen = Seen(found.places, 0, program.traffic)
            entry = self.store.record(self._claim(program), program.task(args), seen)
            self._routed(self._tuned(entry), found)
            _count_at_exit(self.store, found)
        return found.route == "kernel"

    def _tuned(self, entry: Entry) -> Entry:
        if not self.chosen.tune or isinstance(entry.state, Tuned | Rejected):
            return entry
        _tune(self.store, entry, self.chosen)
        return self.store.find(entry.claim) or entry

    def _row(self, row: Graph) -> Graph | None:
        """The row of a graph whose key is known, with its route; ``None`` where it must be read again."""
        if row.key:
            entry = self.store.get(row.key)
            if entry is None or (self.chosen.tune and isinstance(entry.state, Recorded)):
                return None
            self._routed(entry, row)
        return row

    def _routed(self, entry: Entry, found: Graph) -> None:
        state = entry.state
        found.key, found.settled = entry.key, True
        if isinstance(state, Rejected):
            found.route, found.reason = "rejected", state.reason
        elif not isinstance(state, Tuned):
            found.route = "recorded"
        elif not state.measured and not self.chosen.unmeasured:
            found.route = "rejected"
            found.reason = (
                "its kernel is verified, and no GPU measured it; options={'unmeasured': True} uses it"
            )
        else:
            found.route = "kernel"

    def _claim(self, program: Program) -> Claim:
        on_gpu = program.device.type == "cuda"
        return Claim(
            program.text,
            program.forms,
            torch.cuda.get_device_name(program.device) if on_gpu else "",
            str(torch.__version__),
            package_version("triton"),
            __version__,
            Policy(precision_here() if on_gpu else Precision.MATCH, LibraryCalls(self.chosen.library_calls)),
        )


def counting(compiled: Call, rows: Sequence[Graph]) -> Call:
    """Count a call of a graph for every row that the fallback answers."""
    counted = [(row.counts, row.places) for row in rows]

    def call(*args: Any) -> Any:
        for counts, places in counted:
            counts.fallback += places
        return compiled(*args)

    return call


@contextmanager
def store_errors(notice: Notice) -> Iterator[None]:
    """A store that cannot be written is a notice, and no error of the program."""
    try:
        yield
    except (MachineError, UsageError, OSError) as error:
        notice(f"the store is not written: {str(error).splitlines()[0]}")


def _count_at_exit(store: Store, graph: Graph, compiled: int = 0) -> None:
    """Add to the store's counts at the end of this process how often the graph ran, and was ``compiled``; not
    in processes forked from it."""
    owner = os.getpid()

    def flush() -> None:
        calls = graph.counts.kernel + graph.counts.fallback
        if (calls or compiled) and os.getpid() == owner:
            with store_errors(lambda text: log.warning("%s", text)):
                store.count(graph.key, Seen(compiled, calls))

    atexit.register(flush)


def _tune(store: Store, entry: Entry, chosen: Options) -> None:
    """Tune one entry in a process of its own, which shares neither memory nor state with the program."""
    command = [sys.executable, "-m", "egg.cli", "tune", "--store", str(store.folder), "--entry", entry.key]
    environ = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [*command, "--budget", chosen.budget], capture_output=True, text=True, env=environ, check=False
    )
    if done.returncode != 0:
        raise MachineError(f"tuning {entry.key} failed: {done.stderr.strip()[-500:]}", "run `egg tune`")

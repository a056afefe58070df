"""Optimize what programs recorded in the store: one run for each graph, the heaviest first.

A run is one of ``egg optimize`` on the recorded task, kept in the store. Its result decides the state of the
entry: the kernel where the judge accepted it and it is faster than every way torch has to run the graph,
otherwise the reason why not. Without a GPU nothing is measured; the kernel is kept as verified and
unmeasured, and a program uses it only where it asks for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from egg import __version__
from egg.api.optimizing import begin, carry_on
from egg.api.runs import state_of
from egg.api.watching import Watcher
from egg.core.errors import MachineError, TaskError, UsageError
from egg.core.evaluation import Accepted, Evaluation, Measured
from egg.core.settings import Settings
from egg.core.source import Task
from egg.engine.lock import Locked
from egg.engine.log import LOG
from egg.engine.state import RunState
from egg.hardware.detect import present_gpus
from egg.modules.outcome import unbeaten
from egg.store import Claim, Entry, Recorded, Rejected, Store, Tuned, package_version

Watching = Callable[[Path], AbstractContextManager[Watcher]]
"""Shows the run in a folder while it goes on."""


@dataclass(frozen=True)
class Here:
    """This machine, as far as a claim names it."""

    gpus: tuple[str, ...]
    torch: str
    triton: str

    @classmethod
    def now(cls) -> Here:
        import torch

        return cls(
            tuple(gpu.name for gpu in present_gpus()), str(torch.__version__), package_version("triton")
        )

    def same_versions(self, claim: Claim) -> bool:
        return (claim.torch, claim.triton, claim.egg) == (self.torch, self.triton, __version__)

    def device(self, claim: Claim) -> str | None:
        """Where kernels for a claim are judged; ``None`` where it was recorded on another kind of machine."""
        if not self.same_versions(claim):
            return None
        if claim.gpu in self.gpus:
            return f"cuda:{self.gpus.index(claim.gpu)}"
        return "cpu" if not claim.gpu and not self.gpus else None


@dataclass(frozen=True)
class Waiting:
    """What there is to tune here, and how many entries were recorded under other terms."""

    entries: tuple[Entry, ...]
    elsewhere: int


def waiting(store: Store, here: Here) -> Waiting:
    """Entries that are recorded and not tuned, the heaviest first."""
    recorded = [entry for entry in store.entries() if isinstance(entry.state, Recorded)]
    fitting = tuple(entry for entry in recorded if here.device(entry.claim) is not None)
    return Waiting(fitting, len(recorded) - len(fitting))


def tune(
    store: Store,
    entries: tuple[Entry, ...],
    settings: Settings,
    here: Here,
    environ: Mapping[str, str],
    watching: Watching,
) -> Iterator[Entry]:
    """Tune entries one after another; each as it stands afterwards.

    One that another process is tuning is left to it. A task that cannot be read or written as a kernel is a
    reason to reject the entry; a machine that cannot judge raises.
    """
    for entry in entries:
        device = here.device(entry.claim)
        if device is None:
            raise UsageError(
                f"{entry.key} was recorded under other terms than this machine's", "see `egg kernels show`"
            )
        policy = entry.claim.policy
        terms = replace(
            settings, device=device, precision=policy.precision, library_calls=policy.library_calls
        )
        try:
            _settle(store, entry, _run(store, entry, terms, environ, watching))
        except Locked:
            continue
        except TaskError as error:
            store.rejected(entry.key, f"the task does not run: {error.message}")
        yield store.named(entry.key)


def verdict(state: RunState) -> Tuned | Rejected:
    """What a run that has ended says of its graph."""
    if state.closed is None:
        raise ValueError("the run has not ended")
    if state.closed.candidate is None:
        return Rejected(state.closed.reason)
    kernel = state.kernels[state.closed.candidate]
    slow = no_faster_than(kernel.evaluation)
    return Rejected(slow) if slow else Tuned.of(kernel.evaluation, kernel.candidate.sha256)


def no_faster_than(evaluation: Evaluation) -> str:
    """The way of torch that a measured kernel does not beat beyond the noise; empty where it beats all."""
    if not isinstance(evaluation.verdict, Accepted):
        return "it was refused"
    performance = evaluation.verdict.performance
    if not isinstance(performance, Measured):
        return ""
    baseline = unbeaten(performance)
    if baseline is None:
        return ""
    found = baseline.speedup
    times = f"{found.median:.2f}x ({found.low:.2f} to {found.high:.2f})"
    return f"not faster than {baseline.name} beyond the noise: {times}"


def _run(
    store: Store, entry: Entry, settings: Settings, environ: Mapping[str, str], watching: Watching
) -> RunState:
    """The run of an entry, to its end; one that was stopped goes on."""
    folder = store.run_folder(entry, settings.budget.name)
    if not (folder / LOG).is_file():
        begin(Task(entry.name, entry.task), settings, folder, environ)
    state = state_of(folder)
    if state.closed is None:
        with watching(folder) as watcher:
            state = carry_on(folder, state, watcher, environ).state
    if state.closed is None:
        raise MachineError(f"the run in {folder} has to wait", "tune with a team that answers by itself")
    return state


def _settle(store: Store, entry: Entry, state: RunState) -> None:
    found = verdict(state)
    if isinstance(found, Rejected):
        store.rejected(entry.key, found.reason)
    elif state.closed is not None and state.closed.candidate is not None:
        store.tuned(entry.key, state.sources[state.closed.candidate], found)

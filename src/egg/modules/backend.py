"""``torch.compile(model, backend="egg")``: verified kernels where the store has them, Inductor elsewhere.

Every graph that Dynamo captures takes one of these routes, and is counted under it with the reason:

- ``kernel``: the store has a verified kernel that is faster than torch's own; calls outside of its domain go
  to the fallback.
- ``recorded``: the store had no kernel for it. It goes to the fallback unchanged, and the store has it for
  ``egg tune``.
- ``rejected``: tuning found no kernel for it that is faster.
- ``training``: something in it requires a gradient. The graph goes to the fallback, which derives the
  backward.
- ``layers``: a large graph in which layers repeat. Each kind of layer is recorded, or answered by its kernel,
  under a row of its own; the rest of the graph goes to the fallback. On a GPU the first calls of the whole
  graph decide whether it is faster with the kernels than without (:mod:`egg.modules.trial`).
- ``left``: no kernel could stand for it (:class:`egg.modules.fake_run.Unsuitable`), or the store cannot be
  used.

Nothing here compiles a kernel or waits for a tuning, unless ``options={"tune": True}`` asks for one.
"""

from __future__ import annotations

import atexit
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import fx

from egg import __version__
from egg.core.errors import MachineError, TaskError, UsageError
from egg.core.policy import LibraryCalls, Precision
from egg.modules.arithmetic import precision_here
from egg.modules.dynamo import Program, read
from egg.modules.fake_run import Unsuitable
from egg.modules.fallback import INDUCTOR, Fallback
from egg.modules.graph_text import graph_text
from egg.modules.regions import Layer, Region, layers, replaced
from egg.modules.stored_kernel import Call, Counts, StoredKernel
from egg.modules.trial import Trial
from egg.store import (
    Assembly,
    Claim,
    Entry,
    Policy,
    Rejected,
    Seen,
    Store,
    Tuned,
    assembly_name,
    package_version,
    store_folder,
)

log = logging.getLogger("egg")


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
    places: int = 1
    """How often it occurs in the graph around it."""
    counts: Counts = field(default_factory=Counts)


class Backend:
    """The backend of one process: a callable for Dynamo, and what became of every graph."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self._noticed: set[str] = set()

    def __call__(
        self,
        graph: fx.GraphModule,
        inputs: Sequence[Any],
        *,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Call:
        chosen, others = Options.split(options)
        fallback = Fallback(chosen.fallback, mode, others, self._notice)
        if torch.is_grad_enabled() and any(_needs_gradient(value) for value in inputs):
            self.graphs.append(Graph("training", "something in it requires a gradient"))
            return _counting(fallback.now(graph, inputs), self.graphs[-1:])
        store = Store(store_folder(chosen.store, os.environ), self._notice)
        regions = self._regions(graph)
        if regions:
            return self._layered(graph, inputs, regions, store, chosen, fallback)
        found, program = self._looked_up(graph, inputs, store, chosen)
        call = self._kernel(store, found, program, fallback.later(graph)) if program is not None else None
        return call or _counting(fallback.now(graph, inputs), [found])

    def stats(self) -> list[dict[str, Any]]:
        """One row for each graph: its route, why, its key, and how its calls were answered."""
        return [asdict(graph) for graph in self.graphs]

    def reset(self) -> None:
        """Forget what was counted; graphs that are compiled go on as they are."""
        self.graphs.clear()
        self._noticed.clear()

    # -- routes ------------------------------------------------------------------------------------

    def _regions(self, graph: fx.GraphModule) -> tuple[Region, ...]:
        try:
            return layers(graph)
        except Exception as error:  # as below: the graph is looked at as a whole
            self._notice(f"internal error: {type(error).__name__}: {error}; please report it")
            return ()

    def _looked_up(
        self, graph: fx.GraphModule, inputs: Sequence[Any], store: Store, chosen: Options, places: int = 1
    ) -> tuple[Graph, Program | None]:
        """The row of a graph, which is counted, and its program where the store has a kernel to use."""
        program, found = None, Graph("left")
        try:
            program = read(graph, inputs)
            entry = self._entry(store, _claim(program, chosen), program, chosen, places)
            found = self._routed(entry, chosen)
            _count_at_exit(store, found)
        except (Unsuitable, TaskError) as reason:
            found.reason = str(reason).splitlines()[0]
        except (MachineError, OSError) as error:
            found.reason = str(error).splitlines()[0]
            self._notice(f"the store is not used: {found.reason}")
        except Exception as error:  # a fault of ours is said aloud, and does not stop the program
            found.reason = f"internal error: {type(error).__name__}: {error}".splitlines()[0]
            self._notice(f"{found.reason}; please report it")
        found.places = places
        self.graphs.append(found)
        return found, program if found.route == "kernel" else None

    def _layered(
        self,
        graph: fx.GraphModule,
        inputs: Sequence[Any],
        regions: Sequence[Region],
        store: Store,
        chosen: Options,
        fallback: Fallback,
    ) -> Call:
        """A graph whose layers repeat: kernels for those that have one, within the graph as it is."""
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        given = dict(zip(placeholders, inputs, strict=True))
        kinds: dict[str, list[Region]] = {}
        for region in regions:
            kinds.setdefault(region.text, []).append(region)
        whole = Graph("layers", f"{len(regions)} layers of {len(kinds)} kinds")
        self.graphs.append(whole)
        table: dict[str, Layer] = {}
        chosen_regions: list[tuple[Region, str]] = []
        plain: list[Graph] = [whole]
        for kind in kinds.values():
            first = kind[0]
            found, program = self._looked_up(first.module, first.examples(given), store, chosen, len(kind))
            call = self._kernel(store, found, program, program.plain) if program is not None else None
            if call is None or program is None:
                plain.append(found)
                continue
            table[found.key] = Layer(call, program)
            chosen_regions += [(region, found.key) for region in kind]
        if not chosen_regions:
            return _counting(fallback.now(graph, inputs), plain)
        return self._assembled(graph, inputs, chosen_regions, table, store, fallback, plain)

    def _assembled(
        self,
        graph: fx.GraphModule,
        inputs: Sequence[Any],
        kernels: Sequence[tuple[Region, str]],
        table: Mapping[str, Layer],
        store: Store,
        fallback: Fallback,
        rows: Sequence[Graph],
    ) -> Call:
        """The graph with its kernels, unless the whole was found no faster with them."""
        name = assembly_name(graph_text(graph), sorted(table))
        known = store.assembly(name)
        if known is not None and not known.faster:
            rows[0].reason += f"; without kernels, which made the whole no faster ({known.ratio:.2f}x)"
            return _counting(fallback.now(graph, inputs), rows)
        if known is not None:
            rows[0].reason += f"; with kernels: the whole is {known.ratio:.2f}x with them"
        composed = fallback.now(replaced(graph, kernels, table), inputs)
        if known is not None or not any(_on_gpu(value) for value in inputs):
            return _counting(composed, rows)

        def decided(ratio: float, keep: bool) -> None:
            kept = "with" if keep else "without"
            rows[0].reason += f"; {kept} kernels: the whole is {ratio:.2f}x with them"
            with _store_errors(self._notice):
                store.assembled(name, Assembly(keep, ratio, tuple(sorted(table))))

        return _counting(Trial(composed, fallback.now(graph, inputs), decided), rows)

    def _entry(self, store: Store, claim: Claim, program: Program, chosen: Options, places: int) -> Entry:
        """The entry of a graph, counted once more; one that is new is recorded, and tuned where asked."""
        known = store.find(claim)
        entry = store.record(claim, known.task if known else program.task(), Seen(places, 0, program.traffic))
        if chosen.tune and not isinstance(entry.state, Tuned | Rejected):
            _tune(store, entry, chosen)
            entry = store.find(claim) or entry
        return entry

    def _routed(self, entry: Entry, chosen: Options) -> Graph:
        state = entry.state
        if isinstance(state, Rejected):
            return Graph("rejected", state.reason, entry.key)
        if not isinstance(state, Tuned):
            return Graph("recorded", "", entry.key)
        if not state.measured and not chosen.unmeasured:
            why = "its kernel is verified, and no GPU measured it; options={'unmeasured': True} uses it"
            return Graph("rejected", why, entry.key)
        return Graph("kernel", "", entry.key)

    def _kernel(self, store: Store, found: Graph, program: Program, fallback: Call) -> Call | None:
        """What answers a graph that has a kernel; ``None`` where the kernel cannot be used after all."""

        def failed(error: BaseException) -> None:
            self._notice(f"kernel {found.key} failed and is out of use in this process: {error}")
            with _store_errors(self._notice):
                store.failed(found.key, f"{type(error).__name__}: {error}")

        entry = store.get(found.key)
        path = store.kernel_path(entry) if entry is not None else None
        if path is None:
            found.route, found.reason = "left", "its kernel is damaged or was removed"
            return None
        try:
            return StoredKernel(path, program, fallback, found.counts, failed)
        except Exception as error:  # a kernel file that does not load is out of use, as one that fails
            found.route, found.reason = "left", f"its kernel does not load: {error}".splitlines()[0]
            failed(error)
            return None

    def _notice(self, text: str) -> None:
        """Say a thing once."""
        if text not in self._noticed:
            self._noticed.add(text)
            log.warning("%s", text)


@contextmanager
def _store_errors(notice: Callable[[str], None]) -> Iterator[None]:
    """A store that cannot be written is a notice, and no error of the program."""
    try:
        yield
    except (MachineError, UsageError, OSError) as error:
        notice(f"the store is not written: {str(error).splitlines()[0]}")


def _claim(program: Program, chosen: Options) -> Claim:
    return Claim(
        program.text,
        program.forms,
        _gpu_name(program.device),
        str(torch.__version__),
        package_version("triton"),
        __version__,
        Policy(
            precision_here() if program.device.type == "cuda" else Precision.MATCH,
            LibraryCalls(chosen.library_calls),
        ),
    )


def _gpu_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else ""


def _on_gpu(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_cuda


def _needs_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _counting(compiled: Call, rows: Sequence[Graph]) -> Call:
    """Count a call of a graph for every row that the fallback answers."""
    counted = [(row.counts, row.places) for row in rows]

    def call(*args: Any) -> Any:
        for counts, places in counted:
            counts.fallback += places
        return compiled(*args)

    return call


def _count_at_exit(store: Store, graph: Graph) -> None:
    """Tell the store at the end of this process how often the graph ran; not in processes forked from it."""
    owner = os.getpid()

    def flush() -> None:
        calls = graph.counts.kernel + graph.counts.fallback
        if calls and os.getpid() == owner:
            with _store_errors(lambda text: log.warning("%s", text)):
                store.count(graph.key, Seen(0, calls))

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


backend = Backend()
"""What the entry point ``egg`` of ``torch_dynamo_backends`` names."""

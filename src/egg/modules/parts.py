"""A module whose course depends on values: kernels for the parts between, Python for the rest.

``torch.export`` records one program, and a forward that reads a number out of a tensor (``.item()``,
``nonzero``, a branch on a value) has none. Dynamo breaks its graph at such a line: the parts before and
behind it are graphs of their own, and the line stays Python. So such a module runs under ``torch.compile``
with EGG's backend and a store of its own (:mod:`egg.modules.backend`), and the original's operators answer
where there is no kernel.
"""

from __future__ import annotations

import copy
import html
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from egg.modules.backend import Backend
from egg.modules.fallback import EAGER
from egg.modules.fast import GRADIENTS, Stats
from egg.modules.state import KeptValues, Snapshot
from egg.modules.structure import flatten
from egg.modules.twin import Twin
from egg.store import Entry, Rejected, Store, Tuned

log = logging.getLogger("egg")


@dataclass(frozen=True)
class PartsOutcome:
    """What is known of each part, and why the module is not one program."""

    reason: str
    entries: tuple[Entry, ...]
    folder: str
    """The store that the parts are in."""

    @property
    def verdict(self) -> str:
        """``faster`` where a kernel for a part is, ``unmeasured`` where one is verified, or ``original``."""
        kernels = [entry.state for entry in self.entries if isinstance(entry.state, Tuned)]
        if not kernels:
            return "original"
        return "faster" if any(state.measured for state in kernels) else "unmeasured"

    def rows(self) -> list[tuple[str, str]]:
        """The outcome of each part as text, one line each."""
        found = [("verdict", self.verdict), ("in parts", self.reason)]
        found += [(f"part {number}", _outcome(entry)) for number, entry in enumerate(self.entries, 1)]
        return [*found, ("store", self.folder)]

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


class OptimizedParts(Twin):
    """A drop-in for the module it was made from. See ``result`` and ``stats()``."""

    def __init__(
        self, original: nn.Module, reason: str, folder: Path, dynamic: bool | None, use_unmeasured: bool
    ) -> None:
        super().__init__(original)
        self.__dict__["_made_from"] = (original, reason, folder, dynamic, use_unmeasured)
        self.__dict__["_backend"] = Backend()
        self.__dict__["_gradients"] = Counter[str]()
        self.__dict__["_run"] = compiled(original, self._backend, folder, dynamic, use_unmeasured)

    @property
    def result(self) -> PartsOutcome:
        """What the kernels are worth, part by part."""
        _, reason, folder, _, _ = self._made_from
        return PartsOutcome(reason, Store(folder, log.warning).entries(), str(folder))

    def stats(self) -> Stats:
        """Who answered the calls of parts so far."""
        rows = self._backend.graphs
        reasons = Counter[str](self._gradients)
        for row in rows:
            if row.counts.fallback:
                reasons[row.reason or "it was not tuned at these sizes"] += row.counts.fallback
        failure = next((row.counts.failure for row in rows if row.counts.failure), "")
        kernel = sum(row.counts.kernel for row in rows)
        return Stats(kernel, sum(reasons.values()), dict(reasons.most_common()), failure)

    def save(self, folder: str | Path) -> Path:
        """Keep the kernels, for ``egg.load`` or as a store of ``torch.compile(backend="egg")``."""
        place = Path(folder)
        kept = Store(Path(self.result.folder), log.warning)
        Store(place, log.warning).take_in(kept, kept.entries())
        return place

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled() and self._trains(args, kwargs):
            self._gradients[GRADIENTS] += 1
            return self.original(*args, **kwargs)
        return self._run(*args, **kwargs)

    def _trains(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        leaves, _ = flatten((tuple(args), dict(kwargs)))
        tensors = (leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
        return any(tensor.requires_grad for tensor in (*tensors, *self.original.parameters()))

    def __repr__(self) -> str:
        return f"OptimizedParts({self.original!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> OptimizedParts:
        original, *others = self._made_from
        return OptimizedParts(copy.deepcopy(original, memo), *others)

    def __reduce__(self) -> tuple[Any, ...]:
        return OptimizedParts, self._made_from


def compiled(
    module: nn.Module, backend: Backend, folder: Path, dynamic: bool | None, use_unmeasured: bool
) -> Callable[..., Any]:
    """The module under ``torch.compile``, with the original's own operators where there is no kernel."""
    options = {"store": str(folder), "fallback": EAGER, "unmeasured": use_unmeasured}
    return torch.compile(module, backend=backend, options=options, dynamic=dynamic)


def record(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], folder: Path, dynamic: bool | None
) -> Backend:
    """Run the module once, on copies, with what it computes between its breaks going into the store."""
    backend, before = Backend(), Snapshot(module)
    leaves, form = flatten((tuple(args), dict(kwargs)))
    copies = [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    given, named = form.built(copies)
    try:
        with KeptValues(module), torch.no_grad():
            compiled(module, backend, folder, dynamic, False)(*given, **named)
    finally:
        before.restore()
    return backend


def _outcome(entry: Entry) -> str:
    state = entry.state
    if isinstance(state, Rejected):
        return f"{entry.name}: the original ({state.reason})"
    if not isinstance(state, Tuned):
        return f"{entry.name}: the original (not tuned)"
    times = ", ".join(f"{found.median:.2f}x over {name}" for name, found in state.speedups.items())
    return f"{entry.name}: a verified kernel, {times or 'not measured: there was no GPU'}"

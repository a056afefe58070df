"""The forms of one compiled graph, timed on its own calls: the fastest one stays.

A region that is faster by itself need not make the model faster: what the compiler fused across its border
is lost. And where launches take the host longer than the GPU needs to run them, a CUDA graph of the whole
gains more than any kernel. So the first calls of a model take turns between its forms, each call computed
once, by one of them, and timed by the GPU's own clock. A form that does more stays where it is faster than
those that do less, beyond the noise; otherwise it is rolled back. The verdict is kept in the store, so that a
later process compiles one form alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

Call = Callable[..., Any]
WARM, ROUNDS = 3, 10
"""Calls of each form that are not timed, and that are."""
LEAST_GAIN = 0.01


@dataclass(frozen=True)
class Form:
    """How a graph runs."""

    kernels: bool = False
    """With the store's kernels in the places of its layers."""
    replayed: bool = False
    """As a CUDA graph. Not together with kernels: what they keep beside the weights must outlive a replay."""

    def __str__(self) -> str:
        return f"{'with' if self.kernels else 'without'} kernels{', replayed' if self.replayed else ''}"


PLAIN, KERNELS, REPLAYED = Form(), Form(kernels=True), Form(replayed=True)
FORMS = (PLAIN, KERNELS, REPLAYED)
"""Those that do more come later."""

Decided = Callable[[Form, float], None]
"""What is done with the form that stays, and with how many times faster than the plain one it is."""


class Trial:
    """Answers calls with one of several forms, and with the fastest one once that is known."""

    def __init__(self, forms: Mapping[Form, Call], decided: Decided) -> None:
        self._forms = {form: forms[form] for form in FORMS if form in forms}
        self._decided = decided
        self._times: dict[Form, list[Any]] = {form: [] for form in self._forms}
        self._chosen: Call | None = None

    def __call__(self, *args: Any) -> Any:
        if self._chosen is not None:
            return self._chosen(*args)
        form = min(self._times, key=lambda form: len(self._times[form]))
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        try:
            made = self._forms[form](*args)
        except torch.OutOfMemoryError:
            if form == PLAIN:
                raise
            del self._forms[form], self._times[form]
            torch.cuda.empty_cache()
            return self._forms[PLAIN](*args)
        end.record()
        if form == PLAIN and not self._times[form] and shares_memory(args, made):
            self._forms.pop(REPLAYED, None)
            self._times.pop(REPLAYED, None)
        self._times[form].append((start, end))
        if all(len(times) == WARM + ROUNDS for times in self._times.values()):
            self._decide()
        return made

    def _decide(self) -> None:
        torch.cuda.synchronize()
        times = {
            form: [start.elapsed_time(end) for start, end in events[WARM:]]
            for form, events in self._times.items()
        }
        chosen = fastest(times)
        self._chosen = self._forms[chosen]
        self._forms = {chosen: self._chosen}
        self._times = {}
        self._decided(chosen, median(times[PLAIN]) / median(times[chosen]))


def fastest(times: Mapping[Form, list[float]]) -> Form:
    """The last form that is faster than the one kept before it, beyond the noise."""
    kept = PLAIN
    for form in FORMS[1:]:
        if form in times and faster(times[form], times[kept]):
            kept = form
    return kept


def faster(form: list[float], other: list[float]) -> bool:
    """Beyond the noise, which is how far the upper quartile of either lies above its median."""
    noise = max(_quartile(times) / median(times) - 1 for times in (form, other))
    return median(other) / median(form) > 1 + max(noise, LEAST_GAIN)


def shares_memory(args: Any, made: Any) -> bool:
    """Whether a result lies in the memory of an argument or of another result: a copy of it would not."""
    given, results = (
        [leaf.untyped_storage().data_ptr() for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
        for values in (args, made)
    )
    held = [place for place in results if place]
    return len(set(held)) < len(held) or not set(held).isdisjoint(given)


def owned(call: Call) -> Call:
    """A replayed graph, whose results the caller keeps: a replay writes them to the same places again."""

    def run(*args: Any) -> Any:
        return tree_map_only(torch.Tensor, torch.clone, call(*args))

    return run


def _quartile(times: list[float]) -> float:
    return sorted(times)[(3 * len(times)) // 4]

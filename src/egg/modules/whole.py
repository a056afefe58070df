"""A whole graph that was tuned, in the form that is fastest.

The forms (:mod:`egg.modules.trial`) share what is compiled: Inductor's code for the graph, and for the graph
with kernels in the places of its layers, serves with replay and without; run operator by operator there is
nothing to compile. The verdict of a trial is kept under the graph, its inputs, the kernels, the versions and
the GPU, so that the next process compiles the form that stays and no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from egg import __version__
from egg.modules.counts import Call
from egg.modules.fallback import INDUCTOR, Eagerly, Fallback, running
from egg.modules.graph_text import graph_text
from egg.modules.lookup import Graph, Lookup, counting, store_errors
from egg.modules.replay import Replayed
from egg.modules.replayable import Inputs, replayable
from egg.modules.trial import FORMS, PLAIN, Form, Trial, Verdict
from egg.store import Assembly, Store, Tuned, assembly_name, package_version

if TYPE_CHECKING:
    from egg.modules.layer_calls import Layer
    from egg.modules.regions import Region


@dataclass(frozen=True)
class Kernels:
    """The kernels of the store for layers of a graph, ready to be called."""

    placed: Mapping[Region, str] = field(default_factory=dict)
    """The key of the kernel for every layer that has one."""
    table: Mapping[str, Layer] = field(default_factory=dict)
    rows: Sequence[Graph] = ()
    """Of what kernels answer."""


@dataclass(frozen=True)
class Whole:
    """A graph of Dynamo, and the kernels of the store for layers of it."""

    graph: fx.GraphModule
    inputs: Sequence[Any]
    keys: Sequence[str]
    """Of all entries that were tuned."""
    available: Sequence[str]
    """Keys of those that have a kernel for layers of the graph."""
    rows: Sequence[Graph]
    """Of what the fallback answers; the first is that of the graph."""
    replay: Inputs
    lookup: Lookup
    fallback: Fallback
    kernels: Kernels = field(default_factory=Kernels)
    """Those that are ``available``; none where the verdict does without."""

    @cached_property
    def call(self) -> Call:
        """What answers the graph."""
        return counting(self._known() or self._tried(), self.rows)

    @cached_property
    def verdict(self) -> Assembly | None:
        """Of an earlier trial."""
        return self.lookup.store.assembly(self._name)

    @property
    def with_kernels(self) -> bool:
        """Whether kernels are needed: there are some, and no verdict to do without."""
        return bool(self.available) and (self.verdict is None or self.verdict.faster)

    def _known(self) -> Call | None:
        """In the form that an earlier trial found fastest."""
        known = self.verdict
        if known is None:
            return None
        form = Form(known.faster, known.eager, known.replayed)
        row = self.rows[0]
        row.reason += _words(form, known.ratio, known.milliseconds)
        row.milliseconds = dict(known.milliseconds)
        return self._compiled([form])[0][form]

    def _tried(self) -> Call:
        """In the form that the first calls find fastest; without a GPU or a choice, with the kernels.

        Where Inductor fails its code is no form, and the graph operator by operator the simplest one. The
        verdict then says so, and a later process does not ask Inductor again.
        """
        if len(self._forms) == 1 or not any(on_gpu(value) for value in self.inputs):
            form = Form(kernels=bool(self.available))
            return self._compiled([form])[0][form]
        calls, failed = self._compiled(self._forms)
        possible = {form: call for form, call in calls.items() if form not in failed}
        if len(possible) == 1:
            ((form, call),) = possible.items()
            self._keep(failed, Verdict(form, {}, {}))
            return call
        self.rows[0].pending = True
        return Trial(possible, partial(self._keep, failed))

    def _keep(self, failed: Mapping[Form, Eagerly], verdict: Verdict) -> None:
        """Note the verdict; in the store, too, unless it rests on what this machine lacks today."""
        row, form = self.rows[0], verdict.form
        ratio = verdict.ratio if verdict.times else 1.0
        times = {str(tried): median(found) for tried, found in verdict.times.items()}
        row.reason += _words(form, ratio, times)
        row.milliseconds, row.pending = times, False
        reasons = {form: base.reason for form, base in failed.items()} | dict(verdict.given_up)
        row.given_up = {str(tried): reason for tried, reason in reasons.items()}
        if not all(base.lasting for base in failed.values()):
            return
        kept = Assembly(form.kernels, ratio, tuple(sorted(self.available)), form.replayed, form.eager, times)
        with store_errors(self.lookup.notice):
            self.lookup.store.assembled(self._name, kept)

    # -- forms -------------------------------------------------------------------------------------

    @property
    def _forms(self) -> list[Form]:
        """Those that are possible. Another fallback than Inductor was chosen by the caller, and stays."""
        return [
            form
            for form in FORMS
            if (self.available or not form.kernels)
            and (self.fallback.name == INDUCTOR or not form.eager)
            and not (form.replayed and self.replay.obstacle)
        ]

    def _compiled(self, forms: Sequence[Form]) -> tuple[dict[Form, Call], dict[Form, Eagerly]]:
        """Forms as calls, and those of them that Inductor failed to compile."""
        made: dict[Form, Call] = {}
        for form in forms:
            base = replace(form, replayed=False)
            if base not in made:
                made[base] = self._unreplayed(form)
        bases = {form: made[replace(form, replayed=False)] for form in forms}
        failed = {form: base for form, base in bases.items() if isinstance(base, Eagerly)}
        return {form: self._replayed(form, base) for form, base in bases.items()}, failed

    def _unreplayed(self, form: Form) -> Call:
        graph = self._with_kernels if form.kernels else self.graph
        return running(graph) if form.eager else self.fallback.now(graph, self.inputs)

    def _replayed(self, form: Form, call: Call) -> Call:
        if not form.replayed:
            return call
        return Replayed(call, self.replay, [row.counts for row in self.kernels.rows] if form.kernels else ())

    @cached_property
    def _with_kernels(self) -> fx.GraphModule:
        from egg.modules.layer_calls import replaced

        return replaced(self.graph, list(self.kernels.placed.items()), self.kernels.table)

    # -- the key of the verdict --------------------------------------------------------------------

    @cached_property
    def _name(self) -> str:
        """Other kernels, inputs, options, versions or another GPU: another verdict."""
        store, fallback = self.lookup.store, self.fallback
        kernels = [_kernel(store, key) for key in sorted(self.available)]
        options = [fallback.name, str(fallback.mode), repr(sorted(fallback.options.items()))]
        versions = [str(torch.__version__), package_version("triton"), __version__]
        gpus = {torch.cuda.get_device_name(value.device) for value in self.inputs if on_gpu(value)}
        terms = [*sorted(self.keys), *kernels, *options, str(self.lookup.chosen.replay), *versions]
        return assembly_name(graph_text(self.graph.graph), [*terms, *sorted(gpus), *map(_form, self.inputs)])


def replay_inputs(
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    lookup: Lookup,
    fallback: Fallback,
    known: Inputs | None = None,
) -> Inputs:
    """How a graph is replayed; the options and the graph decide whether it may be.

    ``known``: what an earlier process found in the graph.
    """
    if not (lookup.chosen.replay and fallback.replays):
        return Inputs(obstacle="the options exclude it")
    if any(isinstance(value, torch.SymInt) for value in inputs):
        return Inputs(obstacle="its sizes are free")
    return known or replayable(graph, inputs)


def _kernel(store: Store, key: str) -> str:
    entry = store.get(key)
    return entry.state.kernel if entry is not None and isinstance(entry.state, Tuned) else ""


def _form(value: Any) -> str:
    """An input: sizes that are free have other names in every process."""
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    sizes = (value.shape, value.stride())
    if any(isinstance(size, torch.SymInt) for found in sizes for size in found):
        return f"{value.dtype} of {value.dim()}"
    return f"{value.dtype} {tuple(value.shape)} {value.stride()}"


def _words(form: Form, ratio: float, times: Mapping[str, float]) -> str:
    """What stays, beside the simplest form; nothing was timed where Inductor fails and no other is left."""
    if not times:
        return f"; {form}"
    simplest = "Inductor's" if str(PLAIN) in times else "eager, Inductor fails"
    return f"; {form}: {ratio:.2f}x of {simplest}"


def on_gpu(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_cuda

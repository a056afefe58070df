"""The candidate's instance and the memory it is called with: attached, loaded, built anew, given weights."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from egg.core.policy import Precision
from egg.evaluator.offline.target import GpuTarget
from egg.evaluator.restrict.integrity import Snapshot
from egg.evaluator.task.attributes import attributes_of, shown
from egg.evaluator.task.precision import HALF_DTYPES, precision_scope
from egg.evaluator.task.signature import signature_of
from egg.evaluator.transport import arena as arenas
from egg.evaluator.transport import exchange, protocol
from egg.evaluator.worker import contenders, hostreads, pretend
from egg.evaluator.worker.held import parameters_of, parts_of, state_of
from egg.evaluator.worker.importing import import_candidate
from egg.evaluator.worker.inputs import Inputs
from egg.evaluator.worker.instance import Instance
from egg.evaluator.worker.outputs import as_bytes
from egg.evaluator.worker.rewriting import rewrite
from egg.evaluator.worker.settings import LeftChanged, process_unchanged

GPU = "cuda"
"""A file without this word builds its module on the CPU."""
MODES = ("grad", "inference")
"""A file without these words cannot switch grad mode, which does not show where it is off already."""


class Holding(Instance):
    """Requests that change what the process holds."""

    def on_attach(self, asked: protocol.Attach, fds: list[int]) -> None:
        if asked.second and self._arena is not None and self._inputs is not None:
            self._main = (self._arena, self._inputs)
        self._arena = arenas.attach(asked.handle, fds)
        self._inputs = Inputs(self._arena, self._device)

    def on_detach(self, asked: protocol.Detach) -> None:
        """Back from a second memory; weights that lay there are not loaded again."""
        assert self._arena is not None
        assert self._main is not None
        self._kept, self._held, self._loaded = [], [], None
        self._arena.close()
        (self._arena, self._inputs), self._main = self._main, None

    def on_load(self, asked: protocol.Load) -> protocol.Built:
        """Import the candidate and build ``ModelNew`` as KernelBench builds it."""
        if asked.target is not None and os.environ.get("TRITON_INTERPRET") == "1":
            pretend.answer_for(GpuTarget.of(asked.target))
            hostreads.watch_methods()
            self._pretence = pretend.ClaimCuda()
        self._restricted, self._writes = asked.restricted, asked.writes
        self._init = exchange.unwhole(asked.init)
        policy = Precision(asked.precision)
        precision_scope(policy).__enter__()  # for the rest of this process's life
        self._dtype = HALF_DTYPES.get(policy)
        imported: list[Any] = []

        def construct(candidate: Any, *, grad_mode: bool = False) -> nn.Module:
            args, kwargs = self._init
            torch.manual_seed(asked.seed)
            with torch.set_grad_enabled(grad_mode), self._pretence, process_unchanged("the constructor"):
                return candidate.ModelNew(*args, **kwargs)

        def make() -> nn.Module:
            if not imported:
                with process_unchanged("the import"):
                    imported.append(import_candidate(asked.source, restricted=asked.restricted))
                if any(word in asked.source for word in MODES):
                    _rehearse(partial(construct, imported[0], grad_mode=True))
            on_cpu = self._off_device() if GPU not in asked.source else nullcontext()
            with on_cpu:
                made = construct(imported[0])
            return self._settled(made)

        self._make, self._construct = make, construct
        self._before_import = Snapshot()
        return self.on_fresh(protocol.Fresh()) if asked.build else protocol.Built({}, ())

    def on_integrity(self, asked: protocol.Integrity) -> protocol.Patched:
        """Name what the candidate patched in this process, if anything."""
        return protocol.Patched(
            tuple(self._before_import.changed()) if self._before_import is not None else ()
        )

    def on_contenders(self, asked: protocol.Contenders) -> protocol.Ranked:
        """Load other files beside the candidate, with its weights, and let all of them run once."""
        module = self._module
        assert module is not None
        state = state_of(module)
        weights = {name: state[name] for name in (self._loaded.names if self._loaded else ())}
        arguments = self._arguments(asked.inputs, asked.slots)
        torch.manual_seed(asked.seed)
        builders = [
            partial(self._contender, source, number, weights) if source is not None else None
            for number, source in enumerate(asked.sources)
        ]
        (_, *self._contenders), (_, *unfit) = contenders.loaded(
            [lambda: module, *builders],
            partial(self._call_here, arguments),
            asked.threads,
            self._off_device,
        )
        self._synchronize()
        self._give_back(asked.slots)
        return protocol.Ranked(tuple(unfit))

    def _contender(self, source: str, number: int, weights: dict[str, torch.Tensor]) -> nn.Module:
        assert self._construct is not None
        module = import_candidate(source, f"contender_{number}", restricted=self._restricted)
        return contenders.sharing(weights, partial(self._construct, module), self._settled)

    def on_fresh(self, asked: protocol.Fresh) -> protocol.Built:
        """A new instance, as if the process had just started, with the weights last loaded.

        Or with other arguments, or in another dtype: then with the weights that it makes itself.
        """
        assert self._make is not None
        self._kept, self._held, self._module = [], [], None
        usual = (self._init, self._dtype)
        if asked.init is not None or asked.precision is not None or asked.wide:
            self._loaded = None
            self._init = exchange.unwhole(asked.init) if asked.init is not None else self._init
            if asked.precision is not None:
                self._dtype = HALF_DTYPES.get(Precision(asked.precision))
            self._dtype = torch.float64 if asked.wide else self._dtype
        try:
            self._module = self._make()
        finally:
            self._init, self._dtype = usual
        state = state_of(self._module)
        if self._loaded is not None and not asked.as_built:
            self.on_weights(self._loaded)
        described = {name: protocol.TensorForm(tuple(t.shape), str(t.dtype)) for name, t in state.items()}
        return protocol.Built(described, tuple(parameters_of(self._module)), signature_of(self._module))

    def on_weights(self, asked: protocol.Weights) -> None:
        """Load weights the way a user would: ``load_state_dict``, so that hooks and versions see it.

        Or change them as other code does, which a hook does not see.
        """
        assert self._module is not None
        self._loaded = replace(asked, how=protocol.Written.LOADED, only="")
        chosen = {own: theirs for own, theirs in asked.names.items() if asked.only in ("", theirs)}
        state = {own: self._view(asked.slots[theirs]).clone() for own, theirs in chosen.items()}
        if asked.how is protocol.Written.LOADED:
            self._module.load_state_dict(state, strict=False)
        else:
            rewrite(self._module, state, asked.how)

    @torch.no_grad()
    def on_unsaved(self, asked: protocol.Unsaved) -> None:
        assert self._module is not None
        held = state_of(self._module, persistent=False)
        for name, slot in asked.slots.items():
            if name in held and held[name].shape == slot.shape:
                held[name].copy_(self._view(slot))

    def on_switch(self, asked: protocol.Switch) -> protocol.Switched:
        assert self._module is not None
        part = dict(parts_of(self._module)).get(f"{asked.part}.")
        if part is not None:
            part.train(not part.training)
        return protocol.Switched(part is not None)

    def on_show(self, asked: protocol.Show) -> protocol.Attributes:
        """Plain attributes, as the last call left them."""
        assert self._module is not None
        held = attributes_of(self._module)
        found = ((name, shown(held.get(name), asked.seed)) for name in asked.names)
        return protocol.Attributes(tuple(protocol.Attribute(n, *value) for n, value in found if value))

    def on_state(self, asked: protocol.State) -> None:
        """Copy the module's own parameters and buffers out, for comparison."""
        assert self._module is not None
        state = state_of(self._module)
        for own, theirs in asked.names.items():
            as_bytes(self._view(asked.slots[theirs])).copy_(as_bytes(state[own]))
        self._synchronize()


def _rehearse(construct: Callable[[], nn.Module]) -> None:
    """Build a module under grad mode, for what the constructor leaves in the process. A constructor that
    raises there is no fault: modules are built without it."""
    try:
        construct()
    except LeftChanged:
        raise
    except Exception:
        return

"""The two sides of a task, and every call that is put to both of them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from benchmarks.domain.answers import answered, differences, exact, other_strides
from benchmarks.domain.calls import Call, Kind, Signatures, as_claimed
from benchmarks.domain.doubts import Doubt
from benchmarks.domain.outcomes import Outcome, Report, Tried, brief, ended, failed, unreported
from egg.core.domain import Domain
from egg.core.policy import Precision
from egg.evaluator.task.precision import precision_scope

BUILD_SEED = 42


@dataclass
class Sides:
    """The reference and the kernel file of one task, and every pair of modules that was built of them.

    A pair is kept for all calls with the same constructor arguments: what a module remembers of one call
    (packed weights, a recorded launch, a signature that passed its guard) must not spoil the next. Both
    sides begin with the same state and see the same calls, so their buffers must agree after each.
    """

    reference: type[nn.Module]
    candidate: type[nn.Module]
    signatures: Signatures
    domain: Domain | None
    device: torch.device
    precision: Precision = Precision.MATCH
    slowest: float = 0.0
    """Seconds of the longest call so far."""
    last: Tried = field(default_factory=lambda: Tried("", "", Outcome.SKIPPED))
    """How the last call ended."""
    report: Report = unreported
    """Receives what is being done, should the process die of it."""
    fatal: Collection[str] = ()
    """Calls of which a process died while the reference was asked, as :func:`described`."""
    _pairs: dict[str, Pair] = field(default_factory=dict)
    _built_sizes: dict[str, dict[str, int]] = field(default_factory=dict)

    def settle(self, call: Call) -> None:
        """Sizes that follow from the constructor are, for these arguments, those of this call."""
        if self.domain is not None:
            known = self.domain.built(as_claimed(call, self.signatures, train=True))
            self._built_sizes.setdefault(_arguments(call), known)

    def tried(self, call: Call) -> Tried:
        started = time.perf_counter()
        with warnings.catch_warnings(), precision_scope(self.precision):
            warnings.simplefilter("ignore")
            if call.reweigh and self._used(call) is None:
                self._compared(replace(call, reweigh=False))
            found = self._compared(call)
        seconds = time.perf_counter() - started
        self.slowest = max(self.slowest, seconds)
        found = replace(
            found,
            kind=call.kind.value,
            name=call.name,
            detail=found.detail[:300],
            outside=self._outside(call),
            seconds=seconds,
        )
        if found.outcome not in (Outcome.RIGHT, Outcome.INEXACT):
            self._pairs.pop(_key(call), None)
        self.last = found
        return found

    def _outside(self, call: Call) -> str | None:
        """Why the file's domain leaves a call out; ``None`` where it states none."""
        if self.domain is None:
            return None
        train = call.train
        if train is None:
            pair = self._pairs.get(_key(call))
            train = pair is None or pair.reference.training
        self.settle(call)
        return self.domain.outside(
            as_claimed(call, self.signatures, train), self._built_sizes[_arguments(call)]
        )

    def refuses(self, call: Call) -> str:
        """Why the reference does not take a call; empty where it does. No module that is compared later
        takes part, so its buffers stay as they are. Of a call that costs the device the process ends here,
        and the next one knows it."""
        what = described(call)
        if what in self.fatal:
            return "a process died of it"
        self.report({"asking": what})
        why = ""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                answered(self._built(self.reference, call), call)
                self.synchronise()
        except Exception as error:
            if self.lost():
                raise DeviceLost(brief(error)) from error
            why = brief(error)
        self.report({"asking": None})
        return why

    def synchronise(self) -> None:
        """Errors of a GPU arrive later than the call that they come from."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def lost(self) -> bool:
        """Whether the device answers no more: an illegal access or an assertion costs the whole context."""
        try:
            self.synchronise()
        except RuntimeError:
            return True
        return False

    def _compared(self, call: Call) -> Tried:
        self.report({"side": "reference"})
        try:
            pair = self._pair(call)
            golden = exact(pair.reference, call)
            wanted = answered(pair.reference, call)
            self.synchronise()
        except Exception as error:
            return ended(Outcome.SKIPPED, f"the reference refuses: {brief(error)}")
        self.report({"side": "file"})
        try:
            got = answered(self._candidate(pair, call), call)
            self.synchronise()
        except Exception as error:
            return failed(error)
        try:
            found = differences(call, got, wanted, None if wanted.drew else golden, self.precision)
        except RuntimeError as error:
            if not self.lost():
                raise
            return ended(Outcome.SKIPPED, f"the reference's own backward: {brief(error)}")
        if found is not None and wanted.drew and call.kind is Kind.LAYOUT:
            return ended(Outcome.SKIPPED, "random numbers are dealt out in the order of memory")
        if found is not None:
            modules = pair.reference, self._candidate(pair, call)
            found = Doubt(call, *modules, got, wanted, self.precision).settled(found)
        if found is not None:
            return ended(found.outcome, found.detail)
        _agree(wanted.module, got.module)
        stated = self.domain.outputs if self.domain is not None else ()
        strides = other_strides(got.outputs, wanted.outputs, stated)
        return replace(ended(Outcome.RIGHT, strides), layout=not strides)

    def _used(self, call: Call) -> nn.Module | None:
        """The file's module, where it was called before."""
        pair = self._pairs.get(_key(call))
        return pair.candidate if pair is not None else None

    # -- modules -------------------------------------------------------------------------------------

    def _pair(self, call: Call) -> Pair:
        pair = self._pairs.setdefault(_key(call), Pair(self._built(self.reference, call)))
        if call.reweigh:
            for module in (pair.reference, pair.candidate):
                _reweigh(module)
        return pair

    def _candidate(self, pair: Pair, call: Call) -> nn.Module:
        if pair.candidate is None:
            pair.candidate = self._built(self.candidate, call)
            pair.candidate.load_state_dict(pair.before)
            pair.before = {}
        return pair.candidate

    def _built(self, kind: type[nn.Module], call: Call) -> nn.Module:
        torch.manual_seed(BUILD_SEED)
        with torch.no_grad():
            made = kind(**call.arguments)
        made = made.to(device=self.device, dtype=call.dtype)
        return made if call.train is None else made.train(call.train)


class DeviceLost(Exception):
    """The reference cost the process its device."""


class Pair:
    """The reference's module, and the file's, which is built at its first use."""

    def __init__(self, reference: nn.Module) -> None:
        self.reference = reference
        self.candidate: nn.Module | None = None
        self.before = {name: held.detach().clone() for name, held in reference.state_dict().items()}
        """What the file's module begins with; the reference's own may have changed by then."""


def _arguments(call: Call) -> str:
    return repr(sorted(call.arguments.items(), key=lambda item: item[0]))


def _key(call: Call) -> str:
    return f"{_arguments(call)} {call.dtype} {call.train}"


def described(call: Call) -> str:
    """What distinguishes a call from the others of its task: arguments, numbers, and the tensors' forms."""

    def form(held: Any) -> Any:
        if not isinstance(held, torch.Tensor):
            return held
        return str(held.dtype), list(held.shape), list(held.stride()), held.storage_offset()

    inputs = [form(held) for held in call.inputs]
    named = {name: form(held) for name, held in call.named.items()}
    return f"{_key(call)} {inputs} {named}"


def _agree(reference: nn.Module, candidate: nn.Module) -> None:
    """Buffers that differ by a rounding are made equal, or many calls would add their roundings up."""
    held = dict(candidate.named_buffers())
    with torch.no_grad():
        for name, buffer in reference.named_buffers():
            if name in held and not torch.equal(held[name], buffer):
                held[name].copy_(buffer)


def _reweigh(module: nn.Module | None) -> None:
    with torch.no_grad():
        for parameter in module.parameters() if module is not None else ():
            if parameter.is_floating_point():
                parameter.mul_(1.5)

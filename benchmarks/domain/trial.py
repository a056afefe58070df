"""Both sides of one call, compared: the reference, as it is and in fp64, and the kernel file.

Right is what the judge's own rule calls right (:mod:`egg.evaluator.compare`). What misses that rule and still
agrees with the reference as closely as KernelBench asks, or as TF32 products do, or nearly as the rule asks,
is ``inexact``: another rounding, no wrong answer. (A file for a GPU takes TF32 where PyTorch would there, and
a CPU has none.)
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import torch
from torch import nn

from benchmarks.domain.calls import Call, Kind, Signatures, module_sizes, outside
from egg.core.domain import Domain
from egg.core.policy import Precision
from egg.evaluator.compare import compare
from egg.evaluator.interpreter import KernelFault
from egg.evaluator.task.program import double_scope, map_tensors, outputs_of, precision_scope, to_double

BUILD_SEED, FORWARD_SEED = 42, 1234
NEAR = 4.0
"""Times what is allowed up to which an answer is another rounding: what is read wrongly is wrong by more."""
MEMORY_FAULTS = ("illegal memory access", "misaligned address", "CUDA error", "device-side assert")


class Outcome(StrEnum):
    RIGHT = "right"
    INEXACT = "inexact"
    ERROR = "error"
    """An ordinary exception."""
    WRONG = "wrong"
    """Another answer than the reference's, and no exception."""
    CRASH = "crash"
    """Memory that is not the kernel's, a race, a dead process, or no end."""
    SKIPPED = "skipped"
    """The reference itself refuses, or cannot be judged here."""


@dataclass(frozen=True)
class Tried:
    """How one call ended."""

    kind: str
    name: str
    outcome: Outcome
    detail: str = ""
    outside: str | None = None
    """Why the file's domain leaves the call out; empty where it claims it, ``None`` where it states none."""
    layout: bool = True
    """Whether outputs have the reference's strides."""
    seconds: float = 0.0
    error: str = ""
    """The exception's type."""

    @property
    def claimed(self) -> bool:
        """An error at a call that the file says it answers."""
        return self.outcome is Outcome.ERROR and self.outside == ""

    def to_json(self) -> dict[str, Any]:
        held = {name: value for name, value in vars(self).items() if value not in ("", None)}
        return held | {"outcome": self.outcome.value, "seconds": round(self.seconds, 3)} | self._outside()

    def _outside(self) -> dict[str, str]:
        return {} if self.outside is None else {"outside": self.outside}

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Tried:
        return cls(**{**data, "outcome": Outcome(data["outcome"])})


@dataclass(frozen=True)
class Answer:
    """What a side returned, and what the call did to its module and inputs."""

    outputs: list[tuple[str, Any]]
    buffers: list[tuple[str, Any]]
    inputs: list[tuple[str, Any]]
    module: nn.Module
    leaves: list[torch.Tensor]
    """Tensors that a gradient was asked of."""
    drew: bool
    """Whether it drew random numbers, which an fp64 run would draw otherwise."""


@dataclass(frozen=True)
class Exact:
    """What an fp64 run returned, and its buffers after it."""

    outputs: list[tuple[str, Any]]
    buffers: list[tuple[str, Any]]


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
    _pairs: dict[str, Pair] = field(default_factory=dict)
    _module_sizes: dict[str, dict[str, int]] = field(default_factory=dict)

    def tried(self, call: Call) -> Tried:
        started = time.perf_counter()
        with warnings.catch_warnings(), precision_scope(self.precision):
            warnings.simplefilter("ignore")
            if call.reweigh and self._used(call) is None:
                self._compared(replace(call, reweigh=False))
            ended = self._compared(call)
        seconds = time.perf_counter() - started
        self.slowest = max(self.slowest, seconds)
        ended = replace(
            ended,
            kind=call.kind.value,
            name=call.name,
            detail=ended.detail[:300],
            outside=self._outside(call),
            seconds=seconds,
        )
        if ended.outcome not in (Outcome.RIGHT, Outcome.INEXACT):
            self._pairs.pop(_key(call), None)
        self.last = ended
        return ended

    def _outside(self, call: Call) -> str | None:
        """Why the file's domain leaves a call out; ``None`` where it states none."""
        if self.domain is None:
            return None
        train = call.train
        if train is None:
            pair = self._pairs.get(_key(call))
            train = pair is None or pair.reference.training
        return outside(self.domain, call, self.signatures, train) or self._unlike_module(call)

    def _unlike_module(self, call: Call) -> str:
        """A domain cannot say what a module's sizes are; the first call with its arguments did."""
        assert self.domain is not None
        key = repr(sorted(call.arguments.items(), key=lambda item: item[0]))
        seen = module_sizes(self.domain, call, self.signatures)
        known = self._module_sizes.setdefault(key, seen)
        return "" if seen == known else f"the module has {known}, the call {seen}"

    def refuses(self, call: Call) -> str:
        """Why the reference does not take a call; empty where it does. No module that is compared later
        takes part, so its buffers stay as they are."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                answered(self._built(self.reference, call), call)
        except Exception as error:
            return brief(error)
        return ""

    def _compared(self, call: Call) -> Tried:
        try:
            pair = self._pair(call)
            golden = exact(pair.reference, call)
            wanted = answered(pair.reference, call)
        except Exception as error:
            return _ended(Outcome.SKIPPED, f"the reference refuses: {brief(error)}")
        try:
            got = answered(self._candidate(pair, call), call)
            if self.device.type == "cuda":
                torch.cuda.synchronize()
        except Exception as error:
            return failed(error)
        found = differences(call, got, wanted, None if wanted.drew else golden, self.precision)
        if found is not None and wanted.drew and call.kind is Kind.LAYOUT:
            return _ended(Outcome.SKIPPED, "random numbers are dealt out in the order of memory")
        if found is not None:
            return _ended(*found)
        _agree(wanted.module, got.module)
        return replace(_ended(Outcome.RIGHT), layout=_same_strides(got.outputs, wanted.outputs))

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


class Pair:
    """The reference's module, and the file's, which is built at its first use."""

    def __init__(self, reference: nn.Module) -> None:
        self.reference = reference
        self.candidate: nn.Module | None = None
        self.before = {name: held.detach().clone() for name, held in reference.state_dict().items()}
        """What the file's module begins with; the reference's own may have changed by then."""


def _key(call: Call) -> str:
    return repr((sorted(call.arguments.items(), key=lambda item: item[0]), call.dtype, call.train))


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


# -- one side ------------------------------------------------------------------------------------------


def answered(module: nn.Module, call: Call) -> Answer:
    """One forward on copies of the inputs, after the seed that both sides share."""
    inputs, named = call.fresh()
    given = [held for _, held in tensors_in([inputs, named])]
    leaves = [held for held in given if held.is_floating_point()] if call.gradient else []
    for held in leaves:
        held.requires_grad_(True)
    torch.manual_seed(FORWARD_SEED)
    before = _random_state()
    with torch.set_grad_enabled(call.gradient):
        outputs = outputs_of(module(*inputs, **named))
    drew = any(not torch.equal(a, b) for a, b in zip(before, _random_state(), strict=True))
    buffers = {name: held.detach().clone() for name, held in module.named_buffers()}
    return Answer(outputs, list(buffers.items()), tensors_in([inputs, named]), module, leaves, drew)


def _random_state() -> list[torch.Tensor]:
    used = torch.cuda.is_available() and torch.cuda.is_initialized()
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if used else [])]


def exact(module: nn.Module, call: Call) -> Exact | None:
    """What an fp64 run gives; ``None`` where there is none (a dtype fixed in code, random numbers)."""
    inputs, named = call.fresh()
    try:
        module64, inputs64 = to_double(module, [*inputs, named])
        torch.manual_seed(FORWARD_SEED)
        with double_scope(), torch.no_grad():
            outputs = outputs_of(module64(*inputs64[:-1], **inputs64[-1]))
        return Exact(outputs, list(module64.named_buffers()))
    except Exception:  # the reference's own run decides whether the call is one at all
        return None


def tensors_in(value: Any) -> list[tuple[str, torch.Tensor]]:
    found: list[torch.Tensor] = []
    map_tensors(value, lambda held: (found.append(held), held)[1])
    return [(str(at), held) for at, held in enumerate(found)]


# -- what differs --------------------------------------------------------------------------------------

Named = list[tuple[str, Any]]
Difference = tuple[Outcome, str]


def differences(
    call: Call, got: Answer, wanted: Answer, golden: Exact | None, precision: Precision
) -> Difference | None:
    """The first thing in which the sides differ: outputs, buffers, inputs they wrote to, gradients."""
    outputs, buffers = (golden.outputs, golden.buffers) if golden is not None else (None, None)
    found = _differ(got.outputs, wanted.outputs, outputs, precision, "output")
    found = found or _differ(got.buffers, wanted.buffers, buffers, precision, "buffer")
    found = found or _differ(got.inputs, wanted.inputs, None, precision, "input after the call")
    return found or (_gradients_differ(got, wanted, precision) if call.gradient else None)


def _differ(
    got: Named, wanted: Named, golden: Named | None, precision: Precision, what: str
) -> Difference | None:
    if [name for name, _ in got] != [name for name, _ in wanted]:
        return Outcome.WRONG, f"{what}: {len(got)} of them, not {len(wanted)}"
    exacts = golden if golden is not None and len(golden) == len(wanted) else wanted
    worst: Difference | None = None
    for (name, c), (_, r), (_, g) in zip(got, wanted, exacts, strict=True):
        one, two, three = map(torch.as_tensor, (c, r, g))
        found = _leaf_differs(one, two, three, precision)
        if found is not None and (worst is None or found[0] is Outcome.WRONG):
            worst = found[0], f"{what} {name}: {found[1]}"
            if found[0] is Outcome.WRONG:
                break
    return worst


def _leaf_differs(
    c: torch.Tensor, r: torch.Tensor, g: torch.Tensor, precision: Precision
) -> Difference | None:
    if c.shape != r.shape:
        return Outcome.WRONG, f"shape {list(c.shape)}, not {list(r.shape)}"
    if c.dtype != r.dtype:
        return Outcome.WRONG, f"{c.dtype}, not {r.dtype}"
    if not r.numel():
        return None
    c, r, g = (held.detach() for held in (c, r, g if g.shape == r.shape else r))
    if r.is_floating_point():
        alike = (c.isnan() & r.isnan()) | (c == r) & r.isinf()
        c, r, g = (held.masked_fill(alike, 0.0) for held in (c, r, g))
    error = compare(c, r, g, precision)
    if error.passed:
        return None
    told = error.problem or f"{max(error.max_ratio, error.rms_ratio):.3g} times what is allowed"
    told += f", relative error {error.relative:.2g}, the reference's own {error.reference_relative:.2g}"
    near = error.kernelbench or compare(c, r, g, Precision.TF32).passed
    near |= not error.problem and max(error.max_ratio, error.rms_ratio) < NEAR
    return (Outcome.INEXACT if near else Outcome.WRONG), f"{told}, shape {list(r.shape)}"


def _gradients_differ(got: Answer, wanted: Answer, precision: Precision) -> Difference | None:
    """Where the reference's outputs have gradients, the file's have the same or say that there are none."""
    pairs = [
        (c, r)
        for (_, c), (_, r) in zip(got.outputs, wanted.outputs, strict=True)
        if isinstance(r, torch.Tensor) and r.requires_grad
    ]
    if not pairs:
        return None
    if not all(c.requires_grad for c, _ in pairs):
        return Outcome.WRONG, "an output does not require a gradient, the reference's does"
    generator = torch.Generator().manual_seed(5)
    weights = [torch.randn(r.shape, generator=generator).to(r) for _, r in pairs]
    try:
        torch.autograd.backward([c for c, _ in pairs], weights)
    except Exception as error:
        return None if not _is_memory(error) else (Outcome.CRASH, f"backward: {brief(error)}")
    torch.autograd.backward([r for _, r in pairs], weights)
    sides = [_gradients(side) for side in (got, wanted)]
    lost = [name for name, held in sides[1].items() if held is not None and sides[0].get(name) is None]
    if lost:
        return Outcome.WRONG, f"no gradient arrives at {', '.join(lost[:3])}"
    named = [name for name, held in sides[1].items() if held is not None]
    found = [[(name, side[name]) for name in named] for side in sides]
    differ = _differ(found[0], found[1], None, precision, "gradient of")
    return None if differ is None or differ[0] is Outcome.INEXACT else differ


def _gradients(side: Answer) -> dict[str, torch.Tensor | None]:
    parameters = {name: held.grad for name, held in side.module.named_parameters()}
    inputs = {f"input {at}": held.grad for at, held in enumerate(side.leaves)}
    side.module.zero_grad(set_to_none=True)
    return parameters | inputs


def _same_strides(got: Named, wanted: Named) -> bool:
    pairs = zip(got, wanted, strict=True)
    return all(
        c.stride() == r.stride()
        for (_, c), (_, r) in pairs
        if isinstance(c, torch.Tensor) and isinstance(r, torch.Tensor) and r.numel() > 1
    )


# -- errors --------------------------------------------------------------------------------------------


def failed(error: Exception) -> Tried:
    """The file's own exception: an ordinary error, a memory fault, or what an interpreter cannot judge."""
    told = brief(error)
    if isinstance(error, KernelFault) and error.reason == "unsupported":
        return _ended(Outcome.SKIPPED, f"the interpreter cannot judge it: {told}")
    if isinstance(error, KernelFault) or _is_memory(error):
        return _ended(Outcome.CRASH, told)
    return replace(_ended(Outcome.ERROR, told), error=type(error).__name__)


def _is_memory(error: BaseException) -> bool:
    if isinstance(error, KernelFault):
        return error.reason != "unsupported"
    return any(words in str(error) for words in MEMORY_FAULTS)


def brief(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:260]


def _ended(outcome: Outcome, detail: str = "") -> Tried:
    return Tried("", "", outcome, detail)

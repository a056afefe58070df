"""What one call of a module does, noted in order: operators, whole functions of the library, launches.

Three seams, all inside the pretence of :mod:`egg.evaluator.offline`: a dispatch mode under everything sees
operators as they are dispatched; a function mode above sees functions of which the operators depend on the
device (a convolution, attention, a recurrent layer) and notes those as one step; ``JITFunction.run`` sees
with which tensors a kernel is launched. What an autotuner tries goes to a trace of its own and is dropped,
what a CUDA graph holds comes where it is replayed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from triton.runtime.jit import JITFunction

from egg.evaluator.offline.fakedriver import DEVICE, Recorder
from egg.evaluator.offline.launch import Launch
from egg.evaluator.offline.seams import replaced
from egg.evaluator.plan.spelling import WHOLE, Unspelled, values_in
from egg.evaluator.plan.stores import Stores
from egg.evaluator.plan.vocabulary import IN_PLACE

MOST_STEPS = 20_000
RANDOM = torch.Tag.nondeterministic_seeded


@dataclass
class Step:
    """One operator, function or launch."""

    what: Any
    """An ``OpOverload``, the spelling of a whole function, or a kernel's ``JITFunction``."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any = None
    writes: list[torch.Tensor] = field(default_factory=list)
    random: bool = False
    grid: tuple[int, ...] = ()
    """Of a launch."""
    values: Any = None
    """Of a constant: its numbers."""

    @property
    def is_launch(self) -> bool:
        return isinstance(self.what, JITFunction)

    @property
    def outputs(self) -> list[torch.Tensor]:
        return list(tensors_in(self.result))

    @property
    def inputs(self) -> list[torch.Tensor]:
        return list(tensors_in((self.args, self.kwargs)))


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in values_in(value) if isinstance(leaf, torch.Tensor))


class PlanRecorder(Recorder):
    """Notes launches with what they were given, and replays of a graph once."""

    def __init__(self, target: Any, compiler: Any, stores: Stores) -> None:
        super().__init__(target, compiler)
        self.stores = stores
        self.muted = 0
        self.launching: list[tuple[JITFunction, tuple[Any, ...], dict[str, Any]]] = []
        self.trying = 0
        """Configurations of an autotuner that are being tried: their kernels are compiled, no others."""
        self.refused: Unspelled | None = None
        """The first thing that a plan does not hold; a file may have caught the exception."""

    def try_config(self, bench: Any, tuner: Any, args: Any, config: Any, meta: Any) -> Any:
        self.trying += 1
        try:
            return super().try_config(bench, tuner, args, config, meta)
        finally:
            self.trying -= 1

    def refuse(self, what: str, hint: str) -> NoReturn:
        error = Unspelled(what, hint)
        self.refused = self.refused or error
        raise error

    def record(self, launch: Launch) -> None:
        super().record(launch)
        if not self.launching:
            self.refuse("a compiled kernel is launched by its handle", "launch it as kernel[grid](...)")
        fn, args, kwargs = self.launching[-1]
        if launch.programs:
            self.note(_launched(fn, args, kwargs, launch.grid, self.stores))

    def note(self, step: Step) -> None:
        self.trace.steps.append(step)
        if len(self.trace.steps) > MOST_STEPS:
            self.refuse(
                f"the call takes more than {MOST_STEPS} steps", "loop inside a kernel, not in host code"
            )


def _launched(
    fn: JITFunction, args: tuple[Any, ...], kwargs: dict[str, Any], grid: tuple[int, ...], stores: Stores
) -> Step:
    names = [parameter.name for parameter in fn.params]
    given = dict(zip(names, args, strict=False)) | {n: v for n, v in kwargs.items() if n in names}
    for parameter in fn.params:
        if parameter.has_default and parameter.name not in given:
            given[parameter.name] = parameter.default
    options = {n: v for n, v in kwargs.items() if n not in names}
    ordered = tuple(given[name] for name in names if name in given)
    stored = stores.of(fn.__name__)
    writes = [t for n, v in given.items() if stored is None or n in stored for t in tensors_in(v)]
    return Step(fn, ordered, options, writes=writes, grid=grid)


class NoteOperators(TorchDispatchMode):
    """Every operator as it is dispatched, with what it writes to."""

    def __init__(self, recorder: PlanRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func.overloadpacket)
        values = None
        if name.startswith("aten.lift_fresh") and not self._recorder.muted:
            values = _numbers(args[0])
        result = func(*args, **kwargs)
        if not self._recorder.muted and not name.startswith("prim"):
            writes = _written(func, args, kwargs)
            random = RANDOM in func.tags
            step = Step(func, tuple(args), kwargs, result, writes, random, values=values)
            self._recorder.note(step)
        return result


MOST_NUMBERS = 4096
"""Elements of a constant tensor that a plan spells out."""


def _numbers(tensor: torch.Tensor) -> Any:
    if tensor.numel() > MOST_NUMBERS:
        return "too many"
    with _disable_current_modes():
        return tensor.tolist()


def _written(func: Any, args: Any, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    found = []
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[place] if place < len(args) else kwargs.get(argument.name)
            found += tensors_in(given)
    return found


class NoteFunctions(TorchFunctionMode):
    """Functions that are one step, whatever operators they are made of here."""

    def __init__(self, recorder: PlanRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        recorder = self._recorder
        name = None if recorder.muted else WHOLE.get(func)
        if name is None or kwargs.get("out") is not None or _in_place(name, args, kwargs):
            return func(*args, **kwargs)
        recorder.muted += 1
        try:
            result = func(*args, **kwargs)
        finally:
            recorder.muted -= 1
        fresh = {id(t) for t in tensors_in((args, kwargs))}
        if not all(id(t) in fresh for t in tensors_in(result)):
            recorder.note(
                Step(name, tuple(args), kwargs, result, _statistics(name, args, kwargs), "drop" in name)
            )
        return result


def _in_place(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    place = IN_PLACE.get(name, len(args))
    return bool(kwargs.get("inplace")) or (place < len(args) and bool(args[place]))


def _statistics(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The running statistics that a norm in training mode updates."""
    kind = name.rsplit(".", 1)[-1]
    places = {"torch.nn.functional.batch_norm": (1, 2, 5), "torch.batch_norm": (3, 4, 5)}.get(name)
    if places is None or kind != "batch_norm":
        return []
    given = dict(enumerate(args)) | {
        place: kwargs[n]
        for place, n in zip(places, ("running_mean", "running_var", "training"), strict=True)
        if n in kwargs
    }
    return list(tensors_in([given.get(p) for p in places[:2]])) if given.get(places[2]) else []


@contextmanager
def noting(recorder: PlanRecorder) -> Iterator[None]:
    """Within, each step goes to the recorder's trace. To be entered inside the pretence."""
    run, hidden = JITFunction.run, {}

    def noted(fn: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if id(fn) not in hidden:  # kernels that were compiled for a GPU that is there
            hidden[id(fn)] = (fn, fn.device_caches.pop(DEVICE, None))
        recorder.launching.append((fn, args, kwargs))
        try:
            return run(fn, *args, grid=grid, warmup=warmup, **kwargs)
        finally:
            recorder.launching.pop()

    with ExitStack() as stack:
        stack.enter_context(replaced(JITFunction, run=noted))
        stack.enter_context(NoteOperators(recorder))
        stack.enter_context(NoteFunctions(recorder))
        try:
            yield
        finally:
            for fn, caches in hidden.values():
                if caches is not None:
                    fn.device_caches[DEVICE] = caches

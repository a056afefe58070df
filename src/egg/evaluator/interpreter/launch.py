"""Launching: bind the arguments as a GPU launch would, then run every program of the grid in turn."""

from __future__ import annotations

import copy
import ctypes
import inspect
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter
from triton.runtime.jit import KernelParam
from triton.tools.tensor_descriptor import TensorDescriptor

from egg.evaluator.interpreter.builder import MendedBuilder
from egg.evaluator.interpreter.excerpt import ExcerptRaces, owners_of
from egg.evaluator.interpreter.fault import KernelFault
from egg.evaluator.interpreter.language import StaticAssertion, scalar_argument, typed_argument
from egg.evaluator.interpreter.launched import LaunchedKernel
from egg.evaluator.interpreter.memory import AddressSpace
from egg.evaluator.interpreter.pipelines import USUAL_STAGES
from egg.evaluator.interpreter.places import place_of
from egg.evaluator.interpreter.races import RaceDetector
from egg.evaluator.interpreter.scratch import Scratch
from egg.evaluator.interpreter.session import LOT, Launch, Session
from egg.evaluator.interpreter.turns import Turns
from egg.evaluator.interpreter.undefined import MACHINE
from egg.evaluator.static.likeness import alike
from egg.evaluator.work.arguments import numbers_in

MOST_LEFT = 1 << 20
"""Bytes of a memory of which it is kept what a launch left there, where the launch is skipped later."""
_GRID_LIMITS = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True)
class Options:
    """Compile options of a launch that say what is ordered in it."""

    stages: int = USUAL_STAGES
    blocks: int = 1

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        stages, blocks = given.get("num_stages"), given.get("num_ctas")
        return cls(USUAL_STAGES if stages is None else int(stages), 1 if blocks is None else int(blocks))


class Launcher:
    """Runs launches for one session; knows, per kernel, which arguments are only ever read."""

    def __init__(self, session: Session, builder: MendedBuilder) -> None:
        self.session = session
        self.builder = builder
        self._read_only: dict[Any, set[str]] = {}
        self._synchronised: set[Any] = set()
        """Kernels whose programs are ordered by atomics: they take turns from their second launch on."""
        self._atomic: set[Any] = set()
        """Kernels with atomics: they take turns where what is left open is drawn by lot."""
        self._dots: set[Any] = set()
        """Kernels with products."""
        self._reads_bits: set[Any] = set()
        """Kernels that look at the bits of floats."""

    def launch(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any) -> None:
        """Record the launch and run it, unless its kernel is to be skipped.

        Of compile options among the keywords only those that order accesses mean something here
        (:class:`Options`). A failed static assertion is no launch: nothing would have been compiled.
        """
        parameters = inspect.signature(kernel.fn).parameters
        options = Options.of({name: value for name, value in kwargs.items() if name not in parameters})
        kwargs = {name: value for name, value in kwargs.items() if name in parameters}
        bound = inspect.getcallargs(kernel.fn, *args, **kwargs)
        for hook in kernel.pre_run_hooks:
            hook(*args, **kwargs)
        name = kernel.fn.__name__
        shape = resolve_grid(name, grid, bound)
        turn = (name, sum(done.kernel == name for done in self.session.launches))
        numbers = numbers_in(bound)
        self.session.launches.append(Launch(name, shape, numbers))
        self.session.asked.add((name, numbers))
        if name in self.session.skip:
            repeat(self.session.effects.get(turn, {}), bound)
            return
        try:
            run = partial(self._run, kernel, name, bound, parameters, shape, options)
            run() if self.session.around is None else self.session.around(name, bound, run)
            if self.session.excerpt is not None:
                self.session.effects[turn] = effects(bound)
        except StaticAssertion:
            self.session.launches.pop()
            raise

    def _run(
        self,
        kernel: Any,
        name: str,
        bound: Mapping[str, Any],
        parameters: Mapping[str, inspect.Parameter],
        shape: tuple[int, ...],
        options: Options,
    ) -> None:
        space = AddressSpace(self.session, name)
        space.reads_bits = kernel.fn in self._reads_bits
        self.builder.scratch = None
        plain = unspecialised(kernel, parameters)
        values = {
            key: value
            if is_constexpr(parameters[key])
            else convert(value, key, space, specialised=key not in plain, kind=_scalar_type(parameters[key]))
            for key, value in bound.items()
        }
        watch = (self.session, name, self._read_only.get(kernel.fn, set()))
        excerpt = self.session.excerpt
        if excerpt is not None:
            races = ExcerptRaces(excerpt, owners_of(space, bound), *watch)
        else:
            races = RaceDetector(*watch)
        races.blocks, races.pipelines.stages = options.blocks, options.stages
        races.pipelines.dots = kernel.fn in self._dots
        self.builder.space = space
        self.builder.races = races if self.session.check_races else None
        function = kernel.rewrite()
        nx, ny, nz = races.grid = (*shape, *(1,) * (3 - len(shape)))
        self.builder.set_grid_dim(nx, ny, nz)
        self.builder.scratch = Scratch(nx * ny * nz)

        def enter(program: int) -> None:
            """Ready the interpreter for a program."""
            place = place_of(program, races.grid)
            self.builder.set_grid_idx(*place)
            space.program = place
            races.enter(program)
            MACHINE.begin(program)

        MACHINE.launch()
        turned = kernel.fn in self._synchronised or (LOT.cast and kernel.fn in self._atomic)
        if isinstance(races, ExcerptRaces) and excerpt is not None:
            ran: list[int] = []
            scratch = self.builder.scratch

            def once(program: int) -> None:
                """A program, also between those of a later launch that reads what this one makes."""
                self.builder.space, self.builder.scratch = space, scratch
                self.builder.races = races if self.session.check_races else None
                self.builder.set_grid_dim(nx, ny, nz)
                enter(program)
                function(**values)

            with np.errstate(all="ignore"):
                for program in excerpt.programs(kernel, (nx, ny, nz), bound, ran):
                    if not excerpt.attempt(program, once, races):
                        excerpt.miss(ran)
            excerpt.finish(name, (nx, ny, nz), ran, races, once)
        elif turned and self.session.check_races:
            turns = Turns(nx * ny * nz, enter, lambda: function(**values))
            self.builder.before_atomic = turns.hand_over
            try:
                turns.run()
            finally:
                self.builder.before_atomic = None
        else:
            with np.errstate(all="ignore"):
                for program in range(1, nx * ny * nz + 1):
                    enter(program)
                    function(**values)
        races.finish()
        self.session.launches[-1].accesses.update(space.accesses())
        self._learn(kernel.fn, space, races)

    def _learn(self, function: Any, space: AddressSpace, races: RaceDetector) -> None:
        """Arguments no launch has stored to so far need no record of their readers next time.

        A launch that stored nothing (an empty grid, every lane masked) teaches nothing.
        """
        stored = races.stored_arguments()
        again = races.atomics or races.rereads
        self.session.accumulating[function] = self.session.accumulating.get(function, False) or again
        if races.order.needed:
            self._synchronised.add(function)
        if races.atomics:
            self._atomic.add(function)
        if races.pipelines.dots:
            self._dots.add(function)
        if space.looked:
            self._reads_bits.add(function)
        if stored:
            named = {name for region in space.regions for name in region.arguments}
            known = self._read_only.setdefault(function, named)
            known -= stored


def effects(bound: Mapping[str, Any]) -> dict[str, bytes]:
    """What a launch left in the small memories that it was given: flags, sums, whatever a host reads."""
    given = {key: _memory(value) for key, value in bound.items() if isinstance(value, torch.Tensor)}
    return {key: ctypes.string_at(at, size) for key, (at, size) in given.items() if size <= MOST_LEFT}


def repeat(left: Mapping[str, bytes], bound: Mapping[str, Any]) -> None:
    """The same again, without the launch."""
    for key, held in left.items():
        value = bound.get(key)
        at, size = _memory(value) if isinstance(value, torch.Tensor) else (0, 0)
        if at and size == len(held):
            ctypes.memmove(at, held, size)


def _memory(tensor: torch.Tensor) -> tuple[int, int]:
    """Where its storage begins, and how many bytes that has: no operator of PyTorch's is to see a copy."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


def resolve_grid(kernel: str, grid: Any, bound: dict[str, Any]) -> tuple[int, ...]:
    """A grid is a tuple of integers, or a function from the arguments to one; CUDA limits apply."""
    wanted: Any = grid(bound) if callable(grid) else grid
    shape = tuple(operator.index(n) for n in wanted)
    if not 1 <= len(shape) <= 3:
        raise KernelFault("unsupported", f"kernel {kernel}: a grid has 1 to 3 dimensions, not {len(shape)}")
    if any(n > limit for n, limit in zip(shape, _GRID_LIMITS, strict=False)):
        raise KernelFault("unsupported", f"kernel {kernel}: grid {shape} exceeds the limits {_GRID_LIMITS}")
    return shape


def is_constexpr(parameter: inspect.Parameter) -> bool:
    """True for ``tl.constexpr``, however it was imported and whether or not it is still a string."""
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return text.strip().split(".")[-1] == "constexpr"


def unspecialised(kernel: Any, parameters: Mapping[str, inspect.Parameter]) -> set[str]:
    """Parameters of which the compiler takes no value for a constant: named so, or of an annotated type."""
    named = kernel.kwargs.get("do_not_specialize") or ()
    names = list(parameters)
    found = {names[item] if isinstance(item, int) else item for item in named}
    return found | {key for key, p in parameters.items() if p.annotation is not inspect.Parameter.empty}


def _scalar_type(parameter: inspect.Parameter) -> str:
    """The type that an annotation names (``scale: tl.float16`` is ``fp16``); empty where it names none."""
    kind = KernelParam(0, parameter, False, False).annotation_type
    return "" if kind.startswith("*") else kind


def convert(value: Any, name: str, space: AddressSpace, *, specialised: bool = True, kind: str = "") -> Any:
    """A host argument as the kernel sees it; tensors, also inside descriptors, at virtual addresses.

    A number whose parameter is annotated has the type ``kind``. Where the argument is ``specialised`` an
    integer of 1 stays Python's: the compiler puts it into the text as a constant, with Python's arithmetic
    (``(n - 2) // 2`` rounds down) and without a tensor's methods.
    """
    if isinstance(value, TensorDescriptor):
        moved = copy.copy(value)
        moved.base = space.map(value.base, name)
        return interpreter._implicit_cvt(moved)
    if hasattr(value, "data_ptr"):
        return interpreter._implicit_cvt(space.map(value, name))
    if isinstance(value, tuple):
        items = [
            convert(item, f"{name}[{i}]", space, specialised=specialised) for i, item in enumerate(value)
        ]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if kind and isinstance(value, int | float):
        return typed_argument(value, kind)
    if isinstance(value, bool | float):
        return scalar_argument(value)
    if specialised and isinstance(value, int) and value == 1:
        return value
    return interpreter._implicit_cvt(value)


def mend(session: Session) -> MendedBuilder:
    """Turn the interpreter's one builder into ours and route every launch through the session."""
    builder: Any = interpreter.interpreter_builder
    builder.__class__ = MendedBuilder
    builder.adopt_options()
    builder.space = AddressSpace(session, "")
    builder.races = None
    builder.before_atomic = None
    builder.scratch = None
    builder.copies = False
    launcher = Launcher(session, builder)

    def run(self: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> LaunchedKernel:
        if not warmup:
            launcher.launch(self, args, kwargs, grid)
        return LaunchedKernel(self.fn.__name__)

    interpreted: Any = interpreter.InterpretedFunction
    interpreted.run = alike(run, interpreted.run)
    return builder

"""What an answer is measured by: a run of the reference that is more exact than the one under judgement.

Usually that is the program in fp64. Where there is none, the next of these is taken, and the result says so:

* a program that draws random numbers runs in fp64 on the *same draws*: each random operation of the
  reference's own run is recorded, and the fp64 run gets what was recorded (:class:`Draws`);
* a program that fixes a dtype in its code runs in fp64 with those casts widened (:class:`Widened`);
* a 16-bit program runs in fp32;
* else the reference itself, whose error then counts as how far it moves when its inputs are off by their own
  rounding.

A stand-in that is far from the reference computes something else, and is not taken.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from egg.core.errors import TaskError
from egg.evaluator.compare.integers import are_integers
from egg.evaluator.operators.ops import base_name
from egg.evaluator.reference.limits import FINFO, Asked
from egg.evaluator.reference.ordering import Choice, Chosen
from egg.evaluator.reference.roundings import computes
from egg.evaluator.task.program import DOUBLE, in_dtypes, map_tensors, restrided
from egg.evaluator.tensors.reals import EXPONENTS, as_reals, nudged

SINGLE = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}


class Yardstick(StrEnum):
    """In the order in which they are tried."""

    FP64 = "fp64"
    DRAWS = "fp64 on the reference's random draws"
    WIDENED = "fp64 with the program's casts widened"
    FP32 = "fp32"
    ITSELF = "the reference itself"


def candidates(*, stochastic: bool, half: bool) -> tuple[Yardstick, ...]:
    """Those worth trying for such a program; the last always exists."""
    first = (Yardstick.DRAWS,) if stochastic else (Yardstick.FP64, Yardstick.WIDENED)
    return (*first, *((Yardstick.FP32,) if half else ()), Yardstick.ITSELF)


# -- copies in another dtype ---------------------------------------------------------------------------


def converted(module: nn.Module, inputs: list[Any], yardstick: Yardstick) -> tuple[nn.Module, list[Any]]:
    """Deep copies in the yardstick's dtypes."""
    kinds: Mapping[torch.dtype, torch.dtype] = {Yardstick.FP32: SINGLE, Yardstick.ITSELF: {}}.get(
        yardstick, DOUBLE
    )
    return in_dtypes(module, inputs, kinds)


@contextlib.contextmanager
def scope(yardstick: Yardstick, draws: Draws | None, asked: Asked) -> Iterator[None]:
    """How the converted module is to be run; ``asked``: what the reference's run asked of its types."""
    before = torch.get_default_dtype()
    kind = {Yardstick.FP32: torch.float32, Yardstick.ITSELF: before}.get(yardstick, torch.float64)
    torch.set_default_dtype(kind)
    try:
        with contextlib.ExitStack() as modes:
            if yardstick is not Yardstick.ITSELF:
                modes.enter_context(asked.answered(kind))
            if yardstick in (Yardstick.WIDENED, Yardstick.DRAWS):
                modes.enter_context(Widened())
            if draws is not None and yardstick is not Yardstick.ITSELF:
                modes.enter_context(Replayed(draws))
            yield
    finally:
        torch.set_default_dtype(before)


class Widened(TorchDispatchMode):
    """Whatever asks for a dtype narrower than fp64 gets fp64: casts and new tensors."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in DOUBLE:
            kwargs["dtype"] = DOUBLE[kwargs["dtype"]]
        return func(*args, **kwargs)


# -- random draws --------------------------------------------------------------------------------------


class Unreplayable(TaskError):
    """A random operation whose draw cannot be given to another run."""


FROM_ITS_INPUT = frozenset({"native_dropout", "rrelu_with_noise", "rrelu_with_noise_"})
"""Random operations whose result depends on the values they are given."""


class Draws:
    """What the random operations of one run drew, in order, and what it chose among equal elements."""

    def __init__(
        self, drawn: Sequence[tuple[str, torch.Tensor]] = (), choices: Sequence[Choice] | None = None
    ) -> None:
        self.drawn = list(drawn)
        self.choices = choices
        """``None`` where every run chooses by itself."""
        self.other = ""
        """A random operation that could not be recorded."""


def _random(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


def _name(func: Any) -> str:
    return func.overloadpacket.__name__


class Recorded(TorchDispatchMode):
    """Keeps what is drawn; the run itself is not changed."""

    def __init__(self, draws: Draws) -> None:
        super().__init__()
        self._draws = draws

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if _random(func):
            name = _name(func)
            if name == "native_dropout":
                self._draws.drawn.append((name, result[1].clone()))
            elif isinstance(result, torch.Tensor) and name not in FROM_ITS_INPUT:
                self._draws.drawn.append((name, result.clone()))
            else:
                self._draws.other = name
        return result


class Replayed(TorchDispatchMode):
    """Gives each random operation what was drawn at its place before, and each order what was chosen."""

    def __init__(self, draws: Draws) -> None:
        super().__init__()
        self._draws = iter(draws.drawn)
        self._chosen = None if draws.choices is None else Chosen(draws.choices)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._chosen is not None and (found := self._chosen.answer(func, args, kwargs or {})) is not None:
            return found
        if not _random(func):
            return func(*args, **(kwargs or {}))
        name = _name(func)
        if name == "native_dropout":
            given, p, *_ = args
            mask = self._next(name, given.shape)
            scale = 0.0 if p >= 1.0 else 1.0 / (1.0 - p)
            return given * mask * scale, mask
        if name.endswith("_"):
            target = args[0]
            return target.copy_(self._next(name, target.shape))
        drawn = self._next(name, None)
        return drawn.to(DOUBLE.get(drawn.dtype, drawn.dtype)) if drawn.is_floating_point() else drawn.clone()

    def _next(self, name: str, shape: torch.Size | None) -> torch.Tensor:
        drawn = next(self._draws, None)
        if drawn is None or drawn[0] != name or (shape is not None and drawn[1].shape != shape):
            raise Unreplayable(f"{name} was not drawn at this place before", "the draws cannot be repeated")
        return drawn[1]


# -- roundings of inputs and of what is computed from them ---------------------------------------------

LOTS = 20_011


AHEAD = 8
"""Operations that are passed over to find one in another run: a cast to the dtype that is there is none."""


class Rounded(TorchDispatchMode):
    """Moves every number that an operation computes by one rounding, up or down by lot.

    That is how any implementation is off that rounds what it computes on the way: an argument of an
    exponential, the scores of an attention. What merely looks at memory, or writes into it, is left alone.
    ``own`` is what :class:`~egg.evaluator.reference.roundings.Roundings` noted of the program's operations:
    16-bit layers behind fp32 tables round as 16 bits do, fp32 angles of a 16-bit program as fp32 does.
    ``unit`` is the rounding of those that are not found there. A number of a narrower type moves by the next
    one of that type, since a smaller step would be rounded away. ``whole``: numbers that are whole stay,
    as rounding leaves them.
    """

    def __init__(
        self,
        unit: float,
        sign: float,
        lot: int,
        *,
        own: Sequence[tuple[str, float]] = (),
        whole: bool = False,
    ) -> None:
        super().__init__()
        self._unit, self._sign, self._whole = unit, sign, whole
        self._own, self._at = own, 0
        self._seed = LOTS + 1_000 + lot
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not computes(func):
            return result
        unit = self.unit_of(func)
        return tree_map_only(torch.Tensor, lambda tensor: self._moved(tensor, unit), result)

    def unit_of(self, func: Any) -> float:
        """What the program rounds this operation's result to: as the next one of its name; of the others the
        usual."""
        name = base_name(func)
        for at in range(self._at, min(self._at + AHEAD, len(self._own))):
            if self._own[at][0] == name:
                self._at = at + 1
                return self._own[at][1]
        return self._unit

    def _moved(self, tensor: torch.Tensor, unit: float) -> torch.Tensor:
        if not tensor.is_floating_point() or tensor.dtype is EXPONENTS or not tensor.numel():
            return tensor
        lots = self.lots(tensor, max(unit, FINFO(tensor.dtype).eps))
        if self._whole:
            lots.masked_fill_(as_reals(tensor) == as_reals(tensor).round(), 0.0)
        return nudged(tensor, lots)

    def lots(self, like: torch.Tensor, size: float) -> torch.Tensor:
        """``size`` for each element, with a sign that is drawn, and turned where all is mirrored."""
        generator = self._generators.get(like.device)
        if generator is None:
            generator = torch.Generator(like.device).manual_seed(self._seed)
            self._generators[like.device] = generator
        lots = torch.empty(like.shape, dtype=torch.float32, device=like.device)
        return lots.uniform_(-1.0, 1.0, generator=generator).sign_().mul_(size * self._sign)


def unit_of(inputs: list[Any], module: nn.Module) -> float:
    """One rounding of the program's own arithmetic, the finest where there are several."""
    kinds = {t.dtype for t in (*_tensors(inputs), *module.parameters()) if t.is_floating_point()}
    return min((FINFO(kind).eps / 2 for kind in kinds), default=FINFO(torch.float32).eps / 2)


def coarsest_rounding(
    inputs: list[Any], module: nn.Module, outputs: list[tuple[str, Any]], position: int, program: float = 0.0
) -> float:
    """How far an input may be moved for its own rounding, where the output at ``position`` is looked at: no
    further than the arithmetic on the way to it rounds.

    That is the finest of inputs and weights, or of the results where those are coarser, and it is no integer
    that is looked at: that is not rounded to 16 bits. A gain of 16 bits in a program of 32 is exact for every
    implementation, and excuses none that rounds the rest as coarsely. Nor do rows of 16 bits that a program
    takes to 32 at once: ``program`` is the coarsest rounding on the way to the output, where that is known.
    """
    results = [leaf for _, leaf in outputs if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    own = outputs[position][1]
    whole = isinstance(own, torch.Tensor) and are_integers(own)
    finest = 0.0 if whole else min((FINFO(leaf.dtype).eps / 2 for leaf in results), default=0.0)
    return max(min(unit_of(inputs, module), program or 1.0), finest)


@torch.no_grad()
def perturb(
    module: nn.Module,
    inputs: list[Any],
    like: tuple[nn.Module, list[Any]],
    sign: float,
    lot: int = 0,
    coarsest: float = 1.0,
) -> list[Any]:
    """Move ``module``'s weights, in place, and ``inputs`` by their own rounding, up or down by lot.

    ``like`` are the originals, whose dtypes tell how they are rounded, though by no more than ``coarsest``.
    The lots are the same for every call with the same number ``lot``, and ``sign`` mirrors them.
    """
    own_module, own_inputs = like
    generators: dict[torch.device, torch.Generator] = {}

    def moved(tensor: torch.Tensor, own: torch.dtype) -> torch.Tensor:
        if not tensor.is_floating_point() or not own.is_floating_point or not tensor.numel():
            return tensor
        generator = generators.setdefault(
            tensor.device, torch.Generator(tensor.device).manual_seed(LOTS + lot)
        )
        unit = min(FINFO(own).eps / 2, coarsest) * (1.0 if tensor.dtype != own else 2.0)

        def shifted(flat: torch.Tensor) -> torch.Tensor:
            lots = torch.empty(flat.shape, dtype=torch.float32, device=flat.device)
            lots.uniform_(-1.0, 1.0, generator=generator).sign_().mul_(sign * unit)
            return nudged(flat, lots)

        return restrided(tensor, shifted)

    held = zip(
        (*module.parameters(), *module.buffers()),
        (*own_module.parameters(), *own_module.buffers()),
        strict=True,
    )
    for tensor, own in held:
        if tensor.is_floating_point():
            tensor.data.copy_(moved(tensor.data, own.dtype))
    kinds = iter([own.dtype for own in _tensors(own_inputs)])
    return map_tensors(inputs, lambda tensor: moved(tensor, next(kinds)))


def _tensors(inputs: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    map_tensors(inputs, lambda tensor: (found.append(tensor), tensor)[1])
    return found

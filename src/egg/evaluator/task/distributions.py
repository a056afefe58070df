"""Inputs and weights other than the ones the task draws for itself.

A task's own inputs are one distribution, often a kind one: uniform in [0, 1), weights near
zero, norms with gamma exactly 1. A kernel that only works there (a dropped bias, a
saturated sigmoid, an inactive clamp) is caught by drawing others at the same shapes,
strides and dtypes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from egg.evaluator.task.program import map_tensors, restrided
from egg.evaluator.tensors import memory
from egg.evaluator.tensors.reals import as_reals

DISTRIBUTIONS: tuple[str, ...] = ("task", "normal", "uniform", "tiny", "large", "heavy", "sparse")


def redraw(inputs: list[Any], name: str, seed: int) -> list[Any]:
    """``inputs`` with every floating tensor redrawn from the named distribution.

    Shapes, strides, dtypes and devices are kept; integers, booleans and everything that is
    not a tensor are passed on as they are, as is everything under ``task``. The magnitudes
    of ``large`` and ``heavy`` are smaller for 16-bit types, which overflow at 65504.
    """
    if name not in DISTRIBUTIONS:
        raise ValueError(f"unknown distribution {name!r}: one of {', '.join(DISTRIBUTIONS)}")
    if name == "task":
        return inputs
    draw = _Draw(seed)

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        return draw.named(tensor, name).requires_grad_(tensor.requires_grad)

    return map_tensors(inputs, change)


SPIKES = 3
"""Of each sort, in each floating input."""
FEWEST_IN_ORDER = 3


@torch.no_grad()
def spiked(
    inputs: list[Any], values: tuple[float, ...], seed: int, instead: Mapping[int, float] | None = None
) -> list[Any]:
    """Copies of ``inputs`` with ``values`` at a few secret places of every floating tensor.

    Places are numbered as they are drawn; ``instead`` has other values for some of them.
    """
    generator = torch.Generator().manual_seed(seed)
    numbers, others = itertools.count(), instead or {}

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if not _places(tensor):
            return tensor
        made = restrided(tensor, torch.clone)
        for value in values:
            for _ in range(_places(tensor)):
                place = [int(torch.randint(size, (), generator=generator)) for size in tensor.shape]
                made[tuple(place)] = others.get(next(numbers), value)
        return made

    return map_tensors(inputs, change)


def spikes_of(inputs: list[Any], values: tuple[float, ...]) -> int:
    """How many places :func:`spiked` draws."""
    counts: list[int] = []
    map_tensors(inputs, lambda tensor: (counts.append(_places(tensor)), tensor)[1])
    return len(values) * sum(counts)


def _places(tensor: torch.Tensor) -> int:
    """For one value."""
    if not tensor.is_floating_point() or not tensor.numel():
        return 0
    return min(SPIKES, max(1, tensor.numel() // 256))


@torch.no_grad()
def rerandomise(module: nn.Module, seed: int) -> None:
    """Give every floating parameter and buffer generic values, in place, the same for the same seed.

    Weights keep the spread they have (or get one over the square root of their fan-in where
    they are constant, as freshly made scales are); what is zero or one by initialisation
    (biases, norm gains, running statistics) becomes visibly neither, so that a kernel that
    leaves it out is seen. Integers, complex numbers and ``num_batches_tracked`` stay, and so do buffers
    of exactly two values, which are masks (:mod:`egg.evaluator.reference.drawn`). A buffer that rises
    (borders, as ``bucketize`` searches them) does so with other numbers. Buffers that are not persistent
    (rotary frequencies, caches) stay as well: the constructor makes them, and no ``state_dict`` hands new
    values to the other side.
    """
    draw = _Draw(seed)
    visited: set[int] = set()
    for owner in module.modules():
        for name, tensor in (*_own(owner._parameters.items()), *_own(owner._buffers.items())):
            if id(tensor) in visited or not tensor.is_floating_point() or not tensor.numel():
                continue
            if name in owner._non_persistent_buffers_set:
                continue
            visited.add(id(tensor))
            kept = name in owner._buffers
            if not (kept and _is_mask(name, tensor)):
                made = _generic(draw, owner, name, tensor)
                tensor.copy_(as_reals(made).sort().values if kept and rises(tensor) else made)


def kept_by_generic_weights(module: nn.Module) -> list[str]:
    """What of a module's ``state_dict`` :func:`rerandomise` leaves as it is, but for counts of batches."""
    saved, found = module.state_dict(), []
    buffers = dict(module.named_buffers())
    for name, tensor in saved.items():
        last = name.rpartition(".")[2]
        mask = name in buffers and tensor.is_floating_point() and _is_mask(last, tensor)
        if last != "num_batches_tracked" and tensor.numel() and (mask or not tensor.is_floating_point()):
            found.append(name)
    return found


def rises(tensor: torch.Tensor) -> bool:
    """Whether a line of a few numbers is in order: what is searched must stay so."""
    if tensor.dim() != 1 or tensor.is_complex() or len(tensor) < FEWEST_IN_ORDER:
        return False
    line = as_reals(tensor)
    return bool((line.diff() >= 0).all() & (line[0] < line[-1]))


@torch.no_grad()
def rescaled(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Other values of a table, smaller by an eighth to three eighths of their size.

    What is equal stays equal, what is opposite stays opposite, and zeros stay zeros: a kernel may read one
    half of a table of which the other half repeats it. Masks and integers stay.
    """
    if not tensor.is_floating_point() or not tensor.numel() or len(torch.unique(tensor)) == 2:
        return tensor.clone()
    turn = float(torch.rand((), generator=torch.Generator().manual_seed(seed)))
    wide = tensor.double()
    finite = wide.nan_to_num(0.0, 0.0, 0.0).abs()
    share = 0.25 + 0.125 * torch.cos(2.0 * math.pi * turn + finite / finite.max().clamp_min(1e-300))
    return (wide * (1.0 - share)).to(tensor.dtype)


def _own(items: Iterable[tuple[str, torch.Tensor | None]]) -> list[tuple[str, torch.Tensor]]:
    return [(name, tensor) for name, tensor in items if tensor is not None]


def _generic(draw: _Draw, owner: nn.Module, name: str, tensor: torch.Tensor) -> torch.Tensor:
    if name == "running_mean":
        return draw.normal(tensor, 0.3)
    if name == "running_var":
        return draw.uniform(tensor, 0.5, 1.5)
    if _is_norm(owner) and name == "weight":
        return draw.normal(tensor, 0.3, 1.0)
    if name.startswith("bias"):
        return draw.normal(tensor, 0.3)
    values = tensor.double() if tensor.numel() < 1 << 20 else tensor.float()
    centre = float(values.mean())
    spread = float(values.std(correction=0)) if tensor.numel() > 1 else 0.0
    if not math.isfinite(centre + spread):
        return tensor
    if spread <= 1e-6 * max(1.0, abs(centre)):
        return _generic_constant(draw, tensor, centre)
    return draw.normal(tensor, spread, centre if abs(centre) > spread else 0.0)


def _generic_constant(draw: _Draw, tensor: torch.Tensor, centre: float) -> torch.Tensor:
    """A constant weight: scales keep their size and gain a spread, zeros become weights or biases."""
    if centre != 0.0:
        return draw.normal(tensor, 0.3 * abs(centre), centre)
    fan_in = tensor.numel() // tensor.shape[0] if tensor.dim() > 1 else 1
    return draw.normal(tensor, 0.3 if fan_in == 1 else 1.0 / math.sqrt(fan_in))


def _is_mask(name: str, buffer: torch.Tensor) -> bool:
    return not name.startswith("running_") and len(torch.unique(as_reals(buffer))) == 2


def _is_norm(module: nn.Module) -> bool:
    known = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.modules.batchnorm._NormBase)
    return isinstance(module, known) or type(module).__name__.lower().endswith("norm")


class _Draw:
    """Random tensors laid out like a given one, from one generator per device, all seeded alike."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def normal(self, like: torch.Tensor, spread: float = 1.0, centre: float = 0.0) -> torch.Tensor:
        return self._filled(like, lambda t, g: t.normal_(generator=g).mul_(spread).add_(centre))

    def uniform(self, like: torch.Tensor, low: float, high: float) -> torch.Tensor:
        return self._filled(like, lambda t, g: t.uniform_(low, high, generator=g))

    def named(self, like: torch.Tensor, name: str) -> torch.Tensor:
        half = like.dtype.itemsize <= 2
        match name:
            case "normal":
                return self.normal(like)
            case "uniform":
                return self.uniform(like, -1.0, 1.0)
            case "tiny":
                return self.normal(like, 1e-4)
            case "large":
                return self.normal(like, 8.0 if half else 1e2)
            case "heavy":
                return self._student(like, 64.0 if half else 1e3)
            case "sparse":
                return self._sparse(like)
        raise ValueError(name)

    def _student(self, like: torch.Tensor, limit: float) -> torch.Tensor:
        """Student's t with three degrees of freedom: a normal over the root of a mean of three squares."""

        def fill(t: torch.Tensor, g: torch.Generator) -> torch.Tensor:
            squares = torch.zeros_like(t)
            for _ in range(3):
                squares.add_(t.normal_(generator=g).square())
            t.normal_(generator=g).mul_(squares.div_(3.0).clamp_min_(1e-12).rsqrt_())
            return t.clamp_(-limit, limit)

        return self._filled(like, fill)

    def _sparse(self, like: torch.Tensor) -> torch.Tensor:
        def fill(t: torch.Tensor, g: torch.Generator) -> torch.Tensor:
            keep = torch.empty_like(t).uniform_(generator=g) < 0.1
            return t.normal_(generator=g).mul_(keep)

        return self._filled(like, fill)

    def _filled(self, like: torch.Tensor, fill: Any) -> torch.Tensor:
        """Draw the memory ``like`` spans in fp32 (fp64 for fp64) and look at it through its strides.

        A piece at a time: what a distribution needs besides is then small next to the tensor.
        """
        generator = self._generators.get(like.device)
        if generator is None:
            generator = torch.Generator(device=like.device).manual_seed(self._seed)
            self._generators[like.device] = generator
        span = 1 + sum((n - 1) * s for n, s in zip(like.shape, like.stride(), strict=True))
        wide = torch.float64 if like.dtype == torch.float64 else torch.float32
        flat = torch.empty(span if like.numel() else 0, dtype=like.dtype, device=like.device)
        for piece in flat.split(memory.CHUNK):
            if like.dtype == wide:
                fill(piece, generator)
            else:
                piece.copy_(fill(torch.empty(len(piece), dtype=wide, device=like.device), generator))
        return flat.as_strided(like.shape, like.stride(), 0)

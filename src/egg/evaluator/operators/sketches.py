"""Sketches of tensors: a few dozen numbers by which two tensors are recognised as one function of the other.

A candidate may leave the whole work to a library and let a kernel carry the answer, or undo what was put on
top of it: a scale, an offset, a square root, another order. So a sketch of everything that a library
computed is compared with one of the answer:

- ``total`` and ``norm``: the same values, in whatever order they lie;
- standardised ``moments``: the same values up to scale and offset, in whatever order;
- ``samples`` at places drawn by lot: equal in place, or a strictly monotone function of each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from egg.evaluator.operators.runs import plain
from egg.evaluator.tensors.memory import pieces

SAMPLES = 64
LEAST_DISTINCT = 24
"""Distinct values among the samples, or their order says nothing."""
EXACT, ROUNDED = 1e-10, 1e-5


@dataclass(frozen=True)
class Sketch:
    numel: int
    total: float
    norm: float
    moments: tuple[float, ...]
    """Squared skewness, kurtosis and the sixth standardised moment; empty where the values hardly vary."""
    samples: tuple[float, ...]

    def same_values(self, other: Sketch) -> bool:
        """In whatever order; NaN is like nothing."""
        scale = max(self.norm, other.norm) * max(self.numel, 1) ** 0.5
        pairs = ((self.total, other.total), (self.norm, other.norm))
        return self.numel == other.numel and scale > 0 and all(abs(a - b) <= EXACT * scale for a, b in pairs)

    def same_places(self, other: Sketch) -> bool:
        """The same values in the same places, as far as the samples say."""
        return self.numel == other.numel and self.samples == other.samples and self.same_values(other)

    def multiple(self, other: Sketch) -> bool:
        """Whether one is the other in place up to scale and offset, as far as the samples say."""
        if self.numel != other.numel:
            return False
        return self.samples == other.samples or explains(self, (other,))

    def follows(self, other: Sketch) -> bool:
        """Whether one is the other up to scale and offset, or a strictly monotone function of it in place."""
        if self.numel != other.numel or not self.moments or not other.moments:
            return False
        pairs = zip(self.moments, other.moments, strict=True)
        near = all(abs(a - b) <= ROUNDED * max(abs(a), abs(b)) for a, b in pairs)
        return near or _monotone(self.samples, other.samples)


def explains(answer: Sketch, parts: Sequence[Sketch]) -> bool:
    """Whether the answer is a sum of multiples of the parts and of a constant, as far as the samples say."""
    if len(set(answer.samples)) < LEAST_DISTINCT or len(parts) > SAMPLES // 4:
        return False
    columns = [part.samples for part in parts if part.numel == answer.numel]
    if not columns:
        return False
    matrix = torch.tensor([[1.0] * SAMPLES, *columns], dtype=torch.float64).T
    matrix = matrix / matrix.abs().amax(0).clamp_min(1e-300)
    wanted = torch.tensor(answer.samples, dtype=torch.float64)[:, None]
    found = torch.linalg.lstsq(matrix, wanted, driver="gelsd").solution
    spread = float((wanted - wanted.mean()).norm())
    return float((matrix @ found - wanted).norm()) <= ROUNDED * spread


def _monotone(a: Sequence[float], b: Sequence[float]) -> bool:
    ordered = sorted(zip(a, b, strict=True))
    if min(len(set(a)), len(set(b))) < LEAST_DISTINCT:
        return False
    steps = [(y1 - y0) for (x0, y0), (x1, y1) in itertools.pairwise(ordered) if x1 > x0]
    return all(step > 0 for step in steps) or all(step < 0 for step in steps)


class Sketcher:
    """Sketches tensors that have as many elements as an answer, at places drawn from a seed."""

    def __init__(self, seed: int, sizes: Sequence[int]) -> None:
        self._seed = seed
        self._sizes = frozenset(sizes)

    def sketch(self, tensor: torch.Tensor) -> Sketch | None:
        """``None`` where it cannot be an answer, or has values that are not finite."""
        values = plain(tensor)
        if values.numel() not in self._sizes or values.layout is not torch.strided:
            return None
        sketch = Sketch(values.numel(), *_sums(values), _moments(values), self._samples(values))
        return sketch if math.isfinite(sketch.total + sketch.norm) else None

    def _samples(self, values: torch.Tensor) -> tuple[float, ...]:
        generator = torch.Generator().manual_seed(self._seed)
        places = torch.randint(values.numel(), (SAMPLES,), generator=generator)
        indices: list[torch.Tensor] = []
        for size in reversed(values.shape):
            indices.insert(0, (places % size).to(values.device))
            places = places // size
        return tuple(values[tuple(indices)].to(torch.float64).reshape(-1).tolist())


def _sums(values: torch.Tensor) -> tuple[float, float]:
    total, norm = 0.0, 0.0
    for (piece,) in pieces(values):
        wide = piece.to(torch.float64)
        total += float(wide.sum())
        norm = math.hypot(norm, float(torch.linalg.vector_norm(wide)))
    return total, norm


def _moments(values: torch.Tensor) -> tuple[float, ...]:
    count = values.numel()
    centre = sum(float(piece.to(torch.float64).sum()) for (piece,) in pieces(values)) / max(count, 1)
    powers = [0.0, 0.0, 0.0, 0.0]
    for (piece,) in pieces(values):
        apart = piece.to(torch.float64) - centre
        for index, power in enumerate((2, 3, 4, 6)):
            powers[index] += float(apart.pow(power).sum()) / count
    variance = powers[0]
    if not math.isfinite(powers[3]) or variance <= 1e-12 * max(1e-300, centre * centre) or variance <= 0:
        return ()
    return powers[1] ** 2 / variance**3, powers[2] / variance**2, powers[3] / variance**3

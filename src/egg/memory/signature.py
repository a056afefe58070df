"""What kind of task a run was about, so that what it taught can be found again for a task like it.

A signature says nothing of a program's text, its names or its values: which families of operators
its time goes to, how large things are to the nearest power of two, how narrow its numbers are, and
whether memory or arithmetic bounds it. That much decides whether a way to speed one task up is
worth trying on another, and no more than that leaves a run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from egg.core.facts import Facts, Family, ProgramFacts
from egg.hardware.calibration import same_gpu
from egg.hardware.gpus import find

UNKNOWN = "unknown"
MEMORY, COMPUTE = "memory", "compute"
DTYPES = ("float64", "float32", "float16", "bfloat16", "float8")
"""Floating types, from the widest; whatever else there is counts as ``other``."""
OTHER = "other"
SIZES = ("rows", "columns", "bytes", "flops")
FAMILIES = frozenset(family.value for family in Family)

OPERATIONS_PER_BYTE = 70.0
"""Of tensor cores while memory moves one byte: 69 on an H200 at TF32, 78 on an A100. Taken as one number
for every GPU, so that a task's signature does not depend on where it ran."""
BYTES_PER_ELEMENT = 8.0
"""A pass over an element reads it and writes it."""
OPERATIONS_PER_ELEMENT = {
    Family.NORMALIZATION: 8.0,
    Family.SOFTMAX: 5.0,
    Family.LOSS: 3.0,
    Family.POOLING: 4.0,
}
"""How often one pass counts an element where that is not once."""
LEAST_SHARE = 0.05

STEPS_APART = 6.0
"""Powers of two at which two sizes have nothing in common any more."""
UNKNOWN_LIKENESS = 0.25
"""Between tasks of which nothing is known: a little, so that their lessons are not lost."""


class Card(Protocol):
    """Whatever tells a GPU's model and architecture: a row of the table, or the facts of a run."""

    @property
    def name(self) -> str: ...
    @property
    def arch(self) -> str: ...


@dataclass(frozen=True)
class TaskSignature:
    """A task as its lessons know it."""

    families: Mapping[str, float] = field(default_factory=dict)
    """Share of eager's time by family of operator, estimated, in tenths; empty where nothing is known."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Nearest powers of two: ``rows`` and ``columns`` of the largest tensor, ``bytes`` the program must
    move at least, ``flops`` of its products."""
    dtype: str = UNKNOWN
    """The narrowest floating one."""
    bound: str = UNKNOWN
    """``memory`` or ``compute``, by the roofline of the GPU that was written for."""

    def __post_init__(self) -> None:
        for name, share in self.families.items():
            if name not in FAMILIES or not (_number(share) and 0 < share <= 1):
                raise ValueError(f"no share of a family: {name!r} {share!r}")
        for name, power in self.sizes.items():
            whole = isinstance(power, int) and not isinstance(power, bool)
            if name not in SIZES or not whole or not 0 <= power <= 100:
                raise ValueError(f"no power of two: {name!r} {power!r}")
        if self.dtype not in (*DTYPES, OTHER, UNKNOWN) or self.bound not in (MEMORY, COMPUTE, UNKNOWN):
            raise ValueError(f"no signature: dtype {self.dtype!r}, bound {self.bound!r}")

    def __hash__(self) -> int:
        """So that what is worked out for one kind of task need not be worked out for each of its lessons."""
        families, sizes = frozenset(self.families.items()), frozenset(self.sizes.items())
        return hash((families, sizes, self.dtype, self.bound))

    @property
    def key(self) -> str:
        """The same for two tasks exactly if their signatures are; it reads as a description of the task."""
        families = "+".join(f"{name}:{share:g}" for name, share in _sorted(self.families)) or UNKNOWN
        sizes = ",".join(f"{name}=2^{power}" for name, power in sorted(self.sizes.items()))
        return " ".join(part for part in (families, self.dtype, f"{self.bound}-bound", sizes) if part)


def signature_of(facts: Facts) -> TaskSignature:
    """The signature of a run's task, from what its log says of program and GPU."""
    program = facts.program
    if program is None:
        return TaskSignature()
    tensors = list(_tensors(program))
    arithmetic = program.flops / max(facts.gpu.peak_flops, 1.0)
    traffic = program.least_bytes / max(facts.gpu.bandwidth, 1.0)
    return TaskSignature(
        families=_shares(_time_by_family(facts, program)),
        sizes=_sizes(program, [shape for _, shape in tensors]),
        dtype=_narrowest({dtype for dtype, _ in tensors}),
        bound=COMPUTE if arithmetic > traffic else MEMORY,
    )


# -- likeness --------------------------------------------------------------------------------------


def similarity(one: TaskSignature, other: TaskSignature) -> float:
    """0 to 1. Families decide: tasks that share none have nothing to teach each other, of whatever size."""
    rest = (
        0.5
        + 0.25 * _alike_in_size(one.sizes, other.sizes)
        + 0.15 * _agreement(one.dtype, other.dtype)
        + 0.10 * _agreement(one.bound, other.bound)
    )
    return _alike_in_families(one.families, other.families) * rest


def kinship(one: Card, other: Card) -> float:
    """How far what was seen on one GPU says something of another: 1 for the same model, never 0."""
    if same_gpu(one.name, other.name):
        return 1.0
    if one.arch and one.arch == other.arch:
        return 0.8
    return 0.5 if _vendor(one) == _vendor(other) else 0.25


def _alike_in_families(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """What the two have in common, of what either has."""
    if not one or not other:
        return UNKNOWN_LIKENESS
    names = one.keys() | other.keys()
    common = sum(min(one.get(n, 0.0), other.get(n, 0.0)) for n in sorted(names))
    either = sum(max(one.get(n, 0.0), other.get(n, 0.0)) for n in sorted(names))
    return common / either


def _alike_in_size(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    names = sorted(one.keys() | other.keys())
    if not names:
        return UNKNOWN_LIKENESS
    return sum(
        max(0.0, 1.0 - abs(one[name] - other[name]) / STEPS_APART)
        for name in names
        if name in one and name in other
    ) / len(names)


def _agreement(one: str, other: str) -> float:
    if UNKNOWN in (one, other):
        return UNKNOWN_LIKENESS
    return 1.0 if one == other else 0.0


def _vendor(card: Card) -> str:
    row = find(card.name)
    return row.vendor if row is not None else ("amd" if card.arch.startswith("gfx") else "nvidia")


# -- reading the facts -----------------------------------------------------------------------------

_TENSOR = re.compile(r"(?P<dtype>[a-z]+\d+\w*|bool)\[(?P<shape>[\d, ]*)\]")
_MADE = re.compile(r"\[([\d, ]*)\]")
_NAMES = (
    (Family.PRODUCT, r"(add|b|badd|addb|_scaled_|_int_)?(mm|bmm|mv|dot)\b"),
    (Family.CONVOLUTION, r"_?\w*convolution"),
    (Family.ATTENTION, r"_?\w*attention"),
    (Family.RECURRENCE, r"\w*(lstm|gru|rnn)"),
    (Family.NORMALIZATION, r"\w*(batch|layer|group|instance|rms|weight)_norm"),
    (Family.SOFTMAX, r"\w*softmax"),
    (Family.POOLING, r"_?(avg|max|adaptive|fractional|upsample)_?\w*(pool|upsample|nearest|linear)"),
    (Family.SCAN, r"\w*cum(sum|prod|max|min|sumexp)"),
    (Family.LOSS, r"\w*(_loss|cross_entropy)"),
    (Family.REDUCTION, r"(nan)?(sum|mean|prod|amax|amin|aminmax|max|min|arg\w+|norm|var|std|logsumexp)"),
    (Family.GATHER, r"(index|gather|embedding|scatter|take|_embedding)"),
    (
        Family.MOVEMENT,
        r"(clone|copy|cat|stack|_to_copy|constant_pad|flip|roll|repeat|im2col|zeros|ones|full)",
    ),
    (Family.RANDOM, r"(rand|bernoulli|native_dropout|normal|uniform)"),
)
"""Families by the operator's name, for what a log does not count: moves cost no operations, and logs of
early runs have no counts at all."""


def _tensors(program: ProgramFacts) -> Iterator[tuple[str, tuple[int, ...]]]:
    for line in program.shapes:
        if found := _TENSOR.search(line):
            yield found["dtype"], _shape(found["shape"])


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split(",") if size.strip())


def _shares(time: Mapping[str, float]) -> dict[str, float]:
    whole = sum(time.values())
    shares = {name: round(t / whole, 1) for name, t in time.items() if whole > 0 and t / whole >= LEAST_SHARE}
    return dict(_sorted({name: share for name, share in shares.items() if share > 0}))


def _time_by_family(facts: Facts, program: ProgramFacts) -> dict[str, float]:
    """As the facts have it; estimated where they do not, in bytes that could move in that time."""
    if facts.gpu.savings is not None and facts.gpu.savings.eager_by_family:
        return {name: t for name, t in facts.gpu.savings.eager_by_family.items() if name in FAMILIES}
    counted = {name: n for name, n in program.flops_by_family.items() if name in FAMILIES}
    worked = {name: _worth(Family(name), n) for name, n in counted.items()}
    made: dict[str, float] = {}
    for line in program.operations:
        elements = sum(math.prod(_shape(shape)) for shape in _MADE.findall(line))
        family = _family(line).value
        made[family] = made.get(family, 0.0) + elements * BYTES_PER_ELEMENT
    if not worked and (multiplying := [name for name in made if Family(name).multiplies]):
        worked = {name: _worth(Family(name), program.flops / len(multiplying)) for name in multiplying}
    return {name: max(worked.get(name, 0.0), made.get(name, 0.0)) for name in {**worked, **made}}


def _worth(family: Family, flops: float) -> float:
    """Bytes that memory could move in the time of these operations."""
    if family.multiplies:
        return flops / OPERATIONS_PER_BYTE
    return flops / OPERATIONS_PER_ELEMENT.get(family, 1.0) * BYTES_PER_ELEMENT


def _family(line: str) -> Family:
    name = line.partition(" ")[0].removeprefix("aten.")
    return next((family for family, form in _NAMES if re.match(form, name)), Family.POINTWISE)


def _sizes(program: ProgramFacts, shapes: list[tuple[int, ...]]) -> dict[str, int]:
    sizes = {"bytes": _power(program.least_bytes), "flops": _power(program.flops)}
    largest = max(shapes, key=math.prod, default=())
    if largest:
        sizes |= {"rows": _power(math.prod(largest[:-1])), "columns": _power(largest[-1])}
    return dict(sorted(sizes.items()))


def _power(value: float) -> int:
    return min(100, max(0, round(math.log2(value)))) if value >= 1 else 0


def _narrowest(dtypes: set[str]) -> str:
    floating = [name for name in reversed(DTYPES) if any(dtype.startswith(name) for dtype in dtypes)]
    return floating[0] if floating else (OTHER if dtypes else UNKNOWN)


def _sorted(families: Mapping[str, float]) -> list[tuple[str, float]]:
    """The largest share first."""
    return sorted(families.items(), key=lambda item: (-item[1], item[0]))


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

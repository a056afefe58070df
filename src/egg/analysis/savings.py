"""What fusion could save: least times of the same operations, launched one by one, in groups, or as one.

*Eager* is every operation by itself: the slower of moving its bytes and computing, and its launches.

*Pointwise fused* is what a compiler of epilogues does. An operation that makes each element from
the matching elements of its inputs (pointwise work, copies, dropout) rides on the group that made
one of them: the group hands that value over in registers, reads whatever else the rider needs, and
writes only what is used outside of it. A rider must come no larger than the value it rides on,
or the group would have to compute it again (a row's sum that is then subtracted from the row), and
none of its other inputs may depend on the group, or the two would wait for each other. Groups of
pointwise work alone that feed it are taken into its kernel, too, and so is a bias that a library adds
to a product in a launch of its own.

*Whole* is one kernel for everything: the roofline floor and one launch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from egg.analysis.predict import FITTED
from egg.core.facts import Family, Operation, Savings, TensorForm, Workload
from egg.hardware.gpus import Gpu
from egg.hardware.roofline import compute_peak, effective_precision, floor_seconds

LAUNCH_MILLISECONDS = FITTED.launch * 1e3
RIDING = frozenset({Family.POINTWISE, Family.MOVEMENT, Family.RANDOM})
"""Operations that may join the group of their producer."""
ONE_PASS = frozenset({Family.PRODUCT, Family.CONVOLUTION, Family.ATTENTION, Family.LOSS})
"""Operations whose further passes are pointwise work that a library does apart."""
HALF = ("bf16", "fp16")
_FLOATING = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


def savings(workload: Workload, gpu: Gpu, precision: str) -> Savings:
    """Least times on ``gpu`` under a declared precision, as the policy names it: ``match``, ``tf32``..."""
    dtypes = [form.dtype for form in _forms(workload)]
    convolves = any(op.family is Family.CONVOLUTION for op in workload.operations)
    clock = _Clock(gpu, accuracy(precision, dtypes, convolves), narrowing(precision, dtypes))
    by_family: dict[str, float] = {}
    for op in workload.operations:
        before = by_family.get(op.family.value, 0.0)
        by_family[op.family.value] = before + clock.milliseconds(_alone(op))
    eager = sum(by_family.values())
    fused = sum(clock.milliseconds(cost) for cost in _grouped(workload))
    return Savings(
        eager=eager,
        pointwise_fused=min(fused, eager),
        whole=min(clock.floor(workload) + LAUNCH_MILLISECONDS, fused, eager),
        eager_by_family=by_family,
    )


def accuracy(precision: str, dtypes: Iterable[str], convolves: bool) -> str:
    """The precision that results must reach, which chooses the roof.

    Under ``match`` the reference decides: by the narrowest floating dtype it handles, and, as
    cuDNN takes TF32 for fp32 convolutions unasked, by whether it convolves. A floor is a promise
    that nothing is faster, so in doubt the faster unit counts.
    """
    floating = {name: size for name in dtypes if (size := _floating_size(name))}
    narrowest = min(floating, key=lambda name: floating[name], default="float32")
    return effective_precision(precision, dtype=narrowest, reference_error=1.0 if convolves else 0.0)


def narrowing(precision: str, dtypes: Iterable[str]) -> float:
    """How many times fewer bytes a declared half precision moves than the task's own dtypes."""
    widest = max((_floating_size(name) for name in dtypes), default=0)
    return max(1.0, widest / 2) if precision in HALF else 1.0


def _floating_size(dtype: str) -> int:
    """Bytes of an element; 0 of an integer's."""
    return _FLOATING.get(dtype, 1 if dtype.startswith("float8") else 0)


def _forms(workload: Workload) -> list[TensorForm]:
    return [*workload.inputs.values(), *workload.parameters.values(), *workload.outputs.values()]


# -- times -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cost:
    """Of one kernel, or of one library call."""

    bytes: float
    products: float
    other: float
    launches: int


@dataclass(frozen=True)
class _Clock:
    gpu: Gpu
    accuracy: str
    narrowing: float

    def milliseconds(self, cost: _Cost) -> float:
        """The slowest of memory, matrix units and ordinary units, and the launches."""
        seconds = max(
            cost.bytes / self.narrowing / self.gpu.bandwidth,
            cost.products / compute_peak(self.gpu, self.accuracy),
            cost.other / self.gpu.vector["fp32"],
        )
        return seconds * 1e3 + cost.launches * LAUNCH_MILLISECONDS

    def floor(self, workload: Workload) -> float:
        least = workload.least_bytes / self.narrowing
        return floor_seconds(self.gpu, flops=workload.flops, bytes=least, precision=self.accuracy) * 1e3


def _alone(op: Operation) -> _Cost:
    products = op.flops if op.family.multiplies else 0.0
    return _Cost(op.bytes, products, op.flops - products, op.launches)


# -- groups ----------------------------------------------------------------------------------------


@dataclass
class _Group:
    """Operations that become one kernel: the first is what it is, the others ride on it."""

    members: list[int] = field(default_factory=list)
    before: int = 0
    """Groups that must be done first, as bits."""


def _grouped(workload: Workload) -> list[_Cost]:
    """Costs of the kernels that are left when every operation rides where it can."""
    fusion = _Fusion(workload.operations)
    for index in range(len(workload.operations)):
        fusion.place(index)
    used, kept = _users(workload.operations), set(workload.kept)
    return [_cost(workload.operations, g.members, used, kept) for g in fusion.groups if g.members]


class _Fusion:
    """Puts operations into groups, in the order of the program."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.groups: list[_Group] = []
        self._operations = operations
        self._home: dict[int, int] = {}
        """The group of each operation."""
        self._maker: dict[int, int] = {}
        """The operation that made each value."""

    def place(self, index: int) -> None:
        """Into the group that feeds it, where it can ride, else into one of its own."""
        op = self._operations[index]
        feeding = {self._home[self._maker[value]] for value in op.reads if value in self._maker}
        host = self._host(op, feeding) if _rides(op) else None
        if host is None:
            host = len(self.groups)
            self.groups.append(_Group())
        feeding.discard(host)
        self.groups[host].members.append(index)
        self._home[index] = host
        self._maker.update(dict.fromkeys(op.writes, index))
        self._require(host, feeding)
        if _rides(op):
            self._absorb(host, feeding)

    def _host(self, op: Operation, feeding: set[int]) -> int | None:
        """The group whose value is worth most to ride on; ``None`` where there is none."""
        best: tuple[int, int] | None = None
        for form, value in zip(op.inputs, op.reads, strict=False):
            source = self._maker.get(value)
            if source is None or not _fits(op, self._operations[source], value):
                continue
            group = self._home[source]
            waits = any(self.groups[other].before >> group & 1 for other in feeding if other != group)
            if not waits and (best is None or form.bytes >= best[0]):
                best = (form.bytes, group)
        return None if best is None else best[1]

    def _require(self, host: int, feeding: set[int]) -> None:
        """Note that ``feeding`` come before ``host``, and so before all that comes after it."""
        earlier = 0
        for other in feeding:
            earlier |= self.groups[other].before | 1 << other
        for index, group in enumerate(self.groups):
            if index == host or group.before >> host & 1:
                group.before |= earlier

    def _absorb(self, host: int, feeding: set[int]) -> None:
        """Take groups of pointwise work alone into the one they feed, unless a third stands between."""
        target = self.groups[host]
        for index in sorted(feeding):
            group = self.groups[index]
            between = any(
                target.before >> other & 1 and third.before >> index & 1
                for other, third in enumerate(self.groups)
            )
            if between or not _rides(self._operations[group.members[0]]):
                continue
            self._home.update(dict.fromkeys(group.members, host))
            target.members += group.members
            group.members, group.before = [], 0
            target.before &= ~(1 << index)
            for third in self.groups:
                if third.before >> index & 1:
                    third.before = third.before & ~(1 << index) | target.before | 1 << host


def _rides(op: Operation) -> bool:
    """Whether it may be part of another's kernel; one that writes into memory it keeps most of may not."""
    return op.family in RIDING and bool(op.outputs) and not _patches(op)


def _patches(op: Operation) -> bool:
    """Whether it writes over a part of a value and leaves the rest."""
    return len(op.reads) > len(op.inputs)


def _fits(op: Operation, source: Operation, value: int) -> bool:
    """Whether ``source`` makes as many elements as ``op``, so that none is needed again elsewhere."""
    if _patches(source):
        return False
    made = source.outputs[source.writes.index(value)]
    return op.family is Family.MOVEMENT or op.outputs[0].elements <= made.elements


def _users(operations: Sequence[Operation]) -> dict[int, set[int | None]]:
    """The readers of each value; ``None`` among them says that it must be in memory in any case."""
    used: dict[int, set[int | None]] = {}
    for index, op in enumerate(operations):
        for place, value in enumerate(op.reads):
            used.setdefault(value, set()).add(index if place < len(op.inputs) else None)
    return used


def _cost(
    operations: Sequence[Operation], members: list[int], used: dict[int, set[int | None]], kept: set[int]
) -> _Cost:
    """Of a group: what a library call that leads it moves, less what it hands over, and what riders add."""
    inside = set(members)
    made = {value for index in members for value in operations[index].writes}

    def leaves(value: int) -> bool:
        return value in kept or not used.get(value, set()) <= inside

    first, riders, total = operations[members[0]], members, 0.0
    if not _rides(first):
        handed = sum(
            form.bytes
            for form, value in zip(first.outputs, first.writes, strict=False)
            if used.get(value) and not leaves(value)
        )
        riders, total = members[1:], max(0.0, _one_pass_bytes(first) - handed)
    read: set[int] = set()
    for index in riders:
        op = operations[index]
        added = sum(f.bytes for f, v in zip(op.outputs, op.writes, strict=False) if leaves(v))
        for form, value in zip(op.inputs, op.reads, strict=False):
            if value not in made and value not in read:
                added += form.bytes
                read.add(value)
        total += min(added, op.bytes)
    flops = [(operations[i].flops, operations[i].family.multiplies) for i in members]
    return _Cost(
        bytes=total,
        products=sum(count for count, multiplies in flops if multiplies),
        other=sum(count for count, multiplies in flops if not multiplies),
        launches=min(first.launches, 1) if _rides(first) or first.family in ONE_PASS else first.launches,
    )


def _one_pass_bytes(op: Operation) -> float:
    if op.family not in ONE_PASS:
        return op.bytes
    return min(op.bytes, sum(form.bytes for form in (*op.inputs, *op.outputs)))

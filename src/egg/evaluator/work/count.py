"""Count what a launch asks of the GPU, in Triton's IR, at the launch's actual arguments.

Triton's IR still says what the kernel's author wrote: tiles, masks, loops, and addresses as
integer arithmetic on the program's place in the grid. With the arguments of a launch all of
that can be evaluated without a GPU: how many elements a masked load asks for, which sectors
they lie in, how many trips a loop makes. A few programs, spread over every axis of the grid,
stand for all; each is followed by :class:`~egg.evaluator.work.program.Program`.

Nothing here runs a kernel, and no text makes it fail: what cannot be followed gives ``None``.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from egg.core.resources import GRANULE_BYTES, SECTOR_BYTES, Access, KernelWork
from egg.evaluator.work.access import Site
from egg.evaluator.work.arguments import Argument, DescriptorArgument, TensorArgument
from egg.evaluator.work.program import Env, Program
from egg.evaluator.work.sampling import Tally, added_up
from egg.evaluator.work.tally import Amount, Product, Steps, bounds, matters
from egg.evaluator.work.ttir import Function, Module, Parameter, Region, Type, parse
from egg.evaluator.work.values import Descriptor, Known, Number, Pointer, guess

MOST_PROGRAMS = 64
FEWEST_PER_AXIS = 3
_LEAST = (1, 16, 6, 4)
"""Programs looked at along one axis at least, by how many axes there are. A grid of one axis is often
one of more that were flattened, and repeats."""
LARGEST_TILE = 1 << 22
"""Elements; Triton itself refuses a quarter of that."""

NOT_FOLLOWED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What evaluating IR that is broken, or means something else than it says, may raise."""

_FLOPS_PER_BYTE, _TENSOR_FLOPS_PER_BYTE = 10.0, 200.0
"""About what a GPU does in the time it moves a byte: to weigh the work of one program against another's."""


def count_work(
    ttir: str, arguments: Mapping[str, Argument], grid: tuple[int, ...], *, steps: float = 40_000
) -> KernelWork | None:
    """The work of one launch over ``grid``; ``None`` where the IR cannot be followed.

    ``arguments`` holds the forms of what the kernel was launched with, by parameter name.
    ``steps`` bounds the effort (operations evaluated, about 20 microseconds each): where they
    do not suffice, fewer programs and fewer trips stand for the rest.
    """
    try:
        entered = entry_of(ttir, grid)
        return None if entered is None else _Launch(*entered, arguments, Steps(steps)).work()
    except NOT_FOLLOWED:
        return None


def most_stored(
    ttir: str, arguments: Mapping[str, Argument], grid: tuple[int, ...], *, steps: float = 40_000
) -> dict[str, float] | None:
    """The most bytes that a launch may store, by argument; ``None`` where the IR cannot be followed.

    Every program counts as the one of those looked at that stores most, every trip of a loop likewise, and
    a store of which data decide the mask counts whole. So shares that differ from program to program do not
    make it too small; an amount without a bound is infinite. What is stored to an unknown place stands under
    the empty name.
    """
    try:
        entered = entry_of(ttir, grid)
        return None if entered is None else _Launch(*entered, arguments, Steps(steps)).stored()
    except NOT_FOLLOWED:
        return None


def entry_of(ttir: str, grid: tuple[int, ...]) -> tuple[Module, Function, tuple[int, ...]] | None:
    """The kernel of a launch that does something and can be followed, with its grid in three dimensions."""
    full = (*grid, 1, 1, 1)[:3]
    if prod(full) <= 0:
        return None
    module = parse(ttir)
    entry = module.entry
    if entry is None or not entry.body.blocks or largest_tile(module) > LARGEST_TILE:
        return None
    return module, entry, full


class _Launch:
    """The programs of one launch, and what was seen of them."""

    def __init__(
        self,
        module: Module,
        entry: Function,
        grid: tuple[int, ...],
        arguments: Mapping[str, Argument],
        steps: Steps,
    ) -> None:
        self._module, self._entry, self._grid, self._steps = module, entry, grid, steps
        self._env, self._tensors, self._complete = bound(entry, arguments)
        self._seen: dict[tuple[int, ...], Tally] = {}

    def work(self) -> KernelWork:
        return self._as_work(self._total())

    def stored(self) -> dict[str, float]:
        """The most bytes that may be stored, by argument."""
        found: dict[str, float] = {}
        for key, amount in self._total().items():
            if isinstance(key, Amount) and bounds(key):
                found[key.site.argument] = found.get(key.site.argument, 0.0) + amount
        return found

    def _total(self) -> Tally:
        """Look at one program first: what it costs says how many can be looked at."""
        before = self._steps.left
        self._look((0,) * len(self._grid))
        cost = max(1.0, before - self._steps.left)
        affordable = max(1, min(MOST_PROGRAMS, int(before / cost)))
        axes = sum(size > 1 for size in self._grid)
        per_axis = max(FEWEST_PER_AXIS, int(affordable ** (1 / max(1, axes)) + 1e-9))
        return self._over_axis((), per_axis)

    def _over_axis(self, place: tuple[int, ...], per_axis: int) -> Tally:
        """Summed over the remaining axes of the grid, the last one outermost."""
        axis = len(self._grid) - 1 - len(place)
        if axis < 0:
            return self._look(tuple(reversed(place)))
        return added_up(
            self._grid[axis],
            lambda index: self._over_axis((*place, index), per_axis),
            least=min(per_axis, _LEAST[sum(size > 1 for size in self._grid)]),
            most=per_axis,
            exact=matters,
            bound=bounds,
            enough=lambda: self._steps.short,
        )

    def _look(self, place: tuple[int, ...]) -> Tally:
        if place not in self._seen:
            program = Program(self._module, self._env, self._tensors, self._grid, place, self._steps)
            self._seen[place] = program.run(self._entry)
            self._complete = self._complete and program.complete
        return self._seen[place]

    def _as_work(self, total: Tally) -> KernelWork:
        programs = prod(self._grid)
        mean = _busy(total) / programs
        busiest = max(map(_busy, self._seen.values()))
        return KernelWork(
            tensor_flops={key.precision: n for key, n in total.items() if isinstance(key, Product)},
            product_flops=total.get("product", 0.0),
            flops=total.get("flops", 0.0),
            special=total.get("special", 0.0),
            accesses=tuple(self._accesses(total)),
            iterations=max(1.0, total.get("iterations", 0.0) / programs),
            imbalance=max(1.0, busiest / mean) if mean > 0 else 1.0,
            waits=total.get("waits", 0.0) / programs,
            complete=self._complete,
        )

    def _accesses(self, total: Tally) -> list[Access]:
        sites = sorted(
            {key.site for key in total if isinstance(key, Amount)}, key=lambda s: (s.line, s.argument)
        )

        def access(site: Site) -> Access:
            tensor = self._tensors.get(site.argument)
            touched = total.get(Amount(site, "sectors"), 0.0)
            granules = total.get(Amount(site, "granules"), 0.0)
            return Access(
                argument=site.argument,
                store=site.store,
                bytes=total.get(Amount(site, "bytes"), 0.0),
                sector_bytes=touched * SECTOR_BYTES,
                argument_bytes=float(tensor.bytes) if tensor else 0.0,
                atomic=site.atomic,
                scattered=max(1.0, granules * GRANULE_BYTES / (touched * SECTOR_BYTES)) if touched else 1.0,
            )

        return [access(site) for site in sites]


def _busy(tally: Tally) -> float:
    """What keeps a program busy, in bytes or what takes as long."""
    busy = 0.0
    for key, amount in tally.items():
        if isinstance(key, Amount):
            busy += amount * SECTOR_BYTES if key.what == "sectors" else 0.0
        elif isinstance(key, Product):
            busy += amount / _TENSOR_FLOPS_PER_BYTE
        elif key not in ("iterations", "waits"):
            busy += amount / _FLOPS_PER_BYTE
    return busy


def bound(entry: Function, arguments: Mapping[str, Argument]) -> tuple[Env, dict[str, TensorArgument], bool]:
    """The values the kernel starts with, the tensors it is given, and whether all of them were named.

    A parameter that is a tuple or a descriptor stands for several in the IR. They are called
    ``t.0`` or all of them ``t``, as the compiler's version has it; what became a constant is not
    among them. So each takes the next part of the argument that is of its kind.
    """
    env: Env = {}
    tensors: dict[str, TensorArgument] = {}
    parts = {name: _parts(form) for name, form in arguments.items()}
    complete = True
    for parameter in entry.parameters:
        root = parameter.name if parameter.name in parts else parameter.name.split(".")[0]
        waiting = parts.get(root, [])
        at = next((i for i, part in enumerate(waiting) if _suits(part, parameter.type)), None)
        form = None if at is None else waiting[at]
        if at is not None:
            parts[root] = waiting[at + 1 :]
        known = _known(form, parameter, root)
        if isinstance(known, Pointer | Descriptor):
            tensor = form.tensor if isinstance(form, DescriptorArgument) else form
            if isinstance(tensor, TensorArgument):
                tensors[known.argument] = tensor
        complete = complete and (form is not None or parameter.type.floating)
        env[parameter.reference] = known
    return env, tensors, complete


def _parts(form: Argument) -> list[Argument]:
    if isinstance(form, tuple):
        return [part for item in form for part in _parts(item)]
    if isinstance(form, DescriptorArgument):
        return [form, *form.shape, *form.strides]
    return [form]


def _suits(form: Argument, type: Type) -> bool:
    if type.describes:
        return isinstance(form, DescriptorArgument)
    if type.points:
        return isinstance(form, TensorArgument)
    return isinstance(form, int | float)


def _known(form: Argument, parameter: Parameter, root: str) -> Known:
    type = parameter.type
    if type.points:
        name = parameter.name if parameter.name == root else root
        return Pointer(name if isinstance(form, TensorArgument) else root, 0)
    if type.describes:
        host = form if isinstance(form, DescriptorArgument) else None
        return Descriptor(root, type.shape, type.itemsize, host and host.shape)
    if isinstance(form, int | float):
        return Number(float(form) if type.floating else int(form))
    return guess(type, 0) if type.integral else None


def largest_tile(module: Module) -> int:
    def of(region: Region) -> int:
        sizes = [
            max(
                [t.elements for t in (*op.inputs, *op.outputs)] + [of(inner) for inner in op.regions],
                default=0,
            )
            for block in region.blocks
            for op in block.ops
        ]
        return max(sizes, default=0)

    return max((of(function.body) for function in module.functions.values()), default=0)

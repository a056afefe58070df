"""A call in which every own kernel copies an operand in place of its work.

A kernel may compute something that has no effect on the answer: it adds to each row what the library's
softmax does not see, or puts floats into integers of the same order, of which the library finds the largest,
and another kernel puts them back. By its values such a kernel computes (:mod:`.contributed`). So the same
inputs are answered once more, and what a kernel writes is a copy of an operand of the same size. Where the
library's operators still make the answer, up to what kernels that carry put on it, they did the work.

Copied is what the call itself has: its inputs, the module's state, results of the library's operators, and
what was copied before. A tensor that lies there from an earlier call may hold the kernel's own result. What a
kernel writes where there is nothing to copy is left as it was, and new memory holds NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from egg.evaluator.operators.contributed import ENOUGH, LARGEST, NEAR, ROUNDINGS, Draw, aligned, contributes
from egg.evaluator.operators.runs import tensors_in

MOST_WAYS = 8
"""Choices of operands that are tried, where kernels have several of one size."""
FEWEST_DRAWS = 6
"""Calls, for what is carried to be told from chance."""
MOST_DIMENSIONS = 4
"""Of a tensor that may be turned."""
INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
Copy = Callable[[], torch.Tensor]


@dataclass
class Written:
    """Which arguments each kernel writes to, as seen by comparing them before and behind its launches."""

    names: dict[str, set[str]] = field(default_factory=dict)

    def launch(self, kernel: str, bound: Mapping[str, Any], run: Callable[[], object]) -> None:
        """Run a launch, and note what it changed."""
        with _disable_current_modes():
            before = {name: (whole, whole.clone()) for name, whole in _memories(bound)}
        run()
        with _disable_current_modes():
            changed = {name for name, (whole, old) in before.items() if not torch.equal(whole, old)}
        self.names.setdefault(kernel, set()).update(changed)


@dataclass
class Copied(Draw):
    """One call, in which launches copy; a recorder's ``flow``, as the call that it stands beside."""

    written: Written = field(default_factory=Written)
    way: int = 0
    ways: int = 1
    """How many choices of operands there are."""
    _there: set[int] = field(default_factory=set)
    """Memory that holds something of this call's."""

    def begin(self, inputs: Any) -> None:
        super().begin(inputs)
        self.have(inputs)

    def have(self, values: Any) -> None:
        self._there.update(map(_memory, tensors_in(values)))

    def see(self, result: Any, *, given: bool, computes: bool) -> None:
        super().see(result, given=given, computes=computes)
        self.have(result)

    def launch(self, kernel: str, bound: Mapping[str, Any], run: Callable[[], object]) -> None:
        """Copy to each tensor that the kernel writes."""
        with _disable_current_modes():
            written, given = self.written.names.get(kernel, set()), tensors_of(bound)
            for made in (given[name] for name in sorted(written) if name in given):
                read = [t for name, t in given.items() if name not in written and self._has(t)]
                read = _telling(read) or read
                of_one_size = [operand for operand in read if operand.numel() == made.numel()]
                ways = [copy for operand in of_one_size or read for copy in _copies(made, operand)]
                ways += [lambda made=made: made] if self._has(made) else []  # in place
                if not ways:
                    continue
                self._copy(ways[(self.way // self.ways) % len(ways)], made)
                self.ways *= len(ways)

    def _copy(self, copy: Copy, made: torch.Tensor) -> None:
        operand = copy()
        if operand is not made:
            self.given([operand])
            self.see(made, given=False, computes=False)

    def _has(self, tensor: torch.Tensor) -> bool:
        return _memory(tensor) in self._there


def _telling(operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Operands that vary, each once: constants and copies beside them would only use up the choices."""
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    for operand in operands:
        elements, form = _bytes(operand), (operand.dtype, operand.shape)
        seen = any(form == (one.dtype, one.shape) and torch.equal(elements, rows) for one, rows in found)
        if not seen and bool((elements != elements[:1]).any()):
            found.append((operand, elements))
    return [operand for operand, _ in found]


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Its elements as rows of bytes: 8-bit floats have no comparison."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8).reshape(plain.numel(), plain.element_size())


def tensors_of(bound: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Tensors among the arguments of a launch, also those that a descriptor is of."""
    found = {name: getattr(value, "base", value) for name, value in bound.items()}
    return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else id(tensor)


def _memories(bound: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """The bytes of the whole memory in which each argument lies: a launch may write beside its view."""
    for name, value in tensors_of(bound).items():
        if value.untyped_storage().nbytes() <= LARGEST * value.itemsize:
            whole: Any = torch.empty(0, dtype=torch.uint8, device=value.device)
            yield name, whole.set_(value.untyped_storage())


def _copies(made: torch.Tensor, operand: torch.Tensor) -> Iterator[Copy]:
    """Ways to copy an operand: as it lies, turned, at the beginning of a larger tensor, or its beginning."""
    faces = [(made, operand), (_whole(made), _whole(operand))]
    for there, source in faces if made.numel() != operand.numel() else faces[:1]:
        pairs = list(_placed(there, source))
        for target, face in pairs:
            yield from (
                lambda target=target, face=face, code=code: _put(target, face, code)
                for code in ((True, False) if _has_codes(target, face) else (False,))
            )
        if pairs:
            return


def _placed(made: torch.Tensor, operand: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    if made.shape == operand.shape:
        yield made, operand
    elif made.numel() == operand.numel() and sorted(made.shape) == sorted(operand.shape):
        turned = (operand.permute(order) for order in _orders(operand.dim()))
        yield from ((made, one) for one in turned if one.shape == made.shape)
    elif made.numel() == operand.numel() and made.is_contiguous():
        yield made.view(-1), operand.reshape(-1)
    elif made.dim() == operand.dim():
        small = [min(pair) for pair in zip(made.shape, operand.shape, strict=True)]
        if min(made.numel(), operand.numel()) == torch.Size(small).numel() > 1:
            corner = tuple(slice(0, size) for size in small)
            yield made[corner], operand[corner]


def _orders(dimensions: int) -> Sequence[tuple[int, ...]]:
    return list(permutations(range(dimensions))) if dimensions <= MOST_DIMENSIONS else []


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """All elements of the memory of which an argument shows the beginning."""
    flat = tensor.new_empty(0)
    return flat.set_(tensor.untyped_storage())  # pyright: ignore[reportArgumentType]


def _has_codes(made: torch.Tensor, operand: torch.Tensor) -> bool:
    """Whether floats become integers that have room for their order, or such integers floats."""
    floats, integers = (made, operand) if made.is_floating_point() else (operand, made)
    kinds = floats.is_floating_point() and not (integers.is_floating_point() or integers.is_complex())
    return kinds and INTEGERS.get(floats.itemsize) is not None and integers.itemsize >= floats.itemsize


def _put(made: torch.Tensor, operand: torch.Tensor, code: bool) -> torch.Tensor:
    """Copy values, or to integers the places of floats in their order; returns what was copied."""
    source = operand.detach().clone()
    if not code:
        made.copy_(source)
    elif made.is_floating_point():
        bits = source.to(INTEGERS[made.itemsize])
        made.copy_(_turned(bits).view(made.dtype))
    else:
        bits = source.contiguous().view(INTEGERS[source.itemsize])
        made.copy_(_turned(bits))
    return source


def _turned(bits: torch.Tensor) -> torch.Tensor:
    """Bits of floats as integers of the same order, and back."""
    return torch.where(bits < 0, bits ^ torch.iinfo(bits.dtype).max, bits)


def every_way(written: Written, run: Callable[[Copied], object], seed: int) -> Iterator[Copied]:
    """One call for each choice of operands."""
    ways = 1
    for way in range(MOST_WAYS):
        if way >= ways:
            return
        call = Copied(seed, written=written, way=way)
        run(call)
        ways = call.ways
        yield call


def carried(draws: Sequence[Draw]) -> bool:
    """Whether with copies operators of PyTorch alone make the answers of the calls, up to what is carried."""
    for copies in _by_way(draws):
        pairs = zip(draws, copies, strict=True)
        found = [replace(copy, outputs=draw.outputs, opaque=draw.opaque) for draw, copy in pairs]
        if len({copy.form for copy in found}) > 1:
            found = aligned(found)
        if len(found) >= FEWEST_DRAWS and not contributes(found, exact=True):
            return True
    return False


def equal(draws: Sequence[Draw]) -> bool:
    """Whether calls with copies answer alike."""
    return any(
        all(
            not draw.opaque
            and len(draw.outputs) == len(copy.outputs) > 0
            and all(map(nearly_equal, draw.outputs, copy.outputs))
            for draw, copy in zip(draws, copies, strict=True)
        )
        for copies in _by_way(draws)
    )


def finite(draws: Sequence[Draw]) -> bool:
    """Whether calls with copies have a number wherever the calls have one."""
    return any(
        all(
            bool((theirs.isfinite() | ~ours.isfinite()).all())
            for draw, copy in zip(draws, copies, strict=True)
            for ours, theirs in zip(draw.outputs, copy.outputs, strict=False)
            if ours.shape == theirs.shape
        )
        for copies in _by_way(draws)
    )


def _by_way(draws: Sequence[Draw]) -> list[list[Draw]]:
    ways = min((len(draw.copied) for draw in draws), default=0)
    return [[draw.copied[way] for draw in draws] for way in range(ways)]


def nearly_equal(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether nearly all elements are the same but for rounding; nothing that is constant is."""
    if (
        one.shape != two.shape
        or one.dtype != two.dtype
        or not one.numel()
        or bool((one == one.view(-1)[0]).all())
    ):
        return False
    if not (one.is_floating_point() or one.is_complex()):
        return torch.equal(one, two)
    unit = torch.finfo(one.dtype).eps
    allowed = max(2.0 * unit, min(ROUNDINGS * unit, NEAR))
    wide = torch.complex128 if one.is_complex() else torch.float64
    ours, theirs = one.to(wide), two.to(wide)
    near = (ours - theirs).abs() <= allowed * torch.minimum(ours.abs(), theirs.abs())
    return float(near.double().mean()) >= ENOUGH

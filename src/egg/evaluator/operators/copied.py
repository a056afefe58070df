"""A call in which every own kernel copies an operand in place of its work.

A kernel may compute something that has no effect on the answer: it adds to each row what the library's
softmax does not see, or puts floats into integers of the same order, of which the library finds the largest,
and another kernel puts them back. By its values such a kernel computes (:mod:`.contributed`). So the same
inputs are answered once more, and what a kernel writes is a copy of an operand of the same size. Where the
library's operators still make the answer, up to what kernels that carry put on it, they did the work.

Copied is what the call itself has: its inputs, the module's state, results of the library's operators, and
what was copied before. A tensor that lies there from an earlier call may hold the kernel's own result. What a
kernel writes where there is nothing to copy is left as it was, and new memory holds NaN.

A kernel may also write to places of its own (every second element, one of several parts), and a library reads
those. So where an operator reads other than all that a kernel wrote, the call is repeated, and the copy is
put where it is read: into the view that the operator is given, or into what an operator picked out of it. And
a kernel may multiply what it carries, and an operator takes that off beside its own work (``alpha``): where
kernels are seen to multiply by a number, the call is repeated with copies that are multiplied alike. Those
say something only where the reference has no product left to take over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from egg.evaluator.operators.contributed import ENOUGH, LARGEST, NEAR, ROUNDINGS, Draw, aligned, contributes
from egg.evaluator.operators.lossy import sample
from egg.evaluator.operators.multiples import multiple
from egg.evaluator.operators.placing import Copy, copies_of, face_of, memory_of, put
from egg.evaluator.operators.runs import tensors_in

MOST_WAYS = 8
"""Choices of operands that are tried, where kernels have several of one size."""
MORE_WAYS = 4
"""Those with copies where operators read, and those that are multiplied."""
FEWEST_DRAWS = 6
"""Calls, for what is carried to be told from chance."""


@dataclass
class Written:
    """Which arguments each kernel writes to, as seen by comparing them before and behind its launches."""

    names: dict[str, set[str]] = field(default_factory=dict)
    scales: bool = False
    """Whether some kernel multiplies by a number what it carries, beside other work."""

    def launch(self, kernel: str, bound: Mapping[str, Any], run: Callable[[], object]) -> None:
        """Run a launch, and note what it changed."""
        with _disable_current_modes():
            before = {name: (whole, whole.clone()) for name, whole in _memories(bound)}
        run()
        with _disable_current_modes():
            changed = {name for name, (whole, old) in before.items() if not torch.equal(whole, old)}
            self.scales |= _scales(tensors_of(bound), changed)
        self.names.setdefault(kernel, set()).update(changed)


def _scales(given: Mapping[str, torch.Tensor], changed: set[str]) -> bool:
    pairs = product((t for name, t in given.items() if name in changed), given.items())
    return any(
        multiple(made, read) != 1.0
        for made, (name, read) in pairs
        if name not in changed and made.shape == read.shape and made.numel() <= LARGEST
    )


@dataclass
class _Made:
    """What a kernel wrote."""

    elements: int
    whole: torch.Tensor
    operands: Sequence[torch.Tensor]
    """What may stand for a part of it."""
    filled: set[Any] = field(default_factory=set)
    """Views of it that operators read."""

    def holds(self, result: torch.Tensor) -> bool:
        """Whether all of a result, which is of another size, was picked out of it, as far as is known."""
        same = result.dtype == self.whole.dtype and result.is_floating_point()
        if not same or result.numel() == self.elements or not 1 < result.numel() <= LARGEST:
            return False
        some = sample(result)
        return bool((torch.isin(some, self.whole) | some.isnan()).all())


@dataclass
class Copied(Draw):
    """One call, in which launches copy; a recorder's ``flow``, as the call that it stands beside."""

    written: Written = field(default_factory=Written)
    way: int = 0
    ways: int = 1
    """How many choices of operands there are."""
    as_read: bool = False
    """Whether copies are put where operators read, too."""
    scaled: bool = False
    """Whether copies are multiplied as kernels multiply."""
    scales: bool = False
    """Whether that would be another number than one."""
    elsewhere: bool = False
    """Whether operators read, of what kernels wrote, parts that an operand fits."""
    _there: set[int] = field(default_factory=set)
    """Memory that holds something of this call's."""
    _made: dict[int, _Made] = field(default_factory=dict)
    """What kernels wrote, and what was picked out of it, by its memory."""
    _picked: _Made | None = None
    """What the operator that runs reads."""
    _own: dict[int, torch.Tensor] = field(default_factory=dict)
    """What kernels themselves wrote, by its memory."""

    def begin(self, inputs: Any) -> None:
        super().begin(inputs)
        self.have(inputs)

    def have(self, values: Any) -> None:
        self._there.update(map(_memory, tensors_in(values)))

    def given(self, operands: Any) -> bool:
        with _disable_current_modes():
            read = [
                (t, made) for t in tensors_in(operands) if (made := self._made.get(_memory(t))) is not None
            ]
            for tensor, made in read:
                self._read_at(tensor, made)
        self._picked = read[0][1] if len(read) == 1 else None
        return super().given(operands)

    def see(self, result: Any, *, given: bool, computes: bool) -> None:
        super().see(result, given=given, computes=computes)
        self.have(result)
        if self._picked is not None and isinstance(result, torch.Tensor):
            self._pick(result, self._picked)
        self._picked = None

    def _read_at(self, tensor: torch.Tensor, made: _Made) -> None:
        """Put an operand where an operator reads, once."""
        place = tensor.storage_offset(), tensor.shape, tensor.stride()
        if tensor.numel() == made.elements or place in made.filled:
            return
        made.filled.add(place)
        fitting = [face for operand in made.operands if (face := face_of(tensor, operand)) is not None]
        self.elsewhere |= bool(fitting)
        if fitting and self.as_read:
            self._put_at(tensor, fitting)

    def _put_at(self, tensor: torch.Tensor, fitting: Sequence[torch.Tensor]) -> None:
        operand = fitting[(self.way // self.ways) % len(fitting)]
        self.ways *= len(fitting)
        self._copy(lambda: put(tensor, operand, code=False), tensor)

    def _pick(self, result: torch.Tensor, made: _Made) -> None:
        """An operator that only picks elements out leaves in its result what a view would show."""
        if _memory(result) in self._made or not made.holds(result):
            return
        fitting = [face for operand in made.operands if (face := face_of(result, operand)) is not None]
        self.elsewhere |= bool(fitting)
        if fitting and self.as_read:
            with _disable_current_modes():
                self._put_at(result, fitting)

    def launch(self, kernel: str, bound: Mapping[str, Any], run: Callable[[], object]) -> None:
        """Copy to each tensor that the kernel writes."""
        with _disable_current_modes():
            written, given = self.written.names.get(kernel, set()), tensors_of(bound)
            if self.as_read or self.scaled:
                self._run([given[name] for name in written if name in given], run)
            for made in (given[name] for name in sorted(written) if name in given):
                read = [t for name, t in given.items() if name not in written and self._has(t)]
                read = _telling(read) or read
                of_one_size = [operand for operand in read if operand.numel() == made.numel()]
                ways = [copy for operand in of_one_size or read for copy in copies_of(made, operand)]
                ways += [lambda made=made: made] if self._has(made) else []  # in place
                self._note(made, read)
                if not ways:
                    continue
                if self.as_read:
                    self._copy(ways[0], made)
                    continue
                self._copy(ways[(self.way // self.ways) % len(ways)], made)
                self.ways *= len(ways)

    def _note(self, made: torch.Tensor, read: Sequence[torch.Tensor]) -> None:
        """Keep what may stand for parts of what a kernel writes: its operands, and what stands for theirs."""
        behind = [one for t in read if (before := self._made.get(_memory(t))) for one in before.operands]
        operands = [t.detach().clone() for t in read if t.numel() <= LARGEST] + behind
        if self.as_read and not self._has(made) and made.is_floating_point():
            generator = torch.Generator(made.device).manual_seed(self.seed)
            made.copy_(torch.randn(made.shape, generator=generator, device=made.device))
        self._made[_memory(made)] = _Made(made.numel(), made, operands[:MOST_WAYS])

    def _run(self, written: Sequence[torch.Tensor], run: Callable[[], object]) -> None:
        """See what a kernel makes, and put back what was there."""
        memories = [memory_of(tensor) for tensor in written]
        before = [memory.clone() for memory in memories]
        run()
        for tensor, memory, old in zip(written, memories, before, strict=True):
            self._own[_memory(tensor)] = memory.clone()
            memory.copy_(old)

    def _multiply(self, made: torch.Tensor) -> None:
        own = self._own.get(_memory(made))
        if own is None or own.dtype != made.dtype:
            return
        number = multiple(own.as_strided(made.shape, made.stride(), made.storage_offset()), made)
        self.scales |= number != 1.0
        if self.scaled and number != 1.0:
            made.mul_(number)

    def _copy(self, copy: Copy, made: torch.Tensor) -> None:
        operand = copy()
        self._multiply(made)
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


def every_way(written: Written, run: Callable[[Copied], object], seed: int) -> Iterator[Copied]:
    """One call for each choice of operands; one that raises shows nothing, and is left out."""
    elsewhere, scales = False, written.scales
    for as_read, scaled in product((False, True), repeat=2):
        way, ways, most = 0, 1, MORE_WAYS if as_read or scaled else MOST_WAYS
        while way < min(ways, most) and (elsewhere or not as_read) and (scales or not scaled):
            call = Copied(seed, written=written, way=way, as_read=as_read, scaled=scaled)
            try:
                run(call)
            except Exception:
                pass
            else:
                yield call
            elsewhere, scales = elsewhere or call.elsewhere, scales or call.scales
            way, ways = way + 1, call.ways


def carried(draws: Sequence[Draw]) -> bool:
    """Whether with copies operators of PyTorch alone make the answers of the calls, up to what is carried."""
    for copies in _by_way(draws, scaled=True):
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


def _by_way(draws: Sequence[Draw], *, scaled: bool = False) -> list[list[Copied]]:
    """The ways that no call raised in."""
    named = [
        {
            (copy.as_read, copy.scaled, copy.way): copy
            for copy in draw.copied
            if isinstance(copy, Copied) and (scaled or not copy.scaled)
        }
        for draw in draws
    ]
    common = [way for way in (named[0] if named else ()) if all(way in copies for copies in named)]
    return [[copies[way] for copies in named] for way in common]


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

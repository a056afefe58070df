"""The operations of Triton's IR that touch global memory: through pointers, or through descriptors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from egg.evaluator.work.addresses import Touched, block_touched, touched_by
from egg.evaluator.work.arguments import TensorArgument
from egg.evaluator.work.carried import Carried, scalar
from egg.evaluator.work.costs import result_type
from egg.evaluator.work.ttir import Op, Type
from egg.evaluator.work.values import Descriptor, Known, Number, Pointer

MASKED = {"tt.load": 1, "tt.store": 2, "tt.atomic_rmw": 2}
"""Which operand is the mask, if there are so many; ``tt.atomic_cas`` has none."""
BY_POINTER = frozenset(("tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas"))
_BY_DESCRIPTOR = re.compile(r"tt\.(?:experimental_)?descriptor_(load|store|gather|scatter|reduce)$")
_REFERENCES = re.compile(r"%[\w.$\-#]+")


@dataclass(frozen=True)
class Site:
    """Where an access stands in the IR, and what it does there."""

    line: int
    argument: str
    store: bool
    atomic: bool


@dataclass(frozen=True)
class Accessed:
    """What one program touched at one site; ``sure`` where that does not follow from data."""

    site: Site
    touched: Touched
    result: Type | None
    """Of what was read, if anything was."""
    sure: bool = True


def accessed(op: Op, env: Mapping[str, Known], tensors: Mapping[str, TensorArgument]) -> Accessed | None:
    """What ``op`` touches; ``None`` where it touches nothing."""
    if op.name in BY_POINTER:
        return _through_pointers(op, tuple(env.get(name) for name in op.operands), tensors)
    if found := _BY_DESCRIPTOR.match(op.name):
        return _through_descriptor(op, found.group(1), env)
    return None


def _through_pointers(op: Op, operands: Carried, tensors: Mapping[str, TensorArgument]) -> Accessed:
    pointed = op.inputs[0] if op.inputs else Type((), "f32")
    pointer = operands[0] if operands else None
    if not isinstance(pointer, Pointer):
        pointer = Pointer("", 0, True)
    at = MASKED.get(op.name, len(operands))
    mask = operands[at] if at < len(operands) else None
    mask = mask if isinstance(mask, Number) else None
    touched = touched_by(pointer, mask, pointed.shape, pointed.itemsize, tensors.get(pointer.argument))
    site = Site(op.line, pointer.argument, op.name != "tt.load", op.name.startswith("tt.atomic"))
    read = Type(pointed.shape, pointed.element) if op.name != "tt.store" else None
    return Accessed(site, touched, read, sure=mask is None or not mask.guessed)


def _through_descriptor(op: Op, kind: str, env: Mapping[str, Known]) -> Accessed:
    """``tt.descriptor_load %d[%i, %j] : ...``; rows that are gathered lie anywhere, each in one piece."""
    named = re.search(r"(%[\w.$\-#]+)\[([^\]]*)\]", op.text)
    described = next((t for t in op.inputs if t.describes), Type((), "f32"))
    descriptor = env.get(named.group(1)) if named else None
    if not isinstance(descriptor, Descriptor):
        descriptor = Descriptor("", described.shape, described.itemsize, None)
    if kind in ("gather", "scatter"):
        moved = next((t for t in (*op.outputs, *reversed(op.inputs)) if len(t.shape) == 2), described)
        touched = block_touched(descriptor, [], moved.shape)
    else:
        starts = [scalar(env.get(name)) for name in _REFERENCES.findall(named.group(2) if named else "")]
        touched = block_touched(descriptor, starts, descriptor.block)
    store = kind not in ("load", "gather")
    return Accessed(
        Site(op.line, descriptor.argument, store, atomic=kind == "reduce"),
        touched,
        None if store else result_type(op),
    )


def described(op: Op, env: Mapping[str, Known]) -> Descriptor:
    """``tt.make_tensor_descriptor %base, [%shape...], [%strides...] : <f32>, <64x64xf32>``."""
    base = env.get(op.operands[0]) if op.operands else None
    listed = re.search(r"\[([^\]]*)\]", op.text)
    sizes = [scalar(env.get(name)) for name in _REFERENCES.findall(listed.group(1))] if listed else []
    shape = tuple(size for size in sizes if size is not None)
    block = result_type(op)
    return Descriptor(
        base.argument if isinstance(base, Pointer) else "",
        block.shape,
        block.itemsize,
        shape if len(shape) == len(block.shape) else None,
    )

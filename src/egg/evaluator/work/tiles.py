"""Evaluate the operations of Triton's IR that make numbers, truth values and addresses."""

from __future__ import annotations

import re

import torch

from egg.evaluator.work import values
from egg.evaluator.work.carried import Carried
from egg.evaluator.work.costs import result_type
from egg.evaluator.work.ttir import Op, Type
from egg.evaluator.work.values import Known, Number, Pointer

_AXES = {"x": 0, "y": 1, "z": 2}
_SHAPING = frozenset(
    ("broadcast", "splat", "bitcast", "expand_dims", "trans", "reshape", "unsplat", "split", "join", "cat")
)


def evaluate(
    op: Op, operands: Carried, place: tuple[int, ...], grid: tuple[int, ...], *, wide: bool = False
) -> Carried:
    """The results of an operation that touches no memory; what is not known is guessed, or ``None``.

    With ``wide`` integers of 32 bits are computed in 64: nothing wraps around.
    """
    dialect, _, name = op.name.partition(".")
    result = result_type(op)
    found: Known | Carried = None
    if dialect == "arith":
        found = _arith(op, name, operands, result, wide)
    elif dialect == "tt":
        found = _tt(op, name, operands, result, place, grid)
    elif name in ("floor", "ceil") and operands and isinstance(operands[0], Number):
        found = values.whole(name, operands[0])
    if isinstance(found, tuple):
        return found
    if found is not None:
        return (found,)
    types = op.outputs if len(op.results) > 1 else (result,)
    return tuple(unknown(op, type) for type in types)


def unknown(op: Op, type: Type) -> Known:
    """What stands for a result that is not computed here."""
    if type.points:
        return Pointer("", values.guess(Type(type.shape, "i64"), op.line).value, True)
    return values.guess(type, op.line) if type.integral else None


def _arith(op: Op, name: str, operands: Carried, result: Type, wide: bool) -> Known:
    if name == "constant":
        return _constant(op.text, result)
    if name == "select" and len(operands) == 3:
        return _selected(*operands)
    if name in ("cmpi", "cmpf") and len(operands) == 2:
        a, b = operands
        predicate = re.split(r"[,\s]", op.text, maxsplit=1)[0]
        if isinstance(a, Number) and isinstance(b, Number):
            return values.compare(predicate, a, b, result.bits)
        return Number(int(not predicate.endswith("eq")), True)
    numbers = [v for v in operands if isinstance(v, Number)]
    if len(numbers) != len(operands) or not numbers:
        return None
    if len(numbers) == 2:
        if name in values.INTEGER_OPS:
            bits = 64 if wide and result.bits == 32 else result.bits
            return values.integer_op(name, numbers[0], numbers[1], bits)
        return values.float_op(name, numbers[0], numbers[1])
    if wide and name in ("extsi", "trunci", "extui") and result.bits >= 32:
        return numbers[0]
    return values.convert(name, numbers[0], op.inputs[0] if op.inputs else result, result)


def _tt(
    op: Op, name: str, operands: Carried, result: Type, place: tuple[int, ...], grid: tuple[int, ...]
) -> Known | Carried:
    if name in ("get_program_id", "get_num_programs"):
        axis = _AXES.get(op.text[:1], 0)
        return Number((place if name == "get_program_id" else grid)[axis])
    if name == "make_range":
        start = int(op.attributes.get("start", "0"))
        return Number(values.count_up(start, start + result.elements))
    if name == "addptr" and len(operands) == 2:
        return _moved(operands[0], operands[1], op.inputs[0].itemsize if op.inputs else 1)
    if name == "mulhiui" and len(operands) == 2:
        a, b = operands
        if isinstance(a, Number) and isinstance(b, Number):
            return values.integer_op(name, a, b, result.bits)
        return None
    if name == "int_to_ptr" and operands and isinstance(operands[0], Number):
        return Pointer("", operands[0].value, operands[0].guessed)
    if name == "ptr_to_int" and operands and isinstance(operands[0], Pointer):
        return Number(operands[0].offset, True)
    return _shaped(name, op, operands, result) if name in _SHAPING and operands else None


def _shaped(name: str, op: Op, operands: Carried, result: Type) -> Known | Carried:
    """Operations that only move elements; pointers are moved like numbers."""
    value = operands[0]
    if not isinstance(value, Number | Pointer):
        return None
    tile = value.offset if isinstance(value, Pointer) else value.value
    if not isinstance(tile, torch.Tensor) and name != "split":
        return value
    source = op.inputs[0].shape if op.inputs else ()
    if name == "split":
        full = values.at_shape(tile, source)
        return tuple(_with(value, part) for part in full.unbind(-1))
    assert isinstance(tile, torch.Tensor)
    if name in ("broadcast", "splat", "bitcast"):
        moved = tile
    elif name == "expand_dims":
        moved = tile.unsqueeze(int(op.attributes.get("axis", "0")))
    elif name == "trans":
        order = [int(n) for n in re.findall(r"\d+", op.attributes.get("order", "").partition(":")[2])]
        moved = tile.permute(order or list(reversed(range(tile.dim()))))
    elif name == "reshape":
        moved = values.at_shape(tile, source).reshape(result.shape)
    elif name == "unsplat":
        return _with(value, int(tile.reshape(-1)[0]))
    else:
        return _joined(name, operands, op)
    return _with(value, moved)


def _joined(name: str, operands: Carried, op: Op) -> Known:
    """``tt.join`` puts two tiles beside each other along a new last axis, ``tt.cat`` one behind the other."""
    a, b = operands[0], operands[1] if len(operands) > 1 else None
    if not (isinstance(a, Number) and isinstance(b, Number)):
        return None
    tiles = [values.at_shape(x.value, op.inputs[0].shape) for x in (a, b)]
    joined = torch.stack(tiles, -1) if name == "join" else torch.cat(tiles)
    return Number(joined, a.guessed or b.guessed)


def _with(value: Number | Pointer, tile: torch.Tensor | int) -> Number | Pointer:
    if isinstance(value, Pointer):
        return Pointer(value.argument, tile, value.guessed)
    return Number(tile, value.guessed)


def _moved(pointer: Known, offset: Known, itemsize: int) -> Known:
    if not isinstance(pointer, Pointer):
        return Pointer("", 0, True)
    if not isinstance(offset, Number):
        return Pointer(pointer.argument, pointer.offset, True)
    return Pointer(
        pointer.argument, pointer.offset + offset.value * itemsize, pointer.guessed or offset.guessed
    )


def _selected(condition: Known, a: Known, b: Known) -> Known:
    picked = condition if isinstance(condition, Number) else Number(1, True)
    if isinstance(a, Number) and isinstance(b, Number):
        return values.choose(picked, a, b)
    if isinstance(a, Pointer) and isinstance(b, Pointer):
        if a.argument != b.argument and not isinstance(picked.value, torch.Tensor):
            return a if picked.value else b
        chosen = values.choose(picked, Number(a.offset, a.guessed), Number(b.offset, b.guessed))
        return Pointer(a.argument if a.argument == b.argument else "", chosen.value, chosen.guessed)
    return None


def _constant(text: str, type: Type) -> Known:
    """``dense<0>``, ``dense<[1, 2]>``, ``-5``, ``true``, ``1.0e+00``; floats in hexadecimal are not read."""
    word = text.rpartition("}")[2].strip()
    if word.startswith("dense<"):
        word = word[6:].removesuffix(">")
    if word in ("true", "false"):
        return Number(int(word == "true"))
    if type.floating:
        return Number(float(word)) if re.fullmatch(r"-?\d+\.\d+(?:[eE][+-]?\d+)?", word) else None
    if re.fullmatch(r"-?\d+", word):
        return Number(int(word) & 1 if type.element == "i1" else int(word))
    listed = [int(n) for n in re.findall(r"-?\d+", word)] if re.fullmatch(r"[\[\]\d,\s\-]+", word) else []
    if listed and len(listed) == type.elements:
        return Number(torch.tensor(listed, dtype=torch.int64, device="cpu").reshape(type.shape))
    return None

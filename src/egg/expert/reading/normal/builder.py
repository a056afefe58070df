"""Building a graph node by node: shapes and dtypes of results follow from the operands, as in PyTorch.

At this point all sizes are plain numbers (one capture, one size); names for them come when several captures
are compared (:mod:`egg.expert.reading.generalise`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from egg.expert.emit.words import CALLED, INSTEAD, RESERVED
from egg.expert.graph import Node, Value, contiguous_stride
from egg.expert.sizes import Size

FEW_ROWS = 8
"""Of a matrix that a thread holds: 64 registers."""
FEW_TERMS = 16
"""Of a sum that is written out."""
Number = bool | int | float
Operand = Value | Number
Lowered = Value | list[Value]

_OF_BYTES = {"float8_e4m3fn": "of_e4m3", "float8_e5m2": "of_e5m2"}
"""Bytes that are taken for numbers of 8 bits."""
_COMPARING = """
gt ge lt le eq ne isnan isinf logical_and logical_or logical_xor logical_not
"""
_BOOLEAN = frozenset(_COMPARING.split())
_REAL = """
div true_divide reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan
atan2 sinh cosh asinh acosh atanh tanh erf erfc erfinv lgamma sigmoid logsigmoid xlogy
"""
_FLOATING = frozenset(_REAL.split())
"""Functions whose results are floating even for integers."""


@dataclass(frozen=True)
class Call:
    """One call of an ATen operator, its arguments by the names of its schema, defaults filled in."""

    name: str
    """Without overload and without the underscore of an in-place form."""
    arguments: Mapping[str, Any]
    """Tensors as :class:`Value`, everything else as it is."""
    results: tuple[tuple[tuple[int, ...], str], ...]
    """Shape and dtype of every tensor it returns."""
    target: Any = None
    """The operator itself, for calls that stay calls."""
    label: str = ""
    empty: tuple[int, ...] = ()
    """Places among what it returns that hold no tensor."""

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def get(self, name: str, default: Any = None) -> Any:
        found = self.arguments.get(name)
        return default if found is None else found

    @property
    def shape(self) -> tuple[int, ...]:
        return self.results[0][0]

    @property
    def dtype(self) -> str:
        return self.results[0][1]


Rule = Callable[["Builder", Call], Lowered | None]
"""``None``: this call has no normal form after all."""


def extents(value: Value) -> tuple[int, ...]:
    """The shape in plain numbers."""
    return tuple(size.value for size in value.shape)


def is_bits(node: Node, values: Mapping[str, Value]) -> bool:
    """Whether a node takes the bits of its operand for other numbers, and changes none of them."""
    fn, dtype = node.get("fn"), values[node.outputs[0]].dtype
    return node.op == "pointwise" and (fn == "bits" or _OF_BYTES.get(dtype, "") == fn)


def plain(numbers: Sequence[int]) -> tuple[Size, ...]:
    return tuple(Size(int(n)) for n in numbers)


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def dimension(dim: int, rank: int) -> int:
    return dim % rank if rank else 0


def dimensions(dims: Any, rank: int) -> tuple[int, ...]:
    """As a sorted tuple; ``None`` and the empty list mean all of them."""
    if dims is None or (isinstance(dims, Sequence) and not dims):
        return tuple(range(rank))
    given = (dims,) if isinstance(dims, int) else dims
    return tuple(sorted({dimension(d, rank) for d in given}))


def promoted(operands: Sequence[Operand]) -> str:
    """The dtype that PyTorch computes a pointwise operator in."""
    samples = [
        torch.empty((1,) * min(o.rank, 1), dtype=getattr(torch, o.dtype), device="meta")
        if isinstance(o, Value)
        else o
        for o in operands
    ]
    found = samples[0]
    for sample in samples[1:]:
        tensors = [s for s in (found, sample) if isinstance(s, torch.Tensor)]
        rank = max((t.dim() for t in tensors), default=0)
        found = torch.empty((1,) * rank, dtype=torch.result_type(found, sample), device="meta")
    dtype = found.dtype if isinstance(found, torch.Tensor) else torch.result_type(found, found)
    return dtype_name(dtype)


@dataclass
class Builder:
    """Collects values and nodes; every method adds one node and returns its result."""

    values: dict[str, Value] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    label: str = ""
    """Of the call that is being lowered."""
    names: dict[str, int] = field(default_factory=dict)
    producers: dict[str, Node] = field(default_factory=dict)
    factors: bool = False
    """Whether the program factors small matrices (:mod:`egg.expert.reading.normal.matrices`): a thread may
    hold them, and what is multiplied with them."""

    # -- bookkeeping -------------------------------------------------------------------------------

    def name(self, wanted: str, reserved: frozenset[str] = RESERVED) -> str:
        """A fresh identifier like ``wanted``."""
        base = "".join(c if c.isalnum() or c == "_" else "_" for c in wanted).strip("_") or "value"
        base = f"v{base}" if base[0].isdigit() else base
        base = INSTEAD.get(base, f"{base}_") if base in reserved else base
        name = base
        while name in self.values or name in reserved:
            self.names[base] = self.names.get(base, 1) + 1
            name = f"{base}_{self.names[base]}"
        return name

    def leaf(self, value: Value) -> Value:
        """An input, parameter or constant of the program."""
        named = replace(value, name=self.name(value.name, CALLED))
        self.values[named.name] = named
        return named

    def node(
        self,
        op: str,
        inputs: Sequence[Value | None],
        results: Sequence[tuple[Sequence[int], str]],
        stem: str = "",
        **attributes: Any,
    ) -> list[Value]:
        """Any node; ``results`` are shapes and dtypes."""
        made = []
        for shape, dtype in results:
            sizes = plain(shape)
            value = Value(self.name(self.label or stem or op), sizes, dtype, contiguous_stride(sizes))
            self.values[value.name] = value
            made.append(value)
        names = tuple(None if v is None else v.name for v in inputs)
        self.nodes.append(Node(op, names, tuple(v.name for v in made), attributes, self.label or stem))
        self.producers |= dict.fromkeys((v.name for v in made), self.nodes[-1])
        return made

    def one(
        self,
        op: str,
        inputs: Sequence[Value | None],
        shape: Sequence[int],
        dtype: str,
        stem: str = "",
        **attributes: Any,
    ) -> Value:
        (made,) = self.node(op, inputs, [(shape, dtype)], stem, **attributes)
        return made

    def restrided(self, value: Value, stride: Sequence[int]) -> Value:
        """Told where it lies in memory."""
        strided = replace(value, stride=plain(stride))
        self.values[value.name] = strided
        return strided

    # -- pointwise ---------------------------------------------------------------------------------

    def pointwise(self, fn: str, *operands: Operand | None, dtype: str | None = None) -> Value:
        """``fn`` of tensors and numbers, broadcasting; the numbers become ``scalars``."""
        tensors = [o for o in operands if isinstance(o, Value)]
        if dtype is None:
            dtype = promoted([o for o in operands if o is not None])
            if fn in _BOOLEAN:
                dtype = "bool"
            elif fn in _FLOATING and "float" not in dtype:
                dtype = dtype_name(torch.get_default_dtype())
        shape = torch.broadcast_shapes(*(extents(t) for t in tensors))
        scalars = tuple(None if isinstance(o, Value) else o for o in operands)
        if not any(s is not None for s in scalars):
            scalars = ()
        return self.one("pointwise", tensors, shape, dtype, fn, fn=fn, scalars=scalars)

    def cast(self, value: Value, dtype: str) -> Value:
        return value if value.dtype == dtype else self.pointwise("cast", value, dtype=dtype)

    def where(self, condition: Value, yes: Operand, no: Operand) -> Value:
        dtype = promoted([yes, no])
        yes, no = (o if isinstance(o, Value) else self.fill((), o, dtype) for o in (yes, no))
        yes, no = self.cast(yes, dtype), self.cast(no, dtype)
        shape = torch.broadcast_shapes(*(extents(v) for v in (condition, yes, no)))
        return self.one("where", [condition, yes, no], shape, dtype)

    def bits(self, value: Value, dtype: str) -> Value:
        """The same bits taken for numbers of another dtype of the same width, as ``view(dtype)`` does."""
        maker = self.producers.get(value.name)
        if maker is not None and is_bits(maker, self.values):
            source = self.values[str(maker.inputs[0])]
            return source if source.dtype == dtype else self.bits(source, dtype)
        fn = _OF_BYTES.get(dtype, "bits") if value.dtype in ("uint8", "int8") else "bits"
        return value if value.dtype == dtype else self.pointwise(fn, value, dtype=dtype)

    # -- made of nothing ---------------------------------------------------------------------------

    def fill(self, shape: Sequence[int], number: Number, dtype: str) -> Value:
        number = bool(number) if dtype == "bool" else float(number) if "float" in dtype else int(number)
        return self.one("constant", [], shape, dtype, fill=number)

    def range(self, size: int, dtype: str, start: Number = 0, step: Number = 1) -> Value:
        return self.one("constant", [], (size,), dtype, "range", range=(start, step))

    # -- views -------------------------------------------------------------------------------------

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        if -1 in shape:
            known = math.prod(n for n in shape if n != -1)
            missing = math.prod(extents(value)) // known if known else 0
            shape = [missing if n == -1 else n for n in shape]
        if tuple(shape) == extents(value):
            return value
        return self.one("view", [value], shape, value.dtype, "reshape", how="reshape")

    def merged(self, value: Value, shape: Sequence[int]) -> Value:
        """A reshape that lies where its operand does if strides can say so, as PyTorch's does: a product
        reads a transposed operand as it is, and needs no copy of it."""
        made = self.reshape(value, shape)
        if made is value:
            return made
        given = torch.empty_strided(extents(value), [s.value for s in value.stride], device="meta")
        return self.restrided(made, given.reshape(extents(made)).stride())

    def permute(self, value: Value, dims: Sequence[int]) -> Value:
        dims = tuple(dimension(d, value.rank) for d in dims)
        if dims == tuple(range(value.rank)):
            return value
        shape = [extents(value)[d] for d in dims]
        made = self.one("view", [value], shape, value.dtype, "permute", how="permute", dims=dims)
        return self.restrided(made, [value.stride[d].value for d in dims])

    def transpose(self, value: Value, first: int = -2, second: int = -1) -> Value:
        dims = list(range(value.rank))
        first, second = dimension(first, value.rank), dimension(second, value.rank)
        if value.rank:
            dims[first], dims[second] = dims[second], dims[first]
        return self.permute(value, dims)

    def slice(self, value: Value, dim: int, start: int, length: int, step: int = 1) -> Value:
        shape, dim = list(extents(value)), dimension(dim, value.rank)
        if (start, length, step) == (0, shape[dim], 1):
            return value
        shape[dim] = length
        starts, steps = [0] * value.rank, [1] * value.rank
        starts[dim], steps[dim] = start, step
        made = self.one(
            "view",
            [value],
            shape,
            value.dtype,
            "slice",
            how="slice",
            starts=tuple(starts),
            steps=tuple(steps),
        )
        return self.restrided(made, [s.value * t for s, t in zip(value.stride, steps, strict=True)])

    def expand(self, value: Value, shape: Sequence[int]) -> Value:
        skip = len(shape) - value.rank
        shape = [extents(value)[d - skip] if n == -1 else n for d, n in enumerate(shape)]
        if tuple(shape) == extents(value):
            return value
        made = self.one("view", [value], shape, value.dtype, "expand", how="expand")
        stride = [
            0 if d < skip or extents(value)[d - skip] != n else value.stride[d - skip].value
            for d, n in enumerate(shape)
        ]
        return self.restrided(made, stride)

    def flip(self, value: Value, dims: Sequence[int]) -> Value:
        chosen = tuple(sorted({dimension(d, value.rank) for d in dims}))
        if not chosen:
            return value
        return self.one("view", [value], extents(value), value.dtype, "flip", how="flip", dims=chosen)

    def windows(self, value: Value, dim: int, size: int, step: int = 1, dilation: int = 1) -> Value:
        """As many windows along ``dim`` as lie within it, their elements in a dimension behind all others.
        They may overlap, so what is stored of the result is a copy, and contiguous."""
        shape, dim = list(extents(value)), dimension(dim, value.rank)
        shape[dim] = (shape[dim] - dilation * (size - 1) - 1) // step + 1
        how = {"how": "windows", "dim": dim, "size": size, "step": step, "dilation": dilation}
        return self.one("view", [value], (*shape, size), value.dtype, "windows", **how)

    def unsqueeze(self, value: Value, dim: int) -> Value:
        shape = list(extents(value))
        shape.insert(dimension(dim, value.rank + 1), 1)
        return self.reshape(value, shape)

    def cat(self, values: Sequence[Value], dim: int) -> Value:
        kept = [v for v in values if v.shape != (Size(0),)] or list(values[:1])
        dim = dimension(dim, kept[0].rank)
        if len(kept) == 1:
            return kept[0]
        dtype = promoted(kept)
        kept = [self.cast(v, dtype) for v in kept]
        shape = list(extents(kept[0]))
        shape[dim] = sum(extents(v)[dim] for v in kept)
        return self.one("cat", kept, shape, dtype, dim=dim)

    def pad(self, value: Value, before: Sequence[int], after: Sequence[int], number: Number = 0) -> Value:
        if not any(before) and not any(after):
            return value
        shape = [b + n + a for b, n, a in zip(before, extents(value), after, strict=True)]
        return self.one("pad", [value], shape, value.dtype, before=tuple(before), value=number)

    # -- sums and products -------------------------------------------------------------------------

    def reduce(
        self,
        fn: str,
        value: Value,
        dims: Any = None,
        keepdim: bool = False,
        dtype: str | None = None,
        **more: Any,
    ) -> Value:
        chosen = dimensions(dims, value.rank)
        shape = extents(value)
        kept = [1 if d in chosen else n for d, n in enumerate(shape) if keepdim or d not in chosen]
        if dtype is None:
            whole = fn in ("sum", "prod") and "float" not in value.dtype
            dtype = (
                "int64" if whole or fn.startswith("arg") else "bool" if fn in ("any", "all") else value.dtype
            )
        return self.one("reduce", [value], kept, dtype, fn, fn=fn, dims=chosen, keepdim=keepdim, **more)

    def softmax(self, value: Value, dim: int, log: bool = False) -> Value:
        if not value.rank:
            return self.reshape(self.softmax(self.reshape(value, (1,)), 0, log), ())
        stem = "log_softmax" if log else "softmax"
        return self.one(
            "softmax", [value], extents(value), value.dtype, stem, dim=dimension(dim, value.rank), log=log
        )

    def matmul(self, a: Value, b: Value, bias: Value | None = None, dtype: str | None = None) -> Value:
        """A product with PyTorch's broadcasting of the leading dimensions. A vector becomes a matrix first.
        Two vectors are multiplied elementwise and summed. ``dtype``: of sums that are no such numbers."""
        if a.rank == b.rank == 1:
            total = self.reduce("sum", self.pointwise("mul", a, b))
            return total if bias is None else self.pointwise("add", total, bias)
        if a.rank == 1:
            row = self.matmul(self.reshape(a, (1, *extents(a))), b, bias)
            return self.reshape(row, extents(row)[:-2] + extents(row)[-1:])
        if b.rank == 1:
            column = self.matmul(a, self.reshape(b, (*extents(b), 1)), bias)
            return self.reshape(column, extents(column)[:-1])
        lead = torch.broadcast_shapes(extents(a)[:-2], extents(b)[:-2])
        shape = (*lead, extents(a)[-2], extents(b)[-1])
        order = self._order(shape, extents(a)[-1])
        operands = [a, b] if bias is None else [a, b, bias]
        return self.one("matmul", operands, shape, dtype or a.dtype, **order)

    def _order(self, shape: Sequence[int], depth: int) -> dict[str, Any]:
        """Of a product of small matrices beside factorisations of such: its sizes are part of the structure
        then. Rows of a product without a batch are the batch themselves."""
        sides = tuple(shape[-2:] if len(shape) > 2 else shape[-1:])
        small = max(sides) <= FEW_ROWS and depth <= FEW_TERMS
        return {"order": (depth, *sides)} if self.factors and small else {}

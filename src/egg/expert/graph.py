"""A program as a graph of operators in normal form: what is computed, on which values, and nothing else.

Capturing brings the many spellings of PyTorch down to a few kinds of node, so that every later rule
is written once. A node has one result per :class:`Value` it defines (most have one). Views are nodes,
too; they cost nothing where a reader folds them into its indexing.

Kinds of node (``op``) and their ``attributes``:

=============== ==============================================================================
``pointwise``   ``fn``: the scalar function (:mod:`egg.expert.emit.triton.scalar`); ``scalars``: its
                constants, with ``None`` where a tensor stands. Operands broadcast as in PyTorch
``view``        ``how``: ``reshape | permute | slice | expand | flip | windows``, with ``dims`` (permute,
                flip), ``starts`` and ``steps`` (slice, one each per dimension; the shape of the result
                says where it ends), ``dim``, ``size``, ``step`` and ``dilation`` (windows along ``dim``,
                which may overlap: their elements are the last dimension of the result)
``cat``         ``dim``
``joined``      ``dim``: a ``cat`` whose operands are stored in their parts of the result by what
                makes them (they are ``lent``): it only makes the room, before any of them
``pad``         ``before`` per dimension (may be negative: a crop), ``value``; the result's shape says
                the rest
``reduce``      ``fn``: ``sum | mean | max | min | prod | any | all | argmax | argmin | var |
                logsumexp | norm``, ``dims``, ``keepdim``, ``correction`` (var), ``order`` (norm)
``softmax``     ``dim``, ``log``
``scan``        ``fn``: ``sum | prod | max | min | logcumsumexp | decayed``, ``dim``, ``reverse``,
                ``exclusive``. The last has two operands: what each place adds to the total, and how much
                of the total before is left there; ``rounds``: in how many it was computed, until the
                lengths have been compared
``selection``   ``dim``, ``largest``, ``whole``: the first elements along ``dim`` in falling (``largest``) or
                rising order, and their places; the first of equal ones first, a NaN above all numbers.
                Two results, whose shape says how many are taken; all of them where it is ``whole``
``norm``        ``kind``: ``layer | rms | group | instance | batch``; ``dims`` (those the statistics are
                over), ``groups`` (group), ``eps``, ``training`` (batch: batch statistics), ``momentum``.
                Operands: x, weight, bias, running_mean, running_var (``None`` where absent). In
                training with running statistics three results: y and the two new statistics, which
                ``update`` nodes write
``pool``        ``fn``: ``max | avg | lp``; ``kernel``, ``stride``, ``padding``, ``dilation`` per spatial
                dimension; ``count_include_pad``, ``divisor``, ``ceil``, ``adaptive`` (then ``kernel``
                is the output size)
``resample``    ``fn``: ``linear | cubic | nearest | nearest_exact``; ``axes``: the dimensions that are
                resized, ``scale``: for each, how many elements of the operand lie between two neighbours
                of the result; ``aligned``: whether corners lie on each other, instead of borders;
                ``factors``: those that the program gives, for all spatial dimensions, or ``None``
``matmul``      operands a [..., M, K] and b [..., K, N], broadcasting over the leading dimensions as
                in PyTorch (a vector was reshaped before); optional third operand: bias, broadcasting
``conv``        ``stride``, ``padding``, ``dilation`` per spatial dimension, ``groups``, ``transposed``,
                ``output_padding``. Operands: x [N, C, *space], weight, bias or ``None``
``attention``   ``causal``, ``scale`` (``None``: one over the root of D), ``empty`` (``nan``: what a row has
                that sees nothing, else zeros), ``fill``: the score of what is masked, where that is not
                minus infinity; operands: q, k, v [..., L, D], mask or ``None``; then, where there are
                any, a sink or ``None``: a logit of each row beside those of its keys, which has no value
                (``empty`` is ``sink`` where a row without keys gives it all its weight), and further
                operands of ``steps``: functions that scaled scores go through before the mask, each
                (fn, scalars, place of the score among two operands or ``None``)
``triangular_solve`` ``upper``, ``unit``: x in a @ x = b; operands: a [..., N, N], of which one triangle
                counts (with ones on the diagonal: ``unit``), and b [..., N, K]; ``order``: (N, K) where
                both are small, else ``None``
``cholesky``    of small matrices a [..., N, N], like the next three: ``order``: (N,); ``upper``; ``raises``:
                the function that PyTorch's error names where a matrix is not positive definite, or nothing.
                Results: the factor, and error codes where they are asked for
``solve``       ``order``: (N, K), ``raises``: x in a @ x = b; operands: a [..., N, N], b [..., N, K].
                Results: x, and error codes where they are asked for
``inverse``     ``order``: (N,), ``raises``. Results as those of ``solve``
``determinant`` ``order``: (N,), ``log``: whether its sign and the logarithm of its size are the results
``recurrent``   ``cell``: ``lstm | gru | rnn_tanh | rnn_relu``, ``layers``, ``bidirectional``,
                ``batch_first``, ``bias``; operands: x, initial states, flat weights. Several results
``gather``      ``how``: ``embedding | index_select | gather``, ``dim``
``scatter``     ``fn``: ``sum | max | min | store``, ``dim``, ``fill``: what the result begins as. Operands:
                source, index. An element of the source joins the element of the result at its own
                place, but along ``dim`` at the place that the index says. The index has the source's
                rank and broadcasts to its shape. ``whole``: the size along ``dim`` that indices are for,
                where the result is only the beginning of that, and the rest is dropped
``where``       three operands: condition, a, b (broadcasting)
``constant``    ``fill`` (a number), or ``range``: (start, step) along the only dimension
``triangle``    ``upper``, ``diagonal``: zero beside the triangle (tril, triu)
``random``      ``fn``: ``dropout`` in training mode, ``rand``, ``randn``: never the same twice
``update``      a write into a buffer (running statistics, counters): operands: buffer, new value
``library``     anything else: ``target`` is the PyTorch call to leave as it is, ``arguments`` its call
                by position (:class:`Operand` stands for a value), ``keywords``
=============== ==============================================================================

Sizes in shapes, strides and attributes are :class:`~egg.expert.sizes.Size`: named where they change with the
size of the program. Attributes of the structure (a kernel's width, a number of layers) are plain numbers.
A number that follows from sizes (``scalars``, ``scale``, ``groups``, ``starts``) is a Size as well, and its
symbol may stand for a fraction: ``mul_scalar`` with the rule ``head_dim ** -0.5``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, wraps
from typing import Any, TypeVar

from egg.core.domain import Argument, Mode, Output, ValueInput
from egg.expert.containers import Container, Path
from egg.expert.sizes import Size, product

T = TypeVar("T")

PAIRS, NUMBERS = "torch.view_as_real", "torch.view_as_complex"
"""Calls that show complex numbers as pairs, and pairs as complex numbers, where they lie."""
LITERAL = "literal"
"""The target of a library node for ``torch.tensor([...])`` of many numbers; its argument is their text."""


@dataclass(frozen=True)
class Operand:
    """Stands in the arguments of a ``library`` node for the node's input of that place."""

    place: int


class Origin(StrEnum):
    """Where a value comes from."""

    INPUT = "input"
    """An argument of ``forward``."""
    PARAMETER = "parameter"
    """A parameter or buffer of the module, by its qualified name."""
    CONSTANT = "constant"
    """A tensor that the program made once, outside ``forward``, and that is no parameter of the module."""
    NODE = "node"


HELD = frozenset({Origin.PARAMETER, Origin.CONSTANT})
"""Values that ``forward`` finds at ``self``."""


@dataclass(frozen=True)
class Value:
    """A tensor in the program. Its name is unique in the graph."""

    name: str
    shape: tuple[Size, ...]
    dtype: str
    """As PyTorch spells it, without the prefix: ``float32``."""
    stride: tuple[Size, ...]
    """As PyTorch has it; it says nothing of what only passes through registers."""
    origin: Origin = Origin.NODE
    path: str = ""
    """An argument's name (``x``), or a parameter's qualified name (``conv1.weight``)."""
    room: str = ""
    """The larger tensor that it is a part of, whose strides it has: what makes it finds a tensor of its
    name and stores into that, instead of allocating one."""
    padded: bool = False
    """Its rows, ``stride[-2]`` elements long, are longer than its columns, and all of them may be read."""

    @property
    def lent(self) -> bool:
        """Whether a part of a larger tensor is there for it."""
        return bool(self.room)

    @property
    def elements(self) -> Size:
        return product(self.shape)

    @property
    def reach(self) -> Size:
        """How far offsets into it may lead: its elements, or more where its rows have gaps between them."""
        steps = (size * stride for size, stride in zip(self.shape, self.stride, strict=True))
        return max((self.elements, *steps), key=lambda size: size.value)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def floating(self) -> bool:
        return self.dtype in ("float32", "float16", "bfloat16", "float64")

    @property
    def contiguous(self) -> bool:
        return self.stride == contiguous_stride(self.shape)

    @property
    def bytes(self) -> int:
        """At the program's own size."""
        return self.elements.value * BYTES[self.dtype]


BYTES: Mapping[str, int] = {
    "float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2,
    "int8": 1, "uint8": 1, "bool": 1, "complex64": 8, "complex128": 16, "uint16": 2, "uint32": 4, "uint64": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip


FLOATS = ("float32", "float16", "bfloat16")
"""Dtypes that kernels of products, convolutions, attention and scans compute with."""
HALF = ("float16", "bfloat16")


def contiguous_stride(shape: tuple[Size, ...]) -> tuple[Size, ...]:
    """What PyTorch gives a fresh tensor of this shape."""
    return tuple(product(shape[dim + 1 :]) for dim in range(len(shape)))


@dataclass(frozen=True)
class Node:
    """One operator. ``inputs`` are names of values; ``None`` for an operand that is absent."""

    op: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    """What the author called it, for names and comments: ``conv1``, ``gelu``."""

    @property
    def output(self) -> str:
        (one,) = self.outputs
        return one

    def __getitem__(self, attribute: str) -> Any:
        return self.attributes[attribute]

    def get(self, attribute: str, default: Any = None) -> Any:
        return self.attributes.get(attribute, default)

    def with_inputs(self, *inputs: str | None) -> Node:
        return replace(self, inputs=tuple(inputs))


@dataclass(frozen=True)
class Usage:
    """How a program may be built and called, besides its tensors.

    The domain is derived from this and from the sizes of the graph. A fact is free only where captures with
    other values of it agree on the graph.
    """

    values: tuple[ValueInput, ...] = ()
    """Every parameter of ``forward`` that is no tensor, defaults included. A free one is a number that the
    graph's symbols read under its name."""
    arguments: tuple[Argument, ...] = ()
    """Every parameter of the constructor."""
    modes: tuple[Mode, ...] = (Mode.TRAIN, Mode.EVAL)
    """Modes in which the program is this graph."""
    modal: tuple[str, ...] = ()
    """Paths of the modules whose mode decides that; empty where none does. ``""`` is the model itself."""
    frozen: tuple[str, ...] = ()
    """Paths of such modules that the program itself puts into the other mode, and that must stay in it."""
    least: Mapping[str, int] = field(default_factory=dict)
    """Named sizes that must not be smaller than this: below, the program does something else."""
    ties: Mapping[str, str] = field(default_factory=dict)
    """Named sizes that equal a free constructor argument at every capture, with its name."""
    outputs: tuple[Output, ...] = ()
    """How each result lies in memory where inputs lie otherwise than in the task; empty where not known."""


@dataclass(frozen=True)
class Graph:
    """A program: its values, its nodes in an order that can be executed, and what it returns."""

    values: Mapping[str, Value]
    nodes: tuple[Node, ...]
    arguments: tuple[str | None, ...]
    """The values of ``forward``'s arguments in order; ``None`` for one that is no tensor. What lies in a
    container is an argument of its own."""
    results: tuple[Any, ...]
    """What ``forward`` returns: names of values in a row; ``form`` says how they are nested."""
    form: str = "tensor"
    """``tensor``, ``tuple`` or ``list``: whether the results are returned bare or together; else the text of
    the whole (:mod:`egg.expert.nesting`)."""
    symbols: Mapping[str, str] = field(default_factory=dict)
    """How ``forward`` finds each named size: ``x.shape[0]``, ``self.fc.weight.shape[1]``, or from sizes that
    stand before it: ``(height - 3) // 2 + 1``."""
    exact: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Named sizes that stand for a part of a computed one: the whole, and how often the part goes into it. No
    shape of an input says that nothing is left over."""
    within: tuple[tuple[str, str], ...] = ()
    """How far slices reach, and the size that this must not exceed, where it is chosen apart from the slice:
    PyTorch would shorten the slice."""
    fixed: Mapping[str, int] = field(default_factory=dict)
    """Sizes of the program's source that the graph takes for constants, because no rule was found for what
    follows from them: the kernels are right at these values alone."""
    usage: Usage = field(default_factory=Usage)
    containers: tuple[Container, ...] = ()
    """Lists, tuples and dictionaries among the arguments, each before those in it."""
    paths: Mapping[str, Path] = field(default_factory=dict)
    """Where each argument lies in a call, by its name; empty where there are no containers."""

    def __post_init__(self) -> None:
        known = {name for name, value in self.values.items() if value.origin is not Origin.NODE}
        for node in self.nodes:
            missing = [name for name in node.inputs if name is not None and name not in known]
            if missing:
                raise ValueError(f"{node.op} {node.outputs} reads {missing} before they are made")
            known.update(node.outputs)
        if lost := [name for name in self.results if name not in known]:
            raise ValueError(f"nothing makes the results {lost}")

    @cached_property
    def places(self) -> tuple[tuple[Path, str | None], ...]:
        """Every argument, behind where it lies in a call."""
        paths = self.paths.values() or ((at,) for at in range(len(self.arguments)))
        return tuple(zip(paths, self.arguments, strict=True))

    @cached_property
    def producers(self) -> Mapping[str, Node]:
        return {name: node for node in self.nodes for name in node.outputs}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[Node, ...]]:
        """Nodes that read a value, in order, each once."""
        found: dict[str, list[Node]] = {name: [] for name in self.values}
        for node in self.nodes:
            for name in dict.fromkeys(name for name in node.inputs if name is not None):
                found[name].append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    def value(self, name: str) -> Value:
        return self.values[name]

    def operands(self, node: Node) -> tuple[Value | None, ...]:
        return tuple(None if name is None else self.values[name] for name in node.inputs)

    def operand(self, node: Node, at: int) -> Value | None:
        """``None`` where the node leaves it out."""
        name = node.inputs[at] if at < len(node.inputs) else None
        return None if name is None else self.values[name]

    def result(self, node: Node) -> Value:
        return self.values[node.output]

    def producer(self, name: str) -> Node | None:
        return self.producers.get(name)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def rebuilt(self, nodes: tuple[Node, ...], values: Mapping[str, Value] | None = None) -> Graph:
        """With other nodes; values that nothing makes or reads any more are forgotten."""
        pool = self.values if values is None else values
        used = {name for node in nodes for name in (*node.inputs, *node.outputs) if name is not None}
        used |= set(self.results) | {name for name in self.arguments if name is not None}
        return replace(self, nodes=nodes, values={name: pool[name] for name in pool if name in used})


def gathered_row(graph: Graph, node: Node) -> int:
    """Elements that lie together in memory behind each place that a gather reads."""
    table = graph.value(str(node.inputs[0]))
    along = (node.get("dim", 0) or 0) % max(table.rank, 1)
    if node["how"] not in ("embedding", "index_select") or not table.contiguous:
        return 1
    return product(table.shape[along + 1 :]).value


def once(function: Callable[[Graph], T]) -> Callable[[Graph], T]:
    """What follows from a graph alone is found once, and kept with it as its cached properties are."""
    key = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def found(graph: Graph) -> T:
        kept = vars(graph)
        if key not in kept:
            kept[key] = function(graph)
        return kept[key]

    return found

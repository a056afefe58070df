"""What an attention group asks for: operands, mask, scale, and where the result is stored."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from egg.expert.emit.kernel import Kernel, is_large, size_names
from egg.expert.emit.reader import Reader, address, beyond_view, pointer_stem, through_view
from egg.expert.emit.triton.scalar_call import number_text
from egg.expert.emit.words import ATTENTION
from egg.expert.graph import HALF, Graph, Node, Origin, Value
from egg.expert.index import Expr, Index, Negative, loop_index, unflat
from egg.expert.parts import Group, Unfit, within_reach
from egg.expert.sizes import ONE, Size, product

LOG2_E = 1.4426950408889634
"""Exponentials are taken to base 2, which is one instruction; the scale brings the scores there."""

FEW_QUERIES = 32
"""Up to here reading keys and values is all that takes time."""
ABSORBING = -32768.0
"""From here down numbers of fp16 are 32 apart: scores of up to 16 are lost in a sum."""
LOWEST_SCORE = -3e38
"""That fp32 holds, with room for a difference."""


@dataclass(frozen=True)
class Function:
    """One function that scores go through, as a pointwise node has it."""

    fn: str
    scalars: tuple[Any, ...]
    place: int | None
    """Where the score stands among two operands; ``None`` where it is the only one."""

    @property
    def factor(self) -> Any:
        """The number that the score is multiplied with; ``None`` where it is another function."""
        return (
            self.scalars[1] if self.fn == "mul" and self.scalars[:1] == (None,) and self.scalars[1:] else None
        )


@dataclass(frozen=True)
class Problem:
    """One ``attention`` node with what its group takes along."""

    graph: Graph
    group: Group
    node: Node
    q: Value
    k: Value
    v: Value
    mask: Value | None
    sink: Value | None = None
    """A logit beside those of the keys, of each row."""
    others: tuple[Value, ...] = ()
    """The further operands of the functions that scores go through, in their order."""

    @staticmethod
    def of(graph: Graph, group: Group) -> Problem:
        anchors = [node for node in group.nodes if node.op == "attention"]
        if len(anchors) != 1:
            raise Unfit("not exactly one attention")
        node = anchors[0]
        q, k, v = (graph.value(str(name)) for name in node.inputs[:3])
        mask = graph.value(node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] is not None else None
        if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2] == graph.result(node).shape[:-2]:
            raise Unfit("the heads of queries, keys and values are not the same")
        if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
            raise Unfit("queries, keys and values do not fit each other")
        if not q.dtype == k.dtype == v.dtype or q.dtype not in ("float32", "float16", "bfloat16"):
            raise Unfit(f"attention of {q.dtype}, {k.dtype} and {v.dtype}")
        if names := size_names(graph) & ATTENTION:
            raise Unfit(f"sizes are called {sorted(names)}, as the kernel's own variables are")
        sink, *others = (
            graph.value(n) if n is not None else None for n in (*node.inputs, None)[4:] or (None,)
        )
        return Problem(graph, group, node, q, k, v, mask, sink, tuple(o for o in others if o is not None))

    # -- sizes -------------------------------------------------------------------------------------

    @property
    def lead(self) -> tuple[Size, ...]:
        return self.q.shape[:-2]

    @property
    def batch(self) -> Size:
        return product(self.lead)

    @property
    def queries(self) -> Size:
        return self.q.shape[-2]

    @property
    def keys(self) -> Size:
        return self.k.shape[-2]

    @property
    def depth(self) -> Size:
        return self.q.shape[-1]

    @property
    def width(self) -> Size:
        return self.v.shape[-1]

    @property
    def causal(self) -> bool:
        return bool(self.node["causal"])

    @property
    def lonely(self) -> bool:
        """Whether rows that see nothing are not a number, as in a softmax that is written out."""
        return self.node.get("empty") == "nan"

    @property
    def absorbs(self) -> bool:
        """Whether the program adds the mask in fp16, where the lowest number absorbs a score: a row that sees
        nothing weighs all keys alike. The sum in fp32 would keep the first digits of the scores."""
        return self.lonely and self.mask is not None and self.mask.dtype == self.q.dtype == "float16"

    @property
    def replaces(self) -> bool:
        """Whether what is masked gets another score, rather than minus infinity added."""
        return self.lonely or self.sink is not None or self.fill is not None

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """What scaled scores go through before the mask. A number that comes first is in the scale."""
        found = tuple(Function(*step) for step in self.node.get("steps") or ())
        return found[1:] if found and found[0].factor is not None and len(found) > 1 else found

    @property
    def few(self) -> bool:
        """Whether 16-bit keys and values are read by so few queries that memory decides."""
        return self.q.dtype in HALF and self.queries.value <= FEW_QUERIES

    def computed(self, value: Value) -> bool:
        """Whether the group computes an operand by more than views."""
        producers = {out: node for node in self.group.nodes for out in node.outputs}
        node = producers.get(value.name)
        while node is not None and node.op == "view":
            node = producers.get(str(node.inputs[0]))
        return node is not None

    @property
    def fill(self) -> float | None:
        """The score of what is masked, for exponentials to base 2; ``None``: minus infinity."""
        fill = self.node.get("fill")
        return None if fill is None else max(float(fill) * LOG2_E, LOWEST_SCORE)

    @property
    def shared_mask(self) -> bool:
        """One mask for all heads."""
        return self.mask is not None and all(size == ONE for size in self.mask.shape[:-2])

    @property
    def stored_mask(self) -> Value | None:
        """The buffer that a mask follows from, and nothing else does that may change between two calls."""
        producers = {out: node for node in self.group.nodes for out in node.outputs}
        sources, waiting = set[str](), [self.mask.name] if self.mask is not None else []
        while waiting:
            name = waiting.pop()
            node = producers.get(name)
            if node is None:
                sources.add(name)
            else:
                waiting += [given for given in node.inputs if given is not None]
        values = [self.graph.value(name) for name in sources]
        written = {node.inputs[0] for node in self.graph.nodes if node.op == "update"}
        held = len(values) == 1 and values[0].origin is Origin.PARAMETER and values[0].name not in written
        return values[0] if held else None

    @cached_property
    def end(self) -> End | None:
        """Where the keys end that a block of queries sees, where the mask is nothing but that."""
        return None if self.mask is None else _end(self, self.mask)

    def scale(self) -> str:
        """As ``forward`` spells it, for exponentials to base 2; functions of the score bring it there
        themselves."""
        scale = self.node["scale"]
        if scale is None:
            text = f"{braced(self.depth)} ** -0.5"
        else:
            text = scale.code() if isinstance(scale, Size) else repr(float(scale))
        steps = self.node.get("steps") or ()
        if not steps:
            return f"{text} * {LOG2_E}"
        return (
            text
            if len(steps) == len(self.functions)
            else f"{text} * {number_text(Function(*steps[0]).factor)}"
        )

    @property
    def scale_is_positive(self) -> bool:
        """For certain, at every size."""
        scale = self.node["scale"]
        return not isinstance(scale, float | int) or scale > 0

    @cached_property
    def wide_offsets(self) -> bool:
        """Whether 32 bits do not reach all of some operand."""
        return any(is_large(value) for value in self._tensors)

    @property
    def counts(self) -> tuple[str, ...]:
        """What 32 bits must reach at other sizes."""
        return () if self.wide_offsets else within_reach(value.elements for value in self._tensors)

    @property
    def _tensors(self) -> list[Value]:
        names = (*self.group.reads(self.graph), *self.group.writes(self.graph))
        return [self.q, self.k, self.v, self.graph.result(self.node), *map(self.graph.value, names)]

    # -- indices -----------------------------------------------------------------------------------

    def index(self, row: str, rows: Size, column: str, columns: Size) -> Index:
        batch = unflat(loop_index("batch", self.batch), self.lead)
        return (*batch, loop_index(row, rows), loop_index(column, columns))

    def stored(self, name: str, index: Index) -> tuple[Value, Index]:
        """Where a value lies that is seen through this group's views."""
        producers = {out: node for node in self.group.nodes for out in node.outputs}
        while (node := producers.get(name)) is not None:
            if node.op != "view":
                raise Unfit(f"{name} is computed on the way, but is to be read as it lies")
            name, index = str(node.inputs[0]), through_view(self.graph, node, index)
        return self.graph.value(name), index

    def places(self) -> dict[str, Index]:
        """Where each value behind the attention is stored by the program that has its element."""
        node = self.node
        places = {node.output: self.index("query", self.queries, "width", self.width)}
        for follower in self.group.nodes[self.group.nodes.index(node) + 1 :]:
            known = [str(name) for name in follower.inputs if name in places]
            if not known:
                continue
            place = places[known[0]]
            if follower.op == "view":
                try:
                    places[follower.output] = beyond_view(self.graph, follower, place)
                except Negative as reason:
                    raise Unfit(str(reason)) from None
            elif follower.op in ("pointwise", "where"):
                shape = self.graph.result(follower).shape
                if any(self.graph.value(name).shape != shape for name in known):
                    raise Unfit("the result of the attention is broadcast")
                places[follower.output] = place
            else:
                raise Unfit(f"{follower.op} behind an attention")
        return places


@dataclass(frozen=True)
class End:
    """Keys are seen while their number is below ``value``, which all queries of a head share."""

    value: str
    further: int = 0
    """Where keys up to this one itself are seen: 1."""


_BELOW = {"lt": 0, "le": 1}
_SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


def _end(problem: Problem, mask: Value) -> End | None:
    """Read a mask as ``column < end``: a comparison of a range along the keys with a whole number that is the
    same for all keys and queries, or the opposite of one."""
    graph, name, opposite = problem.graph, mask.name, False
    producers = {out: node for node in problem.group.nodes for out in node.outputs}
    if mask.rank > 1 and mask.shape[-2] != ONE:
        return None
    node = producers.get(name)
    while node is not None and node.op == "pointwise" and node["fn"] in ("logical_not", "bitwise_not"):
        opposite, node = not opposite, producers.get(str(node.inputs[0]))
    if node is None or node.op != "pointwise" or node["fn"] not in _SWAPPED or len(node.inputs) != 2:
        return None
    fn, (first, second) = node["fn"], (str(name) for name in node.inputs)
    if not _is_place(problem, producers, first):
        fn, first, second = _SWAPPED[fn], second, first
    end = graph.value(second)
    fn = _OPPOSITE[fn] if opposite else fn
    if fn not in _BELOW or end.dtype not in ("int64", "int32") or not _is_place(problem, producers, first):
        return None
    if graph.result(node).shape != mask.shape or any(size != ONE for size in end.shape[-2:]):
        return None
    return End(second, _BELOW[fn])


def _is_place(problem: Problem, producers: dict[str, Node], name: str) -> bool:
    """Whether a value counts the keys along its last dimension."""
    if problem.graph.value(name).shape[-1:] != (problem.keys,):
        return False
    node = producers.get(name)
    while node is not None and node.op == "view" and node["how"] == "reshape":
        name = str(node.inputs[0])
        node = producers.get(name)
    return (
        node is not None
        and node.get("range") == (0, 1)
        and problem.graph.result(node).shape == (problem.keys,)
    )


def read_end(problem: Problem, reader: Reader, end: End) -> str:
    """How many keys the queries of ``batch`` see."""
    value, batch = problem.graph.value(end.value), unflat(loop_index("batch", problem.batch), problem.lead)
    lead = batch[len(batch) - max(value.rank - 2, 0) :]
    index = [Expr() if size == ONE else at for at, size in zip(lead, value.shape, strict=False)]
    text = reader.read(end.value, (*index, *(Expr(),) * min(value.rank, 2)))
    return f"{text} + {end.further}" if end.further else text


def braced(size: Size) -> str:
    text = size.code()
    return f"({text})" if " " in text else text


def store_result(problem: Problem, kernel: Kernel, result: str) -> None:
    """The tile in ``result`` [queries, width], and what follows it, where it belongs."""
    graph, places = problem.graph, problem.places()
    masks = {"query": f"(query < {problem.queries})", "width": f"(width < {problem.width})"}
    reader = Reader(graph, problem.group.nodes, kernel.body, masks)
    kernel.body.taken |= ATTENTION
    anchor = problem.node.output

    def held(index: Index) -> str:
        if index != places[anchor]:
            raise Unfit("the attention is needed at another place than it is computed at")
        return result

    reader.bound[anchor] = held
    writes = problem.group.writes(graph)
    if lost := [name for name in writes if name not in places]:
        raise Unfit(f"{lost} are needed elsewhere, but stand before the attention")
    for name in writes:
        value = graph.value(name)
        if any(stride.number == 0 for stride in value.stride):
            raise Unfit(f"{name} would be stored more than once")
        text = reader.read(name, places[name])
        pointer = kernel.body.name(f"{pointer_stem(value)}_ptr")
        kernel.results[pointer] = name
        at = address(value, places[name])
        mask = " & ".join(masks.values())
        whole = "".join(f" + 0 * {lanes}" for lanes in masks if lanes not in at.symbols())
        kernel.body.line(kernel.language.store(f"{pointer} + {at}{whole}", text, mask))
    kernel.add_pointers(reader.pointers)


def read_mask(problem: Problem, reader: Reader) -> str:
    """The mask at ``query`` and ``column``."""
    mask = problem.mask
    assert mask is not None
    whole = problem.index("query", problem.queries, "column", problem.keys)[-max(mask.rank, 1) :]
    index = tuple(Expr() if size == ONE else at for at, size in zip(whole, mask.shape, strict=True))
    return reader.read(mask.name, index)


def mask_reader(problem: Problem, kernel: Kernel) -> Reader:
    kernel.body.taken |= ATTENTION
    masks = {"query": f"(query < {problem.queries})", "column": f"(column < {problem.keys})"}
    return Reader(problem.graph, problem.group.nodes, kernel.body, masks)

"""Reading a value of the graph inside a kernel: through views and pointwise operators down to memory.

A kernel is written from its results backwards. To have a value at some index, its producer is asked for
its operands at the indices that belong to it, and so on until something is in memory (a load) or is held in
registers already (``bound``: an accumulator, a finished reduction). Views thereby become index arithmetic and
pointwise operators one line each; what is asked twice at one index is computed once.

Loop indices are Triton tensors shaped for broadcasting (``x[:, None]``, ``r[None, :]``): an index expression
is valid code as it stands, whatever the tile looks like.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from egg.expert.emit.language import Language
from egg.expert.emit.names import numbered
from egg.expert.emit.triton.language import TRITON
from egg.expert.emit.words import INSTEAD
from egg.expert.graph import Graph, Node, Origin, Value
from egg.expert.index import Expr, Index, Negative, flat, loop_index, reshaped, unflat
from egg.expert.parts import Unfit
from egg.expert.sizes import ONE

NARROW = 2**30
"""Whole numbers below that are computed in 32 bits, whatever type the program has for them."""
Bound = Callable[[Index], str]
"""The text of a value that is at hand, at an index; :class:`Unfit` where it is not held at that index."""


@dataclass
class Body:
    """Lines of a kernel, and names for what they compute."""

    lines: list[str] = field(default_factory=list)
    indent: int = 1
    taken: set[str] = field(default_factory=set)

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def name(self, wanted: str) -> str:
        """A fresh variable name like ``wanted``: a layer may be called ``0``."""
        base = "".join(c if c.isalnum() or c == "_" else "_" for c in wanted) or "v"
        base = f"v{base}" if base[0].isdigit() else base
        base = INSTEAD.get(base, base)
        name = numbered(base, self.taken)
        self.taken.add(name)
        return name

    def let(self, wanted: str, text: str) -> str:
        """Compute something once, under a name."""
        name = self.name(wanted)
        self.line(f"{name} = {text}")
        return name


@dataclass
class Reader:
    """Reads values of ``nodes`` (those fused into this kernel) at indices, writing code into ``body``."""

    graph: Graph
    nodes: tuple[Node, ...]
    body: Body
    masks: Mapping[str, str]
    """For each loop index that may overshoot, the text that says it does not."""
    bound: dict[str, Bound] = field(default_factory=dict)
    pointers: dict[str, str] = field(default_factory=dict)
    """Values that were loaded, and the names of their pointer arguments."""
    hints: Mapping[str, str] = field(default_factory=dict)
    """Further arguments of the load of a value: ``eviction_policy="evict_last"``."""
    other: str = "0"
    """What a load gives where its mask does not hold."""
    scalars: frozenset[str] = frozenset()
    """Indices that are one number for a whole program: the matrix of a batch that it works on."""
    language: Language = TRITON
    takes_rows: bool = False
    """Whether rows may be gathered where they are read. Nobody else reads these then; a loop that reads an
    operand for every tile would gather it as often."""
    _known: dict[tuple[str, Index, tuple[str, ...]], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._producers = {name: node for node in self.nodes for name in node.outputs}

    def forget(self) -> None:
        """What was computed is no longer at hand (a loop ended): compute it anew when it is asked for."""
        self._known.clear()

    def read(self, name: str, index: Index, guards: tuple[str, ...] = ()) -> str:
        """The value at ``index``, as an expression or a variable; outside ``guards`` anything."""
        key = (name, index, guards)
        if key not in self._known:
            self._known[key] = self._computed(name, index, guards)
        return self._known[key]

    def _computed(self, name: str, index: Index, guards: tuple[str, ...]) -> str:
        if name in self.bound:
            return self.bound[name](index)
        node = self._producers.get(name)
        if node is None:
            return self._load(self.graph.value(name), index, guards)
        rule = _RULES.get(node.op)
        if rule is None:
            raise Unfit(f"{node.op} cannot be computed element by element inside another kernel")
        return rule(self, node, index, guards)

    # -- memory ------------------------------------------------------------------------------------

    def pointer(self, value: Value) -> str:
        if value.name not in self.pointers:
            self.pointers[value.name] = self.body.name(f"{pointer_stem(value)}_ptr")
        return self.pointers[value.name]

    def _load(self, value: Value, index: Index, guards: tuple[str, ...]) -> str:
        if not self._readable(value.dtype):
            raise Unfit(f"no kernel reads {value.dtype}")
        at, mask = self._reached(value, index, guards)
        pointer = self.pointer(value)
        where = pointer if at == Expr() else f"{pointer} + {at}"
        other = "0.0" if value.dtype.startswith("float8") else self.other
        text = self.language.load(where, mask, other, self.hints.get(value.name, ""))
        return self._loaded(value, text)

    def _readable(self, dtype: str) -> bool:
        return self.language.reads(dtype)

    def _reached(self, value: Value, index: Index, guards: tuple[str, ...]) -> tuple[Expr, str]:
        """The address, and the text that says it is one; of a single element, which is always there, none."""
        at = address(value, index)
        inside = (
            not i.may_be_negative() and i.below(size) for i, size in zip(index, value.shape, strict=True)
        )
        if at == Expr() or (
            at.symbols() <= self.scalars and all(inside)
        ):  # a scalar takes no mask of a tile's shape either
            return at, ""
        wide = self._padded_along(value, index)
        texts = {**self.masks, wide: f"({wide} < {value.stride[-2]})"} if wide is not None else self.masks
        masked = [texts[s] for s in sorted(at.symbols()) if s in texts]
        return at, " & ".join((*dict.fromkeys(masked), *guards))

    def _padded_along(self, value: Value, index: Index) -> str | None:
        """The loop index that runs along rows which are longer than their columns: a load may read what lies
        between them, up to a multiple of 16 bytes, where one that ends with the columns goes element by
        element. What it reads there is of no lane that counts."""
        symbols = index[-1].symbols() if value.padded else frozenset()
        for symbol in symbols:
            alone = index[-1] == loop_index(symbol, value.shape[-1])
            again = any(symbol in at.symbols() for at in index[:-1])
            if alone and not again and self.masks.get(symbol) == f"{symbol}_mask":
                return symbol
        return None

    def _loaded(self, value: Value, text: str) -> str:
        """What was loaded as the kernels compute with it, under a name."""
        if value.dtype in ("float16", "bfloat16"):
            text = self.language.converted(text, "float32")
        elif value.dtype == "bool":
            text += " != 0"
        return self.body.let(pointer_stem(value), text)

    # -- operators ---------------------------------------------------------------------------------

    def _operand(self, name: str, index: Index, guards: tuple[str, ...]) -> str:
        """An operand that broadcasts, at an index into what it broadcasts to."""
        return self.read(name, fitted(self.graph.value(name), index), guards)

    def _pointwise(self, node: Node, index: Index, guards: tuple[str, ...]) -> str:
        texts = [self._operand(name, index, guards) for name in node.inputs if name is not None]
        dtypes = [self.graph.value(name).dtype for name in node.inputs if name is not None]
        fn = f"{node['fn']}_exact" if node.get("exact") else node["fn"]
        made = self.graph.result(node)
        largest = self._largest(made.name) if made.dtype == "int64" else None
        dtype = made.dtype if largest is None or largest >= NARROW else "int32"
        text = self.language.expression(fn, texts, node.get("scalars", ()), dtypes, dtype)
        return self.body.let(node.label or node["fn"], text)

    def fixed_norm(self, node: Node, x: str, channel: Expr, guards: tuple[str, ...] = ()) -> str:
        """Batch norm in evaluation, of ``x``: a scale and a shift per channel."""
        weight, bias, mean, variance = (
            self.read(name, (channel,), guards) if name is not None else None
            for name in (*node.inputs[1:], None, None)[:4]
        )
        shifted = f"{variance} + {node['eps']!r}"
        scale = self.language.expression("rsqrt", [shifted], (), ["float32"], "float32")
        scale = self.body.let("scale", f"{weight} * {scale}" if weight else scale)
        text = f"({x} - {mean}) * {scale}"
        return self.body.let(node.label or "batch_norm", f"{text} + {bias}" if bias else text)

    def _largest(self, name: str) -> int | None:
        """How far from zero a whole number may be that is counted, not loaded: sums of places, and their
        differences. ``None`` where that is not known. Masks are made of them, and 64 bits take twice as long.
        """
        node = self._producers.get(name)
        if node is None or name in self.bound:
            return None
        if node.op == "view":
            return self._largest(str(node.inputs[0]))
        if "range" in node.attributes:
            start, step = node["range"]
            ends = (start, *(start + step * (n - 1) for n in self.graph.value(name).shape[0].values))
            return max(abs(end) for end in ends) if all(isinstance(end, int) for end in ends) else None
        if node.op != "pointwise" or node["fn"] not in ("add", "sub", "neg"):
            return None
        parts = [self._largest(str(i)) for i in node.inputs if i is not None]
        parts += [abs(n) if isinstance(n, int) else None for n in node.get("scalars", ())]
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None

    def _where(self, node: Node, index: Index, guards: tuple[str, ...]) -> str:
        chosen, yes, no = (self._operand(str(name), index, guards) for name in node.inputs)
        return self.body.let(node.label or "chosen", self.language.where(chosen, yes, no))

    def _view(self, node: Node, index: Index, guards: tuple[str, ...]) -> str:
        return self.read(str(node.inputs[0]), through_view(self.graph, node, index), guards)

    def _cat(self, node: Node, index: Index, guards: tuple[str, ...]) -> str:
        """Every piece is read where it lies; a piece whose range the index cannot reach is left out.

        Pieces one element wide (of a ``stack``) are read at that element. Where all of them are computed from
        the same tensors (the halves of a byte), that may be done everywhere: what they load is loaded once.
        """
        dim, at, start, pieces = node["dim"], index[node["dim"]], Expr(), []
        thin = all(self.graph.value(str(name)).shape[dim] == ONE for name in node.inputs)
        alike = thin and len({self._sources(str(name)) for name in node.inputs}) == 1
        for name in node.inputs:
            inside, end = at - start, start + self.graph.value(str(name)).shape[dim]
            if not (at - end).may_be_negative() or not (inside + 1).may_exceed_zero():
                start = end
                continue
            guard = [f"({at} >= {start})"] if inside.may_be_negative() else []
            guard += [f"({at} < {end})"] if (at - end + 1).may_exceed_zero() else []
            whole = (*index[:dim], Expr() if thin else inside, *index[dim + 1 :])
            pieces.append((guard, self.read(str(name), whole, guards if alike else (*guards, *guard))))
            start = end
        text = pieces[-1][1]
        for guard, piece in reversed(pieces[:-1]):
            text = self.language.where(" & ".join(guard), piece, text)
        return self.body.let(node.label or "joined", text) if len(pieces) > 1 else text

    def _sources(self, name: str) -> frozenset[str]:
        """What lies in memory, or is at hand, of all that a value is computed from."""
        found: set[str] = set()
        met, waiting = {name}, [name]
        while waiting:
            one = waiting.pop()
            node = None if one in self.bound else self._producers.get(one)
            if node is None:
                found.add(one)
                continue
            new = {str(other) for other in node.inputs if other is not None} - met
            met |= new
            waiting += new
        return frozenset(found)

    def _pad(self, node: Node, index: Index, guards: tuple[str, ...]) -> str:
        source = self.graph.value(str(node.inputs[0]))
        inside, guard = [], []
        for at, before, size in zip(index, node["before"], source.shape, strict=True):
            moved = at - before
            guard += [f"({moved} >= 0)"] if moved.may_be_negative() else []
            guard += [] if moved.below(size) else [f"({moved} < {size})"]
            inside.append(moved)
        text = self.read(source.name, tuple(inside), (*guards, *guard))
        if not guard:
            return text
        outside = self.language.literal(_as_in(source, node["value"]))
        return self.body.let(node.label or "padded", self.language.where(" & ".join(guard), text, outside))

    def _constant(self, node: Node, index: Index, guards: tuple[str, ...]) -> str:
        if "range" in node.attributes:
            start, step = node["range"]
            if isinstance(start, int) and isinstance(step, int):
                return _braced(index[0] * step + start)
            return f"({index[0]} * {step} + {start})"
        return self.language.filled(node["fill"], self.graph.result(node).dtype)

    def _triangle(self, node: Node, index: Index, guards: tuple[str, ...]) -> str:
        row, column = index[-2], index[-1]
        sign = ">=" if node["upper"] else "<="
        text = self.read(str(node.inputs[0]), index, guards)
        inside = f"{column} - ({row}) {sign} {node['diagonal']}"
        zero = self.language.literal(_as_in(self.graph.value(str(node.inputs[0])), 0))
        return self.body.let("triangle", self.language.where(inside, text, zero))

    def _rows(self, node: Node, index: Index, guards: tuple[str, ...]) -> str:
        """Rows of a table, at places that are loaded: one for all elements of a row."""
        table, chosen = (self.graph.value(str(name)) for name in node.inputs)
        dim = node["dim"] if node["how"] == "index_select" else 0
        at, rest = index[dim : dim + chosen.rank], index[dim + chosen.rank :]
        if not self.takes_rows or node["how"] not in ("index_select", "embedding") or not rest:
            raise Unfit("a gather inside another kernel")
        position = self.read(chosen.name, at, guards)
        if position not in self.masks:
            position = self.body.let("position", position)
            symbols = sorted(frozenset[str]().union(*(part.symbols() for part in at)))
            masked = [self.masks[symbol] for symbol in symbols if symbol in self.masks]
            if masked:
                self.masks = {**self.masks, position: " & ".join(dict.fromkeys(masked))}
        place = loop_index(position, table.shape[dim])
        return self.read(table.name, (*index[:dim], place, *rest), guards)


def _as_in(value: Value, number: float) -> float | int:
    """A number beside elements of a value: whole beside whole ones, which may be places in memory; a truth
    value beside those, which ``&`` and ``|`` take nothing else with."""
    if value.dtype == "bool":
        return bool(number)
    return int(number) if "int" in value.dtype and math.isfinite(number) else float(number)


_RULES = {
    "pointwise": Reader._pointwise,
    "where": Reader._where,
    "view": Reader._view,
    "cat": Reader._cat,
    "pad": Reader._pad,
    "constant": Reader._constant,
    "gather": Reader._rows,
    "triangle": Reader._triangle,
}


def is_fixed_norm(node: Node) -> bool:
    """Whether a node is a batch norm with running statistics, which needs no whole row."""
    return node.op == "norm" and node["kind"] == "batch" and not node["training"]


def _braced(index: Expr) -> str:
    text = str(index)
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def pointer_stem(value: Value) -> str:
    """A short name for what is loaded: ``conv_bias`` for the parameter ``conv.bias``."""
    stem = value.path.replace(".", "_") if value.origin is not Origin.NODE else value.name
    return stem.rstrip("_") or stem


def address(value: Value, index: Index) -> Expr:
    """Where an element lies, relative to the value's pointer."""
    total = Expr()
    for at, stride in zip(index, value.stride, strict=True):
        total = total + at * stride
    return total


def fitted(value: Value, index: Index) -> Index:
    """The index into a value that broadcasts, by an index into what it broadcasts to."""
    own = index[len(index) - value.rank :]
    return tuple(Expr() if size == ONE else at for at, size in zip(own, value.shape, strict=True))


def through_view(graph: Graph, node: Node, index: Index) -> Index:
    """The index into a view's operand that belongs to an index into its result."""
    source, result = graph.value(str(node.inputs[0])), graph.result(node)
    match node["how"]:
        case "reshape":
            try:
                return reshaped(index, result.shape, source.shape)
            except Negative as reason:
                raise Unfit(f"a reshape of a padded value: {reason}") from None
        case "permute":
            back = dict(zip(node["dims"], index, strict=True))
            return tuple(back[dim] for dim in range(source.rank))
        case "slice":
            return tuple(
                at * step + start
                for at, start, step in zip(index, node["starts"], node["steps"], strict=True)
            )
        case "expand":
            skip = result.rank - source.rank
            return tuple(Expr() if s == ONE else at for at, s in zip(index[skip:], source.shape, strict=True))
        case "flip":
            return tuple(
                at * -1 + result.shape[d] - 1 if d in node["dims"] else at for d, at in enumerate(index)
            )
        case "windows":
            *places, inside = index
            places[node["dim"]] = places[node["dim"]] * node["step"] + inside * node["dilation"]
            return tuple(places)
    raise Unfit(f"unknown view {node['how']}")


def beyond_view(graph: Graph, node: Node, index: Index) -> Index:
    """The other way round, for views that keep every element (reshape, permute, flip)."""
    source, result = graph.value(str(node.inputs[0])), graph.result(node)
    match node["how"]:
        case "reshape":
            return unflat(flat(index, source.shape), result.shape)
        case "permute":
            return tuple(index[dim] for dim in node["dims"])
        case "flip":
            return through_view(graph, node, index)
        case "expand" if source.elements == result.elements:
            return (Expr(),) * (result.rank - source.rank) + index
    raise Unfit(f"a {node['how']} does not keep every element")

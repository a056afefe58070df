"""Names for the sizes of a program: several captures of it become one graph.

Every number of the graph is a row, one value per capture. A row that never changes is that number. A row
that equals a dimension of an argument or a parameter is that dimension, named after the integer of the
source that it follows. A row that is a product of named sizes is that product. What is left is the output of
something that computes sizes (a convolution, a pool, a concatenation) and gets a name of its own with the
formula. Where a view shows a whole part of a named size (features per head), the part becomes the named size
and the whole a multiple of it, because products can be reasoned about and quotients cannot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from egg.core.source import Task
from egg.expert.graph import Graph, Node, Origin, Value, contiguous_stride
from egg.expert.reading.agreement import disagreement
from egg.expert.reading.formulas import formula_of
from egg.expert.reading.points import Capturing, Changes, Variant
from egg.expert.reading.rows import (
    Divisor,
    Part,
    Row,
    Rows,
    Unresolved,
    dimension_name,
    dimension_text,
    over,
    row_of,
)
from egg.expert.reading.variants import SIZED, Variants
from egg.expert.reading.widening import widened
from egg.expert.sizes import ONE, Size, as_size, product

NAMED_SCALARS = frozenset(
    {"add", "sub", "rsub", "mul", "div", "leaky_relu", "hardtanh", "clamp", "clamp_min", "clamp_max",
     "maximum", "minimum", "gt", "ge", "lt", "le", "threshold"}
)  # fmt: skip
"""Pointwise functions whose formula does not depend on the value of their constants."""
ATTEMPTS = 8
"""Sets of knobs that are tried until everything that follows from them has a rule."""


def generalised(task: Task, capture: Capturing) -> Graph:
    """``task`` captured at several points and put together; with plain numbers where that fails."""
    variants = Variants(task, capture)
    base = variants.base()
    graph, points = _by_integers(variants, base)
    return widened(variants, graph, points, _named)


def _by_integers(variants: Variants, base: Variant) -> tuple[Graph, list[Variant]]:
    """Put together from captures at other integers of the source, and the captures.

    Where a number has no rule, an integer that it depends on stays as it is, and another one where that was
    not enough; at the end all that are no batch.
    """
    waiting = [variants.turnable]
    batches = tuple(i for i in variants.turnable if variants.knobs[i].batch)
    for attempt in range(ATTEMPTS):
        last = not waiting or attempt == ATTEMPTS - 1
        turned = batches if last else waiting.pop(0)
        if not turned:
            break
        others, moved = variants.found(turned, base)
        graph = _named(variants, [base, *others], {}) if others else None
        if graph is not None:
            fixed = _values(variants, [i for i in variants.turnable if i not in moved])
            return replace(graph, fixed=fixed), [base, *others]
        if last or not others:
            break
        smaller = [tuple(i for i in moved if i != gone) for gone in _behind(variants, base, others[0], moved)]
        waiting += [s for s in smaller if s not in waiting]
    return replace(base.graph, fixed=_values(variants, variants.turnable)), [base]


def _behind(variants: Variants, base: Variant, other: Variant, moved: Sequence[int]) -> list[int]:
    """The integers that may be why two captures cannot be put together: put back, one by one, into ``other``,
    they leave another reason, or none."""
    reason = _unresolved(variants, [base, other])
    if not reason:
        return [*moved]
    found: list[int] = []
    for place in moved:
        sizes = (*other.sizes[:place], base.sizes[place], *other.sizes[place + 1 :])
        point = variants.at(sizes, base)
        if point is None or _unresolved(variants, [base, point]) != reason:
            found.append(place)
    return found


def _values(variants: Variants, places: Sequence[int]) -> dict[str, int]:
    return {variants.knobs[place].name: variants.knobs[place].value for place in places}


def _named(variants: Variants, points: list[Variant], wanted: Mapping[Row, str]) -> Graph | None:
    try:
        return _put_together(variants, points, wanted)
    except Unresolved:
        return None


def _unresolved(variants: Variants, points: list[Variant]) -> str:
    """Why these captures cannot be put together; empty where they can."""
    try:
        _put_together(variants, points, {})
    except Unresolved as reason:
        return str(reason)
    return ""


def _put_together(variants: Variants, points: list[Variant], wanted: Mapping[Row, str]) -> Graph:
    knobs = {
        knob.name: tuple(point.sizes[place] for point in points) for place, knob in enumerate(variants.knobs)
    }
    numbers = {
        text: tuple(point.capture.numbers[text] for point in points)
        for text in points[0].capture.numbers
        if all(text in point.capture.numbers for point in points)
    }
    plain_points = sum(point.changes == Changes() for point in points)
    return _together([point.graph for point in points], knobs, numbers, plain_points, wanted)


def named_together(
    graphs: list[Graph], knobs: Mapping[str, Row], numbers: Mapping[str, Row] | None = None
) -> Graph | None:
    """Graphs of one structure as one, with a name for every number that differs; ``None`` without a rule."""
    try:
        return _together(graphs, knobs, numbers or {}, 0, {})
    except Unresolved:
        return None


def _together(
    graphs: list[Graph], knobs: Mapping[str, Row], numbers: Mapping[str, Row],
    plain_points: int, wanted: Mapping[Row, str],
) -> Graph:  # fmt: skip
    """The same, with the reason where there is no rule.

    A size that follows a knob is named after it. Begins again whenever a part of a size turns out to be the
    better size.
    """
    shares: dict[str, tuple[Divisor, ...]] = {}
    for _ in range(24):
        try:
            return _Naming(Rows(graphs, knobs, numbers, shares, plain_points, wanted)).graph()
        except Part as found:
            shares[found.name] = (*shares.get(found.name, ()), found.divisor)
    raise Unresolved("sizes have parts of parts")


@dataclass
class _Naming:
    """One try at naming everything."""

    rows: Rows
    _values: dict[str, Value] = field(default_factory=dict)

    def graph(self) -> Graph:
        base = self.rows.graphs[0]
        inputs = [v.name for v in base.values.values() if v.origin is Origin.INPUT]
        self._leaves(inputs)
        nodes = []
        for place, node in enumerate(base.nodes):
            self._leaves([n for n in node.inputs if n is not None and n not in self._values])
            for number, name in enumerate(node.outputs):
                self._output(node, number, name)
            nodes.append(replace(node, attributes=self._attributes(place, node)))
            self._grouped(nodes[-1])
            self._check_agreement(nodes[-1])
        self._leaves([name for name in base.values if name not in self._values])
        values = {name: self._values[name] for name in base.values}
        symbols = self._used(values, nodes)
        exact = {name: parts for name, parts in self.rows.exact.items() if name in symbols}
        return replace(base, values=values, nodes=tuple(nodes), symbols=symbols, exact=exact)

    # -- values ------------------------------------------------------------------------------------

    def _leaves(self, names: Sequence[str]) -> None:
        """Small dimensions first: a larger one may be their product, not the other way round."""
        waiting = [
            (row, name, dim)
            for name in names
            for dim, row in enumerate(self.rows.of(name, lambda v: v.shape))
        ]
        for row, name, dim in sorted(waiting, key=lambda item: item[0][0]):
            value = self.rows.graphs[0].values[name]
            self.rows.size(row, lambda v=value, d=dim: (dimension_name(v, d), dimension_text(v, d)))
        for name in names:
            self._settle(name)

    def _output(self, node: Node, number: int, name: str) -> None:
        for dim, row in enumerate(self.rows.of(name, lambda v: v.shape)):
            if node.op == "view" and not self.rows.has(row):
                self._part_of_operand(node, row)
            if _makes_windows(node, dim) and row in self.rows.sizes:
                self._check_followed(node, dim, self.rows.sizes[row])
            self.rows.size(row, lambda n=number, d=dim, r=row: self._computed(node, n, d, r))
        self._settle(name)

    def _check_followed(self, node: Node, dim: int, size: Size) -> None:
        """A window makes a size of its operand's: one that follows another size is equal by accident."""
        source = self._values[str(node.inputs[0])].shape[dim]
        roots = [{self.rows.root(symbol.name) for symbol in s.factors} for s in (source, size)]
        if all(roots) and roots[0].isdisjoint(roots[1]):
            raise Unresolved(f"{size} agrees with what follows from {source} at all captures")

    def _check_agreement(self, node: Node) -> None:
        operands = [None if name is None else self._values[name] for name in node.inputs]
        if differing := disagreement(node, operands, [self._values[name] for name in node.outputs]):
            raise Unresolved(f"{node.op} takes {differing[0]} and {differing[1]} for one size")

    def _part_of_operand(self, node: Node, row: Row) -> None:
        """Views split dimensions: what they show may be a whole part of one."""
        source = self._values[str(node.inputs[0])]
        for symbol in dict.fromkeys(symbol for size in source.shape for symbol in size.factors):
            if divisor := self.rows.divisor(symbol, row):
                raise Part(symbol.name, divisor)

    def _grouped(self, node: Node) -> None:
        """Channels that are used in groups must be a multiple of their number in so many words."""
        groups = as_size(node.get("groups") or 1)
        channels = (
            [self._values[str(n)].shape[1] for n in (node.inputs[0], node.outputs[0])]
            if groups != ONE
            else []
        )
        for size in channels:
            if size.over(groups) is not None:
                continue
            row = row_of(groups, len(self.rows.graphs))
            name = next((s.name for s in groups.factors), "")
            for symbol in size.factors:
                if all(over(a, b) for a, b in zip(symbol.values, row, strict=True)):
                    raise Part(symbol.name, Divisor(row, name, self.rows.symbols.get(name, "")))

    def _settle(self, name: str) -> None:
        value = self.rows.graphs[0].values[name]
        shape = tuple(self.rows.size(row) for row in self.rows.of(name, lambda v: v.shape))
        self._values[name] = replace(value, shape=shape, stride=self._stride(name, shape))

    def _stride(self, name: str, shape: tuple[Size, ...]) -> tuple[Size, ...]:
        rows = self.rows.of(name, lambda v: v.stride)
        dense = contiguous_stride(shape)
        if all(graph.values[name].contiguous for graph in self.rows.graphs):
            return dense
        order = sorted(range(len(rows)), key=lambda d: (-rows[d][0], d))
        packed = {d: product(shape[e] for e in order[place + 1 :]) for place, d in enumerate(order)}
        if all(row_of(packed[d], len(self.rows.graphs)) == rows[d] for d in packed):
            return tuple(packed[d] for d in range(len(rows)))
        try:
            return tuple(self.rows.size(row) for row in rows)
        except Unresolved:
            value = self.rows.graphs[0].values[name]
            if value.origin is not Origin.NODE or value.lent:  # it lies as it does, whatever we would like
                raise
            return dense

    # -- numbers -----------------------------------------------------------------------------------

    def _computed(self, node: Node, number: int, dim: int, row: Row) -> tuple[str, str] | None:
        """A size that the node computes from those of its operands."""
        operands = [None if name is None else self._values[name] for name in node.inputs]
        text = formula_of(node, operands, number, dim, row)
        if text is None:
            return None
        words = re.findall(r"[A-Za-z_]\w*", text)
        stem = node.label or str(node.get("fn", node.op))
        return f"{stem}_{self.rows.root(words[0]) if words else dim}", text

    # -- attributes --------------------------------------------------------------------------------

    def _attributes(self, place: int, node: Node) -> dict[str, Any]:
        """A division by a number that changes with the size becomes a product: one rule serves both."""
        found = dict(node.attributes)
        if found.pop("rounds", None) is not None:
            self._check_rounds(place)
        for key in sorted(found.keys() & SIZED):
            columns = [graph.nodes[place].attributes[key] for graph in self.rows.graphs]
            if key == "scalars" and found.get("fn") == "div" and _varying_divisors(columns):
                found["fn"], columns = "mul", [(None, 1.0 / number) for _, number in columns]
            found[key] = self._unified(node, key, columns)
        return found

    def _check_rounds(self, place: int) -> None:
        """Whether the number of rounds follows a length that changes: one that is written down may reach far
        enough at the lengths that were tried, and no further."""
        scans = [(graph, graph.nodes[place]) for graph in self.rows.graphs]
        lengths = {graph.result(scan).shape[scan["dim"]].value for graph, scan in scans}
        if len(lengths) > 1 and len({scan["rounds"] for _, scan in scans}) == 1:
            raise Unresolved("there are as many rounds at every length that was tried")

    def _unified(self, node: Node, key: str, columns: list[Any]) -> Any:
        first = columns[0]
        if all(type(c) is type(first) and c == first for c in columns):
            return first
        if isinstance(first, tuple) and all(isinstance(c, tuple) and len(c) == len(first) for c in columns):
            return tuple(self._unified(node, key, list(items)) for items in zip(*columns, strict=True))
        if isinstance(first, dict) and all(isinstance(c, dict) and c.keys() == first.keys() for c in columns):
            return {k: self._unified(node, key, [c[k] for c in columns]) for k in first}
        if not all(isinstance(c, int | float) and not isinstance(c, bool) for c in columns):
            raise Unresolved(f"{key} of {node.op} changes with the size")
        row = tuple(columns)
        if all(isinstance(c, int) for c in columns) and all(c > 0 for c in columns):
            return self.rows.size(row, lambda: self._offset(node, key, row))
        stem = node.label or str(node.get("fn", node.op))
        if node.op == "resample":
            before, after = (self._values[str(name)].shape for name in (node.inputs[0], node.output))
            sizes = [(before[axis], after[axis]) for axis in node["axes"]]
            if found := self.rows.quotient(f"{stem}_scale", row, sizes):
                return found
        return self.rows.real(f"{stem}_{key.rstrip('s')}", row, kept=_may_be_named(node, key))

    def _offset(self, node: Node, key: str, row: Row) -> tuple[str, str] | None:
        """A number near a size: the place where the last element lies."""
        shapes = [self._values[n].shape for n in (*node.inputs, *node.outputs) if n is not None]
        for size in dict.fromkeys(size for shape in shapes for size in shape):
            values = row_of(size, len(row))
            gaps = {a - b for a, b in zip(row, values, strict=True)}
            if len(gaps) == 1 and size.factors:
                gap = gaps.pop()
                return f"{node.label or node.op}_{key}", f"{size.code()} {'+' if gap > 0 else '-'} {abs(gap)}"
        return None

    # -- the end -----------------------------------------------------------------------------------

    def _used(self, values: Mapping[str, Value], nodes: Sequence[Node]) -> dict[str, str]:
        """The symbols that something mentions, in the order in which they are found."""
        sizes = [s for value in values.values() for s in (*value.shape, *value.stride)]
        sizes += [s for node in nodes for a in node.attributes.values() for s in _within(a)]
        needed = {symbol.name for size in sizes for symbol in size.factors}
        for name in reversed(list(self.rows.symbols)):
            if name in needed:
                needed |= set(re.findall(r"[A-Za-z_]\w*", self.rows.symbols[name])) & self.rows.symbols.keys()
        return {name: text for name, text in self.rows.symbols.items() if name in needed}


def _makes_windows(node: Node, dim: int) -> bool:
    """Whether a dimension of the result counts the windows along that of the operand."""
    if node.op == "view":
        return node["how"] == "windows" and dim == node["dim"]
    return node.op in ("conv", "pool") and dim >= 2


def _may_be_named(node: Node, key: str) -> bool:
    """Whether kernels take a number of the node by name, whatever its value."""
    if key == "scalars":
        return node.get("fn") in NAMED_SCALARS
    return key == "scale" and node.op in ("attention", "resample")


def _varying_divisors(columns: list[Any]) -> bool:
    """``x / sqrt(width)``: a fraction, another one at every size."""
    return (
        all(len(c) == 2 and c[0] is None and isinstance(c[1], float) for c in columns)
        and len(set(columns)) > 1
    )


def _within(value: Any) -> Iterator[Size]:
    if isinstance(value, Size):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _within(item)
    elif isinstance(value, dict):
        yield from _within(tuple(value.values()))

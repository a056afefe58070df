"""Reading values inside a loop: windows and tables besides what every kernel can read, and what a loop may
keep outside.

Pooling is read as the taps of its window, a resize as neighbours at counted places, an embedding as a load at
a loaded position: none needs a kernel of its own. Inside a loop over a row, whatever does not depend on the
position in the row (a channel's bias) is read in front of the loop, once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product as combinations

from egg.expert.emit.reader import Body, Reader, address, is_fixed_norm
from egg.expert.emit.triton.types import FLOAT8
from egg.expert.graph import Node, Value
from egg.expert.index import Expr, Index, as_expr, loop_index
from egg.expert.parts import Unfit
from egg.expert.patterns.loops.triton.counted import counted_places, counts
from egg.expert.patterns.loops.triton.resampling import Kernel, resampled
from egg.expert.sizes import ONE, Size
from egg.expert.window import Window, window_of

UNROLLED = 32
"""Taps that are written out one by one; a larger window is a loop."""
NANS = "propagate_nan=tl.PropagateNan.ALL"


@dataclass
class LoopBody(Body):
    """Lines with loops: while one is open, lines can still be put in front of it."""

    _outside: list[tuple[list[str], int]] = field(default_factory=list)

    @contextmanager
    def loop(self, head: str) -> Iterator[None]:
        """Everything inside goes under ``head``."""
        self._outside.append((self.lines, self.indent))
        self.lines, self.indent = [], self.indent + 1
        yield
        inside = self.lines
        self.lines, self.indent = self._outside.pop()
        self.line(head)
        self.lines += inside

    @contextmanager
    def in_front(self) -> Iterator[None]:
        """In front of the outermost open loop."""
        kept, stack = (self.lines, self.indent), self._outside
        self.lines, self.indent = stack[0]
        self._outside = []
        yield
        (self.lines, self.indent), self._outside = kept, stack

    @property
    def looping(self) -> bool:
        return bool(self._outside)


@dataclass
class LoopReader(Reader):
    """Reads for kernels of the loops pattern."""

    body: LoopBody  # type: ignore[assignment]
    masks: dict[str, str]  # type: ignore[assignment]
    outside: frozenset[str] = frozenset()
    """Loop indices that exist before the loop over the row: what depends on these alone is read there."""
    hooks: dict[str, Callable[[Index, tuple[str, ...]], str]] = field(default_factory=dict)
    """How to read what anchors made."""
    named: dict[str, Expr] = field(default_factory=dict)
    """Index expressions that have variables of their own."""
    loads: list[tuple[Value, Expr]] = field(default_factory=list)
    """Every load, for the choice of tiles by how memory is met."""
    axes: frozenset[str] = frozenset()
    """Loop indices that are blocks: the dimensions of a tile."""
    skips: bool = False
    """What a loaded position points at is loaded only where the position was."""
    counted: list[Expr] = field(default_factory=list)
    """Indices that places were computed from, one for each place."""
    _spread: dict[str, frozenset[str]] = field(default_factory=dict)
    """Positions that were loaded, and the loop indices they vary with."""

    @contextmanager
    def loop(self, head: str) -> Iterator[None]:
        """What is computed inside is forgotten behind it; what was read in front of it is not."""
        self._front = dict(self._known)
        with self.body.loop(head):
            yield
        self._known = self._front

    @contextmanager
    def only_if(self, condition: str) -> Iterator[None]:
        """What is inside is done only where the condition holds, and is forgotten behind it."""
        known = dict(self._known)
        self.body.line(f"if {condition}:")
        self.body.indent += 1
        yield
        self.body.indent -= 1
        self._known = known

    def read(self, name: str, index: Index, guards: tuple[str, ...] = ()) -> str:
        if self.body.looping and not guards and self._free(name, index):
            if (name, index, guards) not in self._front:
                inside, self._known = self._known, self._front
                with self.body.in_front():
                    text = super().read(name, index, guards)
                self._known = {**inside, **self._front}
                return text
            return self._front[name, index, guards]
        return super().read(name, index, guards)

    def _free(self, name: str, index: Index) -> bool:
        symbols = frozenset[str]().union(*(at.symbols() for at in index))
        return symbols <= self.outside and name not in self.bound

    def _computed(self, name: str, index: Index, guards: tuple[str, ...]) -> str:
        node = self._producers.get(name)
        if name in self.hooks:
            return self.hooks[name](index, guards)
        if name not in self.bound and node is not None:
            if node.op == "pool":
                return self._pool(node, index, guards)
            if node.op == "resample":
                source = self.graph.value(str(node.inputs[0]))
                kernel = Kernel(
                    self.body.let, self._counted_place, lambda at: self.read(source.name, at, guards)
                )
                return resampled(kernel, node, source, index)
            if node.op == "gather":
                return self._gather(node, index, guards)
            if is_fixed_norm(node):
                return self.fixed_norm(node, self.read(str(node.inputs[0]), index, guards), index[1], guards)
        return super()._computed(name, index, guards)

    def _readable(self, dtype: str) -> bool:
        return dtype in FLOAT8 or super()._readable(dtype)

    def _load(self, value: Value, index: Index, guards: tuple[str, ...]) -> str:
        at = address(value, index)
        self.loads.append((value, at.substituted(self.named) if self.named else at))
        return super()._load(value, index, guards)

    def _reached(self, value: Value, index: Index, guards: tuple[str, ...]) -> tuple[Expr, str]:
        """A mask has the shape of the address: guards on an axis that the address does not vary with go.

        Outside of guards anything may be read, as long as it is there: the scale of a row that is joined with
        others lies inside its tensor wherever the tile is.
        """
        own = self._axes_of(address(value, index).symbols())
        fitting = tuple(g for g in guards if self._axes_of(re.findall(r"[A-Za-z_]\w*", g)) <= own)
        if fitting != guards and any(_within(at, n) for at, n in zip(index, value.shape, strict=True)):
            raise Unfit(f"{value.name} is guarded along a dimension that it does not have")
        return super()._reached(value, index, fitting)

    def _axes_of(self, names: Iterable[str]) -> frozenset[str]:
        """Axes of the tile that these names vary with."""
        found = frozenset[str]()
        for name in names:
            if name in self._spread:
                found |= self._axes_of(self._spread[name])
            elif name in self.named:
                found |= self._axes_of(self.named[name].symbols())
            elif name in self.axes:
                found |= {name}
        return found

    def varies(self, index: Index) -> bool:
        """Whether what is read at an index differs within a tile, and is no scalar of the program."""
        return any(self._axes_of(at.symbols()) for at in index)

    def guard_along(self, condition: str, at: Index, value: Value, index: Index) -> str:
        """A condition that was read at ``at`` as a guard of the load of ``value``; empty where it is a scalar
        or varies along the contiguous run of the load."""
        symbols = frozenset[str]().union(*(part.symbols() for part in at))
        place = address(value, index)
        along = [
            axis for axis in self.axes if axis in place.symbols() and place.stride_of(axis) in (ONE, None)
        ]
        if not condition.isidentifier() or not along or not self._axes_of(symbols):
            return ""
        if self._axes_of(symbols) & {*along}:
            return ""
        self._spread[condition] = symbols
        return condition

    def is_of_row(self, at: Expr, row: str) -> bool:
        """Whether a place is the same for all elements of a row."""
        return self._axes_of(at.symbols()) <= {row}

    # -- windows -----------------------------------------------------------------------------------

    def _pool(self, node: Node, index: Index, guards: tuple[str, ...]) -> str:
        window = window_of(self.graph, node)
        if node["fn"] not in ("max", "avg"):
            raise Unfit(f"no kernel for {node['fn']} pooling")
        index = (*index[: -window.rank], *self._named_places(node, index[-window.rank :]))
        if window.taps <= UNROLLED:
            offsets = combinations(*(range(size) for size in window.kernel))
            total = self.joined_taps(node, window, index, offsets, guards=guards)
        else:
            where = (index[: -window.rank], _start(window, index), window)
            source = self.graph.value(str(node.inputs[0]))
            total = self._looped_window(node, source, where, guards, _neutral(node))
        return self._averaged(node, window, index, total)

    def joined_taps(
        self, node: Node, window: Window, index: Index, offsets: Iterable[tuple[int, ...]],
        stem: str = "", guards: tuple[str, ...] = (),
    ) -> str:  # fmt: skip
        """Taps of the window at an index of the result, joined, under a name."""
        source, total = self.graph.value(str(node.inputs[0])), ""
        index = (*index[: -window.rank], *self._named_places(node, index[-window.rank :]))
        start = _start(window, index)
        for offset in offsets:
            at = tuple(s + o * d for s, o, d in zip(start, offset, window.dilation, strict=True))
            tap = self._tap(source, (*index[: -window.rank], *at), guards, _neutral(node))
            if total:
                self.body.line(f"{total} = {_joined(node['fn'], total, tap)}")
            else:
                total = self.body.let(stem or node.label or f"{node['fn']}_pool", tap)
        return total

    def joined_window(self, node: Node, window: Window, index: Index, lines: list[str]) -> str:
        """The result at an index, from the rows of its window."""
        total = self.body.let(node.label or f"{node['fn']}_pool", lines[0])
        for line in lines[1:]:
            self.body.line(f"{total} = {_joined(node['fn'], total, line)}")
        index = (*index[: -window.rank], *self._named_places(node, index[-window.rank :]))
        return self._averaged(node, window, index, total)

    def _averaged(self, node: Node, window: Window, index: Index, total: str) -> str:
        if node["fn"] == "max":
            return total
        source = self.graph.value(str(node.inputs[0]))
        divisor = self._divisor(node, source, _start(window, index), window)
        return self.body.let(node.label or f"{node['fn']}_pool", f"{total} / {divisor}")

    def _named_places(self, node: Node, index: Index) -> Index:
        """Coordinates that every tap computes with, under names of their own."""
        sizes = self.graph.result(node).shape[-len(index) :]
        return tuple(
            at
            if (len(at.terms) <= 1 and at.code().isidentifier()) or at.is_constant
            else self._named(f"at_{axis}", at, size)
            for axis, (at, size) in enumerate(zip(index, sizes, strict=True))
        )

    def _named(self, wanted: str, at: Expr, size: Size) -> Expr:
        key = ("", (at,), ())
        if key not in self._known:
            self._known[key] = name = self.body.let(wanted, at.code())
            self.named[name] = at
            masks = [self.masks[s] for s in sorted(at.symbols()) if s in self.masks]
            if masks:
                self.masks[name] = " & ".join(masks)
            if at.symbols() <= self.outside:
                self.outside |= {name}
        return loop_index(self._known[key], size)

    def _looped_window(
        self, node: Node, source: Value, where: tuple[Index, list[Expr], Window], guards: tuple[str, ...],
        neutral: str,
    ) -> str:  # fmt: skip
        """The taps of a large window in loops, their result in a variable that is carried along."""
        lead, start, window = where
        names = [self.body.name(f"tap_{axis}") for axis in range(window.rank)]
        total = self.body.name(node.label or f"{node['fn']}_pool")
        # A value of the tile's shape and type, so that the loop's variable keeps its own.
        shape = " + ".join(dict.fromkeys(s for at in (*lead, *start) for s in sorted(at.symbols()))) or "0"
        self.body.line(f"{total} = tl.where({shape} < 0, 0.0, {neutral})")
        kept = dict(self._known)
        at = tuple(
            s + loop_index(name, size) * d
            for s, name, size, d in zip(start, names, window.kernel, window.dilation, strict=True)
        )
        depth = 0
        for name, size in zip(names, window.kernel, strict=True):
            self.body.line(f"for {name} in range({size}):")
            self.body.indent += 1
            depth += 1
        tap = self._tap(source, (*lead, *at), guards, neutral)
        self.body.line(f"{total} = {_joined(node['fn'], total, tap)}")
        self.body.indent -= depth
        self._known = kept
        return total

    def _tap(self, source: Value, index: Index, guards: tuple[str, ...], neutral: str) -> str:
        inside = tuple(
            guard for at, size in zip(index, source.shape, strict=True) for guard in _within(at, size)
        )
        held = source.name in self._producers or source.name in self.bound or source.name in self.hooks
        if inside and not held:  # the load itself puts the neutral element in
            key = (source.name, index, (*guards, *inside, neutral))
            if key not in self._known:
                self.other = neutral
                self._known[key] = self._load(source, index, (*guards, *inside))
                self.other = "0"
            return self._known[key]
        text = self.read(source.name, index, (*guards, *inside))
        return f"tl.where({' & '.join(inside)}, {text}, {neutral})" if inside else text

    def _divisor(self, node: Node, source: Value, start: list[Expr], window: Window) -> str:
        """How many taps count: all, or those on the operand (and, where asked, on its padding)."""
        if node.get("divisor"):
            return repr(node["divisor"])
        pads = node.get("count_include_pad", True)
        factors: list[str] = []
        plain = 1
        for at, size, kernel, padding, dilation in zip(
            start, source.shape[-window.rank :], window.kernel, window.padding, window.dilation, strict=True
        ):
            low, high = (Expr() - padding, as_expr(size) + padding) if pads else (Expr(), as_expr(size))
            end = at + (kernel - 1) * dilation + 1
            cut_low = (at - low).may_be_negative()
            cut_high = (end - high).may_exceed_zero()
            if not cut_low and not cut_high:
                plain *= kernel
                continue
            if dilation != 1:
                raise Unfit("an average over a dilated window with padding")
            first = f"tl.maximum({at}, {low})" if cut_low else f"({at})"
            last = f"tl.minimum({end}, {high})" if cut_high else f"({end})"
            factors.append(f"({last} - {first})")
        if plain != 1 or not factors:
            factors.append(f"{float(plain)!r}")
        return factors[0] if len(factors) == 1 else f"({' * '.join(factors)})"

    # -- tables ------------------------------------------------------------------------------------

    def _gather(self, node: Node, index: Index, guards: tuple[str, ...]) -> str:
        table, chosen = (self.graph.value(str(name)) for name in node.inputs[:2])
        how, dim = node["how"], node.get("dim", 0) or 0
        dim %= max(table.rank, 1)
        if how == "embedding":
            at, rest, dim = index[: chosen.rank], index[chosen.rank :], 0
            whole = [Expr(), *rest]
        elif how == "index_select":
            at, whole = (index[dim],), list(index)
        elif how == "gather":
            at, whole = index, list(index)
        else:
            raise Unfit(f"unknown way to gather: {how}")
        whole[dim] = self._chosen(chosen, at, guards, table.shape[dim])
        return self.read(table.name, tuple(whole), guards)

    def _chosen(self, chosen: Value, at: Index, guards: tuple[str, ...], size: Size) -> Expr:
        """A place that was loaded or computed, along a dimension of that size. Where ``at`` overshoots, what
        is loaded is the first place, and what is counted none at all."""
        if (counted := counted_places(self.graph, self._own(), chosen.name, at)) is not None:
            return counted
        position = self.read(chosen.name, at, guards)
        if not position.isidentifier():
            position = self.body.let("position", position)
        symbols = frozenset[str]().union(*(part.symbols() for part in at))
        if position not in symbols:
            self._spread[position] = symbols
            within = " & ".join(self.masks[s] for s in sorted(symbols) if s in self.masks)
            if within and (self.skips or counts(self._own(), chosen.name)):
                self.masks[position] = within
        if symbols <= frozenset(self.outside):
            self.outside |= {position}
        return loop_index(position, size)

    def _own(self) -> Mapping[str, Node]:
        """What this kernel computes anew wherever it is read."""
        return {name: node for name, node in self._producers.items() if name not in self.bound}

    def _counted_place(self, text: str, at: Expr, size: Size) -> Expr:
        """A place along a dimension of that size which follows from ``at``, by ``text``, under a name. Where
        ``at`` overshoots, so does the place: the name has the same mask."""
        symbols = at.symbols()
        self.counted.append(at)
        name = self.body.let("place", text)
        self._spread[name] = symbols
        masks = [self.masks[s] for s in sorted(symbols) if s in self.masks]
        if masks:
            self.masks[name] = " & ".join(masks)
        if symbols <= self.outside and not self.body.looping:
            self.outside |= {name}
        return loop_index(name, size)

    def scattered(self, node: Node, index: Index, axes: frozenset[str]) -> tuple[str, Expr, str]:
        """An element of a scatter's source, the address in the result where it goes, and the text that says
        it goes there at all, if it may not. ``axes``: those of the tile that the source varies with, one
        element for each of their places."""
        source, chosen = (self.graph.value(str(name)) for name in node.inputs[:2])
        made, dim = self.graph.result(node), node["dim"]
        onto = len(node.inputs) > 2  # what the caller holds is not written past its end
        text = self.read(source.name, index)
        spread = tuple(Expr() if n == ONE else part for n, part in zip(chosen.shape, index, strict=True))
        whole = list(index)
        whole[dim] = self._chosen(chosen, spread, (), made.shape[dim])
        at, position = address(made, tuple(whole)), whole[dim]
        whole[dim] = whole[dim] if self._varies(chosen.name) else Expr()
        counted = {*re.findall(r"[A-Za-z_]\w*", self.read(chosen.name, spread))} - self._spread.keys()
        if not axes <= self._axes_of(address(made, tuple(whole)).symbols() | counted):
            raise Unfit(f"elements of {source.name} may all go to one place of {made.name}")
        self.loads.append((made, at))
        inside = f"({position} < {made.shape[dim]})" if "whole" in node.attributes or onto else ""
        return text, at, f"({position} >= 0) & {inside}" if onto else inside

    def _varies(self, name: str) -> bool:
        """Whether a value has an element in memory for each of its places, so that it is loaded as a tile."""
        node, value = self._producers.get(name), self.graph.value(name)
        if node is None or name in self.bound:
            return all(step.number or n == ONE for step, n in zip(value.stride, value.shape, strict=True))
        if node.op == "view":
            return node["how"] != "expand" and self._varies(str(node.inputs[0]))
        if node.op == "selection":
            return name == node.outputs[1]  # places of a row differ
        alike = [str(i) for i in node.inputs if i is not None and self.graph.value(i).shape == value.shape]
        return node.op in ("pointwise", "where") and any(map(self._varies, alike))

    # -- norms with fixed statistics ---------------------------------------------------------------


def _within(at: Expr, size: Size) -> tuple[str, ...]:
    guards = (f"({at} >= 0)",) if at.may_be_negative() else ()
    return guards if at.below(size) else (*guards, f"({at} < {size})")


def _start(window: Window, index: Index) -> list[Expr]:
    """Where the window of a result's element begins."""
    places = zip(index[-window.rank :], window.stride, window.padding, strict=True)
    return [at * stride - padding for at, stride, padding in places]


def _neutral(node: Node) -> str:
    return 'float("-inf")' if node["fn"] == "max" else "0.0"


def _joined(fn: str, total: str, tap: str) -> str:
    return f"tl.maximum({total}, {tap}, {NANS})" if fn == "max" else f"{total} + {tap}"

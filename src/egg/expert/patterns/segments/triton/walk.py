"""The kernel that walks the lists: some places for each program, several rows of each in flight.

A tile is [places, rows, columns]. Whatever is computed of a row (gathered, multiplied by its weight) is
computed for a block of rows of each list, joined along the middle axis, and never stored. What is joined is
at hand as [places, 1, columns], so what follows is computed in registers, and the result is stored once.

A scatter that the rows themselves depend on (the maximum below a softmax's exponential) is a walk of its own
in front. Which elements of it are needed shows only while the rows are written, so the kernel is written
twice: the first time collects what is asked for, the second walks each list once for all of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from egg.expert.emit.kernel import Kernel
from egg.expert.emit.reader import address, pointer_stem
from egg.expert.emit.spelling import number_text
from egg.expert.emit.triton.scalar import stored
from egg.expert.emit.triton.types import TYPES
from egg.expert.graph import Node, Value
from egg.expert.index import Expr, Index, as_expr, loop_index
from egg.expert.parts import Unfit
from egg.expert.patterns.loops.triton.reader import NANS, LoopBody, LoopReader
from egg.expert.patterns.segments.problem import COLUMN, EDGE, HEAD, NODE, Problem, fixed
from egg.expert.patterns.segments.triton.lists import Tensors
from egg.expert.sizes import ONE, Size

MOST_UNROLLED = 8
"""Elements of a reduction inside a row (a mean over heads) that are written out."""
CONSTANTS = ("NODES", "ROWS", "BLOCK_F")
OWN = frozenset(
    {NODE, EDGE, HEAD, COLUMN, "program", "chunk", "node_blocks", "node_mask", "col_mask", "count", "first",
     "longest", "row", "start", "at", "live", "count_ptr", "first_ptr", "edges_ptr", *CONSTANTS}
)  # fmt: skip


@dataclass
class Asked:
    """What the rows of a kernel ask for, as found by writing it once."""

    states: dict[str, list[Index]] = field(default_factory=dict)
    """By scatter: the elements of its result that are needed at hand."""
    filed: dict[str, Value] = field(default_factory=dict)
    """By their numbers: positions that are kept in lists."""
    edges: bool = False
    """Whether rows are read by their own numbers."""
    wide: int = 1
    """Loads of a whole tile for a block of rows."""


@dataclass
class WalkReader(LoopReader):
    """Reads values of rows and of places."""

    walk: Walk | None = None

    def _computed(self, name: str, index: Index, guards: tuple[str, ...]) -> str:
        node = self._producers.get(name)
        if node is not None and node.op == "reduce" and name not in self.bound:
            return self._unrolled(node, index, guards)
        return super()._computed(name, index, guards)

    def _chosen(self, chosen: Value, at: Index, guards: tuple[str, ...], size: Size) -> Expr:
        """The place itself, a position from a list, or one that is looked up."""
        assert self.walk is not None
        problem, symbols = self.walk.problem, frozenset[str]().union(*(part.symbols() for part in at))
        if symbols == {EDGE} and chosen.elements == problem.edges:
            if problem.by_place(chosen.name, size):
                return loop_index(NODE, size)
            if not guards:
                return loop_index(self._filed(chosen), size)
        found = super()._chosen(chosen, at, guards, size)
        masks = dict.fromkeys(self.masks[s] for s in sorted(symbols) if s in self.masks)
        for position in found.symbols() - symbols if masks else ():
            self.masks[position] = " & ".join(masks)
        return found

    def _filed(self, chosen: Value) -> str:
        assert self.walk is not None
        key = (f"[{self.walk.problem.numbers(chosen.name)}]", (), ())
        if key not in self._known:
            pointer = self.walk.listed(chosen)
            text = f"tl.load({pointer} + at, mask=live, other=0)"
            self._known[key] = name = self.body.let("source", text)
            self._spread[name] = frozenset({EDGE})
            self.masks[name] = "live"
        return self._known[key]

    def _unrolled(self, node: Node, index: Index, guards: tuple[str, ...]) -> str:
        """A reduction over a few elements, one by one."""
        source = self.graph.value(str(node.inputs[0]))
        dims = sorted(d % source.rank for d in node["dims"])
        sizes = [source.shape[d] for d in dims]
        count = 1
        for size in sizes:
            count *= size.value
        if node["fn"] not in ("sum", "mean", "max", "min") or count > MOST_UNROLLED:
            raise Unfit(f"a {node['fn']} over {count} elements of a row")
        if any(size.factors for size in sizes):
            raise Unfit("a reduction of a size that may change")
        kept = list(index)
        for d in dims if not node["keepdim"] else ():
            kept.insert(d, Expr())
        total = ""
        for element in range(count):
            for d, size in zip(reversed(dims), reversed(sizes), strict=True):
                element, kept[d] = element // size.value, as_expr(element % size.value)
            text = self.read(source.name, tuple(kept), guards)
            total = _joined(node["fn"], total, text, source.floating) if total else text
            total = self.body.let(node.label or node["fn"], total)
        return self.body.let(node.label or "mean", f"{total} / {count}") if node["fn"] == "mean" else total


@dataclass
class Walk:
    """Writes the kernel."""

    problem: Problem
    name: str
    tensors: Tensors
    asked: Asked
    found: Asked = field(default_factory=Asked)
    """What this writing asked for."""
    states: dict[tuple[str, Index], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        doc = "Join the rows of each place's list, several at a time; what follows is computed in registers."
        self.kernel = Kernel(self.name, doc, self.problem.graph, OWN, body=LoopBody())
        assert isinstance(self.kernel.body, LoopBody)
        self.body: LoopBody = self.kernel.body
        self.masks = {NODE: "node_mask", COLUMN: "col_mask", EDGE: "live"}
        self.reader = WalkReader(
            self.problem.graph, self.problem.group.nodes, self.body, self.masks, walk=self
        )
        self.reader.axes = frozenset({NODE, EDGE, COLUMN})
        self.reader.outside = frozenset({NODE, HEAD, COLUMN})
        for node in self.problem.scatters:
            self.reader.hooks[node.output] = self._hook(node)

    def write(self) -> Kernel:
        """The kernel, with what it asked for in :attr:`found`."""
        self._position()
        value, index = self.problem.written
        text = self.reader.read(value.name, index)
        pointer = self.body.name(f"{pointer_stem(value)}_ptr")
        mask = " & ".join(self.masks[name] for name in (NODE, COLUMN))
        place = address(value, index)
        self.body.line(f"tl.store({pointer} + {place}, {stored(text, value.dtype)}, mask={mask})")
        self.kernel.operands |= {"count_ptr": self.tensors.counts, "first_ptr": self.tensors.first}
        if self.found.edges:
            self.kernel.operands["edges_ptr"] = self.tensors.edges
        self.kernel.add_pointers(self.reader.pointers)
        self.kernel.results[pointer] = value.name
        self.found.wide = max(1, sum(self._is_wide(at) for _, at in self.reader.loads))
        return self.kernel

    def listed(self, chosen: Value) -> str:
        """The pointer of a list of positions."""
        numbers = self.problem.numbers(chosen.name)
        self.found.filed.setdefault(numbers, chosen)
        which = list(self.found.filed).index(numbers)
        tensor = self.tensors.filed(which)
        pointer = next((p for p, t in self.kernel.operands.items() if t == tensor), "")
        pointer = pointer or self.body.name(self.tensors.pointer(which))
        self.kernel.operands[pointer] = tensor
        return pointer

    def _is_wide(self, at: Expr) -> bool:
        """Whether a load has an element for each row and column of a tile."""
        return COLUMN in at.symbols() and bool(at.symbols() - {NODE, HEAD, COLUMN})

    def _position(self) -> None:
        nodes, columns = self.problem.nodes.code(), self.problem.columns.code()
        chunk, parts = "(program // node_blocks)", list[str]()
        if self.problem.heads != ONE:
            chunk = f"(chunk % tl.cdiv({columns}, BLOCK_F))"
            parts = ["chunk = program // node_blocks", f"{HEAD} = chunk // tl.cdiv({columns}, BLOCK_F)"]
        for text in (
            "program = tl.program_id(0)",
            f"node_blocks = tl.cdiv({nodes}, NODES)",
            *parts,
            f"{NODE} = ((program % node_blocks) * NODES + tl.arange(0, NODES))[:, None, None]",
            f"node_mask = {NODE} < {nodes}",
            f"{COLUMN} = ({chunk} * BLOCK_F + tl.arange(0, BLOCK_F))[None, None, :]",
            f"col_mask = {COLUMN} < {columns}",
            "row = tl.arange(0, ROWS)[None, :, None]",
            f"count = tl.load(count_ptr + {NODE}, mask=node_mask, other=0)",
            f"first = tl.load(first_ptr + {NODE}, mask=node_mask, other=0)",
            "longest = tl.max(count)",
        ):
            self.body.line(text)

    # -- scatters ----------------------------------------------------------------------------------

    def _hook(self, node: Node) -> Callable[[Index, tuple[str, ...]], str]:
        return lambda index, guards: self._state(node, index)

    def _state(self, node: Node, index: Index) -> str:
        """An element of a scatter's result for each place of the tile."""
        if index[node["dim"]] != loop_index(NODE, self.problem.nodes):
            raise Unfit("rows read what is joined at another place than their own")
        if (node.output, index) not in self.states:
            self.found.states.setdefault(node.output, []).append(index)
            self._joined(node, [index, *self.asked.states.get(node.output, ())])
        return self.states[node.output, index]

    def _joined(self, node: Node, indices: list[Index]) -> None:
        """One walk along the lists, for all of these elements."""
        source, made = self.problem.graph.value(str(node.inputs[0])), self.problem.graph.result(node)
        fill, stem, kind = number_text(node["fill"]), node.label or node.output, TYPES[made.dtype]
        wanted = list(dict.fromkeys(i for i in indices if (node.output, i) not in self.states))
        number = self.problem.constant(source.name)
        if number is not None and node["fn"] == "sum":
            counted = f"{fill} + {number_text(number)} * count.to({kind})"
            self.states |= {(node.output, index): self.body.let(stem, counted) for index in wanted}
            return
        totals: dict[Index, str] = {}
        for index in wanted:
            spread = any(COLUMN in part.symbols() for part in index)
            width = "BLOCK_F" if spread else "1"
            totals[index] = self.body.let(stem, f"tl.full((NODES, 1, {width}), {fill}, {kind})")
        neutral = number_text(0.0 if source.floating else 0) if node["fn"] == "sum" else fill
        rows = loop_index(EDGE, self.problem.edges)
        with self.reader.loop("for start in range(0, longest, ROWS):"):
            self.body.line("live = start + row < count")
            self.body.line("at = first + start + row")
            place = len(self.body.lines)
            for index, total in totals.items():
                text = self.reader.read(source.name, fixed(index, node["dim"], rows))
                joined = _along(node["fn"], f"tl.where(live, {text}, {neutral})")
                self.body.line(f"{total} = {_joined(node['fn'], total, joined, False)}")
            if any(re.search(rf"\b{EDGE}\b", line) for line in self.body.lines[place:]):
                self.found.edges = True
                indent = "    " * self.body.indent
                load = f"{indent}{EDGE} = tl.load(edges_ptr + at, mask=live, other=0)"
                self.body.lines.insert(place, load)
        self.states |= {(node.output, index): total for index, total in totals.items()}


def write_walk(problem: Problem, name: str, tensors: Tensors) -> tuple[Kernel, Asked]:
    """The kernel, and what it asks of the lists."""
    first = Walk(problem, name, tensors, Asked())
    first.write()
    last = Walk(problem, name, tensors, first.found)
    return last.write(), last.found


def _along(fn: str, text: str) -> str:
    """Rows of a tile joined."""
    return f"tl.{fn}({text}, axis=1, keep_dims=True)"


def _joined(fn: str, total: str, text: str, floating: bool) -> str:
    if fn in ("sum", "mean"):
        return f"{total} + {text}"
    nans = f", {NANS}" if floating else ""
    return f"tl.{fn}imum({total}, {text}{nans})"

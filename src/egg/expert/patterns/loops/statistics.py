"""What is gathered along a row: sums, extremes, positions, moments and exponentials, each in three
manners.

*At once*: the row is in registers; the plain formulas. *Running*: the row passes by in blocks; every lane
keeps a state of its own, and lanes are joined once behind the loop, because exchanging between lanes costs
more than the arithmetic (lanes of one thread are joined as they come where that is one instruction). *In
parts*: several programs share a row; each leaves its joined state in memory and the reader of the result
joins those. A state is one or a few numbers, and joining is the same operation each time.

Moments are kept as count, mean and sum of squared deviations (Welford within a lane, Chan between lanes): a
sum of squares minus the square of a sum loses every digit where the mean is large beside the deviation.
Exponentials are kept as the largest argument and the sum relative to it, with one exponential per element:
of the two factors that rescaling needs, one is always 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from egg.expert.emit.triton.scalar import FLOATING, is_literal, literal
from egg.expert.graph import Graph, Node
from egg.expert.parts import Unfit
from egg.expert.patterns.loops.reader import LoopBody

LOWEST = "-3.4028234663852886e+38"
"""The least finite number: unlike minus infinity, it can be subtracted from itself."""

HELPERS: dict[str, str] = {
    "larger": '''@triton.jit
def larger(a, b):
    """The maximum, where a NaN is the largest of all."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "smaller": '''@triton.jit
def smaller(a, b):
    """The minimum, where a NaN is the smallest of all."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "multiplied": """@triton.jit
def multiplied(a, b):
    return a * b
""",
    "first_largest": '''@triton.jit
def first_largest(value_a, index_a, value_b, index_b):
    """The larger value with its index; the first of equal ones, and a NaN before everything."""
    equal = (value_a == value_b) | ((value_a != value_a) & (value_b != value_b))
    better = (value_a > value_b) | ((value_a != value_a) & (value_b == value_b))
    take_a = better | (equal & (index_a < index_b))
    return tl.where(take_a, value_a, value_b), tl.where(take_a, index_a, index_b)
''',
    "first_smallest": '''@triton.jit
def first_smallest(value_a, index_a, value_b, index_b):
    """The smaller value with its index; the first of equal ones, and a NaN before everything."""
    equal = (value_a == value_b) | ((value_a != value_a) & (value_b != value_b))
    better = (value_a < value_b) | ((value_a != value_a) & (value_b == value_b))
    take_a = better | (equal & (index_a < index_b))
    return tl.where(take_a, value_a, value_b), tl.where(take_a, index_a, index_b)
''',
    "joined_moments": '''@triton.jit
def joined_moments(count_a, mean_a, squares_a, count_b, mean_b, squares_b):
    """Count, mean and sum of squared deviations of two parts together (Chan)."""
    count = count_a + count_b
    share = tl.where(count > 0.0, count_b / tl.maximum(count, 1.0), 0.0)
    apart = mean_b - mean_a
    return count, mean_a + apart * share, squares_a + squares_b + apart * apart * count_a * share
''',
    "added_exponentials": '''@triton.jit
def added_exponentials(a, b):
    """log(exp(a) + exp(b)); minus infinity is the neutral element."""
    high = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    shift = tl.where(tl.abs(high) == float("inf"), 0.0, high)
    return shift + tl.log(tl.exp(a - shift) + tl.exp(b - shift))
''',
    "followed": '''@triton.jit
def followed(decay_a, total_a, decay_b, total_b):
    """A stretch of a decaying total and the one behind it: what is left of before, and what they add."""
    return decay_a * decay_b, total_a * decay_b + total_b
''',
}
"""Functions that kernels join with."""


@dataclass(frozen=True)
class Tile:
    """How a kernel holds its tile: a row as a vector, or several rows as a matrix."""

    rows: bool
    """Several rows at once (2-D)."""
    mask: str = ""
    """Which lanes lie in the row; empty where all do."""
    width: str = "BLOCK_R"
    folded: bool = False
    """What a block adds to a row is joined when it comes: see :class:`~.loops_work.Plan`."""
    chunked: bool = False
    """What a block adds to ``LANES`` states of a single row is joined when it comes."""

    @property
    def shape(self) -> str:
        return f"[BLOCK_X, {self.width}]" if self.rows else f"[{self.width}]"

    def chunks(self, text: str) -> str:
        """A block as many times the lanes; they are whole to each thread, so nothing moves."""
        return f"tl.reshape({text}, [BLOCK_R // LANES, LANES])"

    @property
    def row_shape(self) -> str:
        """Of one number per row."""
        return "[BLOCK_X, 1]" if self.rows else "[1]"

    @property
    def axis(self) -> int:
        return 1 if self.rows else 0

    def across(self, function: str, text: str) -> str:
        """Join the lanes of a row by ``tl.<function>`` or by one of the helpers."""
        keep = ", keep_dims=True" if self.rows else ""
        if function in HELPERS:
            return f"tl.reduce({text}, {self.axis}, {function}{keep})"
        return f"tl.{function}({text}, axis={self.axis}{keep})"

    def masked(self, text: str, neutral: str, filled: bool = True) -> str:
        """With the neutral element in lanes beyond the row, spread over the tile where it is less."""
        if self.mask:
            return f"tl.where({self.mask}, {text}, {neutral})"
        return f"tl.broadcast_to({text}, {self.shape})" if filled else text


@dataclass(frozen=True)
class Kind:
    """A state: how it starts, takes an element, and is joined."""

    parts: tuple[str, ...]
    """Names of its numbers, as a reader would call them."""
    starts: Callable[[str], tuple[str, ...]]
    """Their values before the first element, for an element type."""
    neutral: Callable[[str], str]
    """The element that changes nothing."""


def _lowest(dtype: str) -> str:
    return 'float("-inf")' if dtype in FLOATING else literal(-(2**63) if dtype == "int64" else -(2**31))


def _highest(dtype: str) -> str:
    return 'float("inf")' if dtype in FLOATING else literal(2**63 - 1 if dtype == "int64" else 2**31 - 1)


def _zero(dtype: str) -> str:
    return "0.0" if dtype in FLOATING else "0"


def _one(dtype: str) -> str:
    return "1.0" if dtype in FLOATING else "1"


KINDS: dict[str, Kind] = {
    "sum": Kind(("total",), lambda d: (_zero(d),), _zero),
    "prod": Kind(("product",), lambda d: (_one(d),), _one),
    "max": Kind(("largest",), lambda d: (_lowest(d),), _lowest),
    "min": Kind(("smallest",), lambda d: (_highest(d),), _highest),
    "any": Kind(("some",), lambda d: ("0",), lambda d: "0"),
    "all": Kind(("every",), lambda d: ("1",), lambda d: "1"),
    "argmax": Kind(("largest", "where_largest"), lambda d: (_lowest(d), "0"), _lowest),
    "argmin": Kind(("smallest", "where_smallest"), lambda d: (_highest(d), "0"), _highest),
    "moments": Kind(("count", "mean", "squares"), lambda d: ("0.0", "0.0", "0.0"), _zero),
    "exponentials": Kind(("largest", "total"), lambda d: (LOWEST, "0.0"), _lowest),
}

FOLDED = frozenset({"sum", "prod", "max", "min", "any", "all"})
"""States of one number each, which joins by one instruction."""


@dataclass(frozen=True)
class Statistic:
    """One gathering of a group: of which value, what kind of state, and which anchor asks for it."""

    node: Node
    kind: str
    power: float | None = None
    """Elements are raised to it by absolute value first: 2 for sums of squares."""
    dtype: str = "float32"
    """What it is gathered in: ``float32``, or integers."""

    @property
    def name(self) -> str:
        return self.node.outputs[0]

    @property
    def stem(self) -> str:
        return self.node.label or str(self.node.get("fn") or self.node.op)

    @property
    def parts(self) -> tuple[str, ...]:
        return KINDS[self.kind].parts

    @property
    def row_parts(self) -> tuple[str, ...]:
        """Those of a whole row's state: how many elements it has is known."""
        return tuple(part for part in self.parts if part != "count")

    @property
    def types(self) -> tuple[str, ...]:
        """Of the state's numbers, as in memory."""
        if self.kind in ("any", "all"):
            return ("int32",)
        return (self.dtype, "int32") if self.kind.startswith("arg") else (self.dtype,) * len(self.parts)

    def element(self, text: str) -> str:
        """What is gathered of an element."""
        if self.kind in ("any", "all"):
            return f"({text} != 0).to(tl.int32)" if not is_literal(text) else repr(int(float(text) != 0))
        if self.power == 2:
            return f"{text} * {text}"
        if self.power is not None:
            if self.power in (1, float("inf")):
                return f"tl.abs({text})"
            return f"libdevice.pow(tl.abs({text}), tl.full({text}.shape, {self.power!r}, tl.float32))"
        if self.dtype not in FLOATING and not is_literal(text):
            return f"{text}.to(tl.{self.dtype})"
        return text

    def folds(self, tile: Tile) -> bool:
        """Whether blocks are joined before they are taken: worth it where joining is one instruction."""
        return tile.folded and self.kind in FOLDED

    def chunked(self, tile: Tile) -> bool:
        return tile.chunked and (self.kind in FOLDED or self.kind == "exponentials")

    @property
    def element_neutral(self) -> str:
        return KINDS[self.kind].neutral(self.dtype)

    # -- the whole row at once -----------------------------------------------------------------------

    def at_once(self, body: LoopBody, tile: Tile, text: str, position: str, length: str) -> tuple[str, ...]:
        """The joined state of a row that is in registers."""
        if self.kind == "moments":
            spread = body.let("v", tile.masked(text, "0.0"))
            mean = body.let("mean", f"{tile.across('sum', spread)} / {length}")
            apart = body.let("apart", tile.masked(f"{text} - {mean}", "0.0"))
            return "", mean, body.let("squares", tile.across("sum", f"{apart} * {apart}"))
        element = tile.masked(self.element(text), self.element_neutral)
        if self.kind == "exponentials":
            largest = body.let("largest", tile.across("max", element))
            shift = (
                body.let("shift", f'tl.where(tl.abs({largest}) == float("inf"), 0.0, {largest})')
                if self.node.op == "reduce"
                else largest
            )
            inside = tile.masked(f"tl.exp({text} - {shift})", "0.0")
            return shift, body.let("total", tile.across("sum", inside))
        if self.kind.startswith("arg"):
            spread = body.let("v", element)
            at = f"tl.broadcast_to({position}, {tile.shape})"
            value, index = body.name("best"), body.name("best_at")
            body.line(f"{value}, {index} = {tile.across(_JOINS[self.kind], f'({spread}, {at})')}")
            return value, index
        return (body.let(self.stem, tile.across(_JOINS[self.kind], element)),)

    # -- block by block ------------------------------------------------------------------------------

    def start(self, body: LoopBody, tile: Tile, position: str) -> tuple[str, ...]:
        """Every lane's state before the loop."""
        names = []
        for part, value, dtype in zip(
            self.parts, KINDS[self.kind].starts(self.dtype), self.types, strict=True
        ):
            if part == "count":
                names.append("")  # known without counting
                continue
            name = body.name(f"{self.stem}_{part}")
            shape = tile.row_shape if self.folds(tile) else tile.shape
            shape = "[LANES]" if self.chunked(tile) else shape
            body.line(f"{name} = tl.full({shape}, {value}, tl.{dtype})")
            names.append(name)
        return tuple(names)

    def take(
        self, body: LoopBody, tile: Tile, state: tuple[str, ...], text: str, position: str, turn: str
    ) -> None:
        """One element per lane. ``turn`` is how many blocks came before."""
        if self.kind == "moments":
            _, mean, squares = state
            apart = body.let("apart", tile.masked(f"{text} - {mean}", "0.0", filled=False))
            body.line(f"{mean} += {apart} * (1.0 / ({turn} + 1))")
            body.line(f"{squares} += {apart} * {tile.masked(f'({text} - {mean})', '0.0', filled=False)}")
            return
        together = self.folds(tile) or self.chunked(tile)
        element = tile.masked(self.element(text), self.element_neutral, filled=together)
        element = tile.chunks(element) if self.chunked(tile) else element
        if together and self.kind in FOLDED:
            element = tile.across(_JOINS[self.kind], element)
        if self.kind == "exponentials":
            largest, total = state
            if together:
                v = body.let("v", element)
                top = body.let("top", f"tl.maximum({largest}, tl.max({v}, axis=0))")
                inside = f"tl.sum(tl.exp({v} - {top}[None, :]), axis=0)"
                body.line(f"{total} = {total} * tl.exp({largest} - {top}) + {inside}")
                body.line(f"{largest} = {top}")
                return
            element = body.let("v", element)
            apart = body.let("apart", f"{element} - {largest}")
            scale = body.let("scale", f"tl.exp(-tl.abs({apart}))")
            body.line(f"{total} = tl.where({apart} > 0.0, {total} * {scale} + 1.0, {total} + {scale})")
            body.line(f"{largest} = tl.maximum({largest}, {element})")
            return
        if self.kind.startswith("arg"):
            value, index = state
            element = body.let("v", element)
            sign = ">" if self.kind == "argmax" else "<"
            better = body.let(
                "better", f"({element} {sign} {value}) | (({element} != {element}) & ({value} == {value}))"
            )
            body.line(f"{index} = tl.where({better}, {position}, {index})")
            body.line(f"{value} = tl.where({better}, {element}, {value})")
            return
        (total,) = state
        form = {
            "sum": "{0} += {1}", "prod": "{0} *= {1}", "any": "{0} |= {1}", "all": "{0} &= {1}",
            "max": "{0} = larger({0}, {1})", "min": "{0} = smaller({0}, {1})",
        }[self.kind]  # fmt: skip
        body.line(form.format(total, element))

    def joined(self, body: LoopBody, tile: Tile, state: tuple[str, ...], count: str) -> tuple[str, ...]:
        """The row's state, from its lanes'. ``count`` says how many elements each lane has met."""
        if self.folds(tile):
            return state
        if self.kind == "moments":
            state = (count, *state[1:])
        if self.kind == "exponentials":
            largest, total = state
            top = body.let("largest", tile.across("max", largest))
            return top, body.let("total", tile.across("sum", f"{total} * tl.exp({largest} - {top})"))
        if len(state) == 1:
            return (body.let(self.stem, tile.across(_JOINS[self.kind], state[0])),)
        names = tuple(body.name(f"row_{part}") for part in self.parts)
        together = ", ".join(state)
        body.line(f"{', '.join(names)} = {tile.across(_JOINS[self.kind], f'({together})')}")
        return names


_JOINS = {
    "sum": "sum", "prod": "multiplied", "max": "larger", "min": "smaller", "any": "max", "all": "min",
    "argmax": "first_largest", "argmin": "first_smallest", "moments": "joined_moments",
}  # fmt: skip


def statistic_of(graph: Graph, node: Node) -> Statistic:
    """What an anchor gathers."""
    dtype = graph.value(str(node.inputs[0])).dtype
    if dtype not in FLOATING:
        dtype = "int64"
    elif dtype != "float64":
        dtype = "float32"
    if node.op == "softmax":
        return Statistic(node, "exponentials")
    if node.op == "norm":
        return Statistic(node, "sum", 2.0) if node["kind"] == "rms" else Statistic(node, "moments")
    fn = node["fn"]
    match fn:
        case "sum" | "mean":
            return Statistic(node, "sum", None, "float32" if fn == "mean" and dtype == "int64" else dtype)
        case "max" | "min" | "prod" | "any" | "all" | "argmax" | "argmin":
            return Statistic(node, fn, None, dtype)
        case "var":
            return Statistic(node, "moments")
        case "logsumexp":
            return Statistic(node, "exponentials")
        case "norm":
            order = float(node.get("order", 2.0) or 2.0)
            return Statistic(node, "max" if order == float("inf") else "sum", order)
    raise Unfit(f"no kernel for the reduction {fn}")


def finished(body: LoopBody, statistic: Statistic, state: tuple[str, ...], length: str) -> str:
    """A reduction's result from the row's state."""
    node = statistic.node
    match node["fn"]:
        case "mean":
            return body.let(statistic.stem, f"{state[0]} / {length}")
        case "var":
            correction = node.get("correction", 1)
            below = length if not correction else f"({length} - {correction})"
            return body.let(statistic.stem, f"{state[2]} / {below}")
        case "logsumexp":
            text = f"{state[0]} + tl.log({state[1]})"
            return body.let(statistic.stem, f'tl.where({state[0]} == float("inf"), {state[0]}, {text})')
        case "norm":
            order = statistic.power
            if order in (1, float("inf")):
                return state[0]
            root = (
                f"tl.sqrt_rn({state[0]})"
                if order == 2
                else f"tl.exp2(tl.log2({state[0]}) * {1.0 / float(order or 1.0)!r})"
            )
            return body.let(statistic.stem, root)
        case "argmax" | "argmin":
            return state[1]
        case "any" | "all":
            return body.let(statistic.stem, f"{state[0]} != 0")
    return state[0]

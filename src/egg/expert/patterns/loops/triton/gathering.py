"""How Triton gathers a statistic along a row, in three manners.

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
from egg.expert.patterns.loops.statistics import FOLDED, Statistic
from egg.expert.patterns.loops.triton.reader import LoopBody

State = tuple[str, ...]
"""The variables of a state."""
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
    """What a state starts from."""

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
    "sum": Kind(lambda d: (_zero(d),), _zero),
    "prod": Kind(lambda d: (_one(d),), _one),
    "max": Kind(lambda d: (_lowest(d),), _lowest),
    "min": Kind(lambda d: (_highest(d),), _highest),
    "any": Kind(lambda d: ("0",), lambda d: "0"),
    "all": Kind(lambda d: ("1",), lambda d: "1"),
    "argmax": Kind(lambda d: (_lowest(d), "0"), _lowest),
    "argmin": Kind(lambda d: (_highest(d), "0"), _highest),
    "moments": Kind(lambda d: ("0.0", "0.0", "0.0"), _zero),
    "exponentials": Kind(lambda d: (LOWEST, "0.0"), _lowest),
}

_JOINS = {
    "sum": "sum", "prod": "multiplied", "max": "larger", "min": "smaller", "any": "max", "all": "min",
    "argmax": "first_largest", "argmin": "first_smallest", "moments": "joined_moments",
}  # fmt: skip


def element_of(statistic: Statistic, text: str) -> str:
    """What is gathered of an element."""
    if statistic.kind in ("any", "all"):
        return f"({text} != 0).to(tl.int32)" if not is_literal(text) else repr(int(float(text) != 0))
    if statistic.power == 2:
        return f"{text} * {text}"
    if statistic.power is not None:
        if statistic.power in (1, float("inf")):
            return f"tl.abs({text})"
        return f"libdevice.pow(tl.abs({text}), tl.full({text}.shape, {statistic.power!r}, tl.float32))"
    if statistic.dtype not in FLOATING and not is_literal(text):
        return f"{text}.to(tl.{statistic.dtype})"
    return text


def folds(statistic: Statistic, tile: Tile) -> bool:
    """Whether blocks are joined before they are taken: worth it where joining is one instruction."""
    return tile.folded and statistic.kind in FOLDED


def chunked(statistic: Statistic, tile: Tile) -> bool:
    return tile.chunked and (statistic.kind in FOLDED or statistic.kind == "exponentials")


def neutral_of(statistic: Statistic) -> str:
    return KINDS[statistic.kind].neutral(statistic.dtype)


# -- the whole row at once -----------------------------------------------------------------------


def at_once(
    statistic: Statistic, body: LoopBody, tile: Tile, text: str, position: str, length: str
) -> tuple[str, ...]:
    """The joined state of a row that is in registers."""
    if statistic.kind == "moments":
        spread = body.let("v", tile.masked(text, "0.0"))
        mean = body.let("mean", f"{tile.across('sum', spread)} / {length}")
        apart = body.let("apart", tile.masked(f"{text} - {mean}", "0.0"))
        return "", mean, body.let("squares", tile.across("sum", f"{apart} * {apart}"))
    element = tile.masked(element_of(statistic, text), neutral_of(statistic))
    if statistic.kind == "exponentials":
        largest = body.let("largest", tile.across("max", element))
        shift = (
            body.let("shift", f'tl.where(tl.abs({largest}) == float("inf"), 0.0, {largest})')
            if statistic.node.op == "reduce"
            else largest
        )
        inside = tile.masked(f"tl.exp({text} - {shift})", "0.0")
        return shift, body.let("total", tile.across("sum", inside))
    if statistic.kind.startswith("arg"):
        spread = body.let("v", element)
        at = f"tl.broadcast_to({position}, {tile.shape})"
        value, index = body.name("best"), body.name("best_at")
        body.line(f"{value}, {index} = {tile.across(_JOINS[statistic.kind], f'({spread}, {at})')}")
        return value, index
    return (body.let(statistic.stem, tile.across(_JOINS[statistic.kind], element)),)


# -- block by block ------------------------------------------------------------------------------


def start(statistic: Statistic, body: LoopBody, tile: Tile, position: str) -> tuple[str, ...]:
    """Every lane's state before the loop."""
    names = []
    for part, value, dtype in zip(
        statistic.parts, KINDS[statistic.kind].starts(statistic.dtype), statistic.types, strict=True
    ):
        if part == "count":
            names.append("")  # known without counting
            continue
        name = body.name(f"{statistic.stem}_{part}")
        shape = tile.row_shape if folds(statistic, tile) else tile.shape
        shape = "[LANES]" if chunked(statistic, tile) else shape
        body.line(f"{name} = tl.full({shape}, {value}, tl.{dtype})")
        names.append(name)
    return tuple(names)


def take(
    statistic: Statistic,
    body: LoopBody,
    tile: Tile,
    state: tuple[str, ...],
    text: str,
    position: str,
    turn: str,
) -> None:
    """One element per lane. ``turn`` is how many blocks came before."""
    if statistic.kind == "moments":
        _, mean, squares = state
        apart = body.let("apart", tile.masked(f"{text} - {mean}", "0.0", filled=False))
        body.line(f"{mean} += {apart} * (1.0 / ({turn} + 1))")
        body.line(f"{squares} += {apart} * {tile.masked(f'({text} - {mean})', '0.0', filled=False)}")
        return
    together = folds(statistic, tile) or chunked(statistic, tile)
    element = tile.masked(element_of(statistic, text), neutral_of(statistic), filled=together)
    element = tile.chunks(element) if chunked(statistic, tile) else element
    if together and statistic.kind in FOLDED:
        element = tile.across(_JOINS[statistic.kind], element)
    if statistic.kind == "exponentials":
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
    if statistic.kind.startswith("arg"):
        value, index = state
        element = body.let("v", element)
        sign = ">" if statistic.kind == "argmax" else "<"
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
    }[statistic.kind]  # fmt: skip
    body.line(form.format(total, element))


def joined(
    statistic: Statistic, body: LoopBody, tile: Tile, state: tuple[str, ...], count: str
) -> tuple[str, ...]:
    """The row's state, from its lanes'. ``count`` says how many elements each lane has met."""
    if folds(statistic, tile):
        return state
    if statistic.kind == "moments":
        state = (count, *state[1:])
    if statistic.kind == "exponentials":
        largest, total = state
        top = body.let("largest", tile.across("max", largest))
        return top, body.let("total", tile.across("sum", f"{total} * tl.exp({largest} - {top})"))
    if len(state) == 1:
        return (body.let(statistic.stem, tile.across(_JOINS[statistic.kind], state[0])),)
    names = tuple(body.name(f"row_{part}") for part in statistic.parts)
    together = ", ".join(state)
    body.line(f"{', '.join(names)} = {tile.across(_JOINS[statistic.kind], f'({together})')}")
    return names


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

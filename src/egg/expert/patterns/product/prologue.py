"""What stands before a product: computed by every tile that reads it, or once, by a pass of its own.

A tile of a 16-bit operand that lies in memory goes from there into shared memory by itself, while the tensor
cores work on the one before. If it must be computed first it passes through registers, and the tensor cores
wait; every column of tiles computes the left operand anew, and every row of tiles the right one. Against that
stands one pass that computes the operand once and writes it in the type that tensor cores take. So both are
priced, and a prologue is refused where the pass is cheaper: the partition leaves it to a pass then.
Pieces of a concatenation along the summed dimension are read as they lie, in a loop each. A pass that joins
them pays where their rows begin at odd places and those of the whole do not.
Operands of fp32 products are not asked about: packing is such a pass already.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from egg.expert.graph import HALF, Node, Value
from egg.expert.parts import Target, Unfit
from egg.expert.patterns.product.follow import crowds
from egg.expert.patterns.product.problem import Problem
from egg.expert.patterns.product.rules import LAUNCH, Tiles, Wants, Way, choose, loaded_by_number
from egg.expert.patterns.product.words import shared_words
from egg.hardware.gpus import Gpu, reference

STREAMED = 0.8
"""Of the bandwidth, as a pass gets it."""
MARGIN = 1.2
"""How many times cheaper passes must promise to be: the host has to launch them, too."""
CHANGED = 4
"""Instructions per element that is not used as it was loaded: to fp32, the mask, and back."""
FURTHER_LOAD = 6
"""The same for another tensor that it is computed from: the address, the load, to fp32."""
BY_NUMBER = 20
"""The same for one that is loaded by itself, since rows begin at odd places: a 65536 x 256 x 63 product takes
25 us on an H200, twice what its bytes take."""
UNPACKED = 80
"""The same, at least, for one that shares a word with others: 16 rows times 11008 x 4096 numbers of four bits
took 182 us on an H200, where a pass that unpacks them and a product of what it stores take 70."""
SIMPLE = frozenset({
    "add", "sub", "mul", "neg", "abs", "relu", "maximum", "minimum", "clamp", "clamp_min", "clamp_max",
    "eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or", "bitwise_and",
    "bitwise_or", "bitwise_xor", "bitwise_not", "bitwise_left_shift", "bitwise_right_shift", "identity",
})  # fmt: skip
INSTRUCTIONS: Mapping[str, int] = {"cast": 2, "round": 2, "floor": 2, "ceil": 2, "trunc": 2}
LONG = 10
"""Instructions of a quotient, an exponential, and whatever else is made of several."""
MOVED = {"cat": 6, "pad": 3, "triangle": 3, "where": 1}
"""The same for operators that choose or move."""


def check(problem: Problem, target: Target) -> None:
    """Refuse a group whose prologue should be a pass of its own. The setting ``fold`` decides otherwise."""
    fold, gpu = target.settings.get("fold"), target.gpu
    if fold or not (made := _made(problem)):
        return
    folded, ready = _ways(problem, gpu)
    if folded.mode == "vector":
        return
    apart = ready.seconds
    for operand in made:
        moved = sum(source.bytes for source in problem.behind(operand)[1]) + operand.bytes
        apart += LAUNCH + moved / (STREAMED * gpu.bandwidth)
        if not problem.computes(operand) and problem.depth.value % 2:
            apart += BY_NUMBER * _met(problem, operand, ready.tiles) / _lanes(gpu)
    if fold is False or ready.seconds + slowed_seconds(problem, gpu) > MARGIN * apart:
        raise Unfit("every tile would compute its operands anew: passes of their own are cheaper")


def slowed_seconds(problem: Problem, gpu: Gpu) -> float:
    """How much longer a product takes because its tiles compute their operands, or read them in pieces."""
    made = _made(problem)
    if not made:
        return 0.0
    folded, ready = _ways(problem, gpu)
    if folded.mode == "vector":
        return 0.0
    pieces = [operand for operand in made if not problem.computes(operand, spans=folded.tiles.split == 1)]
    longer = sum(_loading_seconds(problem, operand, folded.tiles, gpu) for operand in pieces)
    longer += sum(
        _computing_seconds(problem, operand, folded.tiles, gpu) for operand in made if operand not in pieces
    )
    if shared_words(problem) is not None:  # instructions run beside other programs' waits
        return max(folded.seconds, LAUNCH + longer) - ready.seconds
    return folded.seconds - ready.seconds + longer


def _made(problem: Problem) -> list[Value]:
    """16-bit operands that are not one tensor in memory."""
    both = (problem.left, problem.right)
    return [operand for operand in both if operand.dtype in HALF and problem.computes(operand, spans=False)]


def _loading_seconds(problem: Problem, operand: Value, tiles: Tiles, gpu: Gpu) -> float:
    """What all tiles together take to load an operand number by number, where they do."""
    spans = [span for span in problem.spans if loaded_by_number(problem, operand, span, gpu)]
    each = _met(problem, operand, tiles) / problem.depth.value
    return BY_NUMBER * each * sum(span.size.value for span in spans) / _lanes(gpu)


def _ways(problem: Problem, gpu: Gpu) -> tuple[Way, Way]:
    """With its prologue and without, whatever is set. What follows decides whether a product of pieces is one
    of many parts, which read the pieces in one loop."""
    crowded = len(problem.spans) > 1 and crowds(problem)
    ways = (choose(problem, Target(gpu), Wants(ready=ready, crowded=crowded)) for ready in (False, True))
    return next(ways), next(ways)


def _computing_seconds(problem: Problem, operand: Value, tiles: Tiles, gpu: Gpu) -> float:
    """What all tiles together take to compute an operand on the way; what is small beside it costs as much
    less, since it is computed in its own shape."""
    nodes, sources = problem.behind(operand)
    whole = operand.elements.value
    words = None if operand is problem.left else shared_words(problem)
    each = CHANGED + FURTHER_LOAD * (len(sources) - 1) / (words.each if words is not None else 1)
    each += BY_NUMBER * sum(min(1.0, source.elements.value / whole) for source in sources if _odd(source))
    each += sum(
        _instructions(node) * min(1.0, problem.graph.result(node).elements.value / whole) for node in nodes
    )
    each = max(each, UNPACKED) if words is not None else each
    return each * _met(problem, operand, tiles) / _lanes(gpu)


def _odd(source: Value) -> bool:
    """Whether rows of 16-bit numbers begin at odd places."""
    return source.dtype in HALF and source.rank > 1 and source.stride[-2].value % 2 == 1


def _met(problem: Problem, operand: Value, tiles: Tiles) -> int:
    """How many elements of an operand all tiles together read."""
    rows, columns = problem.rows.value, problem.columns.value
    again = rows * ceil(columns / tiles.n) if operand is problem.left else columns * ceil(rows / tiles.m)
    return problem.batch.value * problem.depth.value * again


def _lanes(gpu: Gpu) -> float:
    """Instructions per second between steps of the tensor cores."""
    ordinary = reference().vector["fp32"]
    seen = reference().attained["lanes between tensor steps"]
    return seen * gpu.vector.get("fp32", ordinary) / ordinary


def _instructions(node: Node) -> int:
    """Per element of its result."""
    if node.op != "pointwise":
        return MOVED.get(node.op, 0)
    return 1 if node["fn"] in SIMPLE else INSTRUCTIONS.get(node["fn"], LONG)

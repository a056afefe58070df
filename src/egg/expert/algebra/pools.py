"""Pools over large windows, one dimension after the other.

A window is a rectangle, also where the borders of the operand cut it, so a sum or an extreme over it is one
over its columns of those over its rows. Where windows overlap, rows have many windows in common: a box filter
of 17 by 17 reads 34 elements for each of its results instead of 289. What lies between is written and read
once, as fp32: a sum of 16-bit numbers is rounded once, as before.

An average of averages is the average: how many elements of a window count (with or without padding) is the
number of its rows times that of its columns. A divisor that is given is left to the last pool, behind sums.
"""

from __future__ import annotations

from dataclasses import replace

from egg.expert.algebra.rewrite import Draft, Rewrite, Rule
from egg.expert.cost import LAUNCH
from egg.expert.graph import BYTES, FLOATS, HALF, Graph, Node, Value
from egg.expert.parts import Unfit
from egg.expert.sizes import Size, product
from egg.expert.window import Window, window_of

READ_AGAIN = 1.9e12
"""Elements per second that windows read again from caches: windows of 17 by 17 on an H200."""
MOVED = 4e12
"""Bytes per second of what is stored and read again in between."""
WALKED = 32
"""Taps of a window up to which a pass down rows keeps what the next result reads again."""


def by_dimensions(graph: Graph, node: Node) -> Rewrite | None:
    """A pool along one dimension and one along the others behind it, where an estimate says that it pays."""
    if node.op != "pool" or node["fn"] not in ("max", "avg") or node.get("adaptive"):
        return None
    x, made = graph.value(str(node.inputs[0])), graph.result(node)
    try:
        window = window_of(graph, node)
    except Unfit:
        return None
    if x.dtype not in FLOATS or window.taps <= WALKED or sum(size > 1 for size in window.kernel) < 2:
        return None
    axes = [axis for axis in range(window.rank) if window.kernel[axis] > 1]
    axis = min(axes, key=lambda axis: (_reads(x, made, window, axis), -axis))
    return _apart(graph, node, window, axis) if _pays(x, made, window, axis) else None


def _between(x: Value, made: Value, window: Window, axis: int) -> tuple[Size, ...]:
    """The shape behind a pool along one dimension alone."""
    at = x.rank - window.rank + axis
    return (*x.shape[:at], made.shape[at], *x.shape[at + 1 :])


def _reads(x: Value, made: Value, window: Window, axis: int) -> int:
    """Elements that both pools read."""
    kernel = window.kernel[axis]
    between = product(_between(x, made, window, axis)).value
    return between * kernel + made.elements.value * (window.taps // kernel)


def _pays(x: Value, made: Value, window: Window, axis: int) -> bool:
    """Whether fewer reads save more time than storing what lies between, and another launch, take."""
    fewer = made.elements.value * window.taps - _reads(x, made, window, axis)
    moved = 2 * BYTES["float32"] * product(_between(x, made, window, axis)).value
    return fewer / READ_AGAIN > moved / MOVED + LAUNCH


def _apart(graph: Graph, node: Node, window: Window, axis: int) -> Rewrite:
    x, made = graph.value(str(node.inputs[0])), graph.result(node)
    draft, source = Draft(graph, node), x.name
    wide = x.dtype in HALF and node["fn"] == "avg"
    dtype = "float32" if wide else x.dtype
    if wide:
        source = draft.add("pointwise", [source], x.shape, "wide", dtype, fn="cast", scalars=())
    one, others = _along(node, window, {axis}), _along(node, window, {*range(window.rank)} - {axis})
    if node.get("divisor"):
        one = {**one, "divisor": 1}
    source = draft.add("pool", [source], _between(x, made, window, axis), "along", dtype, **one)
    source = draft.add("pool", [source], made.shape, "pool", dtype, **others)
    if wide:
        draft.add("pointwise", [source], made.shape, "narrow", made.dtype, fn="cast", scalars=())
    return draft.done()


def _along(node: Node, window: Window, axes: set[int]) -> dict[str, object]:
    """A pool's attributes, with single elements along the dimensions that are no ``axes``."""

    def only(numbers: tuple[int, ...], neutral: int) -> tuple[int, ...]:
        return tuple(number if axis in axes else neutral for axis, number in enumerate(numbers))

    kept = replace(
        window, kernel=only(window.kernel, 1), stride=only(window.stride, 1),
        padding=only(window.padding, 0), dilation=only(window.dilation, 1),
    )  # fmt: skip
    return {
        **node.attributes, "kernel": kept.kernel, "stride": kept.stride, "padding": kept.padding,
        "dilation": kept.dilation,
    }  # fmt: skip


RULES: tuple[Rule, ...] = (by_dimensions,)

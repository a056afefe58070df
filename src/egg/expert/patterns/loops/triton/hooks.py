"""Reading what an anchor made: a reduction's result, an element of a softmax, a norm, a scan, a selection.

Once a row's state is known, a softmax or a norm is pointwise: its operand is read again (from registers,
where the row is still there) and put through a formula. A scan's element exists only in the pass that goes
by it, so it can be read at the tile's own positions and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable

from egg.expert.emit.triton.scalar import FLOATING
from egg.expert.graph import Node
from egg.expert.index import Expr, Index
from egg.expert.parts import Unfit
from egg.expert.patterns.loops.domain import Split, taken_of
from egg.expert.patterns.loops.statistics import Statistic
from egg.expert.patterns.loops.triton.gathering import finished
from egg.expert.patterns.loops.triton.selecting import one_of
from egg.expert.patterns.loops.triton.state import State
from egg.expert.sizes import ONE

Hook = Callable[[Index, tuple[str, ...]], str]

SCANS: dict[str, tuple[str, str, str]] = {
    "sum": ("tl.cumsum({v}, axis={axis}{reverse})", "{a} + {b}", "sum"),
    "prod": ("tl.cumprod({v}, axis={axis}{reverse})", "{a} * {b}", "multiplied"),
    "max": ("tl.associative_scan({v}, {axis}, larger{reverse})", "larger({a}, {b})", "larger"),
    "min": ("tl.associative_scan({v}, {axis}, smaller{reverse})", "smaller({a}, {b})", "smaller"),
    "logcumsumexp": (
        "tl.associative_scan({v}, {axis}, added_exponentials{reverse})",
        "added_exponentials({a}, {b})",
        "added_exponentials",
    ),
}
"""The scan within a block, how it is joined with what came before, and the block's own total."""


def hook_of(kernel: State, anchor: str, which: int = 0) -> Hook:
    """How to read a result of ``anchor`` in a kernel; a batch norm's second and third are statistics."""
    node, split = kernel.work.nodes[anchor], kernel.work.anchors.splits[anchor]
    if node.op == "selection":
        return lambda index, guards: _selected(kernel, node, split, which, index)
    if which:
        return lambda index, guards: _running(kernel, node, split, which, index)
    if node.op == "scan":
        return lambda index, guards: _scanned(kernel, node, split, index, guards)
    if node.op == "reduce":
        return lambda index, guards: _reduced(kernel, node, split, index)
    return lambda index, guards: _mapped(kernel, node, split, index, guards)


def _state(kernel: State, node: Node) -> tuple[str, ...]:
    state = kernel.states.get(node.outputs[0])
    if state is None:
        raise Unfit(f"{node.label or node.op} is needed before its row has been gathered")
    return state


def _result(kernel: State, node: Node, make: Callable[[Statistic], str]) -> str:
    """Something computed once per row, in front of any loop."""
    name = node.outputs[0]
    if name not in kernel.results:
        statistic = kernel.work.statistics[name]
        if kernel.body.looping:
            with kernel.body.in_front():
                kernel.results[name] = make(statistic)
        else:
            kernel.results[name] = make(statistic)
    return kernel.results[name]


def _reduced(kernel: State, node: Node, split: Split, index: Index) -> str:
    kept = index
    if len(index) == len(split.shape):
        kept = tuple(index[dim] for dim in split.kept_dims)
    spread = dict(zip(split.kept_dims, kept, strict=True))
    whole = tuple(spread.get(dim, Expr()) for dim in range(len(split.shape)))
    if not kernel.work.domain_of(node.outputs[0]).holds(split, whole):
        raise Unfit(f"{node.label or node['fn']} is read at other rows than those of its program")
    state = _state(kernel, node)
    return _result(kernel, node, lambda s: finished(kernel.body, s, state, kernel.length_of(s.name)))


def _mapped(kernel: State, node: Node, split: Split, index: Index, guards: tuple[str, ...]) -> str:
    if not kernel.work.domain_of(node.outputs[0]).holds(split, index):
        raise Unfit(f"{node.label or node.op} is read at other rows than those of its program")
    state = _state(kernel, node)
    x = kernel.reader.read(str(node.inputs[0]), index, guards)
    if node.op == "softmax":
        largest, total = state
        if node.get("log"):
            rest = _result(kernel, node, lambda s: kernel.body.let("log_total", f"tl.log({total})"))
            return kernel.body.let(node.label or "log_softmax", f"({x} - {largest}) - {rest}")
        share = _result(kernel, node, lambda s: kernel.body.let("share", f"1.0 / {total}"))
        return kernel.body.let(node.label or "softmax", f"tl.exp({x} - {largest}) * {share}")
    return _normed(kernel, node, index, guards, x, state)


def _normed(
    kernel: State, node: Node, index: Index, guards: tuple[str, ...], x: str, state: tuple[str, ...]
) -> str:
    squares = state[0] if node["kind"] == "rms" else state[2]
    length = kernel.length_of(node.outputs[0])
    scale = _result(kernel, node, lambda s: kernel.body.let("scale", scale_text(node, squares, length)))
    return normalised(kernel, node, index, guards, x, "" if node["kind"] == "rms" else state[1], scale)


def scale_text(node: Node, squares: str, length: str) -> str:
    """What a norm multiplies by: one over the root of a row's mean square."""
    eps = node.get("eps")
    eps = 1.1920928955078125e-07 if eps is None else float(eps)
    return f"tl.rsqrt({squares} / {length} + {eps!r})"


def normalised(
    kernel: State, node: Node, index: Index, guards: tuple[str, ...], x: str, mean: str, scale: str
) -> str:
    """An element of a norm, from its operand and its row's numbers; without a mean for ``rms``."""
    text = f"({x} - {mean}) * {scale}" if mean else f"{x} * {scale}"
    weight, bias = (*node.inputs[1:3], None, None)[:2]
    if weight is not None:
        text += f" * {_parameter(kernel, node, weight, index, guards)}"
    if bias is not None:
        text += f" + {_parameter(kernel, node, bias, index, guards)}"
    return kernel.body.let(node.label or f"{node['kind']}_norm", text)


def _running(kernel: State, node: Node, split: Split, which: int, index: Index) -> str:
    """A batch norm's new running mean (1) or variance (2); the latter unbiased, as PyTorch keeps it."""
    if index != kernel.work.domain.kept_in(split):
        raise Unfit("running statistics are read at other channels than those of the program")
    state, momentum = _state(kernel, node), node["momentum"]
    if momentum is None:
        raise Unfit("running statistics as plain averages")
    old = kernel.reader.read(str(node.inputs[2 + which]), index)
    new = state[1] if which == 1 else f"{state[2]} / ({kernel.length_of(node.outputs[0])} - 1)"
    name = "running_mean" if which == 1 else "running_variance"
    return kernel.body.let(name, f"{old} + {float(momentum)!r} * ({new} - {old})")


def _parameter(kernel: State, node: Node, name: str, index: Index, guards: tuple[str, ...]) -> str:
    if node["kind"] in ("layer", "rms"):
        rank = kernel.work.graph.value(name).rank
        return kernel.reader.read(name, index[len(index) - rank :], guards)
    return kernel.reader.read(name, (index[1],), guards)


def _selected(kernel: State, node: Node, split: Split, which: int, index: Index) -> str:
    """All that was taken, as it lies in registers, or what is at one place of it."""
    values, places = _state(kernel, node)
    text, dim, domain = (values, places)[which], node["dim"], kernel.work.domain
    taken = taken_of(kernel.work.graph, node, split) or split
    own = domain.chosen if domain.chosen is not None else domain
    if not own.holds(taken, index):
        raise Unfit(f"{node.label or node.op} is read at other rows than those of its program")
    if index == own.index(taken):
        return text
    if not kernel.reader.is_of_row(index[dim], own.names[1]):
        raise Unfit(f"{node.label or node.op} is read in another order than it was taken in")
    tile = kernel.taken_tile
    return one_of(tile, kernel.body, text, f"({index[dim]})", own.names[2], node.label or node.op)


def _scanned(kernel: State, node: Node, split: Split, index: Index, guards: tuple[str, ...]) -> str:
    """The running total: within the block by a scan, before it by a carry."""
    domain, body, reader, fn = kernel.work.domain_of(node.output), kernel.body, kernel.reader, node["fn"]
    own = domain.index(split)
    if index != own:
        raise Unfit(f"{node.label or 'scan'} is read at other positions than those of its pass")
    if fn == "decayed":
        return _decayed(kernel, node, own, guards)
    if fn not in SCANS:
        raise Unfit(f"no kernel for the scan {fn}")
    dtype = kernel.work.graph.value(str(node.inputs[0])).dtype
    whole = dtype not in FLOATING
    reverse = bool(node.get("reverse"))
    neutral = {"sum": "0", "prod": "1", "max": f"-{2**63}", "min": f"{2**63 - 1}"} if whole else {
        "sum": "0.0", "prod": "1.0", "max": 'float("-inf")', "min": 'float("inf")',
    }  # fmt: skip
    start = neutral.get(fn, 'float("-inf")')
    source, at, inside = str(node.inputs[0]), own, ()
    if domain.reduced_size == ONE:  # nothing to add up
        return start if node.get("exclusive") else reader.read(source, own, guards)
    if node.get("exclusive"):  # up to but without an element: the scan of the operand moved by one place
        (dim,) = split.reduced_dims
        moved = own[dim] + 1 if reverse else own[dim] - 1
        inside = (f"({moved} < {split.shape[dim]})",) if reverse else (f"({moved} >= 0)",)
        at = (*own[:dim], moved, *own[dim + 1 :])
    x = reader.read(source, at, (*guards, *inside))
    x = f"{x}.to(tl.int64)" if whole else x
    tile = kernel.tile_of(node.output)
    within = " & ".join((*((tile.mask,) if tile.mask else ()), *inside))
    text = f"tl.where({within}, {x}, {start})" if within else f"tl.broadcast_to({x}, {tile.shape})"
    v = body.let("v", f"{text}.to(tl.float64)" if node.get("exact") else text)
    return _carried(kernel, node, v, start, reverse, whole)


def _carried(kernel: State, node: Node, v: str, start: str, reverse: bool, whole: bool) -> str:
    body, tile = kernel.body, kernel.tile_of(node.output)
    scan, join, total = SCANS[node["fn"]]
    text = scan.format(v=v, axis=tile.axis, reverse=", reverse=True" if reverse else "")
    rounded = ".to(tl.float32)" if node.get("exact") else ""
    if not body.looping:
        return body.let(node.label or f"running_{node['fn']}", f"{text}{rounded}")
    inside = body.let(node.label or f"running_{node['fn']}", text)
    carry = body.name("carry")
    with body.in_front():
        kind = "int64" if whole else "float64" if rounded else "float32"
        body.line(f"{carry} = tl.full({tile.row_shape}, {start}, tl.{kind})")
        if node.output in kernel.before:
            body.line(f"{carry} = {join.format(a=carry, b=kernel.before[node.output])}")
    after = body.let(node.label or f"running_{node['fn']}", join.format(a=carry, b=inside))
    if total == "sum":
        block = f"tl.sum({v}, axis={tile.axis}, keep_dims=True)"
    else:
        block = f"tl.reduce({v}, {tile.axis}, {total}, keep_dims=True)"
    body.line(f"{carry} = {join.format(a=carry, b=block)}")
    return f"{after}{rounded}"


def _decayed(kernel: State, node: Node, own: Index, guards: tuple[str, ...]) -> str:
    """A total of which each place keeps a part and adds to it; lanes beyond the row keep all and add nothing.

    The last lane of a block therefore has the total that the next block goes on from.
    """
    body, tile = kernel.body, kernel.tile_of(node.output)
    taken, decay = (kernel.reader.read(str(name), own, guards) for name in node.inputs)
    if kernel.work.domain_of(node.output).reduced_size == ONE:
        return taken
    within = f"tl.where({tile.mask}, {{}}, {{}})" if tile.mask else f"tl.broadcast_to({{}}, {tile.shape})"
    v, d = body.let("taken", within.format(taken, "0.0")), body.let("decay", within.format(decay, "1.0"))
    left, total = body.name("left"), body.name(node.label or "total")
    body.line(f"{left}, {total} = tl.associative_scan(({d}, {v}), {tile.axis}, followed)")
    if not body.looping:
        return total
    carry = body.name("carry")
    with body.in_front():
        body.line(f"{carry} = tl.full({tile.row_shape}, 0.0, tl.float32)")
    after = body.let(node.label or "total", f"{total} + {left} * {carry}")
    last = f"tl.where(lane == {tile.width} - 1, {after}, 0.0)"
    body.line(f"{carry} = tl.sum({last}, axis={tile.axis}, keep_dims=True)")
    return after

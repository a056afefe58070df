"""The kernel that applies states of rows in another order than that of the rows
(:mod:`egg.expert.patterns.loops.applying`)."""

from __future__ import annotations

from egg.expert.index import Expr, Index, flat
from egg.expert.patterns.loops.statistics import Statistic
from egg.expert.patterns.loops.triton.hooks import Hook, normalised, scale_text
from egg.expert.patterns.loops.triton.writer import Writer, row_name
from egg.expert.patterns.loops.work import Plan, Work


def applied(work: Work, over: Work, plan: Plan) -> Writer:
    """``work``: the group by rows; ``over``: in the other order, with ``plan`` for its tiles."""
    kernel = Writer(over, plan, f"{work.group.name}_apply_kernel", "blocks")
    for name, statistic in work.statistics.items():
        kernel.reader.hooks[name] = _hook(kernel, work, statistic)
    for name in over.writes:
        kernel.store(name)
    return kernel


def _hook(kernel: Writer, work: Work, statistic: Statistic) -> Hook:
    """How an element of a norm is read: with the state of its row, as the kernel before left it."""
    node, split = statistic.node, work.anchors.splits[statistic.name]
    length = work.domain.reduced_size.code()
    known: dict[Expr, tuple[str, str]] = {}

    def hook(index: Index, guards: tuple[str, ...]) -> str:
        row = flat(split.kept_of(index), split.kept)
        if row not in known:
            state = {part: _recalled(kernel, statistic, part, row) for part in statistic.row_parts}
            squares = state.get("squares", state.get("total", ""))
            scale = scale_text(node, squares, f"({length})" if " " in length else length)
            known[row] = state.get("mean", ""), kernel.body.let("scale", scale)
        x = kernel.reader.read(str(node.inputs[0]), index, guards)
        return normalised(kernel, node, index, guards, x, *known[row])

    return hook


def _recalled(kernel: Writer, statistic: Statistic, part: str, row: Expr) -> str:
    tensor = row_name(statistic, part)
    pointer = kernel.parts.get(tensor) or kernel.body.name(f"{tensor}_ptr")
    kernel.parts[tensor] = pointer
    masks = [kernel.masks[symbol] for symbol in sorted(row.symbols()) if symbol in kernel.masks]
    mask = f", mask={' & '.join(masks)}, other=0" if masks else ""
    where = f"{pointer} + {row}" if row.terms else pointer
    return kernel.body.let(f"{statistic.stem}_{part}", f"tl.load({where}{mask})")

"""Groups that pass over memory, written as loops over a tile [kept, reduced]: pointwise work, reductions,
softmax, norms, pooling, gathers and scans, in any mixture that one pass over the same rows can do.

A kernel is written from its results backwards (:mod:`egg.expert.emit.reader`). What needs a whole row at once
comes first: resident rows are gathered from registers, long ones in as many passes as gatherings depend on
each other, shared ones by partial states and another kernel. See ``loops_domain`` for what is iterated
over, ``loops_statistics`` for what is gathered, ``loops_tiles`` for the choice of sizes and modes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from egg.expert.algebra.overwritten import IN_PLACE
from egg.expert.emit.code import Code
from egg.expert.emit.names import read_by
from egg.expert.emit.spelling import begun, number_text
from egg.expert.emit.triton.scalar import cheap
from egg.expert.emit.triton.types import FLOAT8
from egg.expert.graph import Graph, Node, Origin
from egg.expert.parts import Group, Part, Target, Unfit, spelled, within_reach
from egg.expert.patterns.loops.applying import applying_plans, other_order
from egg.expert.patterns.loops.domain import anchored, domain_of
from egg.expert.patterns.loops.pointwise import only_views, pointwise_domain
from egg.expert.patterns.loops.tiles import MOST_SPLITS, constants_of, plan_of
from egg.expert.patterns.loops.triton.applying import applied
from egg.expert.patterns.loops.triton.selecting import check as check_order
from egg.expert.patterns.loops.triton.splitting import left_by, split
from egg.expert.patterns.loops.triton.strips import strips_of
from egg.expert.patterns.loops.triton.writer import Writer, part_name, row_name
from egg.expert.patterns.loops.work import Plan, Work, stored
from egg.expert.sizes import ONE, Size
from egg.expert.window import reads_each
from egg.hardware.gpus import Gpu

OPS = frozenset(
    {"pointwise", "where", "view", "cat", "pad", "constant", "triangle", "reduce", "softmax", "norm", "pool",
     "resample", "gather", "scan", "selection", "update", "scatter"}
)  # fmt: skip

MOST_PIECES = 16
"""Tensors that a group joins, at most."""
MOST_READS = {"pool": 1.0, "resample": 2.0}
"""How often special functions of an element may be computed, on average, for what reads neighbours of it."""
KEPT = frozenset({"pool", "resample", "softmax", "norm", "scan"})
"""What is not computed again for each reader."""


def write(graph: Graph, group: Group, target: Target) -> Part:
    """The group as one kernel, or as two or more where rows are shared."""
    graph, group = _plain(graph, group)
    _check(graph, group)
    moved = (*group.reads(graph), *group.writes(graph))
    if not _has_float8(target.gpu) and any(graph.value(name).dtype in FLOAT8 for name in moved):
        raise Unfit(f"{target.gpu.name} does not convert 8-bit floats")
    if only_views(graph, group):
        raise Unfit("a view of what is in memory costs nothing outside of kernels")
    anchors = anchored(graph, group.nodes)
    if not anchors.splits and (strips := strips_of(graph, group, target)):
        work, plan, kernel = strips
        return _part(work, plan, [kernel])
    scattered = any(node.op == "scatter" for node in group.nodes)
    domain = (
        domain_of(anchors.first, scattered, anchors.chosen)
        if anchors.splits
        else pointwise_domain(graph, group)
    )
    work = Work(graph, group, domain, anchors)
    plan = plan_of(work, target)
    over = other_order(work, plan, target)
    if over is not None:
        plan, tiles = applying_plans(work, over, target)
        kernels = [*split(work, plan)[:-1], applied(work, over, tiles)]
    elif plan.mode == "split":
        kernels = split(work, plan)
    elif plan.mode == "pointwise":
        kernels = [_pointwise(work, plan)]
    else:
        kernels = [_in_one(work, plan)]
    return _part(work, plan, kernels)


def _has_float8(gpu: Gpu) -> bool:
    return gpu.vendor == "nvidia" and "fp8" in gpu.tensor


def _plain(graph: Graph, group: Group) -> tuple[Graph, Group]:
    """With nodes in the place of those that are easier to write as others."""
    changed = {id(node): new for node in group.nodes if (new := _plainer(graph, node)) is not node}
    if not changed:
        return graph, group
    nodes = tuple(changed.get(id(node), node) for node in graph.nodes)
    return graph.rebuilt(nodes), replace(group, nodes=tuple(changed.get(id(n), n) for n in group.nodes))


def _plainer(graph: Graph, node: Node) -> Node:
    """An adaptive pool down to one place is a reduction."""
    if (
        node.op == "pool"
        and node.get("adaptive")
        and all(size == 1 or size == ONE for size in node["kernel"])
    ):
        rank, spatial = graph.result(node).rank, len(node["kernel"])
        fn = {"avg": "mean", "max": "max"}.get(node["fn"])
        if fn is not None:
            attributes = {"fn": fn, "dims": tuple(range(rank - spatial, rank)), "keepdim": True}
            return replace(node, op="reduce", attributes=attributes)
    return node


def _check(graph: Graph, group: Group) -> None:
    producers = {name: node for node in group.nodes for name in node.outputs}
    if sum(len(node.inputs) for node in group.nodes if node.op == "cat") > MOST_PIECES:
        raise Unfit("too many pieces are joined: every element would ask each of them")
    for node in group.nodes:
        if node.op not in OPS:
            raise Unfit(f"{node.op} is no part of a loop")
        if len(node.outputs) != 1 and node.op not in ("norm", "update", "selection"):
            raise Unfit(f"{node.label or node.op} has several results")
        for name in node.outputs:
            value = graph.value(name)
            if value.dtype.startswith("complex") or value.dtype == "float64":
                raise Unfit(f"{name} is {value.dtype}")
        if node.op == "selection":
            check_order(graph, node)
        if reads_each(graph, node) > MOST_READS.get(node.op, 1.0):
            before = _before(producers, str(node.inputs[0]))
            if any(n.op in KEPT or _is_special(n, node) for n in before):
                raise Unfit("windows overlap, and what they read is worth computing once only")
        if (
            node.op == "update"
            and not node.get(IN_PLACE)
            and _maker(producers, str(node.inputs[1])) == "scatter"
        ):
            raise Unfit("a buffer gets what all programs add up: it is not there before the last has ended")
    if not stored(graph, group):
        raise Unfit("nothing of the group is needed")
    for name in group.writes(graph):
        value = graph.value(name)
        if any(
            stride.number == 0 and size != ONE for stride, size in zip(value.stride, value.shape, strict=True)
        ):
            raise Unfit(f"{name} has elements that share memory")


def _is_special(node: Node, reader: Node) -> bool:
    """Whether a function takes longer than reading its result again. A resize reads a few neighbours: there
    a division by a number (bytes to fractions) still is arithmetic."""
    if node.op != "pointwise" or cheap(node["fn"]):
        return False
    return reader.op == "pool" or node["fn"] != "div" or len(node.inputs) > 1


def _maker(producers: dict[str, Node], name: str) -> str:
    return producers[name].op if name in producers else ""


def _before(producers: dict[str, Node], name: str) -> Iterable[Node]:
    waiting, met = [name], dict[int, Node]()
    while waiting:
        node = producers.get(waiting.pop())
        if node is not None and id(node) not in met:
            met[id(node)] = node
            waiting += [n for n in node.inputs if n is not None]
    return met.values()


# -- kernels --------------------------------------------------------------------------------------


def _pointwise(work: Work, plan: Plan) -> Writer:
    kernel = Writer(work, plan, f"{work.group.name}_kernel", "blocks")
    kernel.load_kept()
    kernel.store_all(work.writes)
    return kernel


def _in_one(work: Work, plan: Plan) -> Writer:
    """Gather level by level, then store; what can be stored during a gathering pass is."""
    resident = plan.mode == "resident"
    kernel = Writer(work, plan, f"{work.group.name}_kernel", "whole" if resident else "looped")
    full = [name for name in work.writes if work.is_full(name)]
    for level in range(1, work.depth + 1):
        if resident:
            kernel.at_once(work.gathered(level))
        else:
            ready = [name for name in full if work.level(name) == level - 1]
            kernel.looped(work.gathered(level), ready)
            full = [name for name in full if name not in ready]
    if resident:
        kernel.store_all(work.writes)
        return kernel
    for name in work.writes:
        if not work.is_full(name):
            kernel.store(name)
    if full:
        kernel.looped([], full)
    return kernel


# -- the part -------------------------------------------------------------------------------------


def _part(work: Work, plan: Plan, writers: list[Writer]) -> Part:
    rowwise = [writer for writer in writers if writer.work is work]
    used = {name for writer in rowwise if writer.form not in ("none", "apply") for name in writer.constants()}
    used |= {"TILE_R"} if len(rowwise) < len(writers) else set()
    used |= {"APPLY_R" for writer in writers if writer.form == "apply"}
    used |= {"FINISH_X" for writer in writers if writer.form == "none" and "BLOCK_X" in writer.constants()}
    constants = constants_of(work, plan, used)
    prefix = work.group.name.upper()
    names = {c: f"{prefix}_{c}" for c in ("BLOCK_X", "BLOCK_R", "SPLITS")}
    names["LANES"] = f"min({names['BLOCK_R']}, {plan.lanes} * {prefix}_NUM_WARPS)"
    if plan.mode == "resident":
        names["BLOCK_R"] = f"triton.next_power_of_2({work.domain.reduced_size.code()})"
    if work.domain.chosen is not None:
        names["PICKS"] = f"triton.next_power_of_2({work.domain.chosen.reduced_size.code()})"
    call: list[str] = []
    if plan.splits > MOST_SPLITS:  # no more than there are blocks, at sizes that are not as long
        blocks = f"triton.cdiv({work.domain.reduced_size.code()}, {names['BLOCK_R']})"
        shares = f"{work.group.name}_splits"
        call.append(f"{shares} = min({names['SPLITS']}, triton.next_power_of_2({blocks}))")
        names["SPLITS"] = shares
    call += _allocations(work, writers, names)
    code = Code(call=call)
    for writer in writers:
        code.define(writer.helpers())
    for writer in writers:
        joining = {**names, "BLOCK_X": f"{prefix}_FINISH_X"} if writer.form == "none" else names
        joining = {**names, "BLOCK_R": f"{prefix}_APPLY_R"} if writer.form == "apply" else joining
        if writer.work is not work:
            joining = {**names, "BLOCK_X": f"{prefix}_TILE_X", "BLOCK_R": f"{prefix}_TILE_R"}
        kernel = writer.finished(_docstring(work, plan, writer), joining)
        code.launch(kernel, f"({writer.grid(joining)},)", {"num_warps": f"{prefix}_NUM_WARPS"})
    read = read_by(code.call)
    sizes = [name for name in work.sizes if name in read]
    counts = () if work.far else within_reach(work.counts)
    return code.part(constants, _summary(work, plan), sizes=sizes, counts=counts)


def _allocations(work: Work, writers: list[Writer], names: dict[str, str]) -> list[str]:
    device = _device(work)
    call: list[str] = []
    call += [_beginning(work, name, device) for name in work.scatters]
    for name in work.group.allocates(work.graph):
        if name in work.scatters:
            continue
        value = work.graph.value(name)
        shape = _tuple(value.shape)
        if value.contiguous:
            call.append(f"{name} = torch.empty({shape}, device={device}, dtype=torch.{value.dtype})")
        else:
            stride = _tuple(value.stride)
            call.append(
                f"{name} = torch.empty_strided({shape}, {stride}, device={device}, dtype=torch.{value.dtype})"
            )
    parts: dict[str, str] = {}
    for statistic in left_by(work) if any(writer.parts for writer in writers) else ():
        for part, dtype in zip(statistic.parts, statistic.types, strict=True):
            parts[part_name(statistic, part)] = dtype
    rows = (work.domain.outer_size * work.domain.kept_size).code()
    shape = f"{rows}, {names['SPLITS']}"
    if work.domain.names[1] == "col":
        shape = f"{names['SPLITS']}, {rows}"
    for tensor, dtype in parts.items():
        call.append(f"{tensor} = torch.empty(({shape}), device={device}, dtype=torch.{dtype})")
    applies = any(writer.form == "apply" or writer.work is not work for writer in writers)
    for statistic in work.statistics.values() if applies else ():
        for part, dtype in zip(statistic.parts, statistic.types, strict=True):
            if part in statistic.row_parts:
                made = f"torch.empty(({rows},), device={device}, dtype=torch.{dtype})"
                call.append(f"{row_name(statistic, part)} = {made}")
    return call


def _beginning(work: Work, name: str, device: str) -> str:
    """The line that makes a scatter's result as it is before any element has joined it."""
    value, node = work.graph.value(name), work.scatters[name]
    if len(node.inputs) > 2:
        return f"{name} = {begun(work.graph, node)}"
    number = node["fill"]
    kind, fill = f"device={device}, dtype=torch.{value.dtype}", number_text(number)
    if value.lent:
        return f"{name}.fill_({fill})"
    if not value.contiguous:
        room = f"torch.empty_strided({_tuple(value.shape)}, {_tuple(value.stride)}, {kind})"
        return f"{name} = {room}.fill_({fill})"
    made = "torch.zeros({}, {})" if number == 0 else f"torch.full({{}}, {fill}, {{}})"
    return f"{name} = {made.format(_tuple(value.shape), kind)}"


def _tuple(sizes: tuple[Size, ...]) -> str:
    texts = [size.code() for size in sizes]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _device(work: Work) -> str:
    """That of something the group reads: where its lines become a function, that has no other tensors."""
    reads = list(work.group.reads(work.graph))
    reads.sort(key=lambda name: work.graph.value(name).origin is Origin.PARAMETER)
    names = reads or [name for name in work.graph.arguments if name is not None]
    if not names:
        raise Unfit("nothing says which device the result is on")
    return f"{spelled(work.graph, names[0])}.device"


def _docstring(work: Work, plan: Plan, kernel: Writer) -> str:
    return f"{_what(work)}: {_why(work, plan, kernel)}."


def _what(work: Work) -> str:
    words = [_word(node) for node in work.group.nodes if node.op not in ("view", "constant", "update")]
    words = list(dict.fromkeys(words)) or ["copy"]
    text = ", ".join(words if len(words) <= 8 else [*words[:7], "..."])
    return text[0].upper() + text[1:]


def _word(node: Node) -> str:
    word = {"pointwise": "fn", "reduce": "fn", "scan": "fn"}.get(node.op)
    text = str(node.get(word)) if word else f"{node['kind']} norm" if node.op == "norm" else node.op
    if node.op == "selection":
        text = "sort" if node["whole"] else "topk"
    if node.op == "scan":
        text = "decaying total" if node["fn"] == "decayed" else f"cumulative {text}"
    text = f"{node['fn']} pool" if node.op == "pool" else text
    text = f"scatter {node['fn']}" if node.op == "scatter" else text
    label = node.label.replace("_", " ")
    return text if not label or label == text.replace("_", " ") else f"{node.label} ({text})"


def _why(work: Work, plan: Plan, kernel: Writer) -> str:
    if kernel.work is not work:
        return "applies the states of rows, in tiles along operand and result"
    if kernel.form == "stretch" and kernel.outs:
        return "joins the states that programs gathered of a row, and applies them"
    if kernel.form == "strip" and work.domain.kept_size == ONE:
        return "one element per lane, so that neighbours find each other's taps in the L1 cache"
    places = set(kernel.reader.loads)
    once = len(places) == len({value.name for value, _ in places})
    return {
        "whole": "whole rows stay in registers" + (", so each element is read once" if once else ""),
        "looped": "a row passes by in blocks, too long to be kept",
        "stretch": "each program gathers a share of a row, since there are few rows",
        "blocks": "all in registers, nothing in between goes through memory",
        "none": "joins the states that programs gathered of a row",
        "apply": "applies the states of rows, one block of a row per program",
        "strip": "programs walk down rows and keep those of their windows, so each is loaded once",
    }[kernel.form]


def _summary(work: Work, plan: Plan) -> str:
    how = {
        "pointwise": "in one kernel",
        "strips": "in one kernel, down strips",
        "resident": "in one kernel, whole rows in registers",
        "looped": "in one kernel, long rows block by block",
        "split": f"with rows shared by {plan.splits} programs",
    }
    return f"{_what(work)} {how[plan.mode]}"

"""Groups that stay with PyTorch: every kind of node spelled as the call a person would write in ``forward``.

No kernel is written here. It is the pattern of last resort, which takes any node that it can spell, and the
pattern of choice where a library does a product or a convolution better than a kernel would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from egg.expert.algebra.overwritten import IN_PLACE
from egg.expert.emit.failures import NOTING, UNCHECKED
from egg.expert.emit.kernel import allocation
from egg.expert.emit.layout import HELPERS
from egg.expert.emit.names import words
from egg.expert.emit.spelling import Speller, number_text, unchecked
from egg.expert.graph import LITERAL, Graph, Node, Value
from egg.expert.index import Expr, as_expr
from egg.expert.parts import Group, Part, Unfit, spelled
from egg.expert.patterns.library.layers import LAYERS, literal_helper, literal_name
from egg.expert.patterns.library.layout import laid_out
from egg.expert.patterns.scalar_calls import scalar_call

CHANGES = frozenset({"update", "random"})
"""What is done even if its result is not read: it writes into a buffer, or draws random numbers."""
FREE = frozenset({"view", "constant", "joined"})
Call = Callable[[Speller, Node], str]
"""Spells one node as a statement."""


def write(graph: Graph, group: Group, calls: Mapping[str, Call]) -> Part:
    """The group as PyTorch calls, one line a node; what is not read is left out. ``calls``: by kind of
    node, those that are not known here."""
    speller = Speller(graph)
    written = [(node, _statement(speller, node, {**RULES, **calls})) for node in group.nodes]
    needed = set(group.writes(graph))
    lines: list[str] = []
    for node, line in reversed(written):
        changes = node.op in CHANGES or (node.op == "norm" and node.get("training"))
        if not line or not (changes or any(name in needed for name in node.outputs)):
            continue
        needed |= words(line)
        lines += reversed(line.split("\n"))
    lines.reverse()
    mentioned = set().union(*(words(line) for line in lines))
    sizes = tuple(name for name in graph.symbols if name in mentioned)
    literals = [node for node in group.nodes if node.op == "library" and node["target"] == LITERAL]
    helpers = {literal_name(node): literal_helper(graph, node) for node in literals}
    helpers |= {name: text for name, text in HELPERS.items() if name in mentioned}
    raises = _raises(graph, group)
    helpers |= NOTING if raises else {}
    summary = _summary(group)
    return Part({}, tuple(lines), sizes=sizes, summary=summary, helpers=helpers, raises=raises)


def _raises(graph: Graph, group: Group) -> tuple[str, ...]:
    """The functions that are called without waiting for their error codes."""
    functions = (unchecked(graph, node) for node in group.nodes if node.op == "library" and node.inputs)
    return tuple(dict.fromkeys(UNCHECKED[function] for function in functions if function is not None))


def _summary(group: Group) -> str:
    calls = dict.fromkeys(node.label or node.op for node in group.nodes if node.op not in FREE)
    return f"{', '.join(calls)}: left to PyTorch" if calls else "what lies in memory, or is to lie there"


def _statement(speller: Speller, node: Node, rules: Mapping[str, Call]) -> str:
    """One node as one line: ``y = torch.relu(x)``."""
    rule = rules.get(node.op)
    if rule is None:
        raise Unfit(f"there is no PyTorch call for a node {node.op!r}")
    line = rule(speller, node)
    return line if node.op == "joined" else laid_out(speller.graph, node, line)


def _assigned(spell: Call) -> Call:
    """The rule of a node with one result, which is an expression."""

    def statement(speller: Speller, node: Node) -> str:
        text = spell(speller, node)
        return f"{node.output} = {text}" if text != node.output else ""

    return statement


# -- elements -----------------------------------------------------------------------------------------


def _pointwise(speller: Speller, node: Node) -> str:
    operands, tensors = speller.scalar_operands(node)
    return scalar_call(node["fn"], operands, tensors, speller.graph.result(node).dtype)


def _where(speller: Speller, node: Node) -> str:
    return f"torch.where({speller.listed(node.inputs)})"


def _constant(speller: Speller, node: Node) -> str:
    made = speller.graph.result(node)
    kind = f"dtype=torch.{made.dtype}, device={speller.device()}"
    if "range" not in node.attributes:
        return f"torch.full({speller.shape(made.shape)}, {number_text(node['fill'])}, {kind})"
    start, step = node["range"]
    text = f"torch.arange({speller.size(made.shape[0])}, {kind})"
    text += f" * {number_text(step)}" if step != 1 else ""
    return text + (f" + {number_text(start)}" if start != 0 else "")


def _triangle(speller: Speller, node: Node) -> str:
    diagonal = f", diagonal={number_text(node['diagonal'])}" if node["diagonal"] != 0 else ""
    return f"torch.{'triu' if node['upper'] else 'tril'}({speller.operand(node)}{diagonal})"


def _random(speller: Speller, node: Node) -> str:
    made = speller.graph.result(node)
    if node["fn"] == "dropout":
        return f"nn.functional.dropout({speller.operand(node)}, p={node.get('p', 0.5)}, training=True)"
    kind = f"dtype=torch.{made.dtype}, device={speller.device()}"
    return f"torch.{node['fn']}({speller.shape(made.shape)}, {kind})"


# -- places -------------------------------------------------------------------------------------------


def _view(speller: Speller, node: Node) -> str:
    x, made = speller.operand(node), speller.graph.result(node)
    match node["how"]:
        case "reshape":
            return f"{x}.reshape({_spread(made)})"
        case "permute":
            return f"{x}.permute({', '.join(map(str, node['dims']))})"
        case "expand":
            return f"{x}.expand({_spread(made)})"
        case "flip":
            return f"torch.flip({x}, {tuple(node['dims'])})"
        case "slice":
            source = speller.graph.value(str(node.inputs[0]))
            return f"{x}[{_slices(speller, source, made, node)}]"
        case "windows":
            reach = node["dilation"] * (node["size"] - 1) + 1
            text = f"{x}.unfold({node['dim']}, {reach}, {node['step']})"
            return text if node["dilation"] == 1 else f"{text}[..., :: {node['dilation']}]"
    raise Unfit(f"unknown view {node['how']}")


def _spread(value: Value) -> str:
    """A shape as separate arguments."""
    return ", ".join(size.code() for size in value.shape) or "()"


def _slices(speller: Speller, source: Value, made: Value, node: Node) -> str:
    """``:, 2:6, ::2``: a bare colon for a dimension that is taken whole, nothing for the last of those."""
    texts = []
    for before, after, start, step in zip(
        source.shape, made.shape, node["starts"], node["steps"], strict=True
    ):
        if before == after and as_expr(start) == Expr() and step == 1:
            texts.append(":")
            continue
        first = as_expr(start)
        end = first + as_expr(after) if step == 1 else first + (as_expr(after) - 1) * step + 1
        first_text = "" if first == Expr() else speller.whole(first)
        end_text = "" if end == as_expr(before) else speller.whole(end)
        wide = " " in first_text or " " in end_text  # as formatters have it
        colon = ":" if not wide else " : " if first_text and end_text else " :" if first_text else ": "
        texts.append(f"{first_text}{colon}{end_text}" + (f":{number_text(step)}" if step != 1 else ""))
    while len(texts) > 1 and texts[-1] == ":":
        texts.pop()
    return ", ".join(texts)


def _cat(speller: Speller, node: Node) -> str:
    return f"torch.cat([{speller.listed(node.inputs)}], dim={node['dim']})"


def _joined(speller: Speller, node: Node) -> str:
    """The room for the pieces, and a name for each part of it."""
    made, pieces = speller.graph.result(node), [speller.graph.value(str(name)) for name in node.inputs]
    sizes = ", ".join(speller.size(piece.shape[node["dim"]]) for piece in pieces)
    names = ", ".join(piece.name for piece in pieces) + ("," if len(pieces) == 1 else "")
    parts = f"{names} = {made.name}.split(({sizes}{',' if len(pieces) == 1 else ''}), dim={node['dim']})"
    if made.lent:
        return parts
    return f"{allocation(made, speller.device())}\n{parts}"


def _pad(speller: Speller, node: Node) -> str:
    source, made = speller.graph.value(str(node.inputs[0])), speller.graph.result(node)
    amounts: list[str] = []
    for before, size, whole in zip(node["before"], source.shape, made.shape, strict=True):
        after = as_expr(whole) - size - before
        amounts = [speller.whole(as_expr(before)), speller.whole(after), *amounts]
    while amounts[-2:] == ["0", "0"]:
        amounts = amounts[:-2]
    if not amounts:
        return speller.operand(node)
    value = f", value={number_text(node['value'])}" if node["value"] != 0 else ""
    return f"nn.functional.pad({speller.operand(node)}, ({', '.join(amounts)}){value})"


def _gather(speller: Speller, node: Node) -> str:
    source, index = (spelled(speller.graph, str(name)) for name in node.inputs[:2])
    match node["how"]:
        case "embedding":
            return f"nn.functional.embedding({index}, {source})"
        case "index_select" | "gather" as how:
            return f"torch.{how}({source}, {node['dim']}, {index})"
    raise Unfit(f"unknown gather {node['how']}")


# -- reductions ---------------------------------------------------------------------------------------

REDUCTIONS = {"max": "torch.amax", "min": "torch.amin", "norm": "torch.linalg.vector_norm"}


def _reduce(speller: Speller, node: Node) -> str:
    x, fn, dims = speller.operand(node), node["fn"], tuple(node["dims"])
    source, made = speller.graph.value(str(node.inputs[0])), speller.graph.result(node)
    everything = len(dims) == source.rank
    keep = ", keepdim=True" if node.get("keepdim") and source.rank else ""
    if fn in ("argmax", "argmin"):
        if len(dims) != 1 and not everything:
            raise Unfit(f"{fn} over several dimensions but not all")
        return f"torch.{fn}({x}, dim={dims[0] if len(dims) == 1 else None}{keep})"
    if fn == "prod" and len(dims) > 1:
        for dim in sorted(dims, reverse=True):
            x = f"torch.prod({x}, dim={dim}{keep})"
        return x
    extra = f", correction={node.get('correction', 1)}" if fn == "var" else ""
    extra += (
        f", ord={number_text(node.get('order', 2))}" if fn == "norm" and node.get("order", 2) != 2 else ""
    )
    if fn in ("sum", "mean", "prod") and made.dtype != source.dtype and source.floating:
        extra += f", dtype=torch.{made.dtype}"
    bare = everything and not keep and fn not in ("logsumexp",)
    where = "" if bare else f", dim={dims[0] if len(dims) == 1 else dims}"
    return f"{REDUCTIONS.get(fn, f'torch.{fn}')}({x}{where}{extra}{keep})"


def _softmax(speller: Speller, node: Node) -> str:
    return (
        f"torch.{'log_softmax' if node.get('log') else 'softmax'}({speller.operand(node)}, dim={node['dim']})"
    )


SCANS = {
    "sum": ("torch.cumsum", "", "0"),
    "prod": ("torch.cumprod", "", "1"),
    "max": ("torch.cummax", ".values", 'float("-inf")'),
    "min": ("torch.cummin", ".values", 'float("inf")'),
    "logcumsumexp": ("torch.logcumsumexp", "", 'float("-inf")'),
}
"""Function, what to take of its result, and the value before the first element."""


def _scan(speller: Speller, node: Node) -> str:
    if node["fn"] not in SCANS:
        raise Unfit(f"PyTorch has no call for the scan {node['fn']}")
    function, part, neutral = SCANS[node["fn"]]
    x, value, dim = (
        speller.operand(node),
        speller.graph.result(node),
        node["dim"] % len(speller.graph.result(node).shape),
    )
    text = f"torch.flip({x}, ({dim},))" if node.get("reverse") else x
    if node.get("exclusive"):
        text = f"{text}.narrow({dim}, 0, {speller.whole(as_expr(value.shape[dim]) - 1)})"
    text = f"{function}({text}, dim={dim}){part}"
    if node.get("exclusive"):
        amounts = "0, 0, " * (value.rank - 1 - dim) + "1, 0"
        text = f"nn.functional.pad({text}, ({amounts}), value={neutral})"
    return f"torch.flip({text}, ({dim},))" if node.get("reverse") else text


def _selection(speller: Speller, node: Node) -> str:
    x, made = speller.operand(node), speller.graph.value(node.outputs[0])
    dim, names = node["dim"], ", ".join(node.outputs)
    if node["whole"]:
        return f"{names} = torch.sort({x}, dim={dim}, descending={node['largest']}, stable=True)"
    rising = "" if node["largest"] else ", largest=False"
    return f"{names} = torch.topk({x}, {speller.size(made.shape[dim])}, dim={dim}{rising})"


# -- buffers ------------------------------------------------------------------------------------------


def _update(speller: Speller, node: Node) -> str:
    buffer, new = node.inputs[:2]
    if node.get(IN_PLACE):
        return ""
    return f"{spelled(speller.graph, str(buffer))}.copy_({spelled(speller.graph, str(new))})"


RULES: Mapping[str, Call] = {
    "pointwise": _assigned(_pointwise),
    "where": _assigned(_where),
    "constant": _assigned(_constant),
    "triangle": _assigned(_triangle),
    "random": _assigned(_random),
    "view": _assigned(_view),
    "cat": _assigned(_cat),
    "joined": _joined,
    "pad": _assigned(_pad),
    "gather": _assigned(_gather),
    "reduce": _assigned(_reduce),
    "softmax": _assigned(_softmax),
    "scan": _assigned(_scan),
    "selection": _selection,
    "update": _update,
    **LAYERS,
}

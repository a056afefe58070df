"""Layers as PyTorch calls: norms, pools, convolutions, attention, recurrence, and what stays as it was."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from egg.expert.graph import Node, Origin
from egg.expert.parts import Unfit, spelled
from egg.expert.patterns.library.names import public_call
from egg.expert.patterns.spelling import Speller, number_text, per_dimension
from egg.expert.sizes import as_size

FLAT_WEIGHT = re.compile(r"(?:weight|bias)_(?:ih|hh|hr)_l\d+(?:_reverse)?")
"""What PyTorch's recurrent layers call their weights."""


def call(function: str, *arguments: str | None, **keywords: str | None) -> str:
    """A call; keywords that are ``None`` are left out, and so are absent arguments at the end."""
    given = list(arguments)
    while given and given[-1] is None:
        given.pop()
    named = [f"{name}={value}" for name, value in keywords.items() if value is not None]
    return f"{function}({', '.join([*map(str, given), *named])})"


def unless(default: Any, value: Any, spell: Callable[[Any], str] = number_text) -> str | None:
    """A setting, left out where it is what PyTorch takes anyway."""
    if value is None:
        return None
    same = all(item == default for item in value) if isinstance(value, list | tuple) else value == default
    return None if same else spell(value)


# -- normalisation ------------------------------------------------------------------------------------


def _norm(speller: Speller, node: Node) -> str:
    x, eps = speller.operand(node), number_text(node["eps"])
    weight, bias, mean, variance = (speller.optional(node, place) for place in (1, 2, 3, 4))
    match node["kind"]:
        case "batch":
            trains = bool(node.get("training"))
            momentum = unless(0.1, node.get("momentum"))
            text = call(
                "nn.functional.batch_norm", x, str(mean), str(variance), weight=weight, bias=bias,
                training="True" if trains else None, momentum=momentum, eps=unless(1e-5, node["eps"]),
            )  # fmt: skip
        case "instance":
            text = call(
                "nn.functional.instance_norm", x, weight=weight, bias=bias, eps=unless(1e-5, node["eps"])
            )
        case "group":
            text = call(
                "nn.functional.group_norm", x, number_text(node["groups"]), weight=weight, bias=bias,
                eps=unless(1e-5, node["eps"]),
            )  # fmt: skip
        case "layer" | "rms" as kind:
            text = _over_dims(speller, node, kind, x, weight, bias, eps)
        case other:
            raise Unfit(f"unknown normalisation {other}")
    return _results(speller, node, text)


def _over_dims(
    speller: Speller, node: Node, kind: str, x: str, weight: str | None, bias: str | None, eps: str
) -> str:
    """PyTorch's own function where the statistics are over the last dimensions, else the formula."""
    source = speller.graph.value(str(node.inputs[0]))
    dims = tuple(sorted(dim % source.rank for dim in node["dims"]))
    last = dims == tuple(range(source.rank - len(dims), source.rank))
    fits = all(
        name is None or speller.graph.value(name).shape == source.shape[-len(dims) :]
        for name in node.inputs[1:3]
    )
    if last and fits and (kind == "layer" or bias is None):
        shape = speller.shape(source.shape[-len(dims) :])
        default = 1e-5 if kind == "layer" else None
        return call(f"nn.functional.{kind}_norm", x, shape, weight, bias, eps=unless(default, node["eps"]))
    over = f"dim={dims[0] if len(dims) == 1 else dims}, keepdim=True"
    if kind == "layer":
        text = f"({x} - {x}.mean({over})) * torch.rsqrt({x}.var({over}, correction=0) + {eps})"
    else:
        text = f"{x} * torch.rsqrt({x}.square().mean({over}) + {eps})"
    text = f"{text} * {weight}" if weight is not None else text
    return f"{text} + {bias}" if bias is not None else text


def _results(speller: Speller, node: Node, text: str) -> str:
    """PyTorch writes new running statistics into their buffers by itself, so there they are read."""
    lines = [f"{node.outputs[0]} = {text}"]
    for name, buffer in zip(node.outputs[1:], node.inputs[3:], strict=False):
        if buffer is not None and (speller.graph.consumers[name] or name in speller.graph.results):
            lines.append(f"{name} = {spelled(speller.graph, buffer)}")
    return "\n".join(lines)


# -- windows ------------------------------------------------------------------------------------------


def _pool(speller: Speller, node: Node) -> str:
    x, fn, rank = speller.operand(node), node["fn"], len(node["kernel"])
    kernel = per_dimension(node["kernel"])
    if node.get("adaptive"):
        text = call(f"nn.functional.adaptive_{fn}_pool{rank}d", x, kernel)
        return f"{node.output} = {text}"
    stride = per_dimension(node["stride"])
    ceil = unless(False, node.get("ceil", False))
    padding = unless(0, node.get("padding"), per_dimension)
    if fn == "max":
        dilation = unless(1, node.get("dilation"), per_dimension)
        text = call(
            f"nn.functional.max_pool{rank}d", x, kernel, stride=stride, padding=padding, dilation=dilation,
            ceil_mode=ceil,
        )  # fmt: skip
    elif fn == "avg":
        inside = unless(True, node.get("count_include_pad", True))
        divisor = node.get("divisor") if rank > 1 else None
        text = call(
            f"nn.functional.avg_pool{rank}d", x, kernel, stride=stride, padding=padding, ceil_mode=ceil,
            count_include_pad=inside, divisor_override=None if divisor is None else number_text(divisor),
        )  # fmt: skip
    else:
        order = number_text(node.get("order", 2))
        text = call(f"nn.functional.lp_pool{rank}d", x, order, kernel, stride=stride, ceil_mode=ceil)
    return f"{node.output} = {text}"


def _conv(speller: Speller, node: Node) -> str:
    rank = len(node["stride"])
    x, weight, bias = (speller.optional(node, place) for place in (0, 1, 2))
    channels = speller.graph.value(str(node.inputs[0])).shape[1]
    depthwise = node["groups"] != 1 and as_size(node["groups"]) == channels
    settings = {
        "stride": unless(1, node["stride"], per_dimension),
        "padding": unless(0, node["padding"], per_dimension),
        "output_padding": unless(0, node.get("output_padding"), per_dimension)
        if node.get("transposed")
        else None,
        "dilation": unless(1, node["dilation"], per_dimension),
        "groups": f"{x}.shape[1]" if depthwise else unless(1, node["groups"]),
    }
    function = f"nn.functional.conv{'_transpose' if node.get('transposed') else ''}{rank}d"
    return f"{node.output} = {call(function, x, weight, bias, **settings)}"


# -- sequences ----------------------------------------------------------------------------------------


def _attention(speller: Speller, node: Node) -> str:
    q, k, v = (speller.operand(node, place) for place in (0, 1, 2))
    mask, scale = speller.optional(node, 3), node.get("scale")
    text = call(
        "nn.functional.scaled_dot_product_attention", q, k, v, attn_mask=mask,
        is_causal="True" if node.get("causal") else None, scale=None if scale is None else number_text(scale),
    )  # fmt: skip
    return f"{node.outputs[0]} = {text}"


def _recurrent(speller: Speller, node: Node) -> str:
    """By the layer that owns the weights, or by PyTorch's function where they belong to no layer."""
    graph, cell = speller.graph, node["cell"]
    states = 2 if cell == "lstm" else 1
    rest = list(node.inputs[1:])
    first, weights = rest[:states], rest[states:]
    read = [name for name in node.outputs if graph.consumers[name] or name in graph.results]
    results = [name if name in read else "_" for name in node.outputs]
    initial = speller.listed(first)
    initial = f"({initial})" if states > 1 else initial
    owner = _owner(speller, weights)
    if owner is not None:
        output, *last = results
        ends = last[0] if states == 1 or set(last) == {"_"} else f"({', '.join(last)})"
        given = "" if None in first else f", {initial}"
        return f"{output}, {ends} = {owner}({speller.operand(node)}{given})"
    settings = {
        "has_biases": bool(node["bias"]), "num_layers": node["layers"], "dropout": 0.0, "train": False,
        "bidirectional": bool(node["bidirectional"]), "batch_first": bool(node["batch_first"]),
    }  # fmt: skip
    told = ", ".join(f"{name}={number_text(value)}" for name, value in settings.items())
    given = f"{speller.operand(node)}, {initial}, [{speller.listed(weights)}], {told}"
    return f"{', '.join(results)} = torch.{cell}({given})"


def _owner(speller: Speller, weights: list[str | None]) -> str | None:
    """The layer that all the weights belong to, under PyTorch's own names for them."""
    owners: set[str] = set()
    for name in weights:
        value = speller.graph.value(str(name))
        owner, _, own = value.path.rpartition(".")
        if value.origin is not Origin.PARAMETER or not owner or not FLAT_WEIGHT.fullmatch(own):
            return None
        owners.add(spelled(speller.graph, value.name).removesuffix(f".{own}"))
    return owners.pop() if len(owners) == 1 else None


# -- what is left as it was ---------------------------------------------------------------------------


def _library(speller: Speller, node: Node) -> str:
    """The call as it was captured, under a name that a kernel file may use."""
    arguments = [speller.argument(value, node) for value in node.get("arguments", ())]
    keywords = {k: speller.argument(v, node) for k, v in (node.get("keywords") or {}).items()}
    text = public_call(str(node["target"]), arguments, keywords, len(node.outputs))
    results = ", ".join(node.outputs)
    return f"{results} = {text}" if results else text


LAYERS: dict[str, Callable[[Speller, Node], str]] = {
    "norm": _norm,
    "pool": _pool,
    "conv": _conv,
    "attention": _attention,
    "recurrent": _recurrent,
    "library": _library,
}

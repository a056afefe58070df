"""Layers as PyTorch calls: norms, pools, and what stays as it was."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from textwrap import wrap

from egg.expert.emit.failures import FAILURES, NOTE, UNCHECKED, allocated, slot
from egg.expert.emit.keeping import KEEP, MAKE_ONCE
from egg.expert.emit.spelling import Speller, call, number_text, per_dimension, unchecked, unless
from egg.expert.graph import LITERAL, Graph, Node
from egg.expert.parts import Unfit, spelled
from egg.expert.patterns.library.in_place import in_place
from egg.expert.patterns.library.names import public_call

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


RESIZES = {"linear": ("linear", "bilinear", "trilinear"), "cubic": ("", "bicubic", "")}
"""PyTorch's names for ways to resize, by the number of spatial dimensions; the others have one name."""


def _resample(speller: Speller, node: Node) -> str:
    """By the factors where the program gives them: those decide where elements lie, not the rounded size."""
    x, made, fn = speller.operand(node), speller.graph.result(node), node["fn"]
    by_rank = RESIZES.get(fn)
    mode = by_rank[made.rank - 3] if by_rank is not None else fn.replace("_", "-")
    factors = node["factors"]
    text = call(
        "nn.functional.interpolate", x, size=speller.shape(made.shape[2:]) if factors is None else None,
        scale_factor=None if factors is None else str(tuple(factors)), mode=f'"{mode}"',
        align_corners="True" if node["aligned"] else None,
    )  # fmt: skip
    return f"{node.output} = {text}"


# -- what is left as it was ---------------------------------------------------------------------------


def _library(speller: Speller, node: Node) -> str:
    """The call as it was captured, under a name that a kernel file may use."""
    if node["target"] == LITERAL and node.inputs:
        return f"{node.output} = {KEEP}({literal_name(node)}, {speller.operand(node)})"
    if node["target"] == LITERAL:
        return f"{node.output} = {MAKE_ONCE}({literal_name(node)}, {speller.device()})"
    arguments = [speller.argument(value, node) for value in node.get("arguments", ())]
    keywords = {k: speller.argument(v, node) for k, v in (node.get("keywords") or {}).items()}
    if (function := unchecked(speller.graph, node)) is not None:
        return _noted(speller, node, function, call(f"torch.linalg.{function}", *arguments, **keywords))
    if (method := in_place(speller.graph, node)) is not None:
        text = call(f"{arguments[0]}.{method}", *arguments[1:], **keywords)
    else:
        text = public_call(str(node["target"]), arguments, keywords, len(node.outputs))
    results = ", ".join(node.outputs)
    return f"{results} = {text}" if results else text


def _noted(speller: Speller, node: Node, function: str, text: str) -> str:
    """A factorisation that does not wait for its error codes, which are noted."""
    codes = f"{node.output}_codes"
    note = f"{NOTE}({FAILURES}, {slot(UNCHECKED[function])}, {codes})"
    return "\n".join((f"{node.output}, {codes} = {text}", allocated(speller.device()), note))


def literal_name(node: Node) -> str:
    return f"make_{node.output}"


def literal_helper(graph: Graph, node: Node) -> str:
    """A function that makes the tensor, whose result the module keeps."""
    (text,) = node["arguments"]
    rows, shape = ast.literal_eval(str(text)), []
    while isinstance(rows, list):
        shape.append(len(rows))
        rows = rows[0]
    numbers = " ".join(re.findall(r"[^\[\], ]+", str(text)))
    result = graph.result(node)
    template = _KEPT if node.inputs else _MADE_ONCE
    return _filled(template, literal_name(node), numbers, result.dtype, result.floating, shape)


def made_once(name: str, numbers: str, dtype: str, floating: bool, shape: Sequence[int]) -> str:
    """A function that makes a tensor of ``numbers``, which have spaces between them, on a device."""
    return _filled(_MADE_ONCE, name, numbers, dtype, floating, shape)


def _filled(template: str, name: str, numbers: str, dtype: str, floating: bool, shape: Sequence[int]) -> str:
    return template.format(
        name=name,
        numbers="\n".join(f"        {line}" for line in wrap(numbers, 96)),
        read="float" if floating else "int",
        dtype=dtype,
        shape="" if len(shape) == 1 else f".reshape({', '.join(map(str, shape)) or '()'})",
    )


_MADE_ONCE = '''def {name}(device):
    """Numbers that the program makes in forward."""
    text = """
{numbers}
    """
    numbers = [{read}(number) for number in text.split()]
    return torch.tensor(numbers, dtype=torch.{dtype}, device=device){shape}'''


_KEPT = '''def {name}(weight):
    """Numbers that the program makes in forward, on the device of a weight."""
    text = """
{numbers}
    """
    numbers = [{read}(number) for number in text.split()]
    return weight.new_tensor(numbers, dtype=torch.{dtype}){shape}'''


LAYERS: dict[str, Callable[[Speller, Node], str]] = {
    "norm": _norm,
    "pool": _pool,
    "resample": _resample,
    "library": _library,
}

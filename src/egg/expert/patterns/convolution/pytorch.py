"""A convolution as PyTorch's call."""

from __future__ import annotations

from egg.expert.algebra.upsampled import PHASES
from egg.expert.emit.keeping import KEEP
from egg.expert.emit.layout import LAST, LAST_WEIGHT, PHASE_WEIGHT
from egg.expert.emit.spelling import Speller, call, per_dimension, unless
from egg.expert.graph import FLOATS, HELD, Node, Value
from egg.expert.sizes import ONE, as_size


def convolution_call(speller: Speller, node: Node) -> str:
    """In the layout of its result. With the channels last, operands that lie otherwise are turned around on
    the way, weights once; a row is an image one pixel high, since the library has no such layout for rows."""
    graph = speller.graph
    if PHASES in node.attributes:
        return _phases_call(speller, node)
    x, weight, bias = (speller.optional(node, place) for place in (0, 1, 2))
    given, made = graph.value(str(node.inputs[0])), graph.value(node.outputs[0])
    rank = len(node["stride"])
    last = given.dtype in FLOATS and _channels_last(made)
    flat = last and rank == 1
    depthwise = node["groups"] != 1 and as_size(node["groups"]) == given.shape[1]
    settings = {
        "stride": unless(1, node["stride"], per_dimension),
        "padding": unless(0, node["padding"], per_dimension),
        "output_padding": unless(0, node.get("output_padding"), per_dimension)
        if node.get("transposed")
        else None,
        "dilation": unless(1, node["dilation"], per_dimension),
        "groups": f"{x}.shape[1]" if depthwise else unless(1, node["groups"]),
    }
    if flat:
        neutral = {"stride": "1", "padding": "0", "output_padding": "0", "dilation": "1"}
        settings |= {
            name: f"({neutral[name]}, {text})"
            for name, text in settings.items()
            if name in neutral and text is not None
        }
        rank = 2
    if last:
        x, weight = _turned(str(x), given, flat), _turned_weight(speller, node, str(weight))
    function = f"nn.functional.conv{'_transpose' if node.get('transposed') else ''}{rank}d"
    text = call(function, x, weight, bias, **settings)
    if flat:
        text += ".squeeze(2)"
    if given.dtype in FLOATS and made.contiguous and not given.contiguous and made.name in graph.results:
        text += ".contiguous()"  # a result lies as the caller expects it
    return f"{node.output} = {text}"


def _phases_call(speller: Speller, node: Node) -> str:
    """All phases of the convolution of a doubled image: channels of one result, read interleaved."""
    graph, rank = speller.graph, len(node["padding"])
    given, made = graph.value(str(node.inputs[0])), graph.value(node.output)
    x, weight = (str(speller.optional(node, place)) for place in (0, 1))
    padding = [as_size(size).number for size in node["padding"]]
    kept = f"{KEEP}({PHASE_WEIGHT}, {weight}, {', '.join(map(str, padding))})"
    around = per_dimension([(pad + 1) // 2 for pad in padding])
    text = call(f"nn.functional.conv{rank}d", _turned(x, given, False), kept, padding=around)
    text += f".contiguous(memory_format={LAST[rank + 2]})"
    return f"{node.output} = {text}.as_strided({speller.shape(made.shape)}, {speller.shape(made.stride)})"


def _channels_last(value: Value) -> bool:
    return value.rank > 2 and value.stride[1] == ONE and not value.contiguous


def _turned(text: str, value: Value, flat: bool) -> str:
    text += ".unsqueeze(2)" if flat else ""
    return text if _channels_last(value) else f"{text}.contiguous(memory_format={LAST[max(value.rank, 4)]})"


def _turned_weight(speller: Speller, node: Node, text: str) -> str:
    """A weight of the module is turned once, and again when it has changed."""
    value = speller.graph.value(str(node.inputs[1]))
    if _channels_last(value) and value.rank > 3:
        return text
    return f"{KEEP}({LAST_WEIGHT}, {text})" if value.origin in HELD else f"{LAST_WEIGHT}({text})"

"""A convolution as PyTorch's call."""

from __future__ import annotations

from egg.expert.emit.spelling import Speller, call, per_dimension, unless
from egg.expert.graph import Node
from egg.expert.sizes import as_size


def convolution_call(speller: Speller, node: Node) -> str:
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

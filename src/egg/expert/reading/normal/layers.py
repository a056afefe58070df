"""Layers that stay whole: convolutions, pools, norms, attention and recurrent layers."""

from __future__ import annotations

from typing import Any

import torch

from egg.expert.graph import Value
from egg.expert.reading.normal.builder import Builder, Call, Lowered, Rule, dimension, extents
from egg.expert.reading.normal.reductions import vector_norm


def spread(value: Any, count: int) -> tuple[int, ...]:
    """One number per spatial dimension."""
    given = (value,) if isinstance(value, int) else tuple(value)
    return given * count if len(given) == 1 else given


# -- convolutions ----------------------------------------------------------------------------------------


def _conv(transposed: bool) -> Rule:
    def rule(b: Builder, call: Call) -> Lowered:
        x, weight, bias = call["input"], call["weight"], call.get("bias")
        space = weight.rank - 2
        batched = x.rank == weight.rank
        x = x if batched else b.unsqueeze(x, 0)
        stride, dilation = spread(call["stride"], space), spread(call["dilation"], space)
        padding = call["padding"]
        if isinstance(padding, str):
            x, padding = _padded(b, x, padding, extents(weight)[2:], dilation)
        made = b.one(
            "conv", [x, weight, bias], call.shape if batched else (1, *call.shape), call.dtype, "conv",
            stride=stride, padding=spread(padding, space), dilation=dilation, groups=call["groups"],
            transposed=transposed, output_padding=spread(call.get("output_padding", 0), space),
        )  # fmt: skip
        return made if batched else b.reshape(made, call.shape)

    return rule


def _padded(
    b: Builder, x: Value, padding: str, kernel: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[Value, tuple[int, ...]]:
    """``same`` in numbers; where it takes one more on the right than on the left, that one is a ``pad``."""
    if padding == "valid":
        return x, (0,) * len(kernel)
    totals = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    odd = [t % 2 for t in totals]
    return b.pad(x, (0,) * x.rank, (0, 0, *odd)), tuple(t // 2 for t in totals)


def _convolution(b: Builder, call: Call) -> Lowered:
    return _conv(bool(call["transposed"]))(b, call)  # type: ignore[return-value]


# -- pools -----------------------------------------------------------------------------------------------


def _pool(fn: str, space: int) -> Rule:
    def rule(b: Builder, call: Call) -> Lowered | None:
        if len(call.results) > 1:
            return None
        x, kernel = call["self"], spread(call["kernel_size"], space)
        batched = x.rank == space + 2
        x = x if batched else b.unsqueeze(x, 0)
        given = call.get("stride") or kernel
        made = b.one(
            "pool", [x], call.shape if batched else (1, *call.shape), call.dtype, f"{fn}_pool", fn=fn,
            kernel=kernel, stride=spread(given, space), padding=spread(call.get("padding", 0), space),
            dilation=spread(call.get("dilation", 1), space), ceil=bool(call.get("ceil_mode", False)),
            count_include_pad=bool(call.get("count_include_pad", True)), divisor=call.get("divisor_override"),
            adaptive=False,
        )  # fmt: skip
        return made if batched else b.reshape(made, call.shape)

    return rule


def _adaptive(fn: str, space: int) -> Rule:
    """To one place: a plain reduction."""

    def rule(b: Builder, call: Call) -> Lowered | None:
        x, size = call["self"], call.shape[-space:]
        if all(n == 1 for n in size):
            best = b.reduce({"avg": "mean", "max": "max"}[fn], x, range(x.rank - space, x.rank), True)
            if len(call.results) == 1:
                return best
            place = b.reduce("argmax", b.reshape(x, (*extents(x)[:-space], -1)), -1)
            return [best, b.reshape(place, call.results[1][0])]
        if len(call.results) > 1:
            return None
        batched = x.rank == space + 2
        x = x if batched else b.unsqueeze(x, 0)
        one = (1,) * space
        made = b.one(
            "pool", [x], call.shape if batched else (1, *call.shape), call.dtype, f"{fn}_pool", fn=fn,
            kernel=size, stride=one, padding=(0,) * space, dilation=one, ceil=False, count_include_pad=True,
            divisor=None, adaptive=True,
        )  # fmt: skip
        return made if batched else b.reshape(made, call.shape)

    return rule


# -- norms -----------------------------------------------------------------------------------------------


def _layer_norm(b: Builder, call: Call) -> Lowered:
    x = call["input"]
    dims = tuple(range(x.rank - len(call["normalized_shape"]), x.rank))
    return _norm(b, "layer", [x, call.get("weight"), call.get("bias")], dims, eps=call["eps"])


def _rms_norm(b: Builder, call: Call) -> Lowered:
    x, eps = call["input"], call.get("eps")
    dims = tuple(range(x.rank - len(call["normalized_shape"]), x.rank))
    eps = torch.finfo(getattr(torch, x.dtype)).eps if eps is None else eps
    return _norm(b, "rms", [x, call.get("weight"), None], dims, eps=eps)


def _group_norm(b: Builder, call: Call) -> Lowered:
    x = call["input"]
    inputs = [x, call.get("weight"), call.get("bias")]
    return _norm(b, "group", inputs, tuple(range(1, x.rank)), eps=call["eps"], groups=call["num_groups"])


def _batch_norm(b: Builder, call: Call) -> Lowered:
    """In training mode there are three results: the new running statistics follow the output."""
    x, training = call["input"], bool(call["training"])
    running = [call.get("running_mean"), call.get("running_var")]
    inputs = [x, call.get("weight"), call.get("bias"), *running]
    dims = (0, *range(2, x.rank))
    attributes = {"eps": call["eps"], "training": training, "momentum": call["momentum"]}
    if training and running[0] is not None:
        results = [(extents(x), call.dtype), *((extents(r), r.dtype) for r in running)]
        return b.node("norm", inputs, results, "batch_norm", kind="batch", dims=dims, **attributes)
    return _norm(b, "batch", inputs, dims, **attributes)


def _instance_norm(b: Builder, call: Call) -> Lowered | None:
    """No normal form with running statistics, unless it only uses them: then it is a batch norm."""
    x, own = call["input"], bool(call["use_input_stats"])
    running = [call.get("running_mean"), call.get("running_var")]
    scale = [call.get("weight"), call.get("bias")]
    if running[0] is not None:
        if own:
            return None
        attributes = {"eps": call["eps"], "training": False, "momentum": call["momentum"]}
        return _norm(b, "batch", [x, *scale, *running], (0, *range(2, x.rank)), **attributes)
    return _norm(b, "instance", [x, *scale], tuple(range(2, x.rank)), eps=call["eps"])


def _norm(
    b: Builder, kind: str, inputs: list[Value | None], dims: tuple[int, ...], **attributes: Any
) -> Value:
    x = inputs[0]
    assert x is not None
    return b.one("norm", inputs, extents(x), x.dtype, f"{kind}_norm", kind=kind, dims=dims, **attributes)


# -- attention and recurrence ----------------------------------------------------------------------------


def _attention(b: Builder, call: Call) -> Lowered | None:
    """``scale`` is ``None`` for PyTorch's own, one over the root of the last dimension of q."""
    q, k, v, mask = call["query"], call["key"], call["value"], call.get("attn_mask")
    if call.get("dropout_p", 0.0) or q.rank < 2:
        return None
    if call.get("enable_gqa", False) and extents(q)[:-2] != extents(k)[:-2]:
        times = extents(q)[-3] // extents(k)[-3]
        k, v = (_each(b, value, times) for value in (k, v))
    attributes = {"causal": bool(call.get("is_causal", False)), "scale": call.get("scale")}
    return b.one("attention", [q, k, v, mask], call.shape, call.dtype, **attributes)


def _each(b: Builder, value: Value, times: int) -> Value:
    """Every head so many times in a row."""
    *lead, heads, length, width = extents(value)
    split = b.reshape(value, (*lead, heads, 1, length, width))
    return b.reshape(
        b.expand(split, (*lead, heads, times, length, width)), (*lead, heads * times, length, width)
    )


def _recurrent(b: Builder, call: Call) -> Lowered:
    """A whole layer, as the tracer kept it."""
    x, states, weights = call["sequence"], call["states"], call["weights"]
    attributes = {name: call[name] for name in ("cell", "layers", "bidirectional", "batch_first", "bias")}
    return b.node("recurrent", [x, *states, *weights], call.results, call["cell"], **attributes)


def _cell(b: Builder, call: Call) -> Lowered | None:
    """One step of an LSTM, GRU or plain cell, in products and pointwise operators."""
    x, hidden = call["input"], call["hx"]
    first = hidden[0] if isinstance(hidden, list | tuple) else hidden
    gates = b.matmul(x, b.transpose(call["w_ih"]), call.get("b_ih"))
    recurrent = b.matmul(first, b.transpose(call["w_hh"]), call.get("b_hh"))
    width = extents(first)[-1]

    def part(value: Value, place: int) -> Value:
        return b.slice(value, -1, place * width, width)

    if call.name == "gru_cell":
        reset, update = (
            b.pointwise("sigmoid", b.pointwise("add", part(gates, i), part(recurrent, i))) for i in (0, 1)
        )
        inner = b.pointwise("add", part(gates, 2), b.pointwise("mul", reset, part(recurrent, 2)))
        new = b.pointwise("tanh", inner)
        return b.pointwise("add", new, b.pointwise("mul", update, b.pointwise("sub", first, new)))
    total = b.pointwise("add", gates, recurrent)
    if call.name != "lstm_cell":
        return b.pointwise("tanh" if call.name == "rnn_tanh_cell" else "relu", total)
    let_in, forget, let_out = (b.pointwise("sigmoid", part(total, i)) for i in (0, 1, 3))
    new = b.pointwise("tanh", part(total, 2))
    state = b.pointwise("add", b.pointwise("mul", forget, hidden[1]), b.pointwise("mul", let_in, new))
    return [b.pointwise("mul", let_out, b.pointwise("tanh", state)), state]


def _weight_norm(b: Builder, call: Call) -> Lowered:
    """``v * (g / |v|)``, the length of ``v`` over all dimensions but one; -1 is over all."""
    v, g = call["v"], call["g"]
    kept = call.get("dim", 0)
    dims = [dim for dim in range(v.rank) if kept == -1 or dim != dimension(kept, v.rank)]
    length = vector_norm(b, v, 2.0, dims, keepdim=kept != -1)
    return b.pointwise("mul", v, b.pointwise("div", g, length))


RULES: dict[str, Rule] = {
    **{f"conv{n}d": _conv(transposed=False) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _conv(transposed=True) for n in (1, 2, 3)},
    **dict.fromkeys(["convolution", "_convolution"], _convolution),
    **{f"max_pool{n}d": _pool("max", n) for n in (1, 2, 3)},
    **{f"avg_pool{n}d": _pool("avg", n) for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": _adaptive("avg", n) for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": _adaptive("max", n) for n in (1, 2, 3)},
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "instance_norm": _instance_norm,
    "_weight_norm": _weight_norm,
    "scaled_dot_product_attention": _attention,
    "recurrent": _recurrent,
    **dict.fromkeys(["lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"], _cell),
}

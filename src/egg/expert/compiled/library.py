"""Calls of PyTorch in generated host code, under the names that a kernel file may use.

Inductor calls operators of ATen and its own table of library functions (``extern_kernels``). Most have a
public name with the same arguments; the rules here are for those that have none, or other arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from egg.evaluator.static.namespaces import judge
from egg.expert.parts import Unfit
from egg.expert.patterns.library.names import public_call
from egg.expert.writing.replay_calls import DRAWING


@dataclass(frozen=True)
class Given:
    """The arguments of a call: as text, and as values (tensors without data among them)."""

    texts: Sequence[str]
    values: Sequence[Any]
    keywords: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The keywords as values."""
    device: str = ""

    def value(self, place: int, name: str, default: Any = None) -> Any:
        """An argument that may stand at its place or behind its name."""
        return self.values[place] if place < len(self.values) else self.settings.get(name, default)

    def text(self, place: int, name: str, default: str = "None") -> str:
        return self.texts[place] if place < len(self.texts) else self.keywords.get(name, default)


Rule = Callable[[Given], str]
FIRST_ALONE = frozenset({
    "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention", "_embedding_bag", "_embedding_bag_forward_only",
})  # fmt: skip
"""Operators with several results whose public form returns the first alone."""


def operator_text(target: str, given: Given, results: int) -> str:
    """A call of an operator: ``torch.ops.aten.topk.default`` as ``torch.topk(x, 2)``."""
    path = target.split(".")
    if path[:3] != ["torch", "ops", "aten"]:
        raise Unfit(f"the graph calls {target}, which is no operator of ATen")
    if path[3].startswith(DRAWING):
        raise Unfit(f"the graph draws random numbers: {path[3]}")
    rule = OPERATORS.get(path[3])
    if rule is not None:
        return rule(given)
    plain = {k: t for k, t in given.keywords.items() if k not in ("layout", "pin_memory")}
    if not hasattr(torch.Tensor, path[3]) and judge(f"torch.{path[3]}") is None:
        return _call(f"torch.{path[3]}", given.texts, plain)
    return public_call(target, given.texts, plain, results)


def extern_text(name: str, given: Given) -> str:
    """A call of Inductor's table of library functions."""
    rule = EXTERN.get(name)
    if rule is None:
        raise Unfit(f"the graph calls extern_kernels.{name}, which is not known here")
    return rule(given)


def _call(function: str, arguments: Sequence[str], keywords: Mapping[str, str | None]) -> str:
    named = [f"{name}={text}" for name, text in keywords.items() if text is not None]
    return f"{function}({', '.join([*arguments, *named])})"


# -- products and convolutions ------------------------------------------------------------------------


def _product(name: str) -> Rule:
    """``torch.addmm(bias, a, b, out=...)``; factors of one are left out."""

    def rule(given: Given) -> str:
        plain = {k: t for k, t in given.keywords.items() if k not in ("alpha", "beta") or t != "1"}
        return _call(name, given.texts, plain)

    return rule


def _bias_product(given: Given) -> str:
    """The bias of a linear layer, which Inductor expands to all rows first."""
    bias = given.values[0]
    row = f"{given.texts[0]}[0]" if bias.dim() == 2 and bias.stride(0) == 0 else given.texts[0]
    return _call("torch.addmm", [row, *given.texts[1:]], {"out": given.keywords.get("out")})


def _convolution(given: Given) -> str:
    x, settings = given.values[0], given.settings
    dims = x.dim() - 2
    if dims not in (1, 2, 3):
        raise Unfit("a convolution of more than three dimensions")
    defaults = {"stride": 1, "padding": 0, "output_padding": 0, "groups": 1, "dilation": 1}
    transposed = bool(settings.get("transposed"))
    if not transposed:
        del defaults["output_padding"]
    keywords: dict[str, str | None] = {"bias": given.keywords.get("bias")}
    if keywords["bias"] == "None":
        keywords["bias"] = None
    for name, default in defaults.items():
        value = settings.get(name, default)
        many = value if isinstance(value, list | tuple) else (value,)
        if any(item != default for item in many):
            keywords[name] = str(many[0]) if len(set(many)) == 1 else str(tuple(many))
    name = f"nn.functional.conv{'_transpose' if transposed else ''}{dims}d"
    return _call(name, given.texts[:2], keywords)


# -- attention ----------------------------------------------------------------------------------------


def _attention(bias: int | None, dropout: int, causal: int) -> Rule:
    """The public function chooses the same implementation for the same tensors; ``bias``, ``dropout`` and
    ``causal`` are the places of these arguments."""

    def rule(given: Given) -> str:
        if given.value(dropout, "dropout_p", 0.0):
            raise Unfit("attention with dropout")
        query, key = given.values[0], given.values[1]
        mask = given.text(bias, "attn_bias") if bias is not None else "None"
        keywords = {
            "attn_mask": None if mask == "None" else mask,
            "is_causal": "True" if given.value(causal, "is_causal", False) else None,
            "scale": given.keywords.get("scale"),
            "enable_gqa": "True" if query.shape[1] != key.shape[1] else None,
        }
        return _call("nn.functional.scaled_dot_product_attention", given.texts[:3], keywords)

    return rule


# -- Fourier transforms -------------------------------------------------------------------------------

FORWARD_NORMS = ("backward", "ortho", "forward")
INVERSE_NORMS = ("forward", "ortho", "backward")
"""By the number that stands for no factor, one over the root, and one over the count."""


def _real_transform(given: Given) -> str:
    dims, norm, onesided = given.values[1], given.values[2], given.values[3]
    name = "rfft" if onesided else "fft"
    return _transform(given.texts[0], name, dims, FORWARD_NORMS[norm], {})


def _to_real(given: Given) -> str:
    x, dims, norm, last = given.values[:4]
    sizes = (*(int(x.shape[dim]) for dim in dims[:-1]), last)
    shape = {"s": str(sizes)} if len(dims) > 1 else {"n": str(last)}
    return _transform(given.texts[0], "irfft", dims, INVERSE_NORMS[norm], shape)


def _complex_transform(given: Given) -> str:
    dims, norm, forward = given.values[1], given.values[2], given.values[3]
    norms = FORWARD_NORMS if forward else INVERSE_NORMS
    return _transform(given.texts[0], "fft" if forward else "ifft", dims, norms[norm], {})


def _transform(x: str, name: str, dims: Sequence[int], norm: str, shape: Mapping[str, str]) -> str:
    keywords: dict[str, str | None] = {**shape}
    keywords["dim"] = str(tuple(dims)) if len(dims) > 1 else str(dims[0])
    keywords["norm"] = None if norm == "backward" else f'"{norm}"'
    return _call(f"torch.fft.{name}{'n' if len(dims) > 1 else ''}", [x], keywords)


# -- places -------------------------------------------------------------------------------------------


def _slice(given: Given) -> str:
    x, dim = given.values[0], given.value(1, "dim", 0) % given.values[0].dim()
    start, end, step = (given.value(p, n) for p, n in ((2, "start"), (3, "end"), (4, "step")))
    first = "" if not start else str(start)
    last = "" if end is None or end >= x.shape[dim] else str(end)
    by = f":{step}" if step not in (None, 1) else ""
    return f"{given.texts[0]}[{':, ' * dim}{first}:{last}{by}]"


def _full(given: Given) -> str:
    kept = {k: t for k, t in given.keywords.items() if k not in ("layout", "pin_memory", "device")}
    return _call("torch.full", given.texts[:2], {**kept, "device": given.device})


def _copied(given: Given) -> str:
    """The second operand in the form of the first."""
    return f"torch.empty_like({given.texts[0]}).copy_({given.texts[1]})"


def _embedding_bag(given: Given) -> str:
    weight, index, offsets = given.texts[:3]
    mode = ("sum", "mean", "max")[int(given.value(4, "mode", 0))]
    padding = given.value(8, "padding_idx", -1)
    keywords = {
        "mode": f'"{mode}"',
        "per_sample_weights": _unless_none(given.text(6, "per_sample_weights")),
        "include_last_offset": "True" if given.value(7, "include_last_offset", False) else None,
        "padding_idx": str(padding) if padding is not None and padding >= 0 else None,
    }
    return _call("nn.functional.embedding_bag", [index, weight, offsets], keywords)


def _unless_none(text: str) -> str | None:
    return None if text == "None" else text


def _view_dtype(given: Given) -> str:
    return f"{given.texts[0]}.view({', '.join(given.texts[1:])})"


OPERATORS: Mapping[str, Rule] = {
    "_scaled_dot_product_cudnn_attention": _attention(3, 5, 6),
    "_scaled_dot_product_efficient_attention": _attention(3, 5, 6),
    "_scaled_dot_product_flash_attention": _attention(None, 3, 4),
    "_fft_r2c": _real_transform,
    "_fft_c2r": _to_real,
    "_fft_c2c": _complex_transform,
    "slice": _slice,
    "full": _full,
    "copy": _copied,
    "view": _view_dtype,
    "_embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag,
    "convolution": lambda given: _convolution(_named_convolution(given)),
}

CONVOLUTION: tuple[str, ...] = (
    "bias",
    "stride",
    "padding",
    "dilation",
    "transposed",
    "output_padding",
    "groups",
)


def _named_convolution(given: Given) -> Given:
    """ATen's form has its settings by place."""
    texts: dict[str, str] = dict(zip(CONVOLUTION, given.texts[2:], strict=False))
    values: dict[str, Any] = dict(zip(CONVOLUTION, given.values[2:], strict=False))
    return Given(given.texts[:2], given.values[:2], texts, values, given.device)


EXTERN: Mapping[str, Rule] = {
    "mm": _product("torch.mm"),
    "bmm": _product("torch.bmm"),
    "addmm": _product("torch.addmm"),
    "baddbmm": _product("torch.baddbmm"),
    "bias_addmm": _bias_product,
    "convolution": _convolution,
}
"""What ``extern_kernels`` has, by name."""


def run_without_data(name: str, extern: bool, values: Sequence[Any], settings: Mapping[str, Any]) -> Any:
    """The results of a call on tensors without data."""
    plain = {k: v for k, v in settings.items() if k not in ("out", "layout", "pin_memory")}
    if extern and name == "convolution":
        order = [plain.get(key) for key in CONVOLUTION]
        return torch.ops.aten.convolution.default(*values[:2], *order)
    packet: Any = torch.ops.aten
    for step in name.split("."):
        packet = getattr(packet, step)
    if "device" in plain:
        plain["device"] = "meta"
    return packet(*values, **plain)


def operations(name: str, values: Sequence[Any], made: Any) -> float:
    """Floating-point operations of a product, a convolution or an attention; none of anything else."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if name in ("mm", "bmm", "addmm", "baddbmm"):
        return 2.0 * made.numel() * tensors[-1].shape[-2]
    if name == "convolution":
        return 2.0 * made.numel() * tensors[1].numel() / max(1, tensors[1].shape[0])
    if name.startswith("_scaled_dot_product"):
        return 4.0 * tensors[0].numel() * tensors[1].shape[-2]
    return 0.0

"""Operators of ATen under the names that people use: what a kernel file may call, with the same arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from egg.evaluator.static.namespaces import judge
from egg.expert.parts import Unfit

Arguments = Sequence[str]
Keywords = Mapping[str, str]

NAMESPACES = {"linalg_": "torch.linalg", "fft_": "torch.fft", "special_": "torch.special"}
"""Operators whose name begins so are functions of these modules, without the beginning."""
SAME = {
    "im2col": "nn.functional.unfold", "col2im": "nn.functional.fold", "_conj": "torch.conj",
    "_neg_view": "torch.neg",
}  # fmt: skip
"""Other names for the same function, the same arguments in the same order."""
METHODS = frozenset(["unfold"])
"""Methods of a tensor beside which ``torch.nn.functional`` has another function of the same name."""
MODES = {"linear1d": "linear", "bilinear2d": "bilinear", "bicubic2d": "bicubic", "trilinear3d": "trilinear"}
"""Interpolation between neighbours, which has corners to align; by what the operators' names end in."""
NEAREST = {
    f"{kind}{dims}d": kind.replace("_", "-") for kind in ("nearest", "nearest_exact") for dims in (1, 2, 3)
}


def public_call(target: str, arguments: Arguments, keywords: Keywords, results: int) -> str:
    """A call of ``target`` (``torch.topk``, ``torch.ops.aten.topk.default``) as an expression."""
    name = target.split(".")[3] if target.startswith("torch.ops.") else target.rsplit(".", 1)[-1]
    rule = _RULES.get(name) or _RULES.get(name.rstrip("0123456789d"))
    if rule is not None:
        return rule(name, arguments, keywords)
    path = _path(target, name, results)
    if path is not None:
        return f"{path}({_listed(arguments, keywords)})"
    if hasattr(torch.Tensor, name) and not name.startswith("_") and arguments:
        return f"{arguments[0]}.{name}({_listed(arguments[1:], keywords)})"
    raise Unfit(f"{target} has no name that a kernel file may use")


def _path(target: str, name: str, results: int) -> str | None:
    """Where it lives in public, if it does."""
    if name in SAME:
        return SAME[name]
    for beginning, module in NAMESPACES.items():
        if name.startswith(beginning):
            return f"{module}.{name.removeprefix(beginning)}"
    if not target.startswith("torch.ops."):
        return target if judge(target) is None else None
    if name in METHODS:
        return None
    for candidate in (name, f"{name}_with_indices"):
        several = candidate.endswith("_with_indices")
        if hasattr(torch.nn.functional, candidate) and several == (results > 1):
            return f"nn.functional.{candidate}"
    return None


def _listed(arguments: Arguments, keywords: Keywords) -> str:
    return ", ".join([*arguments, *(f"{name}={value}" for name, value in keywords.items())])


def _index(name: str, arguments: Arguments, keywords: Keywords) -> str:
    """``x[:, rows, :, columns]``; a dimension without places is taken whole."""
    x, places = arguments
    texts = [":" if text == "None" else text for text in _elements(places)]
    while len(texts) > 1 and texts[-1] == ":":
        texts.pop()
    return f"{x}[{', '.join(texts)}]"


def _elements(text: str) -> list[str]:
    """Of a tuple's text."""
    found, depth, last = [], 0, 1
    for place, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if depth == 0 or (depth == 1 and letter == ","):
            found.append(text[last:place].strip())
            last = place + 1
    return [element for element in found if element]


def _resized(name: str, arguments: Arguments, keywords: Keywords) -> str:
    """``upsample_bilinear2d(x, size, align_corners, scales)``; where both are given, the size counts."""
    kind = name.removeprefix("_").removeprefix("upsample_").removesuffix("_aa")
    x, size, *rest = arguments
    mode = MODES.get(kind) or NEAREST[kind]
    corners = rest.pop(0) if kind in MODES and rest else None
    settings = {"size": size} if size != "None" else {"scale_factor": rest[0]} if rest else {}
    settings |= {"mode": f'"{mode}"'} if mode != "nearest" else {}
    settings |= {"align_corners": corners} if corners not in (None, "False") else {}
    settings |= {"antialias": "True"} if name.endswith("_aa") else {}
    return f"nn.functional.interpolate({_listed([x], {**settings, **keywords})})"


def _padded(mode: str) -> Callable[[str, Arguments, Keywords], str]:
    return lambda name, arguments, keywords: (
        f'nn.functional.pad({arguments[0]}, {arguments[1]}, mode="{mode}")'
    )


def _stft(name: str, arguments: Arguments, keywords: Keywords) -> str:
    """The operator has no padding of its own, the function has, and other arguments behind it."""
    named = ("normalized", "onesided", "return_complex", "align_to_window")
    settings = {key: text for key, text in zip(named, arguments[5:], strict=False) if text != "None"}
    first = _listed(arguments[:5], {"center": "False", **settings, **keywords})
    return f"torch.stft({first})"


_RULES: dict[str, Callable[[str, Arguments, Keywords], str]] = {
    "index": _index,
    "stft": _stft,
    **{f"{private}upsample_{kind}": _resized for kind in (*MODES, *NEAREST) for private in ("", "_")},
    **{f"_upsample_{kind}_aa": _resized for kind in ("bilinear2d", "bicubic2d")},
    "reflection_pad": _padded("reflect"),
    "replication_pad": _padded("replicate"),
}

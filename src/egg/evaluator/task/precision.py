"""PyTorch's switches of matrix precision: set for a scope, whichever interface this version has."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from egg.core.policy import Precision

HALF_DTYPES: Mapping[Precision, torch.dtype] = types.MappingProxyType(
    {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}
)


@contextlib.contextmanager
def double_scope() -> Iterator[None]:
    """Make fp64 the default dtype, so that tensors a forward creates itself fit its fp64 operands."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def precision_scope(precision: Precision) -> Iterator[None]:
    """Hold PyTorch's TF32 switches at what ``precision`` declares, and put them back afterwards.

    FP32 switches TF32 off everywhere, TF32 on everywhere; the others are PyTorch's own
    defaults: off for matrix products, on for cuDNN. PyTorch has two interfaces to these
    switches and reading the older one raises while the two disagree, so all of the newer
    ones are made neutral first and the older setters, which keep both in step, do the rest.
    """
    matmul, cudnn = {
        Precision.FP32: (False, False),
        Precision.TF32: (True, True),
    }.get(precision, (False, True))
    saved_old, saved_new = _read_old_switches(), _read_new_switches()
    try:
        _write_new_switches(dict.fromkeys(("all", "cudnn"), "none"))
        torch.set_float32_matmul_precision("highest")
        torch.backends.cuda.matmul.allow_tf32 = matmul
        torch.backends.cudnn.allow_tf32 = cudnn
        yield
    finally:
        _write_new_switches(dict.fromkeys(("all", "cudnn"), "none"))
        _write_old_switches(saved_old)
        _write_new_switches(saved_new)


def _switch_holders() -> dict[str, Any]:
    backends = torch.backends
    holders = {
        "all": backends,
        "cudnn": backends.cudnn,
        "matmul": backends.cuda.matmul,
        "conv": getattr(backends.cudnn, "conv", None),
        "rnn": getattr(backends.cudnn, "rnn", None),
        "cpu": getattr(backends.mkldnn, "matmul", None),
    }
    return {name: h for name, h in holders.items() if h is not None and hasattr(h, "fp32_precision")}


def _read_new_switches() -> dict[str, str]:
    return {name: holder.fp32_precision for name, holder in _switch_holders().items()}


def _write_new_switches(values: Mapping[str, str]) -> None:
    for name, holder in _switch_holders().items():
        if name in values and holder.fp32_precision != values[name]:
            holder.fp32_precision = values[name]


def _read_old_switches() -> dict[str, Any]:
    """The older flags; one that cannot be read (the newer interface overrode it) is left out."""
    readers: dict[str, Callable[[], Any]] = {
        "precision": torch.get_float32_matmul_precision,
        "matmul": lambda: torch.backends.cuda.matmul.allow_tf32,
        "cudnn": lambda: torch.backends.cudnn.allow_tf32,
    }
    found: dict[str, Any] = {}
    for name, read in readers.items():
        with contextlib.suppress(RuntimeError):
            found[name] = read()
    return found


def _write_old_switches(values: Mapping[str, Any]) -> None:
    if "precision" in values:
        torch.set_float32_matmul_precision(values["precision"])
    if "matmul" in values:
        torch.backends.cuda.matmul.allow_tf32 = values["matmul"]
    if "cudnn" in values:
        torch.backends.cudnn.allow_tf32 = values["cudnn"]

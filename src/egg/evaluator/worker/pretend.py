"""A worker without a GPU, as a candidate's host code sees it: as if the target were there.

Candidates ask at import time how many multiprocessors there are, assert that their inputs
are on the GPU, and allocate on ``"cuda"``; a kernel that does so is no worse for it. Queries
get the target's numbers, and inside the candidate's own code tensors claim to be where they
would be. Everybody else sees the truth.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from egg.evaluator.offline.fakecuda import FakeContext, FakeStream, properties
from egg.evaluator.offline.target import GpuTarget

CANDIDATE = "candidate"
_IS_CUDA = torch.Tensor.is_cuda.__get__  # pyright: ignore[reportAttributeAccessIssue]


class ClaimCuda(TorchFunctionMode):
    """``x.is_cuda`` is true, ``device="cuda"`` means here: for calls made by the candidate's own code."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if sys._getframe(1).f_globals.get("__name__") == CANDIDATE:
            if func == _IS_CUDA:
                return True
            if str(kwargs.get("device", "")).startswith("cuda"):
                kwargs = {**kwargs, "device": "cpu"}
        return func(*args, **kwargs)


def answer_for(target: GpuTarget) -> None:
    """Answer device queries as a machine with ``target`` would, for the rest of this process's life."""

    def always(value: Any) -> Any:
        return lambda *_, **__: value

    answers = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": target.card,
        "get_device_capability": target.capability,
        "get_device_properties": properties(target),
        "current_stream": FakeStream(),
        "default_stream": FakeStream(),
        "synchronize": None,
        "empty_cache": None,
        "set_device": None,
    }
    for name, value in answers.items():
        setattr(torch.cuda, name, always(value))
    torch.cuda.device = FakeContext  # pyright: ignore[reportAttributeAccessIssue]

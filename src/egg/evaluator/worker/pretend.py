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
_DEVICE = torch.Tensor.device.__get__  # pyright: ignore[reportAttributeAccessIssue]
_IS_CUDA = torch.Tensor.is_cuda.__get__  # pyright: ignore[reportAttributeAccessIssue]


class ClaimCuda(TorchFunctionMode):
    """``x.is_cuda`` is true and ``x.device`` a GPU, for calls made by the candidate's own code.

    A device that is named to PyTorch (``device=x.device``) means here, in any code: it may be the answer
    that the candidate was given.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if sys._getframe(1).f_globals.get("__name__") == CANDIDATE:
            if func == _IS_CUDA:
                return True
            if func == _DEVICE:
                return torch.device("cuda", 0)
            if func is torch.Tensor.get_device:
                return 0
        return func(*(_here(a) for a in args), **{name: _here(v) for name, v in kwargs.items()})


def _here(value: Any) -> Any:
    named = isinstance(value, torch.device) or (isinstance(value, str) and value.split(":")[0] == "cuda")
    return torch.device("cpu") if named and str(value).startswith("cuda") else value


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
        "is_current_stream_capturing": True,  # so a file that replays a recording makes its launches
        "synchronize": None,
        "empty_cache": None,
        "set_device": None,
    }
    for name, value in answers.items():
        setattr(torch.cuda, name, always(value))
    torch.cuda.device = FakeContext  # pyright: ignore[reportAttributeAccessIssue]

"""A GPU of the CPU for tests: CUDA graphs that record operators and run them again, and a clock of its own.

A recorded operator runs again on the same tensors and writes its results to the same places, as the kernels
of a CUDA graph do. While recording nothing takes effect: what an operator wrote is put back at the end.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class FakeGpu:
    """What has happened, and what it shall do next."""

    def __init__(self) -> None:
        self.now = 0.0
        self.recordings = 0
        self.replays = 0
        self.recording: FakeGraph | None = None
        self.fails: Exception | None = None
        """Raised by the next recordings."""
        self.draws = 0
        """The state of the generator."""


class FakeGraph(TorchDispatchMode):
    gpu: FakeGpu

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[Any, ...]] = []
        self._before: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def capture_begin(self, capture_error_mode: str) -> None:
        assert capture_error_mode == "thread_local"
        self.gpu.recording = self
        self.__enter__()

    def capture_end(self) -> None:
        self.__exit__(None, None, None)
        self.gpu.recording = None
        for tensor, value in self._before.values():
            tensor.copy_(value)
        if self.gpu.fails is not None:
            raise self.gpu.fails
        self.gpu.recordings += 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "egg":  # what it launches is recorded, and not what it does on the host
            with self:
                return func(*args, **kwargs)
        if func._schema.is_mutable:
            for tensor in tree_leaves((args, kwargs)):
                if isinstance(tensor, torch.Tensor) and tensor.data_ptr() not in self._before:
                    self._before[tensor.data_ptr()] = tensor, tensor.clone()
        made = func(*args, **kwargs)
        self._calls.append((func, args, kwargs, made))
        return made

    def replay(self) -> None:
        self.gpu.replays += 1
        for func, args, kwargs, made in self._calls:
            for new, old in zip(tree_leaves(func(*args, **kwargs)), tree_leaves(made), strict=True):
                if isinstance(old, torch.Tensor) and new.data_ptr() != old.data_ptr():
                    old.copy_(new)


class FakeEvent:
    gpu: FakeGpu

    def __init__(self, enable_timing: bool) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = self.gpu.now

    def elapsed_time(self, other: FakeEvent) -> float:
        return other.at - self.at


def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """In the place of what ``torch.cuda`` does with graphs, streams and events."""
    gpu = FakeGpu()
    graph, event = type("Graph", (FakeGraph,), {"gpu": gpu}), type("Event", (FakeEvent,), {"gpu": gpu})
    for name, value in {
        "CUDAGraph": graph,
        "Event": event,
        "Stream": lambda device: "side",
        "stream": lambda stream: nullcontext(),
        "current_stream": lambda device: "main",
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
        "get_rng_state": lambda device: torch.tensor(gpu.draws),
        "is_current_stream_capturing": lambda: gpu.recording is not None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return gpu

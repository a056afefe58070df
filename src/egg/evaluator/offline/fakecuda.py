"""``torch.cuda`` as it would answer on a machine with the target GPU.

Streams, events and graphs keep their meaning as far as host code can see it: time passes
by one pretended millisecond per launch, and a CUDA graph holds the launches made while it
was recorded and repeats them on replay.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from egg.evaluator.offline.fakedriver import DEVICE, Recorder, Trace
from egg.evaluator.offline.properties import properties
from egg.evaluator.offline.seams import replaced
from egg.evaluator.static.likeness import alike, answering


class FakeContext:
    """A context manager that changes nothing: ``torch.cuda.stream``."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> FakeContext:
        return self

    def __exit__(self, *_: Any) -> None:
        return None


class FakeStream(FakeContext):
    cuda_stream = 0
    device = torch.device("cuda", DEVICE)
    device_index = DEVICE

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        return None

    def wait_stream(self, stream: Any) -> None:
        return None

    def wait_event(self, event: Any) -> None:
        return None

    def record_event(self, event: Any = None) -> Any:
        event = event or torch.cuda.Event()
        event.record(self)
        return event


def _event_class(recorder: Recorder) -> type:
    class FakeEvent:
        def __init__(self, *_: Any, **__: Any) -> None:
            self.at = recorder.clock

        def record(self, stream: Any = None) -> None:
            self.at = recorder.clock

        def elapsed_time(self, end: Any) -> float:
            return float(max(end.at - self.at, 1))

        def query(self) -> bool:
            return True

        def synchronize(self) -> None:
            return None

        def wait(self, stream: Any = None) -> None:
            return None

    return FakeEvent


def _graph_classes(recorder: Recorder) -> tuple[type, type]:
    class FakeGraph:
        def __init__(self, *_: Any, **__: Any) -> None:
            self._trace = Trace()
            self._recording: ExitStack | None = None

        def capture_begin(self, *_: Any, **__: Any) -> None:
            self._trace = Trace()
            self._recording = ExitStack()
            self._recording.enter_context(recorder.into(self._trace))
            recorder.open_graphs += 1

        def capture_end(self) -> None:
            if self._recording is not None:
                self._recording.close()
                self._recording = None
                recorder.open_graphs -= 1

        def replay(self) -> None:
            recorder.trace.extend(self._trace)

        def reset(self) -> None:
            self._trace = Trace()

        def pool(self) -> tuple[int, int]:
            return (0, 0)

    class FakeGraphCapture:
        def __init__(self, cuda_graph: Any, *_: Any, **__: Any) -> None:
            self._graph = cuda_graph

        def __enter__(self) -> None:
            self._graph.capture_begin()

        def __exit__(self, *_: Any) -> None:
            self._graph.capture_end()

    return FakeGraph, FakeGraphCapture


def _like(original: Any, stand_in: Any) -> Any:
    """Printed as what it stands for; a function takes what the original takes."""
    if isinstance(stand_in, type):
        return alike(type(original.__name__, (stand_in,), {}), original)
    return answering(original, stand_in) if inspect.isfunction(original) else stand_in


@contextmanager
def pretended_cuda(recorder: Recorder) -> Iterator[None]:
    """Within, ``torch.cuda`` describes one device: the recorder's target."""
    target = recorder.target
    stream = FakeStream()
    graph, graph_capture = _graph_classes(recorder)

    def answer(value: Any) -> Any:
        return lambda *_, **__: value

    none = answer(None)
    cuda = {
        "is_available": answer(True),
        "is_initialized": answer(True),
        "init": none,
        "_lazy_init": none,
        "device_count": answer(1),
        "current_device": answer(DEVICE),
        "set_device": none,
        "_exchange_device": answer(DEVICE),
        "_maybe_exchange_device": answer(DEVICE),
        "device_of": FakeContext,
        "get_device_name": answer(target.card),
        "get_device_capability": answer(target.capability),
        "get_device_properties": answer(properties(target)),
        "get_arch_list": answer([target.name]),
        "is_bf16_supported": answer(True),
        "synchronize": none,
        "Stream": FakeStream,
        "ExternalStream": FakeStream,
        "stream": FakeContext,
        "StreamContext": FakeContext,
        "set_stream": none,
        "current_stream": answer(stream),
        "default_stream": answer(stream),
        "Event": _event_class(recorder),
        "CUDAGraph": graph,
        "graph": graph_capture,
        "graph_pool_handle": answer((0, 0)),
        "is_current_stream_capturing": lambda: recorder.open_graphs > 0,
        "empty_cache": none,
        "reset_peak_memory_stats": none,
        "memory_allocated": answer(0),
        "memory_reserved": answer(0),
        "max_memory_allocated": answer(0),
        "mem_get_info": answer((target.memory_bytes, target.memory_bytes)),
        "manual_seed": none,
        "manual_seed_all": none,
    }
    with ExitStack() as stack:
        known = {k: _like(getattr(torch.cuda, k), v) for k, v in cuda.items() if hasattr(torch.cuda, k)}
        stack.enter_context(replaced(torch.cuda, **known))
        stack.enter_context(replaced(torch, set_default_device=none))
        # RNN layers otherwise ask cuDNN to lay out their weights in real memory.
        stack.enter_context(replaced(torch.backends.cudnn, is_acceptable=answer(False)))
        yield

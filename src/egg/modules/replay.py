"""A compiled graph replayed as a CUDA graph, whatever compiled it: Inductor, or the operators one by one.

Where launches take the host longer than the GPU needs to run them, recording them once and replaying them is
what makes a model fast. PyTorch does it for Inductor's code alone (``mode="reduce-overhead"``). Recorded
here, one compiled function serves with replay and without, and kernels of the store are recorded with it.

- The first call runs as it is: kernels are compiled and packed, and what the text does not show is seen.
- The second call with the same weights is recorded and replayed. Weights are read where they lie; other
  inputs are copied to where the recording reads them. Results are copied out: they are the caller's to keep.
- A weight that lies elsewhere makes the recording void. So does a new value, where kernels keep something
  that they derived from it: the host would derive it again, and a replay has no host. A new recording is made
  once the same weights come twice: a program that changes them at every call does not record at every call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import torch

from egg.modules.counts import Counts
from egg.modules.replayable import Inputs

Call = Callable[..., Any]
_address = torch.Tensor.data_ptr
"""Of the class, for ``map``: a model has hundreds of weights, and each is looked at before every replay."""


class Replayed:
    """Answers the calls of a graph with fixed sizes: recorded from the second one on, where it can be."""

    def __init__(self, call: Call, inputs: Inputs, counts: Sequence[Counts] = ()) -> None:
        """``counts``: of the kernels in it, which are counted on the host."""
        self.obstacle = inputs.obstacle
        """Why it runs as it is at every call; empty where it is replayed."""
        self._call, self._inputs, self._counts = call, inputs, counts
        versioned = tuple(p for p in inputs.fixed if p not in inputs.written) if counts else ()
        self._weights, self._versioned = _taking(inputs.fixed), _taking(versioned)
        self._met: Any = None
        self._recording: Recording | None = None
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> Any:
        if self.obstacle or torch.cuda.is_current_stream_capturing():
            return self._call(*args)
        with self._lock:
            state = self._state(args)
            if self._recording is None or state != self._met:
                return self._unrecorded(args, state)
            for counts, kernel, fallback in self._recording.counted:
                counts.kernel += kernel
                counts.fallback += fallback
            return self._recording.replay(args)

    def _state(self, args: Sequence[Any]) -> Any:
        """Of the weights: where they lie, and for kernels that keep something of them, their versions."""
        places = list(map(_address, self._weights(args)))
        try:
            return places, [weight._version for weight in self._versioned(args)]
        except RuntimeError:  # a tensor of the inference mode: it is like none before
            return object()

    def _unrecorded(self, args: Sequence[Any], state: Any) -> Any:
        self._recording = None
        if state != self._met:
            self._met = state
            made, self.obstacle = first_call(self._call, args)
            if any(weight.is_inference() for weight in self._versioned(args)):
                self.obstacle = self.obstacle or "weights of the inference mode do not show that they changed"
            return made
        try:
            self._recording = Recording(self._call, args, self._inputs, self._counts)
        except torch.OutOfMemoryError:
            self.obstacle = "there is no memory for a recording"
        except RuntimeError as error:  # nothing has run: the call below is the first one
            self.obstacle = f"it cannot be recorded: {str(error).splitlines()[0]}"
        if self._recording is None:
            torch.cuda.empty_cache()
            return self._call(*args)
        return self._recording.replay(args)


class Recording:
    """A CUDA graph of one call, with the memory that it reads and writes."""

    def __init__(self, call: Call, args: Sequence[Any], inputs: Inputs, counts: Sequence[Counts]) -> None:
        fixed = set(inputs.fixed)
        self._device = args[0].device
        self._copied = [place for place in range(len(args)) if place not in fixed]
        self._written = inputs.written
        with torch.inference_mode(False):  # so that calls of either mode may copy into them
            given = [arg if place in fixed else _like(arg) for place, arg in enumerate(args)]
        self._places = [_distinct(given[place]) for place in self._copied]
        self._expanded = [0 in given[place].stride() for place in self._copied]
        self._copy_in(args)
        before = [(found.kernel, found.fallback) for found in counts]
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        self._graph = torch.cuda.CUDAGraph()
        self._stream = torch.cuda.current_stream(self._device)
        side = torch.cuda.Stream(self._device)
        with torch.cuda.stream(side):
            # errors of other threads, which may copy or allocate meanwhile, are none of this recording
            self._graph.capture_begin(capture_error_mode="thread_local")
            try:
                made = call(*given)
            finally:
                self._graph.capture_end()
        self._kind = type(made)
        self._results = [(result, _copier(result)) for result in made]
        self.counted = [
            (found, found.kernel - old[0], found.fallback - old[1])
            for found, old in zip(counts, before, strict=True)
        ]

    def replay(self, args: Sequence[Any]) -> Any:
        """The results of one call, in memory of their own."""
        stream = torch.cuda.current_stream(self._device)
        if stream != self._stream:  # the memory is shared by all replays: they run one after another
            stream.wait_stream(self._stream)
            self._stream = stream
        self._copy_in(args)
        self._graph.replay()
        for place in self._written:
            if not args[place].is_inference():
                torch.autograd.graph.increment_version(args[place])
        return self._kind([own(result) for result, own in self._results])

    def _copy_in(self, args: Sequence[Any]) -> None:
        for place, argument, expanded in zip(self._places, self._copied, self._expanded, strict=True):
            place.copy_(_distinct(args[argument]) if expanded else args[argument])


def first_call(call: Call, args: Sequence[Any]) -> tuple[Any, str]:
    """What a call makes, and why calls like it cannot be replayed; empty where they can."""
    device = args[0].device
    before = torch.cuda.get_rng_state(device)
    made = call(*args)
    if not torch.equal(before, torch.cuda.get_rng_state(device)):
        return made, "it draws random numbers"
    return made, unownable(args, made)


def unownable(args: Sequence[Any], made: Any) -> str:
    """Why copies of the results would not be the same to the caller; empty where they are."""
    if type(made) not in (tuple, list):
        return "its results are no sequence"
    results = [result for result in made if isinstance(result, torch.Tensor)]
    if shares_memory(args, results):
        return "results of it share memory"
    if any(result.device != args[0].device for result in results):
        return "a result is on another device"
    if any(isinstance(result, list | tuple | dict) for result in made):
        return "its results are nested"
    if any(_distinct(result).shape != result.shape for result in results):
        return "a result repeats elements in memory"
    return ""


def shares_memory(args: Any, made: Any) -> bool:
    """Whether a result lies in the memory of an argument or of another result: a copy of it would not."""
    given, results = (
        [value.untyped_storage().data_ptr() for value in values if isinstance(value, torch.Tensor)]
        for values in (args, made)
    )
    held = [place for place in results if place]
    return len(set(held)) < len(held) or not set(held).isdisjoint(given)


def _taking(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """What takes the arguments at these places out of all, without a loop of Python's."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda args: tuple(args[place] for place in places)


def _copier(result: Any) -> Callable[[Any], Any]:
    """What copies a result at every replay, strides included; what is no tensor is a number of the graph."""
    if not isinstance(result, torch.Tensor):
        return lambda number: number
    if torch.empty_like(result, device="meta").stride() == result.stride():
        return torch.Tensor.clone
    return lambda tensor: _like(tensor).copy_(tensor)


def _like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def _distinct(tensor: torch.Tensor) -> torch.Tensor:
    """The elements that are not repeated: an expanded dimension once."""
    strides = tensor.stride()
    if 0 not in strides:
        return tensor
    sizes = [size if step else min(size, 1) for size, step in zip(tensor.shape, strides, strict=True)]
    return tensor.as_strided(sizes, strides)

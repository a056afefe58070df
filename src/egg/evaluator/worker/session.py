"""One candidate process, as the judge commands it: every request of the protocol has its method here.

The methods lie in three classes: :class:`~egg.evaluator.worker.holding.Holding` (memory, instance, weights),
:class:`~egg.evaluator.worker.calling.Calling` (calls), and :class:`Session` (the process, and its kernels as
they were compiled).
"""

from __future__ import annotations

import contextlib
import linecache
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from egg.evaluator.offline.target import GpuTarget
from egg.evaluator.restrict import raised
from egg.evaluator.restrict.names import RestrictedError
from egg.evaluator.tensors import memory
from egg.evaluator.timing import stopwatch
from egg.evaluator.transport import exchange, protocol
from egg.evaluator.transport.strict import plain
from egg.evaluator.worker import customops, depth, faults, pretend
from egg.evaluator.worker import fence as fences
from egg.evaluator.worker.calling import Calling
from egg.evaluator.worker.device_turn import DeviceTurn, compile_without
from egg.evaluator.worker.fence import Arrangement
from egg.evaluator.worker.importing import import_candidate
from egg.evaluator.worker.inputs import Inputs
from egg.evaluator.worker.launches import (
    MOST_DESCRIBED,
    InterpretedLaunches,
    JitLaunches,
    described_launches,
)
from egg.evaluator.worker.threads import ThreadWatch


class Session(Calling):
    """Serves requests until the judge hangs up."""

    def serve(self, message: Mapping[str, Any], fds: list[int]) -> dict[str, Any]:
        """Obey one request; what the candidate raises is answered as a fault."""
        try:
            return {"reply": plain(self.obey(protocol.request_from(message), fds))}
        except BaseException as error:
            if self._fence is not None and self._fence.failed:
                return {"fault": plain(protocol.Complaint("limits.memory", self._fence.failed))}
            return {"fault": plain(faults.describe(error))}

    def obey(self, request: protocol.Request[Any], fds: list[int]) -> Any:
        handler: Callable[..., Any] = getattr(self, f"on_{request.command}")
        raised.forget()
        depth.as_of_a_script()
        try:
            reply = handler(request, fds) if isinstance(request, protocol.Attach) else handler(request)
        finally:
            if self._drawn:
                self._put_back()
                self._drawn = []
        _check_told()
        if self._fence is not None:
            self._fence.sweep()
        elif self._arena is not None and not request.keep_cache:
            memory.give_back_cache(self._device)
        return protocol.Done() if reply is None else reply

    def on_warm(self, asked: protocol.Warm) -> None:
        """Touch the device and set up the watch over launches, before there is a candidate."""
        self._device = torch.device(asked.device)
        customops.install(direct=self._device.type != "cuda")
        if asked.watch:
            interpreted = os.environ.get("TRITON_INTERPRET") == "1"
            self._launches = InterpretedLaunches() if interpreted else JitLaunches()
            self._threads = ThreadWatch()
        if self._device.type == "cuda":
            if asked.fence:
                self._fence, self._unfenced = fences.raised(self._device)
            torch.cuda.set_device(self._device)
            torch.cuda.synchronize(self._device)
            if asked.memory_fraction is not None and self._fence is None:
                torch.cuda.set_per_process_memory_fraction(asked.memory_fraction, self._device)
            torch.zeros(1, device=self._device).add_(1).item()
            self._turn = DeviceTurn(self._announce, self._synchronize)
            compile_without(self._turn)

    def on_fence(self, asked: protocol.Fence) -> protocol.FenceReport:
        """Lay everything that comes in another way; inputs are made anew, and so must the instance be."""
        if self._fence is None:
            return protocol.FenceReport(self._unfenced, "", ())
        self._fence.sweep()
        self._fence.arrangement = Arrangement(asked.arrangement)
        self._kept, self._held = [], []
        if self._arena is not None:
            self._inputs = Inputs(self._arena, self._device)
        return protocol.FenceReport("", self._fence.failed, tuple(self._fence.damaged))

    def on_canary(self, asked: protocol.Canary) -> protocol.Health:
        """Prove that this machine still runs a kernel and gets it right."""
        from egg.evaluator.worker.canary import increments

        return protocol.Health(increments(self._device))

    def on_asked(self, asked: protocol.Asked) -> protocol.Launches:
        """With which numbers kernels were launched so far, in the interpreter."""
        launches = self._launches
        return protocol.Launches(launches.asked() if isinstance(launches, InterpretedLaunches) else ())

    def on_configure(self, asked: protocol.Configure) -> protocol.Configurations:
        """Which of its configurations every autotuner is to take; on a GPU it measures and takes its own."""
        launches = self._launches
        if isinstance(launches, InterpretedLaunches):
            return launches.configure(asked.place, asked.lot)
        return protocol.Configurations(1)

    def on_watch(self, asked: protocol.Watch) -> None:
        """Note every kernel that one warm call launches.

        A call that replays a CUDA graph launches none itself: then a new instance is watched.
        """
        launches = self._launches
        if not isinstance(launches, JitLaunches):
            return
        with launches.watching() as watched:
            for attempt in range(2):
                if attempt:
                    self.on_fresh(protocol.Fresh())
                torch.manual_seed(asked.seed)
                self._call(self._arguments(asked.inputs, asked.slots))
                self._synchronize()
                if watched:
                    break
        self._watched = watched

    def on_kernels(self, asked: protocol.Kernels) -> protocol.KernelRows:
        """Resources and work of the kernels that were noted or captured; the GPU is not needed for it."""
        watched, self._watched = self._watched, []
        return described_launches(watched, len(watched) if asked.every else MOST_DESCRIBED)

    def on_profile(self, asked: protocol.Profile) -> protocol.DeviceTimes:
        """Device time by kernel name and the streams used, over one warm call."""
        arguments = self._arguments(asked.inputs, asked.slots)
        torch.manual_seed(asked.seed)
        microseconds, streams = stopwatch.profile_call(lambda: self._call(arguments), self._device)
        return protocol.DeviceTimes(microseconds, tuple(streams))

    def on_spans(self, asked: protocol.Spans) -> protocol.DeviceTimes:
        """Device time of every own kernel and every library operator, over one warm call."""
        from egg.evaluator.worker.spans import spans

        if not isinstance(self._launches, JitLaunches):
            return protocol.DeviceTimes({}, ())
        arguments = self._arguments(asked.inputs, asked.slots)
        torch.manual_seed(asked.seed)
        found = spans(lambda: self._call(arguments), self._launches, self._synchronize)
        return protocol.DeviceTimes(found, ())

    def on_capture(self, asked: protocol.Capture) -> protocol.Captured:
        """Run the forward at full size on fake tensors and compile every launch for the target."""
        from egg.evaluator.worker.precompile import precompile

        assert self._make is not None
        self._device = torch.device("cuda")
        small = None if asked.init is None else partial(self._made_otherwise, exchange.unwhole(asked.init))
        reply, self._watched = precompile(self._make, asked, small)
        return reply

    def on_follow(self, asked: protocol.Follow) -> protocol.Launches:
        """Run the forward on fake tensors of another size and name its launches; nothing is compiled."""
        from egg.evaluator.worker.precompile import followed

        self._device = torch.device("cuda")
        return followed(partial(self._made_otherwise, exchange.unwhole(asked.init)), asked)

    def on_plan(self, asked: protocol.Plan) -> protocol.Planned:
        """Run the constructor and one forward on fake tensors, and write down what they do with them."""
        from egg.evaluator.worker.planning import planned

        assert self._make is not None
        self._device = torch.device("cuda")
        return planned(self._make, asked)

    def _made_otherwise(self, init: Any) -> nn.Module:
        assert self._make is not None
        usual, self._init = self._init, init
        try:
            return self._make()
        finally:
            self._init = usual

    def on_pattern(self, asked: protocol.Pattern) -> protocol.Counts:
        """Interpret a pattern, as if ``target`` were there, and hold it to its own reference."""
        from egg.evaluator.worker import pattern

        assert self._launches is not None
        if asked.target is not None:
            pretend.answer_for(GpuTarget.of(asked.target))
        linecache.clearcache()  # another pattern may have been read from the same file
        pretended = asked.target is not None
        with pretend.ClaimCuda() if pretended else contextlib.nullcontext():
            found = pattern.run(import_candidate(asked.source), self._launches, pretended=pretended)
        return protocol.Counts(found)

    def on_compile_pattern(self, asked: protocol.CompilePattern) -> protocol.Counts:
        """Compile a pattern's kernels for ``target``."""
        from egg.evaluator.worker import pattern

        linecache.clearcache()
        target = GpuTarget.of(asked.target)
        return protocol.Counts(pattern.compiled(lambda: import_candidate(asked.source), target))


def _check_told() -> None:
    """Whether what the file raised reached us: this request is about to be answered as if there was none."""
    error = raised.first()
    if isinstance(error, RestrictedError):
        raise error
    if error is not None:
        raise RestrictedError(
            f"loses an exception: {faults.describe(error).evidence}", "restricted.swallowed"
        )

"""A Triton driver for a GPU that is not there, and the recorder that stands where launches would happen.

Triton's own host path stays in charge: it binds the arguments, specialises them,
evaluates heuristics and the grid. Two seams are taken over for the time of a capture:

- ``JITFunction._do_compile`` returns a :class:`RecordedKernel`, whose ``run`` notes the
  launch. The kernel is compiled for the target the first time it is launched, so that what
  Triton would raise at that point (an error in the kernel, shared memory over the limit) is
  raised here too, and host code that tunes by trying configurations drops the same ones.
- ``Autotuner._bench`` tries configurations in their order and takes the **first one
  that fits** the target: there is no clock here to choose by. One that compiles too slowly
  to tell is kept only if no other fits. The others are compiled where that is asked for: a
  tuner on a GPU compiles them all, and passes over some errors only.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from math import inf
from typing import Any

from triton.backends.driver import DriverBase
from triton.runtime import driver as driver_config
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from egg.evaluator.offline.launch import CompileFailed, Launch
from egg.evaluator.offline.seams import replaced
from egg.evaluator.offline.target import GpuTarget
from egg.evaluator.work.arguments import argument_forms

DEVICE = 0
"""Index of the one device there is."""
MOST_LAUNCHES = 2_000
"""Of one call that are kept one by one."""
UNSURE_MS = 1e6
"""Pretended time of a configuration that could not be compiled in time: the last resort of an autotuner."""


class Trace:
    """Launches and outside operations in the order of their first appearance, with counts."""

    def __init__(self) -> None:
        self._launches: dict[tuple[str, tuple[int, ...]], Launch] = {}
        self.ops: Counter[str] = Counter()
        self.each: list[Launch] = []
        """One after the other, none merged; up to a limit."""
        self.steps: list[Any] = []
        """Whatever a recorder notes of operators and launches, in order."""

    def add(self, launch: Launch) -> None:
        if len(self.each) < MOST_LAUNCHES:
            self.each.append(launch)
        slot = (launch.key, launch.grid)
        seen = self._launches.get(slot)
        if seen is not None:
            largest = max(seen, launch, key=lambda launch: launch.size)
            launch = replace(largest, count=seen.count + launch.count)
        self._launches[slot] = launch

    def extend(self, other: Trace) -> None:
        for launch in other.launches:
            self.add(launch)
        self.each = (self.each[: len(self.each) - len(other.launches)] + other.each)[:MOST_LAUNCHES]
        self.ops.update(other.ops)
        self.steps += other.steps

    @property
    def launches(self) -> tuple[Launch, ...]:
        return tuple(self._launches.values())


Compiler = Callable[[Launch], "tuple[Any, BaseException | None]"]
"""Compiles a launch: the compiled kernel (``None`` where it is not known), and what Triton would raise."""


class Recorder:
    """Where launches and operations of the running candidate go."""

    def __init__(self, target: GpuTarget, compiler: Compiler) -> None:
        self.target = target
        self.compiler = compiler
        self.trace = Trace()
        self.clock = 0
        """Pretended milliseconds: every launch takes one."""
        self.open_graphs = 0
        """CUDA graphs being recorded."""
        self.scalars: list[Any] = []
        """What host code read from tensors, in order."""
        self.answers: Iterator[Any] | None = None
        """What it reads where tensors have no values; ``None``: that is an error."""
        self.raw: dict[int, Any] = {}
        """Storages that were allocated and that no operator has filled since, by their identity."""
        self.functions: list[JITFunction] = []
        self.tuners: list[Autotuner] = []
        self._settled: Any = None
        self.every_until = 0.0
        """By the monotonic clock: until then configurations behind the first that fits are compiled."""
        self.uncompiled = 0
        """Those that were not, though asked for."""
        self.every = False

    @contextmanager
    def into(self, trace: Trace) -> Iterator[Trace]:
        """Send what happens meanwhile to ``trace``."""
        outer, self.trace = self.trace, trace
        try:
            yield trace
        finally:
            self.trace = outer

    def record(self, launch: Launch) -> None:
        self.clock += 1
        if launch.programs:
            self.trace.add(launch)

    def try_config(
        self, bench: Callable[..., Any], tuner: Autotuner, args: Any, config: Any, meta: Any
    ) -> Any:
        """One configuration of an autotuner: 0 for the first that fits, infinity for the others."""
        if tuner not in self.tuners:
            self.tuners.append(tuner)
        settled = self._settled is not None and self._settled is tuner.nargs
        late = time.monotonic() > self.every_until
        if settled and (late or not self.every):
            self.uncompiled += self.every
            return [inf] * 3

        known = True

        def run_once(kernel_call: Callable[[], None], **_: Any) -> list[float]:
            nonlocal known
            with self.into(Trace()) as trial:
                kernel_call()
            known = all(self.compiler(launch)[0] is not None for launch in trial.launches)
            return [0.0 if known else UNSURE_MS] * 3

        with replaced(tuner, do_bench=run_once):
            times = bench(tuner, *args, config=config, **meta)
        if settled:
            return [inf] * 3
        if known and times[0] == 0.0:
            self._settled = tuner.nargs
        return times


class RecordedKernel:
    """Stands for a ``CompiledKernel``: launching it notes the launch, reading it compiles it.

    Host code may size its grid by what the compiler decided (``n_regs``, ``metadata.shared``):
    those attributes come from really compiling the kernel for the target.
    """

    FROM_THE_COMPILER = frozenset(
        ("asm", "hash", "kernel", "metadata", "n_max_threads", "n_regs", "n_spills", "name", "src")
    )
    function = 0
    packed_metadata = ()

    def __init__(self, recorder: Recorder, launch: Launch) -> None:
        self._recorder, self._launch = recorder, launch

    def launch_metadata(self, *_: Any) -> None:
        return None

    def run(self, x: int, y: int, z: int, *rest: Any) -> None:
        """Triton hands over the stream, handles and hooks, and behind them every argument of the kernel."""
        names = list(self._launch.signature)
        given = dict(zip(names, rest[-len(names) :], strict=True)) if 0 < len(names) <= len(rest) else {}
        grid = (int(x), int(y), int(z))
        launch = replace(self._launch, grid=grid, arguments=argument_forms(given))
        _, refusal = self._recorder.compiler(launch)
        if refusal is not None:
            raise refusal
        self._recorder.record(launch)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        x, y, z = (*grid, 1, 1)[:3]
        return lambda *args, **kwargs: self.run(x, y, z, *args)

    def _init_handles(self) -> None:
        _, refusal = self._recorder.compiler(self._launch)
        if refusal is not None:
            raise refusal

    def __getattr__(self, name: str) -> Any:
        if name not in self.FROM_THE_COMPILER:
            raise AttributeError(f"{type(self).__name__} has no {name!r}")
        kernel, refusal = self._recorder.compiler(self._launch)
        if refusal is not None:
            raise refusal
        if kernel is None:
            raise CompileFailed(
                self._launch.kernel,
                self._recorder.target.name,
                f"not compiled in time to read {name}",
                "timeout",
            )
        return getattr(kernel, name)


class FakeUtils:
    """``driver.active.utils``: the properties of the target."""

    def __init__(self, target: GpuTarget) -> None:
        self._target = target

    def get_device_properties(self, device: int = DEVICE) -> dict[str, int]:
        return {
            "max_shared_mem": self._target.shared_limit,
            "max_num_regs": 65_536,
            "multiprocessor_count": self._target.multiprocessors,
            "warpSize": self._target.warp_size,
            "sm_clock_rate": 1_700_000,
            "mem_clock_rate": 2_600_000,
            "mem_bus_width": 5_120,
        }

    def unload_module(self, module: Any) -> None:
        return None


class FakeDriver(DriverBase):
    """Answers Triton's questions about the device with the target's values."""

    def __init__(self, target: GpuTarget) -> None:
        self.target = target
        self.utils = FakeUtils(target)

    @classmethod
    def is_active(cls) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError("no launcher is built for a GPU that is not there")

    def get_current_target(self) -> Any:
        return self.target.triton

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", DEVICE)

    def get_device_interface(self) -> Any:
        import torch

        return torch.cuda

    def get_benchmarker(self) -> Callable[..., list[float]]:
        def run_once(kernel_call: Callable[[], None], **_: Any) -> list[float]:
            kernel_call()
            return [1.0] * 3

        return run_once

    def get_empty_cache_for_benchmark(self) -> Any:
        import torch

        return torch.empty(1 << 26, dtype=torch.int32, device="cuda")

    def clear_cache(self, cache: Any) -> None:
        cache.zero_()

    def get_device_capability(self, device: int = DEVICE) -> tuple[int, int]:
        return self.target.capability

    def get_current_device(self) -> int:
        return DEVICE

    def set_current_device(self, device: int) -> None:
        return None

    def get_current_stream(self, device: int = DEVICE) -> int:
        return 0


@contextmanager
def recording_launches(recorder: Recorder) -> Iterator[None]:
    """Within, every Triton launch of this process goes to ``recorder`` and none to a device.

    On the way out nothing of it stays in the candidate's kernels: neither recorded kernels
    in their caches nor configurations in their autotuners.
    """

    def do_compile(
        fn: JITFunction,
        key: str,
        signature: Any,
        device: int,
        constexprs: Any,
        options: Any,
        attrs: Any,
        warmup: bool,
    ) -> RecordedKernel:
        cache, backend = fn.device_caches[device][0], fn.device_caches[device][3]
        defaults = backend.parse_options({}).__dict__
        launch = Launch(
            kernel=fn.__name__,
            fn=fn,
            key=f"{fn.cache_key}/{key}",
            grid=(1, 1, 1),
            signature=dict(signature),
            constexprs=dict(constexprs),
            attrs=dict(attrs),
            num_warps=options.num_warps,
            num_stages=options.num_stages,
            num_ctas=options.num_ctas,
            options={k: v for k, v in options.__dict__.items() if k not in defaults or defaults[k] != v},
        )
        recorder.functions.append(fn)
        cache[key] = RecordedKernel(recorder, launch)
        return cache[key]

    bench = Autotuner._bench

    def try_config(tuner: Autotuner, *args: Any, config: Any, **meta: Any) -> Any:
        return recorder.try_config(bench, tuner, args, config, meta)

    with ExitStack() as stack:
        stack.enter_context(active_driver(FakeDriver(recorder.target)))
        stack.enter_context(replaced(JITFunction, _do_compile=do_compile))
        stack.enter_context(replaced(Autotuner, _bench=try_config))
        try:
            yield
        finally:
            for fn in recorder.functions:
                fn.device_caches.pop(DEVICE, None)
            for tuner in recorder.tuners:
                tuner.cache.clear()


@contextmanager
def active_driver(driver: DriverBase) -> Iterator[None]:
    """Make ``driver`` Triton's active one, and put back what was there (perhaps nothing yet)."""
    slot = "_active" if hasattr(driver_config, "_active") else "active"
    before = getattr(driver_config, slot)
    driver_config.set_active(driver)
    try:
        yield
    finally:
        setattr(driver_config, slot, before)

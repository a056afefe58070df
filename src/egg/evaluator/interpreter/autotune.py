"""Autotuning without a clock: the first configuration that is valid is the one that runs.

Timing means nothing here, so nothing is timed. Pruning, hooks, heuristics and the tuner's own
cache work as they are; the tuner only ever hears that every configuration takes no time, and
takes the first. A configuration whose ``tl.static_assert`` fails is passed over, as the real
tuner passes over one that does not compile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.autotuner import Autotuner
from triton.runtime.driver import driver

from egg.evaluator.interpreter.language import StaticAssertion

_REFUSED = "_egg_refused"
_QUANTILES = 3
_Stock: Any = DriverBase


class InterpreterDriver(_Stock):
    """A driver for code that asks which GPU it is on; it answers as a Hopper-class one."""

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_current_device(self) -> int:
        return 0

    def get_benchmarker(self) -> Callable[..., list[float]]:
        def run_once(kernel_call: Callable[[], Any], **options: Any) -> list[float]:
            kernel_call()
            return [0.0] * _QUANTILES

        return run_once

    @property
    def utils(self) -> InterpreterDriver:
        return self

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {
            "max_shared_mem": 232448,
            "max_num_regs": 65536,
            "multiprocessor_count": 132,
            "warpSize": 32,
            "sm_clock_rate": 1980000,
            "mem_clock_rate": 2619000,
            "mem_bus_width": 5120,
        }


def mend() -> None:
    driver.set_active(InterpreterDriver())
    tuner: Any = Autotuner
    tuner._bench = no_time
    tuner.run = first_valid(tuner.run)


def no_time(self: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
    """Stands for the benchmark of one configuration, and keeps its check of the arguments."""
    conflicts = meta.keys() & config.kwargs.keys()
    if conflicts:
        raise ValueError(
            f"meta-parameters given both by the caller and by the tuner: {', '.join(sorted(conflicts))}"
        )
    return [float("inf") if config in getattr(self, _REFUSED, ()) else 0.0] * _QUANTILES


def first_valid(run: Callable[..., Any]) -> Callable[..., Any]:
    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        refused: list[Any] = []
        setattr(self, _REFUSED, refused)
        while True:
            try:
                return run(self, *args, **kwargs)
            except StaticAssertion:
                config = self.best_config
                if config in refused or len(self.configs) == 1:
                    raise
                refused.append(config)
                self.cache = {key: kept for key, kept in self.cache.items() if kept != config}

    return launch

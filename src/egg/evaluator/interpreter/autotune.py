"""Autotuning without a clock: the configuration that is asked for is the one that runs.

Timing means nothing here, so nothing is timed. What a benchmark leaves behind is not nothing: a tuner
launches the kernel on the caller's own tensors, so a kernel that accumulates into them needs
``reset_to_zero`` or ``restore_value``. The configuration that is taken is therefore launched once more
beforehand, where a benchmark would launch it. Pruning, hooks, heuristics and the tuner's own
cache work as they are; the tuner hears that one configuration takes no time and the others some. By
default that is the first; on a GPU it may be any of them, so each is asked for in its turn
(:class:`Chosen`). A configuration whose ``tl.static_assert`` fails is passed over, as the real
tuner passes over one that does not compile.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.autotuner import Autotuner
from triton.runtime.driver import driver

from egg.evaluator.interpreter.language import StaticAssertion
from egg.evaluator.interpreter.session import Session
from egg.evaluator.static.likeness import alike

_REFUSED = "_egg_refused"
_ASKED = "_egg_asked"
_BENCHED = "_egg_benched"
_QUANTILES = 3
_Stock: Any = DriverBase


@dataclass
class Chosen:
    """Which of its configurations every tuner takes, by its place among those that pruning leaves.

    Tuners choose independently of each other, and one of them for each of its keys: with a ``lot`` each
    choice is drawn from it.
    """

    place: int = 0
    lot: int = 0
    choices: int = 0
    """How many choices were made since the last change: one by each tuner for each of its keys."""
    most: int = 1
    """Configurations of the tuner that had most of them, among those that were asked so far."""
    names: dict[str, str] = field(default_factory=dict)
    """What ran last, by kernel."""
    asked: int = 0
    """Changes with ``place``: what a tuner remembers from before is forgotten."""

    def take(self, place: int, lot: int = 0) -> None:
        self.place, self.lot, self.choices = place, lot, 0
        self.names.clear()
        self.asked += 1

    def among(self, count: int) -> int:
        """The place that the next choice takes, of ``count``."""
        self.choices += 1
        if not count:
            return 0
        drawn = random.Random(f"{self.lot}/{self.choices}")
        return drawn.randrange(count) if self.lot else self.place % count


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


def mend(session: Session) -> Chosen:
    driver.set_active(InterpreterDriver())
    tuner: Any = Autotuner
    chosen = Chosen()
    tuner._bench = once_and_no_time(session)
    tuner.run = alike(first_valid(tuner.run, chosen), tuner.run)
    tuner.prune_configs = rotated(tuner.prune_configs, chosen)
    return chosen


def once_and_no_time(session: Session) -> Callable[..., list[float]]:
    """Stands for the benchmark of one configuration: keeps its check of the arguments, and its launch."""

    def bench(self: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
        conflicts = meta.keys() & config.kwargs.keys()
        if conflicts:
            raise ValueError(
                f"meta-parameters given both by the caller and by the tuner: {', '.join(sorted(conflicts))}"
            )
        if config in getattr(self, _REFUSED, ()):
            return [float("inf")] * _QUANTILES
        if not getattr(self, _BENCHED, True) and session.accumulating.get(self.base_fn, True):
            setattr(self, _BENCHED, True)
            recorded = len(session.launches)
            try:
                _launched(self, args, config, {**meta, **config.all_kwargs()})
            except StaticAssertion:
                getattr(self, _REFUSED).append(config)
                setattr(self, _BENCHED, False)
                return [float("inf")] * _QUANTILES
            finally:
                del session.launches[recorded:]
        return [0.0] * _QUANTILES

    return bench


def _launched(tuner: Any, args: Any, config: Any, current: dict[str, Any]) -> None:
    """As the stock tuner launches what it times, with the hooks that put its arguments right again."""
    everything = {**tuner.nargs, **current}
    if config.pre_hook:
        config.pre_hook(everything)
    tuner.pre_hook(everything)
    try:
        tuner.fn.run(*args, **current)
    except BaseException as error:
        tuner.post_hook(everything, exception=error)
        raise
    tuner.post_hook(everything, exception=None)


def rotated(prune: Callable[..., Any], chosen: Chosen) -> Callable[..., Any]:
    """What is left by pruning, the configuration whose turn it is first."""

    def pruned(self: Any, *args: Any, **kwargs: Any) -> Any:
        left = list(prune(self, *args, **kwargs))
        chosen.most = max(chosen.most, len(left))
        at = chosen.among(len(left))
        setattr(self, _BENCHED, False)
        return [*left[at:], *left[:at]]

    return pruned


def first_valid(run: Callable[..., Any], chosen: Chosen) -> Callable[..., Any]:
    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        refused: list[Any] = []
        setattr(self, _REFUSED, refused)
        if getattr(self, _ASKED, None) != chosen.asked:
            setattr(self, _ASKED, chosen.asked)
            self.cache = {}
        while True:
            try:
                result = run(self, *args, **kwargs)
                chosen.names[getattr(self.base_fn, "__name__", "")] = str(self.best_config)
                return result
            except StaticAssertion:
                config = self.best_config
                if config in refused or len(self.configs) == 1:
                    raise
                refused.append(config)
                self.cache = {key: kept for key, kept in self.cache.items() if kept != config}

    return launch

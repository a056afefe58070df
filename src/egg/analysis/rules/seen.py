"""What is known of one kernel: its profile, the compiler's numbers, the model's answer, one time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from egg.analysis.predict import FITTED, Constants, Predicted, predict
from egg.core.profile import Counter, KernelProfile, Rung
from egg.core.resources import InstructionMix, KernelResources, KernelWork
from egg.hardware.gpus import Gpu

LAUNCH_IN_MEASURED = 0.0022
"""Milliseconds of a measured kernel before its first instruction and behind its last."""


def ratio(time: float, floor: float | None) -> float | None:
    """A time over a floor; ``None`` where either is missing, or so small that the ratio is no number."""
    found = time / floor if floor and floor > 0 else 0.0
    return found if found > 0 and math.isfinite(found) else None


@dataclass(frozen=True)
class SeenKernel:
    """A kernel's profile on a GPU. Properties are ``None`` where their number is not known."""

    kernel: KernelProfile
    gpu: Gpu
    rung: Rung
    constants: Constants = FITTED
    """Of the model."""

    @property
    def resources(self) -> KernelResources | None:
        return self.kernel.resources

    @property
    def work(self) -> KernelWork | None:
        return self.resources.work if self.resources else None

    @property
    def mix(self) -> InstructionMix | None:
        return self.resources.instructions if self.resources else None

    def counter(self, name: Counter) -> float | None:
        """As counted; a value that no counter can have counts as missing."""
        value = self.kernel.counters.get(name.value)
        return value if value is not None and math.isfinite(value) and value >= 0 else None

    @property
    def counted(self) -> bool:
        return bool(self.kernel.counters)

    @cached_property
    def predicted(self) -> Predicted | None:
        return predict(self.resources, self.gpu, self.constants) if self.resources else None

    @property
    def launch_milliseconds(self) -> float:
        """What of :attr:`milliseconds` is the launch: of a measured time less than of a predicted one."""
        predicted = self.constants.launch * 1e3
        return min(predicted, LAUNCH_IN_MEASURED) if self.measured else predicted

    @property
    def measured(self) -> bool:
        """Whether :attr:`milliseconds` is a GPU's."""
        return self.kernel.milliseconds is not None or self.counter(Counter.NANOSECONDS) is not None

    @cached_property
    def milliseconds(self) -> float:
        """Of one launch: the one that was counted, else the mean, else predicted; 0 where none is known."""
        nanoseconds = self.counter(Counter.NANOSECONDS)
        if nanoseconds:
            return nanoseconds * 1e-6
        time = self.kernel.best_milliseconds / max(1, self.kernel.launches)
        return time if math.isfinite(time) and time > 0 else 0.0

    @cached_property
    def headroom(self) -> float | None:
        """Time now over the least that the work could take; below 1 where caches beat the model."""
        return ratio(self.milliseconds, self.predicted.floor_milliseconds if self.predicted else None)

    @cached_property
    def unexplained(self) -> float:
        """Measured over predicted time: what the model does not see. 1 where nothing was measured."""
        if not self.measured or self.predicted is None:
            return 1.0
        return self.milliseconds / self.predicted.milliseconds

    @cached_property
    def evenness(self) -> float:
        """Mean over most of the cycles in which an SM had work, 0 to 1; 1 where that was not counted."""
        mean, most = self.counter(Counter.SM_CYCLES_MEAN), self.counter(Counter.SM_CYCLES_MOST)
        return min(1.0, mean / most) if mean and most else 1.0

    @property
    def l2_hit_rate(self) -> float | None:
        """Counted in passes of their own, hits can exceed requests by a little."""
        counted = self.counter(Counter.L2_HIT_RATE)
        return min(1.0, counted) if counted is not None else None

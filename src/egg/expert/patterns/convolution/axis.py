"""One spatial dimension of a convolution: which inputs an output reads, and by which taps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd

from egg.expert.sizes import Size, named


@dataclass(frozen=True)
class Axis:
    """One spatial dimension."""

    letter: str
    kernel: int
    stride: int
    padding: int
    dilation: int
    transposed: bool
    size: Size
    """Of the input."""
    out: Size
    dense: bool = False
    """Outputs of a transposed convolution are counted as they lie, not by phase: each looks at all taps, and
    at those that miss it reads nothing."""

    @property
    def phases(self) -> int:
        return self.stride if self.transposed and not self.dense else 1

    @property
    def step(self) -> int:
        """What the next output of a phase moves the input by."""
        return 1 if self.transposed else self.stride

    @property
    def shared(self) -> int:
        return gcd(self.stride, self.dilation) if self.transposed else 1

    @property
    def reach(self) -> int:
        """What the next tap moves the input by."""
        return -(self.dilation // self.shared) if self.transposed else self.dilation

    @property
    def pace(self) -> int:
        """How far apart the taps of one phase are."""
        return self.stride // self.shared if self.transposed else 1

    @property
    def inverse(self) -> int:
        """Of the dilation, among remainders of the stride (less what they share)."""
        return pow(self.dilation // self.shared, -1, self.pace) if self.pace > 1 else 0

    def first(self, phase: int) -> int:
        """The first tap of a phase: ``tap * dilation`` and ``phase + padding`` agree modulo the stride."""
        if not self.transposed or self.pace == 1:
            return 0
        return (phase + self.padding) // self.shared * self.inverse % self.pace

    def origin(self, phase: int) -> int:
        if not self.transposed:
            return -self.padding
        return (phase + self.padding - self.first(phase) * self.dilation) // self.stride

    def taps(self, phase: int) -> int:
        if not self.transposed:
            return self.kernel
        if (phase + self.padding) % self.shared:
            return 0
        return max(0, -(-(self.kernel - self.first(phase)) // self.pace))

    @property
    def most_taps(self) -> int:
        return max(self.taps(phase) for phase in range(self.phases))

    @property
    def uniform(self) -> bool:
        """All phases have the same number of taps."""
        return len({self.taps(phase) for phase in range(self.phases)}) == 1 and not self.dense

    @cached_property
    def before(self) -> int:
        """Zeros in front of the first input that some output reads (negative: inputs that none reads)."""
        if self.dense:
            return 0
        return -min(
            (
                self.origin(phase) + j * self.reach
                for phase in range(self.phases)
                for j in range(self.taps(phase))
            ),
            default=0,
        )

    @property
    def span(self) -> int:
        """How many inputs one output position of all phases reaches over."""
        last = max(
            (
                self.origin(phase) + j * self.reach
                for phase in range(self.phases)
                for j in range(self.taps(phase))
            ),
            default=0,
        )
        return last + self.before + 1

    @property
    def count(self) -> Size:
        """Outputs per phase (the last one may lie beyond the end for some phases)."""
        if self.phases == 1:
            return self.out
        values = tuple(-(-value // self.phases) for value in self.out.values)
        return named(f"steps_{self.letter}", values) if self.out.factors else Size(values[0])

    @property
    def count_text(self) -> str:
        """The same in terms of named sizes."""
        if self.phases == 1:
            return self.out.code()
        if not self.out.factors:
            return str(self.count.number)
        return f"({self.out.code()} + {self.phases - 1}) // {self.phases}"

    @property
    def padded_text(self) -> str:
        """How long the axis of a packed input is: what the outputs really reach."""
        if self.dense:
            return self.size.code()
        if not self.count.factors:
            return str((self.count.number - 1) * self.step + self.span)
        count = self.count.code() if self.step == 1 else f"{self.count.code()} * {self.step}"
        extra = self.span - self.step
        return count if not extra else f"{count} {'-' if extra < 0 else '+'} {abs(extra)}"

    def padded(self) -> int:
        return self.size.value if self.dense else (self.count.value - 1) * self.step + self.span

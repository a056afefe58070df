"""Ways to go back under grad mode, apart from what goes: requests name them in processes without PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Incoming(StrEnum):
    """How the gradient of an output lies in memory."""

    DENSE = "dense"
    EXPANDED = "expanded, as sum().backward() gives it"
    """One element, with strides of zero."""
    CONSTANT = "the same everywhere"
    """The same values, dense: where a norm or a softmax makes rounding of them, their layout is no matter."""
    STRIDED = "with gaps between its elements"
    """NaN lies in the gaps."""


class Leaves(StrEnum):
    """What requires a gradient: a caller may freeze the weights, or be done with the inputs."""

    ALL = "everything"
    PARAMETERS = "the parameters alone"
    INPUTS = "the inputs alone"


@dataclass(frozen=True)
class Way:
    """One way to go back."""

    incoming: Incoming = Incoming.DENSE
    leaves: Leaves = Leaves.ALL

    @property
    def words(self) -> str:
        laid = "" if self.incoming is Incoming.DENSE else f"the incoming gradient is {self.incoming.value}"
        asked = "" if self.leaves is Leaves.ALL else f"{self.leaves.value} require a gradient"
        return " and ".join(part for part in (laid, asked) if part)


PLAIN = Way()
FEW_WAYS = (Way(Incoming.EXPANDED), Way(Incoming.STRIDED, Leaves.PARAMETERS))
ALL_WAYS = (*FEW_WAYS, Way(Incoming.STRIDED), Way(Incoming.STRIDED, Leaves.INPUTS))
"""In which a backward that is right is asked again."""

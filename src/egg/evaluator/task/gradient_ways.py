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


class Overwritten(StrEnum):
    """What a caller changes in place between forward and backward, as far as the reference allows it."""

    NOTHING = "nothing"
    INPUTS = "the inputs"
    OUTPUTS = "the outputs"


@dataclass(frozen=True)
class Way:
    """One way to go back."""

    incoming: Incoming = Incoming.DENSE
    leaves: Leaves = Leaves.ALL
    alone: str = ""
    """The one thing that requires a gradient: a parameter's name, or ``input 0``, ``input 1``, ..."""
    between: bool = False
    """Whether another call lies between forward and backward, and the graph is gone back through twice."""
    output: int | None = None
    """The one floating output that the loss reads."""
    overwritten: Overwritten = Overwritten.NOTHING
    second: bool = False
    """Whether the gradients are differentiated once more (``create_graph=True``)."""
    large: bool = False
    """Whether the inputs are hundreds: where only gross errors count."""

    @property
    def words(self) -> str:
        laid = "" if self.incoming is Incoming.DENSE else f"the incoming gradient is {self.incoming.value}"
        asked = "" if self.leaves is Leaves.ALL else f"{self.leaves.value} require a gradient"
        only = f"{self.alone} alone requires a gradient" if self.alone else ""
        other = "another call comes before backward, which is run twice" if self.between else ""
        one = "" if self.output is None else f"the loss reads output {self.output} alone"
        written = f"{self.overwritten.value} are overwritten before backward"
        parts = (
            laid, asked, only, other, one,
            written if self.overwritten is not Overwritten.NOTHING else "",
            "gradients are differentiated once more" if self.second else "",
            "inputs are large" if self.large else "",
        )  # fmt: skip
        return " and ".join(part for part in parts if part)

    def wants(self, name: str) -> bool:
        """Whether what bears this name requires a gradient."""
        if self.alone:
            return name == self.alone
        given = name.startswith("input ")
        return self.leaves is Leaves.ALL or (self.leaves is Leaves.INPUTS) == given


PLAIN = Way()
FEW_WAYS = (Way(Incoming.EXPANDED), Way(Incoming.STRIDED, Leaves.PARAMETERS))
ALL_WAYS = (*FEW_WAYS, Way(Incoming.STRIDED), Way(Incoming.STRIDED, Leaves.INPUTS))
"""In which a backward that is right is asked again."""
BETWEEN = Way(between=True)
SECOND = Way(second=True)
AS_CALLERS_DO = (Way(overwritten=Overwritten.INPUTS), Way(overwritten=Overwritten.OUTPUTS), Way(large=True))
"""At level full, beside those."""

"""What ``torch.compile`` generated for one graph, as data: its text, the choices of its autotuner, its use.

A machine with a GPU records it; the built-in team makes a kernel file of it anywhere
(:mod:`egg.expert.compiled`). Nothing of the text is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class LaunchChoice:
    """What Inductor's autotuner chose for one kernel."""

    constants: Mapping[str, int]
    """``XBLOCK``, ``R0_BLOCK``: the compile-time constants beside those that the source fixes itself."""
    num_warps: int
    num_stages: int

    def to_json(self) -> dict[str, Any]:
        return {
            "constants": dict(self.constants),
            "num_warps": self.num_warps,
            "num_stages": self.num_stages,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LaunchChoice:
        constants = {str(name): int(value) for name, value in data["constants"].items()}
        return cls(constants, int(data["num_warps"]), int(data["num_stages"]))


MOST_NUMBERS = 4096
"""Elements of a folded constant whose numbers are kept, at most."""
NUMBERS: Mapping[str, type[int] | type[float]] = {
    **dict.fromkeys(("bool", "uint8", "int8", "int16", "int32", "int64"), int),
    **dict.fromkeys(("float16", "bfloat16", "float32", "float64"), float),
}
"""By the dtype of a folded constant: what its numbers are. A bool is 0 or 1."""


@dataclass(frozen=True)
class FoldedConstant:
    """A tensor that the program makes of plain numbers, folded into the graph: contiguous, and small."""

    dtype: str
    shape: tuple[int, ...]
    numbers: str
    """In the order of memory, with spaces between them: a text holds NaN and infinity, too."""

    def to_json(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "shape": list(self.shape), "numbers": self.numbers}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FoldedConstant:
        return cls(str(data["dtype"]), tuple(map(int, data["shape"])), str(data["numbers"]))


@dataclass(frozen=True)
class CompiledGraph:
    """One graph of a compiled program."""

    arguments: tuple[str, ...]
    """Dynamo's source of each argument of ``call``, in order: ``L['x']``,
    ``L['self']._modules['ln_1']._parameters['weight']``."""
    text: str
    """Inductor's wrapper module: kernels as strings in ``async_compile.triton(...)``, ``Runner.call``."""
    launches: Mapping[str, LaunchChoice]
    """By the kernel's name in the text."""
    returns: Any
    """How ``forward``'s result is made of the graph's outputs: ``{"output": 0}``, ``{"tuple": [...]}``,
    ``{"list": [...]}``, ``{"dict": {"k": ...}}``, ``{"input": "x"}``, nested."""
    folded: Mapping[str, FoldedConstant] = field(default_factory=dict)
    """By the name in the text: tensors that ``call`` reads besides its arguments. Recordings of earlier
    versions have none, and those that are too large are missing."""

    def to_json(self) -> dict[str, Any]:
        return {
            "arguments": list(self.arguments),
            "text": self.text,
            "launches": {name: choice.to_json() for name, choice in self.launches.items()},
            "returns": self.returns,
            "folded": {name: constant.to_json() for name, constant in self.folded.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CompiledGraph:
        launches = {str(name): LaunchChoice.from_json(item) for name, item in data["launches"].items()}
        folded = {str(name): FoldedConstant.from_json(item) for name, item in data.get("folded", {}).items()}
        arguments = tuple(map(str, data["arguments"]))
        return cls(arguments, str(data["text"]), launches, data["returns"], folded)

"""Real and imaginary parts of spectra and other complex tensors that calls of PyTorch make."""

from __future__ import annotations

from egg.expert.graph import Operand, Value
from egg.expert.reading.normal.builder import Builder, Call, Lowered, Rule, extents

PAIRS = "torch.view_as_real"
PARTS = {"complex64": "float32", "complex128": "float64"}


def _part(place: int) -> Rule:
    """The real or the imaginary part of what a library call makes (a spectrum): every second number of the
    memory that it lies in, so kernels read both where they are, and none is copied apart.

    Not where something in the program may have its conjugation still to do, which such a view cannot show.
    """

    def rule(b: Builder, call: Call) -> Lowered | None:
        value = call["self"]
        maker = b.producers.get(value.name)
        while maker is not None and maker.op == "view":
            maker = b.producers.get(str(maker.inputs[0]))
        if value.dtype not in PARTS or maker is None or maker.op != "library":
            return None
        if any(node.op == "library" and _may_wait(str(node["target"])) for node in b.nodes):
            return None
        pairs = _pairs(b, value)
        return b.reshape(b.slice(pairs, -1, place, 1), extents(value))

    return rule


def _may_wait(target: str) -> bool:
    """Whether a result may be a look at its operand with its conjugation or its sign still to do."""
    return any(word in target for word in ("conj", "neg_view", "adjoint"))


def _pairs(b: Builder, value: Value) -> Value:
    """Both parts as PyTorch shows them, once for each value."""
    for node in b.nodes:
        if node.op == "library" and node["target"] == PAIRS and node.inputs == (value.name,):
            return b.values[node.output]
    made = b.one(
        "library",
        [value],
        (*extents(value), 2),
        PARTS[value.dtype],
        "view_as_real",
        target=PAIRS,
        arguments=(Operand(0),),
        keywords={},
    )
    return b.restrided(made, [*(2 * step.value for step in value.stride), 1])


RULES: dict[str, Rule] = {"real": _part(0), "imag": _part(1)}

"""Where the reference draws random numbers and the candidate draws its own: are they as likely?

At the task's own call both sides draw after the same seed and must agree. In another mode or layout an
honest file may draw otherwise. Its answers are held to many of the reference's: each element must lie where
the reference's own draws lie, as often as a further draw of the reference does, and the size of the whole
must be one that the reference's have.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence

import torch

from egg.evaluator.gates.second import Beside
from egg.evaluator.reference.answers import inexact, same_values
from egg.evaluator.reference.case import Case
from egg.evaluator.task.program import outputs_of
from egg.evaluator.transport import protocol

KNOWN, FURTHER, ASKED = 32, 4, 2
"""Draws of the reference to compare with, further ones that show what to expect, and the candidate's."""
NEAR = 1e-2
"""Of the output's rms: so near to one of the known values, an element is that value."""
SIGMAS = 8.0
MOST_ELEMENTS = 1 << 20
"""Of an output of more, the first ones are looked at."""


def unlikely(other: Beside, case: Case, training: bool | None) -> str:
    """What no draw of the reference's explains, in words; empty where they are as likely as its own."""
    ours = [_floats(outputs_of(other.reference.run(case.inputs, _seed()))) for _ in range(KNOWN + FURTHER)]
    theirs = [_asked(other, case, training) for _ in range(ASKED)]
    if all(same_values(a, b) for a, b in zip(theirs[0], theirs[1], strict=True)):
        return "it draws no random numbers where the reference does"
    for place in range(len(theirs[0])):
        known = torch.stack([draw[place] for draw in ours[:KNOWN]])
        further = [draw[place] for draw in ours[KNOWN:]]
        for drawn in (draw[place] for draw in theirs):
            if wrong := _unlikely(known, further, drawn):
                return wrong
    return ""


def _unlikely(known: torch.Tensor, further: list[torch.Tensor], drawn: torch.Tensor) -> str:
    count = max(drawn.numel(), 1)
    scale = float(known.square().mean().sqrt())
    usual = max(_strange(known, one, scale) for one in further)
    strange = _strange(known, drawn, scale)
    if strange > 1.5 * usual + SIGMAS * math.sqrt(max(usual, 1.0 / count) / count) + 1e-3:
        return (
            f"random there: {strange:.1%} of the elements have values that no draw of the reference has "
            f"(of a further draw {usual:.1%})"
        )
    sizes = torch.stack([draw.square().mean() for draw in (*known, *further)])
    mean, spread = float(sizes.mean()), float(sizes.std())
    size = float(drawn.square().mean())
    if not abs(size - mean) <= SIGMAS * spread + 1e-2 * mean:
        return f"random there: its mean square is {size:.4g}, the reference's {mean:.4g} +- {spread:.1g}"
    return ""


def _strange(known: torch.Tensor, drawn: torch.Tensor, scale: float) -> float:
    """The part of the elements that are near to none of the known draws."""
    nearest = (known - drawn).abs().nan_to_num(math.inf).amin(0)
    return float((nearest > NEAR * scale).double().mean())


def _asked(other: Beside, case: Case, training: bool | None) -> list[torch.Tensor]:
    other.buffers.poison(0)
    options = protocol.Options(training=training)
    call = other.buffers.call_set(case, 0)
    other.connection.request(protocol.Forward(call, _seed(), options))
    snapshot = other.buffers.snapshot()
    return _floats([(str(at), tensor) for at, tensor in enumerate(snapshot) if tensor is not None])


def _floats(outputs: Sequence[tuple[str, object]]) -> list[torch.Tensor]:
    tensors = [t for _, t in outputs if isinstance(t, torch.Tensor) and inexact(t) and not t.is_complex()]
    return [t.reshape(-1)[:MOST_ELEMENTS].double() for t in tensors]


def _seed() -> int:
    return secrets.randbits(31)

"""Who calls a module: the ways in which callers differ who ask for the same, drawn by lot for calls in a row.

Most of the judge's calls are made alike: under ``no_grad``, on inputs that lie where they lay, which another
process writes. A file that counts calls under grad mode, addresses, or the version of an input could be wrong
for every other caller, from some number on. So long sessions hold stretches of calls of other kinds. They
take the place of calls, and add none.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from egg.evaluator.transport.protocol import GradMode, Manner

STRETCHES = 6
"""Of a session, on the average."""
MOST_REFILLS = 3
FRESH, OF_FRESH = 7, 8
"""So many calls of so many have their inputs elsewhere."""
MOST_ELSEWHERE = 96
"""Calls: a file may do something for every new address, such as recording a graph."""


@dataclass(frozen=True)
class Part:
    """Calls of one kind, and what a wrong answer among them is refused as."""

    share: int
    """Eighths of all calls, at least."""
    words: str
    reason: str
    hint: str


ALIKE = Part(
    1, "many calls in a row", "state.stale",
    "compute from the inputs' values on every call; nothing derived from inputs may be kept",
)  # fmt: skip
VARIED = Part(
    4, "many calls, some under grad mode, on inputs refilled in place or at new addresses", "state.callers",
    "compute the same whatever the grad mode, wherever inputs lie and however often they were written",
)  # fmt: skip
AS_BUILT = Part(
    1, "many calls of an instance whose weights were never loaded by load_state_dict", "state.callers",
    "compute the same whether load_state_dict was called or not",
)  # fmt: skip
INFERENCE = Part(
    1, "many calls under torch.inference_mode", "state.callers",
    "compute the same under torch.inference_mode as under torch.no_grad",
)  # fmt: skip


def lengths(total: int, parts: list[Part]) -> list[int]:
    """``total`` calls among ``parts``: each has its share, the first two share the rest by lot."""
    found = [total * part.share // 8 for part in parts]
    rest = total - sum(found)
    first = secrets.randbelow(rest + 1)
    return [found[0] + first, found[1] + rest - first, *found[2:]]


def varied(calls: int, *, elsewhere: bool, modes: bool = True) -> tuple[Manner, ...]:
    """Stretches of one mode by lot; ``elsewhere``: whether inputs may be copied to other memory.

    Without ``modes`` grad mode is off: what a call does to a parameter that requires no gradient meanwhile is
    not seen.
    """
    found: list[Manner] = []
    longest, left = max(1, 2 * calls // STRETCHES), MOST_ELSEWHERE if elsewhere else 0
    grad = secrets.choice((GradMode.OFF, GradMode.FROZEN)) if modes else GradMode.OFF
    while len(found) < calls:
        for _ in range(1 + secrets.randbelow(longest)):
            fresh = left > 0 and secrets.randbelow(OF_FRESH) < FRESH
            left -= fresh
            found.append(Manner(grad, fresh, secrets.choice((0, 1 + secrets.randbelow(MOST_REFILLS)))))
        grad = GradMode.FROZEN if modes and grad is GradMode.OFF else GradMode.OFF
    return tuple(found[:calls])


def inference(calls: int) -> tuple[Manner, ...]:
    return (Manner(GradMode.INFERENCE),) * calls

"""What a captured call does at its own size, held against what it must: nothing is run for it.

Three things are read from Triton's IR at the full grid: whether a program leaves the tensors it is given
(:mod:`egg.evaluator.work.bounds`), whether the outputs are written from their first element to their last,
without a gap between launches, and whether as many bytes are stored as they have. The interpreter sees a
smaller size of the same program; a branch that is taken only at the full one is seen here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from egg.evaluator.offline.describe import ttir_of
from egg.evaluator.offline.launch import Capture, Launch, RawOutput
from egg.evaluator.work.arguments import TensorArgument
from egg.evaluator.work.bounds import Reach, reach, touches
from egg.evaluator.work.count import most_stored

ENOUGH = 0.995
"""Of an output's bytes that must be stored: what a few programs show of all is not exact to the last byte."""
MOST_FOLLOWED, MOST_STEPS = 2**15, 2_000_000
"""Programs that are followed where something between launches seems to be left out, and operations of all."""
MOST_LOOKED_AT = 24
"""Launches of one call that are followed; a long row of equal ones is followed at its first and last."""


@dataclass(frozen=True)
class Problem:
    reason: str
    evidence: str


def problems(captured: Capture, kernels: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with the launches of ``captured``, the worst first."""
    followed = _followed(captured, kernels)
    for launch, reached in followed:
        if reached is not None and reached.outside is not None:
            yield Problem("kernel.out_of_bounds", reached.outside.words(launch.kernel))
    if len(followed) < len(captured.each):
        return
    yield from _unwritten(captured, kernels, followed)


def _followed(captured: Capture, kernels: Mapping[str, Any]) -> list[tuple[Launch, Reach | None]]:
    launches = list(captured.each)
    if len(launches) > MOST_LOOKED_AT:
        launches = [*launches[: MOST_LOOKED_AT // 2], *launches[-MOST_LOOKED_AT // 2 :]]
    known: dict[Any, Reach | None] = {}
    found = []
    for launch in launches:
        key = (launch.key, launch.grid, tuple(sorted((n, str(a)) for n, a in launch.arguments.items())))
        if key not in known:
            text = ttir_of(kernels[launch.key]) if launch.key in kernels else ""
            known[key] = reach(text, launch.arguments, launch.grid) if text else None
        found.append((launch, known[key]))
    return found


def _unwritten(
    captured: Capture, kernels: Mapping[str, Any], followed: list[tuple[Launch, Reach | None]]
) -> Iterator[Problem]:
    """Outputs in raw memory of which some part is shown to be written by no launch.

    Either all programs together store fewer bytes than it has, each taken for the one that stores most of
    those looked at: programs may have uneven shares. Or no program stores to its first byte, or to its last,
    or to a byte that lies between what the launches reach.
    A launch that cannot be followed, or that is given the output and stores where data say, may write
    anything: then nothing is concluded. Nor is it where the grid is divided among several tensors: the few
    programs that are followed may all belong to the others.
    """
    for output in captured.raw_outputs:
        given = [(la, re) for la, re in followed if output.address in _storages(la)]
        if any(re is None or re.divided for _, re in given):
            continue
        amounts = [_stored(ttir_of(kernels[la.key]), la, output.address) for la, _ in given]
        if None in amounts:
            continue
        stored = sum(amount for amount in amounts if amount is not None)
        names = ", ".join(dict.fromkeys(launch.kernel for launch, _ in given))
        if stored < ENOUGH * output.nbytes:
            yield Problem(
                "correctness.unwritten",
                f"output {output.path}: the launches {names} store at most "
                f"{stored / output.nbytes:.1%} of its {output.nbytes} bytes, the rest is never written",
            )
        elif end := _missed(output, kernels, given):
            yield Problem(
                "correctness.unwritten",
                f"output {output.path}: no program of the launches {names} stores its {end} element",
            )
        elif hole := _hole(output, kernels, given):
            yield Problem(
                "correctness.unwritten",
                f"output {output.path}: no program of the launches {names} stores its bytes "
                f"{hole[0]} to {hole[1]}",
            )


def _missed(output: RawOutput, kernels: Mapping[str, Any], given: list[tuple[Launch, Reach | None]]) -> str:
    """Which end of an output no program stores to; empty where there is none, or it is not known."""
    for byte, end in ((output.first, "first"), (output.last, "last")):
        if any(re.blind or _across(re, output.address, byte) for _, re in given if re):
            continue
        found = [
            touches(ttir_of(kernels[la.key]), la.arguments, la.grid, output.address, byte) for la, _ in given
        ]
        if all(touched is False for touched in found):
            return end
    return ""


def _hole(
    output: RawOutput, kernels: Mapping[str, Any], given: list[tuple[Launch, Reach | None]]
) -> tuple[int, int] | None:
    """Bytes between the reaches of launches that none of them stores. Programs at the corners of a grid show
    how far it reaches as a rule; where that leaves something out, all of them are followed."""
    reaches = [re.stored[output.address] for _, re in given if re and output.address in re.stored]
    if any(re is None or re.blind for _, re in given):
        return None
    covered = output.first - 1
    for low, high in sorted(reaches):
        if low > covered + 1 and covered >= output.first:
            middle = (covered + low) // 2
            found = [
                touches(
                    ttir_of(kernels[la.key]),
                    la.arguments,
                    la.grid,
                    output.address,
                    middle,
                    most=MOST_FOLLOWED,
                    steps=MOST_STEPS,
                )
                for la, _ in given
            ]
            if all(touched is False for touched in found):
                return covered + 1, low - 1
        covered = max(covered, high)
    return None


def _across(reached: Reach, address: int, byte: int) -> bool:
    low, high = reached.stored.get(address, (byte + 1, byte))
    return low <= byte <= high


def _storages(launch: Launch) -> set[int]:
    return {a.address for _, a in _tensors(launch)}


def _tensors(launch: Launch) -> Iterator[tuple[str, TensorArgument]]:
    def inside(name: str, form: Any) -> Iterator[tuple[str, TensorArgument]]:
        if isinstance(form, TensorArgument):
            yield name, form
        elif isinstance(form, tuple):
            for item in form:
                yield from inside(name, item)
        elif hasattr(form, "tensor"):
            yield name, form.tensor

    for name, form in launch.arguments.items():
        yield from inside(name, form)


def _stored(ttir: str, launch: Launch, address: int) -> float | None:
    """The most bytes that a launch stores to a storage; ``None`` where that is not known."""
    most = most_stored(ttir, launch.arguments, launch.grid)
    if most is None or "" in most:
        return None
    names = {name for name, form in _tensors(launch) if form.address == address}
    return sum(amount for argument, amount in most.items() if argument.split(".")[0] in names)

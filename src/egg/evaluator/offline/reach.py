"""What a captured call does at its own size, held against what it must: nothing is run for it.

Three things are read from Triton's IR at the full grid: whether a program leaves the tensors it is given
(:mod:`egg.evaluator.work.bounds`), whether the outputs are written from their first element to their last,
and whether as many bytes are stored as they have. The interpreter sees a smaller size of the same program;
a branch that is taken only at the full one is seen here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from egg.core.resources import KernelWork
from egg.evaluator.offline.describe import ttir_of
from egg.evaluator.offline.launch import Capture, Launch
from egg.evaluator.work.arguments import TensorArgument
from egg.evaluator.work.bounds import Reach, reach
from egg.evaluator.work.count import count_work

ENOUGH = 0.995
"""Of an output's bytes that must be stored: what a few programs show of all is not exact to the last byte."""
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
    """Outputs in raw memory that no launch that is understood writes in whole.

    A launch that cannot be followed, or that is given the output and stores where data say, may write
    anything: then nothing is concluded. Nor is it where the grid is divided among several tensors: the few
    programs that are followed may all belong to the others.
    """
    for output in captured.raw_outputs:
        given = [(la, re) for la, re in followed if output.address in _storages(la)]
        ranges = [re.stored[output.address] for _, re in given if re and output.address in re.stored]
        works = [count_work(ttir_of(kernels[la.key]), la.arguments, la.grid) for la, _ in given]
        amounts = [_stored(work, la, output.address) for work, (la, _) in zip(works, given, strict=True)]
        if any(re is None or re.divided for _, re in given) or None in amounts:
            continue
        stored = sum(amount for amount in amounts if amount is not None)
        lows, highs = [low for low, _ in ranges], [high for _, high in ranges]
        blind = any(re.blind for _, re in given if re)
        short = not blind and (not ranges or min(lows) > output.first or max(highs) < output.last)
        if stored < ENOUGH * output.nbytes or (short and stored > 0 and all(_sure(w) for w in works)):
            share = min(stored / output.nbytes, 1.0)
            names = ", ".join(dict.fromkeys(launch.kernel for launch, _ in given))
            yield Problem(
                "correctness.unwritten",
                f"output {output.path}: the launches {names} store "
                f"{share:.1%} of its {output.nbytes} bytes, the rest is never written",
            )


def _sure(work: KernelWork | None) -> bool:
    return work is not None and work.complete


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


def _stored(work: KernelWork | None, launch: Launch, address: int) -> float | None:
    """Bytes that a launch stores to a storage; ``None`` where that is not known."""
    if work is None:
        return None
    names = {name for name, form in _tensors(launch) if form.address == address}
    found = [a for a in work.accesses if a.store and a.argument.split(".")[0] in names]
    unknown = any(a.store and not a.argument for a in work.accesses)
    return None if unknown else sum(a.bytes for a in found)

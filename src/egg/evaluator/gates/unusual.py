"""Questions with legal values that no distribution draws: far from zero, equal, and those the file names.

They are listed in :mod:`~egg.evaluator.task.unusual`. Each is put only where the reference has an
answer to it: as finite as at its own inputs, in fp64 too, and close to its fp64 run. Then the usual rule
holds, with more room for conditioning, because far from zero another order of summation is amplified as well.

Such values lie on thresholds and make ties, where honest kernels may choose otherwise. So what is refused is
looked at again: the reference is run with its inputs a few roundings away, several times, and elements of its
answer that jump are taken as the reference has them. Integers (the index of one of several maxima) are not
compared where equal values were put on purpose.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from egg.core.errors import MachineError, TaskError
from egg.evaluator.compare.compare import ROUNDOFF, compare
from egg.evaluator.compare.integers import are_integers
from egg.evaluator.operators.ops import Recorder
from egg.evaluator.reference.answers import finite_share
from egg.evaluator.reference.case import Case
from egg.evaluator.task.program import map_tensors, outputs_of, restrided
from egg.evaluator.task.rare import rare_integers, with_integer, with_masks
from egg.evaluator.task.unusual import (
    LEVEL,
    NEAR,
    TIES,
    ZEROS,
    Constants,
    beyond_constants,
    constants,
    unusual,
    with_constants,
)
from egg.evaluator.tensors import memory
from egg.evaluator.tensors.reals import as_reals
from egg.evaluator.transport.exchange import pack, unpack
from egg.evaluator.transport.protocol import Forwarded, Options
from egg.evaluator.trial.checks import tensor_of
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial

DRAWS = 6
"""Of inputs, for an integer that they may hold."""
NEGATIVE = (-1, -100)
WIDER, WIDE = 1 << 20, 1 << 33
"""Where a program takes an integer of 20 bits, and has integers as its answer, one of 34 bits is put."""
SHARES = {1.0: "masks all true", 0.0: "masks all false", 0.95: "dense masks", 0.05: "sparse masks"}
BEYOND = {-1: "rows beyond the constants of the file", 0: "columns beyond the constants of the file"}
UNANSWERED = "no answer"
EXTREMES = ("amax", "amin", "aminmax", "argmax", "argmin", "cummax", "cummin", "max", "min")
COMPARISONS = ("eq", "ge", "gt", "le", "lt", "ne", "bucketize", "searchsorted")
ORDERING = frozenset(
    (*EXTREMES, "maximum", "minimum", *COMPARISONS, "argsort", "kthvalue", "median", "sort", "topk")
)
"""Operators that compare their inputs and compute nothing of them."""
EQUAL = (ZEROS, LEVEL, TIES)
LEEWAY = 8.0
CLOSE = 16.0
"""Roundings of its dtype, or a hundredth: the reference has an answer where its relative error is below."""
FURTHEST = 0.25
"""The same for types of 8 bits, of which sixteen roundings are the value itself."""
ROUNDS = 6
"""Runs of the reference that look for jumps."""
JUMP = 1e-2
"""Of an element's own size, and of the typical one: further than a few roundings move it."""
UNCLEAR = 0.5
"""A question of which the reference itself answers so much by chance is not put."""


def run(trial: Trial) -> dict[str, str]:
    outcomes: dict[str, str] = {}
    floats = any(t.is_floating_point() for t in trial.reference.sample.tensors)
    for name in trial.settings.unusual if floats else ():
        if name == NEAR and not _orders(trial):
            continue
        inputs = unusual(trial.reference.draw(), name, secrets.randbits(48))
        outcomes[name] = _asked(trial, name, inputs, integers=name not in EQUAL)
    known = constants(trial.candidate.source)
    outcomes |= _rarely(trial, known) if trial.settings.unusual else {}
    whole = known | constants(trial.reference.program.task.source)
    for number in range(trial.settings.constants if whole.values or whole.patterns else 0):
        outcomes[f"constants of the file {number + 1}"] = _constants(trial, known, whole)
    return outcomes


def _orders(trial: Trial) -> bool:
    """Whether the reference does nothing with its inputs but to order them: then no rounding decides."""
    inputs = trial.reference.draw()
    with trial.reference.spared(), Recorder() as recorder:
        trial.reference.run(inputs)
    return bool(recorder.compute) and all(name.split(".")[0] in ORDERING for name in recorder.compute)


def _rarely(trial: Trial, known: Constants) -> dict[str, str]:
    """Integers below zero, where the reference has an answer, and whole rows beyond the file's constants."""
    outcomes: dict[str, str] = {}
    drawn = trial.reference.draw()
    for value in (*NEGATIVE, *_wide(trial, drawn)):
        inputs = _with_integer(trial, value)
        if inputs and _runs(trial, inputs):
            outcomes[f"{value} among integers"] = _asked(
                trial, f"{value} among integers", inputs, integers=True
            )
    again = trial.reference.draw()
    for share, name in SHARES.items():
        inputs = with_masks(drawn, again, share, secrets.randbits(48))
        if _other(inputs, drawn):
            outcomes[name] = _asked(trial, name, inputs, integers=True)
    if any(value >= 1.0 for value in known.values):
        for dim, name in BEYOND.items():
            outcomes[name] = _beyond(
                trial, name, drawn, beyond_constants(drawn, known, dim, secrets.randbits(48))
            )
    return outcomes


def _beyond(trial: Trial, name: str, drawn: list[Any], changed: list[Any]) -> str:
    """Every input at once; where that is wrong one after the other, and what counts is each by itself.

    Products of several such inputs reach sizes at which the rounding of a largest score is a hundred, and a
    softmax that takes it off in one fused operation overflows.
    """
    try:
        return _asked(trial, name, changed, integers=True)
    except Refused:
        single = list(_singly(drawn, changed))
        if len(single) < 2:
            raise
    if trial.reference.moving:
        trial.connection.restore_weights()
    for inputs in single:
        _asked(trial, f"{name} in one tensor", inputs, integers=True)
    return "right where one tensor is beyond them"


def _singly(drawn: list[Any], changed: list[Any]) -> Iterator[list[Any]]:
    """The drawn inputs with one of the changed tensors each."""
    (structure, ours), (_, others) = pack(drawn), pack(changed)
    for at, (one, other) in enumerate(zip(ours, others, strict=True)):
        if one is not other:
            yield unpack(structure, [*ours[:at], other, *ours[at + 1 :]])


def _other(inputs: list[Any], drawn: list[Any]) -> bool:
    """Whether some tensor is another one."""
    return any(one is not other for one, other in zip(pack(inputs)[1], pack(drawn)[1], strict=True))


def _with_integer(trial: Trial, value: int) -> list[Any]:
    """Inputs with such an integer; none where every draw shows that it may not stand there. Few integers may
    differ from one another by chance, and are no places to store at."""
    for _ in range(DRAWS):
        drawn = trial.reference.draw()
        inputs = with_integer(drawn, value, secrets.randbits(48))
        if _other(inputs, drawn):
            return inputs
    return []


def _wide(trial: Trial, drawn: list[Any]) -> tuple[int, ...]:
    """An integer beyond 32 bits, where an answer is made of 64 and a number of 20 bits is taken.

    An index raises at the latter; so no count of rows, as of ``bincount``, becomes one of billions.
    """
    own = _integers(trial.reference.sample.outputs)
    inputs = with_integer(drawn, WIDER, secrets.randbits(48))
    if not own or not _other(inputs, drawn):
        return ()
    try:
        with trial.reference.spared():
            found = outputs_of(trial.reference.run(inputs))
    except (TaskError, MachineError):
        return ()
    return (WIDE + secrets.randbelow(WIDE),) if _integers(found) == own else ()


def _integers(outputs: Iterable[tuple[str, Any]]) -> list[tuple[int, ...]]:
    """Shapes of the outputs of 64 bits."""
    return [tuple(t.shape) for _, t in outputs if isinstance(t, torch.Tensor) and t.dtype is torch.int64]


def _runs(trial: Trial, inputs: list[Any]) -> bool:
    """Whether the reference takes such inputs: where it does not, no exacter run is given up for it."""
    try:
        with trial.reference.spared():
            trial.reference.run(inputs)
    except (TaskError, MachineError):
        return False
    return True


def _constants(trial: Trial, known: Constants, whole: Constants) -> str:
    """The numbers in the file's text among inputs and weights; where that has no answer, in floats alone.

    Integers may be those of the task's text as well (``whole``): an identifier that its code treats apart.
    """
    inputs = with_constants(trial.reference.draw(), known, secrets.randbits(48))
    rare = rare_integers(inputs, whole, tables(trial), secrets.randbits(48))
    if trial.connection.names:
        trial.connection.rare_weights(known)
    found = _asked(trial, "constants of the file", rare, integers=True)
    if trial.connection.names:
        trial.connection.restore_weights()
    if found.startswith(UNANSWERED):
        found = _asked(trial, "constants of the file", inputs, integers=True)
    return found


def tables(trial: Trial) -> set[int]:
    """Sizes of what integers may index."""
    floats = [t for t in trial.reference.sample.tensors if t.is_floating_point()]
    return {size for t in (*floats, *trial.reference.module.parameters()) for size in t.shape}


def _asked(trial: Trial, name: str, inputs: list[Any], *, integers: bool) -> str:
    trial.level()  # the reference alone was asked what it had no answer to
    try:
        case = trial.reference.answer(f"{name} in the inputs", inputs, own=False)
    except (TaskError, MachineError) as error:
        return f"{UNANSWERED}: {error}"[:200]
    case = replace(case, leeway=LEEWAY)
    found = _put(trial, case, integers=integers) if answered(trial, case) else UNANSWERED
    if trial.reference.moving:
        trial.connection.restore_weights()
    return found


def _put(trial: Trial, case: Case, *, integers: bool) -> str:
    reply = trial.attempt(case, Options(traced=True, native=True))
    if reply is None:
        return "raises"
    if not integers:
        before = copy.copy(trial.checks.worst)
        try:
            trial.check(case, reply)
        except Refused:
            trial.checks.worst = before
        else:
            return "right"
        for (_, expected), got in zip(case.outputs, trial.buffers.outputs(), strict=True):
            if isinstance(expected, torch.Tensor) and got is not None and are_integers(expected):
                got.copy_(expected)
    return _checked(trial, case, reply)


def _checked(trial: Trial, case: Case, reply: Forwarded) -> str:
    before = copy.copy(trial.checks.worst)
    try:
        trial.check(case, reply)
    except Refused as wrong:
        trial.checks.worst = before
        return _without_jumps(trial, case, reply, wrong)
    return "right"


def _without_jumps(trial: Trial, case: Case, reply: Forwarded, wrong: Refused) -> str:
    """Check again what the reference does not answer by chance."""
    unclear = total = 0
    for _ in range(ROUNDS):
        with trial.reference.spared():
            try:
                near = outputs_of(trial.reference.run(_shaken(case.inputs), case.seed))
            except TaskError:
                return f"{UNANSWERED} a few roundings away"
            pairs = zip(case.outputs, near, trial.buffers.outputs(), strict=True)
            for (_, expected), (_, other), got in pairs:
                if not isinstance(expected, torch.Tensor) or not isinstance(other, torch.Tensor):
                    continue
                if got is not None and expected.shape == other.shape:
                    unclear += _settle(got, expected.contiguous(), other)
                    total += expected.numel()
    if unclear > UNCLEAR * total:
        return "answered by chance"
    if not unclear:
        raise wrong
    trial.check(case, reply)
    return "right where the reference does not jump"


@torch.no_grad()
def _shaken(inputs: list[Any]) -> list[Any]:
    """Every floating element a few roundings up or down, zero by as much of the typical size."""

    def change(flat: torch.Tensor) -> torch.Tensor:
        noise = torch.empty_like(flat, dtype=torch.float32).uniform_(-4.0, 4.0).mul_(ROUNDOFF[flat.dtype])
        typical = float(flat.float().abs().mean()) if flat.numel() else 0.0
        wide = as_reals(flat)
        return (wide + noise * torch.where(wide == 0, typical, wide.abs())).to(flat.dtype)

    return map_tensors(
        inputs, lambda t: restrided(t, change) if t.is_floating_point() and t.dtype in ROUNDOFF else t
    )


def _settle(got: torch.Tensor, expected: torch.Tensor, near: torch.Tensor) -> int:
    """Put the reference's own value where it jumps; returns at how many places."""
    size = float(expected.double().abs().nan_to_num(0.0, 0.0, 0.0).mean()) if expected.numel() else 0.0
    count = 0
    for c, r, n in memory.pieces(got, expected, near):
        if _inexact(expected):
            apart = (r.double() - n.double()).abs()
            jumps = ~(apart <= JUMP * (r.double().abs() + size)) & (r != n)
        else:
            jumps = r != n
        torch.where(jumps, r, c, out=c)
        count += int(jumps.sum())
    return count


def answered(trial: Trial, case: Case) -> bool:
    """Whether the reference is as finite as at its own inputs, also in fp64, and close to that run."""
    if min(finite_share(case.outputs), finite_share(case.golden)) < trial.reference.finite_share:
        return False
    for (_, expected), (_, golden) in zip(case.outputs, case.golden, strict=True):
        expected, golden = tensor_of(expected), tensor_of(golden)
        if _inexact(expected):
            own = compare(expected, expected, golden, trial.policy.precision)
            if not own.reference_relative < max(
                1e-2, min(FURTHEST, CLOSE * ROUNDOFF.get(expected.dtype, 0.0))
            ):
                return False
    return True


def _inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()

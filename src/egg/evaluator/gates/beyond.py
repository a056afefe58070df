"""Questions that a task's generator never puts: other values of constant inputs, NaN and infinity.

A kernel that ignores a mask which is always true, or turns NaN into zero, is right on every draw of
the generator; a program that calls it is not. The reference answers these questions as any other,
and where it has no answer they are not put.

**NaN.** Where the reference and its exact run have NaN or infinity, a candidate must not have a number. Which
of the two it has is left to it: products in several pieces make NaN of an infinity. What follows such a
product may be NaN where the reference has a number (the sigmoid of an infinity). A convolution by transforms
makes NaN of a whole signal that has one: there a NaN may spread over the signal. What lies behind a mask of
attention is multiplied by zero or skipped, as tiles fall: where the exact answer is the same whatever number
lies at places of the NaN (:mod:`egg.evaluator.gates.unreached`), the candidate may have that number. Where it
is not the same, the candidate may have NaN: PyTorch's attention on the CPU makes zeros of a query that is
none. One way in which a NaN is lost is the language's own: ``tl.maximum``, ``tl.minimum`` and the reductions
by them drop it unless they are asked to. In the interpreter these propagate it while this is asked, so that
only what a file does by itself is judged; on a GPU, where that cannot be had, a lost NaN is a warning in
programs that have such operations.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Collection
from typing import Any

import torch

from egg.core.errors import MachineError, TaskError
from egg.evaluator.compare.compare import LeafError, compare
from egg.evaluator.gates.unreached import Unreached
from egg.evaluator.operators.ops import Recorder
from egg.evaluator.process.handle import Fault
from egg.evaluator.reference.answers import finite_share, same_values
from egg.evaluator.reference.case import Case
from egg.evaluator.reference.snapshot import Snapshot
from egg.evaluator.reference.ties import INDICES
from egg.evaluator.task.distributions import spiked, spikes_of
from egg.evaluator.task.program import outputs_of
from egg.evaluator.task.unvaried import can_vary, varied
from egg.evaluator.tensors import memory
from egg.evaluator.tensors.reals import EIGHT_BITS, as_reals, finite
from egg.evaluator.transport import exchange
from egg.evaluator.transport.freshen import Kind
from egg.evaluator.transport.protocol import Options
from egg.evaluator.trial.checks import tensor_of
from egg.evaluator.trial.levels import Probes
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial

Examine = Callable[[Trial, Case], object]

PROBES = (("NaN", (math.nan,)), ("infinity", (math.inf, -math.inf)))
AT_ONCE = (("NaN and infinity", (math.nan, math.inf, -math.inf)),)
EXTREMES = ("max", "min", "relu", "clamp", "hardtanh", "hardswish", "hardsigmoid", "threshold", "shrink")
"""Parts of the names of operations that Triton's extremes stand for."""
PRODUCTS = ("mm", "convolution", "dot", "mv", "attention", "einsum", "linear")
"""Of operations that may be computed in several pieces."""
TRANSFORMS = ("convolution", "fft")
"""Of operations that may be computed by transforms of whole signals."""
COMPLEX = ("complex", "polar", "fft")
"""Of operations that make complex numbers."""
MASKED = ("attention", "softmax")
"""Of operations that may read what is masked, or skip it."""
NEAR = 0.25
"""The relative error below which numbers beside a NaN count as the same."""
UNSAFE = (
    "index",
    "gather",
    "scatter",
    "embedding",
    "multinomial",
    "bincount",
    "take",
    "sort",
    "topk",
    "one_hot",
)
"""Of operations that may make an address of a NaN, which a GPU does not forgive."""


def redrawn(trial: Trial, examine: Examine) -> dict[str, str]:
    """Put one question with other values for each mask or integer input that the generator never varies."""
    outcomes: dict[str, str] = {}
    for position, kind in enumerate(trial.reference.kinds):
        inputs = trial.reference.draw()
        tensor = exchange.pack(inputs)[1][position]
        if kind is Kind.FIXED and can_vary(tensor):
            name = f"input {position} ({str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)})"
            outcomes[name] = _redrawn(trial, examine, name, position, inputs)
    return outcomes


def _redrawn(trial: Trial, examine: Examine, name: str, position: int, inputs: list[Any]) -> str:
    reference = trial.reference
    trial.level()
    try:
        changed = varied(inputs, position, secrets.randbits(48))
        case = reference.answer(f"{name}, which the task never varies, redrawn", changed, own=False)
        with reference.spared():
            same = _same_answer(outputs_of(reference.run(inputs, case.seed)), case.outputs)
    except (TaskError, MachineError) as error:
        return f"no answer: {error}"[:200]
    if 2 * finite_share(case.outputs) < reference.finite_share:
        return "no answer"
    if same:
        return "the answer does not depend on it"
    try:
        examine(trial, case)
    except Refused as wrong:
        raise Refused(
            "correctness.unvaried", wrong.evidence,
            f"{name} has the same values in every draw of the task, but it is an input: read it, or raise "
            "where it holds what the kernel is not made for",
            facts=wrong.facts,
        ) from None  # fmt: skip
    except Fault as fault:
        trial.survive(fault)
        return "raises"
    return "right"


def _complex(trial: Trial, names: str) -> bool:
    """Whether complex numbers are computed with. PyTorch multiplies them by a real number as by a complex
    one, so that a NaN in one part spreads to the other, which does not depend on it."""
    held = (*trial.reference.initial.values(), *trial.reference.sample.tensors)
    return any(t.is_complex() for t in held) or any(part in names for part in COMPLEX)


def _same_answer(one: list[tuple[str, Any]], other: list[tuple[str, Any]]) -> bool:
    """``True`` also where the two have other forms and cannot be compared."""
    return [path for path, _ in one] != [path for path, _ in other] or all(
        same_values(tensor_of(a), tensor_of(b)) for (_, a), (_, b) in zip(one, other, strict=True)
    )


def not_numbers(trial: Trial) -> dict[str, str]:
    """Put the task's own inputs with a few NaN, and with a few infinities, at secret places."""
    outcomes: dict[str, str] = {}
    if not any(t.is_floating_point() for t in trial.reference.sample.tensors):
        return outcomes
    gpu = trial.device.type == "cuda"
    names = _operations(trial)
    if gpu and any(part in names for part in UNSAFE):
        return {"skipped": "an address may depend on it"}
    products, masked = (any(part in names for part in parts) for parts in (PRODUCTS, MASKED))
    masked = masked or _complex(trial, names)
    for name, values in AT_ONCE if trial.settings.domain is Probes.FEW else PROBES:
        plain, places = trial.reference.draw(), secrets.randbits(48)
        inputs = spiked(plain, values, places)
        if trial.follows:  # what is no number stays in what calls leave
            trial.connection.restore_weights()
            trial.level()
        began = Snapshot.of(trial.reference.module)
        try:
            case = trial.reference.answer(f"{name} at a few places of the inputs", inputs, own=False)
        except (TaskError, MachineError) as error:
            outcomes[name] = f"no answer: {error}"[:200]
            continue
        outcomes[name] = _followed(
            trial,
            case,
            forgiven=gpu and any(part in names for part in EXTREMES),
            spreads=products and math.inf in values,
            signals=any(part in names for part in TRANSFORMS),
            unreached=_unreached(trial, case, began, plain, values, places) if masked else None,
        )
    if trial.reference.moving:
        trial.connection.restore_weights()  # both sides hold NaN in buffers that forward moves
    return outcomes


def _unreached(
    trial: Trial, case: Case, began: Snapshot, plain: list[Any], values: tuple[float, ...], places: int
) -> Unreached:
    """Asks for exact outputs with finite numbers at places of the NaN, from the state in which the question
    ``began``."""

    def answer(chosen: Collection[int], number: float) -> list[torch.Tensor | None]:
        spared = spiked(plain, values, places, dict.fromkeys(chosen, number))
        try:
            with trial.reference.spared():
                began.put_back()
                golden = trial.reference.answer(case.label, spared, own=False, seed=case.seed).golden
        except (TaskError, MachineError):
            return [None] * len(case.golden)
        return [value if isinstance(value, torch.Tensor) else None for _, value in golden]

    return Unreached(answer, spikes_of(plain, values))


def _skipped(got: torch.Tensor, expected: torch.Tensor, unreached: torch.Tensor | None) -> None:
    """Put the reference's NaN where the candidate has the number of an answer that it does not reach."""
    if unreached is None or unreached.shape != got.shape:
        return
    there = finite(got) & ~finite(expected) & finite(unreached)
    error = (got[there].double() - unreached[there].double()).norm()
    if error <= NEAR * unreached[there].double().norm():
        got.copy_(torch.where(there, expected, got))


def _reached(got: torch.Tensor, expected: torch.Tensor, unreached: torch.Tensor | None) -> None:
    """Put the reference's number where the candidate has a NaN and the answer depends on what is NaN."""
    if unreached is not None and unreached.shape == got.shape:
        there = torch.isnan(got) & finite(expected) & ~finite(unreached)
        got.copy_(torch.where(there, expected, got))


def _followed(
    trial: Trial,
    case: Case,
    *,
    forgiven: bool,
    spreads: bool,
    signals: bool,
    unreached: Unreached | None,
) -> str:
    """What became of the values: a lost NaN is ``forgiven``, a NaN ``spreads`` that was an infinity, or all
    over a signal (``signals``), or need not come from behind a mask (``unreached``)."""
    options = Options(propagate=True, native=True)
    reply = trial.attempt(case, options)
    if reply is None:
        return "raises"
    trial.checks.check_form(case, reply.outputs)
    told = [t.clone() if t is not None and t.dtype in INDICES else None for t in trial.buffers.outputs()]
    outcome, asked = "", 0

    def check(answered: Case) -> None:
        nonlocal outcome, asked
        asked += 1
        if asked > 1:  # what was delivered was overwritten
            trial.attempt(case, options)
        outcome = _kept(
            trial, answered, forgiven=forgiven, spreads=spreads, signals=signals, unreached=unreached
        )

    trial.checks.agreed(case, check, told)
    return outcome


def _kept(
    trial: Trial,
    case: Case,
    *,
    forgiven: bool,
    spreads: bool,
    signals: bool,
    unreached: Unreached | None,
) -> str:
    """By one of the right answers; what was delivered is overwritten where it is not compared."""
    for position, ((path, expected), (_, golden), got) in enumerate(
        zip(case.outputs, case.golden, trial.buffers.outputs(), strict=True)
    ):
        if not isinstance(expected, torch.Tensor) or got is None or not expected.is_floating_point():
            continue  # an integer that stands for a NaN is a matter of order, which the language leaves open
        if expected.dtype in EIGHT_BITS:
            _unsaturate(got, expected)
        lost = _lost(got, expected, golden)
        if lost and unreached is not None:
            for answers in unreached.each():
                _skipped(got, expected, answers[position])
                if not (lost := _lost(got, expected, golden)):
                    break
        if lost and forgiven:
            trial.warnings.append(f"{case.label}: {lost} elements of output {path} became numbers")
            return "lost in an extreme"
        if lost:
            raise Refused(
                "correctness.not_a_number",
                f"{case.label}, output {path}: {lost} elements are numbers where the reference has NaN or "
                "infinity",
                "a comparison with NaN is false: tl.where(x > 0, x, 0) drops it, tl.where(x <= 0, 0, x) "
                "keeps it; so do tl.maximum and tl.clamp with propagate_nan=tl.PropagateNan.ALL",
            )
        if signals:
            _gather(got, expected)
        if unreached is not None and bool((torch.isnan(got) & finite(expected)).any()):
            _reached(got, expected, unreached.of_all[position])
        error = _elsewhere(trial, got, expected, golden, spreads=spreads)
        if not error.passed and not (error.relative < NEAR and not error.problem):
            raise Refused(
                "correctness.not_a_number",
                f"{case.label}, output {path}: {error.problem or 'other values'} where the reference has "
                "numbers",
                "a NaN or an infinity must not spread to elements that do not depend on it: look at masks",
            )
    return "kept"


def _unsaturate(got: torch.Tensor, expected: torch.Tensor) -> None:
    """Put the reference's value where it has no number and the candidate has the largest of the type.

    That too is the language's own: a GPU's conversion to 8 bits ends at the largest number, PyTorch's goes on
    to infinity, or to NaN where the type has none.
    """
    full = as_reals(got).abs() == torch.finfo(got.dtype).max
    got.copy_(torch.where(full & ~finite(expected), expected, got))


def _lost(got: torch.Tensor, expected: torch.Tensor, golden: torch.Tensor) -> int:
    """Elements that are numbers though neither the reference nor the exact run has one there."""
    return sum(
        int((finite(c) & ~finite(r) & ~finite(g)).sum()) for c, r, g in memory.pieces(got, expected, golden)
    )


def _elsewhere(
    trial: Trial, got: torch.Tensor, expected: torch.Tensor, golden: torch.Tensor, *, spreads: bool
) -> LeafError:
    """By the ordinary rule, with whatever is no number in both put as the reference has it, where it lies.

    The exact run may have NaN where the reference has a number: attention written out multiplies the values
    behind a mask by zero, a fused one skips them. There the reference stands for it.
    """
    wanted, exact = expected.contiguous(), golden.contiguous()
    for c, r, g in memory.pieces(got, wanted, exact):
        g.copy_(torch.where(finite(g) | ~finite(c), g, r.to(g.dtype)))
        compared = finite(c) | finite(r)
        if spreads:
            compared &= ~torch.isnan(c)
        torch.where(compared, c, r, out=c)
    return compare(got, wanted, exact, trial.policy.precision)


def _gather(got: torch.Tensor, expected: torch.Tensor) -> None:
    """Put the reference's values where a signal of which it has no number somewhere is not finite.

    Samples and channels are the first two dimensions, as convolutions have them; of two the second is time.
    """
    inner = min(2, expected.dim() - 1)
    if inner < 1:
        return
    hit = ~finite(expected).flatten(inner).all(dim=-1)
    hit = hit.reshape(*hit.shape, *(1 for _ in range(expected.dim() - inner)))
    got.copy_(torch.where(hit & ~finite(got), expected, got))


def _operations(trial: Trial) -> str:
    """The names of what the reference does, in one line."""
    with trial.reference.spared(), Recorder() as recorder:
        trial.reference.run(trial.reference.draw())
    return " ".join(recorder.compute)

"""Own kernels must compute what the answer needs: one that cancels, or changes the encoding, leaves the work.

The inputs are answered once more by a new instance in which kernels copy an operand in place of their
work (:mod:`egg.evaluator.operators.copied`). Where PyTorch's operators make the same answer, they did the
work. Two kinds of kernels are honest all the same. The task itself may have operations that cancel (the
maximum that is taken off in front of a softmax): where the library did not run them and the reference gives
its answer without them too, a kernel took them over. And a kernel may be needed at other values alone: it
keeps large ones in range, where copies overflow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import torch

from egg.evaluator.operators.cancelling import cancels
from egg.evaluator.operators.contributed import LARGEST
from egg.evaluator.process.handle import Fault
from egg.evaluator.reference.case import Case
from egg.evaluator.task.program import outputs_of
from egg.evaluator.transport import protocol
from egg.evaluator.transport.protocol import By
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial
from egg.evaluator.trial.watch import FAMILIES, by_family, listed

HINT = (
    "what the kernels compute has no effect, or one takes off what another put on: take over an operation "
    "that the answer needs"
)
DRAWS_EQUAL = 2
LARGE = "large"


def check_carried(
    trial: Trial, record: protocol.Record, wanted: Mapping[str, int], cases: Sequence[Case]
) -> None:
    """Behind calls on ``cases`` that were followed: nothing counts that is carried behind the library."""
    if cases:
        _check(trial, record, wanted, cases, By.CARRIED)


def check_equal(trial: Trial, record: protocol.Record, wanted: Mapping[str, int]) -> None:
    """Where kernels may scale and shift in the reference's place: the answer is the same without them."""
    cases = [trial.reference.case("whose work it is", golden=False)]
    if not is_small(cases[0]):
        return
    cases += [trial.reference.case("whose work it is", golden=False) for _ in range(DRAWS_EQUAL - 1)]
    if _follow(trial, cases):
        _check(trial, record, wanted, cases, By.EQUAL)


def is_small(case: Case) -> bool:
    """Whether its tensors are followed; larger ones are not held, either."""
    return all(tensor.numel() <= LARGEST for tensor in case.tensors)


def _check(
    trial: Trial, record: protocol.Record, wanted: Mapping[str, int], cases: Sequence[Case], by: By
) -> None:
    if _needed(trial, cases, by) or _cancels(trial, cases[0], record, wanted) or _overflows(trial):
        return
    ran = listed(Counter(record.ops) + Counter(record.moves))
    raise Refused(
        "provenance.fig_leaf",
        f"PyTorch makes the answer also where each own kernel copies an operand in place of its work: {ran}",
        HINT,
    )


def _follow(trial: Trial, cases: Sequence[Case]) -> bool:
    try:
        for case in cases:
            trial.buffers.place(case)
            trial.ask(case, options=protocol.Options(follow=trial.sketch_seed), watched=False)
    except Fault as fault:
        trial.survive(fault)
        return False
    return True


def _needed(trial: Trial, cases: Sequence[Case], by: By) -> bool:
    """Whether the answer needs what kernels compute. What calls without it leave is not called again."""
    try:
        trial.connection.fresh()
        for number, case in enumerate(cases):
            trial.buffers.place(case)
            trial.connection.request(protocol.Copy(trial.buffers.call_set(case, 0), case.seed, number))
        needed = trial.connection.request(protocol.Needs(by)).own
    except Fault as fault:
        trial.survive(fault)
        return True
    trial.connection.fresh()
    return needed


def _cancels(trial: Trial, case: Case, record: protocol.Record, wanted: Mapping[str, int]) -> bool:
    """Whether the reference has operations which the library did not run, and its answer does not need."""
    left = by_family(wanted) - by_family(record.ops)

    def answers() -> list[torch.Tensor]:
        result = trial.reference.run(case.inputs, case.seed)
        return [leaf for _, leaf in outputs_of(result) if isinstance(leaf, torch.Tensor)]

    return cancels(answers, lambda name: FAMILIES.get(name, name) in left)


def _overflows(trial: Trial) -> bool:
    """Whether large values need what kernels compute."""
    case = trial.reference.case("whose work it is", LARGE, golden=False)
    return _follow(trial, [case]) and _needed(trial, [case], By.FINITE)

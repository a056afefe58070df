"""Files whose stated domain excludes the size that is interpreted, on a machine without a GPU.

They are judged at the smallest size inside their domain (:mod:`egg.evaluator.judge.reduction`), and at the
one that it excludes they must raise an error or be right: a narrow statement hides nothing that a wide one
shows.
Where every size inside is too large for the interpreter, the launches are compiled and as many programs of
the task itself are run as it can bear. A fault that shows there is refused for what it is. Where none shows
the file is not accepted either, for a reason that does not blame it: state, provenance and most questions of
correctness were not asked.
"""

from __future__ import annotations

from egg.evaluator.gates import own as own_size
from egg.evaluator.gates.compile import must_compile
from egg.evaluator.gates.domain import GUARD
from egg.evaluator.gates.sizes import right_at
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Notes, Trial

ON_A_GPU = (
    "no fault was found: judge it on a GPU, or let DOMAIN leave a size free that the kernels do not need "
    "fixed, such as the batch"
)


def excluded(trial: Trial) -> Notes:
    """One question at the excluded size: an exception passes, a wrong answer without one does not."""
    assert trial.offline is not None
    left_out = trial.offline.excluded
    assert left_out is not None
    at = left_out.words()
    try:
        right = right_at(trial, left_out.size.task, at)
    except Refused as wrong:
        evidence = f"outside the stated domain ({left_out.why}), wrong without an error: {wrong.evidence}"
        raise Refused("domain.wrong", evidence[:1400], GUARD, facts=wrong.facts) from None
    answer = "right" if right else "raises, or takes too long"
    return {"excluded_by_domain": at, "why": left_out.why, "there": answer}


def own(trial: Trial) -> Notes:
    """As much of the task itself as the interpreter can bear."""
    assert trial.offline is not None
    must_compile(trial.offline)
    notes = own_size.run(trial)
    ran = f" ({'; '.join(notes['programs'])})" if notes.get("programs") else ""
    trial.offline.own_run = f"{notes['own_size']}{ran}"
    return notes


def refuse(trial: Trial) -> Notes:
    """Not accepted, with what was done."""
    offline = trial.offline
    assert offline is not None
    assert offline.excluded is not None
    evidence = (
        f"DOMAIN excludes the size that would be interpreted ({offline.excluded.words()}: "
        f"{offline.excluded.why}), and inside it none can be: {offline.too_large}. What was done: compiled "
        f"for {offline.target.name} at {offline.own_sizes}; the task itself in the interpreter: "
        f"{offline.own_run or 'skipped'}"
    )
    raise Refused("domain.too_large", evidence, ON_A_GPU)

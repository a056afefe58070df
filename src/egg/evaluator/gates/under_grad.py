"""The task's own call under grad mode, with inputs as the task makes them: how most programs call a module.

All other questions are asked under ``no_grad``, and those on gradients with something that requires one. A
file that asks for the mode could do other things in between. With the parameters as they are, or inputs that
the task makes with ``requires_grad=True``, the call may raise: a file without a backward does well to. Whose
work it is, is asked with the gradients (gate ``domain``). With nothing that requires a gradient there is
nothing to record, and everything holds as under ``no_grad``; gradients that a caller accumulated earlier stay
as they are.
"""

from __future__ import annotations

import secrets

from egg.evaluator.process.handle import Fault
from egg.evaluator.transport.protocol import GradMode, Options
from egg.evaluator.trial.levels import Probes
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial

RIGHT, RAISED = "right", "raised"
WORDS = {GradMode.ON: "under grad mode", GradMode.FROZEN: "under grad mode, with frozen parameters"}

SAME = (
    "compute the same values whether torch.is_grad_enabled() or not; where no gradient can be given, raise "
    "an error"
)


def run(trial: Trial) -> dict[str, str]:
    """What came of each call; one by lot where a level asks few questions."""
    learning = trial.reference.learning
    modes = (GradMode.ON, GradMode.FROZEN) if learning else (GradMode.FROZEN,)
    if trial.settings.domain is not Probes.ALL:
        modes = (secrets.choice(modes),)
    return {WORDS[mode]: _asked(trial, mode, learning=learning) for mode in modes}


def _asked(trial: Trial, mode: GradMode, *, learning: bool) -> str:
    case = trial.reference.case(WORDS[mode])
    trial.buffers.place(case)
    recording = learning and mode is GradMode.ON
    try:
        reply = trial.ask(case, options=Options(traced=True, grad=mode), watched=not recording)
    except Fault as fault:
        trial.survive(fault)
        return RAISED
    try:
        trial.check(case, reply)
    except Refused as wrong:
        raise Refused(
            "correctness.grad_mode",
            f"under no_grad the answers are right; {wrong.evidence}",
            SAME,
            facts=wrong.facts,
        ) from None
    trial.checks.check_inputs_unchanged(case)
    return RIGHT

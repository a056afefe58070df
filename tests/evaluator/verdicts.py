"""What the judge must say of a file of the corpus, and how long it may take."""

from __future__ import annotations

from dataclasses import replace

from egg.core.evaluation import Evaluation, Gate, Rejected
from egg.core.policy import Level
from egg.evaluator.task.unusual_kinds import UNUSUAL
from egg.evaluator.trial.levels import LEVELS, LevelSettings, Probes
from tests.conftest import BRIEF
from tests.corpus.corpus import Case

SHORT = replace(BRIEF, call_seconds=5.0, build_seconds=5.0)
"""For what may hang or crash as early as it is built: the sooner the better."""
HANGING = replace(BRIEF, call_seconds=2.0, build_seconds=2.0)
"""For what hangs in any case: longer limits only make it hang longer."""
SHOWN_BY_A_GPU = (Gate.PROVENANCE, Gate.CORRECTNESS, Gate.DOMAIN, Gate.INTERPRETER)
"""Where a GPU refuses what the interpreter calls by its name, for a reason of its own."""
NEVER_ENDING = ("infinite_loop", "stop_itself", "ignore_signals")
FILLING = replace(BRIEF, call_seconds=8.0, build_seconds=8.0)
"""For what takes all memory: that ends it, where there is time for it."""


WHOLE = replace(BRIEF, domain=Probes.ALL, unusual=UNUSUAL)
"""For what shows at calls and values that level full tries."""


MANY = replace(BRIEF, calls=LEVELS[Level.FULL].calls, calls_seconds=LEVELS[Level.FULL].calls_seconds)
"""For what shows in long sessions."""


def limits(case: Case) -> LevelSettings:
    if any(name in case.name for name in NEVER_ENDING):
        return HANGING
    if case.whole:
        return WHOLE
    if case.callers:
        return MANY
    if Gate.MEMORY in case.gates:
        return replace(BRIEF, fence=True)
    if Gate.BUILD not in case.gates or "shared_memory" in case.name:  # huge tiles compile slowly
        return BRIEF
    return FILLING if "out_of_memory" in case.name else SHORT


def check(case: Case, evaluation: Evaluation) -> None:
    """The verdict the file asks for, by one of the gates it names, for the reason it gives."""
    if case.expected == "accepted":
        assert evaluation.accepted, evaluation.verdict
        return
    assert isinstance(evaluation.verdict, Rejected), f"{case.name} was accepted: {evaluation.verdict}"
    refusal = evaluation.verdict.refusal
    on_gpu = evaluation.machine.device == "cuda"
    assert refusal.gate in (*case.gates, *(SHOWN_BY_A_GPU if on_gpu else ())), refusal
    if refusal.gate is case.gates[0] and not on_gpu:
        assert refusal.reason.startswith(case.reasons), refusal
    assert refusal.evidence
    assert refusal.hint
    assert evaluation.gates[-1].passed is False

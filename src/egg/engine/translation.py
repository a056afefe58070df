"""When torch.compile's code is recorded, and when it is the next candidate.

A team whose run records for candidates writes its own first kernel. Where that is behind the best of PyTorch,
or where no kernel of its own was accepted, the seed stage has one more step: the team translates what
torch.compile generated into a kernel file. The file is timed beside the base and judged where it is faster,
so at most one verdict is spent. Everything here depends on the log alone.
"""

from __future__ import annotations

from itertools import pairwise

from egg.core.evaluation import Accepted, Baseline, Measured
from egg.core.recording import CANDIDATE, EVIDENCE
from egg.core.stage import Stage
from egg.core.step import Decision, Kernel, Origin
from egg.engine.state import RunState


def wants_recording(state: RunState) -> bool:
    """Whether torch.compile's code is to be recorded now: at most once in a run."""
    if state.compiled is not None:
        return False
    use = state.started.settings.compiled
    return use == EVIDENCE or (use == CANDIDATE and _in_need(state))


def awaits_translation(state: RunState) -> bool:
    """Whether the next step of the seed stage translates the recorded graph."""
    recorded = state.compiled
    return (
        state.started.settings.compiled == CANDIDATE
        and recorded is not None
        and recorded.graph is not None
        and not state.translated
        and _in_need(state)
    )


def best_of_pytorch(kernel: Kernel) -> Baseline | None:
    """The baseline that the kernel has the least lead over, of those under the same precision."""
    verdict = kernel.evaluation.verdict
    if not isinstance(verdict, Accepted) or not isinstance(verdict.performance, Measured):
        return None
    same = [b for b in verdict.performance.baselines if " " not in b.name]
    return min(same, key=lambda b: b.speedup.median, default=None)


def own_kernel(state: RunState) -> Kernel | None:
    """The kernel that a translation took the place of as the base; ``None`` where none did."""
    promoted = [step for step in state.steps if step.decision is Decision.PROMOTED]
    for before, step in pairwise(promoted):
        if any(attempt.origin is Origin.TRANSLATION for attempt in step.attempts):
            return state.kernels.get(str(before.candidate))
    return None


def _in_need(state: RunState) -> bool:
    """Whether the team's own kernel is behind PyTorch, or all of its seeds were refused.

    A file that the run was given to begin with is the user's choice of a base.
    """
    if state.stage is not Stage.SEED or state.started.start is not None:
        return False
    base = state.base_kernel
    if base is None:
        return len(state.steps_in(Stage.SEED)) >= state.started.settings.budget.steps.get(Stage.SEED, 0)
    best = best_of_pytorch(base)
    return best is not None and best.speedup.median < 1.0

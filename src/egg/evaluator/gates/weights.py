"""Weights that change between two calls: what is made of them must follow, however they change.

An optimizer writes into a parameter, each parameter in its turn. ``p.data = ...``, ``module.to`` and
``load_state_dict(assign=True)`` give it other memory, or put another parameter into its place: its address
shows that, its version does not. A module moved to channels-last memory has weights of four dimensions that
lie otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from egg.evaluator.gates.beside import Answer, Outcome, ask_as_it_is
from egg.evaluator.reference.probes import Change
from egg.evaluator.transport.protocol import Written
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial

MOST_ALONE = 6
"""Weights of which each changes alone."""
KEY = (
    "what is made of weights must follow them: key a packed copy on the address and the version of every "
    "weight in it, (w.data_ptr(), w._version), which a hook of load_state_dict alone does not see"
)
LAYOUT = "right for weights in contiguous memory alone: wrong without an error in channels-last memory"


def run(trial: Trial, until: float) -> str:
    """Behind a call that was right: change weights in one way after the other, and call as before.

    Nearly every kernel reads a weight of four dimensions as it lies after construction: one that is wrong in
    another layout is accepted, and the verdict holds for that layout. Returns this in words. The instance is
    of no use afterwards: its weights lie where these ways left them.
    """
    for how, only in _ways(trial):
        if time.perf_counter() > until:
            return ""
        trial.connection.reweigh(how, only)
        outcome = ask_as_it_is(trial, Change())
        if outcome.answer is Answer.WRONG and how is Written.CHANNELS_LAST:
            trial.warnings.append(f"{LAYOUT}: {outcome.evidence}"[:300])
            return LAYOUT
        if outcome.answer is Answer.WRONG:
            raise _refused(how, only, outcome)
        if not trial.connection.process.alive:
            return ""
    return ""


def _ways(trial: Trial) -> Iterator[tuple[Written, str]]:
    """All weights in place, then each alone; then by other memory, as other parameters, in another layout."""
    yield Written.IN_PLACE, ""
    parameters = dict(trial.reference.module.named_parameters())
    names = [name for name in trial.connection.names.values() if name in parameters]
    if len(names) > 1:
        yield from ((Written.IN_PLACE, name) for name in names[:MOST_ALONE])
    if names:
        yield from ((Written.DATA, ""), (Written.REPLACED, ""))
    if any(parameters[name].dim() in (4, 5) for name in names):
        yield Written.CHANNELS_LAST, ""


def _refused(how: Written, only: str, outcome: Outcome) -> Refused:
    what = f"{only} alone" if only else "weights"
    return Refused("state.weights", f"{what} {how.value}: {outcome.evidence}"[:900], KEY)

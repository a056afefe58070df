"""The observed session: the calls of a timing session once more, each recorded.

Calls under the clock cannot be recorded, because recording takes time. So a candidate that counts its calls
could hand the work over to a library once it is timed.
This session follows in the same process, behind the last timed call, with the same requests on inputs that
move in the same way; nothing tells the candidate that the clock has stopped, and which of its calls are
recorded is drawn. Each of those is held to the rules of :mod:`egg.evaluator.trial.watch`. On a GPU the
profiler then says which kernels a call runs on the device, whatever PyTorch's dispatcher says.
"""

from __future__ import annotations

import secrets
from typing import Any

from egg.core.policy import LibraryCalls
from egg.evaluator.gates import provenance
from egg.evaluator.gates.many import check_recorded
from egg.evaluator.gates.timing import catch_up, check_left, placed_questions, seeds_for
from egg.evaluator.transport import protocol
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Notes, Trial
from egg.evaluator.trial.watch import FORBIDDEN

FEWEST, MOST = 4, 12
"""Calls that are recorded."""
AMONG = 8
"""On a GPU, where calls take microseconds, they are drawn from up to so many times as many."""
COPYING = ("memcpy", "memset", "copy", "fill", "cat", "elementwise_kernel", "distribution")
"""Parts of names of kernels that only make and move tensors."""


def run(trial: Trial) -> Notes:
    if trial.watch is None:
        return {"calls": 0}
    cases = placed_questions(trial)
    wanted = FEWEST + secrets.randbelow(MOST - FEWEST + 1)
    calls = wanted * (1 + secrets.randbelow(AMONG)) if trial.device.type == "cuda" else wanted
    chosen = tuple(sorted(secrets.SystemRandom().sample(range(calls), wanted)))
    moves = trial.buffers.reserve.for_calls([case.tensors for case in cases], calls)
    trial.buffers.make_room()
    session = trial.buffers.session(cases, moves, seeds_for(trial, calls))
    observed = trial.connection.request(protocol.Observe(session, chosen)).calls
    check_recorded(trial, [seen.record for seen in observed], wanted)
    for seen in observed:
        _check_plain(seen)
    catch_up(trial, cases, moves)
    check_left(trial, cases, calls)
    if trial.device.type == "cuda":
        _check_device(trial, cases[0])
    return {"calls": calls, "recorded": wanted}


def _check_plain(seen: protocol.Observed) -> None:
    strange = [kind for kind in seen.kinds if kind != "Tensor"]
    if strange:
        raise Refused(
            "correctness.type", f"an output is a {strange[0]}", "return plain tensors on every call"
        )


def _check_device(trial: Trial, case: Any) -> None:
    """Own against library kernels by the device's own record, as late as this in the candidate's life."""
    assert trial.watch is not None
    assert trial.provenance is not None
    own = set(trial.provenance.kernels)
    spent = provenance.device_time(trial, case)
    total = sum(spent.values())
    if not total:
        return
    share = sum(time for name, time in spent.items() if name in own) / total
    if share < provenance.LEAST_SHARE:
        raise Refused(
            "provenance.fig_leaf", f"behind the timed calls own kernels take {share:.2%} of the GPU time",
            provenance.FIG_LEAF,
        )  # fmt: skip
    foreign = sorted(
        name for name in spent if name not in own and not any(p in name.lower() for p in COPYING)
    )
    if trial.policy.library_calls is LibraryCalls.FORBID and foreign:
        raise Refused(
            "provenance.library", f"kernels that are not the file's own: {foreign[0][:200]}", FORBIDDEN
        )

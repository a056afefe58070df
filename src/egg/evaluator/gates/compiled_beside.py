"""Build, on a machine without a GPU: what calls of other sizes launch is compiled for the target, not run.

Host code derives constants from sizes (``BK = triton.next_power_of_2(k)``). The interpreter takes any; the
compiler refuses tiles that are too small for a product, or too large for the memory of a multiprocessor. A
file that states a domain claims that those calls are answered: one that does not compile is a refusal. A file
that states none may raise.
"""

from __future__ import annotations

import time
from dataclasses import replace

from egg.evaluator.gates.calls import Calls
from egg.evaluator.gates.claims import CLAIM_LESS, Claims
from egg.evaluator.gates.compile import specs_of
from egg.evaluator.gates.domain import stated
from egg.evaluator.process.handle import Fault, WorkerHandle
from egg.evaluator.reference.probes import Change, Given
from egg.evaluator.transport import exchange, protocol
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Notes, Trial

MOST_SECONDS = 30.0
"""After which no further call is compiled."""
CALL_SECONDS = 60.0
"""For one of them; a compiler that takes longer says nothing of the file."""


def run(trial: Trial) -> Notes:
    domain, offline = stated(trial.candidate.source), trial.offline
    if domain is None or offline is None:
        return {}
    inputs = trial.reference.program.inputs(0, trial.device, trial.policy.precision)
    claims = Claims(trial, domain, Given.of(inputs))
    calls = Calls(claims)
    changes = [Change(sizes=calls.joint()), *calls.sizes()]
    inside = [change for change in changes if change.sizes and not claims.outside(change)]
    worker = offline.forkserver.worker()
    compiled, until = 0, time.perf_counter() + MOST_SECONDS
    try:
        worker.ask(
            replace(trial.load_request(trial.reference.program), build=False), trial.settings.build_seconds
        )
        for change in inside:
            if time.perf_counter() > until or not worker.alive:
                break
            compiled += _compiled(trial, worker, claims, change)
    finally:
        worker.end()
    return {"calls_compiled": compiled, "calls_not_compiled": len(inside) - compiled}


def _compiled(trial: Trial, worker: WorkerHandle, claims: Claims, change: Change) -> bool:
    """Whether everything that such a call launches was compiled; ``False`` where it could not be followed."""
    assert trial.offline is not None
    structure, tensors = exchange.pack(claims.forms_of(change))
    question = protocol.Capture(structure, specs_of(tensors), trial.offline.compiler_target())
    try:
        return not worker.ask(question, CALL_SECONDS).unsupported
    except Fault as fault:
        if fault.reason != "build.compile":
            return False
        evidence = f"{claims.describe(change)}: inside the stated domain, and {fault.evidence}"
        raise Refused(fault.reason, evidence[:900], CLAIM_LESS) from fault

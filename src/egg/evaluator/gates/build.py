"""Build: the candidate imports, constructs, and has the reference's parameters.

On a machine without a GPU it is first compiled for the target at full size, because the
interpreter accepts programs that the compiler refuses.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from egg.evaluator.task.signature import otherwise, signature_of
from egg.evaluator.tensors.reals import as_reals
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Notes, Trial

State = Mapping[str, tuple[tuple[int, ...], str]]


def run(trial: Trial) -> Notes:
    described = trial.connection.start()
    if wrong := otherwise(signature_of(trial.reference.module), described.forward):
        raise Refused(
            "build.signature", wrong, "give forward Model's arguments: its names, in its order, its defaults"
        )
    theirs = {n: (tuple(form.shape), form.dtype) for n, form in described.state.items()}
    ours = {n: (tuple(t.shape), str(t.dtype)) for n, t in trial.reference.initial.items()}
    names, how = match_parameters(ours, theirs, set(described.parameters))
    trial.connection.names = names
    if names:
        _report_values(trial, trial.connection.candidate_state())
    trial.agree_on(names)
    extra = sorted(set(theirs) - set(names))
    if extra:
        trial.warnings.append(f"buffers the reference does not have: {', '.join(extra[:5])}")
    return {"parameters": how, "matched": len(names), "sandbox": list(trial.connection.process.means)}


def match_parameters(ours: State, theirs: State, parameters: set[str]) -> tuple[dict[str, str], str]:
    """Which of the candidate's tensors (key) is which of the reference's (value): by name, else by order."""
    by_name = {n: n for n, form in theirs.items() if ours.get(n) == form}
    if parameters <= set(by_name):
        return by_name, "by name"
    if [f for n, f in theirs.items() if n in parameters] and list(theirs.values()) == list(ours.values()):
        return dict(zip(theirs, ours, strict=True)), "by order"
    unmatched = sorted(parameters - set(by_name))[:5]
    shown = ", ".join(f"{n} {theirs[n][0]}" if n in theirs else n for n in unmatched)
    raise Refused(
        "build.parameters",
        f"parameters that match none of Model's: {shown}",
        "ModelNew must hold the parameters of Model: same names, or same order and shapes",
    )


def _report_values(trial: Trial, state: Mapping[str, torch.Tensor]) -> None:
    """Warn where the candidate's initial values differ: KernelBench's harness copies nothing."""
    different = [
        n
        for n, value in state.items()
        if not torch.allclose(as_reals(value), as_reals(trial.reference.initial[n]), equal_nan=True)
    ]
    if different:
        trial.warnings.append(
            f"initial values differ from Model's after the same seed ({', '.join(different[:5])}): "
            "judged with copied weights, but KernelBench's own harness would see other results"
        )

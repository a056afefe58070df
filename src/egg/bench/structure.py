"""What a kernel file is made of, by its own docstring, and how the run came to it, by its steps."""

from __future__ import annotations

import ast
import re

from egg.bench.figures import MOST_KINDS, StepOutcome, Structure, counted
from egg.core.evaluation import Accepted, Evaluation, Rejected
from egg.core.step import Step
from egg.engine.state import RunState

KERNELS = "Kernels:"
LEFT = "Left to PyTorch:"
_MOVES = re.compile(r"\[([^\]]*)\]\s*$")


def structure_of(state: RunState, final: Evaluation) -> Structure:
    """Of an accepted kernel: groups, what it leaves to PyTorch, the moves and repairs that led to it."""
    docstring = ast.get_docstring(ast.parse(state.sources[final.candidate_hash])) or ""
    chain = _chain(state, final.candidate_hash)
    return Structure(
        kernels=len(final.verdict.provenance.kernels) if isinstance(final.verdict, Accepted) else 0,
        kinds=counted(group.partition(": ")[2] for group in groups_in(docstring))[:MOST_KINDS],
        left=left_in(docstring),
        moves=tuple(move for step in chain for move in moves_of(step)),
        repairs=tuple(
            attempt.diagnosis.modification_plan
            for step in chain
            for attempt in step.attempts
            if attempt.diagnosis is not None
        ),
    )


def outcomes_of(state: RunState) -> tuple[StepOutcome, ...]:
    """Of every step behind the seed."""
    return tuple(
        StepOutcome(
            step.stage.value,
            step.decision.value,
            float(f"{step.gain.ratio:.4g}") if step.gain is not None else None,
        )
        for step in state.steps
        if step.plan is not None and step.plan.change
    )


def refusals_of(state: RunState, final: Evaluation | None) -> tuple[str, ...]:
    """Every refusal of a file outside sweeps, as ``gate: reason``, the one at the end included."""
    refused = [a.signature for step in state.steps for a in step.attempts if a.signature]
    if final is not None and isinstance(final.verdict, Rejected):
        refused.append(f"{final.verdict.refusal.gate.value}: {final.verdict.refusal.reason}")
    return tuple(refused)


def groups_in(docstring: str) -> list[str]:
    """``matmul_kernel: product 64x64x64 with bias``: of every group the last kernel and what it does."""
    groups = []
    for block in docstring.split("\n\n"):
        if block.startswith(KERNELS):
            whole = re.sub(r"\n {5,}", " ", block)  # continuation lines are indented further
            for line in whole.splitlines()[1:]:
                names, _, summary = line.strip().partition(": ")
                groups.append(f"{names.split(', ')[-1]}: {summary}")
    return groups


def left_in(docstring: str) -> str:
    """What stays a PyTorch call; empty where nothing does."""
    block = next((b for b in docstring.split("\n\n") if b.startswith(LEFT)), "")
    return " ".join(block.removeprefix(LEFT).split()).rstrip(".")


def moves_of(step: Step) -> list[str]:
    """The typed moves behind a plan's sentence; a sweep's come with the values that won."""
    found = _MOVES.search(step.plan.change) if step.plan is not None else None
    moves = [move.strip() for move in found[1].split(";") if move.strip()] if found else []
    if step.sweep is not None:
        won = next((p.values for p in step.sweep.points if p.candidate == step.sweep.winner), {})
        moves += [f"{name} = {value}" for name, value in won.items()]
    return moves


def _chain(state: RunState, kernel: str | None) -> list[Step]:
    """The steps that led to a kernel, the first one first."""
    by_kernel = {step.candidate: step for step in reversed(state.steps) if step.candidate is not None}
    swept = {p.candidate: step for step in state.steps if step.sweep for p in step.sweep.points}
    chain: list[Step] = []
    while kernel is not None and (step := by_kernel.get(kernel) or swept.get(kernel)) is not None:
        chain.insert(0, step)
        kernel = step.base
    return chain

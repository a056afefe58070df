"""What a kernel file is made of, as the file itself says, and how the run came to it, by its steps."""

from __future__ import annotations

import ast
import re
from typing import Any

from egg.core.evaluation import Accepted, Evaluation
from egg.core.step import Step
from egg.engine.state import RunState

KERNELS = "Kernels:"
LEFT = "Left to PyTorch:"
_MOVES = re.compile(r"\[([^\]]*)\]\s*$")


def structure_of(state: RunState, final: Evaluation) -> dict[str, Any]:
    """Of an accepted kernel: groups, what it leaves to PyTorch, the moves and repairs that led to it."""
    told = ast.get_docstring(ast.parse(state.sources[final.candidate_hash])) or ""
    chain = _chain(state, final.candidate_hash)
    return {
        "kernels": len(final.verdict.provenance.kernels) if isinstance(final.verdict, Accepted) else 0,
        "groups": groups_in(told),
        "left": left_in(told),
        "moves": [move for step in chain for move in moves_of(step)],
        "repairs": [
            attempt.diagnosis.modification_plan
            for step in chain
            for attempt in step.attempts
            if attempt.diagnosis is not None
        ],
    }


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

"""Budgets have names: how much is tried before a run is content."""

from __future__ import annotations

from egg.core.errors import UsageError
from egg.core.settings import Budget
from egg.core.stage import Stage

REPLY_PER_BASE = 1.25
"""A whole file may be written again, and a little longer than it was."""

BUDGETS = {
    "sketch": Budget(
        name="sketch",
        steps={Stage.SEED: 2},
        patience=1,
        repairs=3,
        sweep_points=1,
        side_by_side=True,
        headroom=1.10,
        prompt_tokens=6_000,
        reply_tokens=8_000,
        reply_per_base=REPLY_PER_BASE,
    ),
    "quick": Budget(
        name="quick",
        steps={Stage.SEED: 2, Stage.STRUCTURE: 2, Stage.MAPPING: 1, Stage.TILING: 1, Stage.MEMORY: 1},
        patience=1,
        repairs=2,
        sweep_points=8,
        side_by_side=True,
        headroom=1.10,
        prompt_tokens=6_000,
        reply_tokens=8_000,
        reply_per_base=REPLY_PER_BASE,
        tool_calls=4,
    ),
    "standard": Budget(
        name="standard",
        steps={Stage.SEED: 3, Stage.STRUCTURE: 4, Stage.MAPPING: 3, Stage.TILING: 3, Stage.MEMORY: 3},
        patience=2,
        repairs=3,
        sweep_points=32,
        side_by_side=True,
        headroom=1.05,
        prompt_tokens=10_000,
        reply_tokens=16_000,
        reply_per_base=REPLY_PER_BASE,
        tool_calls=8,
    ),
    "deep": Budget(
        name="deep",
        steps={Stage.SEED: 5, Stage.STRUCTURE: 10, Stage.MAPPING: 6, Stage.TILING: 6, Stage.MEMORY: 6},
        patience=3,
        repairs=4,
        sweep_points=96,
        side_by_side=True,
        headroom=1.02,
        prompt_tokens=16_000,
        reply_tokens=24_000,
        reply_per_base=REPLY_PER_BASE,
        tool_calls=16,
    ),
}


def find_budget(name: str) -> Budget:
    if name not in BUDGETS:
        raise UsageError(f"unknown budget: {name!r}", f"one of {', '.join(BUDGETS)}")
    return BUDGETS[name]

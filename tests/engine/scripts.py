"""A scripted run: a task, a team's lines, a judge that reads the time a file says it takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from egg.api.runs import Progress, advance, start
from egg.core.evaluation import Gate, Refusal
from egg.core.facts import Facts, GpuFacts
from egg.core.plan import Answer, Diagnosis, Draft, Pass, Plan, Prediction
from egg.core.settings import Budget, Caps, Settings
from egg.core.source import Candidate, Task
from egg.core.stage import Category, Metric
from egg.engine.budgets import BUDGETS
from egg.engine.scripted import Act, ScriptedJudge, ScriptedTeam

TASK = Task(
    "double",
    """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x * 2

def get_inputs():
    return [torch.randn(64)]

def get_init_inputs():
    return []
""",
)

FACTS = Facts(GpuFacts("H200", "sm_90", 132, 232448, 65536, 50 << 20, 4.8e12, 67e12, 0.1), None)


def kernel(says: str, *, name: str = "double", extra: str = "", block: int = 128, body: str = "x * 2") -> str:
    """A kernel file that tells the scripted judge what to make of it: ``0.5 ms`` or ``refuse build``."""
    return f'''
import torch
import triton
import triton.language as tl
from torch import nn

SAYS = "{says}"
BLOCK = {block}
{extra}

@triton.jit
def {name}(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Doubles a block."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, {body}, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        {name}[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK)
        return y
'''


def act(candidate: Candidate) -> Act:
    """``refuse GATE``, fast as what is wrong often is, or ``T ms``: T may be an expression of BLOCK;
    ``twice`` is two launches."""
    says = re.search(r'SAYS = "(.*)"', candidate.source)
    block = re.search(r"^BLOCK = (\d+)", candidate.source, re.MULTILINE)
    launched = re.search(r"(\w+)\[\(triton", candidate.source)
    assert says is not None
    assert block is not None
    assert launched is not None
    if says[1].startswith("refuse"):
        gate = Gate(says[1].split()[1])
        return Act(0.1, Refusal(gate, f"{gate.value}.wrong", "something was seen", "look at it"))
    slope = re.fullmatch(r"(?:(\S+) / BLOCK \+ )?(\S+) ms( twice)?", says[1])
    assert slope is not None
    milliseconds = float(slope[2]) + (float(slope[1]) / int(block[1]) if slope[1] else 0.0)
    return Act(milliseconds, kernels={launched[1]: 2 if slope[3] else 1})


def plan(category: Category, change: str = "do it", speedup: float = 1.5, skill: str | None = None) -> Plan:
    return Plan(category, "too slow", change, Prediction(speedup, Metric.TIME, "less"), skill)


def draft(says: str, **how: object) -> Draft:
    return Draft(kernel(says, **how))  # type: ignore[arg-type]


DIAGNOSIS = Diagnosis("the mask is missing", "mask the load")
NOTHING = Pass("it is as good as it gets")

PASSING: dict[str, Answer] = {
    "designer structure 1": NOTHING,
    "tuner mapping 1": NOTHING,
    "tuner tiling 1": NOTHING,
    "tuner memory 1": NOTHING,
}
"""Nobody sees anything to do in any stage."""

FULL: dict[str, Answer] = {
    "coder.seed seed 1": draft("refuse correctness"),
    "debugger seed 1.1": DIAGNOSIS,
    "coder.repair seed 1.1": draft("2.0 ms"),
    "designer structure 1": plan(Category.OPERATOR_FUSION, "fuse the product into the load"),
    "coder.optimize structure 1": draft("1.0 ms"),
    "designer structure 2": plan(Category.ALGORITHM_REPLACEMENT, "shift instead of multiplying"),
    "coder.optimize structure 2": draft("refuse build", body="x << 1"),
    "debugger structure 2.1": DIAGNOSIS,
    "coder.repair structure 2.1": draft("refuse build", body="x << 2"),
    "debugger structure 2.2": DIAGNOSIS,
    "coder.repair structure 2.2": draft("refuse build", body="(x + x) << 1"),
    "tuner mapping 1": plan(Category.WORK_PER_PROGRAM, "two blocks a program"),
    "coder.optimize mapping 1": draft("0.8 ms", name="other_name"),
    "coder.repair mapping 1.1": draft("0.8 ms"),
    "tuner tiling 1": plan(Category.TILE_SHAPE, "leave the block open"),
    "coder.optimize tiling 1": draft("25.6 / BLOCK + 0.5 ms", extra='TUNABLES = {"BLOCK": (64, 128, 256)}'),
    "tuner memory 1": plan(Category.CACHE_POLICY, "evict first"),
    "coder.optimize memory 1": draft("0.599 ms", block=512),
}
"""A repaired seed, a gain, a failed chain, a mended breach of contract, a sweep, a gain within noise."""

BUDGET = replace(BUDGETS["quick"], patience=2)


def settings(budget: Budget = BUDGET, caps: Caps | None = None) -> Settings:
    return Settings("scripted", budget, device="cuda:0", target="H200", caps=caps or Caps())


def begin(folder: Path, given: Settings | None = None) -> None:
    start(folder, TASK, given or settings(), FACTS, name="double-1")


def go_on(
    folder: Path,
    script: Mapping[str, Answer],
    judge: ScriptedJudge | None = None,
    team: ScriptedTeam | None = None,
) -> Progress:
    players = team or ScriptedTeam(script)
    return advance(folder, lambda started, journal: players, judge or ScriptedJudge(act))

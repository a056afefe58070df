"""What is offered for a repair: chosen by the file that failed and by the size of its error."""

from __future__ import annotations

from dataclasses import replace

import pytest

from egg.core.evaluation import Gate, Refusal, RefusalFacts
from egg.core.facts import Facts, ProgramFacts
from egg.core.roles import Brief
from egg.core.source import Candidate
from egg.core.stage import Stage
from egg.core.step import Attempt, Origin, Trajectory
from egg.engine.effects import Effects
from egg.engine.journal import Journal
from egg.engine.log import read_log
from egg.engine.stages import SEARCH
from egg.knowledge.advisor import KnowledgeAdvisor
from egg.knowledge.catalogue import load
from tests.agents.briefs import FACTS, brief
from tests.engine import scripts

PRODUCT = """
import torch, triton, triton.language as tl
from torch import nn

@triton.jit
def product(a_ptr, b_ptr, c_ptr, K, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + at[:, None] * K + at[None, :], mask=at[None, :] < K, other=0.0)
    b = tl.load(b_ptr + at[:, None] * K + at[None, :], mask=at[None, :] < K, other=0.0)
    tl.store(c_ptr + at[:, None] * BLOCK + at[None, :], tl.dot(a, b))

class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        product[(1,)](a, b, c, 64, 64)
        return c
"""
PROGRAM = ProgramFacts(1e9, 10**6, (), (), {"product": 1e9}, traits={"dtype": "float32"})


def mending(error: float | None, base: bool = True) -> Brief:
    """A product that failed with ``error``, built on a file without one."""
    facts = RefusalFacts(relative_error=error, excess=50.0)
    refusal = Refusal(Gate.CORRECTNESS, "correctness.error", "wrong", "look", facts)
    stage = Stage.STRUCTURE if base else Stage.SEED
    attempt = Attempt(Candidate(PRODUCT).hash, Origin.OPTIMIZE, refusal=refusal)
    return replace(
        brief(stage, steps=0),
        facts=Facts(FACTS.gpu, PROGRAM),
        trajectory=Trajectory(stage, (), (attempt,)),
        failed=Candidate(PRODUCT),
    )


def names(asked: Brief) -> list[str]:
    return [skill.name for skill in KnowledgeAdvisor(load()).advise(asked)]


@pytest.mark.parametrize("base", [True, False])
def test_an_error_of_tf32_is_told_from_wrong_places(base):
    """The base has no product, and a seed has no base: the failed file is what counts."""
    small, large = names(mending(4e-4, base)), names(mending(1.1, base))
    assert small[0] == "tf32-too-inaccurate"
    assert "wrong-stride-or-layout" not in small
    assert "tf32-too-inaccurate" not in large
    assert {"wrong-stride-or-layout", "masks-and-other-values"} <= set(large)


def test_an_error_that_was_not_measured_excludes_nothing():
    for error in (None, float("nan"), float("inf")):
        assert "tf32-too-inaccurate" in names(mending(error))


def test_the_brief_of_a_repair_holds_the_file_that_failed(tmp_path):
    scripts.begin(tmp_path / "run", scripts.settings())
    events = [entry.event for entry in read_log(tmp_path / "run")]
    effects = Effects(Journal(events, None), scripts.ScriptedTeam({}), scripts.ScriptedJudge(scripts.act))
    state = effects.journal.state
    effects.journal.state = replace(state, sources={"f" * 16: PRODUCT})
    chain = (Attempt("f" * 16, Origin.SEED, objection="no"),)
    failed = effects.brief(SEARCH[0], chain).failed
    assert failed is not None
    assert failed.source == PRODUCT
    assert effects.brief(SEARCH[0]).failed is None

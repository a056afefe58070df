"""Techniques that were measured on a program are offered for programs of that kind, and not elsewhere."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import egg.bench
from egg.core.policy import Policy, Precision
from egg.core.source import Task
from egg.evaluator.task.facts import task_facts
from egg.hardware.gpus import resolve
from egg.knowledge.catalogue import load
from egg.knowledge.context import Context, context_of
from egg.knowledge.select import judged
from egg.knowledge.skill import SkillStage
from tests.evaluator.test_facts import model, task_of

FIRST = 3
"""How far down an offer a technique may stand that is the answer to its program."""
H200 = resolve("H200")
EXPANSION = (
    "self.c = nn.Conv2d(64, 384, 1, bias=False); self.n = nn.BatchNorm2d(384); "
    "self.d = nn.Conv2d(384, 384, 3, groups=384)"
)
STEPS = (
    "h = x[0]\n        for t in range(200): h = torch.tanh(self.l(torch.cat((x[t], h), 1)))\n        return h"
)
OWN = {
    "expansion": task_of(
        model("return self.d(torch.relu(self.n(self.c(x))))", EXPANSION), "[torch.rand(8, 64, 56, 56)]"
    ),
    "expansion_eval": task_of(
        model("return self.d(torch.relu(self.n(self.c(x))))", EXPANSION + "; self.eval()"),
        "[torch.rand(8, 64, 56, 56)]",
    ),
    "steps": task_of(model(STEPS, "self.l = nn.Linear(512, 256)"), "[torch.rand(200, 8, 256)]"),
}
FOUND = {
    "state-in-registers": ("language_mamba2_chunk_scan", "language_lightning_attention"),
    "persistent-recurrence": ("steps",),
    "scatter-to-gather": ("graph_sage_mean", "graph_gatv2_softmax"),
    "selection-without-sorting": ("moe_topk_routing", "sampling_top_p"),
    "statistics-from-covariance": ("expansion",),
    "low-bit-operands": ("quant_int4_matmul", "quant_fp8_block_matmul", "quant_nf4_linear"),
}
"""Where each was tried, as bundled programs and as small ones of the same kind."""
ELSEWHERE = (
    "mlp_swiglu",
    "attention_gqa_prefill",
    "norm_layer_residual",
    "embedding_position",
    "recommend_dlrm",
    "optimizer_muon_newton_schulz",
    "vision_resnet_bottleneck",
    "language_bert_layer",
    "expansion_eval",
)


@cache
def known(name: str) -> Context:
    """What is known of a program before there is a kernel."""
    task = OWN.get(name)
    if task is None:
        (file,) = Path(egg.bench.__file__).parent.glob(f"*/{name}.py")
        task = Task.from_file(file)
    return context_of(task_facts(task, H200, Precision.MATCH), None, None, H200, Policy())


def offered(name: str, stage: SkillStage) -> list[str]:
    return [one.skill.name for one in judged(load(), known(name), stage) if one.offered]


@pytest.mark.parametrize("stage", [SkillStage.SEED, SkillStage.STRUCTURE])
@pytest.mark.parametrize(("skill", "name"), [(skill, name) for skill in FOUND for name in FOUND[skill]])
def test_a_technique_is_offered_first_where_it_was_tried(skill: str, name: str, stage: SkillStage) -> None:
    assert skill in offered(name, stage)[:FIRST]


@pytest.mark.parametrize("name", ELSEWHERE)
def test_and_not_where_it_has_no_place(name: str) -> None:
    assert not FOUND.keys() & set(offered(name, SkillStage.STRUCTURE))


def test_each_of_them_has_a_pattern() -> None:
    catalogue = load()
    assert all(catalogue[skill].assets for skill in FOUND)

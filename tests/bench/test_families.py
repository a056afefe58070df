"""Operator families: what a kernel engineer would call a task."""

from __future__ import annotations

from dataclasses import replace

import pytest

from egg.api.benching.kernels import family_of_task
from egg.bench.families import WholeFamily, family_of
from egg.core.facts import Facts, Family, GpuFacts, ProgramFacts, Savings
from egg.core.source import Task


def test_a_family_is_of_operations_or_of_whole_tasks():
    assert not {family.value for family in Family} & {family.value for family in WholeFamily}


def facts(spent: dict[str, float], operations: tuple[str, ...] = (), **traits: int) -> Facts:
    gpu = GpuFacts("H200", "sm_90", 132, 1, 1, 1, 1.0, 1.0, None, Savings(1.0, 1.0, 1.0, spent))
    return Facts(gpu, ProgramFacts(0.0, 1, (), operations, traits=traits))


@pytest.mark.parametrize(
    ("given_facts", "family"),
    [
        (facts({"product": 0.2, "pointwise": 0.8}, products=1), "product"),
        (facts({"product": 0.01, "pointwise": 0.99}, products=1), "pointwise"),
        (facts({"convolution": 0.3, "normalization": 0.4, "pooling": 0.3}, convolutions=1), "convolution"),
        (facts({"convolution": 3, "normalization": 3}, convolutions=20, products=1), "network"),
        (facts({"convolution": 3, "product": 2, "pooling": 1}, convolutions=2, products=3), "network"),
        (facts({"product": 1.0, "pointwise": 1.0}, products=17), "product"),
        (
            facts({"product": 2, "softmax": 1}, ("aten.bmm [2, 3]", "aten.bmm [2, 3]"), products=2),
            "attention",
        ),
        (facts({"product": 2, "softmax": 1}, ("aten.addmm [2, 3]",), products=1), "product"),
        (facts({"attention": 1.0, "product": 1.0}, products=2), "attention"),
        (facts({"recurrence": 0.9, "product": 0.1}, products=1), "recurrence"),
        (facts({"softmax": 0.99, "loss": 0.01}), "loss"),
        (facts({"scan": 0.4, "pointwise": 0.6}), "scan"),
        (facts({"reduction": 0.1, "pointwise": 0.9}, inputs_bytes=8, outputs_bytes=8), "normalization"),
        (facts({"reduction": 0.1, "pointwise": 0.9}, inputs_bytes=8, outputs_bytes=1), "reduction"),
        (facts({"gather": 0.9, "pointwise": 0.1}), "gather"),
        (facts({"movement": 0.0}), "unknown"),
        (facts({}), "unknown"),
        (replace(facts({"product": 1.0}), program=None), "unknown"),
    ],
)
def test_a_family_is_what_a_kernel_engineer_would_call_it(given_facts, family):
    assert family_of(given_facts) == family


def test_a_family_can_be_found_without_a_run():
    source = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x):
        return torch.tanh(torch.relu(self.linear(x)))

def get_inputs():
    return [torch.randn(32, 64)]

def get_init_inputs():
    return []
"""
    assert family_of_task(Task("linear", source)) is Family.PRODUCT
    broken = source.replace("torch.tanh", "torch.nothing")
    assert family_of_task(Task("broken", broken)) is WholeFamily.UNKNOWN

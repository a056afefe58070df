"""Packed weights: kept between calls, made anew when the weight has changed in any way PyTorch knows of."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from egg.core.policy import LibraryCalls
from egg.core.source import Task
from egg.evaluator import static
from egg.expert.assemble import graph_of, kernel_file
from egg.expert.emit.keeping import with_method
from egg.expert.moves import Recipe
from egg.hardware.gpus import resolve
from tests.expert import harness

FORWARD = ["    def forward(self, x):", "        return x + self.packed(doubled, self.layer.weight)"]
HEAD = """import torch
from torch import nn


def doubled(weight):
    calls.append(1)
    return 2 * weight


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 4)
"""
TASK = Task(
    "wide",
    """import torch
from torch import nn

rows, inner, outer = 96, 80, 112


class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.layer = nn.Linear(inner, outer)

    def forward(self, x):
        return torch.relu(self.layer(x))


def get_inputs():
    return [torch.rand(rows, inner)]


def get_init_inputs():
    return [inner, outer]
""",
)


def model() -> tuple[Any, list[int]]:
    space: dict[str, Any] = {"calls": [], "__name__": "kernels"}
    exec("\n".join((HEAD, *with_method(HEAD, FORWARD))), space)
    return space["ModelNew"](), space["calls"]


def right(new: Any) -> bool:
    return torch.equal(new(torch.ones(4, 3)), 1 + 2 * new.layer.weight)


def test_kept_until_the_weight_changes() -> None:
    new, calls = model()
    assert right(new)
    assert right(new)
    assert len(calls) == 1
    with torch.no_grad():
        new.layer.weight.add_(1.0)
    assert right(new)
    new.load_state_dict({name: value * 3 for name, value in new.state_dict().items()})
    assert right(new)
    assert len(calls) == 3
    optimizer = torch.optim.SGD(new.parameters(), 0.1)
    new(torch.ones(4, 3)).sum()
    new.layer.weight.grad = torch.ones(4, 3)
    optimizer.step()
    assert right(new)
    new.to(torch.float64)
    assert torch.equal(new(torch.ones(4, 3).double()), 1 + 2 * new.layer.weight)
    new.layer.weight = nn.Parameter(torch.ones(4, 3))
    assert right(new)
    assert len(calls) == 6


def test_a_copy_has_weights_of_its_own() -> None:
    new, _ = model()
    new(torch.ones(4, 3))
    other = copy.deepcopy(new)
    with torch.no_grad():
        other.layer.weight.mul_(2.0)
        new.layer.weight.mul_(3.0)
    assert right(new)
    assert right(other)
    assert "packed_weights" not in new.state_dict()


def test_a_recorded_graph_is_recorded_anew() -> None:
    replayed = [
        "    def forward(self, x):", "        wanted = 1, self.addresses()", "        return wanted", "",
        "    def launches(self, x):", *FORWARD[1:],
    ]  # fmt: skip
    text = "\n".join(with_method(HEAD, replayed))
    assert "wanted = 1, (self.addresses(), self.packed_versions())" in text
    assert "def packed_versions" in text
    assert with_method(HEAD, replayed[:3]) == replayed[:3]


def test_a_name_of_the_task_is_left_to_it() -> None:
    text = "\n".join(with_method(f"{HEAD}        self.packed = 1\n", FORWARD))
    assert "self.packed_(doubled" in text
    assert "def packed_(self" in text


@pytest.fixture(scope="module")
def source() -> str:
    recipe = Recipe(settings={"matmul_relu": {"packing": True}})
    return kernel_file(TASK, graph_of(TASK), recipe, resolve("H200")).source


def test_files_pass_the_static_gate(source: str) -> None:
    assert source.count("self.packed(") == 1
    assert not static.findings(source, LibraryCalls.FORBID).items


def test_files_compute_with_the_weights_as_they_are(source: str) -> None:
    asked = """

def forward(self, x):
    model = ModelNew(80, 112)
    results = []
    for factor in (1.0, 1.0, 3.0):
        with torch.no_grad():
            model.layer.weight.mul_(factor)
        results += [model(x), nn.functional.linear(x, model.layer.weight, model.layer.bias).relu()]
    return results
"""
    ours_and_right = harness.execute(source + asked, [torch.rand(37, 80)], {})
    for ours, right in zip(ours_and_right[::2], ours_and_right[1::2], strict=True):
        torch.testing.assert_close(ours, right)

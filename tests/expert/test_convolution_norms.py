"""Norms behind convolutions, whose statistics the tiles of the convolution leave."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from egg.expert.assemble import graph_of
from egg.expert.fusion.structure import structured
from egg.expert.parts import Group, Target, Unfit
from egg.expert.patterns.convolution import norms as convolution_norms
from egg.expert.patterns.convolution.write import write
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.expert.captured import program

KNOBS = "B, C, G, H, W = 2, 8, 4, 11, 16"
FORWARDS = {
    "over_channels": "y = self.conv(x); return torch.logsumexp(y + torch.tanh(self.norm(y)), 1)",
    "over_space": "return self.norm(torch.relu(self.conv(x))).mean((2, 3))",
    "instance": "return self.each(self.conv(x)).sum(1)",
}
LAYERS = "self.conv = nn.Conv2d(3, C, 3); self.norm = nn.GroupNorm(G, C); self.each = nn.InstanceNorm2d(C)"


@pytest.fixture(autouse=True)
def _however_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution_norms, "LARGE", 0)
    monkeypatch.setattr(convolution_norms, "RESIDENT", 0)


def _task(name: str) -> Any:
    return program(FORWARDS[name], "torch.rand(B, 3, H, W)", LAYERS, KNOBS)


@pytest.mark.parametrize("name", FORWARDS)
def test_right(name: str) -> None:
    task = _task(name)
    graph = graph_of(task)
    settings = {"BLOCK_P": 32, "BLOCK_O": 16, "BLOCK_K": 16, "grade": "fp32", "mode": "direct"}
    part = write(graph, Group("conv_norm", graph.nodes, "convolution"), Target(resolve("h200"), settings))
    space: dict[str, Any] = {}
    exec(task.source, space)
    torch.manual_seed(0)
    model, (x,) = space["Model"](), space["get_inputs"]()
    model.norm.weight.data.normal_()
    model.norm.bias.data.normal_()
    model.conv.bias.data += 30.0  # a mean that is large beside the deviation
    parameters = {key: value.detach() for key, value in model.state_dict().items()}
    (found,) = harness.run(graph, [part], [x], parameters)
    with torch.no_grad():
        right = model.double()(x.double())
    torch.testing.assert_close(found.double(), right, rtol=2e-4, atol=2e-4)


def test_a_norm_waits_for_what_makes_less_of_it() -> None:
    found = structured(graph_of(_task("over_channels")), Target(resolve("h200")))
    assert [group.pattern for group in found.groups] == ["convolution"]


def test_alone_it_stays_apart() -> None:
    task = program("return self.norm(self.conv(x))", "torch.rand(B, 3, H, W)", LAYERS, KNOBS)
    graph = graph_of(task)
    group, target = Group("conv_norm", graph.nodes, "convolution"), Target(resolve("h200"), {"BLOCK_P": 32})
    with pytest.raises(Unfit, match="makes less"):
        write(graph, group, target)
    found = structured(graph, Target(resolve("h200")))
    assert [group.pattern for group in found.groups] == ["convolution", "loops"]

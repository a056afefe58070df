"""Convolutions of one tap to one channel are sums of channels, in the pass that makes the channels."""

from __future__ import annotations

import pytest

from egg.core.source import Task
from tests.expert.captured import program
from tests.expert.test_reading import run_and_compare, written


def convolved(
    layer: str, forward: str = "self.conv(x.softmax(1)).squeeze(1)", dtype: str = "float16"
) -> Task:
    return program(
        forward,
        f"torch.randn(rows, 16, 4, 24, dtype=torch.{dtype})",
        f"self.conv = nn.Conv2d({layer}); self.to(torch.{dtype})",
        "rows = 3",
    )


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("layer", ["16, 1, 1", "16, 1, 1, bias=False"])
def test_one_pass_has_the_softmax_and_its_mean(layer: str, dtype: str) -> None:
    task = convolved(layer, dtype=dtype)
    assert [group.pattern for group in written(task).structure.groups] == ["loops"]
    run_and_compare(task)


@pytest.mark.parametrize(
    "layer",
    ["16, 2, 1", "16, 1, 1, stride=2", "16, 1, 3", "16, 1, 1, padding=1"],
    ids=["two channels", "every second place", "nine taps", "zeros around"],
)
def test_others_stay_convolutions(layer: str) -> None:
    structure = written(convolved(layer)).structure
    assert any(node.op == "conv" for group in structure.groups for node in group.nodes)

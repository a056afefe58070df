"""Convolutions of operands that are joined from pieces: by a pass where their channels are innermost."""

from __future__ import annotations

import pytest

from egg.core.source import Task
from egg.expert.assemble import graph_of
from egg.expert.fusion.structure import structured
from egg.expert.parts import Target
from egg.hardware.gpus import resolve
from tests.expert.elsewhere import program

LAYERS = "self.conv = nn.Conv2d(67, 64, 1)"
LAST = "x = torch.cat([a - a.mean(), b], dim=-1).permute(0, 3, 2, 1)\nreturn F.relu(self.conv(x))"
FIRST = "return F.relu(self.conv(torch.cat([a * 2, b], dim=1)))"


@pytest.mark.parametrize(
    ("forward", "shape", "joined"),
    [(LAST, "n, 512, 32, {}", True), (FIRST, "n, {}, 32, 512", False), (LAST, "n, 16, 8, {}", False)],
    ids=["channels last", "positions last", "small"],
)
def test_a_pass_joins_pieces_with_their_channels_innermost(forward: str, shape: str, joined: bool):
    given = f"a = torch.randn({shape.format(3)}); b = torch.randn({shape.format(64)})"
    task = Task("program", program(forward, given, LAYERS, n=4))
    structure = structured(graph_of(task), Target(resolve("H200")))
    (group,) = [group for group in structure.groups if group.pattern == "convolution"]
    assert any(node.op == "cat" for node in group.nodes) is not joined

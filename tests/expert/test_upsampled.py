"""Convolutions of doubled images: phases of the image as it was, and layouts that go through the doubling."""

from __future__ import annotations

import pytest

from egg.core.source import Task
from egg.expert.algebra.upsampled import PHASES
from egg.expert.assemble import graph_of, in_library_layouts
from egg.expert.moves import Recipe, Without
from tests.expert.elsewhere import program
from tests.expert.test_channels_last import checked

GIVEN = "x = torch.randn(n, c, h, w, dtype=torch.float16)"
LIBRARY = Recipe().after(Without("convolution"))
DOUBLED = {
    "3, padding=1": "return torch.relu(self.conv(F.interpolate(x * 2, scale_factor=2.0)) + 1)",
    "5, padding=2, bias=False": "return self.conv(F.interpolate(torch.relu(x), scale_factor=2.0))",
    "(3, 5), padding=(1, 2)": "return self.conv(F.interpolate(x, scale_factor=2.0))",
}


def source(how: str, forward: str, dtype: str = "float16") -> str:
    layers = f"self.conv = nn.Conv2d(c, out, {how})\nself.to(torch.{dtype})"
    given = GIVEN.replace("float16", dtype)
    return program(forward, given, layers, "c, out", n=2, c=64, out=32, h=32, w=48)


@pytest.mark.parametrize("how", DOUBLED)
def test_the_library_computes_phases_of_the_image_as_it_was(how: str) -> None:
    text = checked(source(how, DOUBLED[how]), LIBRARY, (3, 4, 5, 7), [4, 6])
    body = text[text.index("class ModelNew") :]
    assert body.count("self.packed(phase_weight, self.conv.weight") == 1, "taps are summed once"
    assert "expand(" not in body, "the doubled image is never written"


OTHER = {
    "a stride": ("3, padding=1, stride=2", "F.interpolate(x, scale_factor=2.0)"),
    "another size": ("3", "F.interpolate(x, scale_factor=2.0)"),
    "threefold": ("3, padding=1", "F.interpolate(x, scale_factor=3.0)"),
    "one tap": ("1", "F.interpolate(x, scale_factor=2.0)"),
}


@pytest.mark.parametrize("name", OTHER)
def test_what_has_no_such_phases_stays(name: str) -> None:
    how, enlarged = OTHER[name]
    text = checked(source(how, f"return torch.tanh(self.conv({enlarged}))"), LIBRARY, (2, 4, 5, 7), [4, 6])
    assert "phase_weight" not in text


def test_fp32_images_are_doubled() -> None:
    graph = graph_of(Task("program", source("3, padding=1", DOUBLED["3, padding=1"], "float32")))
    laid = in_library_layouts(graph, LIBRARY)
    assert not any(PHASES in node.attributes for node in laid.nodes)


def test_an_image_that_is_read_elsewhere_is_doubled_for_that() -> None:
    forward = "y = F.interpolate(x, scale_factor=2.0)\nreturn torch.relu(self.conv(y)).sum(1) + y.sum(1)"
    text = checked(source("3, padding=1", forward), LIBRARY, (2, 4, 5, 7), [4, 6])
    assert "phase_weight" in text

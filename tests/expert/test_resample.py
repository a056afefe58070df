"""Images at another size: neighbours by their weights, in the pass that makes or reads the image."""

from __future__ import annotations

import pytest
import torch

from egg.core.source import Task
from egg.expert.assemble import graph_of, kernel_file
from egg.expert.moves import Recipe, Without
from egg.expert.reading.capture import capture_once
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.expert.elsewhere import RUN, check, normal, program, written

LINEAR = {3: "linear", 4: "bilinear", 5: "trilinear"}
SPACE = {3: "h", 4: "h, w", 5: "d, h, w"}
SIZES = {"d": 6, "h": 12, "w": 20}
TRIED = {3: (3, 2, 7), 4: (2, 3, 5, 9), 5: (1, 2, 3, 4, 5)}


def resizing(how: str, rank: int, dtype: str = "float32", before: str = "x", behind: str = "y") -> str:
    given = f"x = torch.randn(n, c, {SPACE[rank]}, dtype=torch.{dtype})"
    named = {name: SIZES[name] for name in SPACE[rank].split(", ")}
    return program(f"y = F.interpolate({before}, {how})\nreturn {behind}", given, n=2, c=3, **named)


HOW = {
    "factor": "scale_factor=2, mode='{}'",
    "factor, corners": "scale_factor=3, mode='{}', align_corners=True",
    "smaller": "scale_factor=0.5, mode='{}'",
    "size": "size=[n + 3 for n in x.shape[2:]], mode='{}'",
    "size, corners": "size=[n + 3 for n in x.shape[2:]], mode='{}', align_corners=True",
}


@pytest.mark.parametrize("rank", LINEAR)
@pytest.mark.parametrize("how", HOW)
def test_linear_weights_at_other_sizes(how: str, rank: int) -> None:
    source = resizing(HOW[how].format(LINEAR[rank]), rank, behind="torch.relu(y) + 1")
    text = written(source)
    assert text.count("@triton.jit") == 1
    assert "interpolate(" not in text
    check(source, [], [normal(*TRIED[rank])])


FIXED = {
    "an uneven factor": ("scale_factor=1.7, mode='bilinear'", 4),
    "two factors": ("scale_factor=(0.4, 2.3), mode='bilinear', align_corners=False", 4),
    "factors that count": ("scale_factor=1.7, mode='bilinear', recompute_scale_factor=True", 4),
    "one row": ("size=(1, 7), mode='bilinear', align_corners=True", 4),
    "one dimension": ("size=(12, 7), mode='bilinear'", 4),
    "cubic": ("size=(7, 45), mode='bicubic'", 4),
    "cubic, corners": ("scale_factor=1.5, mode='bicubic', align_corners=True", 4),
    "nearest": ("size=(7, 45), mode='nearest'", 4),
    "nearest to the middle": ("size=(7, 45), mode='nearest-exact'", 4),
    "nearest, a volume": ("scale_factor=1.5, mode='nearest'", 5),
}


@pytest.mark.parametrize("name", FIXED)
def test_other_factors_and_weights(name: str) -> None:
    how, rank = FIXED[name]
    source = resizing(how, rank)
    assert "interpolate(" not in written(source)
    check(source, [], [normal(2, 3, *(SIZES[size] for size in SPACE[rank].split(", ")))])


@pytest.mark.parametrize("how", ["size=x.shape[2:], mode='bilinear'", "size=(7, 9), mode='bicubic'"])
@pytest.mark.parametrize("corners", [False, True])
def test_an_image_of_one_pixel_is_spread_out(how: str, corners: bool) -> None:
    """A branch that pools the whole image (ASPP) is brought back to its size."""
    source = resizing(f"{how}, align_corners={corners}", 4, before="x.mean((2, 3), keepdim=True)")
    assert "interpolate(" not in written(source)
    check(source, [], [normal(2, 3, 5, 9)])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bits_are_summed_in_fp32(dtype: str) -> None:
    source = resizing("size=(7, 33), mode='bilinear'", 4, dtype, "x * 2")
    x = normal(2, 3, 12, 20, dtype=getattr(torch, dtype))
    space: dict = {}
    exec(compile(source, "task", "exec"), space)
    (made,) = harness.execute(written(source) + RUN, [x], {"arguments": [], "state": {}})
    right = space["Model"]()(x.float()).to(x.dtype)
    torch.testing.assert_close(made, right, atol=1e-6, rtol=torch.finfo(x.dtype).eps)


PHOTOGRAPHS = """
x = pixels.permute(0, 3, 1, 2).float() / 255.0
x = F.interpolate(x, size=(14, 30), mode="bilinear", align_corners=False)[..., 3:17]
return ((x - self.mean) / self.std).half()
"""
STATISTICS = """
self.register_buffer("mean", torch.tensor([0.5, 0.25, 0.75]).view(3, 1, 1))
self.register_buffer("std", torch.tensor([0.5, 0.25, 0.75]).view(3, 1, 1))
"""


def test_photographs_are_resized_cropped_and_normalised_in_one_pass() -> None:
    given = "pixels = torch.randint(0, 256, (n, h, w, 3), dtype=torch.uint8)"
    source = program(PHOTOGRAPHS, given, STATISTICS, n=4, h=48, w=64)
    text = written(source)
    assert text.count("@triton.jit") == 1
    assert "interpolate(" not in text
    assert text.count("/ 255.0") == 1, "the sum of neighbours is divided, not each of them"
    pixels = torch.randint(0, 256, (3, 48, 64, 3), dtype=torch.uint8)
    check(source, [], [pixels], 2e-3)


def test_what_is_expensive_is_stored_before_it_is_read_many_times() -> None:
    up = written(resizing("scale_factor=2, mode='bilinear'", 4, before="F.silu(x)"))
    assert up.count("@triton.jit") == 2, "sixteen sigmoids of an element otherwise"
    down = written(resizing("scale_factor=0.5, mode='bilinear'", 4, before="F.silu(x)"))
    assert down.count("@triton.jit") == 1, "each element is read once"
    cheap = written(resizing("scale_factor=2, mode='bilinear'", 4, before="torch.relu(x) + 1"))
    assert cheap.count("@triton.jit") == 1


def test_a_norm_is_stored_before_it_is_resized() -> None:
    source = resizing("scale_factor=2, mode='bilinear'", 4, before="F.layer_norm(x, x.shape[-1:])")
    assert written(source).count("@triton.jit") == 2
    check(source, [], [normal(2, 3, 4, 6)])


def test_resized_rows_are_reduced_in_the_same_pass() -> None:
    source = resizing("scale_factor=2, mode='bilinear'", 4, behind="y.softmax(-1)")
    assert written(source).count("@triton.jit") == 1
    check(source, [], [normal(2, 3, 5, 9)])


def test_a_lateral_image_is_added_in_the_same_pass() -> None:
    given = "top = torch.randn(n, c, h, w); side = torch.randn(n, c, 2 * h, 2 * w)"
    how = "size=side.shape[-2:], mode='bilinear', align_corners=True"
    forward = f"up = F.interpolate(top, {how})\nreturn up + side"
    source = program(forward, given, n=2, c=3, h=12, w=20)
    assert written(source).count("@triton.jit") == 1
    check(source, [], [normal(2, 3, 5, 9), normal(2, 3, 10, 18)])


KEPT = {
    "weights of wider kernels": "size=(7, 9), mode='bilinear', antialias=True",
    "the same size by another factor": "scale_factor=1.01, mode='bilinear'",
}


@pytest.mark.parametrize("name", KEPT)
def test_other_ways_to_resize_are_left_to_pytorch(name: str) -> None:
    nodes = capture_once(Task("program", resizing(KEPT[name], 4))).nodes
    assert any(node.op == "library" for node in nodes)


@pytest.mark.parametrize("how", ["scale_factor=1.7, mode='bilinear'", "size=(7, 9), mode='nearest-exact'"])
def test_pytorch_resizes_where_passes_are_left_to_it(how: str) -> None:
    task = Task("program", resizing(how, 4, behind="y @ y.mT"))
    text = kernel_file(task, graph_of(task), Recipe().after(Without("loops")), resolve("H200")).source
    assert "nn.functional.interpolate(" in text
    x = normal(2, 3, 12, 20)
    space: dict = {}
    exec(compile(task.source, "task", "exec"), space)
    (made,) = harness.execute(text + RUN, [x], {"arguments": [], "state": {}})
    torch.testing.assert_close(made, space["Model"]()(x), atol=1e-4, rtol=1e-4)

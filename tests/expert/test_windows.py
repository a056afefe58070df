"""Windows that overlap: columns of images (``F.unfold``) read where they lie, large pools by dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.expert.algebra import pools as pools_by_dimensions
from egg.expert.algebra.pools import by_dimensions
from egg.expert.algebra.simplify import simplify
from egg.expert.graph import Graph
from egg.expert.reading.capture import capture, capture_once
from tests.expert import elsewhere
from tests.expert.captured import check, kinds, program, resized
from tests.expert.elsewhere import normal

KNOBS = "B, C, H, W = 2, 3, 18, 20"
OTHERS = "B, C, H, W = 3, 3, 23, 13"
LARGE = "B, C, H, W = 2, 3, 190, 210"
IMAGE = "torch.randn(B, C, H, W)"
NONE = "self.none = 0"


def pools(graph: Graph) -> list[tuple[int, ...]]:
    return [tuple(node["kernel"]) for node in graph if node.op == "pool"]


@contextmanager
def always() -> Iterator[None]:
    """What lies between two pools costs nothing, so small images are taken apart as well."""
    with patch.multiple(pools_by_dimensions, LAUNCH=0.0, MOVED=float("inf")):
        yield


# -- columns of images -----------------------------------------------------------------------------------

PAIR = st.tuples(st.integers(1, 4), st.integers(1, 4))


@settings(max_examples=30, deadline=None)
@given(PAIR, PAIR, st.tuples(st.integers(0, 3), st.integers(0, 3)), PAIR, st.booleans())
def test_columns_are_windows(
    kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int], dilation: tuple[int, int],
    batched: bool,
) -> None:  # fmt: skip
    forward = f"F.unfold(x, {kernel}, {dilation}, {padding}, {stride})"
    task = program(forward, IMAGE if batched else "torch.randn(C, H, W)", "pass", KNOBS)
    graph = capture_once(task)
    assert kinds(graph)["library"] == 0
    check(simplify(graph), task)


@pytest.mark.parametrize(
    "forward",
    [
        "F.unfold(x, 3, padding=1) * 2",
        "F.unfold(x, (3, 2), (2, 1), (2, 0), (2, 3)).relu()",
        "F.unfold(x, 4, stride=4).sum(1)",
        "F.unfold(F.pad(x, (2, 2, 2, 2), mode='reflect'), 5).view(B, C, -1, H * W)",
    ],
)
def test_sizes_of_images_with_columns_are_free(forward: str) -> None:
    task = program(forward.replace("B, C, -1, H * W", "*x.shape[:2], 25, -1"), IMAGE, "pass", KNOBS)
    graph = capture(task)
    assert not graph.fixed
    for version in (graph, simplify(graph)):
        check(version, task)
        check(version, resized(task, KNOBS, OTHERS))


UNFOLDED = {
    "distances to neighbours": (
        "b, c, h, w = x.shape\n"
        "y = F.unfold(x, 5, padding=2).view(b, c, 25, h, w) - x[:, :, None]\n"
        "return (y * y).sum(2)"
    ),
    "steps and dilation": "return F.unfold(x, (3, 2), (2, 1), (1, 0), (2, 3)).relu().mean(1)",
    "stored": "return F.unfold(x * 2, 3, padding=1)",
    "of a special function": "return (F.unfold(torch.exp(x), 3) + 1).sum(1)",
    "mirrored": "return F.unfold(F.pad(x, (2, 2, 2, 2), mode='reflect'), 5).amax(1)",
    "a product": "return self.a(F.unfold(x, 2, stride=2).transpose(1, 2))",
    "returned twice": "y = F.unfold(x, 3)\nreturn y, y.sum(1)",
}


@pytest.mark.parametrize("name", UNFOLDED)
def test_columns_are_read_by_kernels(name: str) -> None:
    layers = "self.a = nn.Linear(12, 7)" if "self.a" in UNFOLDED[name] else NONE
    source = elsewhere.program(
        UNFOLDED[name], "x = torch.randn(b, 3, h, w)", layers, "", b=4, h=64, w=96
    )  # fmt: skip
    assert "unfold" not in elsewhere.written(source).split("class ModelNew")[1]
    elsewhere.check(source, [], [normal(2, 3, 14, 10)])
    elsewhere.check(source, [], [normal(1, 3, 7, 33)])


# -- pools -----------------------------------------------------------------------------------------------

SIDES = st.tuples(st.integers(6, 12), st.integers(6, 12))
STRIDES = st.tuples(st.integers(1, 2), st.integers(1, 2))


@settings(max_examples=30, deadline=None)
@given(
    SIDES, STRIDES, st.tuples(st.floats(0, 0.5), st.floats(0, 0.5)), st.booleans(), st.booleans(),
    st.sampled_from([None, 1, 50]),
)  # fmt: skip
def test_a_large_average_is_taken_by_dimensions(
    kernel: tuple[int, int], stride: tuple[int, int], share: tuple[float, float], ceil: bool, counted: bool,
    divisor: int | None,
) -> None:  # fmt: skip
    padding = tuple(int(size * part) for size, part in zip(kernel, share, strict=True))
    forward = f"F.avg_pool2d(x, {kernel}, {stride}, {padding}, {ceil}, {counted}, {divisor})"
    task = program(forward, IMAGE, "pass", KNOBS)
    with always():
        graph = simplify(capture_once(task), [by_dimensions])
    assert sorted(pools(graph)) == sorted([(1, kernel[1]), (kernel[0], 1)])
    check(graph, task)


@settings(max_examples=15, deadline=None)
@given(SIDES, st.tuples(st.integers(0, 3), st.integers(0, 3)), PAIR, st.booleans())
def test_a_large_maximum_is_taken_by_dimensions(
    kernel: tuple[int, int], padding: tuple[int, int], dilation: tuple[int, int], ceil: bool
) -> None:
    padding = (min(padding[0], kernel[0] // 2), min(padding[1], kernel[1] // 2))
    forward = f"F.max_pool2d(x, {kernel}, 1, {padding}, {dilation}, {ceil})"
    task = program(forward, IMAGE, "pass", "B, C, H, W = 2, 3, 47, 52")
    with always():
        graph = simplify(capture_once(task), [by_dimensions])
    assert len(pools(graph)) == 2
    check(graph, task)


@pytest.mark.parametrize(
    ("forward", "inputs", "wanted"),
    [
        ("F.avg_pool2d(x, 3, 1, 1)", "torch.randn(8 * B, C, H, W)", 1),
        ("F.avg_pool2d(x, 9, 9)", "torch.randn(8 * B, C, H, W)", 1),
        ("F.avg_pool2d(x, 9, 1)", "torch.randn(1, 1, 40, 40)", 1),
        ("F.avg_pool2d(x, (1, 50), 1)", "torch.randn(8 * B, C, H, W)", 1),
        ("F.avg_pool2d(x[0], 9, 1)", "torch.randn(1, 8 * C, H, W)", 2),
        ("F.avg_pool3d(x, 7, 1, 3)", "torch.randn(8 * B, 1, 18, 60, 70)", 3),
        ("F.avg_pool2d(x, 9, 1, 4)", "torch.randn(4 * B, C, H, W, dtype=torch.bfloat16)", 2),
    ],
)
def test_pools_are_taken_apart_where_that_pays(forward: str, inputs: str, wanted: int) -> None:
    task = program(forward, inputs, "pass", LARGE)
    graph = simplify(capture_once(task))
    assert len(pools(graph)) == wanted
    if "bfloat16" in inputs:
        assert {graph.result(node).dtype for node in graph if node.op == "pool"} == {"float32"}
    else:
        check(graph, task)


@pytest.mark.parametrize("forward", [
    "return F.avg_pool2d(x * x, 9, 1, 4, count_include_pad=False) - F.avg_pool2d(x, 9, 1, 4) * 2",
    "return F.avg_pool2d(x, (8, 11), (2, 1), (3, 2), True, False, 7).relu()",
    "return F.max_pool2d(x, 9, 1, 4) - x",
])  # fmt: skip
def test_large_pools_in_files(forward: str) -> None:
    source = elsewhere.program(forward, "x = torch.randn(b, c, h, w)", NONE, "", b=4, c=8, h=128, w=160)
    elsewhere.check(source, [], [normal(1, 2, 21, 37)])
    elsewhere.check(source, [], [normal(2, 1, 40, 18)])

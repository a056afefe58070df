"""Reductions, softmax and norms, in every way a row can be gone over, with what rides along before and
behind.
"""

from __future__ import annotations

import math

import pytest
import torch

from egg.expert.graph import Node, Value, contiguous_stride
from egg.expert.parts import Group, Target, Unfit
from egg.expert.patterns.loops.write import write
from egg.expert.sizes import Size
from tests.expert import harness
from tests.expert.checking import H200, MODES, ONE_KERNEL, built, check, everywhere, written
from tests.expert.programs import Program, close, evaluate, tensors

REDUCTIONS = [
    "sum",
    "mean",
    "max",
    "min",
    "prod",
    "any",
    "all",
    "argmax",
    "argmin",
    "var",
    "logsumexp",
    "norm",
]


def cube(p: Program) -> tuple[Size, Size, Size]:
    return p.size("batch", 3, 2), p.size("length", 21, 40), p.size("width", 7, 5)


def square(p: Program) -> tuple[Size, Size]:
    return p.size("batch", 5, 3), p.size("width", 37, 20)


@pytest.mark.parametrize("fn", REDUCTIONS)
def test_reductions_over_any_dimensions(fn: str) -> None:
    for place, dims in enumerate(((2,), (1,), (0,), (0, 2), (0, 1, 2))):

        def program(p: Program, dims: tuple[int, ...] = dims) -> str:
            x = p.input("x", cube(p))
            x = p.pointwise("mul", x, scalars=(None, 0.5)) if fn != "prod" else p.pointwise("cos", x)
            return p.reduce(fn, x, dims, keepdim=len(dims) == 2)

        check(program, **MODES[(place + REDUCTIONS.index(fn)) % 4])


@pytest.mark.parametrize("fn", ["sum", "max", "argmax", "any", "prod"])
def test_integers(fn: str) -> None:
    everywhere(lambda p: p.reduce(fn, p.input("x", square(p), "int64"), (1,)), MODES[:4])


@pytest.mark.parametrize("fn", ["argmax", "argmin", "max", "min"])
def test_first_of_equals_and_nan_as_in_pytorch(fn: str) -> None:
    for mode in MODES:
        graph, part = written(lambda p: p.reduce(fn, p.input("x", (9, 45)), (1,)), **mode)
        x = torch.randint(0, 6, (9, 45)).float()
        x[2, 30], x[4, 7], x[4, 40] = math.nan, math.nan, math.nan
        x[3], x[5] = -math.inf, math.inf
        (want,) = evaluate(graph, [x], {})
        close(harness.run(graph, [part], [x])[0], want, graph.value(graph.results[0]).dtype)


def test_softmax_of_odd_rows() -> None:
    for mode in MODES:
        graph, part = written(lambda p: (p.softmax(p.input("x", (6, 45)), 1),), **mode)
        x = torch.randn(6, 45) * 30
        x[0], x[1, :44], x[2, 3], x[3, 3] = -math.inf, -math.inf, math.nan, math.inf
        (want,) = evaluate(graph, [x], {})
        close(harness.run(graph, [part], [x])[0], want, "float32")


def test_moments_do_not_cancel() -> None:
    def program(p: Program) -> tuple[str, ...]:
        x = p.input("x", square(p))
        return p.node("norm", (x, None, None), p.shape(x), kind="layer", dims=(1,), eps=1e-5), p.reduce(
            "var", x, (1,)
        )

    everywhere(program, ONE_KERNEL, shift=1000.0, digits=2e-3)  # the operand itself has three digits left


def test_layer_norm_with_a_tail() -> None:
    def program(p: Program) -> str:
        batch, width = square(p)
        x = p.input("x", (batch, width))
        inputs = (x, p.parameter("ln.weight", (width,)), p.parameter("ln.bias", (width,)))
        return p.pointwise(
            "gelu", p.node("norm", inputs, (batch, width), kind="layer", dims=(1,), eps=1e-5, label="ln")
        )

    everywhere(program)


def test_rows_that_wait_for_each_other() -> None:
    """A norm, then a softmax of it, then its largest element: three gatherings over one row."""

    def program(p: Program) -> str:
        x = p.input("x", square(p))
        y = p.node("norm", (x, None, None), p.shape(x), kind="layer", dims=(1,), eps=1e-5)
        return p.reduce("max", p.softmax(p.pointwise("mul", y, scalars=(None, 2.0)), 1), (1,))

    everywhere(program)


def test_a_row_and_its_elements_are_both_stored() -> None:
    def program(p: Program) -> tuple[str, str]:
        y = p.pointwise("relu", p.input("x", square(p)))
        return y, p.reduce("sum", y, (1,), True)

    everywhere(program)


def test_root_mean_square_norm() -> None:
    def program(p: Program) -> str:
        batch, width = square(p)
        inputs = (p.input("x", (batch, width)), p.parameter("weight", (width,)))
        return p.node("norm", inputs, (batch, width), kind="rms", dims=(1,), eps=1e-6)

    everywhere(program)


@pytest.mark.parametrize("named", [False, True])
def test_group_norm(named: bool) -> None:
    def program(p: Program) -> str:
        batch, height = p.size("batch", 3, 2), p.size("height", 5, 4)
        channels, groups = (
            (p.size("channels", 12, 8), p.size("groups", 4, 4)) if named else (Size(12), Size(4))
        )
        x, _ = p.input("x", (batch, channels, height, 3)), p.input("unused", (groups,))
        inputs = (x, p.parameter("gn.weight", (channels,)), p.parameter("gn.bias", (channels,)))
        y = p.node("norm", inputs, p.shape(x), kind="group", groups=groups, eps=1e-5, dims=(1, 2, 3))
        return p.pointwise("hardtanh", y, scalars=(None, -1.0, 1.0))

    everywhere(program)


def test_instance_norm() -> None:
    def program(p: Program) -> str:
        x = p.input("x", (p.size("batch", 3, 2), 6, p.size("height", 5, 4), 3))
        y = p.node("norm", (x, None, None), p.shape(x), kind="instance", dims=(2, 3), eps=1e-5)
        return p.pointwise("div", y, scalars=(None, 2.0))

    everywhere(program)


def trained(p: Program) -> tuple[str, list[str]]:
    x = p.input("x", (p.size("batch", 3, 2), 6, p.size("height", 5, 4), 3))
    own = [p.parameter(f"bn.{name}", (6,)) for name in ("weight", "bias", "running_mean", "running_var")]
    for name, shape in (("y", p.shape(x)), ("new_mean", (Size(6),)), ("new_var", (Size(6),))):
        p.values[name] = Value(name, shape, "float32", contiguous_stride(shape))
    attributes = {"kind": "batch", "dims": (0, 2, 3), "eps": 1e-5, "training": True, "momentum": 0.1}
    p.nodes.append(Node("norm", (x, *own), ("y", "new_mean", "new_var"), attributes, "bn"))
    return p.pointwise("relu", "y"), own


def test_batch_norm_in_training() -> None:
    everywhere(lambda p: (trained(p)[0], "new_mean", "new_var"))


def test_running_statistics_are_written_into_their_buffers() -> None:
    def program(p: Program) -> str:
        z, own = trained(p)
        p.nodes += [Node("update", (own[2], "new_mean"), ()), Node("update", (own[3], "new_var"), ())]
        return z

    for mode in MODES:
        graph, part = written(program, **mode)
        returning = graph.rebuilt(graph.nodes)
        text = harness.source(returning, [part]).replace(
            "return [", "return [self.bn.running_mean, self.bn.running_var, "
        )
        inputs, held = tensors(graph)
        want = evaluate(built(lambda p: (trained(p)[0], "new_mean", "new_var")), inputs, held)
        mean, variance, z = harness.execute(text, inputs, held)
        for got, wanted in zip((z, mean, variance), want, strict=True):
            close(got, wanted, "float32")


def test_rows_of_a_few_elements_make_tiles_of_some_kilobytes() -> None:
    def constants(length: int, width: int, dtype: str = "bfloat16", tokens: int = 8192) -> tuple[int, int]:
        def build(p: Program) -> str:
            x = p.input("x", (p.size("tokens", tokens, 3), length, p.size("width", width, 20)), dtype)
            return p.reduce("sum", x, (1,))

        found = {c.name: int(c.value) for c in written(build)[1].constants}
        return found["GROUP_BLOCK_X"], found["GROUP_NUM_WARPS"]

    assert constants(2, 4096) == (2048, 4)
    assert constants(2, 4096, "float32") == (1024, 4)
    assert constants(8, 4096) == (512, 2)
    assert constants(16, 4096) == (256, 1), "no thread waits for another"
    assert constants(16, 4096, "float32") == (128, 4)
    assert constants(2, 4095)[1] == 4, "one element at a time, where rows are not aligned"
    assert constants(2, 1056, "float32") == (128, 1), "few lanes lie beyond the row"
    assert constants(2, 4096, tokens=4) == (128, 1), "programs for every multiprocessor"
    assert constants(32, 4096) == (128, 8), "enough to do as it is"


def test_a_middle_dimension_lies_across_the_lanes() -> None:
    def program(p: Program) -> str:
        x = p.input("x", cube(p))
        return p.pointwise("add", p.softmax(x, 1, log=True), p.input("y", (p.shape(x)[1], 1)))

    everywhere(program)
    assert "* width + col" in check(program)


def test_cross_entropy_picks_from_the_row_in_hand() -> None:
    def program(p: Program) -> str:
        batch, width = square(p)
        rows = p.softmax(p.input("x", (batch, width)), 1, log=True)
        target = p.reshape(p.input("target", (batch,), "int64"), (batch, 1))
        return p.pointwise("neg", p.node("gather", (rows, target), (batch, 1), how="gather", dim=1))

    everywhere(program)


def test_views_between_gatherings() -> None:
    def program(p: Program) -> str:
        batch, length, width = cube(p)
        y = p.softmax(p.permute(p.input("x", (batch, length, width)), (0, 2, 1)), 2)
        largest = p.reduce("max", p.reshape(y, (batch * width, length)), (1,))
        return p.reshape(largest, (batch, width))

    everywhere(program)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_dtypes_are_gathered_in_fp32(dtype: str) -> None:
    def program(p: Program) -> tuple[str, str]:
        batch, width = square(p)
        x = p.input("x", (batch, width), dtype)
        y = p.node(
            "norm",
            (x, p.parameter("w", (width,), dtype), None),
            (batch, width),
            kind="layer",
            dims=(1,),
            eps=1e-5,
        )
        return y, p.reduce("mean", y, (1,))

    everywhere(program, ONE_KERNEL)


def test_transposed_operands() -> None:
    everywhere(lambda p: p.softmax(p.input("x", square(p), order=(1, 0)), 1))
    everywhere(lambda p: p.reduce("sum", p.input("x", cube(p), order=(2, 0, 1)), (1,)))


def test_rows_of_one_element_and_one_row() -> None:
    for shape in ((7, 1), (1, 7), (1, 1)):
        for mode in MODES[:4]:
            check(lambda p, shape=shape: p.softmax(p.input("x", shape), 1), sizes=1, **mode)
            check(lambda p, shape=shape: p.reduce("argmax", p.input("x", shape), (1,)), sizes=1, **mode)


def test_a_scan_then_a_reduction_of_it() -> None:
    def program(p: Program) -> tuple[str, ...]:
        x = p.input("x", square(p))
        y = p.node("scan", (x,), p.shape(x), fn="sum", dim=1)
        return y, p.reduce("max", y, (1,))

    everywhere(program, ONE_KERNEL)


def test_other_rows_are_another_group() -> None:
    def program(p: Program) -> str:
        return p.reduce("sum", p.reduce("max", p.input("x", cube(p)), (2,)), (1,))

    graph = built(program)
    with pytest.raises(Unfit, match="other positions"):
        write(graph, Group("two", graph.nodes, "loops"), Target(H200))


def test_few_long_rows_are_split_and_many_short_ones_share_programs() -> None:
    def rows(batch: int, width: int) -> tuple[str, dict[str, object]]:
        _, part = written(
            lambda p: p.reduce("sum", p.input("x", (p.size("b", batch, 3), p.size("w", width, 5))), (1,))
        )
        return "\n".join(part.kernels), {c.name.removeprefix("GROUP_"): c.value for c in part.constants}

    assert "group_finish_kernel" in rows(4, 1 << 20)[0]
    assert "group_finish_kernel" not in rows(100_000, 512)[0]
    assert rows(100_000, 64)[1]["BLOCK_X"] == 32

"""Groups without reductions: broadcasting, views folded into indexing, windows, tables and scans."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from egg.expert.parts import Group, Target, Unfit
from egg.expert.patterns.loops.triton import strips as loops_strips
from egg.expert.patterns.loops.write import write
from egg.expert.sizes import ONE, Size
from tests.expert import elsewhere
from tests.expert.checking import H200, MODES, built, check, everywhere, written
from tests.expert.programs import Program


def image(p: Program, height: int = 15, other: int = 12) -> tuple[Size, Size, Size, Size]:
    return p.size("batch", 3, 2), Size(4), p.size("height", height, other), p.size("width", 19, 23)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_what_lies_alike_is_read_flat(dtype: str) -> None:
    def program(p: Program) -> str:
        x, y = p.input("x", image(p), dtype), p.input("y", image(p), dtype)
        return p.pointwise("relu", p.pointwise("add", x, y))

    text = check(program)
    assert "%" not in text
    assert "//" not in text


def test_a_value_per_channel_is_a_scalar_of_its_row() -> None:
    def program(p: Program) -> str:
        x, bias = p.input("x", image(p)), p.parameter("bias", (4, 1, 1))
        return p.pointwise("mul", p.pointwise("add", x, bias), scalars=(None, 2.0))

    text = check(program)
    assert "bias_ptr + (row % 4)" in text
    assert "col" in text


def test_short_runs_stay_flat() -> None:
    def program(p: Program) -> str:
        return p.pointwise("add", p.input("x", (p.size("n", 9, 4), 5, 7)), p.parameter("b", (5, 1)))

    assert "at_block" in check(program)


def test_broadcast_from_both_sides() -> None:
    def program(p: Program) -> str:
        a, b = p.size("a", 33, 8), p.size("b", 45, 7)
        return p.pointwise("maximum", p.input("x", (a, 1)), p.input("y", (1, b)))

    check(program)


def test_transposes_are_tiled() -> None:
    def program(p: Program) -> str:
        x = p.input("x", (p.size("n", 3, 2), p.size("a", 40, 9), p.size("b", 50, 7)))
        y = p.input("y", (p.size("n", 3, 2), p.size("b", 50, 7), p.size("a", 40, 9)))
        return p.pointwise("add", p.permute(x, (0, 2, 1)), y)

    text = check(program)
    assert "row_block" in text
    assert "col_block" in text


def test_a_result_and_its_transpose_share_a_tile() -> None:
    """Each element is computed once, and both are stored along the lanes."""

    def program(p: Program) -> tuple[str, str]:
        n, a, b = p.size("n", 20, 40), p.size("a", 3, 2), p.size("b", 50, 33)
        combined = p.pointwise("mul", p.input("x", (n, a, 1)), p.input("y", (n, 1, b)))
        cast = p.pointwise("cast", combined, dtype="bfloat16")
        return combined, p.reshape(p.permute(cast, (1, 2, 0)), (a * b, n))

    text = check(program)
    assert text.count("tl.load") == 2
    assert "%" not in text.replace("% tl.cdiv", "")
    assert "row_block" in text


@pytest.mark.parametrize("turned", ["operand", "result"])
def test_matrices_in_two_orders_meet_in_square_tiles(turned: str) -> None:
    """Without a loop around the tiles: programs have as many rows as columns."""

    def program(p: Program) -> str | tuple[str, str]:
        n, m = p.size("n", 70, 40), p.size("m", 90, 33)
        x = p.pointwise("exp", p.input("x", (n, m), "bfloat16"))
        if turned == "operand":
            return p.pointwise("add", x, p.permute(p.input("y", (m, n), "bfloat16"), (1, 0)))
        return x, p.permute(x, (1, 0))

    text = check(program)
    assert text.count("tl.load") == (2 if turned == "operand" else 1)
    constants = {constant.name: constant.value for constant in written(program)[1].constants}
    assert constants["GROUP_BLOCK_X"] == constants["GROUP_BLOCK_R"] in (32, 64)


def test_results_with_the_same_places_in_memory_are_stored_together() -> None:
    """The transpose of one has other strides, and the same order in memory: nothing is computed twice."""

    def program(p: Program) -> tuple[str, str]:
        n, m = p.size("n", 70, 40), p.size("m", 90, 33)
        x = p.pointwise("exp", p.input("x", (n, m)))
        turned = p.permute(p.pointwise("cast", x, dtype="bfloat16"), (1, 0))
        p.values[turned] = replace(p.values[turned], stride=(ONE, m))
        return turned, p.pointwise("neg", x)

    text = check(program)
    assert text.count("tl.load") == 1
    assert "at_block" in text


def test_all_is_loaded_before_anything_is_stored() -> None:
    """A load behind a store would wait for it: five mixtures would be five waits for memory."""

    def program(p: Program) -> tuple[str, ...]:
        n, m = p.size("n", 70, 40), p.size("m", 90, 33)
        x, y = p.input("x", (n, m)), p.input("y", (n, m))
        return p.pointwise("exp", x), p.pointwise("mul", x, y), p.pointwise("neg", p.input("z", (n, m)))

    lines = check(program).split("\n")
    loads = [at for at, line in enumerate(lines) if "tl.load" in line]
    stores = [at for at, line in enumerate(lines) if "tl.store" in line]
    assert (len(loads), len(stores)) == (3, 3)
    assert max(loads) < min(stores)


def test_a_transpose_with_a_short_side_is_computed_on_its_own() -> None:
    def program(p: Program) -> tuple[str, str]:
        x = p.pointwise("exp", p.input("x", (p.size("n", 30, 40), 5)))
        return x, p.permute(x, (1, 0))

    assert check(program).count("tl.load") == 2


def test_channels_last_results_are_flat() -> None:
    def program(p: Program) -> str:
        return p.pointwise("relu", p.input("x", image(p), order=(0, 2, 3, 1)))

    graph = built(program)
    assert "%" not in check(program) or graph.value(graph.results[0]).contiguous


def test_views_cost_nothing() -> None:
    def program(p: Program) -> str:
        n, c, h, w = image(p)
        x = p.reshape(p.input("x", (n, c, h, w)), (n, 2, 2, h, w))
        shuffled = p.reshape(p.permute(x, (0, 2, 1, 3, 4)), (n, c, h, w))
        flipped = p.node("view", (shuffled,), (n, c, h, w), how="flip", dims=(3,))
        cut = p.node("view", (flipped,), (n, 2, h, w), how="slice", starts=(0, 1, 0, 0), steps=(1, 2, 1, 1))
        return p.pointwise("neg", cut)

    check(program)


def test_pieces_joined_padded_and_cut_to_a_triangle() -> None:
    def program(p: Program) -> tuple[str, ...]:
        a, b = p.size("a", 6, 4), p.size("b", 9, 5)
        x, y = p.input("x", (a, b)), p.input("y", (a, 3))
        both = p.size("both", 12, 8)
        p.symbols["both"] = "b + 3"
        joined = p.node("cat", (x, y), (a, both), dim=1)
        triangle = p.node("triangle", (joined,), (a, both), upper=True, diagonal=1)
        steps = p.node("constant", (), (both,), "float32", range=(1, 2))
        ones = p.node("constant", (), (a, both), "float32", fill=1.5)
        return (p.pointwise("add", p.pointwise("mul", triangle, steps), ones),)

    check(program)

    def padded(p: Program, value: float = 0.5) -> str:
        a, b = p.size("a", 6, 4), p.size("b", 9, 5)
        wide, x = p.size("wide", 13, 9), p.input("x", (a, b))
        p.symbols["wide"] = "b + 4"
        scaled = p.pointwise("mul", p.pointwise("exp", x), p.parameter("scale", (1,)))
        y = p.node("pad", (scaled,), (a, wide), before=(0, 1), value=value)
        return p.pointwise("mul", y, scalars=(None, 3.0))

    check(padded)
    check(lambda p: padded(p, -math.inf))


def test_views_alone_are_left_to_the_host() -> None:
    def viewed(p: Program) -> str:
        name = p.permute(p.input("x", (p.size("a", 6, 4), p.size("b", 9, 5))), (1, 0))
        value = p.values[name]
        p.values[name] = replace(value, stride=(ONE, p.shape("x")[1]))
        return name

    with pytest.raises(Unfit, match="costs nothing"):
        written(viewed)
    check(
        lambda p: p.permute(p.input("x", (p.size("a", 6, 4), p.size("b", 9, 5))), (1, 0))
    )  # made contiguous


def test_a_choice_between_values() -> None:
    def program(p: Program) -> str:
        x, y = p.input("x", image(p)), p.input("y", image(p))
        return p.node(
            "where", (p.pointwise("gt", x, y, dtype="bool"), x, p.pointwise("neg", y)), p.shape(x), "float32"
        )

    check(program)


def test_several_results_of_one_pass_and_other_dtypes() -> None:
    def program(p: Program) -> tuple[str, ...]:
        x = p.input("x", image(p))
        y = p.pointwise("sigmoid", x)
        return (
            y,
            p.pointwise("gt", y, scalars=(None, 0.5), dtype="bool"),
            p.pointwise("cast", x, dtype="int64"),
        )

    check(program)


def test_scalars_and_tensors_of_one_element() -> None:
    check(lambda p: p.pointwise("add", p.input("x", ()), p.input("y", (1, 1))), sizes=1)
    check(lambda p: p.pointwise("add", p.input("x", (1, 1)), scalars=(None, 1)), sizes=1)


def test_results_of_different_sizes_are_different_groups() -> None:
    def program(p: Program) -> tuple[str, str]:
        x = p.input("x", (p.size("n", 9, 4), 5))
        return p.pointwise("relu", x), p.pointwise("exp", p.input("y", (7,)))

    graph = built(program)
    with pytest.raises(Unfit, match="different sizes"):
        write(graph, Group("two", graph.nodes, "loops"), Target(H200))


def test_evaluated_batch_norm_is_a_scale_and_a_shift() -> None:
    def program(p: Program) -> str:
        x = p.input("x", image(p))
        own = [p.parameter(f"bn.{name}", (4,)) for name in ("weight", "bias", "mean", "root")]
        variance = p.pointwise("square", own[3])
        inputs = (x, own[0], own[1], own[2], variance)
        return p.node(
            "norm", inputs, p.shape(x), kind="batch", dims=(0, 2, 3), eps=1e-5, training=False, momentum=0.1
        )

    check(program)


# -- windows ----------------------------------------------------------------------------------------


def pooled(p: Program, fn: str, **attributes: Any) -> str:
    n, c, h, w = p.size("batch", 3, 2), Size(2), p.size("height", 15, 12), p.size("width", 19, 23)
    rank = 2
    stride, padding = attributes.get("stride", attributes["kernel"]), attributes.get("padding", (0, 0))
    dilation, sizes = attributes.get("dilation", (1, 1)), []
    for axis, size in enumerate((h, w)):
        counts = []
        for value in size.values:
            room = value + 2 * padding[axis] - dilation[axis] * (attributes["kernel"][axis] - 1) - 1
            count = (room + (stride[axis] - 1 if attributes.get("ceil") else 0)) // stride[axis] + 1
            counts.append(
                count
                - (attributes.get("ceil", False) and (count - 1) * stride[axis] >= value + padding[axis])
            )
        sizes.append(p.size(f"out_{axis}", *counts))
        p.symbols[f"out_{axis}"] = f"{counts[0]} if height == 15 else {counts[1]}"
    x = p.pointwise("relu", p.input("x", (n, c, h, w)))
    p.symbols = dict(sorted(p.symbols.items(), key=lambda item: item[0].startswith("out")))
    assert len(sizes) == rank
    y = p.node("pool", (x,), (n, c, *sizes), fn=fn, **attributes)
    return p.pointwise("mul", y, scalars=(None, 2.0))


@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel": (2, 2)},
        {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1)},
        {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 0), "ceil": True},
        {"kernel": (7, 7), "stride": (2, 2), "padding": (3, 3)},
    ],
)
def test_windows_are_read_tap_by_tap(attributes: dict[str, Any]) -> None:
    check(lambda p: pooled(p, "max", **attributes))
    check(lambda p: pooled(p, "avg", **attributes))
    check(lambda p: pooled(p, "avg", count_include_pad=False, **attributes))


@pytest.mark.parametrize(
    ("fn", "attributes"),
    [
        ("max", {"kernel": (4, 4), "stride": (1, 1), "padding": (1, 1)}),
        ("avg", {"kernel": (4, 3), "stride": (1, 2), "padding": (2, 1), "count_include_pad": False}),
        ("avg", {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 0), "ceil": True}),
        ("max", {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1), "dilation": (2, 2)}),
    ],
)
def test_overlapping_windows_keep_their_rows(
    fn: str, attributes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops_strips, "NARROWEST", 8)
    text = check(lambda p: pooled(p, fn, **attributes), BLOCK_X=4, BLOCK_R=16)
    assert "for row in range(first" in text
    assert text.count("above = ") == (0 if "dilation" in attributes else 2)


@pytest.mark.parametrize(
    ("fn", "attributes"),
    [
        ("avg", {"kernel": (8,), "stride": (1,), "padding": (4,)}),
        ("max", {"kernel": (3,), "stride": (2,), "padding": (1,), "dilation": (3,)}),
    ],
)
def test_windows_along_a_line_find_their_neighbours(fn: str, attributes: dict[str, Any]) -> None:
    def program(p: Program) -> str:
        x, step = p.input("x", (p.size("rows", 3, 2), 4, p.size("width", 70, 50))), attributes["stride"][0]
        reach = attributes.get("dilation", (1,))[0] * (attributes["kernel"][0] - 1) + 1
        counts = [(w + 2 * attributes["padding"][0] - reach) // step + 1 for w in (70, 50)]
        p.symbols["out"] = f"{counts[0]} if width == 70 else {counts[1]}"
        return p.node("pool", (x,), (p.shape(x)[0], 4, p.size("out", *counts)), fn=fn, **attributes)

    text = check(program, BLOCK_R=16)
    assert "tl.minimum(col_block" in text
    assert "for " not in text.split('"""')[2]


def test_dilated_windows_and_given_divisors() -> None:
    check(lambda p: pooled(p, "max", kernel=(3, 3), stride=(1, 1), dilation=(2, 2)))
    check(lambda p: pooled(p, "avg", kernel=(7, 7), divisor=3))


def test_adaptive_pools() -> None:
    def divided(p: Program) -> str:
        x = p.input("x", (p.size("n", 3, 2), 4, 12, 12))
        return p.node("pool", (x,), (p.shape(x)[0], 4, 4, 3), fn="avg", adaptive=True, kernel=(4, 3))

    def whole(p: Program) -> str:
        x = p.input("x", (p.size("n", 3, 2), 4, p.size("h", 7, 9), 5))
        y = p.pointwise("gelu", x)
        return p.node("pool", (y,), (p.shape(x)[0], 4, 1, 1), fn="max", adaptive=True, kernel=(1, 1))

    check(divided)
    everywhere(whole)
    assert check(whole).count("tl.store") == 1


def test_a_pool_inside_a_reduction() -> None:
    def program(p: Program) -> str:
        x = p.input("x", (p.size("n", 3, 2), 4, 12, 12))
        y = p.node("pool", (x,), (p.shape(x)[0], 4, 6, 6), fn="max", kernel=(2, 2))
        return p.reduce("sum", y, (1, 2, 3))

    everywhere(program)


def test_overlapping_windows_do_not_repeat_expensive_work() -> None:
    def program(p: Program) -> str:
        y = p.pointwise("gelu", p.input("x", (2, 4, 12, 12)))
        return p.node("pool", (y,), (2, 4, 10, 10), fn="avg", kernel=(3, 3), stride=(1, 1))

    with pytest.raises(Unfit, match="overlap"):
        written(program)


# -- tables and scans -------------------------------------------------------------------------------


def embedded(p: Program) -> str:
    n, w = p.size("n", 6, 5), p.size("w", 37, 20)
    return p.node(
        "gather", (p.parameter("table", (11, w)), p.input("x", (n,), "int64")), (n, w), how="embedding", dim=0
    )


def test_tables() -> None:
    check(lambda p: p.pointwise("relu", embedded(p)))

    def selected(p: Program) -> str:
        x, at = p.input("x", (p.size("a", 6, 3), 9, p.size("b", 8, 5))), p.input("at", (5,), "int64")
        return p.node("gather", (x, at), (p.shape(x)[0], 5, p.shape(x)[2]), how="index_select", dim=1)

    check(selected)

    def normed(p: Program) -> str:
        y = embedded(p)
        return p.node("norm", (y, None, None), p.shape(y), kind="layer", dims=(1,), eps=1e-5)

    everywhere(normed)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("dim", [1, 2])
def test_decaying_totals(dim: int, dtype: str) -> None:
    """What is taken and what decays is computed on the way in, and what follows on the way out."""

    def program(p: Program) -> str:
        shape = (p.size("a", 3, 2), p.size("b", 21, 40), p.size("c", 7, 5))
        taken = p.pointwise("mul", p.input("x", shape, dtype), scalars=(None, 0.5))
        decay = p.pointwise("sigmoid", p.input("rate", shape, dtype))
        attributes = {"fn": "decayed", "dim": dim, "reverse": False, "exclusive": False}
        return p.pointwise("mul", p.node("scan", (taken, decay), shape, **attributes), scalars=(None, 2.0))

    for mode in (0, 2, 4, 5):
        assert "followed" in check(program, **MODES[mode])


@pytest.mark.parametrize("fn", ["sum", "prod", "max", "min", "logcumsumexp"])
@pytest.mark.parametrize("dim", [1, 2])
def test_scans(fn: str, dim: int) -> None:
    ways = ((5, False, True), (0, False, False), (2, True, False), (2, True, True))
    for mode, reverse, exclusive in ways if fn == "sum" else ways[dim - 1 :: 2]:

        def program(p: Program, reverse: bool = reverse, exclusive: bool = exclusive) -> str:
            x = p.input("x", (p.size("a", 3, 2), p.size("b", 21, 40), p.size("c", 7, 5)))
            x = p.pointwise("mul", x, scalars=(None, 0.5))
            attributes = {
                "fn": fn,
                "dim": dim,
                "reverse": reverse,
                "exclusive": exclusive and fn != "logcumsumexp",
            }
            return p.pointwise("mul", p.node("scan", (x,), p.shape(x), **attributes), scalars=(None, 2.0))

        check(program, **MODES[mode])


def test_results_in_orders_that_no_view_leads_back_from_are_computed_from_one_another() -> None:
    source = elsewhere.program(
        "a = torch.relu(x)\nreturn a, -a.flip(1).reshape(64, 16, 16)", "x = torch.randn(64, 256)"
    )
    elsewhere.check(source, [], [elsewhere.normal(64, 256)])


def test_rows_through_an_index_have_more_loads_on_their_way() -> None:
    def program(p: Program) -> str:
        pages = p.size("pages", 4096, 9)
        table, at = p.input("pool", (pages, 16, 1024), "bfloat16"), p.input("at", (pages,), "int64")
        return p.node("gather", [table, at], (pages, 16, 1024), "bfloat16", how="embedding", dim=0)

    _, part = written(program)
    constants = {c.name: c.value for c in part.constants}
    elements = int(constants.get("GROUP_BLOCK_X", 1)) * int(constants["GROUP_BLOCK_R"])
    assert elements == 4 * 8 * 32 * int(constants["GROUP_NUM_WARPS"])

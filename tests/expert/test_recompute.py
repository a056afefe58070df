"""What follows cheaply from something in memory is computed by whoever reads it, and not stored."""

from __future__ import annotations

from egg.core.source import Task
from egg.expert.fusion.choices import Structure
from egg.expert.graph import Graph, Node
from egg.expert.sizes import Size
from tests.expert.captured import program
from tests.expert.programs import Program
from tests.expert.test_reading import run_and_compare
from tests.expert.test_reading import written as file_for
from tests.expert.test_structure import check, file_of, structure_of, whole


def scaled_product(p: Program, fn: str, dtype: str = "bfloat16", to: str = "float32") -> str:
    """A statistic of each row, and a product with rows that are divided by it."""
    x = p.input("x", (p.size("rows", 5, 3), p.size("width", 48, 33)), dtype)
    cast = p.pointwise(fn, x, dtype=to)
    largest = p.reduce("max", p.pointwise("abs", cast), (1,), keepdim=True)
    rows = p.pointwise("div", cast, p.pointwise("add", largest, scalars=(None, 1.0)))
    weight = p.parameter("w", (p.shape(x)[1], 16))
    return p.node("matmul", (p.pointwise("cast", rows, dtype="float32"), weight), (p.shape(x)[0], 16))


def stored(structure: Structure) -> set[str]:
    """Values that one group leaves to others."""
    graph = structure.graph
    return {name for group in structure.groups for name in group.writes(graph)} - set(graph.results)


def right(graph: Graph, structure: Structure) -> None:
    whole(structure.graph, structure)
    check(graph, structure, file_of(graph, structure))


def test_a_product_casts_what_a_statistic_casts() -> None:
    p = Program()
    graph = p.graph(scaled_product(p, "cast"))
    structure = structure_of(graph)
    assert [group.pattern for group in structure.groups] == ["loops", "product"]
    assert all(structure.graph.value(name).shape[1].value == 1 for name in stored(structure))
    assert "x" in structure.groups[1].reads(structure.graph)
    right(graph, structure)


def test_a_product_reads_what_was_computed_once() -> None:
    """Only casts are cheap for whoever reads an operand many times; and only of something narrower."""
    for fn, dtype, to in (("relu", "float32", "float32"), ("cast", "float32", "bfloat16")):
        p = Program()
        graph = p.graph(scaled_product(p, fn, dtype, to))
        structure = structure_of(graph)
        assert len(stored(structure)) == 2
        right(graph, structure)


def two_statistics(p: Program, x: str, fn: str) -> tuple[str, str]:
    """Along rows and along columns: no pass has both."""
    y = p.pointwise(fn, x)
    return p.reduce("max", y, (0,)), p.pointwise("tanh", p.reduce("sum", y, (1,)))


def test_passes_compute_what_is_cheap_for_themselves() -> None:
    for fn in ("relu", "exp"):
        p = Program()
        graph = p.graph(*two_statistics(p, p.input("x", (p.size("rows", 5, 3), p.size("width", 48, 33))), fn))
        structure = structure_of(graph)
        assert len(structure.groups) == 2
        assert len(stored(structure)) == (fn == "exp")
        right(graph, structure)


def test_a_small_power_is_computed_by_each_reader() -> None:
    """The factored moments of Adafactor: squares of a gradient in 16 bits, along rows and along columns."""
    for exponent, kept in ((2, False), (2.5, True)):
        p = Program()
        x = p.input("x", (p.size("rows", 40, 33), p.size("width", 48, 35)), "bfloat16")
        power = p.pointwise("pow", p.pointwise("cast", x, dtype="float32"), scalars=(None, exponent))
        rows, columns = p.reduce("mean", power, (1,)), p.reduce("mean", power, (0,))
        graph = p.graph(rows, columns)
        structure = structure_of(graph)
        assert (power in stored(structure)) == kept
        if not kept:
            right(graph, structure)


def test_a_copy_stays_with_its_reader() -> None:
    """Rows are normalised, then scaled by the largest of each part: the part's pass takes what it needs of
    the row's result, and the row's pass stores that alone."""
    p = Program()
    x = p.input("x", (p.size("rows", 5, 3), 48))
    total = p.reduce("sum", p.pointwise("mul", x, x), (1,), keepdim=True)
    y = p.reshape(p.pointwise("mul", x, p.pointwise("rsqrt", total)), (p.shape(x)[0], 3, 16))
    largest = p.reduce("max", p.pointwise("abs", y), (2,), keepdim=True)
    graph = p.graph(p.pointwise("div", y, largest))
    structure = structure_of(graph)
    assert [group.pattern for group in structure.groups] == ["loops", "loops"]
    assert len(stored(structure)) == 1
    right(graph, structure)


def test_what_a_library_reads_is_stored_for_all() -> None:
    p = Program()
    x = p.input("x", (p.size("rows", 5, 3), p.size("width", 48, 33)))
    first, second = two_statistics(p, x, "relu")
    product = p.node("matmul", ("t1", p.parameter("w", (p.shape(x)[1], 16))), (p.shape(x)[0], 16))
    graph = p.graph(first, second, product)
    structure = structure_of(graph, without=frozenset({"product"}))
    assert "t1" in stored(structure)


def test_what_is_overwritten_meanwhile_is_not_read_again() -> None:
    p = Program()
    x = p.input("x", (p.size("rows", 5, 3), 40))
    first, second = two_statistics(p, kept := p.parameter("kept", (48, 40)), "relu")
    p.nodes.append(Node("update", (kept, p.pointwise("add", kept, first)), ()))
    graph = p.graph(p.pointwise("add", x, first), second)
    structure = structure_of(graph)
    assert "t1" in stored(structure)
    right(graph, structure)


def turned(p: Program, x: str) -> str:
    """The second half of each row, negated, then the first: what rotary embeddings add."""
    *rows, width = p.shape(x)
    half = Size(width.value // 2)
    cut = {"how": "slice", "steps": (1,) * (len(rows) + 1)}
    first = p.node("view", (x,), (*rows, half), **cut, starts=(0,) * (len(rows) + 1))
    second = p.node("view", (x,), (*rows, half), **cut, starts=(*(0 for _ in rows), half.number))
    return p.node("cat", (p.pointwise("neg", second), first), (*rows, width), dim=len(rows))


def rotated(p: Program, x: str, cos: str, sin: str) -> str:
    return p.pointwise("add", p.pointwise("mul", x, cos), p.pointwise("mul", turned(p, x), sin))


def test_halves_of_a_tensor_are_read_where_they_lie() -> None:
    p = Program()
    sequence = p.size("sequence", 5, 3)
    x = p.input("x", (p.size("heads", 4, 2), sequence, 16))
    cos, sin = (p.input(name, (sequence, 16)) for name in ("cos", "sin"))
    graph = p.graph(rotated(p, x, cos, sin))
    structure = structure_of(graph)
    (group,), (part,) = structure.groups, structure.parts
    assert group.pattern == "loops"
    assert set(group.reads(structure.graph)) == {"x", "cos", "sin"}
    assert " ".join(part.kernels.values()).count("_ptr,") <= 4
    right(graph, structure)


def test_a_view_that_several_groups_read_costs_the_host_nothing() -> None:
    p = Program()
    sequence = p.size("sequence", 5, 3)
    query, key = (p.input(name, (sequence, heads, 16)) for name, heads in (("query", 4), ("key", 2)))
    shown = [p.reshape(p.input(name, (sequence, 16)), (sequence, 1, 16)) for name in ("cos", "sin")]
    graph = p.graph(*(rotated(p, x, *shown) for x in (query, key)))
    structure = structure_of(graph)
    assert [group.pattern for group in structure.groups] == ["loops", "loops"]
    right(graph, structure)


def test_normed_rows_are_turned_by_the_kernel_that_has_them() -> None:
    p = Program()
    x = p.input("x", (p.size("rows", 5, 3), 16))
    squares = p.reduce("mean", p.pointwise("square", x), (1,), keepdim=True)
    normed = p.pointwise("mul", x, p.pointwise("rsqrt", p.pointwise("add", squares, scalars=(None, 1e-6))))
    cos, sin = (p.input(name, p.shape(x)) for name in ("cos", "sin"))
    graph = p.graph(rotated(p, normed, cos, sin))
    structure = structure_of(graph)
    assert [group.pattern for group in structure.groups] == ["loops"]
    assert "whole rows stay in registers." in file_of(graph, structure), "not: each element is read once"
    right(graph, structure)


def test_what_a_library_reads_is_shown_to_it() -> None:
    p = Program()
    x = p.input("x", (p.size("rows", 5, 3), p.size("width", 48, 33)))
    shown = p.permute(x, (1, 0))
    product = p.node("matmul", (shown, p.parameter("w", (p.shape(x)[0], 16))), (p.shape(x)[1], 16))
    graph = p.graph(p.pointwise("tanh", shown), product)
    structure = structure_of(graph, without=frozenset({"product"}))
    assert shown in stored(structure)


def test_values_that_follow_from_shifted_ones_are_kept() -> None:
    """Sums by doubling: each round reads the one before at two places, so rounds must not go into each other
    without end."""
    p = Program()
    x = p.input("x", (32, p.size("width", 20, 9)))
    width = p.shape(x)[1]
    for reach in (1, 2, 4, 8, 16):
        early = p.node("view", (x,), (32 - reach, width), how="slice", starts=(0, 0), steps=(1, 1))
        x = p.pointwise("add", x, p.node("pad", (early,), (32, width), before=(reach, 0), value=0.0))
    graph = p.graph(x)
    structure = structure_of(graph)
    assert 1 < len(structure.groups) <= 3
    right(graph, structure)


PIECES = "torch.randn(rows, 12, 6), torch.randn(rows, 12, 9), torch.randn(rows, 12, 5)"


def pieces(above: str, below: str) -> Task:
    """Rows of three tensors side by side, of which two passes take their own."""
    forward = f"z = torch.cat((x, y, w), 2); return z[:, {above}].softmax(1), z[:, {below}].sigmoid()"
    return program(forward, PIECES, knobs="rows = 5", arguments="x, y, w")


def test_slices_of_what_is_joined_are_read_from_the_pieces() -> None:
    task = pieces(":4", "4:")
    structure = file_for(task).structure
    assert len(structure.groups) == 2
    assert not stored(structure)
    run_and_compare(task)


def test_what_is_joined_is_stored_where_it_is_read_twice() -> None:
    assert stored(file_for(pieces(":9", "1:")).structure)

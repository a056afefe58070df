"""Products of concatenations: a loop for each piece, right at any size, and within the memory of a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from egg.core.policy import Precision
from egg.core.resources import KernelResources
from egg.core.source import Task
from egg.evaluator import offline
from egg.evaluator.task.program import Program, outputs_of
from egg.expert.algebra.simplify import simplify
from egg.expert.assemble import graph_of, kernel_file
from egg.expert.fusion.structure import Structure, structured
from egg.expert.moves import Recipe
from egg.expert.parts import Part, Target
from egg.expert.patterns.product import write as product
from egg.expert.reading.capture import capture
from egg.expert.sizes import Size, named
from egg.hardware.gpus import resolve
from tests.expert import elsewhere, harness
from tests.expert.captured import CPU, program, resized
from tests.expert.compiling import module_of
from tests.expert.product_cases import SMALL, Build, Case, reference, tensors
from tests.ledgers import COMPILED

H200 = resolve("H200")
FLOORS = {"float32": 1.5e-5, "float16": 3.9e-3, "bfloat16": 3.1e-2}
"""Of the largest error, relative to the result's mean square."""


def written(case: Case) -> Part:
    return product.write(case.graph, case.group, Target(H200, case.settings))


def mn() -> tuple[Size, Size]:
    return named("rows", (72, 33, 5)), named("columns", (56, 41, 66))


def widths() -> list[Size]:
    """Of pieces: aligned at the first size only, a plain number, and one shorter than a block."""
    return [named("first", (152, 65, 7)), Size(24), named("last", (64, 3, 90))]


WHOLE = named("depth", (240, 92, 121))


def joined(dtype: str, fn: str = "", **settings: Any) -> Case:
    b, (m, n) = Build(dtype), mn()
    pieces = [b.input(f"x{at}", m, width) for at, width in enumerate(widths())]
    x = b.node("cat", tuple(pieces), (m, WHOLE), dim=1)
    y = b.matmul(b.point(fn, x) if fn else x, b.permute(b.input("w", n, WHOLE), 1, 0))
    return b.case(b.point("relu", y), **{**SMALL, **settings})


def joined_weights(dtype: str, along: bool, **settings: Any) -> Case:
    """``along``: pieces have the summed dimension contiguous."""
    b, (m, n) = Build(dtype), mn()
    shapes = [(n, width) if along else (width, n) for width in widths()]
    pieces = [b.input(f"w{at}", *shape) for at, shape in enumerate(shapes)]
    w = b.node("cat", tuple(pieces), (n, WHOLE) if along else (WHOLE, n), dim=1 if along else 0)
    x = b.input("x", m, WHOLE)
    return b.case(b.matmul(x, b.permute(w, 1, 0) if along else w), **{**SMALL, **settings})


def one_tap(**settings: Any) -> Case:
    """The weight of a convolution of one tap: its last dimensions are not the summed one."""
    b, (m, n) = Build("float16"), mn()
    pieces = [b.input("x0", m, Size(64)), b.input("x1", m, Size(64))]
    x = b.node("cat", tuple(pieces), (m, Size(128)), dim=1)
    stored = b.input("w", n, Size(128), Size(1), Size(1))
    w = b.reshape(stored, n, Size(128))
    return b.case(b.matmul(x, b.permute(w, 1, 0)), **{**SMALL, **settings})


def turned(**settings: Any) -> Case:
    """Pieces lie with their rows contiguous, the weight with its columns."""
    b, (m, n) = Build("bfloat16"), mn()
    pieces = [b.input(f"x{at}", width, m) for at, width in enumerate(widths())]
    x = b.permute(b.node("cat", tuple(pieces), (WHOLE, m), dim=0), 1, 0)
    return b.case(b.matmul(x, b.input("w", WHOLE, n)), **{**SMALL, **settings})


def batched(**settings: Any) -> Case:
    b, (m, n) = Build("bfloat16"), mn()
    z = named("heads", (3, 2, 1))
    pieces = [b.input(f"x{at}", z, m, width) for at, width in enumerate(widths())]
    x = b.node("cat", tuple(pieces), (z, m, WHOLE), dim=2)
    return b.case(b.matmul(x, b.permute(b.input("w", z, n, WHOLE), 0, 2, 1)), **{**SMALL, **settings})


CASES: dict[str, tuple[Callable[[], Case], int]] = {
    "as they lie": (lambda: joined("bfloat16", descriptors=False), 3),
    "by the copy engine": (lambda: joined("float16", descriptors=True), 3),
    "a weight of one tap": (lambda: one_tap(descriptors=True), 2),
    "in parts": (lambda: joined("bfloat16", SPLIT_K=2, fold=True), 1),
    "a function of it": (lambda: joined("bfloat16", "relu", fold=True), 3),
    "fp32": (lambda: joined("float32", packing=False), 3),
    "fp32, packed": (lambda: joined("float32", packing=True), 1),
    "tf32x3": (lambda: joined("float32", grade="tf32x3", packing=False), 3),
    "weights": (lambda: joined_weights("bfloat16", along=True, descriptors=True), 3),
    "weights, columns contiguous": (lambda: joined_weights("bfloat16", along=False, descriptors=True), 3),
    "rows contiguous": (lambda: turned(descriptors=False), 3),
    "rows contiguous, by the copy engine": (lambda: turned(descriptors=True), 3),
    "batched": (lambda: batched(descriptors=True), 3),
}
"""What is multiplied, and in how many loops."""


@pytest.mark.parametrize("name", CASES)
def test_right_at_every_size(name: str) -> None:
    make, loops = CASES[name]
    case = make()
    part = written(case)
    assert part.kernels["fused_kernel"].count("for k_start in") == loops
    for at in range(3):
        arguments = tensors(case, at)
        (ours,) = harness.run(case.graph, [part], arguments)
        (right,) = reference(case, arguments, at)
        scale = right.square().mean().sqrt()
        assert (ours.double() - right).abs().max() <= FLOORS[str(ours.dtype).removeprefix("torch.")] * scale


@pytest.mark.parametrize("descriptors", [True, False])
def test_no_block_reaches_into_the_next_piece(descriptors: bool) -> None:
    """What a piece is not multiplied with may be anything: a block beyond its end is zero on both sides."""
    case = joined("bfloat16", descriptors=descriptors)
    *pieces, w = tensors(case, 0)
    pieces[1].fill_(1.0)
    w[:, 152:176] = float("inf")
    (ours,) = harness.run(case.graph, [written(case)], [*pieces, w])
    assert torch.isposinf(ours).all()


def test_pieces_are_read_as_they_lie() -> None:
    text = written(joined("bfloat16", descriptors=False)).kernels["fused_kernel"]
    loops = text[text.index("for k_start in") : text.index("    row = ")]
    assert "tl.where" not in loops
    assert loops.count("tl.load(") == 6


def test_short_pieces_share_a_step() -> None:
    """Halves of a rotary embedding: a loop for each would be two steps, half of them empty."""
    b, (m, n) = Build("bfloat16"), mn()
    half = Size(32)
    x = b.node("cat", (b.input("x", m, half), b.input("y", m, half)), (m, half * 2), dim=1)
    case = b.case(b.matmul(x, b.input("w", half * 2, n)), fold=True)
    assert written(case).kernels["fused_kernel"].count("for k_start in") == 1


def test_columns_of_many_matrices_are_read_as_they_lie() -> None:
    """``einsum("td,edf->etf")``: columns lie side by side within a matrix, and so they are loaded."""
    b = Build("bfloat16")
    m, k, e, f = named("rows", (40, 33, 5)), named("depth", (48, 40, 33)), Size(3), Size(64)
    w = b.reshape(b.permute(b.input("w", e, k, f), 1, 0, 2), k, e * f)
    case = b.case(b.matmul(b.input("x", m, k), w), **SMALL)
    part = written(case)
    assert "right_tile.T" not in part.kernels["fused_kernel"]
    for at in range(3):
        arguments = tensors(case, at)
        (ours,) = harness.run(case.graph, [part], arguments)
        (right,) = reference(case, arguments, at)
        assert (ours.double() - right).abs().max() <= FLOORS["bfloat16"] * right.square().mean().sqrt()


# -- whole programs ------------------------------------------------------------------------------------

KNOBS = "T, A, C, N = 40, 63, 64, 48"
SKIPPED = program(
    "return F.relu(self.lin(torch.cat([x, self.up(x).relu()], -1)))",
    "torch.randn(T, A).half()",
    "self.up = nn.Linear(A, C).half(); self.lin = nn.Linear(A + C, N).half()",
    KNOBS,
)
"""A skip connection into a product, with rows of odd widths."""
EVEN = program(
    "return F.linear(torch.cat([x, y], -1), self.w)",
    "torch.randn(T, A).half(), torch.randn(T, C - A).half()",
    "self.w = nn.Parameter(torch.randn(N, C).half())",
    KNOBS,
    arguments="x, y",
)
"""Pieces with odd rows that make an even one together."""


def partition(task: Task) -> Structure:
    return structured(simplify(capture(task)), Target(H200))


def operators(task: Task) -> list[tuple[str, list[str]]]:
    """Pattern and operators of each group, changes of shape left out."""
    return [
        (group.pattern, [node.get("fn") or node.op for node in group.nodes if node.op != "view"])
        for group in partition(task).groups
    ]


def test_a_skip_connection_rides_on_the_product() -> None:
    large = resized(SKIPPED, KNOBS, "T, A, C, N = 65536, 63, 256, 256")
    assert operators(large) == [("product", ["matmul", "relu"]), ("product", ["cat", "matmul", "relu"])]
    text = kernel_file(large, graph_of(large), Recipe(), H200).source
    assert "with_aligned_rows, self.lin.weight, A, C)" in text


def test_odd_pieces_of_an_even_row_are_joined_by_a_pass() -> None:
    large = resized(EVEN, KNOBS, "T, A, C, N = 65536, 63, 256, 1024")
    assert [pattern for pattern, _ in operators(large)] == ["loops", "product"]


def test_a_product_in_parts_reads_one_tensor() -> None:
    """Few tiles and a long sum: parts of it would look for every element in both pieces."""
    task = program(
        "return r + F.linear(torch.cat([x, F.gelu(y)], -1), self.w)",
        "torch.randn(T, A).half(), torch.randn(T, C).half(), torch.randn(T, N).half()",
        "self.w = nn.Parameter(torch.randn(N, A + C).half())",
        KNOBS,
        arguments="x, y, r",
    )
    large = resized(task, KNOBS, "T, A, C, N = 1536, 3072, 12288, 3072")
    assert operators(large) == [("loops", ["gelu", "cat"]), ("product", ["matmul", "add"])]


def test_weights_with_odd_rows_are_right_at_other_sizes(tmp_path: Path) -> None:
    """The kernels of a large program, which read a copy of the weight, at the sizes of a small one."""
    large = resized(SKIPPED, KNOBS, "T, A, C, N = 65536, 63, 256, 256")
    structure = partition(large)
    for sizes in (KNOBS, "T, A, C, N = 33, 63, 41, 17"):
        loaded = Program.load(resized(SKIPPED, KNOBS, sizes))
        module, inputs = loaded.build(0, CPU, Precision.MATCH), loaded.inputs(0, CPU, Precision.MATCH)
        (got,) = harness.run(structure.graph, structure.parts, inputs, module.state_dict())
        with loaded, torch.no_grad():
            ((_, want),) = outputs_of(loaded.run(module, inputs))
        assert isinstance(want, torch.Tensor)
        assert torch.allclose(got.float(), want.float(), atol=4e-3, rtol=4e-3)


# -- the memory of a GPU -------------------------------------------------------------------------------


def compiled(case: Case, path: Path) -> KernelResources:
    path.write_text(harness.source(case.graph, [written(case)]))
    captured = offline.capture(module_of(path), lambda: [t.to("cuda") for t in tensors(case, 0)], "sm_90")
    (kernel,) = offline.compile_all(captured, "sm_90")
    return kernel


def gated(rows: int, columns: int, depth: int, batch: int) -> Case:
    """``(silu(a) * b) @ w`` with both halves in one tensor: two tiles a stage for the left operand."""
    b = Build("bfloat16")
    h = b.input("h", batch, rows, 2 * depth)
    a, c = (
        b.node("view", (h,), (batch, rows, depth), how="slice", starts=(0, 0, start), steps=(1, 1, 1))
        for start in (0, depth)
    )
    x = b.point("mul", b.point("silu", a), c)
    return b.case(b.matmul(x, b.input("w", batch, depth, columns)), fold=True)


def pieces(rows: int, columns: int, *depths: Size) -> Case:
    b = Build("bfloat16")
    given = [b.input(f"x{at}", rows, depth) for at, depth in enumerate(depths)]
    whole = named("depth", (sum(depth.value for depth in depths),))
    x = b.node("cat", tuple(given), (rows, whole), dim=1)
    return b.case(b.matmul(x, b.permute(b.input("w", columns, whole), 1, 0)))


def any_size(name: str, value: int) -> Size:
    return named(name, (value,))


MEMORY: dict[str, Callable[[], Case]] = {
    "two tiles a stage": lambda: gated(256, 1024, 512, 16),
    "a short piece first": lambda: pieces(65536, 256, Size(64), Size(256)),
    "sizes that may be short": lambda: pieces(65536, 256, any_size("first", 64), any_size("second", 256)),
    "three pieces": lambda: pieces(65536, 256, Size(64), Size(512), any_size("last", 64)),
}


@pytest.mark.parametrize("name", MEMORY)
def test_what_is_written_fits_the_gpu(name: str, tmp_path: Path) -> None:
    """The compiler refuses nothing, and spills nothing."""
    case = MEMORY[name]()

    def compile_it() -> None:
        kernel = compiled(case, tmp_path / "written.py")
        assert 3 * H200.shared_per_block // 5 < kernel.shared_bytes <= H200.shared_per_block
        assert kernel.spill_bytes == 0
        assert kernel.instructions is not None
        assert kernel.instructions.warp_group > 0

    COMPILED.once(compile_it, harness.source(case.graph, [written(case)]))


def test_the_first_columns_of_a_weight_are_read_where_they_lie() -> None:
    """Its rows of 100 elements are not aligned, and a copy with aligned rows would hold all of them."""
    source = elsewhere.program(
        "return torch.relu(x @ self.w[:, :64].T)",
        "x = torch.randn(rows, 64, dtype=torch.float16)",
        "self.w = nn.Parameter(torch.randn(256, 100, dtype=torch.float16))",
        rows=65536,
    )
    assert "described(" in elsewhere.written(source)
    elsewhere.check(source, [], [elsewhere.normal(40, 64, dtype=torch.float16)], 4e-3)


ROTATED = """
norm = torch.sqrt(q[:, 0] * q[:, 0] + q[:, 1] * q[:, 1])
c, s = q[:, 0] / norm, q[:, 1] / norm
r = torch.zeros((q.shape[0], 2, 2), device=q.device)
r[:, 0, 0] = c
r[:, 0, 1] = -s
r[:, 1, 0] = s * t
r[:, 1, 1] = c
r = r * torch.exp(w)[:, None, :]
return r @ r.transpose(1, 2)
"""


def test_small_matrices_are_put_together_from_numbers_of_their_own() -> None:
    """An entry is one number for the whole program, and takes no mask of the shape of a tile."""
    inputs = "q = torch.randn(n, 2);w = torch.randn(n, 2);t = torch.randn(n)"
    given = [elsewhere.normal(5, 2), elsewhere.normal(5, 2) / 2, elsewhere.normal(5)]
    elsewhere.check(elsewhere.program(ROTATED, inputs, n=100000), [], given)

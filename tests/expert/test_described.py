"""Products whose 16-bit operands the copy engine brings: right at any size, and so only where it pays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from hypothesis import given, settings
from hypothesis import strategies as st
from triton.tools.tensor_descriptor import TensorDescriptor

from egg.core.policy import LibraryCalls
from egg.evaluator import offline, static
from egg.expert.parts import Part, Target
from egg.expert.patterns.product import described
from egg.expert.patterns.product import write as product
from egg.expert.sizes import Size, named
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.expert.compiling import module_of
from tests.expert.product_cases import SMALL, Build, Case, reference, residual, tensors

FLOORS = {"float16": 3.9e-3, "bfloat16": 3.1e-2}
"""Of the largest error, relative to the result's mean square."""


def written(case: Case, gpu: str = "h200") -> Part:
    return product.write(case.graph, case.group, Target(resolve(gpu), case.settings))


def mnk() -> tuple[Size, Size, Size]:
    """Rows of all operands begin at multiples of 16 bytes at the first size, and at no other."""
    return named("rows", (72, 33, 5)), named("columns", (56, 41, 66)), named("depth", (88, 65, 37))


def linear(dtype: str, **more: Any) -> Case:
    b, (m, n, k) = Build(dtype), mnk()
    y = b.matmul(b.input("x", m, k), b.permute(b.input("w", n, k), 1, 0), b.input("b", n))
    return b.case(residual(b, y, m, n), descriptors=True, **{**SMALL, **more})


def lying(left: bool, right: bool) -> Case:
    """Each operand with its own dimension contiguous, or with the summed one."""
    b, (m, n, k) = Build("bfloat16"), mnk()
    a = b.permute(b.input("a", k, m), 1, 0) if left else b.input("a", m, k)
    c = b.input("c", k, n) if right else b.permute(b.input("c", n, k), 1, 0)
    return b.case(b.matmul(a, c), descriptors=True, **SMALL)


def batched(right: bool) -> Case:
    b, (m, n, k) = Build("bfloat16"), mnk()
    z = named("heads", (3, 2, 1))
    c = b.input("c", z, k, n) if right else b.permute(b.input("c", z, n, k), 0, 2, 1)
    return b.case(b.point("relu", b.matmul(b.input("a", z, m, k), c)), descriptors=True, **SMALL)


def one_for_all() -> Case:
    b, (m, n, k) = Build("bfloat16"), mnk()
    z = named("heads", (3, 2, 1))
    y = b.matmul(b.input("a", z, m, k), b.permute(b.input("c", 1, n, k), 0, 2, 1))
    return b.case(y, descriptors=True, **SMALL)


def computed() -> Case:
    b, (m, n, k) = Build("bfloat16"), mnk()
    a = b.point("relu", b.input("a", m, k))
    return b.case(b.matmul(a, b.input("c", k, n)), descriptors=True, fold=True, **SMALL)


def apart() -> Case:
    """Rows that do not lie one behind the other, of matrices that do not either."""
    b, (m, n, k) = Build("bfloat16"), mnk()
    z = named("heads", (3, 2, 1))
    a = b.input("a", z, m, k, stride=(m * k * 3, k * 2, 1))
    return b.case(b.matmul(a, b.input("c", k, n)), descriptors=True, **SMALL)


BOTH = ("left", "right")
CASES: dict[str, tuple[Callable[[], Case], tuple[str, ...]]] = {
    "linear": (lambda: linear("bfloat16"), BOTH),
    "linear, float16": (lambda: linear("float16"), BOTH),
    "in parts": (lambda: linear("bfloat16", SPLIT_K=2), BOTH),
    "few rows": (lambda: linear("bfloat16", BLOCK_M=16, BLOCK_N=64), BOTH),
    "columns contiguous": (lambda: lying(False, True), BOTH),
    "rows contiguous": (lambda: lying(True, False), BOTH),
    "both contiguous": (lambda: lying(True, True), BOTH),
    "batched": (lambda: batched(False), BOTH),
    "batched, columns contiguous": (lambda: batched(True), ("left",)),
    "one matrix for all": (one_for_all, BOTH),
    "one is computed": (computed, ("right",)),
    "matrices apart": (apart, ("right",)),
}
"""What is multiplied, and which of its operands can be described."""


@pytest.mark.parametrize("name", CASES)
def test_right_at_every_size(name: str) -> None:
    make, sides = CASES[name]
    case = make()
    part = written(case)
    assert tuple(side for side in BOTH if f"{side}_tiles.load(" in part.kernels["fused_kernel"]) == sides
    for at in range(3):
        arguments = tensors(case, at)
        (ours,) = harness.run(case.graph, [part], arguments)
        (right,) = reference(case, arguments, at)
        scale = right.square().mean().sqrt()
        assert (ours.double() - right).abs().max() <= FLOORS[str(ours.dtype).removeprefix("torch.")] * scale


def test_what_lies_beyond_a_matrix_is_never_multiplied() -> None:
    """A block that sticks out of one matrix would reach into the next, whose values may be anything."""
    for right in (False, True):
        case = batched(right)
        a, c = tensors(case, 0)
        a[1], c[1] = float("nan"), float("inf")
        (ours,) = harness.run(case.graph, [written(case)], [a, c])
        assert ours[0].isfinite().all()
        assert ours[2].isfinite().all()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 9), st.integers(0, 9))
def test_the_host_describes_any_matrix(rows: int, columns: int, between: int, before: int) -> None:
    names: dict[str, Any] = {"torch": torch, "triton": triton, "TensorDescriptor": TensorDescriptor}
    exec(described.TEXT, names)
    memory = torch.arange(before + rows * (columns + between)).to(torch.float16)
    matrix = memory[before:].as_strided((rows, columns), (columns + between, 1))
    found = names["described"](matrix, [rows, columns], columns + between, [1, 8])
    again = found.base.as_strided((rows, columns), tuple(found.strides))
    assert torch.equal(again, matrix)
    aligned = (columns + between) % 8 == 0 and before % 8 == 0
    assert (found.base is matrix) == aligned  # copied only where it must be


def large(size: int, **more: Any) -> Case:
    b = Build("bfloat16")
    m, n, k = (named(name, (size, 64, 72)) for name in ("rows", "columns", "depth"))
    return b.case(b.matmul(b.input("x", m, k), b.permute(b.input("w", n, k), 1, 0)), **more)


@pytest.mark.parametrize(
    ("gpu", "size", "more", "there"),
    [
        ("h200", 4096, {}, True),
        ("h200", 512, {}, False),
        ("h200", 512, {"descriptors": True}, True),
        ("h200", 4096, {"descriptors": False}, False),
        ("a100", 4096, {}, False),
    ],
)
def test_only_where_it_pays_or_is_asked_for(gpu: str, size: int, more: dict[str, Any], there: bool) -> None:
    part = written(large(size, **more), gpu)
    assert ("described" in part.helpers) == there
    assert ("left_tiles.load(" in part.kernels["fused_kernel"]) == there


def test_the_file_passes_the_gate() -> None:
    case = linear("bfloat16")
    model = """class ModelNew(nn.Module):
    def forward(self, x, w, b, r):
        return forward(self, x, w, b, r)
"""
    text = f"{harness.source(case.graph, [written(case)])}\n\n{model}"
    assert not static.findings(text, LibraryCalls.FORBID).items


def test_compiles_for_hopper_without_spills(tmp_path: Path) -> None:
    case = large(4096)
    path = tmp_path / "written.py"
    path.write_text(harness.source(case.graph, [written(case)]))
    captured = offline.capture(module_of(path), lambda: [t.to("cuda") for t in tensors(case, 1)], "sm_90")
    (compiled,) = offline.compile_all(captured, "sm_90")
    assert compiled.spill_bytes == 0
    assert compiled.instructions is not None
    assert compiled.instructions.warp_group > 0
    assert compiled.instructions.global_loads == 0

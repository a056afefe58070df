"""The product pattern: every kind of product with every kind of tail, against fp64, at three sizes each.

A kernel is written at the first size and must be right at all of them. The limits are the judge's floors.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from egg.core.policy import LibraryCalls
from egg.evaluator import offline, static
from egg.expert.parts import Part, Terms, Unfit
from egg.expert.patterns.product import write as product
from egg.expert.sizes import named
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.expert.compiling import module_of
from tests.expert.product_cases import CASES, SMALL, Build, Case, linear, plain, reference, tensors, vector
from tests.ledgers import COMPILED, INTERPRETED

FLOORS = {
    "fp32": (1.5e-5, 1.9e-6),
    "tf32": (3.9e-3, 4.9e-4),
    "float16": (3.9e-3, 4.9e-4),
    "bfloat16": (3.1e-2, 3.9e-3),
}
"""Of the largest error and the mean square one, relative to the result's mean square."""


def written(case: Case) -> Part:
    return product.write(case.graph, case.group, Terms(resolve("h200"), case.settings))


@pytest.mark.parametrize("name", CASES)
def test_right_at_every_size(name: str) -> None:
    case = CASES[name]()
    part = written(case)
    dtype = case.graph.value(str(case.graph.arguments[0])).dtype
    most, mean = FLOORS[
        "tf32" if case.settings.get("grade") == "tf32" else dtype if dtype in FLOORS else "fp32"
    ]

    def compare() -> None:
        for at in range(3):
            arguments = tensors(case, at)
            results = harness.run(case.graph, [part], arguments)
            for ours, right in zip(results, reference(case, arguments, at), strict=True):
                assert ours.shape == right.shape
                assert ours.dtype == arguments[0].dtype
                off, scale = (ours.double() - right).abs(), right.square().mean().sqrt()
                assert off.max() <= most * scale
                assert off.square().mean().sqrt() <= mean * scale

    INTERPRETED.once(compare, harness.source(case.graph, [part]))


def test_rows_of_any_range_keep_their_digits_when_packed() -> None:
    case = plain(packing=True)
    a, c = tensors(case, 0)
    a = a * 10.0 ** torch.arange(-12, 12).repeat(3)[: a.shape[0], None]
    (ours,) = harness.run(case.graph, [written(case)], [a, c])
    right = a.double() @ c.double()
    assert ((ours.double() - right).norm(dim=1) / right.norm(dim=1)).max() < 1e-6


@pytest.mark.parametrize("apart", [True, False])
def test_small_products_of_halves_may_have_a_sum_of_their_own(apart: bool) -> None:
    case = plain(packing=True, apart=apart)
    part = written(case)
    assert ("small = tl.dot(" in part.kernels["fused_kernel"]) == apart
    a, c = tensors(case, 0)
    a, c = a.abs(), c.abs()  # nothing cancels: what is cut off adds up
    (ours,) = harness.run(case.graph, [part], [a, c])
    right = a.double() @ c.double()
    assert ((ours.double() - right).norm() / right.norm()) < 1e-6


def test_two_results_of_one_tile() -> None:
    case = linear(lambda b, y, m, n: b.point("relu", y))
    first = case.group.nodes[1].output
    both = Case(
        type(case.graph)(
            case.graph.values, case.graph.nodes, case.graph.arguments, (first, *case.graph.results), "tuple",
            case.graph.symbols,
        ),
        case.group,
        case.settings,
    )  # fmt: skip
    arguments = tensors(both, 0)
    for ours, right in zip(
        harness.run(both.graph, [written(both)], arguments), reference(both, arguments, 0), strict=True
    ):
        torch.testing.assert_close(ours.double(), right, rtol=1e-4, atol=1e-4)


def test_unfit_says_why() -> None:
    case = linear(lambda b, y, m, n: b.reduce("sum", y, 0))
    with pytest.raises(Unfit, match="across rows"):
        written(case)


def test_settings_become_constants_named_after_the_group() -> None:
    part = written(plain(packing=True, BLOCK_M=64))
    assert {c.name: c.value for c in part.constants}["FUSED_BLOCK_M"] == 64
    assert sum(bool(c.choices) for c in part.constants) <= 3


def test_forward_is_one_line_and_the_host_function_passes_the_gate() -> None:
    case = linear(lambda b, y, m, n: b.point("relu", y), packing=True)
    part = written(case)
    assert part.call == ("relu_2 = fused(x, w, b)",)
    assert part.sizes == ()
    assert "batch_size, in_features = x.shape" in part.helpers["fused"]
    model = """class ModelNew(nn.Module):
    def forward(self, x, w, b):
        return forward(self, x, w, b)
"""
    text = f"{harness.source(case.graph, [part])}\n\n{model}"
    assert not static.findings(text, LibraryCalls.FORBID).items


def test_a_short_sum_with_much_to_store_leaves_room_for_two_programs() -> None:
    b = Build()
    m, n, k = named("m", (32768, 40, 33)), named("n", (32768, 50, 21)), named("k", (32, 20, 9))
    case = b.case(b.matmul(b.input("a", m, k), b.input("c", k, n)))
    part = written(case)
    assert {c.name: c.value for c in part.constants}["FUSED_NUM_STAGES"] == 1
    assert "for k_start in range(0, padded, BLOCK_K):" in part.kernels["fused_kernel"]


def test_a_long_sum_of_few_rows_is_split_in_registers() -> None:
    b = Build()
    m, n, k = named("m", (256, 40, 33)), named("n", (256, 50, 21)), named("k", (524288, 2000, 900))
    part = written(b.case(b.matmul(b.input("a", m, k), b.input("c", k, n))))
    assert set(part.kernels) == {"fused_kernel", "fused_join"}
    assert "fp16_halves" in part.helpers


def test_a_vector_needs_no_tensor_core() -> None:
    part = written(vector(None, 1))
    assert "tl.dot" not in "".join(part.kernels.values())


@pytest.mark.parametrize(
    "name",
    [
        "linear, residual, packed",
        "group norm, packed",
        "left turned",
        "matrix by vector",
        "row by column of a batch, in parts",
    ],
)
def test_compiles_for_hopper_without_spills(name: str, tmp_path: Path) -> None:
    """With the tiles of a large problem: registers and instructions follow from those, not from sizes."""
    case = CASES[name]()
    tiles = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64 if "packed" in name else 32, "NUM_WARPS": 8}
    settings = {key: value for key, value in case.settings.items() if key not in SMALL}
    tensor_cores = "vector" not in name and "column" not in name
    settings |= tiles if tensor_cores else {}
    part = written(Case(case.graph, case.group, settings))
    path = tmp_path / "written.py"
    path.write_text(harness.source(case.graph, [part]))

    def compile_all() -> None:
        captured = offline.capture(module_of(path), lambda: [t.to("cuda") for t in tensors(case, 0)], "sm_90")
        compiled = {kernel.name: kernel for kernel in offline.compile_all(captured, "sm_90")}
        assert all(kernel.spill_bytes == 0 for kernel in compiled.values())
        main = compiled["fused_kernel"].instructions
        assert main is not None
        assert not tensor_cores or main.warp_group > 0

    COMPILED.once(compile_all, path.read_text(), tensor_cores)

"""The structure contract: read from real kernel files, and every way to break it named."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from egg.core.evaluation import Accepted, Evaluation, Provenance
from egg.core.source import Candidate
from egg.core.step import Contract, Kernel
from egg.engine.contract import Entry, breaches, entries, make_contract, static_breaches
from egg.engine.scoring import score
from tests import samples

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    p
    for folder in ("examples/*/*.py", "benchmarks/judge/cases/*/kernel.py", "tests/corpus/honest/*.py")
    for p in ROOT.glob(folder)
    if "class ModelNew" in p.read_text()
)


def evaluation(kernels: dict[str, int], library: dict[str, int] | None = None) -> Evaluation:
    found = samples.measured()
    assert isinstance(found.verdict, Accepted)
    verdict = dataclasses.replace(found.verdict, provenance=Provenance(kernels, library or {}, 0.99))
    return dataclasses.replace(found, verdict=verdict)


def contract_of(source: str, kernels: dict[str, int], library: dict[str, int] | None = None) -> Contract:
    judged = evaluation(kernels, library)
    speed = score(judged, None)
    assert speed is not None
    return make_contract(Kernel(Candidate(source), judged, speed))


def read(path: str) -> str:
    return (ROOT / path).read_text()


SOFTMAX = read("examples/row_softmax/fused.py")
NORM = read("benchmarks/judge/cases/batch_norm_training/kernel.py")
SCAN = read("benchmarks/judge/cases/cumulative_sum/kernel.py")
NORM_RUNS = {"partial_statistics": 1, "combine_statistics": 1, "normalise": 1}

SECOND_KERNEL = '''

@triton.jit
def row_max(x_ptr, m_ptr, columns, BLOCK: tl.constexpr):
    """The largest of each row."""
    c = tl.arange(0, BLOCK)
    v = tl.load(x_ptr + tl.program_id(0) * columns + c, mask=c < columns, other=float("-inf"))
    tl.store(m_ptr + tl.program_id(0), tl.max(v, axis=0))


def launch(x, m):
    row_max[(x.shape[0],)](x, m, x.shape[1], BLOCK=1024)
'''


# -- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("examples/row_softmax/fused.py", {"softmax_rows": ("reduce",)}),
        ("examples/linear_gelu_residual/fused.py", {"linear_gelu_residual": ("dot",)}),
        ("benchmarks/judge/cases/cumulative_sum/kernel.py", {"running_total": ("reduce", "scan")}),
        (
            "benchmarks/judge/cases/batch_norm_training/kernel.py",
            {"partial_statistics": ("reduce",), "combine_statistics": ("reduce",), "normalise": ()},
        ),
        ("benchmarks/judge/cases/causal_attention_fp16/kernel.py", {"causal_attention": ("dot", "reduce")}),
        ("benchmarks/judge/cases/matmul_tf32/kernel.py", {"round_to_tf32": (), "matmul_nt": ("dot",)}),
        ("benchmarks/judge/cases/row_argmax/kernel.py", {"row_argmax": ("reduce",)}),
        ("tests/corpus/honest/autotuned.py", {"linear_gelu": ("dot",)}),
        ("tests/corpus/honest/heuristics_and_helpers.py", {"softmax_rows": ("reduce",)}),
        ("tests/corpus/honest/matmul_split_k.py", {"matmul": ("dot", "atomic")}),
    ],
)
def test_kernels_and_their_building_blocks(path: str, expected: dict[str, tuple[str, ...]]) -> None:
    found = entries(read(path))
    assert found is not None
    assert {e.name: e.building_blocks for e in found} == expected


@pytest.mark.parametrize("path", FILES, ids=lambda p: "/".join(p.parts[-2:]))
def test_a_file_keeps_its_own_contract(path: Path) -> None:
    source = path.read_text()
    found = entries(source)
    assert found
    runs = {e.name: 1 for e in found}
    contract = contract_of(source, runs)
    assert static_breaches(contract, source) == ()
    assert breaches(contract, source, evaluation(runs)) == ()


HEADER = "import triton\nimport triton.language as tl\n"


def blocks_of(body: str, header: str = HEADER) -> dict[str, tuple[str, ...]]:
    found = entries(header + body)
    assert found is not None
    return {e.name: e.building_blocks for e in found}


def test_helpers_give_their_building_blocks_to_whoever_calls_them() -> None:
    body = """
@triton.jit
def add(a, b):
    return a + b
@triton.jit
def inner(x):
    return tl.associative_scan(x, 0, add)
@triton.jit
def outer(x):
    return inner(x) + inner(x)
@triton.jit
def entry(p):
    tl.atomic_add(p, outer(tl.load(p)))
@triton.jit
def other(p):
    tl.store(p, tl.rand(0, 1))
def run(p):
    entry[(1,)](p)
    other[(1,)](p)
"""
    assert blocks_of(body) == {"entry": ("scan", "atomic"), "other": ("random",)}


def test_a_combine_function_counts() -> None:
    body = """
@triton.jit
def combine(a, b):
    return tl.dot(a, b)
chosen = combine
@triton.jit
def k(p):
    tl.reduce(tl.load(p), 0, chosen)
run = k[(1,)]
"""
    assert blocks_of(body) == {"k": ("dot", "reduce")}


def test_methods_of_tensors_count_and_pythons_own_functions_do_not() -> None:
    body = """
@triton.jit
def methods(p, n):
    x = tl.load(p)
    tl.store(p, x.sum(axis=0) + x.cumsum(axis=0))
@triton.jit
def plain(p, n):
    tl.store(p, max(n, 1) + tl.maximum(n, 2) + tl.minimum(n, 3))
methods[(1,)](0, 1)
plain[(1,)](0, 1)
"""
    assert blocks_of(body) == {"methods": ("reduce", "scan"), "plain": ()}


def test_names_of_the_language_do_not_matter() -> None:
    body = "@jit\ndef k(p):\n    store(p, summed(L.dot(load(p), load(p)), 0))\nk[(1,)](0)\n"
    header = "from triton import jit, language as L\nfrom triton.language import load, store, sum as summed\n"
    assert blocks_of(body, header) == {"k": ("dot", "reduce")}


def test_kernels_launched_under_another_name_are_found() -> None:
    body = """
def plain(p):
    tl.store(p, 1)
made = triton.jit(plain)
@triton.jit
def one(p):
    tl.store(p, 1)
@triton.jit
def two(p):
    tl.store(p, 2)
@triton.jit
def unused(p):
    tl.store(p, 3)
def run(p, fast):
    kernel = one if fast else two
    kernel[(1,)](p)
    made[(1,)](p)
second_name = third
third_name = second_name
class Holder:
    kernel = fourth
def run_more(p, holder):
    third_name[(1,)](p)
    holder.kernel[(1,)](p)
"""
    more = "".join(f"@triton.jit\ndef {name}(p):\n    tl.store(p, 1)\n" for name in ("third", "fourth"))
    assert set(blocks_of(more + body)) == {"plain", "one", "two", "third", "fourth"}


def test_the_purpose_is_the_first_line_of_the_docstring() -> None:
    found = entries(SOFTMAX + SECOND_KERNEL)
    assert found is not None
    assert found[1] == Entry("row_max", ("reduce",), "The largest of each row.")


# -- keeping -------------------------------------------------------------------------------------


def test_the_contract_says_what_ran() -> None:
    contract = contract_of(NORM, NORM_RUNS | {"normalise": 2}, {"addmm": 1})
    assert [(k.name, k.launches) for k in contract.kernels] == [
        ("partial_statistics", 1),
        ("combine_statistics", 1),
        ("normalise", 2),
    ]
    assert contract.library_ops == {"addmm": 1}


def test_a_kernel_added() -> None:
    contract = contract_of(SOFTMAX, {"softmax_rows": 1})
    expected = "kernel `row_max` was added: the structure is fixed to softmax_rows x1"
    source = SOFTMAX + SECOND_KERNEL
    assert static_breaches(contract, source) == (expected,)
    assert breaches(contract, source, evaluation({"softmax_rows": 1, "row_max": 1})) == (expected,)


def test_a_kernel_removed() -> None:
    contract = contract_of(SOFTMAX + SECOND_KERNEL, {"softmax_rows": 1, "row_max": 1})
    (breach,) = breaches(contract, SOFTMAX, evaluation({"softmax_rows": 1}))
    assert breach == "kernel `row_max` was removed: the structure is fixed to softmax_rows x1, row_max x1"


def test_a_rename_is_called_one() -> None:
    contract = contract_of(NORM, NORM_RUNS)
    source = NORM.replace("combine_statistics", "merge_statistics")
    runs = {"partial_statistics": 1, "merge_statistics": 1, "normalise": 1}
    (breach,) = breaches(contract, source, evaluation(runs))
    assert breach.startswith("kernel `combine_statistics` was renamed to `merge_statistics`:")


def test_another_algorithm_under_a_new_name_is_no_rename() -> None:
    contract = contract_of(SCAN, {"running_total": 1})
    source = SCAN.replace("running_total", "total").replace("tl.cumsum(v, axis=0)", "v")
    assert {b.split(":")[0] for b in static_breaches(contract, source)} == {
        "kernel `total` was added",
        "kernel `running_total` was removed",
    }


def test_a_building_block_that_is_the_algorithm_may_not_go_or_come() -> None:
    without = SCAN.replace("tl.cumsum(v, axis=0)", "v")
    (gone,) = static_breaches(contract_of(SCAN, {"running_total": 1}), without)
    assert gone == "kernel `running_total` no longer uses a scan, which its algorithm is made of"
    (come,) = static_breaches(contract_of(without, {"running_total": 1}), SCAN)
    assert come == "kernel `running_total` now uses a scan, which the structure does not have there"


def test_a_product_that_comes_in_through_a_helper_is_seen() -> None:
    helper = "@triton.jit\ndef square(v):\n    return tl.sum(tl.dot(v, v), 1)\n\n\n@triton.jit\ndef softmax"
    source = SOFTMAX.replace("@triton.jit\ndef softmax", helper).replace("tl.sum(", "square(", 2)
    source = source.replace("return square(", "return tl.sum(")
    (breach,) = static_breaches(contract_of(SOFTMAX, {"softmax_rows": 1}), source)
    assert "`softmax_rows` now uses a matrix product (dot)" in breach


def test_reductions_and_atomics_are_a_matter_of_tuning() -> None:
    contract = contract_of(SOFTMAX, {"softmax_rows": 1})
    line = "    tl.store(y_ptr"
    source = SOFTMAX.replace(line, f"    tl.atomic_add(y_ptr, 0.0)\n{line}", 1)
    assert "atomic_add" in source
    assert static_breaches(contract, source) == ()


def test_launch_counts_are_fixed() -> None:
    contract = contract_of(NORM, NORM_RUNS)
    (breach,) = breaches(contract, NORM, evaluation(NORM_RUNS | {"combine_statistics": 4}))
    assert breach.startswith("kernel `combine_statistics` was launched 4 times instead of once:")
    (breach,) = breaches(contract, NORM, evaluation({"partial_statistics": 1, "normalise": 1}))
    assert breach.startswith("kernel `combine_statistics` was launched never instead of once:")


def test_a_kernel_that_ran_without_standing_in_the_source_is_new() -> None:
    contract = contract_of(SOFTMAX, {"softmax_rows": 1})
    (breach,) = breaches(contract, SOFTMAX, evaluation({"softmax_rows": 1, "ghost": 2}))
    assert breach.startswith("kernel `ghost`, launched 2 times, is new:")


def test_what_libraries_do_is_fixed() -> None:
    contract = contract_of(SOFTMAX, {"softmax_rows": 1}, {"addmm": 1, "relu": 2})
    ran = {"softmax_rows": 1}
    assert breaches(contract, SOFTMAX, evaluation(ran, {"addmm": 1, "relu": 2})) == ()
    found = breaches(contract, SOFTMAX, evaluation(ran, {"addmm": 3, "gelu": 1}))
    assert found == (
        "library operation `addmm` runs 3 times instead of once",
        "library operation `gelu` was added: the structure leaves `addmm`, `relu` to libraries",
        "library operation `relu` was removed: the structure has it x2",
    )


def test_a_variant_that_is_not_launched_may_be_cleared_away_but_not_used() -> None:
    both = SOFTMAX + SECOND_KERNEL
    contract = contract_of(both, {"softmax_rows": 1})
    assert breaches(contract, SOFTMAX, evaluation({"softmax_rows": 1})) == ()
    assert breaches(contract, both, evaluation({"softmax_rows": 1})) == ()
    (breach,) = breaches(contract, both, evaluation({"softmax_rows": 1, "row_max": 1}))
    assert breach.startswith("kernel `row_max` was launched once instead of never:")


def test_a_kernel_the_source_does_not_show_is_left_to_the_judge() -> None:
    contract = contract_of(SOFTMAX, {"softmax_rows": 1, "borrowed": 1})
    assert static_breaches(contract, SOFTMAX) == ()
    assert breaches(contract, SOFTMAX, evaluation({"softmax_rows": 1, "borrowed": 1})) == ()
    (breach,) = breaches(contract, SOFTMAX, evaluation({"softmax_rows": 1}))
    assert "`borrowed` was launched never" in breach


@pytest.mark.parametrize("text", ["def f(:", "x = 1\0", "(" * 5000, "-" * 200_000 + "1"])
def test_a_file_that_is_no_python_is_left_to_the_judge(text: str) -> None:
    contract = contract_of(SOFTMAX, {"softmax_rows": 1})
    assert static_breaches(contract, text) == ()
    assert breaches(contract, text, samples.rejected()) == ()


def test_after_a_refusal_only_the_source_speaks() -> None:
    contract = contract_of(SOFTMAX, {"softmax_rows": 1})
    assert breaches(contract, SOFTMAX, samples.rejected()) == ()
    assert len(breaches(contract, SOFTMAX + SECOND_KERNEL, samples.rejected())) == 1


def test_no_contract_without_an_accepted_kernel() -> None:
    refused = samples.rejected()
    speed = score(samples.measured(), None)
    assert speed is not None
    with pytest.raises(ValueError, match="accepted"):
        make_contract(Kernel(Candidate(SOFTMAX), refused, speed))

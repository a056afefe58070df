"""No repetition: equal programs are recognised in other clothes, different ones never taken for equal."""

# Kernels are not typed Python: constexpr parameters take plain values, launches take options.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportIndexIssue=false

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from egg.core.evaluation import Accepted, Compiled, Evaluation
from egg.core.plan import Plan, Prediction
from egg.core.resources import KernelResources
from egg.core.stage import Category, Metric, Stage
from egg.core.step import Decision, Step
from egg.engine.likeness import compiled_key, program_key, repeats, same_plan
from egg.evaluator.offline import capture, compile_all
from tests import samples

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*ROOT.glob("examples/*/*.py"), *ROOT.glob("benchmarks/judge/cases/*/*.py")])

KERNEL = '''
"""Softmax of rows."""
import torch
import triton
import triton.language as tl
from torch import nn

BLOCK, NUM_WARPS = 1024, 4


@triton.jit
def softmax_rows(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    """One row per program."""
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    inside = c < columns
    v = tl.load(x_ptr + row * columns + c, mask=inside, other=float("-inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(y_ptr + row * columns + c, e / tl.sum(e, axis=0), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        y = torch.empty_like(x)
        grid = lambda meta: (rows,)
        softmax_rows[grid](x, y, columns, BLOCK=BLOCK, num_warps=NUM_WARPS)
        return y
'''


def edited(*changes: tuple[str, str]) -> str:
    source = KERNEL
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    return source


SAME = {
    "comments": [("    row = tl", "    # which row\n    row = tl")],
    "layout": [("rows, columns = x.shape", "(rows,\n         columns) = x.shape\n")],
    "docstrings": [('"""Softmax of rows."""', ""), ('"""One row per program."""', '"""Another text."""')],
    "locals of a kernel": [("inside", "mask"), ("c = tl", "at = tl"), (" c ", " at "), ("+ c,", "+ at,")],
    "locals of the host": [("rows", "height"), ("softmax_height", "softmax_rows")],
    "a lambda's argument": [("lambda meta:", "lambda META:")],
    "annotations": [("x: torch.Tensor) -> torch.Tensor", "x)"), ("y = torch", "y: torch.Tensor = torch")],
    "spelling of constexpr": [("BLOCK: tl.constexpr", 'BLOCK: "tl.constexpr"')],
    "order of imports": [("import torch\nimport triton\n", "import triton\nimport torch\n")],
    "an unused import": [("import torch\n", "import math\nimport torch\n")],
    "another alias": [("import triton.language as tl", "from triton import language as L"), ("tl.", "L.")],
    "the whole path": [("import triton.language as tl\n", ""), ("tl.", "triton.language.")],
    "numerals": [("BLOCK, NUM_WARPS = 1024, 4", "BLOCK, NUM_WARPS = 0x400, 4")],
    "quotes": [('float("-inf")', "float('-inf')")],
    "pass": [("        return y", "        pass\n        return y")],
}

DIFFERENT = {
    "a constant": [("1024, 4", "2048, 4")],
    "the type of a constant": [("axis=0))", "axis=0.0))")],
    "an operator": [("c < columns", "c <= columns")],
    "a function": [("tl.max(v", "tl.min(v")],
    "a keyword": [(", axis=0), mask=inside)", ", axis=0))")],
    "constexpr or not": [("BLOCK: tl.constexpr", "BLOCK")],
    "a forced argument type": [("columns, BLOCK:", "columns: tl.int64, BLOCK:")],
    "which local is used": [("tl.exp(v - tl.max(v", "tl.exp(v - tl.max(c")],
    "which import is meant": [("import triton.language as tl", "import triton.experimental.gluon as tl")],
    "order of arguments": [("softmax_rows[grid](x, y,", "softmax_rows[grid](y, x,")],
    "a name that callers use": [("x_ptr", "in_ptr")],
    "the kernel's name": [("softmax_rows", "softmax_kernel")],
    "a string": [('"-inf"', '"inf"')],
    "a decorator": [("@triton.jit", "@triton.jit(do_not_specialize=['columns'])")],
    "two locals become one": [("e = tl", "v = tl"), ("e / tl.sum(e", "v / tl.sum(v")],
}


@pytest.mark.parametrize("changes", SAME.values(), ids=SAME)
def test_what_cannot_matter_does_not(changes: list[tuple[str, str]]) -> None:
    assert program_key(edited(*changes)) == program_key(KERNEL)


@pytest.mark.parametrize("changes", DIFFERENT.values(), ids=DIFFERENT)
def test_what_may_matter_does(changes: list[tuple[str, str]]) -> None:
    assert program_key(edited(*changes)) != program_key(KERNEL)


def test_bundled_kernels_are_all_different_and_survive_reformatting() -> None:
    keys = {}
    for path in FILES:
        source = path.read_text()
        keys[path] = program_key(source)
        assert program_key(ast.unparse(ast.parse(source))) == keys[path], path
        assert program_key("\n\n# added\n" + source + "\n\n") == keys[path], path
    assert len(FILES) > 40
    assert len(set(keys.values())) == len(FILES)


@pytest.mark.parametrize("path", FILES[::4], ids=lambda p: "/".join(p.parts[-2:]))
def test_every_changed_number_changes_the_key(path: Path) -> None:
    source = path.read_text()
    tree = ast.parse(source)
    key = program_key(source)
    numbers = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and type(n.value) in (int, float)]
    for number in numbers[:25]:
        was = number.value
        assert isinstance(was, int | float)
        number.value = 2 * was + 1
        assert program_key(ast.unparse(tree)) != key, was
        number.value = was


def test_names_that_hide_one_another_are_not_mixed_up() -> None:
    closure = "def f(x):\n    a = x\n    b = 2\n    def g():\n        return {}\n    return g() + a + b\n"
    assert program_key(closure.format("a")) != program_key(closure.format("b"))
    handler = "def f():\n    {0} = 1\n    try:\n        f()\n    except OSError as e:\n        print({0})\n"
    assert program_key(handler.format("e")) != program_key(handler.format("x"))
    inner = "def f(x):\n    a = 1\n    return [{0} for b in x] + [a]\n"
    assert program_key(inner.format("a")) != program_key(inner.format("b"))
    shared = "n = 1\ndef f():\n    {}n = 2\n    return n\n"
    assert program_key(shared.format("global n; ")) != program_key(shared.format(""))


def test_a_field_keeps_its_annotation() -> None:
    field = "class A:\n    x: {} = 1\n"
    assert program_key(field.format("int")) != program_key(field.format("float"))


@pytest.mark.parametrize(
    "text", ["def f(:", "", "x = 1\0", "(" * 5000, "-" * 200_000 + "1", "\ud800 = 1", "```python"]
)
def test_any_text_has_a_key(text: str) -> None:
    assert re.fullmatch("[0-9a-f]{16}", program_key(text))


@given(st.text(max_size=200))
def test_the_key_of_any_text_is_stable(text: str) -> None:
    assert program_key(text) == program_key(text)


# -- plans ---------------------------------------------------------------------------------------

PREDICTION = Prediction(1.3, Metric.TIME, "fewer waves")


def plan(change: str, category: Category = Category.TILE_SHAPE, skill: str | None = None) -> Plan:
    return Plan(category, "the last wave is half empty", change, PREDICTION, skill)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Raise the tile from 64 to 128 rows", "raise tiles from 64 to 128 rows."),
        ("Set BLOCK_M = 128, num_warps = 8", "set `BLOCK_M` = 128 and `num_warps` = 8"),
        ("Load rows once and keep them in registers", "rows: load once, and keep these in registers"),
        (
            "Split the K loop into 4 parts and accumulate partial sums with atomics in fp32",
            "Split the K loop into 4 parts and accumulate partial sums with atomics in fp32 scratch",
        ),
    ],
)
def test_the_same_change_in_other_words(one: str, other: str) -> None:
    assert same_plan(plan(one), plan(other))
    assert same_plan(plan(other), plan(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Raise the tile to 64 rows", "Raise the tile to 128 rows"),
        ("Go from 64 to 128", "Go from 128 to 64"),
        ("Set BLOCK_M = 128", "Set BLOCK_N = 128"),
        ("Mark loads of x as evict_first", "Mark loads of x as evict_last"),
        ("Map programs to rows of the output", "Map programs to columns of the output"),
        ("Keep the row in registers", "Do not keep the row in registers"),
        (
            "Walk the tiles of the output along rows to reuse the weights that stay in cache",
            "Walk the tiles of the output along columns to reuse the weights that stay in cache",
        ),
        ("Transpose", ""),
    ],
)
def test_another_change_in_similar_words(one: str, other: str) -> None:
    assert not same_plan(plan(one), plan(other))
    assert not same_plan(plan(other), plan(one))


def test_category_and_skill_are_part_of_a_plan() -> None:
    a = plan("Use 8 warps", Category.WARP_COUNT, "more-warps")
    assert not same_plan(a, plan("Use 8 warps", Category.WORK_PER_PROGRAM, "more-warps"))
    assert not same_plan(a, plan("Use 8 warps", Category.WARP_COUNT, None))
    assert same_plan(
        a, dataclasses.replace(a, bottleneck="another", prediction=Prediction(2, Metric.SPILLS, ""))
    )


@given(st.text(max_size=80), st.text(max_size=80))
def test_likeness_of_plans_is_symmetric_and_reflexive(one: str, other: str) -> None:
    assert same_plan(plan(one), plan(one))
    assert same_plan(plan(one), plan(other)) == same_plan(plan(other), plan(one))


def step(number: int, of: Plan | None, base: str | None, decision: Decision) -> Step:
    return Step(number, Stage.TILING, base, of, (), decision, "a reason")


def test_a_plan_repeats_what_failed_on_the_same_base_only() -> None:
    wanted = plan("Raise the tile to 128 rows")
    again = plan("raise tile to 128 rows")
    steps = (
        step(1, None, "base", Decision.PASSED),
        step(2, again, "older base", Decision.NOT_BETTER),
        step(3, again, "base", Decision.PROMOTED),
        step(4, plan("Raise the tile to 64 rows"), "base", Decision.FAILED),
        step(5, again, "base", Decision.FAILED),
        step(6, again, "base", Decision.NOT_BETTER),
    )
    found = repeats(wanted, steps, "base")
    assert found is not None
    assert found.number == 5
    assert repeats(wanted, steps, "new base") is None
    assert repeats(wanted, steps[:4], "base") is None
    assert repeats(wanted, steps, None) is None
    assert repeats(wanted, (), "base") is None


# -- compiled code -------------------------------------------------------------------------------


def compiled(*kernels: KernelResources, library: dict[str, int] | None = None) -> Evaluation:
    evaluation = samples.compiled()
    assert isinstance(evaluation.verdict, Accepted)
    provenance = dataclasses.replace(evaluation.verdict.provenance, library_ops=library or {})
    performance = Compiled("sm_90", kernels, 0.028, "full")
    verdict = dataclasses.replace(evaluation.verdict, provenance=provenance, performance=performance)
    return dataclasses.replace(evaluation, verdict=verdict)


ONE = KernelResources("one", (16384, 1, 1), 34, 0, 16, 4, 3, 0, 128, code="aaaa")
TWO = KernelResources("two", (32, 16, 1), 255, 440, 65536, 8, 3, 192, 128, launches=2, code="bbbb")


def test_compiled_programs_are_told_apart_by_code_launch_and_library() -> None:
    key = compiled_key(compiled(ONE, TWO))
    assert key is not None
    assert compiled_key(compiled(TWO, dataclasses.replace(ONE, name="renamed"))) == key
    for other in (
        compiled(dataclasses.replace(ONE, code="cccc"), TWO),
        compiled(dataclasses.replace(ONE, grid=(8192, 1, 1)), TWO),
        compiled(dataclasses.replace(ONE, launches=2), TWO),
        compiled(dataclasses.replace(ONE, num_warps=8), TWO),
        compiled(ONE, TWO, library={"addmm": 1}),
        compiled(ONE),
    ):
        assert compiled_key(other) not in (key, None)


def test_no_key_without_all_the_code() -> None:
    assert compiled_key(compiled(ONE, dataclasses.replace(TWO, code=""))) is None
    assert compiled_key(compiled()) is None
    assert compiled_key(samples.measured()) is None
    assert compiled_key(samples.rejected()) is None


@triton.jit
def scale(x, y, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(y + offsets, tl.load(x + offsets, mask=inside) * factor, mask=inside)


@triton.jit
def scale_in_other_words(source, target, size, by, BLOCK: tl.constexpr):
    # The same kernel, on other lines, its mask written twice.
    start = tl.program_id(axis=0) * BLOCK
    place = start + tl.arange(0, BLOCK)
    goal = target + place
    value = tl.load(source + place, mask=place < size)
    tl.store(goal, value * by, mask=place < size)


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_the_compiler_sees_through_rewriting(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")

    def resources(kernel, block: int, factor: float = 2.0) -> KernelResources:
        class Scale(nn.Module):
            def forward(self, x):
                y = torch.empty_like(x)
                kernel[(4096,)](x, y, x.numel(), factor, BLOCK=block)
                return y

        captured = capture(Scale, lambda: [torch.empty(4096 * 512, device="cuda")], target)
        (row,) = compile_all(captured, target)
        return row

    plain = resources(scale, 512)
    assert re.fullmatch("[0-9a-f]{16}", plain.code)
    assert resources(scale_in_other_words, 512).code == plain.code
    assert resources(scale, 1024).code != plain.code

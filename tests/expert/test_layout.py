"""Lines are broken as a formatter would break them: ruff finds nothing left to change."""

# ruff: noqa: E501 (lines that are too long are what this is about)

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from egg.expert.writing.imports import sorted_imports
from egg.expert.writing.layout import LIMIT, laid_out

STATEMENTS = [
    'raise outside(f"positions is {positions}", f"{height_by_patch * width_by_patch + 1}, height_by_patch * width + 1")',
    "x = tl.load(x_ptr + row[:, None] * stride_m + (offset_k[None, :] // width) * stride_k, "
    "mask=inside[:, None] & valid[None, :], other=0.0).to(tl.float32)",
    "y = tl.load(x_ptr + row[:, None] * stride_m + (offset_k[None, :] // width) * stride_k + other * factor "
    "+ another_term_here * factor, mask=m)",
    "offset = (x0 // (channels * height * width)) * stride_batch + ((x0 // (height * width)) % channels) * stride_c"
    " + x0 % width",
    "mask = (row_index[:, None] < number_of_rows) & (column_index[None, :] < number_of_columns) & (other > 0)",
    "value = first_quantity_with_long_name * tl.exp(second_quantity_with_long_name - third_quantity_with_long_name)",
    "value = tl.where(quantity_with_long_name > 0, quantity_with_long_name, quantity_with_long_name * slope_ab) + b",
    "inside = (column_index_with_a_name[None, :] * tile_width + tile_offset_x < number_of_columns_in_total_) & mm",
    "out = torch.empty((batch_size, channels, height, width), dtype=torch.float32, device=input_with_long_name.device)",
    "kernel_name[(triton.cdiv(batch_size * channels, BLOCK_M),)](x, self.fc.weight, self.fc.bias, out, batch_size, "
    "channels, BLOCK_M=LINEAR_BLOCK_M, num_warps=LINEAR_NUM_WARPS)",
    "kernel_name_that_is_long[(triton.cdiv(batch_size * channels, BLOCK_M), triton.cdiv(columns, LINEAR_BLOCK_N))]"
    "(x, self.fc.weight, self.fc.bias)",
    "grid = (triton.cdiv(batch_size * channels, LINEAR_GELU_BLOCK_M) * triton.cdiv(columns, LINEAR_GELU_BLOCK_NN),)",
    "total = xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx - yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
    "tl.static_assert(some_condition_with_a_long_name and another_condition_with_a_long_name and the_third_one_ab)",
    "acc += tl.dot(a_tile_with_long_name, b_tile_with_long_name, input_precision='tf32', out_dtype=tl.float32)".replace(
        "'", '"'
    ),
    "table = {'first_name_of_a_row': (1, 2, 4, 8), 'second_name_of_a_row': (16, 32, 64, 128), 'third': (1, 2)}".replace(
        "'", '"'
    ),
    "padded = nn.functional.pad(value_with_a_long_name, (before, after, before_the_second, after_the_second), value=0.5)",
]


def formatted(text: str, folder: Path) -> str:
    """What ruff makes of it."""
    path = folder / "text.py"
    path.write_text(text)
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", str(LIMIT), str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return path.read_text()


def test_long_statements_are_broken_as_ruff_would(tmp_path: Path) -> None:
    head = "def function(" + ", ".join(f"argument_number_{n}: tl.constexpr" for n in range(5)) + "):"
    body = "\n".join(
        [
            head,
            '    """Told."""',
            *(f"    {s}" for s in STATEMENTS),
            "    if some_condition_with_long_name and another_condition_with_long_name and third_one_with_long_name:",
            "        return first_quantity_with_long_name, second_quantity_with_long_name, third_quantity_with_name",
            "    elif another_condition_with_long_name or some_condition_with_long_name or the_third_condition_ab:",
            "        pass  # and so on",
            "    return None",
        ]
    )
    text = "\n".join(laid_out(body)) + "\n"
    assert formatted(text, tmp_path) == text
    assert max(map(len, text.split("\n"))) <= LIMIT
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(body))


@pytest.mark.parametrize("statement", STATEMENTS)
def test_what_is_broken_means_the_same(statement: str) -> None:
    lines = laid_out(statement, 8)
    assert len(lines) > 1
    assert all(line.startswith(" " * 8) for line in lines)
    moved = "if True:\n" + "\n".join(lines)
    (branch,) = ast.parse(moved).body
    assert isinstance(branch, ast.If)
    assert ast.dump(branch.body[0]) == ast.dump(ast.parse(statement).body[0])


def test_what_fits_comes_onto_one_line_unless_a_comma_holds_it() -> None:
    assert laid_out("x = (\n    a + b\n)") == ["x = a + b"]
    assert laid_out("x = f(\n    a,\n    b)") == ["x = f(a, b)"]
    held = "x = f(\n    a,\n    b,\n)"
    assert laid_out(held) == held.split("\n")
    assert laid_out("x = (a,)") == ["x = (a,)"]


def test_comments_and_texts_stay_and_written_lines_keep_their_breaks() -> None:
    kept = "x = f(  # why\n    a)\ny = '''one\n  two'''"
    assert laid_out(kept) == kept.split("\n")
    written = "x = f(a,\n      b)"
    assert laid_out(written, only_long=True) == written.split("\n")


def test_imports_are_sorted_and_those_nobody_uses_are_dropped() -> None:
    lines = [
        "import triton",
        "from torch import nn",
        "import math",
        "from typing import Optional, Any",
        "import torch",
    ]
    used = {"nn", "math", "torch", "Any"}
    assert sorted_imports(lines, used) == [
        "import math",
        "from typing import Any",
        "",
        "import torch",
        "from torch import nn",
    ]


def test_several_statements_on_one_line_stay_as_they_are() -> None:
    line = "self.first = nn.Linear(width_of_the_input, 4 * width_of_the_input); self.second = nn.Linear(4 * width_of_the_input, width)"
    assert laid_out(line) == [line]

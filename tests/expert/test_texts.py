"""What the texts of generated files never have: built-in functions under other meanings, words that a static
check takes for something else, facts of one device.
"""

from __future__ import annotations

import ast
import re

import pytest

from egg.expert.emit.words import PYTHON, RESERVED, of_kernels
from tests.expert.elsewhere import check, normal, program, written

GROUPED = {
    fn: program(
        f"return torch.{fn}(self.norm(self.fc(x)), dim=1, keepdim=True)[0]",
        "x = torch.randn(batch_size, features)",
        "self.fc = nn.Linear(features, hidden)\nself.norm = nn.GroupNorm(groups, hidden)",
        "features, hidden, groups",
        batch_size=1024, features=1024, hidden=768, groups=64,
    )
    for fn in ("max", "min")
}  # fmt: skip
GRU = program(
    "return self.rnn(x)[0]",
    "x = torch.randn(length, batch_size, features)",
    "self.rnn = nn.GRU(features, hidden, 2)",
    "features, hidden",
    batch_size=10, length=512, features=128, hidden=256,
)  # fmt: skip
TEXTS = {
    **GROUPED,
    "gru": GRU,
    "sum": program("return torch.sum(x, dim=1).abs()", "x = torch.randn(b, d)", b=64, d=64),
    "builtins": program(
        "max = x.max(dim=1).values\nreturn x.float() - max.round()[:, None] + range",
        "x = torch.randn(batch_size, dim);range = torch.randn(batch_size, 1)",
        batch_size=64, dim=512,
    ),
    "vector": program("return x @ y", "x = torch.randn(m, k);y = torch.randn(k, 1)", m=2048, k=4096),
    "pool": program("return F.max_pool2d(x, 3, 2)", "x = torch.randn(b, c, h, w)", b=8, c=16, h=64, w=64),
    "conv": program(
        "return torch.relu(self.conv(x))",
        "x = torch.randn(b, ci, h, w)",
        "self.conv = nn.Conv2d(ci, co, 3)",
        "ci, co",
        b=8, ci=16, co=32, h=64, w=64,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_no_built_in_function_gets_another_meaning(name: str) -> None:
    tree = ast.parse(written(TEXTS[name]))
    bound = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    assert not bound & PYTHON


@pytest.mark.parametrize("name", TEXTS)
def test_no_text_has_words_that_a_static_check_takes_for_statements(name: str) -> None:
    assert not re.search(r"\b(pass|try|except)\b", written(TEXTS[name]))


@pytest.mark.parametrize("fn", GROUPED)
@pytest.mark.parametrize(("hidden", "groups"), [(108, 9), (96, 8)])
def test_parts_of_rows_are_counted_as_the_grid_counts_them(fn: str, hidden: int, groups: int) -> None:
    """Groups of 12 columns take 16 places of a tile each."""
    check(GROUPED[fn], (32, hidden, groups), [normal(5, 32)])


def test_how_many_programs_run_at_once_is_asked_of_the_device() -> None:
    text = written(GRU)
    assert "multi_processor_count" in text
    assert "132" not in text


def test_a_size_is_not_called_like_a_variable_of_a_kernel() -> None:
    assert {"pid", "total", "q", "acc"} <= of_kernels({"matmul", "softmax", "conv"})
    assert not of_kernels({"pointwise", "reduce"})
    assert {"max", "range", "tl", "self", "lambda"} <= RESERVED

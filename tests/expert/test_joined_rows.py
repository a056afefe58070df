"""Rows that are joined or padded, computed from a value of the whole row among others.

Its address is the same along the row; the guard that says where a piece lies is not.
"""

from __future__ import annotations

import pytest
import torch

from tests.expert import elsewhere
from tests.expert.checking import MODES, check
from tests.expert.programs import Program

TABLE = elsewhere.program(
    "x = self.table(x)\nx = torch.cat([x, x * 2], dim=2)[: x.shape[0] // 2]\nreturn F.normalize(x, dim=2)",
    "x = torch.randint(0, 4, (3, width))",
    "self.table = nn.Embedding(4, width)",
    "width",
    width=3,
)
SCALED = elsewhere.program(
    "return F.normalize(torch.cat([x * s, x], dim=1), dim=1)",
    "x = torch.randn(n, 5); s = torch.randn(n, 1)",
    "self.unused = 1",
    n=6,
)


@pytest.mark.parametrize("rows", [3, 2, 7])
def test_rows_of_a_table_are_joined(rows: int) -> None:
    chosen = torch.randint(0, 4, (rows, 3), generator=torch.Generator().manual_seed(rows))
    elsewhere.check(TABLE, [3], [chosen])


@pytest.mark.parametrize("rows", [6, 1, 9])
def test_a_scaled_row_is_joined_with_another(rows: int) -> None:
    elsewhere.check(SCALED, [], [elsewhere.normal(rows, 5), elsewhere.normal(rows, 1)])


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_scaled_row_is_padded_however_it_is_gone_over(mode: dict[str, int]) -> None:
    def build(p: Program) -> str:
        batch, width = p.size("batch", 5, 3), 37
        scaled = p.pointwise("mul", p.input("x", (batch, width)), p.input("s", (batch, 1)))
        padded = p.node("pad", (scaled,), (batch, width + 3), before=(0, 1), value=0.0)
        return p.softmax(padded, 1)

    assert "s = tl.load" in check(build, **mode)

"""Truth values and whole numbers keep their kind where a kernel puts a number beside them."""

from __future__ import annotations

import pytest
import torch

from tests.expert.elsewhere import check, program, written

FORMS = {
    "triangle of truth values": "m.triu(1) | ~m, m.tril() & (a > 0)",
    "triangle of a constant": "torch.ones(rows, rows, dtype=torch.bool).triu(1) | m",
    "triangle of whole numbers": "i.triu(1) & 3, i.tril() | 1, i.to(torch.int32).triu() ^ 5",
    "truth values behind false": "F.pad(m, (1, 2)) | F.pad(a > 0, (1, 2))",
    "truth values behind true": "F.pad(m, (1, 2), value=True) ^ F.pad(a > 0, (1, 2))",
    "whole numbers behind one": "F.pad(i, (0, 1), value=3) & 7",
    "a choice": "torch.where(a > 0, m, False) | ~m, m.masked_fill(a > 0, 1) & (a < 1), torch.where(m, i, 0)",
}
INPUTS = "a = torch.randn(3, rows, rows); m = torch.rand(3, rows, rows) > 0.5; " \
    "i = torch.randint(-5, 9, (3, rows, rows))"  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_number_beside_them_is_of_their_kind(name: str) -> None:
    task = program(f"rows = a.shape[1]\nreturn {FORMS[name]}", INPUTS, "self.none = 0", rows=40)
    assert "True, 0.0)" not in written(task)
    generator = torch.Generator().manual_seed(1)
    a = torch.randn(3, 19, 19, generator=generator)
    check(task, (), [a, a.flip(1) > 0, torch.randint(-5, 9, (3, 19, 19), generator=generator)])

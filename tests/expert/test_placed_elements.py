"""Elements taken and put by places that a program counts or is given: windows, lists of places, padding."""

from __future__ import annotations

import pytest
import torch

from tests.expert.elsewhere import check, normal, program, written

NONE = "self.none = 0"


def places(count: int, size: int) -> torch.Tensor:
    return torch.randperm(size, generator=torch.Generator().manual_seed(count))[:count]


def test_windows_that_overlap_are_taken_by_counted_places():
    source = program(
        "y = torch.relu(x).unfold(1, 7, 6).transpose(2, 3)\n"
        "return y.reshape(x.shape[0], -1, 7 * x.shape[2]) * 2",
        "x = torch.randn(batch, length, n)", NONE, "", batch=8, length=301, n=80,
    )  # fmt: skip
    assert "unfold" not in written(source).split("class ModelNew")[1]
    check(source, [], [normal(2, 301, 5)])


def test_frames_of_a_signal_are_read_where_they_lie():
    source = program(
        "b, n = x.shape\nx = x * 2\n"
        "y = x.as_strided((b, 1 + (n - 40) // 16, 40), (x.stride(0), 16 * x.stride(1), x.stride(1)))\n"
        "return y - y.mean(-1, keepdim=True)",
        "x = torch.randn(batch, length)", NONE, "", batch=8, length=4000,
    )  # fmt: skip
    assert "as_strided(" not in written(source)
    check(source, [], [normal(3, 4000)])


def test_counted_places_are_not_read_beyond_the_last():
    source = program(
        "return x.index_select(1, torch.arange(x.shape[1], device=x.device) // 2 + 1) * 2",
        "x = torch.randn(batch, n)", NONE, "", batch=8, n=300,
    )  # fmt: skip
    assert "mask=" in written(source).split("tl.load(")[1].split(")\n")[0]
    check(source, [], [normal(3, 37)])


@pytest.mark.parametrize("base", ["x.new_zeros(x.shape[1], size)", "y.clone()"])
def test_columns_at_places_that_are_given(base: str):
    source = program(
        f"size = y.shape[1]\ncanvas = {base}\ncanvas[:, at] = x.t()\nreturn canvas * 2",
        "x = torch.randn(count, n); at = torch.randperm(size)[:count]; y = torch.randn(n, size)",
        NONE, "", count=500, n=64, size=4000,
    )  # fmt: skip
    assert "(None, at" not in written(source)
    check(source, [], [normal(9, 5), places(9, 40), normal(5, 40)])


@pytest.mark.parametrize("index", [":, at, to", "at, :, to"])
def test_elements_at_pairs_of_places(index: str):
    shape = "(x.shape[1], x.shape[0])" if index[0] == ":" else "x.shape"
    source = program(
        f"y = y.clone()\ny[{index}] = x.reshape({shape}) * 3\nreturn y + 1",
        "x = torch.randn(count, n); at = torch.arange(count) % n; "
        "to = torch.randperm(size)[:count]; y = torch.randn(n, n, size)",
        NONE, "", count=500, n=64, size=4000,
    )  # fmt: skip
    check(source, [], [normal(9, 5), torch.arange(9) % 5, places(9, 40), normal(5, 5, 40)])


def test_padding_of_places_is_a_place():
    source = program(
        "return torch.relu(self.table(F.pad(tokens, (2, 0), value=1)))",
        "tokens = torch.randint(1, 50, (batch, length))",
        "self.table = nn.Embedding(50, n)", "n", batch=64, length=24, n=96,
    )  # fmt: skip
    assert ", 1.0)" not in written(source)
    check(source, [12], [torch.arange(21).reshape(3, 7)])

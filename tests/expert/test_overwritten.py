"""New elements of a cache that the caller or the module holds: stored in their places, and nothing else."""

from __future__ import annotations

import pytest
import torch

from tests.expert.elsewhere import check, normal, program, written

LAYERS = "self.key = nn.Linear(32, 32)\nself.register_buffer('held', torch.zeros(4, 8, 16, 32))"
GIVEN = "x = torch.randn(batch, 8, 1, 32); cache = torch.randn(batch, 8, length, 32); at = torch.tensor([5])"
STEPS = {
    "a row by index_copy": "cache.index_copy_(2, at, self.key(x))",
    "a row by its place": "cache[:, :, at] = self.key(x)",
    "a place for each": "cache[torch.arange(x.shape[0]), :, at.expand(x.shape[0])] = self.key(x)[:, :, 0]",
    "rows by index_copy": "cache.index_copy_(2, torch.cat([at, at + 1]), self.key(x).expand(-1, -1, 2, -1))",
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_a_row_goes_into_the_cache_alone(step: str):
    source = program(f"{step}\nreturn (x * cache).sum(2), cache", GIVEN, LAYERS, batch=4, length=96)
    file = written(source)
    assert "scatter_store_kernel[" in file
    assert "return summed, cache" in file
    check(source, [], [normal(3, 8, 1, 32), normal(3, 8, 29, 32), torch.tensor([7])])


PAGES = (
    "x = torch.randn(tokens, 8, 32); cache = torch.randn(pages, 16, 8, 32);"
    " slots = torch.randperm(pages * 16)[:tokens]"
)


@pytest.mark.parametrize(
    "step",
    [
        "cache.view(-1, 8, 32)[slots] = self.key(x)",
        "cache[slots // 16, slots % 16] = self.key(x)",
        "cache[slots // 16, slots % 16 - 16] = self.key(x)",
    ],
    ids=["in a view", "in pages", "from the end"],
)
def test_rows_go_into_their_pages(step: str):
    source = program(f"{step}\nreturn cache, x.sum(2)", PAGES, LAYERS, tokens=48, pages=12)
    file = written(source)
    assert "index_put" not in file
    assert ".copy_(" not in file[file.index("def launches") :]
    check(source, [], [normal(29, 8, 32), normal(7, 16, 8, 32), torch.randperm(112)[:29]])


def test_a_buffer_is_written_in_place():
    forward = "self.held.index_copy_(2, at, self.key(x))\nreturn (x * self.held).sum(2)"
    source = program(forward, GIVEN.replace("batch", "4"), LAYERS, batch=4, length=96)
    assert "= self.held\n" in written(source)
    check(source, [], [normal(4, 8, 1, 32), normal(4, 8, 29, 32), torch.tensor([7])])


@pytest.mark.parametrize(
    "forward",
    [
        "old = cache.sum(2)\ncache.index_copy_(2, at, self.key(x))\nreturn old, cache",
        "new = cache.clone()\nnew[:, :, at] = self.key(x)\nreturn new, cache",
    ],
    ids=["read before", "a copy"],
)
def test_a_cache_that_is_read_as_it_was_is_copied(forward: str):
    source = program(forward, GIVEN, LAYERS, batch=4, length=96)
    assert "scatter_store_kernel[" not in written(source)
    check(source, [], [normal(3, 8, 1, 32), normal(3, 8, 29, 32), torch.tensor([7])])


def test_operators_with_several_results_update_their_buffers_as_before():
    layers = "self.norm = nn.BatchNorm1d(32)"
    source = program("return self.norm(x)", "x = torch.randn(batch, 32)", layers, batch=64)
    assert "running_mean" in written(source)

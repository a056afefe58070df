"""A tensor that is copied with new elements at few places: those are computed only where they go."""

from __future__ import annotations

import pytest

from egg.core.source import Task
from tests.expert.captured import program
from tests.expert.test_reading import run_and_compare, written

CACHE, NEW = "torch.randn(batch, 2, 256, 128)", "torch.randn(batch, 2, 1, 128)"
ROW = "torch.arange(batch) * 200"
AT = "i[:, None, None, None].expand(k.shape)"


def cache_task(forward: str, inputs: str, arguments: str) -> Task:
    return program(forward, inputs, knobs="batch = 2", arguments=arguments)


ROTATED = cache_task(
    "a, b = k.chunk(2, -1); k = k * t[i][:, None, None] + torch.cat((-b, a), -1); "
    f"return c.scatter(2, {AT}, k)",
    f"{CACHE}, {NEW}, {ROW}, torch.randn(256, 128)",
    "c, k, i, t",
)
CHOICES = {
    "scatter": ROTATED,
    "index_copy": cache_task("c.index_copy(2, i, k.exp())", f"{CACHE}, {NEW}, torch.tensor([77])", "c, k, i"),
    "index_put": cache_task(
        "z = c.clone(); z[torch.arange(c.shape[0]), :, i] = k[:, :, 0].tanh(); return z",
        f"{CACHE}, {NEW}, {ROW}",
        "c, k, i",
    ),
    "short rows": cache_task(
        f"c.scatter(2, {AT}, k * 2)",
        f"torch.randn(batch, 2, 700, 48), torch.randn(batch, 2, 1, 48), {ROW}",
        "c, k, i",
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_few_places_are_computed_where_they_are(name: str) -> None:
    text = run_and_compare(CHOICES[name])
    assert text.count("if tl.max(") == 1


OFTEN = {
    "a small tensor": f"c[:, :, :16].scatter(2, {AT} % 16, k.exp())",
    "a mask": "torch.where(c > 0, c.exp(), c)",
    "a number": f"c.scatter(2, {AT}, 3.0)",
    "a place for each element": "torch.where(torch.arange(128) == i[:, None, None, None], c.exp(), c)",
}


@pytest.mark.parametrize("name", OFTEN)
def test_other_choices_are_made_for_every_element(name: str) -> None:
    task = cache_task(OFTEN[name], f"{CACHE}, {NEW}, {ROW}", "c, k, i")
    assert "if tl.max(" not in written(task).source


SHAPE = "(-1, 2, 256, 128)"
KEYS_AND_VALUES = cache_task(
    f"c, d = c.view{SHAPE}, d.view{SHAPE}; return c.scatter(2, {AT}, k), d.scatter(2, {AT}, v)",
    f"{CACHE}, {CACHE}, {NEW}, {NEW}, {ROW}",
    "c, d, k, v, i",
)


def test_two_caches_are_one_kernel_that_loads_both_first() -> None:
    assert len(written(KEYS_AND_VALUES).structure.groups) == 1
    text = run_and_compare(KEYS_AND_VALUES)
    kernel = text[text.index("@triton.jit") : text.index("def outside")]
    before, *branches = kernel.split("if tl.max(")
    assert len(branches) == 2
    assert "tl.load(c_ptr" in before.replace("(\n        ", "(")
    assert "tl.load(d_ptr" in before.replace("(\n        ", "(")

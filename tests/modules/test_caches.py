"""Layers that write into a cache: cut at the writes, answered by kernels, never wrong in output or cache."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from egg.core.source import content_sha256
from egg.modules.backend import Backend
from egg.modules.strides import with_strides
from egg.store import Store, Tuned

COUNT, WIDTH, LENGTH = 5, 8, 6


class Attending(nn.Module):
    """One new token for each sequence: its key and value go into the cache, whose length is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.register_buffer("keys", torch.zeros(2, LENGTH, WIDTH))
        self.register_buffer("values", torch.zeros(2, LENGTH, WIDTH))
        self.register_buffer("length", torch.tensor(0))

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        query, key, value = self.query(y), self.key(y), self.value(y)
        place = torch.arange(1) + self.length
        self.length.add_(1)
        self.keys.index_copy_(1, place, key)
        self.values.index_copy_(1, place, value)
        mixed = F.scaled_dot_product_attention(query, self.keys, self.values, attn_mask=hidden)
        return x + F.silu(self.out(mixed))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, WIDTH)
        self.layers = nn.ModuleList(Attending() for _ in range(COUNT))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        hidden = (torch.arange(LENGTH) <= self.layers[0].length)[None, None].expand(2, 1, LENGTH)
        for layer in self.layers:
            x = layer(x, hidden)
        return x


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", lambda text: pytest.fail(text))


class Halving(nn.Module):
    """Writes into memory that it is also given as an expanded tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, share: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
        share.mul_(0.5)
        return x + F.silu(self.down(F.silu(self.up(self.norm(x)) * wide) * wide)).tanh()


class Halved(Decoder):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Halving() for _ in range(2 * COUNT))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        share = torch.ones(1, 1, WIDTH)
        wide = share.expand(2, 1, WIDTH)
        for layer in self.layers:
            x = layer(x, share, wide)
        return x


def compared(
    store: Store, fallback: str = "eager", steps: int = 4, kind: type[nn.Module] = Decoder
) -> list[dict[str, Any]]:
    """Some steps of a decoder beside its original; outputs, caches and counters are the same after each."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    backend, net = Backend(), kind().eval()
    original = copy.deepcopy(net)
    options = {"store": str(store.folder), "fallback": fallback, "unmeasured": True}
    run = torch.compile(net, backend=backend, options=options)
    for step in range(steps):
        ids = torch.tensor([[step], [step + 3]])
        with torch.no_grad():
            torch.testing.assert_close(run(ids), original(ids))
        for (name, found), wanted in zip(net.named_buffers(), original.buffers(), strict=True):
            torch.testing.assert_close(found, wanted, msg=lambda text, name=name: f"{name}: {text}")
    return backend.stats()


def tune_by_the_tasks_themselves(store: Store, change: Any = lambda text: text) -> None:
    for entry in store.entries():
        kernel = change(entry.task.replace("class Model(", "class ModelNew("))
        store.tuned(entry.key, kernel, Tuned(content_sha256(kernel), {}))


def test_a_layer_is_cut_at_its_writes(store: Store) -> None:
    whole, *rows = compared(store)
    assert whole["route"] == "layers"
    assert [(row["route"], row["places"]) for row in rows] == [("recorded", COUNT), ("recorded", COUNT)]
    for entry in store.entries():
        assert "index_copy" not in entry.task
        assert "add_(" not in entry.task


def test_masks_that_the_graph_computes_are_drawn_as_they_are(store: Store) -> None:
    """A mask of an unknown kind would hide whole rows."""
    compared(store)
    (task,) = (entry.task for entry in store.entries() if "scaled_dot" in entry.task)
    namespace: dict[str, Any] = {}
    exec(task, namespace)
    (mask,) = (value for value in namespace["get_inputs"]() if value.dtype == torch.bool)
    assert mask.any(-1).all()


@pytest.mark.parametrize("fallback", ["eager", "aot_eager"])
def test_kernels_before_and_behind_the_writes_see_the_cache_as_it_is(store: Store, fallback: str) -> None:
    compared(store)
    tune_by_the_tasks_themselves(store)
    rows = compared(store, fallback)[1:]
    assert [(row["route"], row["counts"]["kernel"]) for row in rows] == [("kernel", 4 * COUNT)] * 2


def test_a_cache_that_the_graph_writes_is_no_weight_of_a_kernel(store: Store) -> None:
    """A kernel may keep what it made of a weight; compiled code writes without a trace."""
    compared(store)
    for entry in store.entries():
        assert "register_buffer" not in entry.task


def test_a_kernel_that_fails_leaves_the_cache_as_the_fallback_does(store: Store) -> None:
    compared(store)
    tune_by_the_tasks_themselves(
        store,
        lambda text: text.replace(
            "        return ", "        raise RuntimeError('late')\n        return ", 1
        ),
    )
    failures: list[str] = []
    patient = Store(store.folder, failures.append)
    rows = compared(patient)[1:]
    assert all("late" in row["counts"]["failure"] for row in rows)
    assert [row["counts"]["fallback"] for row in rows] == [4 * COUNT] * 2


def making_contiguous(text: str, before: str = "pass") -> str:
    """A kernel file whose ``forward`` begins by making its arguments contiguous, as generated files do."""
    (line,) = re.findall(r"    def forward\(self, .*\):\n", text)
    names = re.findall(r"x\d+", line)
    lines = [f"        {before.format(name=name)}\n        {name} = {name}.contiguous()\n" for name in names]
    return text.replace(line, line + "".join(lines))


@pytest.mark.parametrize("fallback", ["eager", "aot_eager", "inductor"])
def test_a_mask_that_every_layer_would_copy_is_copied_once(store: Store, fallback: str) -> None:
    compared(store)
    refuse = "assert {name}.is_contiguous(), 'this layer copies'"
    tune_by_the_tasks_themselves(store, lambda text: making_contiguous(text, refuse))
    rows = compared(store, fallback)[1:]
    assert [(row["counts"]["kernel"], row["counts"]["failure"]) for row in rows] == [(4 * COUNT, "")] * 2


def test_what_the_graph_writes_into_between_layers_is_not_copied_once(store: Store) -> None:
    compared(store, kind=Halved)
    tune_by_the_tasks_themselves(store, making_contiguous)
    _, row = compared(store, kind=Halved)
    assert (row["route"], row["counts"]["kernel"]) == ("kernel", 8 * COUNT)


@pytest.mark.parametrize(
    ("shape", "stride", "wanted", "shared"),
    [
        ((2, 3, 1, 4), (12, 4, 4, 1), (12, 4, 12, 1), True),
        ((2, 3, 1, 4), (12, 4, 4, 1), (12, 4, 4, 1), True),
        ((2, 3, 1, 4), (12, 4, 4, 1), (12, 1, 3, 3), False),
        ((1, 3), (7, 1), (3, 1), True),
    ],
)
def test_strides_of_one_element_are_set_without_a_copy(shape: Any, stride: Any, wanted: Any, shared: bool):
    """As of a sequence of one token, which the kernels for a decoder return."""
    made = torch.randn(64).as_strided(shape, stride)
    found = with_strides(made, wanted)
    torch.testing.assert_close(found, made)
    assert found.stride() == wanted
    assert (found.data_ptr() == made.data_ptr()) is shared

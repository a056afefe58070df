"""Layers that write into a cache: cut at the writes, answered by kernels, never wrong in output or cache."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from egg.core.source import content_hash
from egg.modules.backend import Backend
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


def compared(store: Store, fallback: str = "eager", steps: int = 4) -> list[dict[str, Any]]:
    """Some steps of a decoder beside its original; outputs, caches and counters are the same after each."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    backend, net = Backend(), Decoder().eval()
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
        store.tuned(entry.key, kernel, Tuned(content_hash(kernel), {}))


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

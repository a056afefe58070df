"""Layers inside forward and backward graphs: recorded once, answered by kernels, gradients unchanged."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from egg.core.source import Task, content_sha256
from egg.expert.reading.capture import capture_once
from egg.modules.backend import Backend
from egg.modules.repeats import Run, runs
from egg.store import Store, Tuned

COUNT = 6


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(COUNT))
        self.head = nn.Linear(8, 10)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x), ids)


class Convolving(nn.Module):
    """Blocks with batch norms in training, which write their statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()) for _ in range(COUNT)
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = torch.sin(torch.arange(ids.numel() * 64.0)).view(-1, 4, 4, 4) + ids.float().mean()
        for block in self.blocks:
            x = x + block(x)
        return x.square().mean()


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", lambda text: pytest.fail(text))


def trained(store: Store, kind: type[nn.Module], steps: int = 2, **options: Any) -> list[dict[str, Any]]:
    """Steps whose loss, gradients and buffers are those of the original."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    backend, net = Backend(), kind()
    original = copy.deepcopy(net)
    given = {"store": str(store.folder), "fallback": "eager", "unmeasured": True, **options}
    run = torch.compile(net, backend=backend, options=given, dynamic=False)
    for step in range(steps):
        ids = (torch.arange(5) + step) % 10
        for module, called in ((net, run), (original, original)):
            module.zero_grad()
            called(ids).backward()
        for found, wanted in zip(net.parameters(), original.parameters(), strict=True):
            torch.testing.assert_close(found.grad, wanted.grad)
        for found, wanted in zip(net.buffers(), original.buffers(), strict=True):
            torch.testing.assert_close(found, wanted)
    return backend.stats()


def tune_by_the_tasks_themselves(store: Store) -> None:
    for entry in store.entries():
        kernel = entry.task.replace("class Model(", "class ModelNew(")
        store.tuned(entry.key, kernel, Tuned(content_sha256(kernel), {}))


@pytest.mark.parametrize("kind", [Net, Convolving])
def test_layers_of_forward_and_backward_graphs_are_recorded_and_answered(store: Store, kind: Any) -> None:
    rows = trained(store, kind)
    wholes = [row for row in rows if row["route"] == "layers"]
    assert [row["part"] for row in wholes] == ["forward", "backward"]
    recorded = [row for row in rows if row["route"] == "recorded"]
    for part in ("forward", "backward"):
        assert max(row["places"] for row in recorded if row["part"] == part) >= COUNT // 2
    tune_by_the_tasks_themselves(store)
    rows = trained(store, kind)
    answered = [row for row in rows if row["route"] == "kernel"]
    assert len(answered) == len(recorded)
    assert all(row["counts"]["kernel"] == 2 * row["places"] for row in answered)
    assert not any(row["counts"]["fallback"] for row in answered)


def test_layers_are_cut_at_calls_that_no_kernel_file_may_make(store: Store) -> None:
    """The backward of a convolution has no public function: Inductor computes it, and kernels the rest."""
    trained(store, Convolving)
    tasks = [entry.task for entry in store.entries()]
    assert not any("_backward" in task for task in tasks)
    backward = [task for task in tasks if "torch.le(" in task]
    assert backward, "what lies between the convolutions is recorded"
    for task in backward:
        captured = capture_once(Task("layer", task))
        assert not any(node.op == "library" for node in captured)


def test_a_step_without_kernels_is_known_to_the_next_process(store: Store) -> None:
    recorded = {row["key"] for row in trained(store, Net) if row["route"] == "recorded"}
    for key in recorded:
        store.rejected(key, "no kernel is faster")
    rows = trained(store, Net)
    assert {row["key"] for row in rows} == recorded
    assert {row["route"] for row in rows} == {"rejected"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("xabcabcabcy", [Run(1, 10, 3)]),
        ("abcab", []),
        ("abababab", [Run(0, 8, 2)]),
        ("xyzxyz12abcdabcdabcd", [Run(8, 20, 4), Run(0, 6, 3)]),
    ],
)
def test_runs_of_equal_blocks(text: str, found: list[Run]) -> None:
    assert list(runs(text, 2)) == found


def test_blocks_of_a_run_begin_where_they_are_asked_to() -> None:
    assert Run(1, 10, 3).blocks(0) == [(1, 4), (4, 7), (7, 10)]
    assert Run(1, 10, 3).blocks(2) == [(3, 6), (6, 9)]

"""Whole files that replay their launches, beside PyTorch on a real GPU."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from egg.core.source import Task
from tests.expert.captured import program
from tests.expert.test_replay import CHAIN, WALK, kept, loaded, written

NORMS = program(
    "y = F.relu(self.n1(self.c1(x))); y = F.relu(self.n2(self.c2(y)) + y); return self.fc(y.mean((2, 3)))",
    "torch.randn(B, 3, H, H)",
    "self.c1 = nn.Conv2d(3, 16, 3, padding=1); self.n1 = nn.BatchNorm2d(16); "
    "self.c2 = nn.Conv2d(16, 16, 3, padding=1); self.n2 = nn.BatchNorm2d(16); self.fc = nn.Linear(16, 10)",
    "B, H = 4, 24",
)


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's own layers in fp32."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def models(task: Task, folder: Path, *moves: str) -> tuple[nn.Module, Any, Any]:
    """PyTorch's module and ours with the same weights, and what makes inputs."""
    space: dict[str, Any] = {}
    exec(task.source, space)
    source = written(task, *moves).source
    torch.manual_seed(0)
    theirs = space["Model"]().cuda()
    ours = loaded(source, folder).ModelNew().cuda()
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours, lambda: [x.cuda() for x in space["get_inputs"]()]


def leaves(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else [t for inner in result for t in leaves(inner)]


def close(got: Any, want: Any) -> None:
    assert len(leaves(got)) == len(leaves(want))
    for a, b in zip(leaves(got), leaves(want), strict=True):
        assert a.shape == b.shape
        off = (a - b).abs().max() / b.square().mean().sqrt()
        assert float(off) < 5e-3  # our convolutions may have the grade of TF32


@pytest.mark.gpu
@pytest.mark.usefixtures("exact")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("task", [CHAIN, NORMS, WALK], ids=["chain", "norms", "walk"])
@torch.no_grad()
def test_on_a_gpu_it_does_what_pytorch_does(task: Task, tmp_path: Path) -> None:
    theirs, ours, inputs = models(task, tmp_path, "set file replay True")
    handed: list[tuple[Any, Any]] = []

    def same(given: list[torch.Tensor]) -> None:
        want, got = theirs(*given), ours(*given)
        close(got, want)
        for name, tensor in theirs.state_dict().items():
            torch.testing.assert_close(ours.state_dict()[name], tensor, rtol=1e-3, atol=1e-3)
        handed.append((got, [t.clone() for t in leaves(got)]))

    given = inputs()
    same(given)
    assert not kept(ours)
    for _ in range(3):
        same(given)
    for _ in range(3):  # results that are let go, so that the same places come again
        ours(*given), theirs(*given)
    first = kept(ours)
    assert first
    for tensor in given:
        tensor.mul_(-0.5).add_(0.25)
    same(given)
    others = [inputs() for _ in range(3)]
    for _ in range(3):
        for other in others:
            same(other)
    assert kept(ours) >= first
    changed = {name: tensor * 0.9 for name, tensor in theirs.state_dict().items()}
    for model in (theirs, ours):  # copies into the weights
        model.load_state_dict({k: v.to(theirs.state_dict()[k].dtype) for k, v in changed.items()})
    same(given)
    for model in (theirs, ours):
        model.load_state_dict({k: v.clone() for k, v in theirs.state_dict().items()}, assign=True)
    for _ in range(4):
        same(given)
    small = [t[:2].clone() if t.shape[0] != 2 else t[:, :2].clone() for t in given]
    for _ in range(4):
        same(small)
    for model in (theirs, ours):
        model.cpu().cuda()
    for _ in range(4):
        same(given)
    for got, before in handed:
        for a, b in zip(leaves(got), before, strict=True):
            assert torch.equal(a, b)


@pytest.mark.gpu
@pytest.mark.usefixtures("exact")
@pytest.mark.timeout(240)
@torch.no_grad()
def test_on_a_gpu_it_can_be_recorded_by_somebody_else(tmp_path: Path) -> None:
    theirs, ours, inputs = models(CHAIN, tmp_path, "set file replay True")
    given = inputs()
    ours(*given)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = ours(*given)
    graph.replay()
    close(got, theirs(*given))


@pytest.mark.gpu
@pytest.mark.usefixtures("exact")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["steps", "cooperative"])
@torch.no_grad()
def test_on_a_gpu_every_way_to_walk_through_time(mode: str, tmp_path: Path) -> None:
    """Of a six-layer LSTM with 256 hidden units; ``-s`` shows how long a call takes."""
    task = program(
        "y, (h, c) = self.r(x, (h, c)); return y, h, c",
        "torch.randn(B, T, I), torch.randn(6, B, H), torch.randn(6, B, H)",
        "self.r = nn.LSTM(I, H, 6, batch_first=True)",
        "B, T, I, H = 10, 512, 128, 256",
        "x, h, c",
    )
    name = next(g.name for g in written(task).structure.groups if g.pattern == "recurrent")
    theirs, ours, inputs = models(task, tmp_path, f"set {name} mode {mode}")
    given = inputs()
    want = theirs(*given)
    for _ in range(4):
        close(ours(*given), want)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(10):
        ours(*given)
    torch.cuda.synchronize()
    print(f"{mode}: {(time.perf_counter() - start) * 100:.2f} ms a call")

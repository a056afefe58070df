"""``egg.optimize`` of a module whose course depends on values: kernels for the parts, Python between them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import egg
from egg.api import parts
from egg.core.errors import TaskError, UsageError
from egg.core.source import content_sha256
from egg.modules.parts import OptimizedParts
from egg.store import Store, Tuned


class Gated(nn.Module):
    """Reads a number out of a tensor, and branches on it."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 4)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> dict[str, torch.Tensor]:
        hidden = torch.relu(self.up(x)) * scale
        if hidden.sum().item() > 4.0:
            hidden = hidden / 2
        return {"out": self.down(hidden)}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tasks are their own kernels: no judge is asked."""

    def tuned(store: Store, entries: Any, *_: Any) -> Iterator[Any]:
        for entry in entries:
            kernel = entry.task.replace("class Model(", "class ModelNew(")
            store.tuned(entry.key, kernel, Tuned(content_sha256(kernel), {}))
            yield store.named(entry.key)

    monkeypatch.setattr(parts, "tune", tuned)
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


SMALL, LARGE = torch.full((3, 4), 0.01), torch.full((3, 4), 9.0)


def optimized(folder: Path, module: nn.Module, *given: Any, **more: Any) -> Any:
    return egg.optimize(module, given, {"scale": 1.0}, folder=folder, progress=False, **more)


def test_the_parts_run_on_kernels_and_the_branch_is_taken_anew_at_every_call(tmp_path: Path):
    module = Gated()
    fast = optimized(tmp_path / "run", module, LARGE, use_unmeasured=True)
    assert isinstance(fast, OptimizedParts)
    with torch.no_grad():
        for x in (LARGE, SMALL, LARGE):
            torch.testing.assert_close(fast(x, scale=1.0), module(x, scale=1.0))
        module.up.weight.mul_(2)
        torch.testing.assert_close(fast(LARGE, scale=1.0), module(LARGE, scale=1.0))
    assert fast.stats().kernel == 7
    assert fast.stats().original == 1  # the part behind the other branch
    assert fast.state_dict().keys() == module.state_dict().keys()
    assert "test_parts.py:" in str(fast.result)  # the line that divides it
    assert fast.result.verdict == "unmeasured"
    assert sum(isinstance(entry.state, Tuned) for entry in fast.result.entries) == 2
    assert len(fast.result.entries) == 3  # the other branch was recorded, and runs as it is


def test_without_a_measurement_the_original_operators_answer(tmp_path: Path):
    module = Gated()
    fast = optimized(tmp_path / "run", module, LARGE)
    with torch.no_grad():
        torch.testing.assert_close(fast(LARGE, scale=1.0), module(LARGE, scale=1.0))
    assert fast.stats().kernel == 0
    assert any("no GPU measured it" in reason for reason in fast.stats().reasons)


def test_gradients_go_through_the_original(tmp_path: Path):
    module = Gated()
    fast = optimized(tmp_path / "run", module, LARGE, use_unmeasured=True)
    fast(LARGE, scale=1.0)["out"].sum().backward()
    assert module.up.weight.grad is not None
    assert fast.stats().reasons == {"gradients are wanted": 1}


def test_it_is_saved_loaded_copied_and_pickled(tmp_path: Path):
    module = Gated()
    fast = optimized(tmp_path / "run", module, LARGE, use_unmeasured=True)
    again = egg.load(fast.save(tmp_path / "kept"), module, use_unmeasured=True)
    copied, thawed = copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))
    with torch.no_grad():
        for other in (again, copied, thawed):
            torch.testing.assert_close(other(LARGE, scale=1.0), module(LARGE, scale=1.0))
            assert other.stats().kernel == 2
    assert copied.original is not module


def test_the_call_that_records_leaves_the_module_as_it_was(tmp_path: Path):
    class Counting(Gated):
        def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> dict[str, torch.Tensor]:
            self.seen += 1
            return super().forward(x, scale=scale)

    module, x = Counting(), LARGE.clone()
    optimized(tmp_path / "run", module, x)
    assert module.seen.item() == 0
    assert torch.equal(x, LARGE)


def test_what_has_no_part_for_a_kernel_is_refused_with_the_line(tmp_path: Path):
    class Nothing(nn.Module):
        def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
            return torch.ones(2) * scale if x.item() > 0 else torch.zeros(2)

    with pytest.raises(TaskError, match=r"test_parts\.py"):
        optimized(tmp_path / "run", Nothing(), torch.ones(()))


def test_a_kernel_to_start_with_and_a_precision_are_for_one_program(tmp_path: Path):
    with pytest.raises(TaskError, match="cannot be captured"):
        optimized(tmp_path / "run", Gated(), LARGE, start="class ModelNew: ...\n")
    with pytest.raises(UsageError, match="judged as the program computes"):
        optimized(tmp_path / "run", Gated(), LARGE, precision="fp32")

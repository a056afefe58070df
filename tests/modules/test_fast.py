"""Who answers a call: the kernel inside its domain, the original everywhere else. The kernels here are
PyTorch's own operators under the name of one, so that only the dispatch is tried."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from egg.core.errors import UsageError
from egg.core.evaluation import Evaluation
from egg.core.policy import Precision
from egg.core.source import Candidate
from egg.modules import arithmetic, saving
from egg.modules import fast as dispatching
from egg.modules.capture import captured
from egg.modules.fast import GRADIENTS, Optimized
from egg.modules.outcome import Outcome
from tests import samples
from tests.modules.kinds import Answer, from_function

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
BREAKING = "class ModelNew(Model):\n    def forward(self, *inputs):\n        raise RuntimeError('lost')\n"
GUARDED = """
class ModelNew(Model):
    def admit(self, x):
        if x.shape[0] > 6:
            raise ValueError("batch_size is too large")

    def forward(self, x):
        self.admit(x)
        return super().forward(x)
"""


@pytest.fixture(autouse=True)
def kernels_run_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatching, "runs_on", lambda kind: True)


def optimized(
    module: nn.Module | Callable[..., Any],
    *args: Any,
    kernel: str = "class ModelNew(Model):\n    pass\n",
    evaluation: Evaluation | None = None,
    use_unmeasured: bool = True,
    **kwargs: Any,
) -> Optimized:
    """``module`` with a kernel that is its own capture, accepted."""
    live = dispatching.as_module(module)
    found = captured(live, args, kwargs)
    source = f"{found.task.source}\n\n{kernel}"
    judged = replace(
        evaluation or samples.compiled(),
        task_sha256=found.task.sha256,
        candidate_sha256=Candidate(source).sha256,
    )
    outcome = Outcome(found.task, source, judged, "accepted")
    return Optimized(live, found, outcome, use_unmeasured=use_unmeasured)


def block() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16)).eval()


@pytest.fixture
def module() -> nn.Sequential:
    return block()


@pytest.fixture
def fast(module: nn.Sequential) -> Optimized:
    return optimized(module, X)


def answers(fast: Optimized, *args: Any, **kwargs: Any) -> str:
    """Who answers a call: empty for the kernel, the reason for the original. The answer is the original's."""
    before = fast.stats()
    with torch.no_grad():
        torch.testing.assert_close(fast(*args, **kwargs), fast.original(*args, **kwargs))
    after = fast.stats()
    if after.kernel > before.kernel:
        return ""
    return next(reason for reason, count in after.reasons.items() if count > before.reasons.get(reason, 0))


# -- one module under two names ----------------------------------------------------------------------------


def test_it_shares_parameters_and_state(module: nn.Sequential, fast: Optimized) -> None:
    assert [id(p) for p in fast.parameters()] == [id(p) for p in module.parameters()]
    assert list(fast.state_dict()) == list(module.state_dict())
    assert not answers(fast, X)
    fast.load_state_dict(block().state_dict())
    assert not answers(fast, X)


def test_a_step_of_an_optimizer_is_seen(module: nn.Sequential, fast: Optimized) -> None:
    optimizer = torch.optim.SGD(fast.parameters(), lr=0.5)
    before = fast.original(X).detach()
    fast(X).square().sum().backward()
    optimizer.step()
    assert not answers(fast, X)
    assert not torch.allclose(fast(X), before)


def test_training_goes_through_the_original(module: nn.Sequential, fast: Optimized) -> None:
    twin = block()
    twin(X).square().sum().backward()
    fast(X).square().sum().backward()
    assert fast.stats().reasons == {GRADIENTS: 1}
    for mine, theirs in zip(fast.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_a_parameter_that_is_replaced_is_seen(module: nn.Sequential, fast: Optimized) -> None:
    assert not answers(fast, X)
    module[0].weight = nn.Parameter(torch.randn(16, 8))
    assert not answers(fast, X)
    fast[0].bias.data = torch.randn(16)
    assert not answers(fast, X)


def test_it_moves_with_the_original(module: nn.Sequential, fast: Optimized) -> None:
    fast.double()
    assert module[0].weight.dtype == torch.float64
    assert answers(fast, X.double()) == "an input is torch.float64, not torch.float32"
    module.float()
    assert not answers(fast, X)


def test_it_is_part_of_a_larger_model(fast: Optimized) -> None:
    whole = nn.Sequential(fast, nn.Linear(16, 2))
    assert "0.0.weight" in whole.state_dict()
    whole.load_state_dict(whole.state_dict())
    whole.train()
    assert fast.original.training


def test_attributes_are_those_of_the_original() -> None:
    fast = optimized(from_function(lambda self, x: x * self.scale, scale=2.0), X)
    assert fast.scale == 2.0
    fast.scale = 3.0
    assert answers(fast, X) == "scale was changed"


def test_it_can_be_copied_and_pickled(fast: Optimized) -> None:
    twin = copy.deepcopy(fast)
    assert twin[0].weight is not fast[0].weight
    assert not answers(twin, X)
    data = io.BytesIO()
    torch.save(fast, data)
    data.seek(0)
    assert not answers(torch.load(data, weights_only=False), X)


# -- reasons for the original ------------------------------------------------------------------------------


def test_other_sizes_where_the_program_permits_them(fast: Optimized) -> None:
    assert not answers(fast, torch.randn(7, 8))
    assert "0 or 1" in answers(fast, torch.randn(1, 8))
    assert "dimensions" in answers(fast, torch.randn(2, 3, 8))


def test_a_hook_is_run(fast: Optimized, module: nn.Sequential) -> None:
    handle = module[1].register_forward_hook(lambda part, given, found: found * 2)
    assert "hooks" in answers(fast, X)
    handle.remove()
    assert not answers(fast, X)


def test_a_part_that_is_replaced_is_used(fast: Optimized, module: nn.Sequential) -> None:
    module[1] = nn.ReLU()
    assert answers(fast, X) == "1 was replaced"


def test_the_mode_counts(fast: Optimized) -> None:
    fast.train()
    assert "training was changed" in answers(fast, X)
    fast.eval()
    assert not answers(fast, X)


def test_autocast_and_transforms_go_to_the_original(fast: Optimized) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert answers(fast, X) == "autocast is enabled"
    torch.vmap(fast, in_dims=0)(X)
    assert "a mode or a transform of PyTorch is active" in fast.stats().reasons


def test_options_are_part_of_the_program() -> None:
    module = from_function(lambda self, x, scale=2.0, *, power=1: (x * scale) ** power)
    fast = optimized(module, X, power=2)
    assert not answers(fast, X, power=2)
    assert not answers(fast, x=X, scale=2.0, power=2)
    assert answers(fast, X, power=3) == "an argument is 3, not 2"
    assert answers(fast, X, 2, power=2) == "an argument is 2, not 2.0"


def test_structures_are_rebuilt() -> None:
    module = from_function(lambda self, batch: Answer(batch["x"] * 2, batch["y"][0], count=3))
    fast = optimized(module, {"x": X, "y": [X + 1]})
    with torch.no_grad():
        found = fast({"x": X, "y": [X + 1]})
    assert isinstance(found, Answer)
    assert found.count == 3
    torch.testing.assert_close(found.hidden, X * 2)
    assert fast.stats().kernel == 1
    fast({"x": X, "y": [X + 1, X]})
    assert fast.stats().reasons == {"the arguments have another structure": 1}


def test_a_call_that_forward_does_not_take_is_an_error_of_the_modules_own() -> None:
    fast = optimized(from_function(lambda self, batch: batch["x"] * 2), {"x": X})
    with pytest.raises(TypeError):
        fast()
    with pytest.raises(TypeError):
        fast({"x": X}, other=1)


def test_a_program_that_switches_tf32_off_gets_no_kernel_judged_with_it(
    fast: Optimized, monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch.no_grad():
        fast(X)
        assert fast.stats().kernel == 1
        monkeypatch.setattr(arithmetic, "tf32_convolutions", lambda: False)
        torch.testing.assert_close(fast(X), fast.original(X))
    [reason] = fast.stats().reasons
    assert reason.startswith("TF32 is switched off")
    assert fast.stats().kernel == 1


def test_the_precision_follows_the_programs_own_switches() -> None:
    before = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    try:
        torch.backends.cudnn.allow_tf32 = True
        torch.set_float32_matmul_precision("highest")
        assert arithmetic.precision_here() is Precision.MATCH
        torch.set_float32_matmul_precision("high")
        assert arithmetic.precision_here() is Precision.TF32
        torch.backends.cudnn.allow_tf32 = False
        assert arithmetic.precision_here() is Precision.FP32
        assert arithmetic.is_coarser(Precision.MATCH)
        assert not arithmetic.is_coarser(Precision.FP32)
    finally:
        torch.backends.cudnn.allow_tf32 = before[0]
        torch.set_float32_matmul_precision(before[1])


def test_an_input_that_is_returned_is_the_same_tensor() -> None:
    fast = optimized(from_function(lambda self, x: (x, x.cos())), X)
    with torch.no_grad():
        assert fast(X)[0] is X
    assert fast.stats().kernel == 1


def test_one_tensor_twice_is_another_program() -> None:
    fast = optimized(from_function(lambda self, a, b: a * 2 if a is b else a + b), X, X)
    assert not answers(fast, X, X)
    assert "one and the same" in answers(fast, X, X + 1)


def test_buffers_change_as_the_original_s_do() -> None:
    torch.manual_seed(0)
    module = nn.BatchNorm1d(8).train()
    twin = copy.deepcopy(module)
    fast = optimized(module, X)
    for parameter in fast.parameters():
        parameter.requires_grad_(False)
    torch.testing.assert_close(fast(X), twin(X))
    assert fast.stats().kernel == 1
    torch.testing.assert_close(module.state_dict(), twin.state_dict())


def test_an_input_that_is_changed_in_place_is_changed() -> None:
    def forward(self: Any, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x[:, 0] = 0
        return x.mul_(2), y + x

    fast = optimized(from_function(forward), X.clone(), X)
    mine, theirs = X.clone(), X.clone()
    with torch.no_grad():
        found, expected = fast(mine, X), fast.original(theirs, X)
    torch.testing.assert_close([mine, *found], [theirs, *expected])
    assert found[0] is mine
    assert fast.stats().kernel == 1


def test_a_cache_is_written_in_place_and_not_copied() -> None:
    def forward(self: Any, x: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
        cache.index_copy_(0, slots, x * 2)

    cache, slots = torch.zeros(64, X.shape[1]), torch.randperm(64)[: len(X)]
    fast = optimized(from_function(forward), X, cache.clone(), slots)
    assert "clone" not in fast.captured.task.source
    assert "randperm" in fast.captured.task.source, "places that differ stay so"
    mine, theirs = cache.clone(), cache.clone()
    with torch.no_grad():
        assert fast(X, mine, slots) is fast.original(X, theirs, slots) is None
    assert torch.equal(mine, theirs)
    assert fast.stats().kernel == 1


def test_no_memory_in_the_middle_of_a_write_is_the_caller_s_to_know() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2) + 1

    kernel = """class ModelNew(Model):
    def forward(self, x):
        x.mul_(2)
        raise torch.OutOfMemoryError("no memory")
"""
    fast = optimized(from_function(forward), X.clone(), kernel=kernel)
    with pytest.raises(torch.OutOfMemoryError), torch.no_grad():
        fast(X.clone())


def test_tied_weights_stay_one() -> None:
    first, second = nn.Linear(8, 8), nn.Linear(8, 8)
    second.weight = first.weight
    fast = optimized(nn.Sequential(first, second), X)
    assert not answers(fast, X)
    second.weight = nn.Parameter(torch.randn(8, 8))
    assert answers(fast, X) == "tied weights are no longer one"


def test_the_guard_of_the_file_is_a_reason(module: nn.Sequential) -> None:
    fast = optimized(module, X, kernel=GUARDED)
    assert answers(fast, torch.randn(7, 8)) == "outside the kernel's domain: batch_size is too large"
    assert not answers(fast, X)


def test_a_kernel_that_fails_is_put_out_of_use(module: nn.Sequential) -> None:
    fast = optimized(module, X, kernel=BREAKING)
    assert answers(fast, X) == "the kernel failed and is out of use: RuntimeError: lost"
    assert "RuntimeError: lost" in fast.stats().failure
    assert answers(fast, X)
    assert fast.stats().kernel == 0


def test_a_kernel_that_fails_on_its_way_through_state_is_not_hidden() -> None:
    fast = optimized(nn.BatchNorm1d(8).train().requires_grad_(False), X, kernel=BREAKING)
    with pytest.raises(RuntimeError, match="lost"):
        fast(X)


# -- what a kernel is worth --------------------------------------------------------------------------------


def test_a_kernel_without_a_measured_speed_is_not_used_unasked(module: nn.Sequential) -> None:
    fast = optimized(module, X, use_unmeasured=False)
    assert answers(fast, X) == "the kernel's speed is not known: no GPU measured it"
    assert fast.result.verdict == "unmeasured"


def test_a_slower_kernel_is_not_used(module: nn.Sequential) -> None:
    fast = optimized(module, X, evaluation=samples.measured(0.9, faster=False), use_unmeasured=False)
    assert answers(fast, X) == "the kernel is not faster than torch.compile"


def test_faster_means_faster_than_the_best_of_pytorch(module: nn.Sequential) -> None:
    """1.2 times as fast as eager is 0.96 times as fast as torch.compile in this sample."""
    fast = optimized(module, X, evaluation=samples.measured(1.2), use_unmeasured=False)
    assert fast.result.faster is False
    assert answers(fast, X) == "the kernel is not faster than torch.compile"
    assert (
        "torch.compile, the fastest that PyTorch was measured at"
        in dict(fast.result.rows())["not faster than"]
    )
    assert optimized(module, X, evaluation=samples.measured(1.8)).result.faster is True


def test_a_measurement_is_for_its_gpu(module: nn.Sequential) -> None:
    fast = optimized(module, X, evaluation=samples.measured(), use_unmeasured=False)
    assert answers(fast, X) == "it was measured on NVIDIA H200, and this is cpu"
    assert "1.80x" in str(fast.result)
    assert "<table>" in fast.result._repr_html_()


# -- kept in a folder --------------------------------------------------------------------------------------


def loaded(folder: Path, module: nn.Module) -> Optimized:
    return Optimized(module, *saving.load(folder, module), use_unmeasured=True)


def test_saved_and_loaded(fast: Optimized, tmp_path: Path) -> None:
    folder = fast.save(tmp_path / "kept")
    other = block()
    with torch.no_grad():
        other[0].weight.mul_(2)
    again = loaded(folder, other)
    assert not answers(again, X)
    assert again.result.verified


def test_structures_and_constants_are_saved(tmp_path: Path) -> None:
    def build() -> nn.Module:
        made = from_function(forward)
        made.__dict__["table"] = torch.linspace(0, 1, 8)
        return made

    def forward(self: Any, a: Answer, how: str = "x") -> dict[str, Any]:
        return {"y": a.hidden * self.table, "count": a.count}

    fast = optimized(build(), Answer(X, None, 2))
    again = loaded(fast.save(tmp_path / "kept"), build())
    with torch.no_grad():
        torch.testing.assert_close(again(Answer(X, None, 2))["y"], X * torch.linspace(0, 1, 8))
    assert again.stats().kernel == 1


@pytest.mark.parametrize("name", ["kernel.py", "task.py"])
def test_files_that_were_not_verified_are_refused(fast: Optimized, tmp_path: Path, name: str) -> None:
    folder = fast.save(tmp_path / "kept")
    (folder / name).write_text((folder / name).read_text() + "\n# changed\n")
    with pytest.raises(UsageError, match="not those that were verified"):
        loaded(folder, block())


def test_a_folder_is_for_modules_built_alike(fast: Optimized, tmp_path: Path) -> None:
    folder = fast.save(tmp_path / "kept")
    other = nn.Sequential(nn.Linear(8, 16), nn.GELU("tanh"), nn.LayerNorm(16))
    with pytest.raises(UsageError, match="built otherwise"):
        loaded(folder, other)
    with pytest.raises(UsageError, match="no saved kernel"):
        loaded(tmp_path / "nowhere", other)

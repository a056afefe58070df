"""A compiled graph replayed as a CUDA graph: the same answers as without, whatever changes between calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from egg.modules import replayable as text
from egg.modules.counts import Counts
from egg.modules.replay import Replayed
from egg.modules.replayable import Inputs
from tests.modules.fake_gpu import FakeGpu, fake_gpu


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    return fake_gpu(monkeypatch)


def linear(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor]:
    return (torch.relu(x @ weight),)


def test_every_call_is_answered_and_results_are_the_callers(gpu: FakeGpu):
    weight = torch.randn(3, 3)
    run = Replayed(linear, Inputs(fixed=(1,)))
    inputs = [torch.randn(2, 3) for _ in range(5)]
    answers = [run(x, weight)[0] for x in inputs]
    for x, answer in zip(inputs, answers, strict=True):
        torch.testing.assert_close(answer, linear(x, weight)[0])
    assert (gpu.recordings, gpu.replays, run.obstacle) == (1, 4, "")


def test_a_new_value_of_a_weight_counts_and_a_weight_elsewhere_is_recorded_anew(gpu: FakeGpu):
    weight, x = torch.randn(3, 3), torch.randn(2, 3)
    run = Replayed(linear, Inputs(fixed=(1,)))
    for _ in range(3):
        run(x, weight)
    weight.mul_(3)
    torch.testing.assert_close(run(x, weight), linear(x, weight))
    assert gpu.recordings == 1
    other = torch.randn(3, 3)
    for _ in range(3):
        torch.testing.assert_close(run(x, other), linear(x, other))
    assert gpu.recordings == 2


def test_what_kernels_keep_of_a_weight_is_derived_again_when_it_changes(gpu: FakeGpu):
    """A kernel that packs its weight on the host, by version, and would not be asked in a replay."""
    kept: dict[int, torch.Tensor] = {}
    counts = Counts()

    def kernel(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor]:
        counts.kernel += 1
        if weight._version not in kept:
            kept[weight._version] = weight.t().contiguous()
        return (F.linear(x, kept[weight._version]),)

    weight, x = torch.randn(3, 3), torch.randn(2, 3)
    run = Replayed(kernel, Inputs(fixed=(1,)), [counts])
    for _ in range(3):
        torch.testing.assert_close(run(x, weight), (x @ weight,))
    weight.add_(1)
    for _ in range(3):
        torch.testing.assert_close(run(x, weight), (x @ weight,))
    assert (gpu.recordings, counts.kernel) == (2, 6)
    recordings = gpu.recordings
    for _ in range(4):
        weight.add_(1)
        torch.testing.assert_close(run(x, weight), (x @ weight,))
    assert gpu.recordings == recordings


def test_a_buffer_that_is_changed_in_place_changes_once_at_every_call(gpu: FakeGpu):
    def step(x: torch.Tensor, cache: torch.Tensor) -> tuple[torch.Tensor]:
        cache.add_(x)
        return (cache * 2,)

    cache, seen = torch.zeros(3), 0
    run = Replayed(step, Inputs(fixed=(1,), written=(1,)), [Counts()])
    for value in range(1, 6):
        before = cache._version
        seen += value
        torch.testing.assert_close(
            run(torch.full((3,), float(value)), cache)[0], torch.full((3,), 2.0 * seen)
        )
        assert cache._version > before
    assert gpu.recordings == 1


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        (lambda x: (x + 1, x.sum()), ""),
        (lambda x: (x + 1, x), "share memory"),
        (lambda x: (x.view(-1),), "share memory"),
        (lambda x: (lambda y: (y, y.T))(x + 1), "share memory"),
        (lambda x: ((x + 1)[0, 0].expand(3),), "repeats"),
        (lambda x: ([x + 1],), "nested"),
    ],
)
def test_results_that_a_copy_would_not_stand_for_are_not_replayed(gpu: FakeGpu, results: Any, reason: str):
    run = Replayed(results, Inputs())
    for _ in range(3):
        run(torch.ones(2, 3))
    assert reason in run.obstacle
    assert (gpu.recordings == 1) == (not reason)


def test_results_keep_their_strides(gpu: FakeGpu):
    run = Replayed(lambda x: ((x + 1).t()[:, ::2],), Inputs())
    x = torch.randn(4, 3)
    assert {run(x)[0].stride() for _ in range(3)} == {(x + 1).t()[:, ::2].stride()}


def test_expanded_inputs_are_copied_once(gpu: FakeGpu):
    run = Replayed(lambda x: (x * 2,), Inputs())
    for value in range(4):
        x = torch.full((1, 3), float(value)).expand(2, 3)
        torch.testing.assert_close(run(x), (x * 2,))
    assert gpu.recordings == 1


def test_random_numbers_and_failed_recordings_leave_the_graph_as_it_is(gpu: FakeGpu):
    def draws(x: torch.Tensor) -> tuple[torch.Tensor]:
        gpu.draws += 1
        return (x + 1,)

    run = Replayed(draws, Inputs())
    for _ in range(3):
        run(torch.ones(2))
    assert (run.obstacle, gpu.draws, gpu.recordings) == ("it draws random numbers", 3, 0)
    for error, reason in (
        (torch.OutOfMemoryError("no"), "no memory"),
        (RuntimeError("operation not permitted when stream is capturing"), "not permitted"),
    ):
        gpu.fails = error
        run = Replayed(lambda x: (x + 1,), Inputs())
        for _ in range(3):
            torch.testing.assert_close(run(torch.ones(2)), (torch.full((2,), 2.0),))
        assert reason in run.obstacle


def test_inside_a_recording_of_the_caller_it_is_launched(gpu: FakeGpu):
    run = Replayed(lambda x: (x + 1,), Inputs())
    for _ in range(3):
        run(torch.ones(2))
    outer: Any = torch.cuda.CUDAGraph()
    outer.capture_begin(capture_error_mode="thread_local")
    run(torch.ones(2))
    outer.capture_end()
    assert gpu.replays == 2


# -- what the text of a graph says ---------------------------------------------------------------------


class Buffered(nn.Module):
    def __init__(self, step: Callable[..., Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("total", torch.zeros(4))
        self.step = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.step(self, x)


def _total(module: Any, x: torch.Tensor) -> torch.Tensor:
    module.total.add_(x)
    return module.total * module.weight


def _own_sum(module: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * module.weight
    y += 1
    return y


def _argument(module: Any, x: torch.Tensor) -> torch.Tensor:
    x.view(2, 2)[0] = 0
    return x * module.weight


def _constant(module: Any, x: torch.Tensor) -> torch.Tensor:
    module.total.add_(x * torch.tensor([1.0, 2.0, 3.0, 4.0]))
    return module.total * module.weight


def _relu(module: Any, x: torch.Tensor) -> torch.Tensor:
    return F.relu(x, inplace=True) * module.weight


@pytest.mark.parametrize(
    ("step", "fixed", "written", "reason"),
    [
        (lambda m, x: x * m.weight, 1, 0, ""),
        (_own_sum, 1, 0, ""),
        (_total, 2, 1, ""),
        (_constant, 2, 1, ""),
        (_argument, 0, 0, "changes an input in place"),
        (_relu, 0, 0, "changes an input in place"),
        (lambda m, x: x * m.weight + torch.arange(4), 0, 0, "on the CPU"),
    ],
)
def test_the_text_shows_what_is_written_and_what_is_elsewhere(monkeypatch, step, fixed, written, reason):
    monkeypatch.setattr(text, "_elsewhere", lambda inputs: "")
    if "CPU" not in reason:
        monkeypatch.setattr(text, "_foreign", lambda graph: iter(()))
    found: list[Inputs] = []

    def look(graph: Any, inputs: Any) -> Any:
        found.append(text.replayable(graph, inputs))
        return graph.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(Buffered(step), backend=look)(torch.ones(4))
    (inputs,) = found
    assert reason in inputs.obstacle
    assert (len(inputs.fixed), len(inputs.written), not inputs.obstacle) == (fixed, written, not reason)


def test_inputs_of_the_cpu_are_not_replayed():
    found: list[Inputs] = []

    def look(graph: Any, inputs: Any) -> Any:
        found.append(text.replayable(graph, inputs))
        return graph.forward

    torch._dynamo.reset()
    torch.compile(lambda x: x + 1, backend=look)(torch.ones(4))
    assert found[0].obstacle == "its inputs are not all on one GPU"

"""The forms of a graph take turns on its first calls, and the fastest one stays."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from egg.modules.replay import Replayed
from egg.modules.replayable import Inputs
from egg.modules.trial import (
    EAGER,
    EAGER_REPLAYED,
    FORMS,
    KERNELS,
    KERNELS_EAGER_REPLAYED,
    KERNELS_REPLAYED,
    MOST_CALLS,
    PLAIN,
    REPLAYED,
    WARM,
    Form,
    Trial,
    Verdict,
    faster,
)
from tests.modules.fake_gpu import FakeGpu, fake_gpu


class Tried:
    """A trial of forms that take so long, and what came of it."""

    def __init__(self, gpu: FakeGpu, seconds: Mapping[Form, Callable[[], float]]) -> None:
        self.gpu = gpu
        self.calls: list[Form] = []
        self.verdicts: list[Verdict] = []
        forms = {form: self._form(form, taken) for form, taken in seconds.items()}
        self.trial = Trial(forms, self.verdicts.append)

    def _form(self, form: Form, taken: Callable[[], float]) -> Any:
        def call(x: int) -> int:
            self.gpu.now += taken()
            self.calls.append(form)
            return x

        return call

    def run(self) -> Verdict:
        count = 0
        while not self.verdicts:
            assert self.trial(count) == count
            count += 1
            assert count == len(self.calls) <= MOST_CALLS
        self.calls.clear()
        assert [self.trial(x) for x in range(5)] == list(range(5))
        assert set(self.calls) == {self.verdicts[0].form}
        return self.verdicts[0]


def steady(seconds: Mapping[Form, float]) -> dict[Form, Callable[[], float]]:
    return {form: lambda taken=taken: taken for form, taken in seconds.items()}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    return fake_gpu(monkeypatch)


@pytest.mark.parametrize(
    ("seconds", "kept", "ratio"),
    [
        ({PLAIN: 1.0, KERNELS: 0.5}, KERNELS, 2.0),
        ({PLAIN: 1.0, KERNELS: 1.0}, PLAIN, 1.0),
        ({PLAIN: 1.0, KERNELS: 2.0}, PLAIN, 1.0),
        ({PLAIN: 1.0, EAGER: 0.7, REPLAYED: 0.97}, EAGER, 1 / 0.7),
        ({PLAIN: 1.0, EAGER: 0.995}, PLAIN, 1.0),
        ({PLAIN: 1.0, EAGER: 0.7, EAGER_REPLAYED: 0.6}, EAGER_REPLAYED, 1 / 0.6),
        ({PLAIN: 1.0, KERNELS: 0.8, REPLAYED: 0.9}, KERNELS, 1.25),
        ({PLAIN: 1.0, KERNELS: 0.8, REPLAYED: 0.5}, REPLAYED, 2.0),
        ({PLAIN: 1.0, KERNELS: 1.2, REPLAYED: 0.5, KERNELS_REPLAYED: 0.4}, KERNELS_REPLAYED, 2.5),
        ({PLAIN: 1.0, KERNELS_EAGER_REPLAYED: 0.5, KERNELS_REPLAYED: 0.5}, KERNELS_EAGER_REPLAYED, 2.0),
        ({PLAIN: 1.0, REPLAYED: 0.995, KERNELS: 0.987}, PLAIN, 1.0),
        ({PLAIN: 1.0, REPLAYED: 0.995, KERNELS: 0.98}, KERNELS, 1 / 0.98),
    ],
)
def test_every_call_is_computed_once_and_the_fastest_form_stays(gpu: FakeGpu, seconds, kept, ratio):
    verdict = Tried(gpu, steady(seconds)).run()
    assert (verdict.form, verdict.ratio) == (kept, pytest.approx(ratio))


def test_no_form_runs_behind_the_same_one_in_every_round(gpu: FakeGpu):
    """What ran before may leave the GPU slower, or faster: here a form is faster behind EAGER."""
    taken = {PLAIN: 1.0, REPLAYED: 1.0, EAGER: 1.0, KERNELS: 1.0}
    before: list[Form] = [PLAIN]

    def call(form: Form) -> Callable[[], float]:
        def run() -> float:
            (last,), before[:] = before, [form]
            return taken[form] * (0.9 if last == EAGER and form != EAGER else 1.0)

        return run

    verdict = Tried(gpu, {form: call(form) for form in taken}).run()
    assert verdict.form == PLAIN


def test_forms_that_are_far_behind_get_few_calls(gpu: FakeGpu):
    seconds = dict.fromkeys(FORMS, 9.0) | {PLAIN: 1.0, REPLAYED: 0.9}
    tried = Tried(gpu, steady(seconds))
    verdict = tried.run()
    assert {form: len(times) for form, times in verdict.times.items() if form not in (PLAIN, REPLAYED)} == {
        form: 3 for form in FORMS if form not in (PLAIN, REPLAYED)
    }
    assert len(verdict.times[REPLAYED]) > 3


@pytest.mark.parametrize("seed", range(5))
def test_a_busy_machine_delays_all_forms_alike(gpu: FakeGpu, seed: int):
    """Now and then everything takes twice as long for some rounds: the faster form is faster all the same."""
    draw = random.Random(seed)
    busy = [draw.random() < 0.3 for _ in range(1000)]

    def taken(base: float) -> Callable[[], float]:
        def call() -> float:
            now = busy[int(gpu.now / 4) % len(busy)]
            return base * (2.0 if now else 1.0) * draw.uniform(1.0, 1.02)

        return call

    assert Tried(gpu, {PLAIN: taken(1.0), REPLAYED: taken(0.85)}).run().form == REPLAYED
    assert Tried(gpu, {PLAIN: taken(1.0), REPLAYED: taken(1.0)}).run().form == PLAIN


def test_a_form_that_fails_is_given_up_and_the_plain_one_answers(gpu: FakeGpu):
    def fails(x: torch.Tensor) -> Any:
        raise torch.OutOfMemoryError("too large")

    verdicts: list[Verdict] = []
    forms = {PLAIN: lambda x: x + 1, EAGER: fails, KERNELS: lambda x: x + 1}
    trial = Trial(forms, verdicts.append)
    while not verdicts:
        assert trial(torch.ones(1)).item() == 2
        gpu.now += 1
    assert verdicts[0].given_up == {EAGER: "OutOfMemoryError: too large"}
    assert EAGER not in verdicts[0].times


def test_a_form_that_fails_after_it_changed_an_input_is_the_callers_error(gpu: FakeGpu):
    def fails(x: torch.Tensor) -> Any:
        x.add_(1)
        raise ValueError("half way")

    trial = Trial({PLAIN: lambda x: x, EAGER: fails}, lambda verdict: None)
    for _ in range(WARM):
        trial(torch.ones(1))
    with pytest.raises(ValueError, match="half way"):
        trial(torch.ones(1))


def test_a_graph_that_cannot_be_replayed_is_not_timed_as_such(gpu: FakeGpu):
    shared = lambda x: (x, x.view(-1))  # noqa: E731
    verdicts: list[Verdict] = []
    trial = Trial({PLAIN: shared, REPLAYED: Replayed(shared, Inputs())}, verdicts.append)
    while not verdicts:
        trial(torch.ones(2, 3))
        gpu.now += 1
    assert verdicts[0].given_up == {REPLAYED: "results of it share memory"}
    assert (verdicts[0].form, gpu.recordings) == (PLAIN, 0)


def test_a_recording_that_lost_is_released(gpu: FakeGpu):
    call = lambda x: (x + 1,)  # noqa: E731
    replayed = Replayed(call, Inputs())
    kept = weakref.ref(replayed)
    verdicts: list[Verdict] = []

    def slower(x: torch.Tensor) -> Any:
        gpu.now += 1
        return call(x)

    trial = Trial({PLAIN: call, REPLAYED: replayed, EAGER: slower}, verdicts.append)
    del replayed
    while not verdicts:
        trial(torch.ones(2))
        gpu.now += 1
    assert verdicts[0].form == PLAIN
    assert kept() is None


def test_calls_that_the_caller_records_are_plain(gpu: FakeGpu):
    tried = Tried(gpu, steady({PLAIN: 1.0, EAGER: 0.5}))
    gpu.recording = torch.cuda.CUDAGraph()  # type: ignore[assignment]
    for x in range(50):
        tried.trial(x)
    assert set(tried.calls) == {PLAIN}
    assert not tried.verdicts


def test_a_gain_within_the_noise_is_none():
    even = [1.0] * 10
    assert faster([0.5] * 10, even)
    assert not faster([0.995] * 10, even)
    assert not faster([0.9] * 5 + [1.5] * 5, even)

"""How much the judge holds at once, as a multiple of a question's inputs and outputs together.

A task whose tensors fill a tenth of the GPU can be judged only if few copies of them exist at a
time. Every tensor made while a trial goes through the gates is counted as long as its storage
lives, on the oracle's side and on the candidate's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from egg.core.policy import Level, Policy, Precision
from egg.core.source import Candidate, Task
from egg.evaluator.compare import bands, scales
from egg.evaluator.gates import build, clock, correctness, many, plausibility, provenance, state, timing
from egg.evaluator.reference import reserve
from egg.evaluator.reference.reference import Reference
from egg.evaluator.restrict.names import CANDIDATE_FILE
from egg.evaluator.task.program import Program
from egg.evaluator.tensors import memory
from egg.evaluator.timing import stopwatch
from egg.evaluator.timing.opponents import Opponents
from egg.evaluator.transport.protocol import Request
from egg.evaluator.trial import deferred
from egg.evaluator.trial.levels import LEVELS
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial
from egg.evaluator.worker import hostreads
from egg.hardware.gpus import resolve
from tests.evaluator.test_timing_gates import LocalWorker, WallEvent

ORACLE, CANDIDATE = 5.6, 3.0
"""The multiples aimed at, five and three, and a little for what is looked at in pieces."""

TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, *inputs):
        x, y = inputs[0], inputs[-1]
        return {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""

KERNEL = """
import numpy
import torch
from torch import nn

SKIPPED = False

class ModelNew(nn.Module):
    def forward(self, *inputs):
        x, y = inputs[0].numpy(), inputs[-1].numpy()
        out = torch.empty({shape})
        if not SKIPPED:
            {kernel}
        return out
"""

SHAPES = {
    "as much out as in": (
        "torch.relu(x)",
        "torch.randn(256, 512)",
        "x.shape",
        "numpy.maximum(x, 0, out=out.numpy())",
    ),
    "much in": ("x.amax(1)", "torch.randn(256, 1024)", "x.shape[0]", "numpy.amax(x, 1, out=out.numpy())"),
    "much out": (
        "torch.outer(x, y)",
        "torch.randn(256), torch.randn(1024)",
        "(x.shape[0], y.shape[0])",
        "numpy.outer(x, y, out=out.numpy())",
    ),
}
"""The reference's answer, the inputs, the output's shape, and the candidate's kernel."""


class LiveBytes(TorchDispatchMode):
    """Bytes of all storages made while it is active and still alive, and the most there ever were."""

    def __init__(self) -> None:
        super().__init__()
        self.side = "oracle"
        self.live: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()
        self._known: set[int] = set()

    @contextlib.contextmanager
    def on_the_other_side(self) -> Iterator[None]:
        self.side = "candidate"
        try:
            yield
        finally:
            self.side = "oracle"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {storage._cdata for storage in _storages((args, kwargs))}
        for storage in _storages(result):
            if storage._cdata not in given | self._known:
                self._known.add(storage._cdata)
                self.live[self.side] += storage.nbytes()
                weakref.finalize(storage, self._gone, self.side, storage._cdata, storage.nbytes())
        self.peak[self.side] = max(self.peak[self.side], self.live[self.side])
        return result

    def _gone(self, side: str, key: int, nbytes: int) -> None:
        self._known.discard(key)
        self.live[side] -= nbytes


def _storages(values: Any) -> list[torch.UntypedStorage]:
    tensors = (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))
    return [t.untyped_storage() for t in tensors if t.device.type == "cpu"]


class Switch:
    """Stands in for the watch over launches: the candidate's kernel is a line it can leave out."""

    def counts(self) -> dict[str, int]:
        return {"kernel": 1}

    def work(self) -> dict[str, int]:
        return self.counts()

    def numbers(self) -> list[tuple[str, str]]:
        return []

    def reset(self) -> None:
        pass

    def skip(self, kernels: set[str]) -> None:
        for module in list(sys.modules.values()):
            if str(getattr(module, "__file__", "")).endswith(CANDIDATE_FILE):
                module.SKIPPED = bool(kernels)  # type: ignore[attr-defined]


class CountedWorker(LocalWorker):
    """A session whose tensors are the other side's."""

    def __init__(self, counted: LiveBytes) -> None:
        super().__init__()
        self._session._launches = Switch()
        self._counted = counted

    def ask(self, request: Request[Any], timeout: float, fds: tuple[int, ...] = ()) -> Any:
        with self._counted.on_the_other_side():
            return super().ask(request, timeout, fds)


class CountedForkServer:
    def __init__(self, counted: LiveBytes) -> None:
        self._counted = counted

    def worker(self, *, fence: bool = False) -> CountedWorker:
        return CountedWorker(self._counted)

    def prepare(self) -> None:
        pass


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """A rehearsal in kilobytes: pieces as small in comparison, and the host's clock for the device's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(memory, "CHUNK", 1 << 13)
    monkeypatch.setattr(bands, "SAMPLE", 1 << 10)
    monkeypatch.setattr(scales, "MOST_SLICES", 1 << 5)
    monkeypatch.setattr(scales, "MOST_IN_SLICE", 1 << 5)
    monkeypatch.setattr(hostreads, "WHOLE", frozenset())  # numpy stands in for a kernel
    monkeypatch.setattr(deferred, "DEFERRED_BYTES", 0)
    monkeypatch.setattr(many, "HELD_BYTES", 0)
    monkeypatch.setattr(reserve, "RESERVE_BYTES", 0)
    monkeypatch.setattr(stopwatch, "_Event", WallEvent)
    monkeypatch.setattr(stopwatch, "_synchronize", lambda device: None)
    monkeypatch.setattr(stopwatch, "FLUSH_BYTES", 64)
    monkeypatch.setattr(torch.cuda, "Event", WallEvent)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    monkeypatch.setattr(clock, "MILLISECONDS", 0.1)
    monkeypatch.setattr(clock, "ATTEMPTS", 1)
    monkeypatch.setattr(clock, "TOLERANCE", 0.0)  # how long it takes here is of no interest


def trial_of(shape: str, counted: LiveBytes, **settings: Any) -> Trial:
    forward, inputs, out, kernel = SHAPES[shape]
    program = Program.load(Task("large", TASK.format(forward=forward, inputs=inputs)))
    cpu = torch.device("cpu")
    brief = dataclasses.replace(LEVELS[Level.QUICK], opponents=("eager",), rounds=1, seeds=1, input_sets=1)
    return Trial(
        Reference(program, Precision.MATCH, cpu),
        Candidate(KERNEL.format(shape=out, kernel=kernel)),
        Policy(level=Level.QUICK),
        dataclasses.replace(brief, round_milliseconds=0.1, **settings),
        CountedForkServer(counted),  # pyright: ignore[reportArgumentType]
        gpu=resolve("H200"),
        opponents=Opponents(program, Precision.MATCH, cpu),
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_few_copies_of_a_question_exist_at_a_time(shape: str, small_pieces: None) -> None:
    gates = (build, provenance, correctness, state, timing, clock, plausibility)
    peaks: dict[str, Counter[str]] = {}
    with LiveBytes() as counted:
        trial_of(shape, counted).close()  # what PyTorch imports on first use leaves frames behind
    gc.collect()
    gc.disable()  # a GPU that fills up brings no collection about
    try:
        with LiveBytes() as counted:
            trial = trial_of(shape, counted)
            peaks["setting up"] = counted.peak.copy()
            try:
                for gate in gates:
                    counted.peak.clear()
                    gate.run(trial)
                    peaks[gate.__name__.rsplit(".", 1)[-1]] = counted.peak.copy()
            finally:
                trial.close()
    finally:
        gc.enable()
    question = trial.buffers.bytes_per_call
    inputs = sum(t.numel() * t.element_size() for t in trial.reference.sample.tensors)
    # shared memory is the oracle's, and on a GPU a candidate has the inputs in memory of its own
    oracle = {gate: peak["oracle"] / question + 1 for gate, peak in peaks.items()}
    candidate = {gate: (peak["candidate"] + inputs) / question for gate, peak in peaks.items()}
    assert max(oracle.values()) <= ORACLE, oracle
    assert max(candidate.values()) <= CANDIDATE, candidate
    assert counted.live["oracle"] <= 0.2 * question, "something is kept between the gates"


def test_a_reference_that_returns_a_view_of_its_input_is_probed_too(
    small_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned = ("x.t()", "torch.randn(8, 16)", "(16, 8)", "out.numpy()[:] = x.T")
    monkeypatch.setitem(SHAPES, "a view", turned)
    trial = trial_of("a view", LiveBytes())
    build.run(trial)
    notes = state.run(trial)
    assert (notes["deterministic"], notes["probed"], notes["buffers"]) == (True, 4, [])
    assert notes["calls"] >= 3
    trial.close()


def test_nothing_is_left_of_a_refusal_nor_of_an_fp64_run_without_memory(
    small_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SHAPES, "wrong", (*SHAPES["as much out as in"][:3], "out.zero_()"))
    no_memory = "x.relu() if x.dtype != torch.float64 else torch.ones(1 << 60)"
    monkeypatch.setitem(SHAPES, "no fp64", (no_memory, *SHAPES["as much out as in"][1:]))
    monkeypatch.setattr(torch, "ones", _no_memory)
    monkeypatch.setattr(memory, "collect", lambda device: None)
    with LiveBytes() as counted:
        trial_of("wrong", counted).close()
    gc.collect()
    gc.disable()
    try:
        with LiveBytes() as counted:
            wrong, without = trial_of("wrong", counted), trial_of("no fp64", counted)
            build.run(wrong)
            with contextlib.suppress(Refused):
                state.run(wrong)
                pytest.fail("zeros are not the answer")
            assert counted.live["oracle"] == 0
            build.run(without)
            correctness.run(without)
            assert counted.live["oracle"] == 0
            assert "no fp64 run (out of memory" in " ".join(without.warnings)
        wrong.close()
        without.close()
    finally:
        gc.enable()


def _no_memory(*_: Any) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_large_questions_get_one_set_of_inputs_and_small_ones_all(
    small_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = 2 * 256 * 512 * 4
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    for free, sets in ((9 * one, 1), (17 * one, 2), (100 * one, 3), (one, 1)):
        monkeypatch.setattr(memory, "free_bytes", lambda device, free=free: free)
        trial = trial_of("as much out as in", LiveBytes(), input_sets=3)
        assert len(trial.buffers.sets) == sets
        trial.close()

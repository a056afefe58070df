"""Fenced memory: where tensors lie in it, what becomes of what it notices, and, on a GPU, that it catches."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.core.evaluation import Gate, Rejected
from egg.core.policy import Level, Policy
from egg.core.source import Candidate, Task
from egg.evaluator.gates import fence as gate
from egg.evaluator.judge.oracle import Oracle
from egg.evaluator.judge.question import Question
from egg.evaluator.process.handle import Fault
from egg.evaluator.transport.protocol import Fence as FenceRequest
from egg.evaluator.transport.protocol import FenceReport
from egg.evaluator.trial.levels import LEVELS
from egg.evaluator.trial.refused import Refused
from egg.evaluator.worker.fence import ALIGNMENT, CANARY, Arrangement, DriverError, Fence, placed
from tests.corpus.corpus import load_corpus

GRANULE = 2 << 20


@given(st.integers(1, 1 << 40), st.sampled_from(list(Arrangement)))
def test_a_tensor_lies_at_an_end_of_its_mapping_and_is_aligned(size: int, arrangement: Arrangement):
    place = placed(size, GRANULE, arrangement)
    assert place.mapped % GRANULE == 0
    assert 0 <= place.mapped - size < GRANULE + ALIGNMENT
    assert place.offset % ALIGNMENT == 0
    assert place.offset + size <= place.mapped
    if arrangement is Arrangement.START:
        assert (place.offset, place.slack) == (0, 0)
    else:
        assert place.offset + size + place.slack == place.mapped
        assert 0 <= place.slack < ALIGNMENT


def test_nothing_cannot_be_placed():
    with pytest.raises(ValueError, match="nothing"):
        placed(0, GRANULE, Arrangement.END)


class Memory:
    """A driver that keeps bytes of mapped ranges, and knows no others."""

    def __init__(self, granules: int = 1000) -> None:
        self.left = granules
        self.mapped: dict[int, bytearray] = {}
        self.reserved: dict[int, int] = {}
        self._next = 1 << 30

    def call(self, name: str, *arguments: Any) -> None:
        getattr(self, name)(*arguments)

    def cuMemGetAllocationGranularity(self, out: Any, *_: Any) -> None:
        out._obj.value = GRANULE

    def cuThreadExchangeStreamCaptureMode(self, *_: Any) -> None:
        pass

    cuMemSetAccess = cuCtxSynchronize = cuMemRelease = cuThreadExchangeStreamCaptureMode

    def cuMemCreate(self, handle: Any, size: int, *_: Any) -> None:
        if size // GRANULE > self.left:
            raise DriverError("cuMemCreate", 2)
        self.left -= size // GRANULE
        handle._obj.value = 7

    def cuMemAddressReserve(self, out: Any, span: int, *_: Any) -> None:
        out._obj.value, self.reserved[self._next] = self._next, span
        self._next += span

    def cuMemMap(self, base: int, size: int, *_: Any) -> None:
        assert any(start < base and base + size < start + span for start, span in self.reserved.items())
        self.mapped[base] = bytearray(size)

    def cuMemUnmap(self, base: int, size: int) -> None:
        assert len(self.mapped.pop(base)) == size
        self.left += size // GRANULE

    def cuMemAddressFree(self, start: int, span: int) -> None:
        assert self.reserved.pop(start) == span

    def at(self, pointer: int) -> tuple[bytearray, int]:
        base = max(start for start in self.mapped if start <= pointer)
        assert pointer < base + len(self.mapped[base]), "an access outside every mapping"
        return self.mapped[base], pointer - base

    def cuMemsetD8_v2(self, pointer: int, value: int, count: int) -> None:
        held, at = self.at(pointer)
        held[at : at + count] = bytes([value]) * count

    def cuMemcpyDtoH_v2(self, out: Any, pointer: int, count: int) -> None:
        held, at = self.at(pointer)
        ctypes.memmove(out, bytes(held[at : at + count]), count)


def test_memory_is_given_and_taken_back_with_its_addresses():
    memory = Memory()
    fence = Fence(0, memory)  # pyright: ignore[reportArgumentType]
    pointers = [fence._on_allocate(size, 0, None) for size in (1, 16, 1000, GRANULE, 3 * GRANULE + 5)]
    assert all(pointer and pointer % ALIGNMENT == 0 for pointer in pointers)
    assert fence._on_allocate(0, 0, None) is None
    for pointer in pointers:
        fence._on_free(pointer, 0, 0, None)
    assert memory.mapped
    fence.sweep()
    assert not memory.mapped
    assert not memory.reserved
    assert (fence.failed, fence.damaged) == ("", [])


def test_a_write_behind_a_tensor_that_is_no_multiple_of_sixteen_is_noticed():
    memory = Memory()
    fence = Fence(0, memory)  # pyright: ignore[reportArgumentType]
    pointer = fence._on_allocate(4 * 1023, 0, None)
    assert pointer
    held, at = memory.at(pointer)
    assert list(held[at + 4 * 1023 :]) == [CANARY] * 4
    fence.sweep()
    assert fence.damaged == []
    held[at + 4 * 1023] = 0
    fence.sweep()
    assert fence.damaged == ["behind the end of a tensor of 4092 bytes"]


def test_what_was_freed_makes_room_when_there_is_none():
    fence = Fence(0, Memory(granules=2))  # pyright: ignore[reportArgumentType]
    first = fence._on_allocate(2 * GRANULE, 0, None)
    fence._on_free(first, 0, 0, None)
    assert fence._on_allocate(GRANULE, 0, None)
    assert not fence.failed
    assert fence._on_allocate(2 * GRANULE, 0, None) is None
    assert "could not be had" in fence.failed


# -- the gate --------------------------------------------------------------------------------------------


def trial(replies: Any) -> Any:
    """Only what the gate asks of a trial; ``replies`` answers the fence's requests."""
    made = SimpleNamespace(warnings=[], fenced=False, restarts=[])
    made.connection = SimpleNamespace(
        restart=lambda **warm: made.restarts.append(warm),
        request=replies,
        fresh=lambda: None,
        share_weights=lambda: None,
    )
    made.reference = SimpleNamespace(
        case=lambda label: label, other_weights=lambda: None, restore=lambda: None
    )
    return made


QUIET = FenceReport("", "", ())


def quiet(request: FenceRequest) -> FenceReport:
    return QUIET


def test_both_arrangements_are_tried_in_one_new_process(monkeypatch: pytest.MonkeyPatch):
    labels: list[str] = []
    monkeypatch.setattr(gate, "examine", lambda trial, case: labels.append(case))
    made = trial(quiet)
    assert gate.run(made) == {"fenced": True, "arrangements": ["end", "start"]}
    assert made.restarts == [{"fence": True}]
    assert made.fenced
    assert len(labels) == 2


@pytest.mark.parametrize(("failing", "where"), [(1, "past the end"), (2, "before the start")])
def test_an_illegal_access_in_fenced_memory_is_a_refusal(
    monkeypatch: pytest.MonkeyPatch, failing: int, where: str
):
    asked: list[str] = []

    def examine(trial: Any, case: str) -> None:
        asked.append(case)
        if len(asked) == failing:
            raise Fault("kernel.illegal_access", "CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(gate, "examine", examine)
    with pytest.raises(Refused) as refused:
        gate.run(trial(quiet))
    assert refused.value.at(Gate.REGRADE).gate is Gate.MEMORY
    assert refused.value.reason == "memory.out_of_bounds"
    assert where in refused.value.evidence


def test_a_damaged_canary_is_a_refusal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gate, "examine", lambda trial, case: None)
    damaged = FenceReport("", "", ("behind the end of a tensor of 4092 bytes",))
    with pytest.raises(Refused, match="written behind the end"):
        gate.run(trial(lambda request: damaged))


@pytest.mark.parametrize("key", ["unavailable", "failed"])
def test_without_a_fence_the_gate_says_so_and_refuses_nothing(monkeypatch: pytest.MonkeyPatch, key: str):
    monkeypatch.setattr(gate, "examine", lambda trial, case: None)
    made = trial(lambda request: replace(QUIET, **{key: "no such call"}))
    assert gate.run(made) == {"fenced": False, "reason": "no such call"}
    assert "memory safety was not checked" in made.warnings[0]
    assert made.restarts == [{"fence": True}, {}]
    assert not made.fenced


def test_what_cannot_run_inside_a_fence_is_no_refusal(monkeypatch: pytest.MonkeyPatch):
    def examine(trial: Any, case: str) -> None:
        raise Fault("candidate.error", "the allocator does not support this")

    monkeypatch.setattr(gate, "examine", examine)
    made = trial(quiet)
    assert gate.run(made)["fenced"] is False


def test_wrong_in_fenced_memory_alone_is_told_from_wrong_anywhere(monkeypatch: pytest.MonkeyPatch):
    def examine(trial: Any, case: str) -> None:
        if not case.startswith("not"):
            raise Refused("correctness.values", "NaN", "")

    monkeypatch.setattr(gate, "examine", examine)
    with pytest.raises(Refused, match="right in ordinary memory"):
        gate.run(trial(quiet))


# -- on a GPU -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpu_oracle() -> Iterator[Oracle]:
    judge = Oracle("cuda:0")
    yield judge
    judge.close()


FENCED = replace(LEVELS[Level.QUICK], fence=True, regrades=1)
BY_NAME = {case.name: case for case in load_corpus()}


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["writes_one_past", "reads_one_past", "reads_one_before"])
def test_one_element_beyond_is_refused_on_a_gpu(name: str, gpu_oracle: Oracle):
    case = BY_NAME[f"exploits/{name}"]
    verdict = gpu_oracle.judge(
        Question(
            Task.from_file(case.task_path),
            Candidate.from_file(case.path),
            Policy(level=Level.FULL),
            settings=FENCED,
        )
    ).verdict
    assert isinstance(verdict, Rejected)
    beside = "correctness.not_a_number"  # the gate before may find a neighbour's NaN in the answer
    assert verdict.refusal.reason in ("memory.out_of_bounds", beside), verdict.refusal


@pytest.mark.gpu
@pytest.mark.parametrize(
    "name", ["softmax", "matmul", "library_gemm", "cuda_graph", "strided_input", "autotuned"]
)
def test_honest_kernels_stay_within_the_fence_on_a_gpu(name: str, gpu_oracle: Oracle):
    case = BY_NAME[f"honest/{name}"]
    evaluation = gpu_oracle.judge(
        Question(Task.from_file(case.task_path), Candidate.from_file(case.path), case.policy, settings=FENCED)
    )
    assert evaluation.accepted, evaluation.verdict
    [record] = [r for r in evaluation.gates if r.gate is Gate.MEMORY]
    assert record.notes["fenced"] or name == "cuda_graph", record.notes
    assert record.seconds < 10

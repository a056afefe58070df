"""Several judges on one GPU: real processes, real locks, and no GPU, which the locks do not need."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from egg.core.errors import MachineError
from egg.core.source import Task
from egg.evaluator.judge import needs
from egg.evaluator.process import sharing
from egg.evaluator.process.sharing import (
    SLOTS,
    Lock,
    SharedGpu,
    Unshared,
    Use,
    Wait,
    folder_for,
    place_on,
    slots_for,
)
from tests import samples

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]
fork = multiprocessing.get_context("fork")

Interval = tuple[str, float, float, int]
"""What was had, from when, until when, and how much of it."""


class Judges:
    """Processes that share one GPU, and what they say of what they had and when."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._messages: Any = fork.SimpleQueue()
        self._processes: list[Any] = []

    def place(self, **options: Any) -> SharedGpu:
        return SharedGpu(self.folder, SLOTS, **options)

    def start(self, body: Callable[..., None], *arguments: Any) -> Any:
        process = fork.Process(target=self._live, args=(body, arguments), daemon=True)
        process.start()
        self._processes.append(process)
        return process

    def _live(self, body: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        random.seed(os.getpid())
        body(self.place(), self._messages.put, *arguments)

    def hear(self) -> Any:
        return self._messages.get()

    def ended(self) -> list[Any]:
        """Everything that was said, in the order of the clock, once all have ended well."""
        heard = []
        while any(p.is_alive() for p in self._processes) or not self._messages.empty():
            while not self._messages.empty():
                heard.append(self._messages.get())
            time.sleep(0.002)
        for process in self._processes:
            process.join()
            assert process.exitcode == 0
        return sorted(heard, key=lambda interval: interval[1])

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


@pytest.fixture
def judges(tmp_path: Path) -> Iterator[Judges]:
    them = Judges(tmp_path)
    yield them
    them.close()


def overlap(a: Interval, b: Interval) -> bool:
    return a[1] < b[2] and b[1] < a[2]


# together and alone


def evaluations(gpu: SharedGpu, say: Callable[[Interval], None], count: int) -> None:
    """As judges do: some work beside others with a word in between, then something that is measured."""
    for _ in range(count):
        gpu.together()
        for _ in range(random.randrange(1, 3)):
            gpu.give_way()
            began = time.monotonic()
            time.sleep(random.uniform(0.0, 0.01))
            say(("together", began, time.monotonic(), 1))
        for _ in range(2):
            gpu.alone()
            began = time.monotonic()
            time.sleep(random.uniform(0.0, 0.004))
            say(("alone", began, time.monotonic(), 1))
        gpu.leave()


def test_whoever_is_alone_is_alone_and_the_others_overlap(judges: Judges) -> None:
    for _ in range(5):
        judges.start(evaluations, 8)
    had = judges.ended()
    assert len([one for one in had if one[0] == "alone"]) == 5 * 8 * 2
    pairs = [(a, b) for i, a in enumerate(had) for b in had[i + 1 :] if overlap(a, b)]
    assert all(a[0] == b[0] == "together" for a, b in pairs)
    assert pairs, "they only took turns"


def one_turn(gpu: SharedGpu, say: Callable[[Any], None], how: str) -> None:
    getattr(gpu, how)()
    say(how)
    time.sleep(0.02)
    gpu.leave()


def later_turn(gpu: SharedGpu, say: Callable[[Any], None], how: str) -> None:
    """One that says so when it has to wait."""
    waited: list[float] = []
    gpu._on_wait = lambda seconds: None if waited else (waited.append(seconds), say("waits"))[1]
    one_turn(gpu, say, how)


@pytest.fixture
def waits(judges: Judges, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Start one that will have to wait, and see that it does."""
    monkeypatch.setattr(sharing, "TELL_SECONDS", 0.0)

    def start(how: str) -> None:
        judges.start(later_turn, how)
        assert judges.hear() == "waits"

    return start


def test_all_who_wait_to_be_alone_go_before_others_come_in(
    judges: Judges, waits: Callable[[str], None]
) -> None:
    gpu = judges.place()
    gpu.together()
    for how in ("alone", "together", "together", "alone", "alone"):
        waits(how)
    gpu.leave()
    assert [judges.hear() for _ in range(5)] == ["alone"] * 3 + ["together"] * 2


def test_a_judge_inside_gives_way_at_its_next_word(judges: Judges, waits: Callable[[str], None]) -> None:
    settled: list[str] = []
    gpu = judges.place(settle=lambda: settled.append("settled"))
    gpu.together()
    gpu.give_way()
    assert settled == []
    waits("alone")
    gpu.give_way()
    assert judges.hear() == "alone"
    assert (settled, gpu.use) == (["settled"], Use.TOGETHER)
    assert gpu.waits[Wait.TURN] > 0
    assert gpu.waits[Wait.QUIET] == 0
    gpu.alone()
    gpu.give_way()
    assert gpu.use is Use.ALONE


def test_work_apart_keeps_nobody_waiting(judges: Judges) -> None:
    gpu = judges.place()
    gpu.together()
    judges.start(one_turn, "alone")
    with gpu.apart():
        assert judges.hear() == "alone"
    assert gpu.use is Use.TOGETHER
    with pytest.raises(SystemExit), gpu.apart():
        raise SystemExit
    assert gpu.use is Use.NOTHING, "a process that ends does not wait to be let in"


def test_a_judge_that_is_looked_at_while_it_comes_is_counted_all_the_same(
    judges: Judges, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = judges.place()
    take, looked = Lock.take, []

    def looked_at(lock: Lock, *, exclusive: bool) -> bool:
        """Somebody has just found the file, and holds it for a moment."""
        if lock.path.name.startswith("present") and not looked:
            looked.append(lock.path)
            other = Lock(lock.path)
            assert take(other, exclusive=False)
            threading.Timer(0.05, other.release).start()
        return take(lock, exclusive=exclusive)

    monkeypatch.setattr(Lock, "take", looked_at)
    judges.place()
    assert looked
    assert gpu.crowded()


def hold(gpu: SharedGpu, say: Callable[[Any], None]) -> None:
    with gpu.admitted(SLOTS):
        gpu.alone()
        say("held")
        time.sleep(60)


def test_a_judge_that_is_killed_leaves_nothing_locked(judges: Judges) -> None:
    holder = judges.start(hold)
    assert judges.hear() == "held"
    gpu = judges.place()
    assert gpu.crowded()
    os.kill(holder.pid, signal.SIGKILL)
    with gpu.admitted(SLOTS):
        gpu.alone()
    assert not gpu.crowded()


def waiting(gpu: SharedGpu, say: Callable[[Any], None]) -> None:
    def end(*_: object) -> None:
        raise SystemExit(3)

    signal.signal(signal.SIGTERM, end)
    say("ready")
    try:
        gpu.alone()
    finally:
        say("locked" if gpu._door._fd is not None or gpu._room._fd is not None else "nothing locked")


def test_a_judge_that_waits_can_be_ended(judges: Judges) -> None:
    gpu = judges.place()
    gpu.together()
    process = judges.start(waiting)
    assert judges.hear() == "ready"
    time.sleep(0.1)
    os.kill(process.pid, signal.SIGTERM)
    process.join(5)
    assert process.exitcode == 3
    assert judges.hear() == "nothing locked"


def test_waiting_is_told_while_it_lasts(judges: Judges, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "TELL_SECONDS", 0.05)
    waited: list[float] = []
    first, second = judges.place(), judges.place(on_wait=waited.append)
    first.alone()
    threading.Timer(0.3, first.leave).start()
    second.together()
    assert len(waited) > 2
    assert second.waits[Wait.TURN] == pytest.approx(sum(waited))
    assert 0.2 < second.waits[Wait.TURN] < 5


# memory


def questions(gpu: SharedGpu, say: Callable[[Interval], None], sizes: list[int]) -> None:
    for size in sizes:
        with gpu.admitted(size):
            began = time.monotonic()
            time.sleep(0.01)
            say(("memory", began, time.monotonic(), slots_for(size, SLOTS)))


def test_no_more_memory_is_given_than_there_is_and_all_of_it_to_whoever_needs_all(
    judges: Judges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "ADMISSION_SECONDS", 0.002)
    monkeypatch.setattr(sharing, "OVERTAKEN_SECONDS", 0.02)
    generator = random.Random(7)
    for _ in range(4):
        judges.start(questions, [generator.randrange(1, 9) for _ in range(20)])
    judges.start(questions, [SLOTS, 10 * SLOTS, SLOTS])
    had = judges.ended()
    assert len(had) == 83
    for one in had:
        at_once = sum(other[3] for other in had if other[1] <= one[1] < other[2])
        assert at_once <= SLOTS, at_once
    whole = [one for one in had if one[3] == SLOTS]
    assert len(whole) == 3
    last_small = max(one[2] for one in had if one[3] < SLOTS)
    assert whole[0][1] < last_small, "small ones that keep coming do not keep a large one out"
    assert any(overlap(a, b) for i, a in enumerate(had) for b in had[i + 1 :])


def one_question(gpu: SharedGpu, say: Callable[[Any], None], size: int) -> None:
    with gpu.admitted(size):
        say((size, gpu.waits[Wait.MEMORY] > 0))


def test_small_questions_overtake_one_that_lacks_memory_but_not_for_good(
    judges: Judges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "ADMISSION_SECONDS", 0.005)
    monkeypatch.setattr(sharing, "OVERTAKEN_SECONDS", 1.0)
    gpu = judges.place()
    with gpu.admitted(1):
        judges.start(one_question, SLOTS)
        time.sleep(0.3)
        judges.start(one_question, 2)
        assert judges.hear()[0] == 2, "what is free is not kept for a question that needs more"
        time.sleep(1.2)
        judges.start(one_question, 3)
        time.sleep(0.3)
        assert judges._messages.empty(), "it was overtaken long enough"
    assert [judges.hear(), judges.hear()] == [(SLOTS, True), (3, True)]


@pytest.mark.parametrize(
    ("nbytes", "slots"),
    [(0, 1), (1, 1), (100, 1), (101, 2), (SLOTS * 100, SLOTS), (1 << 60, SLOTS), (None, SLOTS // 2)],
)
def test_slots_for_a_need(nbytes: int | None, slots: int) -> None:
    assert slots_for(nbytes, SLOTS * 100) == slots


def test_the_need_of_a_task_is_told_from_its_shapes() -> None:
    total, one = 140 << 30, 4 * 1024 * (1 << 18)
    without_weights = samples.WIDE.replace("nn.Linear", "(lambda *_, **__: 0)")
    relu = Task("relu", without_weights.format(width=1 << 18, forward="x.relu()"))
    needed = needs.bytes_needed(relu, 2, total)
    assert needed is not None
    assert 8 * 2 * one < needed < 16 * 2 * one
    chain = Task("chain", relu.source.replace("x.relu()", "(torch.cat([x, x, x]).relu() + 1).sum(1)"))
    assert (needs.bytes_needed(chain, 2, total) or 0) > needed, "what is made on the way counts"
    weighty = Task("weighty", samples.WIDE.format(width=1 << 14, forward="self.linear(x)"))
    assert (needs.bytes_needed(weighty, 2, total) or 0) > 8 * 4 * (1 << 28), "weights count"
    peeking = Task("peeking", samples.WIDE.format(width=64, forward="x if x.sum().item() > 0 else -x"))
    assert needs.bytes_needed(peeking, 2, total) is None
    assert (needs.bytes_needed(relu, 3, 10 * one) or 0) < (needs.bytes_needed(relu, 3, total) or 0)


# where the locks are


def test_the_folder_is_this_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = folder_for("GPU-1/../2")
    assert folder == folder_for("GPU-1/../2")
    assert folder.parent.parent == tmp_path
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    (folder.parent / "elsewhere").symlink_to(tmp_path)
    folder.parent.chmod(0o777)
    with pytest.raises(MachineError):
        folder_for("GPU-1")
    folder.parent.chmod(0o700)
    (tmp_path / "file").touch()
    monkeypatch.setattr(sharing.tempfile, "gettempdir", lambda: str(tmp_path / "file"))
    with pytest.raises(MachineError, match="no place for the locks") as raised:
        folder_for("GPU-1")
    assert "TMPDIR" in raised.value.hint
    monkeypatch.setattr(sharing.tempfile, "gettempdir", lambda: str(tmp_path))
    with pytest.raises(MachineError):
        folder_for("elsewhere")


def test_a_gpu_is_known_by_what_it_is_and_not_by_its_index() -> None:
    one = SimpleNamespace(uuid="ab-cd")
    assert sharing._identity(one, torch.device("cuda", 0)) == sharing._identity(one, torch.device("cuda", 3))
    old = SimpleNamespace(pci_domain_id=0, pci_bus_id=5, pci_device_id=1)
    assert sharing._identity(old, torch.device("cuda", 0)) == "pci-0-5-1"
    assert sharing._identity(object(), torch.device("cuda", 2)) == "index-2"


def test_a_cpu_is_not_shared_out() -> None:
    gpu = place_on(torch.device("cpu"))
    assert isinstance(gpu, Unshared)
    gpu.together()
    gpu.alone()
    with gpu.admitted(None), gpu.apart():
        gpu.give_way()
    gpu.leave()
    assert not gpu.crowded()
    gpu.close()


def test_judges_that_ended_are_not_counted(judges: Judges, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "FORGOTTEN_SECONDS", -1)
    gpu = judges.place()
    (judges.folder / "present-1-dead").touch()
    assert not gpu.crowded()
    assert not (judges.folder / "present-1-dead").exists()
    other = judges.place()
    assert gpu.crowded()
    other.close()
    assert not gpu.crowded()

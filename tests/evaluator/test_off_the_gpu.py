"""Work that leaves the GPU alone, while other judges measure: compiling and building, with real processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.process.handle import Fault, WorkerHandle
from egg.evaluator.process.sandbox import Limits
from egg.evaluator.process.sharing import SLOTS, SharedGpu, Use
from egg.evaluator.task.program import Program, on_task, sharing_gpu
from egg.evaluator.timing.compiling import compiling_within
from egg.evaluator.transport.wire import Channel, WireClosed
from egg.evaluator.worker.device_turn import DeviceTurn, compile_without
from tests import samples

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]
fork = multiprocessing.get_context("fork")
cpu = torch.device("cpu")

Interval = tuple[str, float, float]
Compile = Callable[[], None]


def answer_calls(channel: Channel, compile_first: Compile) -> None:
    """A candidate's process: each call compiles, then uses the GPU for a moment."""

    def announce(idle: bool) -> None:
        channel.send({"apart": idle})
        if not idle:
            channel.receive()

    turn = DeviceTurn(announce, lambda: None)
    with contextlib.suppress(WireClosed):
        while True:
            request, _ = channel.receive()
            with turn.given_away():
                compile_first()
            began = time.monotonic()
            time.sleep(0.01)
            channel.send({"id": request["id"], "used": [began, time.monotonic()]})


@contextlib.contextmanager
def candidate(work: Callable[[Channel], None]) -> Iterator[WorkerHandle]:
    ours, theirs = Channel.pair()
    lifeline, their_end = socket.socketpair()
    reader, writer = os.pipe()
    process = fork.Process(target=work, args=(theirs,), daemon=False)
    process.start()
    theirs.close()
    their_end.close()
    os.close(writer)
    handle = WorkerHandle(ours, reader, process.pid or 0, lifeline, Limits(None, 1 << 40))
    try:
        yield handle
    finally:
        handle.end()
        process.kill()
        process.join()


def judge(folder: Path, messages: Any, rounds: int, compile_first: Compile) -> None:
    """Calls of a candidate beside others, then a measurement alone; what was used, and when."""
    gpu = SharedGpu(folder, SLOTS)
    with candidate(lambda channel: answer_calls(channel, compile_first)) as handle:
        handle.apart = gpu.apart
        for _ in range(rounds):
            gpu.together()
            messages.put(("together", *handle.request("call", 30)["used"]))
            gpu.alone()
            began = time.monotonic()
            time.sleep(0.01)
            messages.put(("alone", began, time.monotonic()))
        gpu.leave()
    gpu.close()


def awaiting(event: Any) -> Compile:
    def compile_first() -> None:
        assert event.wait(20), "it was compiled for as long as the others waited"

    return compile_first


def test_judges_measure_while_another_ones_candidate_is_compiled(tmp_path: Path) -> None:
    """Were the GPU kept meanwhile, seven would wait for the eighth, whose compiling ends when they have."""
    messages, others_ended = fork.SimpleQueue(), fork.Event()
    slow = fork.Process(target=judge, args=(tmp_path, messages, 1, awaiting(others_ended)))
    fast = [
        fork.Process(target=judge, args=(tmp_path, messages, 4, lambda: time.sleep(0.05))) for _ in range(7)
    ]
    had: list[Interval] = []
    for process in (slow, *fast):
        process.start()
    try:
        for _ in range(7 * 4 * 2):
            had.append(messages.get())
        others_ended.set()
        had += [messages.get(), messages.get()]
    finally:
        for process in (slow, *fast):
            process.join(20)
            process.kill()
    for one in had:
        for other in had:
            if one is not other and one[1] < other[2] and other[1] < one[2]:
                assert one[0] == other[0] == "together", "a measurement was disturbed"


def test_a_candidate_that_dies_while_it_compiles_is_a_fault_and_the_judge_comes_back(tmp_path: Path) -> None:
    gpu = SharedGpu(tmp_path, SLOTS)
    gpu.together()
    with candidate(lambda channel: answer_calls(channel, lambda: os._exit(3))) as handle:
        handle.apart = gpu.apart
        with pytest.raises(Fault, match="died"):
            handle.request("call", 10)
    assert gpu.use is Use.TOGETHER
    gpu.close()


def test_what_a_candidate_waits_for_the_gpu_is_not_held_against_it() -> None:
    @contextlib.contextmanager
    def slow_return() -> Iterator[None]:
        yield
        time.sleep(1.0)

    with candidate(lambda channel: answer_calls(channel, lambda: None)) as handle:
        handle.apart = slow_return
        assert handle.request("call", 0.5)["used"]


def test_announcements_out_of_place_end_the_process() -> None:
    def forging(channel: Channel) -> None:
        channel.receive()
        channel.send({"apart": True})
        channel.send({"id": 1, "used": []})
        time.sleep(10)

    with candidate(forging) as handle, pytest.raises(Fault, match=r"limits\.protocol"):
        handle.request("call", 10)


# the turn of a process


def test_threads_compile_side_by_side_and_use_the_gpu_one_at_a_time() -> None:
    announced: list[bool] = []
    both = threading.Barrier(2)
    using: list[int] = []
    turn = DeviceTurn(announced.append, lambda: None)

    def first_call(number: int) -> None:
        with turn.had():
            with turn.given_away():
                both.wait(10)
            using.append(number)
            time.sleep(0.02)
            assert using[-1] == number

    with turn.given_away(), ThreadPoolExecutor(2) as pool:
        for ended in [pool.submit(first_call, number) for number in (1, 2)]:
            ended.result(20)
    assert announced[0] is True
    assert announced[-1] is False
    assert announced[::2] == [True] * (len(announced) // 2)
    assert announced[1::2] == [False] * (len(announced) // 2)


def test_a_gpu_that_reports_a_fault_is_kept() -> None:
    def settle() -> None:
        raise RuntimeError("an illegal memory access")

    announced: list[bool] = []
    turn = DeviceTurn(announced.append, settle)
    with pytest.raises(RuntimeError, match="illegal"), turn.given_away():
        pass
    assert announced == []


def test_triton_compiles_without_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.runtime.jit import JITFunction

    events: list[Any] = []
    turn = DeviceTurn(events.append, lambda: None)
    monkeypatch.setattr(JITFunction, "_do_compile", lambda kernel, *a, **k: events.append("compile"))
    compile_without(turn)
    JITFunction._do_compile(None, "key", warmup=False)  # pyright: ignore
    assert events == [True, "compile", False]


# the reference


class Noted:
    """What surrounds, and what happens inside."""

    def __init__(self) -> None:
        self.events: list[str] = []

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        self.events.append("apart")
        try:
            yield
        finally:
            self.events.append("back")


def test_torch_compile_runs_its_code_and_measures_products_on_the_gpu_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch._inductor.fx_passes import pad_mm

    noted = Noted()
    monkeypatch.setattr(pad_mm, "_should_pad", lambda: noted.events.append("measure"))

    def backend(graph: torch.fx.GraphModule, examples: Any) -> Callable[..., Any]:
        noted.events.append("generate")
        pad_mm._should_pad()  # pyright: ignore

        def run(*args: Any) -> Any:
            noted.events.append("run")
            return graph.forward(*args)

        return run

    program = torch.compile(lambda x: x + 1, backend=backend)
    with compiling_within(noted):
        noted.events.clear()
        assert program(torch.zeros(3)).sum() == 3
        program(torch.zeros(3))
    assert noted.events == ["apart", "generate", "back", "measure", "apart", "back", "run", "run"]
    torch._dynamo.reset()
    program(torch.zeros(3))
    assert noted.events[8:] == ["generate", "measure", "run"], "nothing is left behind"


def test_a_compiler_that_fails_is_back_on_the_gpu() -> None:
    noted = Noted()

    def backend(graph: torch.fx.GraphModule, examples: Any) -> Callable[..., Any]:
        raise ValueError("unfit")

    with compiling_within(noted):
        noted.events.clear()
        with pytest.raises(Exception, match="unfit"):
            torch.compile(lambda x: x * 2, backend=backend)(torch.zeros(3))
    assert noted.events == ["apart", "back"]


@pytest.mark.parametrize(("word", "events"), [("", ["apart", "back"]), ("# cuda", [])])
def test_a_module_is_built_off_the_gpu_unless_its_text_names_one(word: str, events: list[str]) -> None:
    noted = Noted()
    source = samples.WIDE.format(width=8, forward="x") + word
    with Program.load(Task("t", source)) as program, sharing_gpu(noted, lambda: None):
        program.build(0, cpu, Precision.MATCH)
    assert noted.events == events


def test_a_judge_gives_way_before_each_run_of_the_task_and_not_inside_one() -> None:
    events: list[str] = []
    source = samples.WIDE.format(width=8, forward="x")
    token = on_task.set(lambda what: events.append(what))
    try:
        with Program.load(Task("t", source)) as program:
            module, events[:] = program.build(0, cpu, Precision.MATCH), []
            with sharing_gpu(contextlib.nullcontext, lambda: events.append("gives way")):
                program.run(module, [torch.zeros(2, 8)])
                with program.blaming("backward"):
                    program.run(module, [torch.zeros(2, 8)])
    finally:
        on_task.reset(token)
    once = ["gives way", "Model.forward", ""]
    assert events == [*once, "gives way", "backward", "Model.forward", "backward", ""]

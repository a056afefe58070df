"""Recording torch.compile: sources of arguments, how results are made, what is kept of the text, times.

Dynamo runs here with a compiler that leaves the graph as it is. The test marked ``gpu`` records what Inductor
makes of it.
"""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from egg.core.compiled import MOST_NUMBERS, FoldedConstant, LaunchChoice
from egg.core.errors import MachineError
from egg.core.recording import LaunchTime, Recording
from egg.core.source import Task
from egg.evaluator.judge.answers import check_recording
from egg.evaluator.judge.oracle import Oracle
from egg.evaluator.judge.pool import Pool
from egg.evaluator.judge.question import RecordRequest
from egg.evaluator.timing.launch_times import Marks, replacements, typical
from egg.evaluator.timing.recorded import (
    GraphNotes,
    NotRecorded,
    check_text,
    chosen,
    folded,
    named_inputs,
    recorded,
    returned,
    slim,
)
from tests.recordings import CAST, GRAPH, PRODUCT, RECORDING, TEXT

TASK = Task(
    "norm_double",
    """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(1024)

    def forward(self, x):
        return {"y": self.norm(x) * 2, "sum": x.sum(-1)}

def get_inputs():
    return [torch.randn(512, 1024)]

def get_init_inputs():
    return []
""",
)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        z = self.inner(x) * self.scale
        return (z, [y, x + 1]), {"again": z}


def traced(module: nn.Module, *inputs: Any) -> tuple[Any, GraphNotes]:
    torch._dynamo.reset()
    notes = GraphNotes(lambda graph, examples: graph)
    return torch.compile(module, backend=notes, dynamic=False)(*inputs), notes


def test_arguments_are_known_by_where_dynamo_found_them() -> None:
    _, notes = traced(Scaled(), torch.randn(2, 4), torch.randn(3))
    assert notes.graphs == 1
    assert set(notes.arguments) == {
        "L['x']",
        "L['self']._modules['inner']._parameters['weight']",
        "L['self']._modules['inner']._parameters['bias']",
        "L['self']._buffers['scale']",
    }


def test_a_result_is_made_of_outputs_and_arguments() -> None:
    module, x, y = Scaled(), torch.randn(2, 4), torch.randn(3)
    result, notes = traced(module, x, y)
    made = returned(result, notes.outputs, named_inputs(module, [x, y]))
    (first, second), third = made["tuple"][0]["tuple"], made["tuple"][1]
    assert second["list"][0] == {"input": "y"}
    assert third == {"dict": {"again": first}}
    assert notes.outputs[first["output"]] is result[1]["again"]
    assert notes.outputs[second["list"][1]["output"]] is result[0][1][1]


@pytest.mark.parametrize("result", [3, None, torch.ones(2), {1: torch.ones(2)}])
def test_a_result_of_anything_else_is_not_recorded(result: Any) -> None:
    with pytest.raises(NotRecorded):
        returned((torch.ones(1), result), [], {})


def test_of_the_text_paths_copies_of_the_graph_and_the_main_block_are_left_out() -> None:
    text = slim(TEXT)
    assert "torchinductor" not in text
    assert "Graph fragment" not in text
    assert "__main__" not in text
    assert text.count("rand_strided(") == 4
    assert text.count("Original ATen") == TEXT.count("Original ATen")
    assert compile(text, "text", "exec")
    assert slim(text) == text


def test_a_text_must_be_triton_with_the_arguments_of_the_graph() -> None:
    check_text(GRAPH.text, 4)
    with pytest.raises(NotRecorded, match="4 arguments"):
        check_text(GRAPH.text, 3)
    with pytest.raises(NotRecorded, match=r"C\+\+"):
        check_text(GRAPH.text.replace("async_compile.triton(", "async_compile.cpp(", 1), 4)
    with pytest.raises(NotRecorded, match="characters"):
        check_text(GRAPH.text * 100, 4)
    one = "    def call(self, args):\n        arg0_1, = args\n"
    check_text(one, 1)


FOLDING = """
def call(args):
    arg0_1, = args
    places, factors, flags = _tensor_constant0_cuda0, _tensor_constant1, constant2
    kernel.run(arg0_1, _frozen_param0, long, turned, spectrum, number)
    return (arg0_1, )

def get_args():
    unread = rand_strided((1, ), (1, ), device='cpu', dtype=torch.int64)
"""


def test_small_folded_tensors_are_kept_where_the_host_code_reads_them() -> None:
    names = {
        "_tensor_constant0_cuda0": torch.tensor([3, -1]),
        "_tensor_constant1": torch.tensor([[0.1], [float("nan")]]),
        "constant2": torch.tensor([True, False]),
        "_frozen_param0": torch.ones(2),
        "long": torch.zeros(MOST_NUMBERS + 1),
        "turned": torch.ones(2, 3).t(),
        "spectrum": torch.ones(2, dtype=torch.complex64),
        "number": 3,
        "unread": torch.ones(1),
    }
    kept = folded(names, FOLDING)
    assert kept == {
        "_tensor_constant0_cuda0": FoldedConstant("int64", (2,), "3 -1"),
        "_tensor_constant1": FoldedConstant("float32", (2, 1), "0.10000000149011612 nan"),
        "constant2": FoldedConstant("bool", (2,), "1 0"),
    }
    check_recording(Recording(replace(GRAPH, folded=kept)))
    numbers: Any = 3
    wrong = Recording(replace(GRAPH, folded={"constant2": FoldedConstant("int64", (1,), numbers)}))
    with pytest.raises(MachineError, match="no text"):
        check_recording(wrong)


class CachingAutotuner:
    """As much of Inductor's as a recording reads."""

    def __init__(self, *launched: SimpleNamespace) -> None:
        self.launchers = launched
        self.ran: list[Any] = []

    def run(self, *given: Any, stream: int) -> None:
        self.ran.append(given)


def config(**constants: int) -> SimpleNamespace:
    return SimpleNamespace(config=SimpleNamespace(kwargs=constants, num_warps=8, num_stages=2))


def test_the_choice_of_an_autotuner_is_what_it_launches_with() -> None:
    names = {CAST: CachingAutotuner(config(XBLOCK=512)), "call": print, "cold": CachingAutotuner()}
    assert chosen(names) == {CAST: LaunchChoice({"XBLOCK": 512}, 8, 2)}


class Clock:
    """Events of a GPU on which every launch takes one millisecond more than the last."""

    def __init__(self) -> None:
        self.now = 0

    def event(self) -> Any:
        return _Event(self)


class _Event:
    def __init__(self, clock: Clock) -> None:
        self._clock, self.at = clock, 0

    def record(self) -> None:
        self.at = self._clock.now

    def elapsed_time(self, end: _Event) -> float:
        return float(end.at - self.at)


def test_launches_and_library_calls_are_timed_in_order_by_how_they_are_spelled() -> None:
    clock, tuner = Clock(), CachingAutotuner(config(XBLOCK=1))

    def takes(milliseconds: int) -> Any:
        def call(*given: Any, **options: Any) -> int:
            clock.now += milliseconds
            return milliseconds

        return call

    tuner.run = takes(3)  # type: ignore[method-assign]
    module = ModuleType("generated")
    vars(module).update({CAST: tuner, "extern_kernels": SimpleNamespace(mm=takes(5)), "torch": torch, "n": 7})
    marks = Marks(clock.event)
    stands = replacements(module, marks)
    assert set(stands) == {CAST, "extern_kernels", "torch"}
    stands[CAST].run(1, stream=0)
    assert stands["extern_kernels"].mm(1, out=2) == 5
    assert stands["torch"].ops.aten.add.Tensor(torch.ones(1), 1).item() == 2
    assert stands["torch"].float16 is torch.float16
    assert marks.times() == [
        LaunchTime(CAST, 3.0),
        LaunchTime(PRODUCT, 5.0),
        LaunchTime("torch.ops.aten.add.Tensor", 0.0),
    ]


def test_the_typical_time_is_the_median_of_rounds_that_launch_the_same() -> None:
    rounds = [[LaunchTime("a", time), LaunchTime("b", 1.0)] for time in (1.0, 9.0, 2.0)]
    assert typical(rounds) == (LaunchTime("a", 2.0), LaunchTime("b", 1.0))
    assert typical([*rounds, [LaunchTime("a", 1.0)]]) == ()


def test_a_machine_without_a_gpu_declines_with_the_reason() -> None:
    with pytest.raises(NotRecorded, match="no GPU"):
        recorded(nn.Linear(2, 2), [torch.ones(1, 2)], torch.device("cpu"))
    oracle = Oracle("cpu")
    try:
        found = oracle.record(RecordRequest(TASK))
    finally:
        oracle.close()
    assert found.graph is None
    assert "Inductor writes C++" in found.reason
    assert found.timeline == ()


def test_an_answer_that_has_not_the_form_of_a_recording_is_not_believed() -> None:
    check_recording(RECORDING)
    for wrong in (
        Recording(GRAPH, timeline=(LaunchTime("a", float("nan")),)),
        Recording(GRAPH, timeline=(LaunchTime(7, 1.0),)),  # type: ignore[arg-type]
        Recording(None, 7),  # type: ignore[arg-type]
    ):
        with pytest.raises(MachineError, match="cannot be right"):
            check_recording(wrong)


@pytest.mark.gpu
def test_a_gpu_records_kernels_choices_and_times() -> None:
    pool = Pool(["cuda:0"])
    try:
        found = pool.record(RecordRequest(TASK))
        again = pool.record(RecordRequest(TASK))
    finally:
        pool.close()
    assert found.reason == ""
    assert found.graph is not None
    assert set(found.graph.arguments) == {
        "L['x']",
        "L['self']._modules['norm']._parameters['weight']",
        "L['self']._modules['norm']._parameters['bias']",
    }
    assert set(found.graph.returns["dict"]) == {"y", "sum"}
    assert found.graph.launches
    assert found.timeline
    assert 0 < (found.milliseconds or 0) < 1
    assert again.graph is not None
    assert again.graph.launches.keys() == found.graph.launches.keys()

"""What a file that replays its launches computes, call by call.

The graph is a stand-in: it repeats what was called while it was recorded.
"""

from __future__ import annotations

import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from egg.core.policy import LibraryCalls
from egg.core.source import Task
from egg.evaluator import offline
from egg.evaluator.static import findings
from egg.expert.writing.replay_results import placed
from tests.expert import harness
from tests.expert.captured import program
from tests.expert.test_replay import CHAIN, kept, loaded, written


class _Pretended:
    """``torch`` as the methods see it: tensors are on a GPU, a graph repeats calls, and memory that is let go
    is handed out again, the lowest address first."""

    def __init__(self) -> None:
        self.open: list[Any] | None = None
        self.free: dict[Any, list[torch.Tensor]] = {}
        pretended = self

        class CUDAGraph:
            def __init__(self) -> None:
                self.calls: list[Any] = []

            def replay(self) -> None:
                for call in self.calls:
                    call()

            def pool(self) -> int:
                return 7

        class Recording:
            def __init__(self, graph: CUDAGraph, pool: int | None = None) -> None:
                self.graph = graph

            def __enter__(self) -> None:
                pretended.open = self.graph.calls

            def __exit__(self, *_: object) -> None:
                pretended.open = None

        self.cuda = SimpleNamespace(
            CUDAGraph=CUDAGraph, graph=Recording, is_current_stream_capturing=lambda: self.open is not None
        )
        self.is_grad_enabled = torch.is_grad_enabled
        self.is_autocast_enabled = lambda: False

    def empty_strided(self, shape: Any, stride: Any, dtype: Any, device: Any) -> OnGpu:
        assert device == OnGpu.device
        known = self.free.setdefault((tuple(shape), tuple(stride), dtype), [])
        known.sort(key=torch.Tensor.data_ptr, reverse=True)
        memory = known.pop() if known else torch.empty_strided(shape, stride, dtype=dtype)
        result = OnGpu(memory.fill_(torch.nan))
        weakref.finalize(result, known.append, memory)
        return result

    def empty_like(self, given: OnGpu) -> OnGpu:
        return self.empty_strided(given.shape, given.stride(), given.dtype, OnGpu.device)


class OnGpu:
    """A tensor that says it is on a GPU."""

    device = torch.device("cuda")
    is_cuda = True

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.shape, self.dtype = tensor.shape, tensor.dtype

    def stride(self) -> Any:
        return self.tensor.stride()

    def data_ptr(self) -> int:
        return self.tensor.data_ptr()

    def copy_(self, other: OnGpu) -> None:
        self.tensor.copy_(other.tensor)

    def clone(self) -> OnGpu:
        return OnGpu(self.tensor.clone())


def pretended_model(task: Task, *moves: str) -> tuple[Any, list[str]]:
    """A module with the methods of the file; its launches multiply by a weight and count in a buffer."""
    text = written(task, *moves).source
    start = text.index("    admitted = frozenset()")
    body = text[start : text.index("    def launches(")]
    space: dict[str, Any] = {"torch": _Pretended(), "nn": nn}
    exec("class Methods:\n" + body, space)
    torch_, made = space["torch"], []

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c, self.d = (nn.Linear(3, 3) for _ in range(4))
            self.factor = 1.0
            self.register_buffer("calls", torch.zeros(()))

        def admit(self, seen: Any, x: OnGpu, *numbers: Any) -> None:
            assert seen[0] == x.shape

        def launches(self, x: OnGpu, number: float = 1.0, into: Any = None) -> Any:
            results = into or [torch_.empty_like(x), torch_.empty_like(x)]
            memory, source, weight = [t.tensor for t in results], x.tensor, self.a.weight.data
            factor = number * self.factor

            def run() -> None:
                assert isinstance(self.calls, torch.Tensor)
                self.calls += 1
                for room in memory:
                    room.copy_(source * weight[0, 0] * factor)

            made.append("recorded" if torch_.open is not None else "launched")
            run() if torch_.open is None else torch_.open.append(run)
            return tuple(results)

    guard = ("admit", "_apply", "_load_from_state_dict")
    methods = {
        name: thing
        for name, thing in vars(space["Methods"]).items()
        if not name.startswith("__") and name not in guard
    }
    return type("ModelNew", (Model,), methods)(), made


LARGE = program(
    "y = torch.relu(self.a(x)); y = torch.tanh(self.b(y)); return y * 2, y + 1",
    "torch.randn(B, C)",
    "self.a = nn.Linear(C, C); self.b = nn.Linear(C, C)",
    "B, C = 65536, 1024",
)
"""Copies of its inputs and results take longer than its launches."""


@torch.no_grad()
@pytest.mark.parametrize("task", [CHAIN, LARGE], ids=["copied", "launched"])
def test_every_call_runs_every_kernel_once_on_what_it_was_given(task: Task) -> None:
    model, made = pretended_model(task, "set file replay True")
    calls = 0

    def right(x: torch.Tensor) -> OnGpu:
        nonlocal calls
        calls += 1
        for result in model(OnGpu(x)):
            torch.testing.assert_close(result.tensor, x * model.a.weight[0, 0])
        assert float(model.calls) == calls
        return result

    def again(x: torch.Tensor, *others: torch.Tensor) -> list[str]:
        del made[:]
        for given in (x, *others):
            right(given)
        return made

    x, y = torch.randn(4, 5), torch.randn(4, 5)
    assert again(x, x, x) == ["launched", "launched", "recorded"], "places that came before"
    assert again(x, x.add_(1)) == [], "in place"
    assert again(y, y, y, x) == ["launched", "recorded"]
    model.a.weight += 1  # in place
    assert again(x, y) == []
    model.a.weight = nn.Parameter(torch.randn(3, 3))
    assert again(x, x, x, x) == ["launched", "launched", "recorded"]
    small, turned = torch.randn(2, 3), torch.randn(5, 4).T
    assert again(small, small, small, turned, small, x) == ["launched", "launched", "recorded", "launched"]
    model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()}, assign=True)
    assert float(model.calls) == calls
    assert again(x) == ["launched"]


@torch.no_grad()
@pytest.mark.parametrize("task", [CHAIN, LARGE], ids=["copied", "launched"])
def test_results_that_are_held_keep_their_values(task: Task) -> None:
    model, made = pretended_model(task, "set file replay True")
    x, held = torch.randn(4, 5), []
    for turn in range(60):
        x.fill_(turn)
        results = model(OnGpu(x))
        if turn % 3 or task is CHAIN:
            held.append((results, turn * model.a.weight[0, 0]))
    for results, want in held:
        for result in results:
            torch.testing.assert_close(result.tensor, want.expand(4, 5))
    assert len({result.data_ptr() for results, _ in held for result in results}) == 2 * len(held)
    assert float(model.calls) == 60
    if task is CHAIN:  # places that are always new: one graph for all of them
        assert made.count("recorded") == 1
        assert len(made) < 16
    del held, results
    for _ in range(100):
        model(OnGpu(x))
    del made[:]
    for _ in range(10):
        model(OnGpu(x))
    assert made == []


@torch.no_grad()
def test_graphs_are_few_and_a_caller_who_moves_on_gets_new_ones() -> None:
    model, made = pretended_model(LARGE, "set file replay True")
    before = [torch.randn(4, 5) for _ in range(40)]
    for _ in range(3):
        for x in before:
            torch.testing.assert_close(model(OnGpu(x))[0].tensor, x * model.a.weight[0, 0])
    assert kept(model) == 32
    after = torch.randn(4, 5)
    for _ in range(300):
        model(OnGpu(after))
    del made[:]
    model(OnGpu(after))
    assert made == []
    assert kept(model) < 32


@torch.no_grad()
def test_inputs_that_are_not_aligned_are_never_read_by_the_graph_of_copies() -> None:
    model, made = pretended_model(CHAIN)
    odd = torch.randn(64)[1:21].view(4, 5)
    assert odd.data_ptr() % 16
    held = []
    for _ in range(20):
        held.append(model(OnGpu(odd)))
        torch.testing.assert_close(held[-1][0].tensor, odd * model.a.weight[0, 0])
    assert set(made) == {"launched"}


@torch.no_grad()
def test_a_graph_is_for_the_numbers_it_was_recorded_with() -> None:
    task = program(
        "y = torch.relu(self.a(x) * number) * self.factor; y = torch.tanh(self.b(y)); return y, y + number",
        "torch.randn(B, C), 0.5",
        "self.a = nn.Linear(C, C); self.b = nn.Linear(C, C); self.factor = 1.5",
        "B, C = 16, 64",
        "x, number",
    )
    model, made = pretended_model(task, "set file replay True")
    x = torch.randn(4, 5)
    for number in (0.5, 0.5, 0.5, 0.5, 2.0, 0.5, 2.0, 2.0, 0.5):
        first, _ = model(OnGpu(x), number)
        torch.testing.assert_close(first.tensor, x * model.a.weight[0, 0] * number)
    assert made.count("recorded") >= 1


INTO = """

def forward(self, x):
    torch.manual_seed(0)
    model = ModelNew()
    with torch.no_grad():
        plain = model.launches(x)
        rooms = [torch.full_like(t, float("nan")) for t in plain]
        made = model.launches(x, into=rooms)
    return [*plain, *made, torch.tensor([own is room for own, room in zip(made, rooms)])]
"""


def test_launches_write_results_into_memory_they_are_given() -> None:
    task = program(
        "y = torch.relu(self.a(x)); z = torch.relu(self.b(y)); w = torch.relu(self.c(z)); "
        "return torch.softmax(y, 1), z, torch.cumsum(w, 0), F.linear(z, self.a.weight), w",
        "torch.randn(B, C)",
        "self.a = nn.Linear(C, C); self.b = nn.Linear(C, C); self.c = nn.Linear(C, C)",
        "B, C = 16, 32",
    )
    text = written(task, "set file replay True", "without product").source
    *results, in_place = harness.execute(text + INTO, [torch.randn(16, 32)], {})
    for plain, into in zip(results[:5], results[5:], strict=True):
        torch.testing.assert_close(into, plain)
    assert in_place.tolist().count(True) >= 3, text
    assert not list(findings(text, LibraryCalls.ALLOW))


def test_functions_of_the_host_take_memory_for_their_result() -> None:
    helper = (
        "def added(x, y):\n"
        '    """A sum."""\n'
        "    z = torch.empty(x.shape, device=x.device, dtype=torch.float32)\n"
        "    added_kernel[(1,)](x, y, z)\n"
        "    return z"
    )
    body = [
        "        a = added(x, y)", "        b = added(a, y)",
        "        c = torch.zeros((4,), device=x.device)",
        "        for turn in range(2):", "            d = added(b, c)", "        e = b.view(4)",
        '        return {"a": a, "rest": [b, c, d, e]}',
    ]  # fmt: skip
    found = placed(body, {"added": helper})
    assert found.written == {0, 1, 2}, "what a loop binds and what is a view are copied"
    assert found.lines[:3] == (
        "        a = added(x, y, out=into and into[0])",
        "        b = added(a, y, out=into and into[1])",
        "        c = into[2].zero_() if into else torch.zeros((4,), device=x.device)",
    )
    assert "def added(x, y, out=None):" in found.helpers["added"]
    made = "z = torch.empty(x.shape, device=x.device, dtype=torch.float32) if out is None else out"
    assert made in found.helpers["added"]
    assert placed([*body[:1], "        into = 1", "        return a"], {"added": helper}).into == "into_"


def test_several_results_of_a_function_are_written_where_the_caller_keeps_them() -> None:
    helper = (
        "def parted(x):\n"
        "    low = torch.empty(x.shape, device=x.device)\n"
        "    view = low.view(2, 2)\n"
        "    high = torch.zeros(x.shape, device=x.device)\n"
        "    parted_kernel[(1,)](x, low, high)\n"
        "    return low, view, high"
    )
    body = [
        "        a, b, c = parted(x)", "        d, e, f = parted(a)", "        return a, c, b, d",
    ]  # fmt: skip
    found = placed(body, {"parted": helper})
    assert found.written == {0, 1, 3}
    assert found.lines[:2] == (
        "        a, b, c = parted(x, out_0=into and into[0], out_2=into and into[1])",
        "        d, e, f = parted(a, out_0=into and into[3])",
    )
    assert "def parted(x, out_0=None, out_2=None):" in found.helpers["parted"]
    assert "if out_2 is None else out_2.zero_()" in found.helpers["parted"]


def test_the_second_call_makes_the_same_launches_on_a_pretended_gpu(tmp_path: Path) -> None:
    source = written(CHAIN).source
    seen = offline.capture(
        lambda: loaded(source, tmp_path).ModelNew().cuda(),
        lambda: [torch.randn(16, 64, device="cuda")],
        "sm_90",
    )
    assert len(seen.launches) >= 4
    assert [launch.kernel for launch in seen.launches] == [again.kernel for again in seen.first_call_launches]

"""Launches replayed as a CUDA graph: when, in which text, and with which meaning.

What the methods do is tried with a graph that only pretends (it repeats what was called while it was
recorded); tests marked ``gpu`` hold whole files to PyTorch on a real one.
"""

from __future__ import annotations

import importlib.util
import sys
import time
import weakref
from dataclasses import replace
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
from egg.expert.assemble import Written, graph_of, kernel_file
from egg.expert.graph import Node
from egg.expert.moves import Recipe, Set, parsed
from egg.expert.writing.replay import Estimate, estimated, obstacle
from egg.expert.writing.replay_calls import recordable
from egg.expert.writing.replay_results import placed
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.expert.captured import program

H200 = resolve("H200")

CHAIN = program(
    "y = torch.relu(self.a(x)); y = torch.relu(self.b(y)); y = torch.tanh(self.c(y)); return self.d(y), y",
    "torch.randn(B, C)",
    "self.a = nn.Linear(C, 2 * C); self.b = nn.Linear(2 * C, C); self.c = nn.Linear(C, C); "
    "self.d = nn.Linear(C, 3)",
    "B, C = 16, 64",
)
NORMS = program(
    "y = F.relu(self.n1(self.c1(x))); y = F.relu(self.n2(self.c2(y)) + y); return self.fc(y.mean((2, 3)))",
    "torch.randn(B, 3, H, H)",
    "self.c1 = nn.Conv2d(3, 16, 3, padding=1); self.n1 = nn.BatchNorm2d(16); "
    "self.c2 = nn.Conv2d(16, 16, 3, padding=1); self.n2 = nn.BatchNorm2d(16); self.fc = nn.Linear(16, 10)",
    "B, H = 4, 24",
)
WALK = program(
    "y, (h, c) = self.r(x, (h, c)); return y, h, c",
    "torch.randn(B, T, I), torch.randn(2, B, H), torch.randn(2, B, H)",
    "self.r = nn.LSTM(I, H, 2, batch_first=True)",
    "B, T, I, H = 10, 64, 64, 256",
    "x, h, c",
)


def written(task: Task, *moves: str) -> Written:
    return kernel_file(task, graph_of(task), Recipe().after(*map(parsed, moves)), H200)


def replays(text: str) -> bool:
    return "torch.cuda.graph(" in text


# -- when ----------------------------------------------------------------------------------------------


def test_many_small_launches_are_replayed_and_a_move_decides_otherwise() -> None:
    text = written(CHAIN).source
    assert replays(text)
    assert "The launches are replayed as one CUDA graph: some " in text
    assert not list(findings(text, LibraryCalls.ALLOW))
    assert not replays(written(CHAIN, "set file replay False").source)
    large = program("torch.relu(x + 1)", "torch.randn(B, C)", knobs="B, C = 8192, 65536")
    assert not replays(written(large).source)
    assert replays(written(large, "set file replay True").source)
    assert str(Set("file", "replay", True)) == "set file replay True"


def test_what_cannot_be_recorded_is_not() -> None:
    drawn = program(
        "torch.relu(self.a(x)) + torch.rand_like(x)", "torch.randn(B, C)", "self.a = nn.Linear(C, C)"
    )
    made = written(drawn, "set file replay True")
    assert not replays(made.source)
    assert obstacle(made.structure.graph, list(zip(made.structure.groups, made.structure.parts, strict=True)))


def parts_of(made: Written) -> list[Any]:
    return list(zip(made.structure.groups, made.structure.parts, strict=True))


@pytest.mark.parametrize(
    ("call", "recorded"),
    [
        ("torch.fft.rfft(y).real", True),
        ("torch.linalg.solve(self.a.weight, y.mT).mT", False),
        ("torch.kthvalue(y, 4).values", True),
        ("torch.histc(y, 8) + y[:8, :8]", False),
    ],
)
def test_calls_of_libraries_are_recorded_unless_the_host_waits_for_their_numbers(
    call: str, recorded: bool
) -> None:
    task = program(
        f"y = torch.relu(self.a(x)); y = torch.tanh({call}) * 2; return y, y.sum()",
        "torch.randn(C, C)",
        "self.a = nn.Linear(C, C)",
        "C = 64",
    )
    made = written(task, "set file replay True")
    assert any(node.op == "library" for group, _ in parts_of(made) for node in group.nodes)
    assert replays(made.source) == made.replays == recorded, obstacle(made.structure.graph, parts_of(made))


def test_numbers_made_once_are_recorded() -> None:
    made = written(program("torch.relu(x)", "torch.randn(B, C)"))
    ((group, part),) = parts_of(made)
    once = "@functools.cache\ndef numbers(device):\n    return torch.tensor([1.0, 2.0], device=device)"
    for text, recorded in ((once, True), (once.removeprefix("@functools.cache\n"), False)):
        helped = replace(part, helpers={"numbers": text})
        assert (obstacle(made.structure.graph, [(group, helped)]) is None) == recorded


def test_a_mask_among_places_is_not_recorded() -> None:
    task = program("torch.relu(x)", "torch.randn(B, C)")
    graph = graph_of(task)
    (x,) = graph.arguments
    mask = replace(graph.value(str(x)), name="mask", dtype="bool")
    graph = replace(graph, values={**graph.values, "mask": mask})
    chosen = Node("library", (str(x), "mask"), ("y",), {"target": "torch.ops.aten.index.Tensor"})
    assert not recordable(graph, chosen)
    assert recordable(graph, replace(chosen, inputs=(str(x), str(x))))


def test_names_of_the_task_forbid_a_recording() -> None:
    layers = "self.a = nn.Linear(C, C); self.recorded = nn.Linear(C, C)"
    task = program("torch.relu(self.recorded(torch.relu(self.a(x))))", "torch.randn(B, C)", layers)
    made = written(task, "set file replay True")
    assert not replays(made.source)
    assert not made.replays


def test_a_walk_through_time_is_dominated_by_its_launches() -> None:
    estimates = []
    for mode in ("steps", "cooperative"):
        made = written(WALK, f"set recurrent mode {mode}")
        parts = list(zip(made.structure.groups, made.structure.parts, strict=True))
        estimates.append(estimated(made.structure.graph, parts, H200))
    assert estimates[0].launches >= 64
    assert estimates[0].worth_it
    assert estimates[1].launches < 8, "all steps in one launch"


def test_a_host_that_is_near_hides_nothing_and_copies_are_kept_small() -> None:
    near = Estimate(40, host=0.5e-3, device=1e-3, copies=0.02e-3)
    assert near.worth_it
    assert not replace(near, copies=0.1e-3).worth_it, "copies for nothing"
    assert replace(near, device=0.3e-3, copies=0.1e-3).worth_it, "the host is the slower side"
    assert not replace(near, device=2e-3).worth_it
    assert not replace(near, launches=1).worth_it
    assert replace(near, launches=2, host=50e-6, device=15e-6, copies=0.0).worth_it, "two launches that wait"


def test_a_short_call_may_pay_for_its_copies() -> None:
    short = Estimate(9, host=0.22e-3, device=0.47e-3, copies=0.024e-3)
    assert short.worth_it
    assert not replace(short, copies=0.05e-3).worth_it, "more than a slight part"
    assert replace(short, device=0.14e-3, copies=0.15e-3).worth_it, "less than a busy host takes"
    assert not replace(short, device=1.1e-3, host=0.5e-3, copies=0.06e-3).worth_it, (
        "a long one hides the host"
    )


# -- what it means -------------------------------------------------------------------------------------


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


def kept(model: Any) -> int:
    """How many graphs a module holds."""
    return sum(graph is not None for _, graphs in model.recorded.values() for graph in graphs.values())


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


def test_the_second_call_makes_the_same_launches_on_a_pretended_gpu(tmp_path: Path) -> None:
    source = written(CHAIN).source
    seen = offline.capture(
        lambda: loaded(source, tmp_path).ModelNew().cuda(),
        lambda: [torch.randn(16, 64, device="cuda")],
        "sm_90",
    )
    assert len(seen.launches) >= 4
    assert [launch.kernel for launch in seen.launches] == [again.kernel for again in seen.first_call_launches]


def loaded(source: str, folder: Path) -> Any:
    path = folder / "replayed.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("replayed", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["replayed"] = module
    spec.loader.exec_module(module)
    return module


# -- on a GPU ------------------------------------------------------------------------------------------


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's own layers in fp32."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def models(task: Task, folder: Path, *moves: str) -> tuple[nn.Module, Any, Any]:
    """PyTorch's module and ours with the same weights, and what makes inputs."""
    space: dict[str, Any] = {}
    exec(task.source, space)
    source = written(task, *moves).source
    torch.manual_seed(0)
    theirs = space["Model"]().cuda()
    ours = loaded(source, folder).ModelNew().cuda()
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours, lambda: [x.cuda() for x in space["get_inputs"]()]


def leaves(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else [t for inner in result for t in leaves(inner)]


def close(got: Any, want: Any) -> None:
    assert len(leaves(got)) == len(leaves(want))
    for a, b in zip(leaves(got), leaves(want), strict=True):
        assert a.shape == b.shape
        off = (a - b).abs().max() / b.square().mean().sqrt()
        assert float(off) < 5e-3  # our convolutions may have the grade of TF32


@pytest.mark.gpu
@pytest.mark.usefixtures("exact")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("task", [CHAIN, NORMS, WALK], ids=["chain", "norms", "walk"])
@torch.no_grad()
def test_on_a_gpu_it_does_what_pytorch_does(task: Task, tmp_path: Path) -> None:
    theirs, ours, inputs = models(task, tmp_path, "set file replay True")
    handed: list[tuple[Any, Any]] = []

    def same(given: list[torch.Tensor]) -> None:
        want, got = theirs(*given), ours(*given)
        close(got, want)
        for name, tensor in theirs.state_dict().items():
            torch.testing.assert_close(ours.state_dict()[name], tensor, rtol=1e-3, atol=1e-3)
        handed.append((got, [t.clone() for t in leaves(got)]))

    given = inputs()
    same(given)
    assert not kept(ours)
    for _ in range(3):
        same(given)
    for _ in range(3):  # results that are let go, so that the same places come again
        ours(*given), theirs(*given)
    first = kept(ours)
    assert first
    for tensor in given:
        tensor.mul_(-0.5).add_(0.25)
    same(given)
    others = [inputs() for _ in range(3)]
    for _ in range(3):
        for other in others:
            same(other)
    assert kept(ours) >= first
    changed = {name: tensor * 0.9 for name, tensor in theirs.state_dict().items()}
    for model in (theirs, ours):  # copies into the weights
        model.load_state_dict({k: v.to(theirs.state_dict()[k].dtype) for k, v in changed.items()})
    same(given)
    for model in (theirs, ours):
        model.load_state_dict({k: v.clone() for k, v in theirs.state_dict().items()}, assign=True)
    for _ in range(4):
        same(given)
    small = [t[:2].clone() if t.shape[0] != 2 else t[:, :2].clone() for t in given]
    for _ in range(4):
        same(small)
    for model in (theirs, ours):
        model.cpu().cuda()
    for _ in range(4):
        same(given)
    for got, before in handed:
        for a, b in zip(leaves(got), before, strict=True):
            assert torch.equal(a, b)


@pytest.mark.gpu
@pytest.mark.usefixtures("exact")
@pytest.mark.timeout(240)
@torch.no_grad()
def test_on_a_gpu_it_can_be_recorded_by_somebody_else(tmp_path: Path) -> None:
    theirs, ours, inputs = models(CHAIN, tmp_path, "set file replay True")
    given = inputs()
    ours(*given)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = ours(*given)
    graph.replay()
    close(got, theirs(*given))


@pytest.mark.gpu
@pytest.mark.usefixtures("exact")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["steps", "cooperative"])
@torch.no_grad()
def test_on_a_gpu_every_way_to_walk_through_time(mode: str, tmp_path: Path) -> None:
    """Of a six-layer LSTM with 256 hidden units; ``-s`` shows how long a call takes."""
    task = program(
        "y, (h, c) = self.r(x, (h, c)); return y, h, c",
        "torch.randn(B, T, I), torch.randn(6, B, H), torch.randn(6, B, H)",
        "self.r = nn.LSTM(I, H, 6, batch_first=True)",
        "B, T, I, H = 10, 512, 128, 256",
        "x, h, c",
    )
    name = next(g.name for g in written(task).structure.groups if g.pattern == "recurrent")
    theirs, ours, inputs = models(task, tmp_path, f"set {name} mode {mode}")
    given = inputs()
    want = theirs(*given)
    for _ in range(4):
        close(ours(*given), want)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(10):
        ours(*given)
    torch.cuda.synchronize()
    print(f"{mode}: {(time.perf_counter() - start) * 100:.2f} ms a call")

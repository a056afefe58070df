"""When launches are replayed as a CUDA graph, and in which text."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from egg.core.policy import LibraryCalls
from egg.core.source import Task
from egg.evaluator.static import findings
from egg.expert.assemble import Written, graph_of, kernel_file
from egg.expert.graph import Node
from egg.expert.moves import Recipe, Set, parsed
from egg.expert.writing.replay import Estimate, estimated, obstacle
from egg.expert.writing.replay_calls import recordable
from egg.expert.writing.replay_results import placed
from egg.hardware.gpus import resolve
from tests.expert.captured import program

H200 = resolve("H200")

CHAIN = program(
    "y = torch.relu(self.a(x)); y = torch.relu(self.b(y)); y = torch.tanh(self.c(y)); return self.d(y), y",
    "torch.randn(B, C)",
    "self.a = nn.Linear(C, 2 * C); self.b = nn.Linear(2 * C, C); self.c = nn.Linear(C, C); "
    "self.d = nn.Linear(C, 3)",
    "B, C = 16, 64",
)
WALK = program(
    "y, (h, c) = self.r(x, (h, c)); return y, h, c",
    "torch.randn(B, T, I), torch.randn(2, B, H), torch.randn(2, B, H)",
    "self.r = nn.LSTM(I, H, 2, batch_first=True)",
    "B, T, I, H = 10, 64, 64, 256",
    "x, h, c",
)


STEP = program(
    "y = torch.tanh(self.a(x - before)); return {'out': self.b(y), 'last': x, 'more': [y, x]}",
    "torch.randn(B, C), torch.randn(B, C)",
    "self.a = nn.Linear(C, 2 * C); self.b = nn.Linear(2 * C, C)",
    "B, C = 16, 64",
    "x, before",
)
"""A step of a recurrence: the next one has this one's input before it."""


def written(task: Task, *moves: str) -> Written:
    return kernel_file(task, graph_of(task), Recipe().after(*map(parsed, moves)), H200)


def replays(text: str) -> bool:
    return "torch.cuda.graph(" in text


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


def test_arguments_among_the_results_are_handed_back_beside_what_a_graph_writes() -> None:
    text = written(STEP).source
    assert replays(text)
    assert 'row = (results["out"], results["more"][0])' in text
    assert 'return {"out": results[0], "last": x, "more": [results[1], x]}' in text
    assert "out=into and into[0]" in text
    assert "into[1]" in text
    pair = "y = torch.relu(self.a(x)); return x, self.b(y)"
    layers = "self.a = nn.Linear(C, C); self.b = nn.Linear(C, C)"
    assert "return (x, results[0])" in written(program(pair, "torch.randn(B, C)", layers)).source


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
    text = "def numbers(device):\n    return torch.tensor([1.0, 2.0], device=device)"
    for call, recorded in (("self.made_once(numbers, x.device)", True), ("numbers(x.device)", False)):
        helped = replace(part, helpers={"numbers": text}, call=(f"y = {call}", *part.call))
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
    assert replace(near, launches=1).worth_it
    assert replace(near, launches=2, host=50e-6, device=15e-6, copies=0.0).worth_it, "two launches that wait"


def test_a_short_call_may_pay_for_its_copies() -> None:
    short = Estimate(9, host=0.22e-3, device=0.47e-3, copies=0.024e-3)
    assert short.worth_it
    assert not replace(short, copies=0.05e-3).worth_it, "more than a slight part"
    assert replace(short, device=0.14e-3, copies=0.15e-3).worth_it, "less than a busy host takes"
    assert not replace(short, device=1.1e-3, host=0.5e-3, copies=0.06e-3).worth_it, (
        "a long one hides the host"
    )


def test_a_result_is_brought_into_its_layout_in_its_place() -> None:
    statements = (
        "a = nn.functional.conv2d(x, w).permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)",
        "b = torch.cumsum(x, 1).contiguous()",
        "c = f(x).permute(0, 2, 3, 1).contiguous().permute(0, 2, 3, 1)",
        "d = x.contiguous()",
        "return a, b, c, d",
    )
    lines = [f"        {line}" for line in statements]
    made = placed(lines, {})
    assert made.written == {0, 1}, "c lies elsewhere in another order, and d may be x itself"
    assert [line.strip() for line in made.lines if "into" in line] == [
        "a = into[0].copy_(a) if into else a.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)",
        "b = into[1].copy_(b) if into else b.contiguous()",
    ]


def test_convolutions_take_the_host_longer_than_other_calls() -> None:
    seconds = []
    for call in ("self.a(x)", "torch.kthvalue(x, 2).values"):
        task = program(
            f"torch.relu({call})",
            "torch.randn(B, C, C, C).half()",
            "self.a = nn.Conv2d(C, C, 3, bias=False).half()",
            "B, C = 4, 32",
        )
        made = written(task, "without convolution")
        estimate = estimated(made.structure.graph, parts_of(made), H200)
        assert estimate.launches == 2
        seconds.append(estimate.host)
    assert seconds[0] > seconds[1]


NESTED = program(
    "for block in self.blocks:\n            x = block(x)\n        return x + self.shift",
    "torch.randn(B, C)",
    "self.blocks = nn.Sequential(*[nn.Sequential(nn.Linear(C, C), nn.Tanh()) for _ in range(4)]); "
    "self.register_buffer('shift', torch.randn(C))",
    "B, C = 16, 64",
)


def rebound(model: Any) -> None:
    model.blocks[2][0].weight = nn.Parameter(torch.zeros(64, 64))


def moved(model: Any) -> None:
    model.blocks[0][0].bias.data = torch.zeros(64)


def replaced(model: Any) -> None:
    model.blocks[1] = nn.Sequential(nn.Linear(64, 64), nn.Tanh())


def assigned(model: Any) -> None:
    model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()}, assign=True)


def shifted(model: Any) -> None:
    model.shift = torch.zeros(64)


def computed(model: Any) -> None:
    parametrize.register_parametrization(model.blocks[3][0], "weight", nn.Identity())
    model.blocks[3][0].parametrizations.weight.original.data = torch.zeros(64, 64)


@pytest.mark.parametrize("change", [rebound, moved, replaced, assigned, shifted, computed])
def test_whatever_gives_weights_another_place_is_seen(change: Callable[[Any], None], tmp_path: Path) -> None:
    source = written(NESTED).source
    assert replays(source)
    assert not list(findings(source, LibraryCalls.ALLOW))
    model = loaded(source, tmp_path).ModelNew()
    before = model.addresses()
    assert set(before) == places(model)
    assert model.addresses() == before
    change(model)
    assert model.addresses() != before
    assert set(model.addresses()) == places(model)


def places(model: nn.Module) -> set[int]:
    return {tensor.data_ptr() for tensor in (*model.parameters(), *model.buffers())}


def test_layers_that_differ_in_their_weights_are_all_gone_to(tmp_path: Path) -> None:
    """Some without a bias, one that is a container, one with two ways into it, one that is not used."""
    layers = (
        "self.first = nn.Sequential(nn.Linear(C, C), nn.Linear(C, C), nn.Linear(C, C, bias=False), "
        "nn.Tanh(), nn.Sequential(nn.Linear(C, C), nn.Linear(C, C, bias=False))); "
        "self.second = nn.ModuleDict({'up': nn.ModuleList([self.first[0], nn.LayerNorm(C)])}); "
        "self.unused = nn.Linear(C, C); self.gain = nn.Parameter(torch.ones(C))"
    )
    forward = "self.second['up'][1](self.second['up'][0](self.first(x))) * self.gain"
    source = written(
        program(forward, "torch.randn(B, C)", layers, "B, C = 16, 64"), "set file replay True"
    ).source
    model = loaded(source, tmp_path).ModelNew()
    del model.unused
    assert sorted(model.addresses()) == sorted(places(model))


def kept(model: Any) -> int:
    """How many graphs a module holds."""
    return sum(graph is not None for _, graphs in model.recorded.values() for graph in graphs.values())


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

"""A graph printed as a task gives the graph's own answers, and the built-in team reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

from egg.core.errors import TaskError
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task.program import Program
from egg.modules.drawing import drawn
from egg.modules.printing import task_source
from egg.modules.slots import Slot, Values, described
from tests.modules.recording import recorded

CPU = torch.device("cpu")


def slots_for(graph: fx.GraphModule, examples: list[torch.Tensor]) -> list[Slot]:
    names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    roles = ["parameter" if isinstance(e, nn.Parameter) else "input" for e in examples]
    return [Slot.of(n, r, e) for n, r, e in zip(names, roles, examples, strict=True)]  # type: ignore[arg-type]


def answers(source: str, inputs: list[Any], held: Sequence[torch.Tensor]) -> Any:
    """What the printed Model answers, its parameters replaced by ``held``."""
    with Program.load(Task("printed", source)) as program, torch.no_grad():
        module = program.build(0, CPU, Precision.MATCH)
        for mine, theirs in zip(module.parameters(), held, strict=True):
            mine.copy_(theirs)
        assert [tuple(t.shape) for t in program.inputs(0, CPU, Precision.MATCH)] == [
            tuple(t.shape) for t in inputs
        ]
        return module(*inputs)


def test_a_graph_of_dynamo_is_a_task() -> None:
    layer = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16))
    x = torch.randn(4, 8)

    def block(x: torch.Tensor) -> torch.Tensor:
        y = layer(x)
        return y[:, None, :8].expand(-1, 2, -1).reshape(4, 16) * 2 - F.softmax(y, dim=-1)

    graph, examples = recorded(block, x)
    source = task_source(graph, slots_for(graph, examples))
    held = [e for e in examples if isinstance(e, nn.Parameter)]
    torch.testing.assert_close(answers(source, [x], held), block(x))


def test_signs_and_shifts_of_python_are_a_task() -> None:
    x = torch.arange(12).reshape(3, 4)

    def bits(x: torch.Tensor) -> torch.Tensor:
        return torch.where(~(x > 5), -x << 2, +x >> 1)

    graph, examples = recorded(bits, x)
    torch.testing.assert_close(answers(task_source(graph, slots_for(graph, examples)), [x], []), bits(x))


def test_sizes_and_devices_are_those_of_the_tensors() -> None:
    class Ramp(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.arange(x.shape[-1], device=x.device, dtype=x.dtype)

    x = torch.randn(2, 5)
    program = torch.export.export(Ramp(), (x,), strict=False)
    source = task_source(program.graph_module, [Slot.of("x", "input", x)])
    assert "device=x.device" in source
    torch.testing.assert_close(answers(source, [x], []), Ramp()(x))


def test_names_are_python_s_own() -> None:
    class Odd(nn.Module):
        def forward(self, self_: torch.Tensor, torch_: torch.Tensor) -> torch.Tensor:
            return self_ + torch_

    a, b = torch.randn(3), torch.randn(3)
    program = torch.export.export(Odd(), (a, b), strict=False)
    slots = [Slot.of("class", "input", a), Slot.of("torch", "input", b)]
    torch.testing.assert_close(answers(task_source(program.graph_module, slots), [a, b], []), a + b)


def test_an_operator_that_is_not_pytorch_s_is_named() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(slots_for, (x,)),))
    module = fx.GraphModule(nn.Module(), graph)
    with pytest.raises(TaskError, match="slots_for"):
        task_source(module, [Slot.of("x", "input", torch.randn(2))])


@pytest.mark.parametrize(
    ("tensor", "kind"),
    [
        (torch.randn(64, 64), "normal"),
        (torch.rand(64), "uniform"),
        (torch.ones(8), "uniform"),
        (torch.zeros(8), "normal"),
        (torch.randint(0, 9, (32,)), "integers"),
        (torch.arange(7).expand(2, 7), "steps"),
        (torch.ones(4, 4, dtype=torch.bool).tril(), "triangle"),
        (torch.rand(64) < 0.3, "share"),
        (torch.full((4, 4), float("-inf")).triu(1), "additive"),
        (torch.full((), 3.0), "uniform"),
        (torch.tensor([3, -100, 0, 5]), "padded"),
        (torch.tensor([3, -100, -1, 5]), "integers"),
    ],
)
def test_values_are_described(tensor: torch.Tensor, kind: str) -> None:
    assert described(tensor).kind == kind


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4).t(),
        torch.randn(3, 1).expand(3, 5),
        torch.randn(6, 8)[::2, 1:5],
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.rand(3, 4, dtype=torch.float64).t(),
        torch.randn(4).to(torch.bfloat16),
        torch.randn(4, dtype=torch.complex64),
        torch.randn(4).to(torch.float8_e4m3fn),
        torch.full((2, 3, 3), float("-inf")).triu(1),
        torch.zeros(2, 4).masked_fill(torch.tensor([[True, False, False, True]]), -1e9),
        torch.tensor([[True, False], [True, True]]),
        torch.tensor([3, 9, 2]),
        torch.empty(0, 3),
        torch.tensor(5),
    ],
)
@pytest.mark.parametrize("role", ["input", "constant"])
def test_what_is_drawn_has_the_form_of_the_example(tensor: torch.Tensor, role: Any) -> None:
    made = eval(drawn(Slot.of("x", role, tensor)), {"torch": torch})
    assert (made.shape, made.dtype) == (tensor.shape, tensor.dtype)
    if role == "constant" and described(tensor, fixed=True).kind == "listed":
        torch.testing.assert_close(made, tensor)
    else:
        assert made.stride() == tensor.stride()


def test_indices_stay_within_their_table() -> None:
    slot = Slot.of("ids", "input", torch.tensor([[3, 1, 4]])).within(10)
    assert slot.values == Values("integers", 0.0, 9.0)

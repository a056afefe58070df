"""Forward and backward graphs of training: looked up, recorded and answered one by one, by kernels or not."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from egg.core.source import content_sha256
from egg.modules.aot import laid_out
from egg.modules.backend import Backend
from egg.modules.fallback import Fallback
from egg.store import Recorded, Store, Tuned


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 12), nn.Linear(12, 6)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.down(F.gelu(self.up(self.norm(x)))), target)


class Conv(nn.Module):
    """A batch norm in training: it writes its statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(x))).square().mean()


def mlp_inputs(rows: int = 5) -> tuple[torch.Tensor, ...]:
    return torch.randn(rows, 8, requires_grad=True), torch.randint(0, 6, (rows,))


def conv_inputs(size: int = 6) -> tuple[torch.Tensor, ...]:
    return (torch.randn(2, 3, size, size, requires_grad=True),)


CASES = [(Mlp, mlp_inputs), (Conv, conv_inputs)]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", lambda text: pytest.fail(text))


class Program:
    """A module that is compiled with the backend, in a process of its own as far as Dynamo goes."""

    def __init__(self, store: Store, module: nn.Module, **options: Any) -> None:
        torch._dynamo.reset()
        self.backend, self.module = Backend(), module
        given = {"store": str(store.folder), "fallback": "eager", "unmeasured": True, **options}
        self.run = torch.compile(module, backend=self.backend, options=given, dynamic=False)

    def step(self, inputs: tuple[torch.Tensor, ...]) -> None:
        """One step of training whose loss, gradients and buffers are those of the original in fp64."""
        copied = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
        exact = copy.deepcopy(self.module).double()
        wide = [t.detach().double().requires_grad_() if t.requires_grad else t for t in inputs]
        self.module.zero_grad()
        loss = self.run(*copied)
        loss.backward()
        expected = exact(*wide)
        expected.backward()
        torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-5)
        for found, wanted in zip(copied, wide, strict=True):
            if wanted.requires_grad:
                torch.testing.assert_close(found.grad.double(), wanted.grad, rtol=1e-4, atol=1e-5)
        for found, wanted in zip(self.module.parameters(), exact.parameters(), strict=True):
            torch.testing.assert_close(found.grad.double(), wanted.grad, rtol=1e-4, atol=1e-5)
        for found, wanted in zip(self.module.buffers(), exact.buffers(), strict=True):
            torch.testing.assert_close(found, wanted.to(found.dtype), rtol=1e-5, atol=1e-5)

    def rows(self) -> dict[str, dict[str, Any]]:
        return {row["part"]: row for row in self.backend.stats()}


def tuned(store: Store, which: Callable[[str], bool] = lambda task: True, **change: str) -> None:
    """Put kernel files into the store that are the tasks themselves."""
    for entry in store.entries():
        if which(entry.task):
            kernel = entry.task.replace("class Model(", "class ModelNew(")
            for old, new in change.items():
                kernel = kernel.replace(old, new)
            store.tuned(entry.key, kernel, Tuned(content_sha256(kernel), {}))


def is_backward(task: str) -> bool:
    return "convolution_backward" in task or "mm_3" in task


@pytest.mark.parametrize(("make", "inputs"), CASES)
def test_both_graphs_are_recorded_at_the_first_step_and_run_on_kernels_afterwards(store, make, inputs):
    first = Program(store, make())
    first.step(inputs())
    first.step(inputs())
    assert [row["route"] for row in first.backend.stats()] == ["recorded", "recorded"]
    assert [row["counts"]["fallback"] for row in first.backend.stats()] == [2, 2]
    assert [(entry.seen.compiled, entry.state) for entry in store.entries()] == [(1, Recorded())] * 2
    tuned(store)
    again = Program(store, make())
    optimizer = torch.optim.SGD(again.module.parameters(), lr=0.1)
    for _ in range(3):
        again.step(inputs())
        optimizer.step()
    rows = again.rows()
    assert set(rows) == {"forward", "backward"}
    for row in rows.values():
        assert (row["route"], row["counts"]["kernel"], row["counts"]["fallback"]) == ("kernel", 3, 0)


@pytest.mark.parametrize(
    ("make", "inputs", "part", "fallback"),
    [
        (Mlp, mlp_inputs, "forward", "inductor"),
        (Mlp, mlp_inputs, "backward", "eager"),
        (Conv, conv_inputs, "forward", "eager"),
        (Conv, conv_inputs, "backward", "inductor"),
    ],
)
def test_one_graph_on_a_kernel_trains_with_the_other_one(store, make, inputs, part, fallback):
    Program(store, make()).step(inputs())
    tuned(store, lambda task: is_backward(task) == (part == "backward"))
    program = Program(store, make(), fallback=fallback)
    program.step(inputs())
    routes = {name: row["route"] for name, row in program.rows().items()}
    other = {"forward": "backward", "backward": "forward"}[part]
    assert routes == {part: "kernel", other: "recorded"}
    assert program.rows()[part]["counts"]["kernel"] == 1


def test_graphs_without_kernels_go_to_the_fallback_as_one_in_later_processes(store, monkeypatch):
    """Inductor compiles them with AOTAutograd's cache then; a kernel for one of them ends that."""
    Program(store, Mlp()).step(mlp_inputs())
    asked: list[str] = []
    trained = Fallback.trained
    monkeypatch.setattr(
        Fallback, "trained", lambda self, *given: (asked.append("trained"), trained(self, *given))[1]
    )
    again = Program(store, Mlp())
    again.step(mlp_inputs())
    assert asked == []
    assert [(row["part"], row["route"], row["counts"]["fallback"]) for row in again.backend.stats()] == [
        ("forward", "recorded", 1),
        ("backward", "recorded", 1),
    ]
    assert [entry.seen.compiled for entry in store.entries()] == [2, 2]
    store.rejected(store.entries()[1].key, "not faster")
    Program(store, Mlp()).step(mlp_inputs())
    assert asked == []
    tuned(store, is_backward)
    last = Program(store, Mlp())
    last.step(mlp_inputs())
    assert asked == ["trained"]
    assert {row["route"] for row in last.backend.stats()} == {"kernel", "rejected"}


def test_another_shape_is_another_pair_of_graphs(store):
    program = Program(store, Mlp())
    program.step(mlp_inputs(5))
    tuned(store)
    program = Program(store, Mlp())
    program.step(mlp_inputs(5))
    program.step(mlp_inputs(7))
    program.step(mlp_inputs(5))
    rows = program.backend.stats()
    assert [(row["route"], row["part"]) for row in rows] == [
        ("kernel", "forward"), ("kernel", "backward"), ("recorded", "forward"), ("recorded", "backward"),
    ]  # fmt: skip
    assert [row["counts"]["kernel"] for row in rows] == [2, 2, 0, 0]


@pytest.mark.parametrize(
    ("fallback", "problem"),
    [("inductor", "ValueError('for others')"), ("eager", "RuntimeError('illegal address')")],
)
def test_what_a_kernel_refuses_or_fails_at_trains_through_the_fallback(store, fallback, problem, caplog):
    Program(store, Conv()).step(conv_inputs())
    tuned(store, **{"        return ": f"        raise {problem}\n        return "})
    program = Program(store, Conv(), fallback=fallback)
    program.step(conv_inputs())
    program.step(conv_inputs())
    for row in program.backend.stats():
        assert (row["counts"]["kernel"], row["counts"]["fallback"]) == (0, 2)
        assert bool(row["counts"]["outside"]) == ("ValueError" in problem)
        assert bool(row["counts"]["failure"]) == ("RuntimeError" in problem)


def test_the_task_draws_what_was_seen_and_never_a_constant_tangent(store):
    x, target = mlp_inputs()
    target[0] = -100
    Program(store, Mlp()).step((x, target))
    for entry in store.entries():
        made: dict[str, Any] = {}
        exec(entry.task, made)
        drawn = [made["get_inputs"]() for _ in range(2)]
        for one, other in zip(*drawn, strict=True):
            if one.is_floating_point():
                assert not torch.equal(one, other)
            else:
                assert set(one.tolist()) <= {-100, *range(6)}
        assert all(t.isfinite().all() for t in made["Model"]()(*drawn[0]))


def test_outputs_of_a_kernel_in_another_layout_get_the_strides_that_the_backward_was_compiled_for(store):
    Program(store, Mlp()).step(mlp_inputs())
    tuned(
        store,
        lambda task: not is_backward(task),
        **{"        return ": "        addmm = addmm.t().contiguous().t()\n        return "},
    )
    program = Program(store, Mlp(), fallback="inductor")
    program.step(mlp_inputs())
    assert program.rows()["forward"]["counts"]["kernel"] == 1


def test_casts_of_autocast_are_part_of_the_graphs(store):
    module, inputs = Mlp(), mlp_inputs()
    with torch.autocast("cpu", torch.bfloat16):
        program = Program(store, module)
        program.run(*inputs).backward()
        expected = copy.deepcopy(module)
        expected.zero_grad()
        expected(*inputs).backward()
    assert [row["route"] for row in program.backend.stats()] == ["recorded", "recorded"]
    assert all("torch.bfloat16" in entry.task for entry in store.entries())
    torch.testing.assert_close(module.up.weight.grad, expected.up.weight.grad, rtol=0.05, atol=0.01)


def test_random_numbers_leave_the_graph_that_draws_them(store):
    class Dropping(Mlp):
        def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(self.down(F.dropout(self.up(x))), target)

    program = Program(store, Dropping())
    program.run(*mlp_inputs()).backward()
    row = program.rows()["forward"]
    assert row["route"] == "left"
    assert "random" in row["reason"]


def test_a_free_size_is_asked_of_a_tensor(store):
    def run(rows: int) -> Program:
        program = Program(store, Mlp())
        program.run = torch.compile(
            program.module, backend=program.backend, dynamic=None,
            options={"store": str(store.folder), "fallback": "eager", "unmeasured": True},
        )  # fmt: skip
        x, target = mlp_inputs(rows)
        torch._dynamo.mark_dynamic(x, 0)
        torch._dynamo.mark_dynamic(target, 0)
        program.run(x, target).backward()
        return program

    assert {row["route"] for row in run(5).backend.stats()} <= {"recorded", "left"}
    tuned(store)
    again = run(7)
    assert again.rows()["forward"]["route"] == "kernel"
    assert again.rows()["forward"]["counts"]["kernel"] == 1


def test_a_fault_of_ours_is_said_and_stops_no_training(store, monkeypatch, caplog):
    def broken(graph: Any) -> Any:
        raise KeyError("unforeseen")

    monkeypatch.setattr("egg.modules.training.read_functional", broken)
    Program(store, Mlp()).step(mlp_inputs())
    assert any("internal error: KeyError: 'unforeseen'" in line for line in caplog.messages)


def test_cuda_graphs_are_left_to_inductor(store):
    program = Program(store, Mlp(), fallback="inductor", **{"triton.cudagraphs": True})
    program.step(mlp_inputs())
    assert {row["route"] for row in program.backend.stats()} == {"left"}
    assert "CUDA graph" in program.backend.stats()[0]["reason"]
    assert store.entries() == ()


def test_another_fallback_derives_the_backward_itself(store):
    program = Program(store, Mlp(), fallback="aot_eager_decomp_partition")
    program.step(mlp_inputs())
    assert [row["route"] for row in program.backend.stats()] == ["training"]


def test_gradients_of_kernels_are_those_of_finite_differences(store):
    """``torch.autograd.gradcheck`` in fp64, through kernel files for forward and backward."""

    def program(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.layer_norm(x, (4,), scale) @ weight)

    def compiled() -> tuple[Backend, Callable[..., torch.Tensor]]:
        torch._dynamo.reset()
        backend = Backend()
        options = {"store": str(store.folder), "fallback": "eager", "unmeasured": True}
        return backend, torch.compile(program, backend=backend, options=options, dynamic=False)

    shapes = ((3, 4), (4, 5), (4,))
    inputs = tuple(torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    compiled()[1](*inputs).sum().backward()
    tuned(store)
    backend, run = compiled()
    assert torch.autograd.gradcheck(run, inputs)
    used = {row["part"]: row["counts"]["kernel"] for row in backend.stats() if row["route"] == "kernel"}
    assert used["forward"] > 0
    assert used["backward"] > 0


@pytest.mark.parametrize("stride", [(2, 1), None])
def test_an_output_of_a_kernel_begins_where_its_memory_does(stride):
    """Views by ``as_strided`` count from there."""
    for tensor in (torch.randn(6).view(3, 2), torch.randn(8)[2:].view(3, 2), torch.randn(2, 3).t()):
        made = laid_out(tensor, stride)
        assert (made.stride(), made.storage_offset()) == ((2, 1), 0)
        assert torch.equal(made, tensor)


def test_an_integer_that_is_computed_from_many_is_left_to_the_kernel(store):
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4))
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

        def forward(self, x: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            self.steps += 1
            return (x * self.weight).sum(), ids.sum()

    Program(store, Counting()).run(torch.randn(3, 4), torch.arange(5))[0].backward()
    tasks = [entry.task for entry in store.entries()]
    assert any(".sum(x1)" in task or "sum(x2)" in task for task in tasks)
    assert not any("torch.add" in task for task in tasks)  # the counter is added up beside the kernel


def test_a_graph_is_tuned_at_its_first_call_where_that_is_asked_for(store, monkeypatch):
    def tune(kept: Store, entry: Any, chosen: Any) -> None:
        tuned(kept)

    monkeypatch.setattr("egg.modules.lookup._tune", tune)
    program = Program(store, Conv(), tune=True)
    program.step(conv_inputs())
    program.step(conv_inputs())
    assert [(row["route"], row["counts"]["kernel"]) for row in program.backend.stats()] == [("kernel", 2)] * 2

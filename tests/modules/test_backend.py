"""``torch.compile(backend=egg.backend)`` in one process: routes, reasons, guards, binding, failures."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import egg
from egg.core.source import Task, content_sha256
from egg.modules.backend import Backend
from egg.modules.dynamo import Program, read
from egg.store import Entry, Recorded, Seen, Store, Tuned

SCALE = """
import torch
from torch import nn

calls = []


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.p0 = nn.Parameter(torch.ones(8))
        self.register_buffer("b0", torch.zeros(8))

    def forward(self, x0):
        calls.append(self)
        {first}
        return torch.relu(x0 * self.p0) + self.b0
"""


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))
        self.register_buffer("shift", torch.randn(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * self.weight) + self.shift


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def backend() -> Backend:
    return Backend()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", lambda text: pytest.fail(text))


@pytest.fixture
def options(store: Store) -> dict[str, Any]:
    return {"store": str(store.folder), "fallback": "eager", "unmeasured": True}


def recorded(backend: Backend, options: dict[str, Any], model: Callable[..., Any], *given: Any) -> Any:
    """What a compiled program computes."""
    return torch.compile(model, backend=backend, options=options)(*given)


def with_kernel(backend: Backend, store: Store, options: dict[str, Any], first: str = "pass") -> Entry:
    """Record the graph of :class:`Scale` and put a kernel file for it into the store."""
    with torch.no_grad():
        recorded(backend, options, Scale(), torch.ones(4, 8))
    (entry,) = store.entries()
    kernel = SCALE.format(first=first)
    store.tuned(entry.key, kernel, Tuned(content_sha256(kernel), {}))
    torch._dynamo.reset()
    backend.reset()
    return store.named(entry.key)


def test_an_unknown_graph_is_recorded_as_a_task_and_computed_by_the_fallback(backend, store, options):
    model, x = Scale(), torch.randn(4, 8)
    with torch.no_grad():
        made = recorded(backend, options, model, x)
        torch.testing.assert_close(made, model(x))
    (entry,) = store.entries()
    assert isinstance(entry.state, Recorded)
    assert entry.seen.compiled == 1
    assert entry.seen.traffic == 4 * (3 * (32 + 32) + 2 * 8)  # three operators, two of them with a vector
    assert "x0" in Task("recorded", entry.task).source
    (row,) = backend.stats()
    assert (row["route"], row["counts"]["fallback"]) == ("recorded", 1)


def test_layers_that_compute_the_same_are_one_entry_whatever_they_are_called(backend, store, options):
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.rand(8))
            self.register_buffer("offset", torch.rand(8))

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            scaled = hidden * self.gain
            return torch.relu(scaled) + self.offset

    with torch.no_grad():
        recorded(backend, options, Scale(), torch.ones(4, 8))
        recorded(backend, options, Other(), torch.randn(4, 8))
    (entry,) = store.entries()
    assert entry.seen.compiled == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda model, x: (model, torch.ones(5, 8)),
        lambda model, x: (model.double(), x.double()),
        lambda model, x: (model, torch.ones(8, 4).t()),
        lambda model, x: (nn.Sequential(model, nn.ReLU()), x),
    ],
)
def test_what_makes_another_graph(backend, store, options, change):
    with torch.no_grad():
        recorded(backend, options, Scale(), torch.ones(4, 8))
        torch._dynamo.reset()
        model, x = change(Scale(), torch.ones(4, 8))
        recorded(backend, options, model, x)
    assert len(store.entries()) == 2


def holding(values: list[float]) -> Program:
    """A graph that holds a tensor of its own, as a program."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = mode.from_tensor(torch.ones(2))
    graph = fx.Graph()
    x = graph.placeholder("x")
    held = graph.get_attr("held")
    made = graph.call_function(torch.mul, (x, held))
    graph.output((made,))
    for node in (x, made):
        node.meta["example_value"] = fake
    root = nn.Module()
    root.held = torch.tensor(values)
    return read(fx.GraphModule(root, graph), [torch.ones(2)])


def test_constants_are_held_by_the_model_and_small_ones_are_part_of_the_key():
    one, two = holding([1.0, 2.0]), holding([1.0, 3.0])
    assert one.text == two.text
    assert one.forms != two.forms
    assert one.forms == holding([1.0, 2.0]).forms
    assert [held.name for held in one.held] == ["c0"]
    assert "torch.tensor([1.0, 2.0]" in one.task()


def in_place(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return torch.relu(x) * 2


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (in_place, "changes an input in place"),
        (lambda x: (x.view(-1), torch.relu(x)), "shares memory with an input"),
        (lambda x: (y := torch.relu(x), y.view(-1))[0:2], "outputs of it share memory"),
        (lambda x: nn.functional.dropout(x) + 1, "random numbers"),
        (lambda x: torch.ones(3) + 1, None),
    ],
)
def test_what_no_kernel_may_answer_is_left_with_the_reason(backend, store, options, program, reason):
    torch.manual_seed(0)
    made = recorded(backend, options, program, torch.ones(4, 4))
    torch.manual_seed(0)
    torch.testing.assert_close(made, program(torch.ones(4, 4)))
    assert store.entries() == ()
    if reason is not None:
        assert [row["route"] for row in backend.stats()] == ["left"]
        assert reason in backend.stats()[0]["reason"]


def test_a_change_in_place_of_what_the_graph_made_is_printed_as_one(backend, store, options):
    def program(x: torch.Tensor) -> torch.Tensor:
        made = x.clone()
        flat = made.view(-1)
        flat += 1
        return made * 2

    recorded(backend, options, program, torch.ones(4, 4))
    (entry,) = store.entries()
    model: dict[str, Any] = {}
    exec(entry.task, model)
    torch.testing.assert_close(model["Model"]()(torch.ones(4, 4)), torch.full((4, 4), 4.0))


def test_autocast_leaves_the_graph_alone(backend, store, options):
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        recorded(backend, options, Scale(), torch.ones(4, 8))
    assert "autocast" in backend.stats()[0]["reason"]
    assert store.entries() == ()


def test_autocast_that_is_off_and_the_grad_mode_inside_a_program_are_no_obstacle(backend, store, options):
    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False), torch.no_grad():
            y = x * 2
        return torch.relu(y)

    torch.testing.assert_close(recorded(backend, options, program, torch.ones(4)), torch.full((4,), 2.0))
    (entry,) = store.entries()
    assert "autocast" not in entry.task
    assert "grad" not in entry.claim.graph


def test_a_graph_that_is_left_disturbs_no_state_of_pytorch(backend, store, options):
    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ x
        return torch.vmap(torch.sin)(y) * 2

    made = recorded(backend, options, program, torch.ones(4, 4))
    torch.testing.assert_close(made, program(torch.ones(4, 4)))
    assert not torch.is_autocast_enabled("cpu")
    assert all("changes the state of PyTorch" in row["reason"] for row in backend.stats())


def test_a_kernel_is_called_and_holds_the_programs_own_tensors(backend, store, options):
    with_kernel(backend, store, options)
    models, x = [Scale(), Scale()], torch.randn(4, 8)
    with torch.no_grad():
        for model in models:
            model.compile(backend=backend, options=options)
            torch.testing.assert_close(model(x), model.forward(x))
            model.weight.mul_(2)
            torch.testing.assert_close(model(x), model.forward(x))
    assert sum(row["counts"]["kernel"] for row in backend.stats()) == 4
    assert {row["route"] for row in backend.stats()} == {"kernel"}


def test_a_known_graph_with_a_free_size_asks_it_of_a_tensor(backend, store, options):
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x).reshape(x.shape[0] // 2, -1)

    x = torch.randn(6, 8)
    torch._dynamo.mark_dynamic(x, 0)
    torch.testing.assert_close(recorded(backend, options, program, x), program(x))
    (entry,) = store.entries()
    assert entry.claim.inputs == ("input float32 s0 x 8 by 8 x 1",)
    model: dict[str, Any] = {}
    exec(entry.task, model)
    torch.testing.assert_close(model["Model"]()(torch.ones(10, 8)), torch.ones(5, 16))


def test_a_call_outside_the_domain_is_answered_by_the_fallback_and_asked_once(backend, store, options):
    with_kernel(backend, store, options, "raise ValueError('x0 is odd, and these kernels are for others')")
    model, x = Scale(), torch.randn(4, 8)
    with torch.no_grad():
        compiled = torch.compile(model, backend=backend, options=options)
        for _ in range(3):
            torch.testing.assert_close(compiled(x), model(x))
    (row,) = backend.stats()
    assert row["counts"]["outside"] == {"x0 is odd, and these kernels are for others": 1}
    assert (row["counts"]["kernel"], row["counts"]["fallback"]) == (0, 3)


def test_a_kernel_that_fails_is_out_of_use_and_the_failure_is_kept(backend, store, options, caplog):
    entry = with_kernel(backend, store, options, "raise RuntimeError('illegal address')")
    model, x = Scale(), torch.randn(4, 8)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "egg"):
        compiled = torch.compile(model, backend=backend, options=options)
        for _ in range(3):
            torch.testing.assert_close(compiled(x), model(x))
    (row,) = backend.stats()
    assert row["counts"]["failure"] == "RuntimeError: illegal address"
    assert (row["counts"]["kernel"], row["counts"]["fallback"]) == (0, 3)
    assert store.named(entry.key).failures == ("RuntimeError: illegal address",)
    assert len([line for line in caplog.messages if "out of use" in line]) == 1


@pytest.mark.parametrize("text", ["def broken(:", "import torch\nclass ModelNew(torch.nn.Module): ...\n"])
def test_a_kernel_file_that_does_not_load_or_holds_other_tensors_is_not_used(
    backend, store, options, caplog, text
):
    entry = with_kernel(backend, store, options)
    store.tuned(entry.key, text, Tuned(content_sha256(text), {}))
    model, x = Scale(), torch.randn(4, 8)
    with torch.no_grad():
        torch.testing.assert_close(recorded(backend, options, model, x), model(x))
    (row,) = backend.stats()
    assert row["route"] == "left"
    assert "does not load" in row["reason"]


def test_a_kernel_whose_text_was_changed_is_never_run(backend, store, options, caplog):
    with_kernel(backend, store, options)
    (kernel,) = (store.folder / "kernels").iterdir()
    kernel.write_text(kernel.read_text().replace("torch.relu", "torch.sigmoid"))
    model, x = Scale(), torch.randn(4, 8)
    with torch.no_grad():
        torch.testing.assert_close(recorded(backend, options, model, x), model(x))
    (row,) = backend.stats()
    assert (row["route"], row["counts"]["kernel"]) == ("left", 0)
    assert any("another content than its name says" in line for line in caplog.messages)


def test_a_kernel_that_no_gpu_measured_is_used_only_where_that_is_asked_for(backend, store, options):
    with_kernel(backend, store, options)
    with torch.no_grad():
        recorded(backend, {**options, "unmeasured": False}, Scale(), torch.ones(4, 8))
    (row,) = backend.stats()
    assert row["route"] == "rejected"
    assert "no GPU measured it" in row["reason"]


def test_a_rejected_graph_says_why(backend, store, options):
    entry = with_kernel(backend, store, options)
    store.rejected(entry.key, "not faster than compile")
    with torch.no_grad():
        recorded(backend, options, Scale(), torch.ones(4, 8))
    assert backend.stats()[0]["reason"] == "not faster than compile"


def test_a_store_that_cannot_be_used_breaks_no_program(backend, tmp_path, caplog):
    place = tmp_path / "file"
    place.write_text("")
    model, x = Scale(), torch.randn(4, 8)
    options = {"store": str(place), "fallback": "eager"}
    with torch.no_grad():
        torch.testing.assert_close(recorded(backend, options, model, x), model(x))
    assert backend.stats()[0]["route"] == "left"
    assert any("the store is not used" in line for line in caplog.messages)


@pytest.mark.parametrize("where", ["inference.read", "regions.layers"])
def test_a_fault_of_the_backend_is_said_and_breaks_no_program(
    backend, store, options, caplog, monkeypatch, where
):
    def broken(*_: Any) -> Any:
        raise KeyError("unforeseen")

    monkeypatch.setattr(f"egg.modules.{where}", broken)
    model, x = Scale(), torch.randn(4, 8)
    with torch.no_grad():
        torch.testing.assert_close(recorded(backend, options, model, x), model(x))
    assert any("internal error: KeyError: 'unforeseen'" in line for line in caplog.messages)
    if where == "inference.read":
        assert "internal error" in backend.stats()[0]["reason"]


@pytest.mark.parametrize("trains", [False, True])
def test_a_program_that_inductor_cannot_compile_runs_eagerly(backend, store, caplog, monkeypatch, trains):
    def broken(*_: Any, **__: Any) -> Any:
        raise TypeError("list indices must be integers")

    monkeypatch.setattr("torch._inductor.compile_fx.fx_codegen_and_compile", broken)
    model, x = Scale(), torch.randn(4, 8)
    with torch.set_grad_enabled(trains):
        made = recorded(backend, {"store": str(store.folder)}, model, x)
        torch.testing.assert_close(made, model(x))
    assert any("Inductor fails here (TypeError: list indices" in line for line in caplog.messages)
    if trains:
        made.sum().backward()
        assert model.weight.grad is not None


def test_a_damaged_entry_is_set_aside_and_recorded_again(backend, store, options, caplog):
    entry = with_kernel(backend, store, options)
    (store.folder / "entries" / f"{entry.key}.json").write_text("{")
    with torch.no_grad():
        recorded(backend, options, Scale(), torch.ones(4, 8))
    assert backend.stats()[0]["route"] == "recorded"
    assert any("damaged" in line for line in caplog.messages)
    assert store.named(entry.key).seen == Seen(1, 0, entry.seen.traffic)


def test_the_entry_point_of_dynamo_names_the_backend():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    named = project["entry-points"]["torch_dynamo_backends"]
    assert EntryPoint("egg", named["egg"], "torch_dynamo_backends").load() is egg.backend


def test_the_backend_is_found_by_name_and_as_an_attribute(store, monkeypatch):
    monkeypatch.setenv("EGG_STORE", str(store.folder))
    torch._dynamo.register_backend(egg.backend, name="egg_of_this_test")
    egg.backend.reset()
    made = torch.compile(torch.relu, backend="egg_of_this_test", options={"fallback": "eager"})(torch.ones(3))
    torch.testing.assert_close(made, torch.ones(3))
    assert [row["route"] for row in egg.backend.stats()] == ["recorded"]
    assert len(store.entries()) == 1

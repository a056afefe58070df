"""The backend on a GPU: kernels are used where they are measured faster, layers are tried as a whole."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from egg.cli.app import app
from egg.modules.backend import Backend
from egg.modules.replay import Replayed
from egg.modules.replayable import Inputs
from egg.modules.trial import MOST_CALLS, WARM
from egg.store import Rejected, Store, Tuned
from tests.modules.test_backend import Scale
from tests.modules.test_layers import COUNT, Net, tuned_by_the_task_itself
from tests.modules.test_training import CASES, Program, is_backward, tuned

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@torch.no_grad()
def test_a_graph_is_tuned_and_its_kernel_is_used_where_it_is_faster(tmp_path: Path):
    store = Store(tmp_path, lambda text: pytest.fail(text))
    model, x = Scale().cuda(), torch.randn(1 << 20, 8, device="cuda")
    torch.compile(model, backend=Backend(), options={"store": str(tmp_path)})(x)
    done = CliRunner().invoke(app, ["tune", "--store", str(tmp_path), "--budget", "sketch", "--json"])
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)["tuned"]
    (entry,) = store.entries()
    torch._dynamo.reset()
    backend = Backend()
    run = torch.compile(model, backend=backend, options={"store": str(tmp_path)})
    for _ in range(3):
        torch.testing.assert_close(run(x), model(x))
    (graph,) = backend.stats()
    if isinstance(entry.state, Tuned):
        assert min(found["low"] for found in row["speedups"].values()) > 1
        assert (graph["route"], graph["counts"]["kernel"]) == ("kernel", 3)
    else:
        assert isinstance(entry.state, Rejected)
        assert (graph["route"], graph["counts"]["fallback"]) == ("rejected", 3)


@torch.no_grad()
def test_a_model_is_tried_with_its_kernels_and_without_and_the_verdict_is_kept(tmp_path: Path):
    store = Store(tmp_path, lambda text: pytest.fail(text))
    net, given = Net().cuda(), (torch.arange(5, device="cuda"), torch.rand(8, device="cuda"))
    options = {"store": str(tmp_path), "unmeasured": True}
    torch.compile(net, backend=Backend(), options=options)(*given)
    tuned_by_the_task_itself(store)
    for turn in range(2):
        torch._dynamo.reset()
        backend = Backend()
        run = torch.compile(net, backend=backend, options=options)
        answers = [run(*given) for _ in range(MOST_CALLS + 2)]
        for answer in answers:  # a replay overwrites none that were given before
            torch.testing.assert_close(answer, net(*given))
        whole, layer = backend.stats()
        assert "kernels" in whole["reason"]
        assert (whole["pending"], whole["given_up"]) == (False, {})
        assert {"without kernels, eager", "with kernels, replayed"} <= set(whole["milliseconds"])
        if turn == 0:
            assert layer["counts"]["kernel"] >= 4 * COUNT * WARM
    assert len(list((tmp_path / "assemblies").iterdir())) == 1


@torch.no_grad()
def test_a_short_model_without_faster_kernels_is_replayed(tmp_path: Path):
    store = Store(tmp_path, lambda text: pytest.fail(text))
    net, given = Net().cuda(), (torch.arange(5, device="cuda"), torch.rand(8, device="cuda"))
    options = {"store": str(tmp_path)}
    torch.compile(net, backend=Backend(), options=options)(*given)
    (entry,) = store.entries()
    store.rejected(entry.key, "no kernel is faster")
    for _ in range(2):
        torch._dynamo.reset()
        backend = Backend()
        run = torch.compile(net, backend=backend, options=options)
        for _ in range(MOST_CALLS + 2):
            torch.testing.assert_close(run(*given), net(*given))
        net.layers[2].gate.weight.mul_(3)
        torch.testing.assert_close(run(*given), net(*given))
        assert ", replayed" in backend.stats()[0]["reason"]


class Cached(Net):
    """Changes a buffer in place at every call, as a decoder with a static cache does."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(5, 8))

    def forward(self, ids: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        self.seen.add_(self.embed(ids))
        return super().forward(ids, scale) + self.seen.sum()


@torch.no_grad()
def test_every_form_changes_a_buffer_once_at_every_call(tmp_path: Path):
    store = Store(tmp_path, lambda text: pytest.fail(text))
    net, given = Cached().cuda(), (torch.arange(5, device="cuda"), torch.rand(8, device="cuda"))
    other = copy.deepcopy(net)
    options = {"store": str(tmp_path), "unmeasured": True}
    run = torch.compile(net, backend=Backend(), options=options)
    torch.testing.assert_close(run(*given), other(*given))
    tuned_by_the_task_itself(store)
    torch._dynamo.reset()
    backend = Backend()
    run = torch.compile(net, backend=backend, options=options)
    for _ in range(MOST_CALLS + 2):
        torch.testing.assert_close(run(*given), other(*given))
    torch.testing.assert_close(net.seen, other.seen)
    assert backend.stats()[0]["given_up"] == {}


@torch.no_grad()
def test_a_graph_that_cannot_be_recorded_runs_as_it_is():
    """The host waits for a number in the middle: recording fails, and the stream is as it was."""

    def waits(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x * float(x.sum()),)

    run, x = Replayed(waits, Inputs()), torch.ones(4, device="cuda")
    stream = torch.cuda.current_stream()
    for _ in range(4):
        torch.testing.assert_close(run(x), waits(x))
    assert "cannot be recorded" in run.obstacle
    assert torch.cuda.current_stream() == stream
    fine = Replayed(lambda x: (x + 1,), Inputs())
    for value in range(4):
        torch.testing.assert_close(fine(x + value), (x + value + 1,))
    assert fine.obstacle == ""


@torch.no_grad()
def test_replays_of_two_streams_follow_each_other():
    run = Replayed(lambda x: ((x @ x).sum(dim=1),), Inputs())
    inputs = [torch.full((512, 512), float(value), device="cuda") for value in range(4)]
    for x in inputs[:2]:
        run(x)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    made = []
    for turn in range(20):
        with torch.cuda.stream(side if turn % 2 else torch.cuda.current_stream()):
            made.append(run(inputs[turn % 4])[0])
    torch.cuda.synchronize()
    for turn, found in enumerate(made):
        torch.testing.assert_close(found, (inputs[turn % 4] @ inputs[turn % 4]).sum(dim=1))


@pytest.mark.parametrize("part", ["forward", "backward"])
@pytest.mark.parametrize(("make", "inputs"), CASES)
def test_one_graph_of_a_step_runs_on_a_kernel_and_inductor_compiles_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make, inputs, part
):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    store = Store(tmp_path, lambda text: pytest.fail(text))
    given = tuple(t.detach().cuda().requires_grad_(t.requires_grad) for t in inputs())
    Program(store, make().cuda(), fallback="inductor").step(given)
    assert len(store.entries()) == 2
    tuned(store, lambda task: is_backward(task) == (part == "backward"))
    program = Program(store, make().cuda(), fallback="inductor")
    for _ in range(3):
        program.step(given)
    row = program.rows()[part]
    assert (row["route"], row["counts"]["kernel"]) == ("kernel", 3)


def test_cuda_graphs_and_kernels_do_not_mix(tmp_path: Path):
    store = Store(tmp_path, lambda text: pytest.fail(text))
    make, inputs = CASES[0]
    given = tuple(t.detach().cuda().requires_grad_(t.requires_grad) for t in inputs())
    program = Program(store, make().cuda(), fallback="inductor", **{"triton.cudagraphs": True})
    for _ in range(3):
        program.step(given)
    assert {row["route"] for row in program.backend.stats()} == {"left"}

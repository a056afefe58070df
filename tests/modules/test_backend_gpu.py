"""The backend on a GPU: kernels are used where they are measured faster, layers are tried as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from egg.cli.app import app
from egg.modules.backend import Backend
from egg.modules.trial import FORMS, ROUNDS, WARM
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
        answers = [run(*given) for _ in range(len(FORMS) * (WARM + ROUNDS) + 2)]
        for answer in answers:  # a replay overwrites none that were given before
            torch.testing.assert_close(answer, net(*given))
        whole, layer = backend.stats()
        assert "kernels" in whole["reason"]
        if turn == 0:
            assert layer["counts"]["kernel"] >= COUNT * (WARM + ROUNDS)
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
        for _ in range(2 * (WARM + ROUNDS) + 2):
            torch.testing.assert_close(run(*given), net(*given))
        net.layers[2].gate.weight.mul_(3)
        torch.testing.assert_close(run(*given), net(*given))
        assert "without kernels, replayed" in backend.stats()[0]["reason"]


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

"""Layers that repeat in a large graph: recorded once, answered by one kernel, rolled back without a gain."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._functorch.aot_autograd import _try_get_metadata_from_dynamo
from torch.nn import functional as F

from egg.core.source import content_sha256
from egg.modules import regions
from egg.modules.backend import Backend
from egg.modules.fallback import Fallback
from egg.modules.trial import (
    EAGER,
    EAGER_REPLAYED,
    KERNELS,
    KERNELS_EAGER_REPLAYED,
    MOST_CALLS,
    PLAIN,
    REPLAYED,
    Form,
    Verdict,
)
from egg.store import Store, Tuned
from tests.modules.fake_gpu import fake_gpu

COUNT = 6


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.gate, self.up, self.down = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return x + scale * self.down(F.silu(self.gate(y)) * self.up(y))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.layers = nn.ModuleList(Layer() for _ in range(COUNT))
        self.head = nn.Linear(8, 10)

    def forward(self, ids: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        scale = scale.sigmoid() * 2
        for layer in self.layers:
            x = layer(x, scale)
        return self.head(x)


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", lambda text: pytest.fail(text))


@pytest.fixture
def inputs() -> tuple[torch.Tensor, ...]:
    return torch.arange(5), torch.rand(8)


def compiled(backend: Backend, store: Store, net: nn.Module, fallback: str = "eager", **more: Any) -> Any:
    options = {"store": str(store.folder), "fallback": fallback, "unmeasured": True, **more}
    return torch.compile(net, backend=backend, options=options)


def tuned_by_the_task_itself(store: Store) -> str:
    (entry,) = store.entries()
    kernel = entry.task.replace("class Model(", "class ModelNew(")
    store.tuned(entry.key, kernel, Tuned(content_sha256(kernel), {}))
    return entry.key


@torch.no_grad()
def test_layers_are_recorded_once_and_the_graph_goes_to_the_fallback(store: Store, inputs):
    backend, net = Backend(), Net()
    torch.testing.assert_close(compiled(backend, store, net)(*inputs), net(*inputs))
    (entry,) = store.entries()
    assert entry.seen.compiled == COUNT
    assert entry.task.count("self.p") >= 8
    whole, layer = backend.stats()
    assert (whole["route"], whole["reason"]) == ("layers", f"{COUNT} layers of 1 kinds")
    assert (layer["route"], layer["places"], layer["counts"]["fallback"]) == ("recorded", COUNT, COUNT)


class Residual(nn.Module):
    """Writes into tensors that it made itself, as networks of images do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second(F.relu(self.norm(self.first(x)), inplace=True))
        y += x
        return F.relu(y, inplace=True)


@torch.no_grad()
def test_layers_that_write_into_their_own_tensors_are_recorded(store: Store):
    net, x = nn.Sequential(*(Residual() for _ in range(2 * COUNT))).eval(), torch.randn(2, 4, 6, 6)
    torch.testing.assert_close(compiled(Backend(), store, net)(x.clone()), net(x.clone()))
    (entry,) = store.entries()
    assert entry.seen.compiled >= 2 * COUNT - 1


@torch.no_grad()
@pytest.mark.parametrize("fallback", ["eager", "aot_eager"])
def test_one_kernel_answers_every_layer_with_its_own_weights(store: Store, inputs, fallback):
    net = Net()
    compiled(Backend(), store, net)(*inputs)
    tuned_by_the_task_itself(store)
    torch._dynamo.reset()
    backend = Backend()
    run = compiled(backend, store, net, fallback)
    for _ in range(2):
        torch.testing.assert_close(run(*inputs), net(*inputs))
    net.layers[2].gate.weight.mul_(3)
    torch.testing.assert_close(run(*inputs), net(*inputs))
    layer = backend.stats()[1]
    assert (layer["route"], layer["counts"]["kernel"]) == ("kernel", 3 * COUNT)


@torch.no_grad()
def test_outputs_of_a_kernel_in_another_layout_get_the_strides_of_the_original(store: Store, inputs):
    net = Net()
    compiled(Backend(), store, net)(*inputs)
    (entry,) = store.entries()
    kernel = entry.task.replace("class Model(", "class ModelNew(")
    head, _, made = kernel.partition("        return ")
    result, _, rest = made.partition("\n")
    kernel = f"{head}        return {result}.t().contiguous().t()\n{rest}"
    store.tuned(entry.key, kernel, Tuned(content_sha256(kernel), {}))
    torch._dynamo.reset()
    backend = Backend()
    torch.testing.assert_close(compiled(backend, store, net, "aot_eager")(*inputs), net(*inputs))
    assert backend.stats()[1]["counts"]["kernel"] == COUNT


@torch.no_grad()
def test_a_layer_outside_the_domain_runs_as_it_was_written(store: Store, inputs):
    net = Net()
    compiled(Backend(), store, net)(*inputs)
    (entry,) = store.entries()
    kernel = entry.task.replace("class Model(", "class ModelNew(").replace(
        "        return ", "        raise "
    )
    kernel = kernel.replace("        raise ", "        raise ValueError('outside') #", 1)
    store.tuned(entry.key, kernel, Tuned(content_sha256(kernel), {}))
    torch._dynamo.reset()
    backend = Backend()
    torch.testing.assert_close(compiled(backend, store, net)(*inputs), net(*inputs))
    assert backend.stats()[1]["counts"] == {
        "kernel": 0,
        "fallback": COUNT,
        "outside": {"outside": 1},
        "failure": "",
    }


@torch.no_grad()
@pytest.mark.parametrize(("ratio", "keep"), [(1.0, False), (1.3, True)])
def test_a_whole_that_did_not_gain_is_rolled_back(store: Store, inputs, monkeypatch, ratio, keep):
    net, verdicts = Net(), []
    compiled(Backend(), store, net)(*inputs)
    tuned_by_the_task_itself(store)

    class Decided:
        """A trial that ends at once, as if a GPU had measured ``ratio``."""

        def __init__(self, forms: Any, decided: Any) -> None:
            form = Form(kernels=keep)
            decided(Verdict(form, {PLAIN: [ratio], KERNELS: [1.0]} if keep else {PLAIN: [1.0]}, {}))
            verdicts.append(1)
            self._chosen = forms[form]

        def __call__(self, *args: Any) -> Any:
            return self._chosen(*args)

    monkeypatch.setattr("egg.modules.whole.Trial", Decided)
    monkeypatch.setattr("egg.modules.whole.on_gpu", lambda value: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    for _ in range(2):
        torch._dynamo.reset()
        backend = Backend()
        torch.testing.assert_close(compiled(backend, store, net)(*inputs), net(*inputs))
        assert f"{ratio:.2f}x" in backend.stats()[0]["reason"]
        assert backend.stats()[1]["counts"]["kernel"] == (COUNT if keep else 0)
    assert len(verdicts) == 1  # the second process reads the verdict


def test_a_small_graph_is_one_task(inputs):
    class Two(Net):
        def __init__(self) -> None:
            super().__init__()
            self.layers = self.layers[:2]

    found: list[Any] = []

    def look(graph: Any, _: Any) -> Any:
        found.append(regions.layers(graph))
        return graph

    with torch.no_grad():
        torch.compile(Two(), backend=look)(*inputs)
    assert found == [()]


@torch.no_grad()
@pytest.mark.parametrize("replay", [True, False])
def test_a_graph_without_a_faster_kernel_is_tried_in_other_forms(store: Store, inputs, monkeypatch, replay):
    """Of what PyTorch itself can do the fastest is kept, too; the option turns replay off."""
    net, offered, kept = Net(), [], REPLAYED if replay else EAGER
    monkeypatch.setattr(Fallback, "now", lambda self, graph, _: graph.forward)
    gpu = fake_gpu(monkeypatch)
    compiled(Backend(), store, net)(*inputs)
    (entry,) = store.entries()
    store.rejected(entry.key, "no kernel is faster")

    def trial(forms: Any, decided: Any) -> Any:
        offered.append(list(forms))
        decided(Verdict(kept, {PLAIN: [1.5], kept: [1.0]}, {}))
        return forms[kept]

    monkeypatch.setattr("egg.modules.whole.Trial", trial)
    monkeypatch.setattr("egg.modules.whole.on_gpu", lambda value: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr("egg.modules.replayable._elsewhere", lambda inputs: "")
    monkeypatch.setattr("egg.modules.replayable._foreign", lambda graph: iter(()))
    for _ in range(2):
        torch._dynamo.reset()
        backend = Backend()
        run = compiled(backend, store, net, "inductor", replay=replay)
        for _ in range(3):
            torch.testing.assert_close(run(*inputs), net(*inputs))
        assert f"; {kept}: 1.50x" in backend.stats()[0]["reason"]
        assert backend.stats()[0]["milliseconds"] == {"without kernels": 1.5, str(kept): 1.0}
    assert offered == [[PLAIN, REPLAYED, EAGER, EAGER_REPLAYED] if replay else [PLAIN, EAGER]]
    assert gpu.recordings == (2 if replay else 0)


@torch.no_grad()
@torch._inductor.config.patch(force_disable_caches=True)
@pytest.mark.parametrize("replay", [True, False])
def test_where_inductor_fails_the_operators_one_by_one_are_tried_and_inductor_is_asked_once(
    store: Store, inputs, monkeypatch, replay
):
    """The forms are eager and eager replayed; the verdict is kept, and a later process starts with it."""
    net, asked = Net(), []

    def broken(*_: Any, **__: Any) -> Any:
        asked.append(True)
        raise TypeError("list indices must be integers")

    monkeypatch.setattr("torch._inductor.compile_fx.fx_codegen_and_compile", broken)
    gpu = fake_gpu(monkeypatch)
    compiled(Backend(), store, net)(*inputs)
    (entry,) = store.entries()
    store.rejected(entry.key, "no kernel is faster")
    monkeypatch.setattr("egg.modules.whole.on_gpu", lambda value: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr("egg.modules.replayable._elsewhere", lambda inputs: "")
    monkeypatch.setattr("egg.modules.replayable._foreign", lambda graph: iter(()))
    eager = {str(EAGER), str(EAGER_REPLAYED)} if replay else set()
    for turn in range(2):
        torch._dynamo.reset()
        backend = Backend()
        run = compiled(backend, store, net, "inductor", replay=replay)
        for _ in range(MOST_CALLS if turn == 0 else 2):
            torch.testing.assert_close(run(*inputs), net(*inputs))
        (row, *_) = backend.stats()
        assert (bool(asked), row["pending"]) == (turn == 0, False)
        assert row["milliseconds"].keys() == eager
        assert f"; {EAGER}" in row["reason"]
        if turn == 0:
            failing = {str(PLAIN), str(REPLAYED)} if replay else {str(PLAIN)}
            assert row["given_up"].keys() == failing
            assert all("list indices" in reason for reason in row["given_up"].values())
        asked.clear()
    assert gpu.recordings == (1 if replay else 0)


@torch.no_grad()
@torch._inductor.config.patch(force_disable_caches=True)
def test_where_a_compiler_is_missing_nothing_is_kept(store: Store, inputs, monkeypatch):
    """With a compiler the next process may have Inductor's code."""
    from torch._inductor.exc import InvalidCxxCompiler

    net, asked = Net(), []

    def missing(*_: Any, **__: Any) -> Any:
        asked.append(True)
        raise InvalidCxxCompiler

    fake_gpu(monkeypatch)
    compiled(Backend(), store, net)(*inputs)
    (entry,) = store.entries()
    store.rejected(entry.key, "no kernel is faster")
    monkeypatch.setattr("torch._inductor.compile_fx.fx_codegen_and_compile", missing)
    monkeypatch.setattr("egg.modules.whole.on_gpu", lambda value: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    for _ in range(2):
        torch._dynamo.reset()
        run = compiled(Backend(), store, net, "inductor", replay=False)
        torch.testing.assert_close(run(*inputs), net(*inputs))
        assert asked
        asked.clear()


@torch.no_grad()
def test_a_verdict_that_needs_no_inductor_starts_without_it(store: Store, inputs, monkeypatch):
    """Kernels replayed, with operators one by one around them: a later process compiles nothing."""
    net, kept = Net(), KERNELS_EAGER_REPLAYED
    gpu = fake_gpu(monkeypatch)
    compiled(Backend(), store, net)(*inputs)
    tuned_by_the_task_itself(store)
    asked: list[Any] = []
    monkeypatch.setattr(Fallback, "now", lambda self, graph, _: asked.append(graph) or graph.forward)
    monkeypatch.setattr("egg.modules.whole.on_gpu", lambda value: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr("egg.modules.replayable._elsewhere", lambda inputs: "")
    monkeypatch.setattr("egg.modules.replayable._foreign", lambda graph: iter(()))

    def trial(forms: Any, decided: Any) -> Any:
        decided(Verdict(kept, {PLAIN: [3.0], kept: [1.0]}, {}))
        return forms[kept]

    monkeypatch.setattr("egg.modules.whole.Trial", trial)
    for turn in range(2):
        torch._dynamo.reset()
        backend = Backend()
        run = compiled(backend, store, net, "inductor")
        for _ in range(4):
            torch.testing.assert_close(run(*inputs), net(*inputs))
        assert backend.stats()[1]["counts"]["kernel"] == 4 * COUNT
        assert (asked == []) == (turn == 1)
        asked.clear()
    assert gpu.recordings == 2


@torch.no_grad()
def test_a_layer_that_replays_itself_is_launched_within_a_whole_that_is_replayed(
    store: Store, inputs, monkeypatch
):
    """Its own replays would copy every layer's results, and record graphs while forms are timed."""
    net = Net()
    gpu = fake_gpu(monkeypatch)
    compiled(Backend(), store, net)(*inputs)
    (entry,) = store.entries()
    head, _, body = entry.task.replace("class Model(", "class ModelNew(").partition("    def forward(self, ")
    arguments, _, rest = body.partition("):")
    replaying = f"""    calls = []

    def forward(self, {arguments}):
        self.calls.append(1)
        seen = (x0.shape, x0.dtype)
        if seen[1] != torch.float32:
            raise ValueError("x0 is not float32")
        if torch.is_grad_enabled():
            return x0 * 0
        if not x0.is_contiguous():
            return self.forward(x0.contiguous(), x1)
        if x0.device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return self.launches({arguments})
        return self.launches({arguments})

    def launches(self, {arguments}):{rest}"""
    kernel = f"{head}{replaying}"
    store.tuned(entry.key, kernel, Tuned(content_sha256(kernel), {}))
    monkeypatch.setattr("egg.modules.replayable._elsewhere", lambda inputs: "")
    monkeypatch.setattr("egg.modules.replayable._foreign", lambda graph: iter(()))
    monkeypatch.setattr(Fallback, "now", lambda self, graph, _: graph.forward)
    torch._dynamo.reset()
    backend = Backend()
    run = compiled(backend, store, net, "inductor")
    answers = [run(*inputs) for _ in range(3)]
    monkeypatch.undo()
    for answer in answers:
        torch.testing.assert_close(answer, net(*inputs))
    assert backend.stats()[1]["counts"] == {"kernel": 3 * COUNT, "fallback": 0, "outside": {}, "failure": ""}
    kernel_file: Any = sys.modules[f"egg_kernel_{content_sha256(kernel)}"]
    assert len(kernel_file.ModelNew.calls) == COUNT  # forward once for each layer, with its guard
    assert gpu.recordings == 0  # without a GPU there is no trial


@torch.no_grad()
@pytest.mark.parametrize("kernels", [False, True])
def test_what_is_compiled_is_known_as_dynamos(store: Store, inputs, monkeypatch, kernels):
    """Without it AOTAutograd takes parameters for inputs, which a CUDA graph copies in at every call."""
    net, seen = Net(), []

    def look(graph: Any, given: Any) -> Any:
        seen.append(_try_get_metadata_from_dynamo(graph, {}.keys(), len(given), []))
        return graph.forward

    compiled(Backend(), store, net)(*inputs)
    if kernels:
        tuned_by_the_task_itself(store)
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "_TorchCompileInductorWrapper", lambda *given: look)
    compiled(Backend(), store, net, "inductor")(*inputs)
    ((sources, static),) = seen
    parameters = len(list(net.parameters()))
    assert len(sources) == parameters + 2
    assert len(static) == parameters

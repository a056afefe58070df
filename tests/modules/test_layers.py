"""Layers that repeat in a large graph: recorded once, answered by one kernel, rolled back without a gain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._functorch.aot_autograd import _try_get_metadata_from_dynamo
from torch.nn import functional as F

from egg.core.source import content_hash
from egg.modules import regions
from egg.modules.backend import Backend
from egg.modules.trial import KERNELS, PLAIN, REPLAYED, ROUNDS, WARM, Form, Trial, faster, owned
from egg.store import Store, Tuned

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
    store.tuned(entry.key, kernel, Tuned(content_hash(kernel), {}))
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
    store.tuned(entry.key, kernel, Tuned(content_hash(kernel), {}))
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
    store.tuned(entry.key, kernel, Tuned(content_hash(kernel), {}))
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
@pytest.mark.parametrize(("ratio", "keep"), [(0.9, False), (1.3, True)])
def test_a_whole_that_did_not_gain_is_rolled_back(store: Store, inputs, monkeypatch, ratio, keep):
    net, verdicts = Net(), []
    compiled(Backend(), store, net)(*inputs)
    tuned_by_the_task_itself(store)

    class Decided:
        """A trial that ends at once, as if a GPU had measured ``ratio``."""

        def __init__(self, forms: Any, decided: Any) -> None:
            form = Form(kernels=keep)
            decided(form, ratio)
            verdicts.append(1)
            self._chosen = forms[form]

        def __call__(self, *args: Any) -> Any:
            return self._chosen(*args)

    monkeypatch.setattr("egg.modules.backend.Trial", Decided)
    monkeypatch.setattr("egg.modules.backend._on_gpu", lambda value: True)
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


class Clock:
    """Events of a GPU that took as long as a form is said to take."""

    now = 0.0

    def __init__(self, enable_timing: bool) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = Clock.now

    def elapsed_time(self, other: Clock) -> float:
        return other.at - self.at


def tried(seconds: dict[Form, float], monkeypatch: pytest.MonkeyPatch, extra: int = 5) -> tuple[Any, ...]:
    """The calls by form after the verdict, and the verdict, of forms that take so long."""
    monkeypatch.setattr(torch.cuda, "Event", Clock)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    calls: list[Form] = []

    def form(which: Form) -> Any:
        def call(x: int) -> int:
            if seconds[which] < 0:
                raise torch.OutOfMemoryError
            calls.append(which)
            Clock.now += seconds[which]
            return x

        return call

    verdicts: list[Any] = []
    trial = Trial({which: form(which) for which in seconds}, lambda *found: verdicts.append(found))
    rounds = sum(WARM + ROUNDS if taken > 0 else 1 for taken in seconds.values())
    assert [trial(x) for x in range(rounds + extra)] == list(range(rounds + extra))
    assert len(calls) == rounds + extra
    return set(calls[rounds:]), verdicts


@pytest.mark.parametrize(
    ("seconds", "kept", "ratio"),
    [
        ({PLAIN: 1.0, KERNELS: 0.5}, KERNELS, 2.0),
        ({PLAIN: 1.0, KERNELS: 1.0}, PLAIN, 1.0),
        ({PLAIN: 1.0, KERNELS: 2.0}, PLAIN, 1.0),
        ({PLAIN: 1.0, REPLAYED: 0.5}, REPLAYED, 2.0),
        ({PLAIN: 1.0, KERNELS: 0.8, REPLAYED: 0.9}, KERNELS, 1.25),
        ({PLAIN: 1.0, KERNELS: 0.8, REPLAYED: 0.5}, REPLAYED, 2.0),
        ({PLAIN: 1.0, KERNELS: 1.2, REPLAYED: 0.5}, REPLAYED, 2.0),
        ({PLAIN: 1.0, KERNELS: 0.8, REPLAYED: -1.0}, KERNELS, 1.25),
    ],
)
def test_a_trial_computes_every_call_once_and_keeps_the_fastest_form(monkeypatch, seconds, kept, ratio):
    assert tried(seconds, monkeypatch) == ({kept}, [(kept, pytest.approx(ratio))])


@pytest.mark.parametrize(
    ("results", "replayed"),
    [
        (lambda x: (x + 1, x.sum()), True),
        (lambda x: (x + 1, x), False),
        (lambda x: x.view(-1), False),
        (lambda x: (lambda y: (y, y.T))(x + 1), False),
    ],
)
def test_a_graph_whose_results_share_memory_is_not_replayed(monkeypatch, results, replayed):
    """Copies of such results would no longer follow what is written to the other."""
    monkeypatch.setattr(torch.cuda, "Event", Clock)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    called: list[Form] = []

    def form(which: Form) -> Any:
        return lambda x: (called.append(which), results(x))[1]

    trial = Trial({PLAIN: form(PLAIN), REPLAYED: form(REPLAYED)}, lambda *_: None)
    for _ in range(4):
        trial(torch.ones(2, 3))
    assert (REPLAYED in called) == replayed


def test_a_gain_within_the_noise_is_none():
    steady = [1.0] * 10
    assert faster([0.5] * 10, steady)
    assert not faster([0.995] * 10, steady)
    assert not faster([0.9] * 5 + [1.5] * 5, steady)


def test_results_of_a_replayed_graph_are_the_callers():
    place = torch.zeros(2)
    run = owned(lambda x: (place.copy_(x), 3))
    first, _ = run(torch.ones(2))
    second, number = run(torch.full((2,), 2.0))
    assert (first.tolist(), second.tolist(), number) == ([1.0, 1.0], [2.0, 2.0], 3)


@torch.no_grad()
@pytest.mark.parametrize("replay", [True, False])
def test_a_graph_without_a_faster_kernel_is_tried_as_a_cuda_graph(store: Store, inputs, monkeypatch, replay):
    """Of the modes of Inductor the one is kept, too, that is fastest; the option turns it off."""
    net, offered = Net(), []
    compiled(Backend(), store, net)(*inputs)
    (entry,) = store.entries()
    store.rejected(entry.key, "no kernel is faster")

    def trial(forms: Any, decided: Any) -> Any:
        offered.append(list(forms))
        decided(REPLAYED, 1.5)
        return forms[REPLAYED]

    monkeypatch.setattr("egg.modules.backend.Trial", trial)
    monkeypatch.setattr("egg.modules.backend._on_gpu", lambda value: True)
    for _ in range(2):
        torch._dynamo.reset()
        backend = Backend()
        run = compiled(backend, store, net, "inductor", replay=replay)
        torch.testing.assert_close(run(*inputs), net(*inputs))
        assert ("without kernels, replayed: 1.50x" in backend.stats()[0]["reason"]) == replay
    assert offered == ([[PLAIN, REPLAYED]] if replay else [])


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

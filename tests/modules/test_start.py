"""What a process does before its first answer, with a store that knows the graph: counted, not timed."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache
from torch.nn import functional as F

from egg.core.source import content_sha256
from egg.modules.backend import Backend
from egg.modules.outlines import outline_name
from egg.modules.trial import KERNELS, PLAIN, Form, Verdict
from egg.store import Store, Tuned

COUNT, WIDTH = 15, 8
SEARCH = ("regions.layers", "inference.read", "dynamo.run_fake", "cuts.effects_of", "whole.replayable")
"""What the first process does with a graph."""


class Block(nn.Module):
    """Of products alone, for which Inductor compiles no code."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(WIDTH, WIDTH) / WIDTH**0.5 for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            x = torch.mm(x, weight)
        return x


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(COUNT))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Wide(nn.Module):
    """A large graph without layers that repeat."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for place in range(25):
            x = F.silu(x) + place
        return x


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", lambda text: pytest.fail(text))


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(3, WIDTH)


def started(store: Store, net: nn.Module, x: torch.Tensor, fallback: str = "eager") -> list[dict[str, Any]]:
    """The rows of a new start, whose first answer is right."""
    torch._dynamo.reset()
    backend = Backend()
    options = {"store": str(store.folder), "fallback": fallback, "unmeasured": True}
    with torch.no_grad():
        answer = torch.compile(net, backend=backend, options=options)(x)
        torch.testing.assert_close(answer, net(x))
    return [{name: row[name] for name in ("route", "reason", "key", "places")} for row in backend.stats()]


def tuned(store: Store) -> None:
    for entry in store.entries():
        kernel = entry.task.replace("class Model(", "class ModelNew(")
        store.tuned(entry.key, kernel, Tuned(content_sha256(kernel), {}))


def decided(monkeypatch: pytest.MonkeyPatch, form: Form) -> None:
    """Trials end at once with this form, as if on a GPU."""

    def trial(forms: Any, keep: Any) -> Any:
        keep(Verdict(form, {PLAIN: [1.0], form: [1.0]}, {}))
        return forms[form]

    monkeypatch.setattr("egg.modules.whole.Trial", trial)
    monkeypatch.setattr("egg.modules.whole.on_gpu", lambda value: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")


def counted(monkeypatch: pytest.MonkeyPatch, *places: str) -> list[str]:
    """The names of functions of the modules, once for each call from here on."""
    calls: list[str] = []
    for place in places:
        module, name = place.split(".")
        original = getattr(import_module(f"egg.modules.{module}"), name)

        def noted(*args: Any, _original: Any = original, _name: str = name, **more: Any) -> Any:
            calls.append(_name)
            return _original(*args, **more)

        monkeypatch.setattr(f"egg.modules.{place}", noted)
    return calls


@pytest.mark.parametrize("state", ["recorded", "rejected", "verdict"])
def test_a_graph_that_does_without_kernels_is_neither_searched_nor_read(store, x, monkeypatch, state):
    net = Net()
    rows = started(store, net, x)
    if state == "rejected":
        store.rejected(store.entries()[0].key, "not faster")
        rows = started(store, net, x)
    elif state == "verdict":
        tuned(store)
        decided(monkeypatch, PLAIN)
        rows = started(store, net, x)
    calls = counted(monkeypatch, *SEARCH, "stored_kernel.load_kernel", "layer_calls.replaced")
    assert started(store, net, x) == rows
    assert calls == []
    (entry,) = store.entries()
    assert rows[1] == {
        "route": rows[1]["route"],
        "reason": rows[1]["reason"],
        "key": entry.key,
        "places": COUNT,
    }


def test_kernels_are_placed_where_an_earlier_process_found_the_layers(store, x, monkeypatch):
    """One layer of the kind is read; the graph is not searched, and nothing runs on fake tensors."""
    net = Net()
    started(store, net, x)
    tuned(store)
    decided(monkeypatch, KERNELS)
    rows = started(store, net, x)
    calls = counted(monkeypatch, *SEARCH)
    cuts = counted(monkeypatch, "regions.left_out")
    assert started(store, net, x) == rows
    assert rows[1]["route"] == "kernel"
    assert calls == ["read"]
    assert len(cuts) == COUNT


def test_a_graph_that_no_kernel_may_answer_is_searched_once(store, x, monkeypatch):
    class Drawing(Wide):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + 0 * torch.rand_like(x)

    rows = started(store, Drawing(), x)
    assert rows[0]["route"] == "left"
    assert "draws random numbers" in rows[0]["reason"]
    calls = counted(monkeypatch, *SEARCH)
    assert started(store, Drawing(), x) == rows
    assert calls == []


def test_an_outline_whose_entry_is_gone_is_not_used(store, x):
    rows = started(store, Net(), x)
    store.remove(store.entries())
    assert started(store, Net(), x) == rows
    assert [entry.key for entry in store.entries()] == [rows[1]["key"]]


def test_an_outline_of_other_layers_is_not_used(store, x, monkeypatch):
    """Places that do not hold the layer of the entry are searched again."""
    net = Net()
    started(store, net, x)
    tuned(store)
    (path,) = (store.folder / "outlines").iterdir()
    outline = json.loads(path.read_text())
    outline["kinds"][0]["spans"] = [[start, stop - 1] for start, stop in outline["kinds"][0]["spans"]]
    path.write_text(json.dumps(outline))
    calls = counted(monkeypatch, "regions.layers")
    rows = started(store, net, x)
    assert calls == ["layers"]
    assert [row["route"] for row in rows] == ["layers", "kernel"]


def test_a_tuned_entry_is_used_by_the_next_start(store, x):
    net = Net()
    assert started(store, net, x)[1]["route"] == "recorded"
    tuned(store)
    assert started(store, net, x)[1]["route"] == "kernel"


def test_the_name_of_an_outline_is_that_of_the_graph_its_inputs_and_its_modules(x):
    names: list[str] = []

    def look(graph: Any, inputs: Any) -> Any:
        names.append(outline_name(graph, inputs, []))
        return graph

    class Flat(Net):
        """The same calls, all in one module."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                for weight in block.weights:
                    x = torch.mm(x, weight)
            return x

    net = Net()
    for module, given in ((net, x), (copy.deepcopy(net), x + 1), (net, torch.randn(4, WIDTH)), (Flat(), x)):
        torch._dynamo.reset()
        with torch.no_grad():
            torch.compile(module, backend=look, dynamic=False)(given)
    assert names[0] == names[1]
    assert len(set(names)) == 3
    assert "" not in names


def test_what_torch_compile_left_in_its_caches_is_found(store, x):
    """AOTAutograd's cache goes by the module that it is given: a copy must look like Dynamo's own."""
    net = Net()
    started(store, net, x)
    store.rejected(store.entries()[0].key, "not faster")
    with fresh_cache(), torch.no_grad():
        torch._dynamo.reset()
        torch.compile(net)(x)
        counters.clear()
        started(store, net, x, "inductor")
        assert counters["aot_autograd"]["autograd_cache_hit"] == 1
        assert counters["aot_autograd"]["autograd_cache_miss"] == 0
        assert counters["inductor"]["fxgraph_cache_miss"] == 0


@pytest.mark.system
def test_the_backend_loads_what_a_known_graph_needs(tmp_path):
    """Searching, printing tasks, training and kernel files are loaded by those that need them."""
    program = "import json, sys, egg; egg.backend; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    for name in ("regions", "cuts", "probing", "printing", "training", "stored_kernel", "layer_calls"):
        assert f"egg.modules.{name}" not in loaded

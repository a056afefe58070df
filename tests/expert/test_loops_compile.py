"""One kernel of each kind is accepted by the compiler for a GPU that is not there, in both forms of its
tile.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from egg.core.policy import LibraryCalls
from egg.core.source import Candidate
from egg.evaluator.offline import capture
from egg.evaluator.static import check as static_check
from egg.expert.graph import Node, Value, contiguous_stride
from egg.expert.sizes import Size
from tests.expert import harness
from tests.expert.checking import Build, written
from tests.expert.programs import Program, tensors
from tests.expert.test_loops_pointwise import embedded, image, pooled
from tests.expert.test_loops_rows import cube, trained
from tests.ledgers import COMPILED


def long_rows(p: Program) -> str:
    return p.input("x", (p.size("rows", 300, 3), p.size("width", 2000, 20)))


def layer(p: Program) -> str:
    x = long_rows(p)
    width = p.shape(x)[1]
    inputs = (x, p.parameter("ln.weight", (width,)), p.parameter("ln.bias", (width,)))
    return p.pointwise("mish", p.node("norm", inputs, p.shape(x), kind="layer", dims=(1,), eps=1e-5))


def softmax(p: Program) -> str:
    return p.pointwise("tanh", p.softmax(long_rows(p), 1))


def arg(p: Program) -> str:
    return p.reduce("argmax", long_rows(p), (1,))


def middle(p: Program) -> str:
    return p.reduce("max", p.input("x", cube(p)), (1,))


def scan(p: Program) -> str:
    x = long_rows(p)
    return p.node("scan", (x,), p.shape(x), fn="sum", dim=1, reverse=True)


def log_scan(p: Program) -> str:
    x = long_rows(p)
    return p.node("scan", (x,), p.shape(x), fn="logcumsumexp", dim=1)


def channels(p: Program) -> str:
    return p.pointwise("softplus", p.pointwise("add", p.input("x", image(p)), p.parameter("b", (4, 1, 1))))


def transposed(p: Program) -> str:
    x = p.input("x", (p.size("a", 400, 9), p.size("b", 500, 7)), "bfloat16")
    return p.pointwise("relu", p.permute(x, (1, 0)))


def strips(p: Program) -> str:
    x = p.input("x", (p.size("n", 3, 2), 4, 40, 64), "bfloat16")
    window = {"kernel": (4, 4), "stride": (1, 1), "padding": (1, 1)}
    return p.node("pool", (x,), (p.shape(x)[0], 4, 39, 63), fn="max", **window)


def resized(p: Program, fn: str) -> str:
    x = p.input("x", (p.size("n", 3, 2), 4, 40, 64), "bfloat16")
    where = {"axes": (2, 3), "scale": (40 / 30, 64 / 150), "factors": None, "aligned": False}
    return p.node("resample", (x,), (p.shape(x)[0], 4, 30, 150), fn=fn, **where)


def columns(p: Program) -> str:
    return p.reduce("sum", p.input("x", (p.size("n", 3, 2), p.size("length", 400, 9), 300)), (1,))


def line(p: Program) -> str:
    x = p.input("x", (p.size("n", 3, 2), 4, 640))
    return p.node("pool", (x,), (p.shape(x)[0], 4, 637), fn="avg", kernel=(4,), stride=(1,))


def one_for_all(p: Program) -> str:
    """A single element of a tensor, behind each row: its address is the same for all lanes."""
    x = long_rows(p)
    rows = p.shape(x)[0]
    one = p.node("view", (p.input("v", (4,)),), (1,), how="slice", starts=(2,), steps=(1,))
    behind = p.node("view", (one,), (rows, 100), how="expand")
    ahead = p.node("view", (x,), (rows, 100), how="slice", starts=(0, 1), steps=(1, 1))
    return p.pointwise("relu", p.node("cat", (ahead, behind), (rows, 200), dim=1))


KINDS: list[tuple[Build, dict[str, Any]]] = [
    *((build, mode) for build in (layer, softmax, arg) for mode in (
        {"mode": "resident"}, {"mode": "looped"}, {"mode": "split"},
        {"mode": "looped", "BLOCK_X": 4, "BLOCK_R": 64},
    )),
    (middle, {}), (middle, {"mode": "split"}), (scan, {"mode": "looped"}), (log_scan, {"mode": "looped"}),
    (scan, {"mode": "resident"}), (channels, {}), (transposed, {}), (embedded, {}),
    (lambda p: pooled(p, "avg", kernel=(3, 3), stride=(2, 2), padding=(1, 1)), {}),
    (lambda p: pooled(p, "max", kernel=(7, 7), stride=(2, 2), padding=(3, 3)), {}),
    *((lambda p, fn=fn: resized(p, fn), {}) for fn in ("linear", "cubic", "nearest")),
    (one_for_all, {}), (strips, {}), (line, {}), (columns, {"mode": "split"}),
    (lambda p: (trained(p)[0], "new_mean", "new_var"), {"mode": "split"}),
]  # fmt: skip


@pytest.fixture(autouse=True)
def own_triton_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "triton"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")


@pytest.mark.parametrize("number", range(len(KINDS)))
def test_kernels_compile(number: int, tmp_path: Path) -> None:
    build, settings = KINDS[number]

    def compile_all() -> None:
        text, outcomes = compiled(build, tmp_path, **settings)
        assert len(outcomes) == text.count("num_warps=")
        for outcome in outcomes:
            assert outcome.spill_bytes == 0, f"{outcome}\n{text}"

    graph, part = written(build, **settings)
    COMPILED.once(compile_all, harness.source(graph, [part]))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8"])
@pytest.mark.parametrize("fn", ["logsumexp", "sum"])
def test_blocks_of_a_long_row_are_not_exchanged(fn: str, dtype: str, tmp_path: Path) -> None:
    """Shared memory holds a number per warp: of the states, joined once behind the loop."""

    def build(p: Program) -> str:
        x = p.input("x", (p.size("rows", 4, 2), p.size("width", 32768, 20)), dtype)
        x = p.node("pointwise", (x,), p.shape(x), fn="cast", dtype="float32") if dtype != "float32" else x
        return p.reduce(fn, x, (1,))

    text, (outcome,) = compiled(build, tmp_path, mode="looped")
    assert outcome.shared_bytes <= 64, f"{outcome}\n{text}"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("length", [2, 3, 8])
def test_rows_of_a_few_elements_are_whole_to_a_thread(length: int, dtype: str, tmp_path: Path) -> None:
    def build(p: Program) -> str:
        x = p.input("x", (p.size("tokens", 4000, 3), length, p.size("width", 4096, 24)), dtype)
        return p.reduce("sum", p.pointwise("mul", x, p.input("scale", (p.shape(x)[0], length, 1))), (1,))

    text, (outcome,) = compiled(build, tmp_path)
    assert "tl.arange(0, BLOCK_R)[None, :]" in text
    assert (outcome.shared_bytes, outcome.spill_bytes) == (0, 0), f"{outcome}\n{text}"


@pytest.mark.parametrize(
    ("rows", "length", "count", "dtype"),
    [(4000, 128, 8, "float32"), (4000, 8, 2, "bfloat16"), (600, 8192, 32, "float32"),
     (600, 4096, 100, "float32"), (600, 1024, 1024, "float32")],
)  # fmt: skip
def test_rows_that_are_ordered_stay_in_registers(
    rows: int, length: int, count: int, dtype: str, tmp_path: Path
) -> None:
    def build(p: Program) -> tuple[str, str]:
        x = p.input("x", (p.size("rows", rows, 3), length), dtype)
        shape = (p.shape(x)[0], Size(count))
        for name, kind in (("best", dtype), ("best_at", "int64")):
            p.values[name] = Value(name, shape, kind, contiguous_stride(shape))
        attributes = {"dim": 1, "largest": True, "whole": length == count}
        p.nodes.append(Node("selection", (x,), ("best", "best_at"), attributes, ""))
        return "best", "best_at"

    def compile_it() -> None:
        text, (outcome,) = compiled(build, tmp_path)
        assert outcome.spill_bytes == 0, f"{outcome}\n{text}"

    graph, part = written(build)
    COMPILED.once(compile_it, harness.source(graph, [part]))


def compiled(build: Build, tmp_path: Path, **settings: Any) -> tuple[str, list[Any]]:
    """The module's text, and what the compiler says of its launches."""
    graph, part = written(build, **settings)
    text = harness.source(graph, [part])
    path = tmp_path / "module.py"
    path.write_text(text)
    inputs, held = tensors(graph)

    def model() -> torch.nn.Module:
        spec = importlib.util.spec_from_file_location(f"module_{tmp_path.name}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return _model(module.forward, held)

    found = capture(model, lambda: [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype) for t in inputs])
    outcomes = list(found.compiled.values())
    assert len(found.launches) == len(outcomes)
    for outcome in outcomes:
        assert hasattr(outcome, "registers"), f"{outcome}\n{text}"
    return text, outcomes


def _model(forward: Callable[..., Any], held: dict[str, torch.Tensor]) -> torch.nn.Module:
    class Model(torch.nn.Module):
        def forward(self, *inputs: torch.Tensor) -> Any:
            return forward(self, *inputs)

    owner: torch.nn.Module = Model()
    for name, tensor in held.items():
        *way, last = name.split(".")
        place = owner
        for step in way:
            if not hasattr(place, step):
                place.add_module(step, torch.nn.Module())
            place = place.get_submodule(step)
        place.register_buffer(last, torch.empty(tensor.shape, dtype=tensor.dtype))
    return owner


def test_the_static_gate_takes_the_text() -> None:
    graph, part = written(layer, mode="split")
    lines = harness.source(graph, [part]).splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("def forward"))
    text = "\n".join(
        [*lines[:start], "", "class ModelNew(nn.Module):", *(f"    {line}" for line in lines[start:])]
    )
    assert static_check(Candidate(text), LibraryCalls.FORBID) is None

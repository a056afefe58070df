"""The recurrent pattern: cells, layers, directions and ways to walk, against PyTorch in fp64.

Kernels are written at the program's own sizes and run at odd others, once with hidden units of more than one
program, which then need each other's, and once with rows of more than one.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from egg.evaluator import offline
from egg.evaluator.offline.compile import compiled_rows
from egg.expert.assemble import graph_of
from egg.expert.graph import Graph
from egg.expert.parts import Group, Part, Target, Unfit
from egg.expert.patterns.recurrent import write as recurrent
from egg.hardware.gpus import resolve
from tests.expert import elsewhere, harness
from tests.expert.captured import built, program, resized
from tests.expert.compiling import module_of

OWN = "B, T, I, H = 10, 12, 24, 40"
SMALLER = ("B, T, I, H = 3, 3, 7, 20", "B, T, I, H = 17, 1, 19, 9")


def layer(cell: str, layers: int, options: str, knobs: str = OWN, states: str = "torch.randn") -> Any:
    """A program that is one recurrent layer and returns all it makes."""
    first = "B, T" if "batch_first=True" in options else "T, B"
    chains = layers * (2 if "bidirectional=True" in options else 1)
    state = f"{states}({chains}, B, H)"
    pair = cell == "LSTM"
    return program(
        f"y, s = self.r(x, {'(h, c)' if pair else 'h'}); return y, {'s[0], s[1]' if pair else 's'}",
        f"torch.randn({first}, I), {state}" + (f", {state}" if pair else ""),
        f"self.r = nn.{cell}(I, H, {layers}{', ' + options if options else ''})",
        knobs,
        "x, h, c" if pair else "x, h",
    )


@cache
def captured(cell: str, layers: int, options: str, knobs: str = OWN) -> Graph:
    return graph_of(layer(cell, layers, options, knobs))


def written(graph: Graph, **settings: Any) -> Part:
    return recurrent.write(graph, Group("walk", graph.nodes, "recurrent"), Target(resolve("h200"), settings))


def worst(graph: Graph, part: Part, task: Any) -> float:
    """The largest error of all results, relative to the mean square of each."""
    _, module, inputs = built(task)
    with torch.no_grad():
        right = module(*inputs)
    single = {name: tensor.float() for name, tensor in module.state_dict().items()}
    ours = harness.run(graph, [part], [tensor.float() for tensor in inputs], single)
    found = 0.0
    for got, want in zip(ours, right, strict=True):
        assert got.shape == want.shape
        assert got.is_contiguous()
        off = (got.double() - want).abs().max() / want.square().mean().sqrt()
        assert torch.isfinite(off)
        found = max(found, float(off))
    return found


CASES = (
    ("LSTM", 2, "batch_first=True", "steps"),
    ("LSTM", 2, "bidirectional=True", "cooperative"),
    ("LSTM", 2, "bidirectional=True, batch_first=True, bias=False", "alone"),
    ("GRU", 2, "", "cooperative"),
    ("GRU", 1, "bias=False", "alone"),
    ("RNN", 1, "bidirectional=True, bias=False", "steps"),
    ("RNN", 2, "nonlinearity='relu'", "cooperative"),
)


@pytest.mark.parametrize(("cell", "layers", "options", "mode"), CASES)
def test_right_at_every_size(cell: str, layers: int, options: str, mode: str) -> None:
    graph = captured(cell, layers, options)
    part = written(graph, mode=mode)
    task = layer(cell, layers, options)
    for knobs in SMALLER:
        assert worst(graph, part, resized(task, OWN, knobs)) < 5e-6


def test_states_beyond_the_range_of_halves_keep_their_digits() -> None:
    """A GRU's state may begin anywhere, and stays there as long as the update gate says so."""
    graph = captured("GRU", 2, "")
    part = written(graph, mode="steps")
    for states in ("1e7 * torch.randn", "1e-7 * torch.randn"):
        assert worst(graph, part, layer("GRU", 2, "", SMALLER[0], states)) < 5e-6


def test_a_lower_grade_is_one_product() -> None:
    graph = captured("GRU", 2, "")
    off = worst(graph, written(graph, mode="steps", grade="tf32"), layer("GRU", 2, "", SMALLER[0]))
    assert 1e-5 < off < 4e-3


def test_small_layers_walk_alone_large_ones_together_and_the_largest_step_by_step() -> None:
    small = written(captured("GRU", 1, "bias=False", "B, T, I, H = 10, 12, 24, 24"))
    assert not any("for " in line for line in small.call)
    large = captured("LSTM", 3, "", "B, T, I, H = 4, 16, 64, 256")
    text = "\n".join(written(large).call)
    assert "launch_cooperative_grid=walk_stride > 1" in text
    assert "walk_waves = T + 2" in text, "layers run side by side"
    assert "torch.zeros" in text, "counters begin at zero in every call"
    many = captured("LSTM", 9, "", "B, T, I, H = 4, 16, 64, 256")
    for steps in (written(many), written(large, mode="steps")):
        assert any("range(walk_waves)" in line for line in steps.call), "a launch for each step"


def test_layers_that_share_their_text_keep_the_names_of_kernels() -> None:
    """Values of groups that look alike are named by their role, which for a layer is the pattern's word."""
    source = elsewhere.program(
        "y, state = self.r(x[None])\ny, state = self.r(y * 2, state)\nreturn self.r(y * 3, state)[0]",
        "x = torch.randn(B, H)", "self.r = nn.LSTM(H, H)", "H", B=12, H=24,
    )  # fmt: skip
    elsewhere.check(source, [24], [torch.randn(12, 24)])


def test_unfit_says_why() -> None:
    with pytest.raises(Unfit, match="2048 hidden units do not fit"):
        written(captured("LSTM", 1, "", "B, T, I, H = 4, 16, 64, 2048"))
    with pytest.raises(Unfit, match="no mode dance"):
        written(captured("GRU", 2, ""), mode="dance")


def test_compiles_for_hopper_without_spills(tmp_path: Path) -> None:
    """With the weights of both inputs on chip and all steps in one launch."""
    task = layer("GRU", 2, "", "B, T, I, H = 10, 12, 24, 256")
    graph = graph_of(task)
    path = tmp_path / "written.py"
    path.write_text(harness.source(graph, [written(graph, mode="cooperative")]))
    _, _, inputs = built(task)

    given = [tensor.float() for tensor in inputs]
    found = offline.capture(
        module_of(path, lambda: {"r": torch.nn.GRU(24, 256, 2)}),
        lambda: [tensor.to("cuda") for tensor in given],
        "sm_90",
    )
    compiled = {kernel.name: kernel for kernel in compiled_rows(found)}
    assert compiled.keys() == {"project_input", "walk_kernel"}
    assert compiled["walk_kernel"].launches == 1
    assert all(kernel.spill_bytes == 0 for kernel in compiled.values())

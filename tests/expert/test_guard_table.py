"""The guard's table of weights: every path is in it, and a file with one refuses other weights."""

from __future__ import annotations

import ast
from typing import Any

import pytest
import torch

from egg.expert.writing.guard_table import MANY, weight_tables
from tests.expert import elsewhere, harness

CHECK = "check({paths}, {dtype}, {shape})"


def test_a_loop_checks_what_the_calls_checked() -> None:
    rows = {
        f"float32, ({8 * n},)": [f"layers.{n}.weight", f"layers.{n}.bias", f"a{'b' * 90}.{n}.weight"]
        for n in range(MANY + 1)
    }
    rows["float32, (8,)"].append("scale")
    rows["float32, (4, 6), (1, 4)"] = ["head.weight"]
    rows["int64, ()"] = ["layers.0.count"]
    (loop,), left = weight_tables(rows, CHECK, frozenset({"shape", "layer"}))
    calls: list[tuple[str, Any]] = []
    exec(
        loop, {"float32": 0, "check": lambda paths, _, shape: calls.extend((p, shape) for p in paths.split())}
    )
    wanted = {(p, laid) for laid, paths in rows.items() for p in paths}
    wanted -= {(p, laid) for laid, paths in left.items() for p in paths}
    assert {(p, f"float32, {shape}") for p, shape in calls} == wanted
    assert len(calls) == len(wanted)
    assert left == {
        "float32, (8,)": ["scale"],
        "float32, (4, 6), (1, 4)": ["head.weight"],
        "int64, ()": ["layers.0.count"],
    }
    assert "shape" not in {n.id for n in ast.walk(ast.parse(loop)) if isinstance(n, ast.Name)}


def test_few_shapes_have_no_table() -> None:
    rows = {f"float32, ({n},)": ["layer.weight"] for n in range(MANY)}
    assert weight_tables(rows, CHECK, frozenset()) == ([], rows)


WIDTHS = (4, 5, 6, 7, 8, 9)
NETWORK = elsewhere.program(
    "for layer in self.layers:\n    x = torch.relu(layer(x))\nreturn x",
    "x = torch.randn(batch, 4)",
    f"self.layers = nn.ModuleList(nn.Linear(n, n + 1) for n in {WIDTHS})",
    batch=3,
)


def test_a_network_with_other_weights_is_refused() -> None:
    assert "for shape, names, layers in (" in elsewhere.written(NETWORK)
    elsewhere.check(NETWORK, [], [elsewhere.normal(5, 4)])
    space: dict[str, Any] = {}
    exec(compile(NETWORK, "task", "exec"), space)
    given = {"arguments": [], "state": space["Model"]().state_dict()}
    load = "model.load_state_dict(self.state)"
    other = elsewhere.RUN.replace(load, f"{load}\n    model.layers[3].bias.data = torch.zeros(8).double()")
    with pytest.raises(harness.Failed, match=r"layers\.3\.bias is torch\.float64"):
        harness.execute(elsewhere.written(NETWORK) + other, [torch.randn(3, 4)], given)

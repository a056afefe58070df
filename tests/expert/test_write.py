"""The kernel file as a whole: it stands alone, the static gate takes it, and formatters change nothing."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from egg.core.policy import LibraryCalls
from egg.core.source import Task
from egg.engine.tunables import read_space
from egg.evaluator.static import findings
from egg.expert.assemble import graph_of, kernel_file
from egg.expert.graph import Graph, Node, Origin, Value, contiguous_stride
from egg.expert.moves import Recipe
from egg.expert.parts import Constant, Group, Part, Target, Unfit
from egg.expert.patterns import PATTERNS
from egg.expert.sizes import Size, named
from egg.expert.writing import write
from egg.expert.writing.write import write_file
from egg.hardware.gpus import resolve

SOURCE = '''
import math
import torch
import torch.nn as nn
from typing import Optional

batch_size, features = 64, 128

class Model(nn.Module):
    """A projection with an activation."""

    def __init__(self, features):
        super(Model, self).__init__()
        self.layers = nn.Sequential(nn.Linear(features, 2 * features), nn.GELU())
        self.bound = math.sqrt(features)

    def forward(self, x: torch.Tensor, mask: Optional[torch.Tensor] = None) -> torch.Tensor:
        return self.layers(x) * 2

def get_inputs():
    return [torch.rand(batch_size, features)]

def get_init_inputs():
    return [features]
'''
TASK = Task("projection", SOURCE)
KERNEL = '''@triton.jit
def gelu(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    """GELU and a factor, in one pass over memory."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < count, other=0.0)
    tl.store(y_ptr + place, x * (1.0 + tl.erf(x * 0.7071067811865476)), mask=place < count)
'''
HELPER = "def blocks(count, block):\n    return triton.cdiv(count, block)\n"


def value(name: str, *shape: Size, origin: Origin = Origin.NODE, path: str = "") -> Value:
    return Value(name, shape, "float32", contiguous_stride(shape), origin, path or name)


def example() -> tuple[Graph, list[tuple[Group, Part]]]:
    rows, width = named("batch_size", (64, 3)), named("features", (128, 7))
    values = [
        value("x", rows, width, origin=Origin.INPUT),
        value("weight", width * 2, width, origin=Origin.PARAMETER, path="layers.0.weight"),
        value("bias", width * 2, origin=Origin.PARAMETER, path="layers.0.bias"),
        value("permute", width, width * 2),
        value("matmul", rows, width * 2),
        value("gelu", rows, width * 2),
    ]
    nodes = (
        Node("view", ("weight",), ("permute",), {"how": "permute", "dims": (1, 0)}),
        Node("matmul", ("x", "permute", "bias"), ("matmul",), {}, "layers_0"),
        Node("pointwise", ("matmul",), ("gelu",), {"fn": "gelu"}),
    )
    symbols = {
        "batch_size": "x.shape[0]",
        "features": "x.shape[1]",
        "unused": "x.shape[0] * 2",
        "device": "x.shape[1]",
        "outputs": "features * 2",
    }
    graph = Graph({v.name: v for v in values}, nodes, ("x", None), ("gelu",), "tensor", symbols)
    first = Group("linear", nodes[:2], "library")
    second = Group("gelu", nodes[2:], "loops")
    part = Part(
        kernels={"gelu": KERNEL},
        helpers={"blocks": HELPER},
        call=(
            "gelu = torch.empty((batch_size, outputs), dtype=torch.float32, device=x.device)",
            "gelu[(blocks(batch_size * outputs, GELU_BLOCK),)](matmul, gelu, batch_size * outputs, "
            "BLOCK=GELU_BLOCK, num_warps=GELU_NUM_WARPS)",
        ),
        constants=(
            Constant("GELU_BLOCK", 1024, (512, 2048), "elements of one program"),
            Constant("GELU_NUM_WARPS", 4, (4, 8)),
        ),
        sizes=("batch_size", "outputs"),
        summary="GELU with its factor: one pass over memory instead of two.",
    )
    target = Target(resolve("H200"))
    return graph, [(first, PATTERNS.fallback.write(graph, first, target)), (second, part)]


def checked(text: str, folder: Path) -> None:
    """Formatted, nothing unused, and nothing that the static gate refuses."""
    path = folder / "kernels.py"
    path.write_text(text)
    ruff = [sys.executable, "-m", "ruff"]
    shown = subprocess.run(
        [*ruff, "format", "--isolated", "--line-length", "100", "--diff", str(path)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stdout
    shown = subprocess.run(
        [*ruff, "check", "--isolated", "--select", "F,I", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert shown.returncode == 0, shown.stdout
    assert not list(findings(text, LibraryCalls.ALLOW))


def test_a_whole_file(tmp_path: Path) -> None:
    graph, parts = example()
    text = write_file(TASK, graph, parts, ["Projection with GELU, in Triton.", "Written for the H200."])
    checked(text, tmp_path)
    assert text == write_file(
        TASK, graph, parts, ["Projection with GELU, in Triton.", "Written for the H200."]
    )
    assert text.startswith(
        '"""Projection with GELU, in Triton.\n\nWritten for the H200.\n\nFor any batch_size; '
    )
    assert "Left to PyTorch: matrix product." in text
    assert "GELU_BLOCK = 1024  # elements of one program" in text
    assert "self.layers[0].weight" in text
    assert "permute" not in text  # folded into the library's call
    assert "batch_size, features = x.shape[0], x.shape[1]\n        outputs = features * 2\n" in text
    assert "unused" not in text
    assert "device = " not in text  # a keyword of a call is no mention of the size
    assert "from typing import Optional" in text
    assert "import egg" not in text
    assert "def forward(self, x: torch.Tensor, mask: Optional[torch.Tensor] = None) -> torch.Tensor:" in text
    space = read_space(text)
    assert space is not None
    assert {t.name: t.values for t in space.tunables} == {
        "GELU_BLOCK": (512, 1024, 2048),
        "GELU_NUM_WARPS": (4, 8),
    }


def test_a_kernel_that_is_called_like_its_result_gets_another_name() -> None:
    graph, parts = example()
    text = write_file(TASK, graph, parts, ["Projection."])
    assert "def gelu_kernel(" in text
    assert "gelu_kernel[(blocks(batch_size * outputs, GELU_BLOCK),)](" in text
    assert "return gelu\n" in text


def test_the_most_important_tunables_are_kept(tmp_path: Path) -> None:
    graph, parts = example()
    (first, _), (second, part) = parts
    many = tuple(Constant(f"SMALL_{n}", 1, (1, 2)) for n in range(7))
    large = tuple(Constant(f"LARGE_{n}", 1, (1, 2)) for n in range(5))
    grouped = [(first, replace(part, constants=large)), (second, replace(part, constants=many))]
    space = read_space(write_file(TASK, graph, grouped, ["Projection."]))
    assert space is not None
    names = [t.name for t in space.tunables]
    assert len(names) == write.MOST_TUNABLES == 8
    assert names[0] == "LARGE_0"
    assert "SMALL_0" in names
    assert "SMALL_6" not in names


@pytest.mark.parametrize(
    ("form", "results", "ending"),
    [
        ("tensor", ("gelu",), "return gelu\n"),
        ("tuple", ("gelu", "matmul"), "return gelu, matmul\n"),
        ("tuple", ("gelu",), "return (gelu,)\n"),
        ("list", ("gelu", "x"), "return [gelu, x]\n"),
        ("tuple", ("weight", "x"), "return self.layers[0].weight, x\n"),
    ],
)
def test_results_are_returned_in_their_form(form: str, results: tuple[str, ...], ending: str) -> None:
    graph, parts = example()
    text = write_file(TASK, replace(graph, form=form, results=results), parts, ["Projection."])
    assert text.endswith(ending)


def test_what_parts_cannot_agree_on_is_an_error() -> None:
    graph, parts = example()
    (group, _), (_, part) = parts
    other = replace(part, constants=(Constant("GELU_BLOCK", 512),))
    with pytest.raises(ValueError, match="disagree on GELU_BLOCK"):
        write_file(TASK, graph, [*parts, (group, other)], ["Projection."])
    other = replace(part, kernels={"gelu": KERNEL + "    pass\n"})
    with pytest.raises(ValueError, match="kernel gelu"):
        write_file(TASK, graph, [*parts, (group, other)], ["Projection."])


def test_a_constant_of_the_task_is_not_overwritten() -> None:
    source = SOURCE.replace("batch_size, features", "GELU_BLOCK = 3\nbatch_size, features", 1).replace(
        "math.sqrt(features)", "math.sqrt(GELU_BLOCK)"
    )
    graph, parts = example()
    with pytest.raises(Unfit, match="GELU_BLOCK"):
        write_file(Task("projection", source), graph, parts, ["Projection."])


def test_the_file_computes_what_the_task_does() -> None:
    """Written with library calls alone, so that it runs anywhere."""
    graph, _ = example()
    group = Group("all", graph.nodes, "library")
    part = PATTERNS.fallback.write(graph, group, Target(resolve("H200")))
    text = write_file(TASK, graph, [(group, part)], ["Projection."])
    theirs: dict[str, Any] = {"__name__": "task"}
    ours: dict[str, Any] = {"__name__": "kernels"}
    exec(compile(SOURCE, "task", "exec", dont_inherit=True), theirs)
    exec(compile(text, "kernels", "exec", dont_inherit=True), ours)
    torch.manual_seed(1)
    model = theirs["Model"](24)
    torch.manual_seed(1)
    new = ours["ModelNew"](24)
    x = torch.rand(5, 24)
    assert torch.allclose(model(x), new(x) * 2)


def test_a_tensor_in_a_plain_attribute_follows_the_input_to_its_device() -> None:
    """``Module.to`` leaves it behind: the task's forward moves it, and so does the file's."""
    source = (
        "import torch\nfrom torch import nn\n\nclass Model(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.state, self.held = torch.zeros(4, 8), (torch.ones(8),)\n\n"
        "    def forward(self, x):\n        self.state = torch.tanh(self.state.to(x.device) + x)\n"
        "        return self.state * self.held[0].to(x.device)\n\n"
        "def get_inputs():\n    return [torch.rand(4, 8)]\n\ndef get_init_inputs():\n    return []\n"
    )
    task = Task("stateful", source)
    text = kernel_file(task, graph_of(task), Recipe(), resolve("H200")).source
    forward = text[text.index("def forward") :]
    assert "self.state = self.state.to(x.device)\n" in forward
    assert "self.held[0].data = self.held[0].data.to(x.device)\n" in forward
    assert forward.index(".to(x.device)") < forward.index("_kernel[")

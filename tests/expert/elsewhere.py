"""Whole files at sizes other than the captured ones: a small program is captured at the sizes of its source,
written as a file, and run in the interpreter wherever a test wants, beside eager PyTorch in fp64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from egg.core.source import Task
from egg.expert.assemble import graph_of, kernel_file
from egg.expert.moves import Recipe
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.ledgers import INTERPRETED

RUN = """

def forward(self, *inputs):
    model = ModelNew(*self.arguments)
    model.load_state_dict(self.state)
    made = model(*inputs)
    return [made] if isinstance(made, torch.Tensor) else list(made)
"""
HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"


def program(forward: str, inputs: str, layers: str = "", arguments: str = "", **sizes: int) -> str:
    """A task: lines of ``forward`` and of the constructor, what is given to both, and sizes by name."""
    names = arguments.split(", ") if arguments else []
    given = ", ".join(["self", *names])
    lines = "\n".join(f"        {line}" for line in layers.strip().split("\n"))
    body = "\n".join(f"        {line}" for line in forward.strip().split("\n"))
    called = ", ".join(name.split("=")[0].strip() for name in inputs.split(";"))
    made = ", ".join(text.split("=", 1)[1].strip() for text in inputs.split(";"))
    constants = "\n".join(f"{name} = {value}" for name, value in sizes.items())
    return (
        f"{HEAD}class Model(nn.Module):\n"
        f"    def __init__({given}):\n        super().__init__()\n{lines}\n\n"
        f"    def forward(self, {called}):\n{body}\n\n\n{constants}\n\n"
        f"def get_inputs():\n    return [{made}]\n\n\n"
        f"def get_init_inputs():\n    return [{', '.join(names)}]\n"
    )


@cache
def written(source: str, name: str = "program", gpu: str = "H200") -> str:
    """The file that the team writes first."""
    task = Task(name, source)
    return kernel_file(task, graph_of(task), Recipe(), resolve(gpu)).source


def run(source: str, arguments: Sequence[Any], inputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """What the file and the program make of inputs, the latter in fp64 where that is floating."""
    space: dict[str, Any] = {}
    exec(compile(source, "task", "exec"), space)
    torch.manual_seed(1)
    model = space["Model"](*arguments)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    parameters = {"arguments": list(arguments), "state": state}
    ours = harness.execute(written(source) + RUN, inputs, parameters)
    with torch.no_grad():
        wide = [t.double() if torch.is_tensor(t) and t.is_floating_point() else t for t in inputs]
        right = model.double()(*wide)
    return ours, [right] if isinstance(right, torch.Tensor) else list(right)


def check(source: str, arguments: Sequence[Any], inputs: Sequence[Any], digits: float = 2e-5) -> None:
    """The largest error is at most ``digits`` of the result's mean square."""
    INTERPRETED.once(
        lambda: _compare(source, arguments, inputs, digits),
        source, written(source), arguments, [_digest(x) for x in inputs], digits,
    )  # fmt: skip


def _digest(value: Any) -> object:
    if not isinstance(value, torch.Tensor):
        return value
    layout = (value.dtype, value.shape, value.stride())
    wide = value.double()
    return layout, f"{wide.sum().item():.4e} {wide.square().sum().item():.4e}"


def _compare(source: str, arguments: Sequence[Any], inputs: Sequence[Any], digits: float) -> None:
    ours, right = run(source, arguments, inputs)
    assert len(ours) == len(right)
    for made, wanted in zip(ours, right, strict=True):
        assert made.shape == wanted.shape
        if not made.is_floating_point():
            assert torch.equal(made, wanted)
            continue
        finite = wanted.isfinite()
        assert torch.equal(made.isfinite(), finite)
        off, scale = (made.double() - wanted)[finite], wanted[finite].square().mean().sqrt()
        assert not off.numel() or off.abs().max() <= digits * max(scale, 1e-6), (off.abs().max(), scale)


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))
    return made.to(dtype)


Make = Callable[[], list[Any]]

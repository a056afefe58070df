"""A module of a program by name: imported with its neighbours, captured, and a task from there on."""

from __future__ import annotations

from pathlib import Path

import pytest

from egg.api.named import named_task
from egg.core.errors import TaskError, UsageError

NEIGHBOUR = "import torch\n\n\ndef scaled(x):\n    return torch.tanh(x) * 2\n"
PROGRAM = """
import torch
from torch import nn
from egg_test_neighbour import scaled


class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x, *, shift=None):
        y = scaled(self.linear(x))
        return y if shift is None else y + shift


class Picky(nn.Module):
    def __init__(self, width):
        super().__init__()


ready = Block()
number = 3


def inputs():
    return torch.randn(4, 8)


def both():
    return (torch.randn(4, 8),), {"shift": torch.ones(8)}


def nothing():
    return None
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "egg_test_neighbour.py").write_text(NEIGHBOUR, encoding="utf-8")
    (tmp_path / "egg_test_program.py").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return str(tmp_path / "egg_test_program.py")


@pytest.mark.parametrize("name", ["Block", "ready"])
def test_a_file_and_a_name(program: str, name: str) -> None:
    task = named_task(f"{program}:{name}", "inputs")
    assert task.name == "block"
    assert "egg_test_neighbour" not in task.source
    assert "torch.tanh" in task.source


def test_a_dotted_name_and_keyword_arguments(program: str) -> None:
    assert "def forward(self, x, shift)" in named_task("egg_test_program:Block", "both").source


@pytest.mark.parametrize(
    ("name", "inputs", "words"),
    [
        ("Missing", "inputs", "has no Missing"),
        ("number", "inputs", "is a int"),
        ("inputs", "inputs", "is a Tensor"),
        ("Picky", "inputs", "failed: TypeError"),
        ("Block", "nothing", "returned nothing"),
        ("Block", "elsewhere:inputs", "cannot import elsewhere"),
    ],
)
def test_mistakes_are_named(program: str, name: str, inputs: str, words: str) -> None:
    with pytest.raises((UsageError, TaskError), match=words):
        named_task(f"{program}:{name}", inputs)


def test_a_file_without_a_name_is_refused(program: str) -> None:
    with pytest.raises(UsageError, match="names no module"):
        named_task(program, "inputs")

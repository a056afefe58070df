"""Concatenations without a copy: whoever makes a piece stores it in the whole, at every size."""

from __future__ import annotations

import re

import pytest
import torch

from egg.core.source import Task
from egg.expert.assemble import Written, graph_of, kernel_file
from egg.expert.moves import Move, Recipe, Set, Without
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.expert.captured import built, program, resized
from tests.ledgers import INTERPRETED

KNOBS = "B, C, D, H, W = 64, 32, 24, 134, 136"
OTHER = "B, C, D, H, W = 2, 5, 3, 7, 9"
FIRE = program(
    "return torch.cat([F.relu(self.a(x)), F.relu(self.b(x))], 1)",
    "torch.randn(B, 6, H, W)",
    "self.a = nn.Conv2d(6, C, 1); self.b = nn.Conv2d(6, D, 3, padding=1)",
    KNOBS,
)


def written(task: Task, *moves: Move) -> Written:
    recipe = Recipe().after(Set("file", "replay", False), *moves)
    return kernel_file(task, graph_of(task), recipe, resolve("H200"))


def calls(file: Written) -> str:
    return "\n".join(line for part in file.structure.parts for line in part.call)


def check(task: Task, file: Written) -> None:
    INTERPRETED.once(lambda: compare(task, file), task.source, file.source)


def compare(task: Task, file: Written) -> None:
    """At another size than it was written for, in an order that can be executed as it stands."""
    _, module, inputs = built(resized(task, KNOBS, OTHER))
    single = {n: t.float() if t.is_floating_point() else t.clone() for n, t in module.state_dict().items()}
    with torch.no_grad():
        want = module(*inputs)
    wanted = want if isinstance(want, tuple) else (want,)
    results = "list(results)" if isinstance(want, tuple) else "[results]"
    forward = "def forward(self, *given):\n    results = ModelNew.forward(self, *given)"
    text = f"{file.source}\n\n{forward}\n    return {results}\n"
    got = harness.execute(text, [x.float() for x in inputs], single)
    for one, other in zip(got, wanted, strict=True):
        assert (one.shape, one.stride()) == (other.shape, other.stride())
        assert float((one.double() - other).abs().max() / other.square().mean().sqrt()) < 2e-3


def joined(file: Written) -> int:
    return sum(node.op == "joined" for node in file.structure.graph.nodes)


def test_convolutions_store_into_what_they_are_joined_to() -> None:
    file = written(FIRE)
    assert [group.pattern for group in file.structure.groups] == ["library", "convolution", "convolution"]
    assert "cat" not in " ".join(name for part in file.structure.parts for name in part.kernels)
    assert re.search(r"relu, relu_2 = cat\.split\(\(C, D\), dim=1\)", calls(file)), calls(file)
    assert "relu = torch.empty" not in file.source
    assert file.structure.left_to_pytorch == ()
    check(FIRE, file)


def test_what_a_library_makes_is_copied_alone() -> None:
    """With what follows it: the pass over a library's result stores in place."""
    file = written(FIRE, Without("convolution", "conv"))
    assert joined(file) == 1
    assert joined(written(FIRE, Set("file", "in_place", False))) == 0
    (group,) = [group for group in file.structure.groups if group.pattern == "loops"]
    assert [node.op for node in group.nodes] == ["pointwise"]
    check(FIRE, file)


A, B = "self.a = nn.Conv2d(6, C, 1)", "self.b = nn.Conv2d(6, D, 3, padding=1)"
E = "self.e = nn.Conv2d(6, C, 3, padding=1)"


@pytest.mark.parametrize(
    ("forward", "layers", "rooms"),
    [
        # an argument between pieces of ours: copied by a kernel of its own
        ("return torch.cat([self.a(x), x, self.b(x)], 1)", f"{A}; {B}", 1),
        # a piece from a pool; the whole is read by a convolution and a pool
        (
            "y = torch.cat([self.a(x), F.max_pool2d(self.b(x), 3, 1, 1)], 1);"
            "return self.c(y), F.avg_pool2d(y, 2)",
            f"{A}; {B}; self.c = nn.Conv2d(C + D, 8, 1)",
            1,
        ),
        # joined again and again: lists in lists
        (
            "y = torch.cat([self.a(x), self.b(x)], 1); z = torch.cat([y, self.c(y)], 1);"
            "return torch.cat([z, self.d(z)], 1)",
            f"{A}; {B}; self.c = nn.Conv2d(C + D, 8, 1); self.d = nn.Conv2d(C + D + 8, 8, 1)",
            3,
        ),
        # along another dimension, one of them a result, too
        ("y = self.a(x); return y, torch.cat([y, self.e(x)], 2)", f"{A}; {E}", 1),
        # reductions, into a whole of two channels; behind it one channel alone
        (
            "y = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1); return self.c(y), y",
            "self.c = nn.Conv2d(2, 1, 3, padding=1)",
            1,
        ),
        # views of a piece, returned or read by several: it stays a tensor without gaps, and is copied
        (
            "y = self.c(x); v = y.expand(-1, 6, -1, -1);"
            "return torch.cat([y, self.b(x)], 1), y.flatten(1), self.a(v), self.b(v)",
            f"{A}; {B}; self.c = nn.Conv2d(6, 1, 1)",
            1,
        ),
        # numbers in pairs that PyTorch takes for complex ones
        (
            "x = x.view(B, 2 * H, W, 3); y = self.f(x);"
            "return torch.cat([y, self.g(x)], 3), torch.fft.fft(torch.view_as_complex(y)).real",
            "self.f = nn.Linear(3, 2); self.g = nn.Linear(3, 1)",
            0,
        ),
        # products, and what follows them
        (
            "y = x.mean((2, 3)); return torch.cat([self.f(y), F.gelu(self.g(y))], 1)",
            "self.f = nn.Linear(6, C); self.g = nn.Linear(6, D)",
            1,
        ),
    ],
)
def test_pieces_are_right_wherever_they_come_from(forward: str, layers: str, rooms: int) -> None:
    task = program(forward, "torch.randn(B, 6, H, W)", layers, KNOBS)
    file = written(task)
    assert joined(file) == rooms
    check(task, file)

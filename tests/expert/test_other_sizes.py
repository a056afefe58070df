"""One file of each pattern, captured at a size of practice and run at others: one of everything, odd numbers,
fewer than a block, more than a block.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.expert.elsewhere import check, normal, program

IMAGES = "x = torch.randn(batch_size, c, height, width)"
ROWS = "x = torch.randn(batch_size, length, dim)"
BIG: dict[str, Any] = {"batch_size": 16, "c": 64, "height": 128, "width": 96}
LONG: dict[str, Any] = {"batch_size": 64, "length": 256, "dim": 512}
LINEAR = ("self.fc = nn.Linear(features, hidden)", "features, hidden")
CONVOLVED = ("self.conv = nn.{}(c, out, 3, padding=1)", "c, out")
HEADS = ";".join(f"{name} = torch.randn(batch_size, heads, length, dim)" for name in "qkv")

Case = tuple[str, float, list[tuple[tuple[Any, ...], list[tuple[int, ...]]]]]
CASES: dict[str, Case] = {
    "pointwise": (
        program("return F.gelu(x) * y", f"{IMAGES};y = torch.randn(batch_size, c, 1, 1)", **BIG), 2e-5,
        [((), [(1, 3, 5, 7), (1, 3, 1, 1)]), ((), [(3, 1, 1, 300), (3, 1, 1, 1)])],
    ),
    **{
        f"{fn} over {dim}": (
            program(f"return torch.{fn}(x, dim={dim})", ROWS, **LONG), 2e-5,
            [((), [(1, 4, 5)]), ((), [(5, 1, 33)]), ((), [(2, 67, 1)])],
        )
        for fn in ("sum", "argmax", "softmax", "cumsum") for dim in (0, 1, 2)
    },
    "mean of all": (
        program(
            "return torch.mean((x - y) ** 2)", "x = torch.randn(n, d);y = torch.randn(n, d)",
            n=2**15, d=2**14,
        ),
        2e-5, [((), [(1, 9), (1, 9)]), ((), [(3, 701), (3, 701)])],
    ),
    "layer norm": (
        program("return self.norm(x)", ROWS, "self.norm = nn.LayerNorm(dim)", "dim", **LONG), 2e-5,
        [((7,), [(1, 3, 7)]), ((1025,), [(1, 2, 1025)])],
    ),
    "group norm": (
        program("return self.norm(x)", IMAGES, "self.norm = nn.GroupNorm(8, c)", "c", **BIG), 2e-5,
        [((8,), [(1, 8, 3, 7)]), ((16,), [(3, 16, 1, 5)])],
    ),
    "linear": (
        program(
            "return torch.relu(self.fc(x))", "x = torch.randn(b, features)", *LINEAR,
            b=1024, features=512, hidden=256,
        ),
        2e-5, [((512, 256), [(1, 512)]), ((33, 130), [(67, 33)]), ((1, 5), [(3, 1)])],
    ),
    "linear of few rows": (
        program(
            "return torch.relu(self.fc(x))", "x = torch.randn(b, features)", *LINEAR,
            b=4, features=512, hidden=256,
        ),
        2e-5, [((40, 24), [(1, 40)]), ((33, 13), [(67, 33)])],
    ),
    "linear of a long sum": (
        program(
            "return self.fc(x)", "x = torch.randn(b, features)", *LINEAR,
            b=32, features=65536, hidden=64,
        ),
        2e-5, [((400, 24), [(3, 400)])],
    ),
    "batched product": (
        program(
            "return torch.bmm(x, y)", "x = torch.randn(b, m, k);y = torch.randn(b, k, n)",
            b=128, m=128, k=256, n=512,
        ),
        2e-5, [((), [(1, 3, 5), (1, 5, 7)]), ((), [(3, 1, 33), (3, 33, 2)])],
    ),
    "convolution": (
        program(
            "return torch.relu(self.conv(x))", IMAGES, CONVOLVED[0].format("Conv2d"), CONVOLVED[1],
            out=96, **BIG,
        ),
        8e-3, [((8, 16), [(1, 8, 1, 1)]), ((8, 5), [(3, 8, 2, 9)])],
    ),
    "transposed convolution": (
        program(
            "return self.conv(x)", IMAGES, CONVOLVED[0].format("ConvTranspose2d"), CONVOLVED[1],
            out=96, **BIG,
        ),
        8e-3, [((8, 16), [(1, 8, 1, 2)]), ((8, 5), [(3, 8, 3, 4)])],
    ),
    "pooling": (
        program("return F.max_pool2d(x, 3, 2, 1)", IMAGES, **BIG), 2e-5,
        [((), [(1, 1, 1, 1)]), ((), [(3, 2, 7, 2)])],
    ),
    "attention": (
        program(
            "return F.scaled_dot_product_attention(q, k, v, is_causal=True)", HEADS,
            batch_size=8, heads=16, length=1024, dim=64,
        ),
        2e-4, [((), [(1, 1, 1, 8)] * 3), ((), [(1, 3, 65, 17)] * 3)],
    ),
    "recurrence": (
        program(
            "return self.rnn(x)[0]", "x = torch.randn(length, batch_size, features)",
            "self.rnn = nn.GRU(features, hidden, 2)", "features, hidden",
            length=512, batch_size=10, features=128, hidden=256,
        ),
        1e-3, [((5, 7), [(3, 1, 5)]), ((8, 24), [(1, 19, 8)])],
    ),
    "concatenation": (
        program(
            "return torch.cat([x, F.relu(y)], dim=1)", "x = torch.randn(b, p, w);y = torch.randn(b, q, w)",
            b=16, p=128, q=64, w=256,
        ),
        2e-5, [((), [(1, 1, 1), (1, 3, 1)]), ((), [(2, 1, 300), (2, 70, 300)])],
    ),
    "padding": (
        program("return F.pad(x, (1, 2, 3, 0)) * 2", IMAGES, **BIG), 2e-5,
        [((), [(1, 1, 1, 1)]), ((), [(3, 2, 5, 7)])],
    ),
    "transposition": (
        program("return torch.relu(x.transpose(1, 2)).contiguous()", ROWS, **LONG), 2e-5,
        [((), [(1, 2, 1)]), ((), [(2, 65, 33)])],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_file_is_right_at_sizes_it_was_not_written_at(name: str) -> None:
    source, digits, calls = CASES[name]
    for arguments, shapes in calls:
        inputs: list[torch.Tensor] = [normal(*shape) + at for at, shape in enumerate(shapes)]
        check(source, arguments, inputs, digits)


def test_a_layer_is_named_after_the_end_of_its_path() -> None:
    """Which may begin with its number in a list."""
    layers = (
        "self.single_variable_residual_nets = nn.ModuleList([nn.Sequential(nn.ELU(), nn.LayerNorm(dim))])"
    )
    forward = "for part in self.single_variable_residual_nets:\n    x = torch.relu(part(x))\nreturn x"
    check(program(forward, ROWS, layers, "dim", **LONG), [7], [normal(1, 3, 7)])


def test_many_paths_to_a_stack_take_no_longer_than_one() -> None:
    """Each step reads the one before twice: there are 2**26 ways from the last to the input."""
    forward = (
        "y = x\nfor _ in range(26):\n    y = torch.sin(y) + y * 0.5\nreturn torch.stack([y, y * 2], -1) - 1"
    )
    check(program(forward, ROWS, **LONG), [], [normal(2, 3, 7)])

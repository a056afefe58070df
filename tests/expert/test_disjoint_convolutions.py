"""Convolutions whose windows do not overlap are products, read and stored where their tensors lie."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from egg.core.source import Task
from egg.expert.assemble import Written, graph_of, kernel_file
from egg.expert.moves import Recipe, Without
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.expert.elsewhere import RUN, normal, program
from tests.ledgers import INTERPRETED

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
IMAGES = "torch.randn(n, c, h, h + 4, dtype=torch.float16).to(memory_format=torch.channels_last)"
VOLUMES = "torch.randn(n, c, h, 4, 6, dtype=torch.float16).to(memory_format=torch.channels_last_3d)"
NORM = """self.bn = nn.BatchNorm2d(out)
self.bn.running_mean.uniform_(-1, 1)
self.bn.running_var.uniform_(0.5, 2)"""
ALONE = "return self.up(x)"


def source(layer: str, forward: str = ALONE, given: str = IMAGES, turned: bool = True, more: str = "") -> str:
    form = "channels_last_3d" if given is VOLUMES else "channels_last"
    last = f"\nself.to(memory_format=torch.{form})" if turned else ""
    layers = f"self.up = nn.{layer}\n{more}\nself.to(torch.float16).eval(){last}"
    return program(forward, f"x = {given}", layers, "c, out", n=4, c=64, out=32, h=16)


CASES: dict[str, str] = {
    "images": source("ConvTranspose2d(c, out, 2, 2)"),
    "without a bias": source("ConvTranspose2d(c, out, 2, 2, bias=False)"),
    "by unequal steps": source("ConvTranspose2d(c, out, (3, 2), (3, 2))"),
    "volumes": source("ConvTranspose3d(c, out, 2, 2)", given=VOLUMES),
    "one channel": source("ConvTranspose2d(c, 1, 2, 2)"),
    "of what is computed before": source("ConvTranspose2d(c, out, 4, 4)", "return self.up(F.gelu(x)) + 1"),
    "a contiguous weight": source("ConvTranspose2d(c, out, 2, 2)", turned=False),
    "normed": source("ConvTranspose2d(c, out, 2, 2)", "return torch.relu(self.bn(self.up(x)))", more=NORM),
    "joined": source("ConvTranspose2d(c, out, 2, 2)", "y = self.up(x)\nreturn torch.cat([y, y * 2 + 1], 1)"),
    "patches": source("Conv2d(c, out, 2, 2)"),
    "patches by unequal steps": source("Conv2d(c, out, (3, 4), (3, 4), bias=False)"),
    "patches of volumes": source("Conv3d(c, out, 2, 2)", given=VOLUMES),
    "patches and a contiguous weight": source("Conv2d(c, out, 4, 4)", turned=False),
    "normed patches": source(
        "Conv2d(c, out, 2, 2)",
        "return F.layer_norm(self.up(x).flatten(2).transpose(1, 2), (self.out,))",
        more="self.out = out",
    ),
}
SMALL = {4: (3, 5, 5, 9), 5: (2, 5, 3, 4, 6)}


def written(text: str, recipe: Recipe | None = None) -> Written:
    task = Task("program", text)
    return kernel_file(task, graph_of(task), recipe or Recipe(), resolve("H200"))


def patterns(made: Written) -> list[str]:
    return [group.pattern for group in made.structure.groups]


def compare(text: str, made: Written) -> None:
    """At other sizes than those of the program, with channels that fill no tile."""
    space: dict[str, type[nn.Module]] = {}
    exec(compile(text, "task", "exec"), space)
    model, rank = space["Model"](5, 7), 5 if "channels_last_3d" in text else 4
    x = normal(*SMALL[rank], dtype=torch.float16).to(memory_format=LAST[rank])
    with torch.no_grad():
        wanted = model(x)
    state = {"arguments": [5, 7], "state": dict(model.state_dict())}
    (found,) = harness.execute(made.source + RUN, [x], state)
    assert found.dim() != rank or found.is_contiguous(memory_format=LAST[rank])
    torch.testing.assert_close(found, wanted, atol=5e-3, rtol=5e-3)


@pytest.mark.parametrize("name", CASES)
def test_a_block_for_every_position_is_a_product_in_place(name: str) -> None:
    made = written(CASES[name])
    assert patterns(made).count("product") == 1
    assert "convolution" not in patterns(made)
    INTERPRETED.once(lambda: compare(CASES[name], made), made.source)


@pytest.mark.parametrize(
    "name", ["images", "without a bias", "normed", "volumes", "patches", "normed patches"]
)
def test_one_kernel_computes_it_with_what_follows(name: str) -> None:
    assert patterns(written(CASES[name])) == ["product"]


BY_LIBRARY: list[tuple[str, tuple[str, ...], bool]] = [
    ("images", ("convolution", "product"), False),
    ("without a bias", ("convolution", "product"), False),
    ("a contiguous weight", ("convolution", "product"), False),
    ("patches", ("product",), False),
    ("normed patches", ("convolution", "product"), True),
]


@pytest.mark.parametrize(("name", "without", "called"), BY_LIBRARY)
def test_the_library_may_compute_the_product(name: str, without: tuple[str, ...], called: bool) -> None:
    """Blocks of the operand would have to be copied for its product: its convolution reads them in place."""
    made = written(CASES[name], Recipe().after(*map(Without, without)))
    assert ("nn.functional.conv" in made.source) is called
    INTERPRETED.once(lambda: compare(CASES[name], made), made.source)


@pytest.mark.parametrize(
    "layer",
    [
        "ConvTranspose2d(c, out, 3, 2)",
        "ConvTranspose2d(c, out, 2, 3)",
        "ConvTranspose2d(c, out, 2, 2, padding=1)",
        "ConvTranspose2d(c, out, 2, 2, output_padding=1)",
        "ConvTranspose2d(c, out, 2, 2, dilation=2)",
        "ConvTranspose2d(c, out, 2, 2, groups=2)",
        "Conv2d(c, out, 3, 2)",
        "Conv2d(c, out, 2, 3)",
        "Conv2d(c, out, 2, 2, padding=1)",
        "Conv2d(c, out, 2, 2, dilation=2)",
        "Conv2d(c, out, 2, 2, groups=2)",
    ],
)
def test_other_windows_stay_convolutions(layer: str) -> None:
    assert "product" not in patterns(written(source(layer)))


@pytest.mark.parametrize("given", [IMAGES.replace("float16", "float32"), IMAGES.partition(".to(")[0]])
def test_other_operands_stay_convolutions(given: str) -> None:
    text = source("ConvTranspose2d(c, out, 2, 2)", given=given, turned=False)
    text = text.replace("float16", "float32") if "float32" in given else text
    assert patterns(written(text)) == ["convolution"]

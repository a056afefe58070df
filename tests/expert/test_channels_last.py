"""Channels-last programs: values lie as the reference has them, and nothing is turned around in between."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from egg.core.evaluation import Gate, Refusal
from egg.core.source import Task
from egg.expert.algebra.channels_last import channels_last
from egg.expert.assemble import Written, graph_of, kernel_file
from egg.expert.cost import Machine
from egg.expert.deciding.repairs import repaired
from egg.expert.moves import Recipe, Set, Without
from egg.expert.patterns.convolution.cost import library_seconds
from egg.expert.reading.capture import capture_once
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.expert.elsewhere import RUN, normal, program

LAYERS = """
self.conv1 = nn.Conv2d(c, out, 3, padding=1, bias=False)
self.bn1 = nn.BatchNorm2d(out)
self.conv2 = nn.Conv2d(out, c, 1, bias=False)
self.bn2 = nn.BatchNorm2d(c)
self.to(torch.float16).eval()
self.to(memory_format=torch.channels_last)
"""
FORWARD = """
y = torch.relu(self.bn1(self.conv1(x)))
return torch.relu(self.bn2(self.conv2(y)) + x)
"""


def block(layout: str) -> str:
    made = f"torch.randn(n, c, h, h, dtype=torch.float16).to(memory_format=torch.{layout})"
    return program(FORWARD, f"x = {made}", LAYERS, "c, out", n=16, c=64, out=256, h=28)


def written(recipe: Recipe) -> str:
    task = Task("block", block("channels_last"))
    return kernel_file(task, graph_of(task), recipe, resolve("H200")).source


def test_the_layout_goes_through_every_layer():
    graph = capture_once(Task("block", block("channels_last")))
    images = [value for value in graph.values.values() if value.rank == 4 and value.origin == "node"]
    assert len(images) == 7
    assert all(value.stride[1].value == 1 for value in images)


def test_library_calls_and_kernels_keep_it():
    left = written(Recipe().after(Without("convolution"), Without("product")))
    whole = written(Recipe())
    assert left.count("nn.functional.conv2d(") == left.count("nn.functional.linear(") == 1, "one has one tap"
    x = normal(3, 5, 6, 6, dtype=torch.float16).to(memory_format=torch.channels_last)
    space: dict[str, type[nn.Module]] = {}
    exec(compile(block("channels_last"), "task", "exec"), space)
    model = space["Model"](5, 7)
    with torch.no_grad():
        wanted = model(x)
    for text in (left, whole):
        body = text[text.index("class ModelNew") :]
        turned = re.findall(r"(?<!permute\(0, 2, 3, 1\))\.contiguous\(\)", body)
        assert not turned, body
        parameters = {"arguments": [5, 7], "state": dict(model.state_dict())}
        (made,) = harness.execute(text + RUN, [x], parameters)
        assert made.stride() == wanted.stride()
        torch.testing.assert_close(made, wanted, atol=5e-3, rtol=5e-3)


def test_the_library_turns_nothing_that_lies_so_already():
    machine = Machine.of(resolve("H200"))
    seconds = {}
    for layout in ("channels_last", "contiguous_format"):
        graph = capture_once(Task("block", block(layout)))
        first = next(node for node in graph.nodes if node.op == "conv")
        seconds[layout] = library_seconds(graph, first, None, machine)
    assert seconds["channels_last"] < seconds["contiguous_format"]


# -- where the library computes 16-bit convolutions ------------------------------------------------------

NORMED = """
self.norm1 = nn.GroupNorm(2, c)
self.conv1 = nn.Conv2d(c, out, 3, padding=1)
self.norm2 = nn.GroupNorm(2, out)
self.conv2 = nn.Conv2d(out, c, 3, padding=1)
self.to(torch.float16)
"""
NORMED_FORWARD = """
y = self.conv1(F.silu(self.norm1(x)))
return self.conv2(F.silu(self.norm2(y))) + x
"""
ROWS = """
self.conv1 = nn.Conv1d(c, out, 3, stride=2, padding=2, dilation=2)
self.conv2 = nn.Conv1d(out, c, 1)
self.to(torch.float16)
"""
ROWS_FORWARD = "return torch.tanh(self.conv2(F.gelu(self.conv1(F.gelu(x)))))"


def checked(source: str, recipe: Recipe, shape: tuple[int, ...], arguments: list[int]) -> str:
    """The text of a file that does what the program does, with results that lie in the same way."""
    task = Task("program", source)
    text = kernel_file(task, graph_of(task), recipe, resolve("H200")).source
    space: dict[str, type[nn.Module]] = {}
    exec(compile(source, "task", "exec"), space)
    model, x = space["Model"](*arguments), normal(*shape, dtype=torch.float16)
    with torch.no_grad():
        wanted = model(x)
    (made,) = harness.execute(text + RUN, [x], {"arguments": arguments, "state": dict(model.state_dict())})
    assert made.stride() == wanted.stride()
    torch.testing.assert_close(made, wanted, atol=2e-2, rtol=2e-2)
    return text


def test_a_contiguous_program_has_its_channels_last_between_the_library_calls():
    given = "x = torch.randn(n, c, h, h, dtype=torch.float16)"
    source = program(NORMED_FORWARD, given, NORMED, "c, out", n=4, c=64, out=128, h=32)
    text = checked(source, Recipe().after(Without("convolution")), (2, 4, 6, 6), [4, 6])
    body = text[text.index("class ModelNew") :]
    assert body.count("self.packed(channels_last_weight, self.conv") == 2, "weights are turned once"
    assert "bias" not in "".join(re.findall(r"conv2d\([^)]*\)", body)), "what follows adds them"
    turned = re.findall(r"(?<!permute\(0, 2, 3, 1\))\.contiguous\(", body)
    assert turned == [".contiguous("], "the input alone is asked for as the caller has it"


def test_rows_are_images_one_pixel_high():
    given = "x = torch.randn(n, c, h, dtype=torch.float16)"
    source = program(ROWS_FORWARD, given, ROWS, "c, out", n=4, c=64, out=128, h=256)
    text = checked(source, Recipe().after(Without("convolution")), (2, 4, 16), [4, 6])
    assert "nn.functional.conv2d(" in text
    assert "stride=(1, 2), padding=(0, 2), dilation=(1, 2)" in " ".join(text.split())


def test_one_tap_is_a_product_that_takes_its_norm_along():
    graph = graph_of(Task("block", block("channels_last")))
    made = kernel_file(Task("block", block("channels_last")), graph, Recipe(), resolve("H200"))
    tapped = next(g for g in made.structure.groups if any(n.label == "conv2" for n in g.nodes))
    assert tapped.pattern == "product"
    assert {"norm", "pointwise"} <= {node.op for node in tapped.nodes}


# -- where the library computes fp32 convolutions in TF32 ------------------------------------------------

RESIDUAL = """
self.stem = nn.Conv2d(3, c, 7, stride=2, padding=3, bias=False)
self.norm = nn.BatchNorm2d(c)
self.conv1 = nn.Conv2d(c, c, 3, padding=1)
self.norm1 = nn.BatchNorm2d(c)
self.conv2 = nn.Conv2d(c, out, 1)
self.conv3 = nn.Conv2d(c, out, 3, padding=1)
self.depthwise = nn.Conv2d(2 * out, 2 * out, 5, stride=2, padding=2, groups=2 * out)
self.conv4 = nn.Conv2d(2 * out, c, 1)
"""
RESIDUAL_FORWARD = """
y = F.max_pool2d(torch.relu(self.norm(self.stem(x))), 3, stride=2, padding=1)
y = torch.relu(self.norm1(self.conv1(y)) + y)
y = torch.cat((self.conv2(y), self.conv3(y)), 1)
return self.conv4(torch.relu(self.depthwise(y))).mean((2, 3))
"""
DENSE = ("conv", "conv_2", "conv_3", "conv_4", "conv_6")


def network(h: int = 128) -> Task:
    given = "x = torch.randn(n, 3, h, h)"
    return Task("network", program(RESIDUAL_FORWARD, given, RESIDUAL, "c, out", n=8, c=32, out=64, h=h))


def left(task: Task, *more: Set) -> str:
    recipe = Recipe().after(*(Without("convolution", name) for name in DENSE), *more)
    return kernel_file(task, graph_of(task), recipe, resolve("H200")).source


def test_a_network_in_fp32_has_its_channels_last_between_the_library_calls() -> None:
    """Batch statistics, a pool, a concatenation and a stencil of ours are between them."""
    task = network()
    text = left(task)
    body = text[text.index("class ModelNew") :]
    assert body.count("self.packed(channels_last_weight, ") == len(DENSE)
    assert "nn.functional.linear" not in body.split("conv4")[0], "products would be exact, and slow"
    assert "bias" not in "".join(re.findall(r"conv2d\([^)]*\)", body)), "what follows adds them"
    turned = re.findall(r"(?<!permute\(0, 2, 3, 1\))\.contiguous\(", body)
    assert turned == [".contiguous("], "the input alone is asked for as the caller has it"
    assert "BLOCK_C" in text, "lanes of the stencil run along the channels"
    space: dict[str, type[nn.Module]] = {}
    exec(compile(task.source, "task", "exec"), space)
    model, x = space["Model"](16, 16), normal(2, 3, 32, 24)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        wanted = model(x)
    (made,) = harness.execute(text + RUN, [x], {"arguments": [16, 16], "state": state})
    torch.testing.assert_close(made, wanted, atol=1e-4, rtol=1e-4)


def test_narrow_results_in_tf32_take_as_long_as_a_tile_of_the_library() -> None:
    def seconds(outputs: int) -> float:
        layers = f"self.conv = nn.Conv2d(c, {outputs}, 3, padding=1)"
        forward, given = "return torch.relu(self.conv(torch.relu(x)))", "x = torch.randn(n, c, h, h)"
        graph = capture_once(Task("narrow", program(forward, given, layers, "c", n=8, c=256, h=112)))
        conv = next(node for node in graph.nodes if node.op == "conv")
        return library_seconds(graph, conv, None, Machine.of(resolve("H200")))

    assert seconds(32) == pytest.approx(seconds(64), rel=0.05)
    assert seconds(128) > 1.5 * seconds(64)


def test_a_convolution_of_ours_stores_its_result_with_the_channels_last() -> None:
    """It reads the caller's image as it lies: nothing copies that, and nothing behind it turns its result."""
    task = network()
    recipe = Recipe().after(*(Without("convolution", name) for name in DENSE[1:]))
    written = kernel_file(task, graph_of(task), recipe, resolve("H200"))
    own = next(node for node in written.structure.graph.nodes if node.op == "conv")
    graph = written.structure.graph
    assert own.inputs[0] in graph.arguments
    assert graph.result(own).stride[1].value == 1
    assert re.search(r"s \* \w+ \+ c,", written.source), "channels of a position are stored side by side"
    space: dict[str, type[nn.Module]] = {}
    exec(compile(task.source, "task", "exec"), space)
    model, x = space["Model"](16, 16), normal(2, 3, 32, 24)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        wanted = model(x)
    (made,) = harness.execute(written.source + RUN, [x], {"arguments": [16, 16], "state": state})
    torch.testing.assert_close(made, wanted, atol=1e-4, rtol=1e-4)


def test_the_setting_leaves_fp32_as_the_reference_has_it() -> None:
    assert "channels_last_weight" not in left(network(), Set("file", "channels_last", False))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param("nn.Conv2d(c, out, 3)", "nn.ReLU()", id="an operand of the caller"),
        pytest.param("nn.Conv2d(c, out, 1)", "nn.Conv2d(out, c, 1)", id="one tap of aligned positions"),
        pytest.param("nn.Conv2d(c, 8, 1)", "nn.Conv2d(8, c, 3)", id="few channels, in fp32"),
    ],
)
def test_fp32_convolutions_stay_as_they_are_where_nothing_is_turned(first: str, second: str) -> None:
    layers = f"self.conv1 = {first}\nself.conv2 = {second}"
    forward, given = "return self.conv2(torch.relu(self.conv1(x)))", "x = torch.randn(n, c, h, h)"
    graph = capture_once(Task("pair", program(forward, given, layers, "c, out", n=4, c=64, out=64, h=32)))
    assert channels_last(graph, lambda _: True) is graph


def test_an_inexact_file_gets_the_layout_of_the_reference() -> None:
    task, gpu = network(), resolve("H200")
    graph = graph_of(task)
    recipe = Recipe().after(*(Without("convolution", name) for name in DENSE))

    def write(recipe: Recipe) -> Written:
        return kernel_file(task, graph, recipe, gpu)

    refusal = Refusal(Gate.CORRECTNESS, "correctness.error", "relative rms error 2.6e-04", "too inaccurate")
    found = repaired(recipe, refusal, (), write, library=True)
    assert found is not None
    after, repair = found
    assert repair.moves == (Set("file", "channels_last", False),)
    assert "channels_last_weight" not in write(after).source


STENCILS = {
    "rows": ("x = torch.randn(n, h, c, dtype=torch.float16)", "self.conv(x.transpose(1, 2))", "Conv1d", 1),
    "images": (
        "x = torch.randn(n, c, h, h, dtype=torch.float16).to(memory_format=torch.channels_last)",
        "self.conv(x)", "Conv2d", 2,
    ),
    "strips": (
        "x = torch.randn(n, c, h, h, dtype=torch.float16).to(memory_format=torch.channels_last)",
        "self.conv(x)", "Conv2d", 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STENCILS)
def test_lanes_of_a_stencil_run_along_channels_that_are_innermost(name: str) -> None:
    given, call, layer, stride = STENCILS[name]
    layers = f"self.conv = nn.{layer}(c, c, 3, stride={stride}, padding=2, groups=c)\nself.to(torch.float16)"
    layers += "\nself.to(memory_format=torch.channels_last)" if layer == "Conv2d" else ""
    source = program(f"return torch.relu({call}) * 2", given, layers, "c", n=2, c=32, h=24)
    task = Task(name, source)
    made = kernel_file(task, graph_of(task), Recipe(), resolve("H200"))
    assert "convolution" in [group.pattern for group in made.structure.groups]
    assert "BLOCK_C" in made.source
    assert ("ROWS" in made.source) == (name == "strips")
    space: dict[str, type[nn.Module]] = {}
    exec(compile(source, "task", "exec"), space)
    model = space["Model"](32)
    x = normal(3, 9, 32, dtype=torch.float16)
    if layer == "Conv2d":
        x = normal(3, 32, 7, 9, dtype=torch.float16).to(memory_format=torch.channels_last)
    with torch.no_grad():
        wanted = model(x)
    (got,) = harness.execute(made.source + RUN, [x], {"arguments": [32], "state": dict(model.state_dict())})
    torch.testing.assert_close(got, wanted, atol=5e-3, rtol=5e-3)


BRANCHES = """
self.conv1 = nn.Conv2d(c, out, 1, bias=False)
self.conv2 = nn.Conv2d(out, c, 3, padding=1)
self.conv3 = nn.Conv2d(c, c, 3, padding=1, bias=False)
self.to(torch.float16)
"""
BRANCHES_FORWARD = "return torch.relu(self.conv2(torch.relu(self.conv1(x))) + self.conv3(x) + x)"


def test_a_kernel_turns_an_argument_once_for_all_convolutions():
    given = "x = torch.randn(n, c, h, h, dtype=torch.float16)"
    source = program(BRANCHES_FORWARD, given, BRANCHES, "c, out", n=8, c=64, out=128, h=32)
    left = Recipe().after(Without("convolution", "conv_2"), Without("convolution", "conv_3"))
    text = checked(source, left, (2, 4, 6, 6), [4, 6])
    body = text[text.index("class ModelNew") :]
    assert "contiguous(memory_format" not in body, "PyTorch copies nothing"
    assert body.count("x_last = torch.empty_strided(") == 1
    assert len(re.findall(r"conv2d\(", body)) == 2, "a convolution of one tap is a product of what was turned"


RETURNED = """
self.conv1 = nn.Conv2d(c, out, 3, padding=1)
self.conv2 = nn.Conv2d(out, c, 3, padding=1, bias={bias})
self.to(torch.float16)
"""


@pytest.mark.parametrize("bias", [True, False])
def test_a_kernel_turns_a_result_and_adds_its_bias(bias: bool) -> None:
    """Into the memory that a recorded graph has for the result: nothing is copied."""
    given = "x = torch.randn(n, c, h, h, dtype=torch.float16)"
    forward, layers = "return self.conv2(torch.relu(self.conv1(x)))", RETURNED.format(bias=bias)
    source = program(forward, given, layers, "c, out", n=8, c=64, out=128, h=48)
    recipe = Recipe().after(Without("convolution"), Set("file", "replay", True))
    text = checked(source, recipe, (2, 4, 6, 6), [4, 6])
    body = text[text.index("def launches") :]
    assert body.count("conv2d(") == 2
    assert "bias" not in "".join(re.findall(r"conv2d\([^)]*\)", body))
    turned = re.findall(r"(?<!permute\(0, 2, 3, 1\))\.contiguous\(", body)
    assert not turned, "PyTorch copies nothing"
    assert "into[0]" in body
    assert "def filled" not in text, "every result is written in its place"


def test_a_small_result_is_left_as_the_library_makes_it() -> None:
    given = "x = torch.randn(n, c, h, h, dtype=torch.float16)"
    forward, layers = "return self.conv2(torch.relu(self.conv1(x)))", RETURNED.format(bias=True)
    source = program(forward, given, layers, "c, out", n=8, c=64, out=128, h=16)
    recipe = Recipe().after(Without("convolution"), Set("file", "replay", True))
    text = checked(source, recipe, (2, 4, 6, 6), [4, 6])
    assert "self.conv2.bias" in "".join(re.findall(r"conv2d\([^)]*\)", text))
    assert "into[0].copy_(conv_2) if into else conv_2.contiguous()" in text
    assert "def filled" not in text, "it is brought into its layout in its place"


SHUFFLED = """
self.conv1 = nn.Conv2d(c, out, 3, padding=1, bias={bias})
self.conv2 = nn.Conv2d({inner}, c, 3, padding=1, bias=False)
self.to(torch.float16)
"""


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("shuffle", "inner"),
    [
        ("F.pixel_shuffle(y, 2)", "out // 4"),
        ("F.pixel_unshuffle(y, 2)", "out * 4"),
        ("y.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)", "out"),
    ],
    ids=["shuffle", "unshuffle", "channels"],
)
def test_views_between_convolutions_are_stored_with_the_channels_last(
    shuffle: str, inner: str, bias: bool
) -> None:
    """By one kernel, with the bias where there is one: PyTorch copies nothing."""
    given = "x = torch.randn(n, c, h, h, dtype=torch.float16)"
    layers = SHUFFLED.format(bias=bias, inner=inner)
    forward = f"y = self.conv1(x)\nreturn torch.relu(self.conv2({shuffle}))"
    source = program(forward, given, layers, "c, out", n=8, c=32, out=64, h=48)
    text = checked(source, Recipe().after(Without("convolution")), (2, 4, 6, 6), [4, 8])
    body = text[text.index("class ModelNew") :]
    assert body.count("conv2d(") == 2
    assert "contiguous(memory_format" not in body
    assert body.count(".reshape(") == 0
    assert len(re.findall(r"\w+_kernel\[", body)) == 3, "the argument, between the convolutions, behind them"


MIXED = """
self.mix = nn.Linear(c, c, bias=False)
self.conv1 = nn.Conv2d(c, out, 1)
self.conv2 = nn.Conv2d(out, c, 3, padding=1)
self.to(torch.float16)
"""


def test_a_product_that_is_viewed_as_an_image_is_turned_on_the_way() -> None:
    """Into a convolution of one tap, which is a product of its own then."""
    given = "x = torch.randn(n, c, h, h, dtype=torch.float16)"
    forward = "y = (self.mix.weight @ x.flatten(2)).reshape(x.shape)\nreturn self.conv2(self.conv1(y)) + x"
    source = program(forward, given, MIXED, "c, out", n=8, c=32, out=64, h=48)
    text = checked(source, Recipe().after(Without("convolution")), (2, 4, 6, 6), [4, 8])
    body = text[text.index("class ModelNew") :]
    assert body.count("conv2d(") == 1
    assert "contiguous(memory_format" not in body

"""What kind of program a task is: the traits that skills ask for, on programs made for each."""

from __future__ import annotations

import pytest

from egg.core.bottleneck import Value
from egg.core.facts import Workload
from egg.evaluator.task.traits import traits_of
from egg.evaluator.task.workload import workload
from egg.knowledge.vocabulary import PROGRAM
from tests.evaluator.test_facts import model, task_of

BATCHES = "[torch.rand(256, 32, 32), torch.rand(256, 32, 32)]"


def traits(forward: str, inputs: str, init: str = "pass", arguments: str = "x") -> dict[str, Value]:
    return traits_of(workload(task_of(model(f"return {forward}", init, arguments), inputs)))


def truths(found: dict[str, Value]) -> set[str]:
    return {name for name, value in found.items() if value is True}


def test_every_trait_is_a_name_of_the_vocabulary() -> None:
    assert traits_of(Workload({}, {}, {}, (), 0)).keys() < PROGRAM.keys()


@pytest.mark.parametrize(
    ("forward", "inputs", "expected"),
    [
        ("x @ y", "[torch.rand(512, 512), torch.rand(512, 512)]", set()),
        ("x @ y", "[torch.rand(512, 4096), torch.rand(4096, 512)]", {"deep_product"}),
        ("x @ y", "[torch.rand(512, 512), torch.rand(512)]", {"matrix_vector", "small_product"}),
        ("x @ y", "[torch.rand(512, 16), torch.rand(16, 512)]", {"small_product"}),
        ("x @ y", "[torch.rand(8, 128, 128), torch.rand(8, 128, 128)]", {"batched_product"}),
        ("x.T @ y", "[torch.rand(256, 512), torch.rand(256, 128)]", {"transposed_inputs"}),
        ("torch.tril(x @ y)", "[torch.rand(128, 128), torch.rand(128, 128)]", {"triangular"}),
        ("torch.diag(x) @ y", "[torch.rand(128), torch.rand(128, 128)]", {"diagonal", "fed_product"}),
        ("x @ y @ y", "[torch.rand(256, 128), torch.rand(128, 128)]", {"chained_products"}),
        (
            "x[:, :3, :3] @ y",
            "[torch.rand(64, 8, 8), torch.rand(64, 3, 512)]",
            {"small_product", "batched_product"},
        ),
        ("torch.relu(x) @ y", "[torch.rand(128, 128), torch.rand(128, 128)]", {"fed_product"}),
        ("torch.relu(x @ y) @ y", "[torch.rand(128, 128), torch.rand(128, 128)]", set()),
        ("(x @ y * 2).mean(1)", "[torch.rand(128, 128), torch.rand(128, 128)]", {"linear_reduction"}),
        ("(x @ y).relu().mean(1)", "[torch.rand(128, 128), torch.rand(128, 128)]", set()),
        ("(lambda z: z - z.mean(1))(x @ y)", "[torch.rand(128, 128), torch.rand(128, 128)]", set()),
        ("(2 / (x @ y)).mean(1)", "[torch.rand(128, 128), torch.rand(128, 128)]", set()),
        ("(x @ y).amax(1)", "[torch.rand(128, 128), torch.rand(128, 128)]", set()),
        (
            "torch.softmax(x @ y * 2, 1) @ y",
            "[torch.rand(128, 128), torch.rand(128, 128)]",
            {"written_attention"},
        ),
        ("torch.softmax(x @ y, 1) + y", "[torch.rand(128, 128), torch.rand(128, 128)]", set()),
        ("x.max(1, keepdim=True)[0].sum(1)", "[torch.rand(8, 64), 0]", {"unit_reduction"}),
        ("torch.argmax(x, 1)", "[torch.rand(8, 64, 32), 0]", {"argmin_argmax", "middle_reduction"}),
        ("x.sum(-1)", "[torch.rand(8, 64), 0]", set()),
        ("x.sum(0)", "[torch.rand(8, 64), 0]", {"middle_reduction"}),
        ("x.sum()", "[torch.rand(8, 64), 0]", set()),
        ("x.mean((0, 2))", "[torch.rand(8, 64, 4), 0]", set()),
        ("torch.cumsum(x, 0)", "[torch.rand(8, 64), 0]", {"middle_reduction"}),
        ("torch.softmax(x, 1)", "[torch.rand(8, 64), 0]", set()),
        ("x + y", "[torch.rand(8, 64).T, torch.rand(64, 8)]", {"transposed_inputs"}),
        ("torch.topk(x, 2).values + y", "[torch.rand(8, 64), 0]", {"ordering"}),
        ("x.sort(-1).values + y", "[torch.rand(8, 64), 0]", {"ordering"}),
        ("x.index_add(0, y, x)", "[torch.rand(64, 8), torch.randint(0, 64, (64,))]", {"collecting_scatter"}),
        (
            "x.index_put((y,), x, accumulate=True)",
            "[torch.rand(64, 8), torch.randint(0, 64, (64,))]",
            {"collecting_scatter"},
        ),
        ("x.index_put((y,), x)", "[torch.rand(64, 8), torch.randperm(64)]", set()),
        ("x[y]", "[torch.rand(64, 8), torch.randint(0, 64, (64,))]", set()),
    ],
)
def test_kinds_of_work(forward: str, inputs: str, expected: set[str]) -> None:
    assert truths(traits(forward, inputs, arguments="x, y")) - {"strided_k"} == expected


CODES = "self.register_buffer('w', torch.randint(0, 9, (128, 128), dtype=torch.uint8))"


@pytest.mark.parametrize(
    ("forward", "init", "coded"),
    [
        ("x @ self.w.float()", CODES, True),
        ("x + self.w.float()", CODES, False),
        ("x @ self.w", "self.register_buffer('w', torch.rand(128, 128))", False),
        ("(x @ x)[self.i]", "self.register_buffer('i', torch.arange(128, dtype=torch.int32))", False),
    ],
)
def test_weights_that_are_codes(forward: str, init: str, coded: bool) -> None:
    assert traits(forward, "[torch.rand(128, 128)]", init)["coded_weights"] is coded


@pytest.mark.parametrize(
    ("forward", "strided"),
    [("x @ y", True), ("x.T @ y.T", True), ("x @ y.T", False), ("F.linear(x, y)", False), ("x + y", False)],
)
def test_products_whose_inner_dimension_is_strided(forward: str, strided: bool) -> None:
    inputs = "[torch.rand(64, 64), torch.rand(64, 64)]"
    assert traits(forward, inputs, arguments="x, y")["strided_k"] is strided


@pytest.mark.parametrize(
    ("layer", "inputs", "expected", "dims"),
    [
        ("nn.Conv2d(16, 32, 3)", "torch.rand(2, 16, 32, 32)", set(), 2),
        ("nn.Conv2d(16, 32, 3, stride=2)", "torch.rand(2, 16, 32, 32)", {"strided_convolution"}, 2),
        ("nn.Conv2d(16, 32, 1)", "torch.rand(2, 16, 32, 32)", {"pointwise_convolution"}, 2),
        ("nn.Conv1d(16, 32, 3, groups=4)", "torch.rand(2, 16, 32)", {"grouped_convolution"}, 1),
        (
            "nn.Conv2d(16, 16, 3, groups=16)",
            "torch.rand(2, 16, 32, 32)",
            {"grouped_convolution", "depthwise_convolution"},
            2,
        ),
        ("nn.ConvTranspose3d(8, 8, 3)", "torch.rand(2, 8, 8, 8, 8)", {"transposed_convolution"}, 3),
        ("nn.BatchNorm2d(16)", "torch.rand(2, 16, 32, 32)", {"training_norm"}, 0),
        ("nn.BatchNorm2d(16).eval()", "torch.rand(2, 16, 32, 32)", set(), 0),
        ("nn.InstanceNorm2d(16)", "torch.rand(2, 16, 32, 32)", {"group_norm"}, 0),
        ("nn.GroupNorm(4, 16)", "torch.rand(2, 16, 32, 32)", {"group_norm"}, 0),
        ("nn.LayerNorm(32)", "torch.rand(2, 16, 32, 32)", set(), 0),
        ("nn.Linear(256, 256)", "torch.rand(128, 256)", set(), 0),
    ],
)
def test_kinds_of_layers(layer: str, inputs: str, expected: set[str], dims: int) -> None:
    found = traits("self.layer(x)", f"[{inputs}]", f"self.layer = {layer}")
    assert truths(found) == expected
    assert found["convolution_dims"] == dims


def test_a_small_layer_among_large_ones_decides_nothing() -> None:
    init = "self.large = nn.Linear(1024, 1024); self.head = nn.Linear(1024, 10)"
    found = traits("self.head(self.large(x).mean(0, keepdim=True))", "[torch.rand(4096, 1024)]", init)
    assert found["products"] == 2
    assert truths(found) == {"middle_reduction", "linear_reduction"}, (
        "neither a matrix times a vector nor a small product"
    )


def test_a_small_mask_is_no_triangular_matrix() -> None:
    mask = "torch.tril(torch.ones(32, 32, dtype=torch.bool, device=x.device))"
    assert not traits(f"(x @ y).masked_fill(~{mask}, 0)", BATCHES, arguments="x, y")["triangular"]


@pytest.mark.parametrize(
    ("layer", "size"),
    [
        ("nn.LayerNorm(32)", 32),
        ("nn.LayerNorm((16, 32, 32))", 16 * 32 * 32),
        ("nn.GroupNorm(4, 16)", 4 * 32 * 32),
        ("nn.InstanceNorm2d(16)", 32 * 32),
        ("nn.BatchNorm2d(16)", 2 * 32 * 32),
        ("nn.ReLU()", 0),
    ],
)
def test_how_much_is_normalized_together(layer: str, size: int) -> None:
    assert (
        traits("self.layer(x)", "[torch.rand(2, 16, 32, 32)]", f"self.layer = {layer}")["norm_size"] == size
    )


@pytest.mark.parametrize(
    ("forward", "size"),
    [("x.sum(1)", 64), ("x.sum()", 8 * 64 * 32), ("torch.softmax(x, -1)", 32), ("x + 1", 0)],
)
def test_how_much_is_reduced_together(forward: str, size: int) -> None:
    assert traits(forward, "[torch.rand(8, 64, 32)]")["reduction_size"] == size


def test_sizes() -> None:
    found = traits("(x * y).half()", "[torch.rand(4, 128, 256), torch.rand(256)]", arguments="x, y")
    assert found["operations"] == 2
    assert (found["rank"], found["batch"], found["rows"], found["columns"]) == (3, 4, 512, 256)
    assert (found["smallest_dim"], found["largest_dim"]) == (4, 256)
    assert found["dtype"] == "float16"
    assert found["inputs_bytes"] == 4 * (4 * 128 * 256 + 256)
    assert found["outputs_bytes"] == 2 * 4 * 128 * 256
    assert found["parameters_bytes"] == 0


def test_nothing_but_integers_and_numbers() -> None:
    found = traits("x + 1", "[torch.arange(8)]")
    assert found["dtype"] == "other"
    assert (found["rows"], found["columns"]) == (1, 8)

"""Every operation of a forward at full size, held against counts made by hand."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.core.errors import TaskError
from egg.core.facts import Family
from egg.evaluator.task.meta import OutOfTime
from egg.evaluator.task.workload import workload
from tests.evaluator.workloads import FLOAT, only, task_of, work_of

# -- operations counted by hand --------------------------------------------------------------------

PRODUCTS = {
    "product": ("return x @ y", "torch.rand(8, 5), torch.rand(5, 7)", "x, y", 2 * 8 * 5 * 7),
    "batched": (
        "return torch.bmm(x, y)",
        "torch.rand(3, 8, 5), torch.rand(3, 5, 7)",
        "x, y",
        3 * 2 * 8 * 5 * 7,
    ),
    "matrix and vector": ("return x @ y", "torch.rand(8, 5), torch.rand(5)", "x, y", 2 * 8 * 5),
    "dot": ("return torch.dot(x, y)", "torch.rand(9), torch.rand(9)", "x, y", 2 * 9),
    "matrix and vector, added": (
        "return torch.addmv(z, x, y)",
        "torch.rand(8, 5), torch.rand(5), torch.rand(8)",
        "x, y, z",
        2 * 8 * 5,
    ),
    "outer, added": (
        "return torch.addr(z, x, y)",
        "torch.rand(8), torch.rand(5), torch.rand(8, 5)",
        "x, y, z",
        2 * 8 * 5,
    ),
    "many added up": (
        "return torch.addbmm(z, x, y)",
        "torch.rand(3, 8, 5), torch.rand(3, 5, 7), torch.rand(8, 7)",
        "x, y, z",
        3 * 2 * 8 * 5 * 7,
    ),
    "einsum": (
        "return torch.einsum('bijl,lk->bijk', x, y)",
        "torch.rand(2, 3, 4, 5), torch.rand(5, 6)",
        "x, y",
        2 * 2 * 3 * 4 * 5 * 6,
    ),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_products(case: str) -> None:
    forward, inputs, arguments, flops = PRODUCTS[case]
    work = work_of(forward, inputs, arguments=arguments)
    assert work.flops == flops
    assert {op.family for op in work.operations} == {Family.PRODUCT}


CONVOLUTIONS = {
    "plain": (
        "nn.Conv2d(4, 6, (3, 5), bias=False)",
        "torch.rand(2, 4, 10, 12)",
        2 * 2 * 6 * (8 * 8) * 4 * 15,
    ),
    "strided, padded, dilated": (
        "nn.Conv2d(4, 6, 3, stride=2, padding=2, dilation=2)",
        "torch.rand(2, 4, 11, 11)",
        2 * 2 * 6 * (6 * 6) * 4 * 9,
    ),
    "grouped": ("nn.Conv2d(8, 12, 3, groups=4)", "torch.rand(2, 8, 9, 9)", 2 * 2 * 12 * (7 * 7) * 2 * 9),
    "depthwise": ("nn.Conv2d(8, 8, 3, groups=8)", "torch.rand(2, 8, 9, 9)", 2 * 2 * 8 * (7 * 7) * 9),
    "one dimension": ("nn.Conv1d(3, 5, 4)", "torch.rand(2, 3, 20)", 2 * 2 * 5 * 17 * 3 * 4),
    "three dimensions": (
        "nn.Conv3d(3, 5, (1, 2, 3))",
        "torch.rand(2, 3, 4, 6, 8)",
        2 * 2 * 5 * (4 * 5 * 6) * 3 * 6,
    ),
    "transposed": (
        "nn.ConvTranspose2d(4, 6, 3, stride=2)",
        "torch.rand(2, 4, 5, 7)",
        2 * 2 * 4 * (5 * 7) * 6 * 9,
    ),
    "transposed in groups": (
        "nn.ConvTranspose3d(4, 8, 3, groups=2, padding=1)",
        "torch.rand(2, 4, 3, 5, 7)",
        2 * 2 * 4 * (3 * 5 * 7) * 4 * 27,
    ),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions(case: str) -> None:
    layer, inputs, flops = CONVOLUTIONS[case]
    operation = only(work_of("return self.layer(x)", inputs, f"self.layer = {layer}"))
    assert (operation.family, operation.flops) == (Family.CONVOLUTION, flops)


OTHERS = {
    "pointwise": ("return torch.relu(x)", "torch.rand(6, 7)", Family.POINTWISE, 42),
    "broadcast": ("return x + y", "torch.rand(6, 1), torch.rand(1, 7)", Family.POINTWISE, 42),
    "triangle": ("return torch.tril(x)", "torch.rand(6, 6)", Family.POINTWISE, 36),
    "sum": ("return x.sum(1)", "torch.rand(6, 7)", Family.REDUCTION, 42),
    "largest": ("return x.max(dim=0)[0]", "torch.rand(6, 7)", Family.REDUCTION, 42),
    "scan": ("return x.cumsum(0)", "torch.rand(6, 7)", Family.SCAN, 42),
    "softmax": ("return x.softmax(-1)", "torch.rand(6, 7)", Family.SOFTMAX, 5 * 42),
    "layer norm": ("return F.layer_norm(x, (7,))", "torch.rand(6, 7)", Family.NORMALIZATION, 8 * 42),
    "known statistics": (
        "return F.batch_norm(x, y, y, eps=1e-5)",
        "torch.rand(6, 7), torch.rand(7)",
        Family.NORMALIZATION,
        2 * 42,
    ),
    "mean of windows": (
        "return F.avg_pool2d(x, 3, 1)",
        "torch.rand(2, 3, 5, 6)",
        Family.POOLING,
        2 * 3 * 3 * 4 * 9,
    ),
    "largest of windows": ("return F.max_pool1d(x, 2)", "torch.rand(2, 3, 8)", Family.POOLING, 2 * 3 * 4 * 2),
    "adaptive": ("return F.adaptive_avg_pool2d(x, 2)", "torch.rand(2, 3, 6, 6)", Family.POOLING, 2 * 3 * 36),
    "loss": ("return F.mse_loss(x, y)", "torch.rand(6, 7), torch.rand(6, 7)", Family.LOSS, 3 * 42),
    "gather": ("return x[y]", "torch.rand(6, 7), torch.zeros(9, dtype=torch.long)", Family.GATHER, 0),
    "copy": ("return x.t().contiguous()", "torch.rand(6, 7)", Family.MOVEMENT, 0),
    "concatenation": ("return torch.cat([x, x])", "torch.rand(6, 7)", Family.MOVEMENT, 0),
    "random": ("return torch.rand_like(x)", "torch.rand(6, 7)", Family.RANDOM, 42),
    "something else": ("return torch.sort(x)[0]", "torch.rand(6, 7)", Family.OTHER, 42),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_bound_by_memory(case: str) -> None:
    forward, inputs, family, flops = OTHERS[case]
    work = work_of(forward, inputs, arguments="x, y" if ", torch" in inputs else "x")
    assert (only(work).family, only(work).flops) == (family, flops)
    assert work.flops == 0
    assert work.flops_by_family == {family.value: flops}


# -- what cannot be seen ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        ("return x if x.sum() > 0 else -x", "Model.forward failed"),
        ("return x[x > 0]", "Model.forward failed"),
        ("return x * x.max().item()", "Model.forward failed"),
        ("raise ValueError('not today')", "not today"),
    ],
)
def test_a_task_that_looks_at_its_data(forward: str, reason: str) -> None:
    with pytest.raises(TaskError) as caught:
        work_of(forward, "torch.rand(8)")
    assert reason in caught.value.message
    assert "line 12" in caught.value.message
    assert "no data" in caught.value.hint


def test_a_forward_that_takes_too_long() -> None:
    with pytest.raises(OutOfTime, match="too long"):
        workload(task_of("while True: x = x + 1", "torch.rand(8)"), seconds=0.2)


def test_a_package_that_is_not_there() -> None:
    with pytest.raises(TaskError, match="no_such_package"):
        work_of("import no_such_package; return x", "torch.rand(8)")


# -- whatever the shapes ---------------------------------------------------------------------------

SIZES = st.integers(1, 4096)


@settings(max_examples=40, deadline=None)
@given(m=SIZES, k=SIZES, n=SIZES)
def test_any_product(m: int, k: int, n: int) -> None:
    operation = only(work_of("return x @ y", f"torch.rand({m}, {k}), torch.rand({k}, {n})", arguments="x, y"))
    assert operation.flops == 2 * m * k * n
    assert operation.bytes == FLOAT * (m * k + k * n + m * n)


UNARY = ("torch.relu({})", "torch.exp({})", "{} * 2", "F.gelu({})", "torch.sigmoid({})", "{}.tanh_()")


@settings(max_examples=40, deadline=None)
@given(chain=st.lists(st.sampled_from(UNARY), min_size=1, max_size=8), shape=st.tuples(SIZES, SIZES))
def test_any_chain_of_pointwise_work(chain: list[str], shape: tuple[int, int]) -> None:
    forward = "".join(f"x = {step.format('x')}\n" for step in chain) + "return x"
    work = work_of(forward, f"torch.rand{shape}")
    elements = shape[0] * shape[1]
    assert len(work.operations) == work.eager_launches == len(chain)
    assert work.eager_bytes == 2 * FLOAT * elements * len(chain)
    assert work.flops_by_family == {"pointwise": elements * len(chain)}
    values = [op.reads + op.writes for op in work.operations]
    assert all(before[-1] == after[0] for before, after in itertools.pairwise(values))

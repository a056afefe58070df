"""Every operation of a forward at full size, held against counts made by hand."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import flop_registry

from egg.core.errors import TaskError
from egg.core.facts import Family, Operation, TensorForm, Workload
from egg.core.source import Task
from egg.evaluator.task.meta import Meter, OutOfTime
from egg.evaluator.task.workload import workload

FLOAT = 4


def task_of(forward: str, inputs: str, init: str = "pass", arguments: str = "x") -> Task:
    body = textwrap.indent(textwrap.dedent(forward).strip(), " " * 8)
    setup = textwrap.indent(textwrap.dedent(init).strip(), " " * 8)
    return Task(
        "made",
        f"""
import torch
from torch import nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
{setup}

    def forward(self, {arguments}):
{body}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
""",
    )


def work_of(forward: str, inputs: str, init: str = "pass", arguments: str = "x") -> Workload:
    return workload(task_of(forward, inputs, init, arguments))


def only(work: Workload, *, but: str = "") -> Operation:
    """The one operation there is, apart from those whose name is ``but``."""
    (operation,) = [op for op in work.operations if op.name != but]
    return operation


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


# -- layers that a library answers as a whole ------------------------------------------------------


def test_a_recurrent_layer_is_kept_whole_at_any_length() -> None:
    work = work_of(
        "return self.rnn(x)[0]",
        "torch.rand(4, 50000, 64)",
        "self.rnn = nn.LSTM(64, 128, num_layers=2, batch_first=True)",
    )
    layer = only(work, but="aten.zeros")
    positions = 4 * 50000
    assert layer.family is Family.RECURRENCE
    assert layer.flops == 2 * positions * 4 * 128 * ((64 + 128) + (128 + 128))
    assert layer.launches == 2 * (1 + 2 * 50000)
    weights = 4 * 128 * (64 + 128 + 2 + 128 + 128 + 2)
    states = 2 * 2 * 2 * 4 * 128
    moved = positions * ((64 + 2 * 4 * 128 + 128) + (128 + 2 * 4 * 128 + 128))
    assert layer.bytes == FLOAT * (weights + states + moved)


@pytest.mark.parametrize(("layer", "gates"), [("nn.GRU", 3), ("nn.RNN", 1), ("nn.LSTM", 4)])
def test_recurrence_in_both_directions(layer: str, gates: int) -> None:
    init = f"self.rnn = {layer}(16, 32, num_layers=2, bidirectional=True)"
    work = work_of("return self.rnn(x)[0]", "torch.rand(10, 3, 16)", init)
    both = 2 * gates * 32 * ((16 + 32) + (64 + 32))
    assert work.flops == 2 * (10 * 3) * both
    assert work.outputs["output"].shape == (10, 3, 64)


def test_a_packed_sequence() -> None:
    forward = """
    packed = nn.utils.rnn.pack_padded_sequence(x, [5, 3, 2], batch_first=True)
    return self.rnn(packed)[0].data
    """
    init = "self.rnn = nn.LSTM(8, 16, batch_first=True)"
    work = work_of(forward, "torch.rand(3, 5, 8)", init)
    layer = next(op for op in work.operations if op.family is Family.RECURRENCE)
    assert layer.flops == 2 * (5 + 3 + 2) * 4 * 16 * (8 + 16)
    assert layer.launches == 1 + 2 * 5


def test_one_step_of_a_cell_is_not_a_layer() -> None:
    work = work_of(
        "return self.cell(x, (y, y))[0]",
        "torch.rand(3, 8), torch.rand(3, 16)",
        "self.cell = nn.LSTMCell(8, 16)",
        "x, y",
    )
    assert work.flops == 2 * 3 * 4 * 16 * (8 + 16)
    assert Family.RECURRENCE not in {op.family for op in work.operations}


HEADS = "torch.rand(2, 4, 10, 8), torch.rand(2, 4, 12, 8), torch.rand(2, 4, 12, 6)"


def test_attention_is_one_operation() -> None:
    work = work_of("return F.scaled_dot_product_attention(x, y, z)", HEADS, arguments="x, y, z")
    operation = only(work)
    assert operation.name == "aten.scaled_dot_product_attention"
    assert operation.flops == 2 * 4 * (2 * 10 * 8 * 12 + 2 * 10 * 12 * 6)
    elements = 2 * 4 * (10 * 8 + 12 * 8 + 12 * 6 + 10 * 6)
    assert (operation.bytes, operation.launches) == (FLOAT * elements, 1)


def test_causal_attention_leaves_out_what_is_masked() -> None:
    causal = "return F.scaled_dot_product_attention(x, y, z, is_causal=True)"
    pairs = sum(min(row + 1, 12) for row in range(10))
    assert work_of(causal, HEADS, arguments="x, y, z").flops == 2 * 4 * 2 * pairs * (8 + 6)
    wide = "torch.rand(1, 1, 9, 4), torch.rand(1, 1, 5, 4), torch.rand(1, 1, 5, 4)"
    assert work_of(causal, wide, arguments="x, y, z").flops == 2 * sum(min(r + 1, 5) for r in range(9)) * 8


def uncounted_attention(monkeypatch: pytest.MonkeyPatch) -> Callable[[], object]:
    """Fused attention with fewer heads of keys than of queries, which some releases of PyTorch do not count.

    2 x 8 x 64 queries, 64 keys, 32 wide.
    """

    def refuses(*_: object, **__: object) -> int:
        raise AssertionError("shapes are incompatible")

    fused = torch.ops.aten._scaled_dot_product_flash_attention
    monkeypatch.setitem(flop_registry, fused, refuses)
    query, key = (torch.empty(2, heads, 64, 32, dtype=torch.half, device="meta") for heads in (8, 2))
    return lambda: fused(query, key, key)


def test_fused_attention_with_fewer_heads_of_keys_is_counted_whatever_pytorch_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attend = uncounted_attention(monkeypatch)
    with Meter(10.0) as meter:
        attend()
    assert meter.flops == 2 * (2 * 8 * 64 * 64 * 32) * 2


def test_attention_inside_of_a_library_module() -> None:
    init = "self.layer = nn.MultiheadAttention(16, 4, batch_first=True)"
    inside = work_of("return self.layer(x, x, x, need_weights=False)[0]", "torch.rand(2, 10, 16)", init)
    names = [op.name for op in inside.operations]
    assert names.count("aten.scaled_dot_product_attention") == 1
    assert not [n for n in names if "softmax" in n or "bmm" in n]
    taken_apart = work_of("return self.layer(x, x, x)[0]", "torch.rand(2, 10, 16)", init)
    assert "aten.scaled_dot_product_attention" not in [op.name for op in taken_apart.operations]
    assert inside.flops == taken_apart.flops == 2 * 20 * 16 * 64 + 2 * 4 * 2 * (2 * 10 * 10 * 4)


def test_dropout_is_one_kernel_that_keeps_its_mask() -> None:
    work = work_of("return F.dropout(x, 0.5)", "torch.rand(6, 7)")
    operation = only(work)
    assert (operation.name, operation.family) == ("aten.native_dropout", Family.RANDOM)
    assert operation.bytes == 42 * (FLOAT + FLOAT + 1)
    for idle in ("F.dropout(x, 0.5, training=False)", "F.dropout(x, 0.0)", "nn.Dropout().eval()(x)"):
        assert work_of(f"return {idle}", "torch.rand(6, 7)").operations == ()
    in_place = work_of("return F.dropout(x, 0.5, inplace=True)", "torch.rand(6, 7)")
    assert [op.name for op in in_place.operations] == ["aten.bernoulli_", "aten.div_", "aten.mul_"]


def test_rms_norm_is_one_kernel() -> None:
    work = work_of("return self.norm(x)", "torch.rand(6, 7)", "self.norm = nn.RMSNorm(7)")
    assert (only(work).family, only(work).flops) == (Family.NORMALIZATION, 8 * 42)
    assert only(work).bytes == FLOAT * (42 + 7 + 42)


# -- bytes that eager moves ------------------------------------------------------------------------


def bytes_of(forward: str, inputs: str, init: str = "pass", arguments: str = "x") -> list[int]:
    """In elements of four bytes."""
    work = work_of(forward, inputs, init, arguments)
    assert all(op.bytes % FLOAT == 0 for op in work.operations)
    return [op.bytes // FLOAT for op in work.operations]


BYTES = {
    "read and write": ("return torch.exp(x)", "torch.rand(6, 7)", [42 + 42]),
    "in place is both": ("return x.exp_()", "torch.rand(6, 7)", [42 + 42]),
    "the same tensor twice is read once": ("return x * x", "torch.rand(6, 7)", [42 + 42]),
    "two looks at the same memory": ("return x @ x.t()", "torch.rand(6, 7)", [42 + 36]),
    "an expanded input holds what it holds": ("return x + 1", "torch.rand(6, 1).expand(6, 7)", [6 + 42]),
    "a slice is read alone": ("return x[:, ::2] + 1", "torch.rand(6, 8)", [24 + 24]),
    "a transposed one like any": ("return x.t() + 1", "torch.rand(6, 7)", [42 + 42]),
    "overlapping windows are held once": ("return x.unfold(0, 3, 1) + 1", "torch.rand(10)", [10 + 24]),
    "views move nothing": ("return x.view(7, 6).t()[1:].unsqueeze(0)", "torch.rand(6, 7)", []),
    "nor do empty tensors": ("return torch.empty_like(x), x.new_empty(4)", "torch.rand(6)", []),
    "filling writes": ("return torch.zeros_like(x)", "torch.rand(6, 7)", [42]),
    "filling in place writes": ("return x.fill_(1.0)", "torch.rand(6, 7)", [42]),
    "a copy into a slice moves the slice": ("x[:, :2] = 1.0; return x", "torch.rand(6, 7)", [12 + 1]),
    "into what is given": ("return torch.exp(x, out=x.new_empty(6, 7))", "torch.rand(6, 7)", [42 + 42]),
    "a sum": ("return x.sum(1)", "torch.rand(6, 7)", [42 + 6]),
    "a short row is read once": ("return x.softmax(1)", "torch.rand(6, 7)", [42 + 42]),
    "a long row three times": ("return x.softmax(1)", "torch.rand(2, 40000)", [4 * 80000]),
    "a strided row three times": ("return x.softmax(0)", "torch.rand(6, 7)", [4 * 42]),
    "a long row to normalize": ("return F.layer_norm(x, (40000,))", "torch.rand(2, 40000)", [240000 + 4]),
    "a short row to scale": ("return F.rms_norm(x, (7,))", "torch.rand(6, 7)", [42 + 42]),
    "a long row to scale": ("return F.rms_norm(x, (40000,))", "torch.rand(2, 40000)", [240000]),
    "padding fills, then copies": ("return F.pad(x, (1, 1))", "torch.rand(6, 7)", [42 + 54 + 42]),
    "concatenation": ("return torch.cat([x, x[:2]])", "torch.rand(6, 7)", [42 + 56]),
    "a logarithm of a sum": ("return x.logsumexp(1)", "torch.rand(6, 7)", [6 * 42 + 6]),
    "a loss and its mean": ("return F.mse_loss(x, x + 1)", "torch.rand(6, 7)", [84, 84 + 84 + 1]),
    "a loss for each": ("return F.mse_loss(x, x + 1, reduction='none')", "torch.rand(6, 7)", [84, 84 + 42]),
}  # fmt: skip


@pytest.mark.parametrize("case", BYTES)
def test_bytes_of(case: str) -> None:
    forward, inputs, expected = BYTES[case]
    assert bytes_of(forward, inputs) == expected


def test_a_bias_is_added_to_a_convolution_afterwards() -> None:
    def moved(layer: str) -> tuple[int, int]:
        operation = only(work_of("return self.layer(x)", "torch.rand(2, 4, 9, 9)", f"self.layer = {layer}"))
        return operation.bytes // FLOAT, operation.launches

    source, out = 2 * 4 * 81, 2 * 4 * 49
    assert moved("nn.Conv2d(4, 4, 3, bias=False)") == (source + 4 * 4 * 9 + out, 1)
    assert moved("nn.Conv2d(4, 4, 3)") == (source + 4 * 4 * 9 + 4 + 3 * out, 2)
    assert moved("nn.Conv2d(4, 4, 3, groups=4)") == (source + 4 * 9 + 4 + out, 1)


def test_a_bias_rides_on_a_linear_layer_and_a_matrix_does_not() -> None:
    operands = "torch.rand(6, 5), torch.rand(5, 7), "

    def moved(addend: str) -> tuple[int, int]:
        work = work_of("return torch.addmm(z, x, y)", operands + addend, arguments="x, y, z")
        return only(work).bytes // FLOAT, only(work).launches

    assert moved("torch.rand(7)") == (30 + 35 + 7 + 42, 1)
    assert moved("torch.rand(6, 7)") == (30 + 35 + 42 + 3 * 42, 2)


def test_batch_norm_in_training_reads_twice_and_updates_its_statistics() -> None:
    init = "self.norm = nn.BatchNorm2d(3)"
    counting, norm = work_of("return self.norm(x)", "torch.rand(2, 3, 5, 5)", init).operations
    assert (counting.name, counting.bytes) == ("aten.add_", 2 * 8)
    assert norm.bytes == FLOAT * (3 * 150 + 2 * 3 + 2 * 3 + 2 * 3 + 2 * 3)
    assert norm.launches == 2
    known = only(work_of("return self.norm(x)", "torch.rand(2, 3, 5, 5)", init + ".eval()"))
    assert known.bytes == FLOAT * (2 * 150 + 2 * 3 + 2 * 3)
    assert known.launches == 1


def test_indexing_moves_what_it_picks() -> None:
    init = "self.table = nn.Embedding(1000, 8)"
    picked = only(work_of("return self.table(x)", "torch.zeros(5, dtype=torch.long)", init))
    assert picked.bytes == 5 * 8 + 2 * FLOAT * 5 * 8
    scattered = only(
        work_of(
            "return x.index_copy_(0, y, z)",
            "torch.rand(1000, 8), torch.zeros(5, dtype=torch.long), torch.rand(5, 8)",
            arguments="x, y, z",
        )
    )
    assert scattered.bytes == 5 * 8 + 2 * FLOAT * 5 * 8


def test_max_pooling_writes_its_indices() -> None:
    operation = only(work_of("return F.max_pool2d(x, 2)", "torch.rand(1, 1, 8, 8)"))
    assert operation.bytes == FLOAT * (64 + 16) + 8 * 16


def test_cross_entropy_reads_one_element_per_target() -> None:
    inputs = "torch.rand(6, 7), torch.zeros(6, dtype=torch.long)"
    loss = work_of("return F.cross_entropy(x, y)", inputs, arguments="x, y").operations[-1]
    assert (loss.name, loss.family) == ("aten.nll_loss_forward", Family.LOSS)
    assert loss.bytes == 6 * (FLOAT + 8) + 2 * FLOAT


# -- inputs, parameters, outputs -------------------------------------------------------------------


def test_an_example_in_full() -> None:
    work = work_of("return torch.relu(self.layer(x))", "torch.rand(64, 32)", "self.layer = nn.Linear(32, 16)")
    x, weight, bias = (TensorForm("float32", s, 4) for s in ((64, 32), (16, 32), (16,)))
    transposed = TensorForm("float32", (32, 16), 4, (1, 32))
    out = TensorForm("float32", (64, 16), 4)
    product, relu = work.operations
    assert dict(work.inputs) == {"x": x}
    assert dict(work.parameters) == {"layer.weight": weight, "layer.bias": bias}
    assert dict(work.outputs) == {"output": out}
    assert (product.name, product.inputs, product.outputs) == ("aten.addmm", (bias, x, transposed), (out,))
    assert (relu.name, relu.inputs, relu.outputs) == ("aten.relu", (out,), (out,))
    assert relu.reads == product.writes
    assert work.kept == relu.writes
    assert work.least_bytes == x.bytes + weight.bytes + bias.bytes + out.bytes
    assert (work.eager_bytes, work.eager_launches) == (work.least_bytes + 2 * out.bytes, 2)


def test_shared_memory_counts_once() -> None:
    tied = """
    self.one, self.two = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
    self.two.weight = self.one.weight
    """
    work = work_of("return self.two(self.one(x))", "torch.rand(4, 8)", tied)
    assert work.least_bytes == FLOAT * (32 + 64 + 32)
    assert list(work.parameters) == ["one.weight"]
    twice = task_of("return x + y", "*[torch.rand(4, 8)] * 2", arguments="x, y")
    assert workload(twice).least_bytes == FLOAT * (32 + 32)
    wide = work_of("return x + 1", "torch.rand(4, 1).expand(4, 8)")
    assert wide.least_bytes == FLOAT * (4 + 32)
    same = work_of("y = x + 1\nreturn y, y, y[0]", "torch.rand(4, 8)")
    assert same.least_bytes == FLOAT * (32 + 32)


def test_buffers_hold_data_too() -> None:
    work = work_of("return x + self.shift", "torch.rand(8)", 'self.register_buffer("shift", torch.zeros(8))')
    assert (list(work.parameters), work.least_bytes) == (["shift"], 3 * 8 * FLOAT)


def test_values_are_made_anew_in_place() -> None:
    work = work_of("y = x * 2\ny.relu_()\nreturn y.view(-1)[:3] + 1", "torch.rand(2, 3)")
    times, relu, plus = work.operations
    assert relu.reads == times.writes
    assert plus.reads == relu.writes != times.writes
    assert work.kept == plus.writes


def test_a_value_that_is_written_over_in_part_is_needed_without_being_read() -> None:
    work = work_of("y = x * 2\ny[0] = 1.0\nreturn y", "torch.rand(2, 3)")
    times, fill = work.operations
    assert [form.elements for form in fill.outputs] == [3]
    assert len(fill.reads) == len(fill.inputs) + 1
    assert fill.reads[-1:] == times.writes
    assert work.kept == fill.writes


def test_state_that_a_forward_leaves_behind_is_kept() -> None:
    init = 'self.register_buffer("sum", torch.zeros(3)); self.last = None'
    work = work_of("self.sum += x\nself.last = x * 2\nreturn self.sum + 1", "torch.rand(3)", init)
    assert work.kept == tuple(v for op in work.operations for v in op.writes)


def test_a_forward_that_does_nothing() -> None:
    work = work_of("return x", "torch.rand(3)")
    assert (work.operations, work.eager_bytes, work.kept) == ((), 0, ())
    assert work.least_bytes == 2 * 3 * FLOAT


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

"""Bytes that eager moves, and what is counted of inputs, parameters and outputs."""

from __future__ import annotations

import pytest

from egg.core.facts import Family, TensorForm
from egg.evaluator.task.workload import workload
from tests.evaluator.workloads import FLOAT, bytes_of, only, task_of, work_of

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

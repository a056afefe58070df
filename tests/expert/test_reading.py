"""Operators that are easily misread: where results lie in memory, bits, places known only at run time, one
size alone; and what cannot be read ends a draft, not a run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from egg.core.errors import TaskError
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task.program import Program
from egg.expert import assemble
from egg.expert.assemble import Fault, Written, graph_of, kernel_file
from egg.expert.moves import Recipe, Without, moves_in
from egg.expert.reading.capture import capture, capture_once
from egg.expert.reading.normal import RULES
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.expert.captured import CPU, kinds, program
from tests.ledgers import INTERPRETED

H200 = resolve("H200")


def written(task: Task, *moves: Any) -> Written:
    return kernel_file(task, graph_of(task), Recipe().after(*moves), H200)


def run_and_compare(task: Task, *moves: Any) -> str:
    """The whole file in the interpreter, on the task's own module and inputs, against the task."""
    made = written(task, *moves)
    INTERPRETED.once(lambda: compare(task, made), task.source, made.source)
    return made.source


def compare(task: Task, made: Written) -> None:
    with Program.load(task) as loaded:
        module = loaded.build(0, CPU, Precision.MATCH)
        inputs = loaded.inputs(0, CPU, Precision.MATCH)
        with torch.no_grad():
            wanted = loaded.run(module, inputs)
        held: dict[str, Any] = dict(module.state_dict())
        held |= {name: value for name, value in vars(module).items() if isinstance(value, int)}
    text = made.source + "\n\ndef forward(self, *given):\n    found = ModelNew.forward(self, *given)\n"
    text += "    return list(found) if isinstance(found, tuple | list) else [found]\n"
    found = harness.execute(text, inputs, held)
    listed = list(wanted) if isinstance(wanted, tuple | list) else [wanted]
    for got, want in zip(found, listed, strict=True):
        torch.testing.assert_close(got, want, rtol=2e-3, atol=2e-3, equal_nan=True)


# -- where results lie -------------------------------------------------------------------------------------

HEADS = "x.unflatten(-1, (3, 8)).transpose(1, 2)"
ATTENTION = program(
    f"q = {HEADS}; a = F.scaled_dot_product_attention(q, q, q); "
    "return self.out(a.transpose(1, 2).flatten(2))",
    "torch.randn(2, length, 24)", "self.out = nn.Linear(24, 12)", "length = 10",
)  # fmt: skip
SORT = program(
    "torch.kthvalue(x.t().sigmoid(), 2, dim=0, keepdim=True).values.exp()",
    "torch.randn(rows, 12)",
    "pass",
    "rows = 9",
)
QR = program("torch.relu(torch.linalg.qr(x)[0])", "torch.randn(batch, 9, 9)", "pass", "batch = 3")
FOLDED = program(
    "torch.exp(torch.matmul(x, y))", "torch.randn(rows, 8), torch.randn(3, 8, 10)", "pass", "rows = 9", "x, y"
)


@pytest.mark.parametrize(
    ("task", "left"),
    [(ATTENTION, "attention"), (SORT, ""), (QR, ""), (FOLDED, "product")],
    ids=["attention", "sort", "qr", "folded"],
)
def test_what_pytorch_makes_lies_as_kernels_read_it(task: Task, left: str) -> None:
    text = run_and_compare(task, *([Without(left)] if left else []))
    assert ".contiguous()" in text


def test_attention_lies_as_its_query() -> None:
    graph = capture_once(ATTENTION)
    (node,) = [node for node in graph if node.op == "attention"]
    assert [size.value for size in graph.result(node).stride] == [240, 8, 24, 1]


def test_a_recurrent_layer_may_hand_out_a_transposed_view() -> None:
    layers = "self.rnn = nn.LSTM(8, 16, batch_first=True)"
    task = program("torch.exp(self.rnn(x)[0])", "torch.randn(4, length, 8)", layers, "length = 10")
    text = written(task, Without("recurrent")).source
    assert "lstm = lstm.contiguous()" in text


def test_plain_calls_are_left_as_they_are() -> None:
    task = program(
        "torch.exp(F.relu(self.conv(x)))", "torch.randn(B, C, H, W)", "self.conv = nn.Conv2d(16, 8, 3)"
    )
    text = written(task, Without("convolution")).source
    assert text.count(".contiguous()") == text.count("self.forward(x.contiguous())") == 1


# -- single operators ----------------------------------------------------------------------------------------

OPERATORS = {
    "losses": program(
        "F.cross_entropy(x, y, reduction='none', ignore_index=3) * 2",
        "torch.randn(rows, 9), torch.arange(rows) % 9",
        "pass", "rows = 12", "x, y",
    ),
    "losses in space": program(
        "F.nll_loss(x, y, weight=self.w, reduction='none')",
        "torch.randn(4, 9, rows), torch.arange(4 * rows).reshape(4, rows) % 9",
        "self.w = nn.Parameter(torch.rand(9))", "rows = 12", "x, y",
    ),
    "bits": program(
        "x.view(torch.float8_e4m3fn).to(torch.float32), x.view(torch.float8_e5m2).float() * 2",
        "torch.arange(256).to(torch.uint8).repeat(rows, 1)", "pass", "rows = 9",
    ),
    "floats of eight bits": program(
        "q = (x / 4).to(torch.float8_e4m3fn); return q.float(), (x.half() / 9).to(q.dtype).float() + 1",
        "torch.cat((torch.linspace(-1790, 1790, 200), torch.linspace(-0.2, 0.2, 56))).repeat(rows, 1)",
        "pass", "rows = 9",
    ),
    "grids": program(
        "a, b = torch.meshgrid(x[0], x[:, 0], indexing='ij'); "
        "c, d = torch.meshgrid(x[0], x[:, 0], indexing='xy'); return a * 2 + b, c - d",
        "torch.randn(rows, 7)", "pass", "rows = 9",
    ),
    "halves of bytes": program(
        "torch.stack((x & 15, x >> 4), -1).flatten(1).float() + (x << 1).float().repeat(1, 2)",
        "torch.arange(256).to(torch.uint8).repeat(rows, 1)", "pass", "rows = 9",
    ),
    "scatter": program(
        "x.scatter(1, y, 2.0), x.scatter(1, y, x[:, :3] * 2)",
        "torch.randn(rows, 10), torch.arange(rows)[:, None] % 10",
        "pass", "rows = 9", "x, y",
    ),
    "one place": program(
        "z = x.clone(); z[:, y] = 5.0; return z, x.index_copy(1, y, x[:, :1])",
        "torch.randn(rows, 10), torch.tensor([7])", "pass", "rows = 9", "x, y",
    ),
    "one place a row": program(
        "z = x.clone(); z[torch.arange(x.shape[0]), :, y] = x[:, :, 0]; return z",
        "torch.randn(rows, 5, 10), torch.arange(rows) - 4", "pass", "rows = 9", "x, y",
    ),
    "mask": program("z = x.clone(); z[x > 0] = 1.5; return z", "torch.randn(rows, 10)", "pass", "rows = 9"),
    "masked rows": program(
        "z = x.clone(); z[y] = self.w; t = x.clone(); t[:, self.m] = 2.0; return z, t",
        "torch.randn(rows, 5, 10), torch.arange(rows * 5).reshape(rows, 5) % 3 == 0",
        "self.w = nn.Parameter(torch.rand(10)); self.register_buffer('m', torch.arange(5) % 2 == 0)",
        "rows = 9", "x, y",
    ),
    "every second": program(
        "z = x.clone(); z[:, 1::2] = 7.0; z[:, ::3] += x[:, ::3].relu(); z[:, 3:8:2] = x[:, :3]; "
        "return z",
        "torch.randn(rows, 11)", "pass", "rows = 12",
    ),
    "rows and columns": program(
        "x[torch.arange(x.shape[0]), y], x[torch.arange(x.shape[0])[:, None], y[:, None] - 5] * 2",
        "torch.randn(rows, 7, 10), torch.arange(rows) % 5", "pass", "rows = 9", "x, y",
    ),
    "places in dimensions apart": program(
        "x[y, :, y % 3] + 1",
        "torch.randn(rows, 7, 10), torch.arange(6).reshape(2, 3)", "pass", "rows = 9", "x, y",
    ),
    "smoothed and weighted losses": program(
        "F.cross_entropy(x, y, label_smoothing=0.1, ignore_index=2), "
        "F.cross_entropy(x, y, weight=self.w, label_smoothing=0.2), F.cross_entropy(x, y, weight=self.w), "
        "F.cross_entropy(x, x.softmax(1), weight=self.w, label_smoothing=0.1)",
        "torch.randn(4, 9, rows), torch.arange(4 * rows).reshape(4, rows) % 9",
        "self.w = nn.Parameter(torch.rand(9))", "rows = 12", "x, y",
    ),
    "distances of points": program(
        "torch.cdist(x, y).exp(), torch.cdist(x, y, p=1)",
        "torch.randn(2, rows, 3), torch.randn(2, 6, 3)", "pass", "rows = 9", "x, y",
    ),
    "diagonals": program(
        "x.diagonal() + 1, x.diagonal(2) * 2, x.diagonal(-1).exp()", "torch.randn(n, n)", "pass", "n = 12"
    ),
}  # fmt: skip


@pytest.mark.parametrize("task", OPERATORS.values(), ids=OPERATORS)
def test_operators_are_read_and_written(task: Task) -> None:
    run_and_compare(task)
    graph = capture(task)
    assert not graph.fixed
    assert "library" not in kinds(graph)


def test_a_scatter_of_many_stays_a_call() -> None:
    inputs = "torch.randn(4, 9), torch.ones(4, 2).long()"
    assert kinds(capture_once(program("x.scatter(1, y, 2.0)", inputs, arguments="x, y"))) == {"library": 1}


@pytest.mark.parametrize(
    "forward",
    [
        "d = x.diagonal(); d += 1; return x",
        "d = x.diagonal(); x += 1; return d * 2",
        "d = x.view(torch.int8); x += 1; return d + 1",
    ],
)
def test_writes_that_no_view_explains_are_refused(forward: str) -> None:
    with pytest.raises(TaskError, match="forward writes into"):
        capture_once(program(f"x = x * 2; {forward}", "torch.randn(9, 9)"))


# -- sizes ---------------------------------------------------------------------------------------------------


def test_a_file_for_one_size_says_so() -> None:
    task = program(
        "return self.doubled(x)", "torch.randn(4, length)", "self.doubled = Doubled()", "length = 16"
    )
    source = task.source.replace("class Model", DOUBLED + "\n\nclass Model", 1)
    text = written(Task("doubled", source)).source
    assert 'check_shape("x", x, (rows, 16))' in text
    assert "x in float32, contiguous or not, 16 in dimension 1 only" in " ".join(text.split())


DOUBLED = """
class Doubled(nn.Module):
    def forward(self, x):
        reach = 1
        while reach < x.shape[1]:
            x = x + F.pad(x[:, :-reach], (reach, 0))
            reach *= 2
        return x
"""


def test_names_of_sizes_do_not_meet_those_of_kernels() -> None:
    task = program(
        "F.scaled_dot_product_attention(x, x, x)", "torch.randn(2, 2, places, depth)", "pass",
        "places, depth = 24, 16",
    )  # fmt: skip
    made = written(task)
    assert made.structure.left_to_pytorch == ()
    assert "places_size" in made.source


# -- faults --------------------------------------------------------------------------------------------------


def test_what_is_misread_names_its_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(builder: Any, call: Any) -> Any:
        return builder.reshape(call["self"], (-1,))

    monkeypatch.setitem(RULES, "relu", wrong)
    with pytest.raises(TaskError, match="relu is not read rightly"):
        capture_once(program("torch.relu(x)", "torch.randn(4, 9)"))
    monkeypatch.setitem(RULES, "relu", lambda builder, call: call["missing"])
    with pytest.raises(TaskError, match="relu cannot be read: KeyError"):
        capture_once(program("torch.relu(x)", "torch.randn(4, 9)"))


def test_a_fault_of_ours_ends_a_draft_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise AssertionError("two and two")

    monkeypatch.setattr(assemble, "structured", broken)
    task = program("torch.relu(x)", "torch.randn(4, 9)")
    with pytest.raises(Fault, match=r"wrote the kernels: AssertionError: two and two \(test_reading"):
        kernel_file(task, graph_of(task), Recipe(), H200)


def test_brackets_of_other_people_are_no_moves() -> None:
    assert moves_in("use larger tiles [BLOCK_M=128]") == ()

"""What is known of a program before any kernel: work, shapes and operations at full size, on no memory."""

from __future__ import annotations

import textwrap
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from egg.analysis.savings import LAUNCH_MILLISECONDS, savings
from egg.core.facts import ProgramFacts
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task.facts import LONGEST_LIST, gpu_facts, program_facts, task_facts
from egg.evaluator.task.rescale import cost_of
from egg.evaluator.task.workload import observed, workload
from egg.hardware.gpus import resolve, table
from egg.hardware.roofline import compute_peak, floor_seconds

ROOT = Path(__file__).parents[2]
CASES = ROOT / "benchmarks/judge/cases"
H200 = resolve("H200")


def task_of(body: str, inputs: str, init: str = "[]") -> Task:
    source = f"import torch\nfrom torch import nn\nimport torch.nn.functional as F\n{textwrap.dedent(body)}\n"
    functions = f"def get_inputs():\n    return {inputs}\n\ndef get_init_inputs():\n    return {init}\n"
    return Task("made", source + functions)


def facts_of(body: str, inputs: str, init: str = "[]") -> ProgramFacts:
    facts = program_facts(task_of(body, inputs, init))
    assert facts is not None
    return facts


def model(forward: str, init: str = "pass", arguments: str = "x") -> str:
    return f"""
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {arguments}):
        {forward}
"""


EXPECTED = {
    "bias_gelu_residual": ("aten.add", "aten.gelu", "aten.add"),
    "batch_norm_training": ("aten.add_", "aten.native_batch_norm"),
    "causal_attention_fp16": ("aten.scaled_dot_product_attention",),
    "conv_bias_relu": ("aten.convolution", "aten.relu"),
    "cross_entropy": ("aten._log_softmax", "aten.nll_loss_forward"),
    "cumulative_sum": ("aten.cumsum",),
    "embedding_sum": ("aten.embedding", "aten.mul", "aten.add"),
    "group_norm_silu": ("aten.native_group_norm", "aten.silu"),
    "library_gemm_tail": ("aten.addmm", "aten.sigmoid", "aten.mul", "aten.native_layer_norm"),
    "linear_gelu": ("aten.addmm", "aten.gelu"),
    "max_pool_2d": ("aten.relu", "aten.max_pool2d_with_indices"),
    "residual_layer_norm": ("aten.add", "aten.native_layer_norm"),
    "swiglu_gate": ("aten.silu", "aten.mul"),
    "wide_softmax": ("aten.div", "aten._softmax"),
}


@pytest.mark.parametrize("case", EXPECTED)
def test_the_operations_of_real_tasks_in_order(case: str) -> None:
    task = Task.from_file(CASES / case / "task.py")
    started = time.thread_time()
    facts = program_facts(task)
    assert time.thread_time() - started < 3 + 2  # the first one imports PyTorch's compiler
    assert facts is not None
    assert tuple(line.split(" ")[0] for line in facts.operations) == EXPECTED[case]
    cost = cost_of(task)
    masked = 2 if case.startswith("causal") else 1  # a search for sizes needs no more than the order
    assert facts.flops == pytest.approx(cost.flops / masked, rel=1e-2 if masked > 1 else 0)
    assert facts.least_bytes == cost.least_bytes


def test_an_example_in_full() -> None:
    task = Task.from_file(ROOT / "examples/linear_gelu_residual/linear_gelu_residual.py")
    facts = program_facts(task)
    assert facts is not None
    assert facts.traits["products"] == 1
    assert replace(facts, traits={}) == ProgramFacts(
        flops=2.0 * 4096 * 2048 * 2048,
        least_bytes=4 * (2 * 4096 * 2048 + 2048 * 2048 + 2048),
        shapes=(
            "x float32[4096, 2048]",
            "linear.weight float32[2048, 2048]",
            "linear.bias float32[2048]",
            "output float32[4096, 2048]",
        ),
        operations=("aten.addmm [4096, 2048]", "aten.gelu [4096, 2048]", "aten.add [4096, 2048]"),
        flops_by_family={"product": 2.0 * 4096 * 2048 * 2048, "pointwise": 2.0 * 4096 * 2048},
        eager_bytes=4 * (7 * 4096 * 2048 + 2048 * 2048 + 2048),
        eager_launches=3,
    )


def test_sizes_that_no_machine_could_hold() -> None:
    facts = facts_of(model("return x + 1"), "[torch.randn(1 << 20, 1 << 20)]")
    assert facts.least_bytes == 2 * 4 << 40
    assert facts.shapes[0] == "x float32[1048576, 1048576]"


def test_inputs_by_argument_name_and_place() -> None:
    body = model("return pair[0] + more['b'] * scale + rest[1]", arguments="pair, more, scale, *rest")
    inputs = """[(torch.rand(4), torch.rand(4)), {"b": torch.rand(4)}, 2.5,
            torch.rand(4), torch.rand(4, dtype=torch.float64)]"""
    assert facts_of(body, inputs).shapes == (
        "pair[0] float32[4]",
        "pair[1] float32[4]",
        "more['b'] float32[4]",
        "scale float = 2.5",
        "rest[0] float32[4]",
        "rest[1] float64[4]",
        "output float64[4]",
    )


def test_outputs_by_name() -> None:
    body = model('return {"y": x * 2, "loss": x.sum()}')
    assert facts_of(body, "[torch.rand(3, 5)]").shapes[1:] == (
        "output.y float32[3, 5]",
        "output.loss float32[]",
    )


def test_buffers_are_named_and_strides_are_told() -> None:
    body = model("return x + self.shift", 'self.register_buffer("shift", torch.zeros(8))')
    assert facts_of(body, "[torch.rand(8, 16).t()]").shapes == (
        "x float32[16, 8] with strides [1, 16]",
        "shift float32[8]",
        "output float32[16, 8] with strides [1, 16]",
    )


def test_views_are_left_out_and_copies_are_not() -> None:
    body = model("return x.view(8, 2, 4).transpose(0, 1).contiguous().reshape(2, 32).add_(1)")
    assert facts_of(body, "[torch.rand(8, 8)]").operations == ("aten.clone [2, 8, 4]", "aten.add_ [2, 32]")


def test_a_recurrent_layer_is_one_operation() -> None:
    body = model("return self.rnn(x)[0]", "self.rnn = nn.LSTM(64, 128, num_layers=2, batch_first=True)")
    facts = facts_of(body, "[torch.rand(4, 50000, 64)]")
    assert [line for line in facts.operations if "zeros" not in line] == [
        "aten.lstm [4, 50000, 128], [2, 4, 128], [2, 4, 128]"
    ]
    assert facts.flops > 2 * 4 * 50000 * 4 * 128 * (64 + 3 * 128) * 0.9


def test_long_lists_are_counted_by_kind() -> None:
    body = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.Sequential(*[p for _ in range(30) for p in (nn.Conv2d(8, 8, 3), nn.ReLU())])

        def forward(self, x):
            return self.parts(x)
    """
    facts = facts_of(body, "[torch.rand(2, 8, 128, 128)]")
    assert len(facts.operations) == LONGEST_LIST + 1
    assert facts.operations[-1] == "... and 20 more: aten.convolution x10, aten.relu x10"
    assert facts.shapes[1 + LONGEST_LIST] == "... and 20 more: parameters and buffers"
    assert facts.shapes[-1] == "output float32[2, 8, 68, 68]"


def test_a_constructor_that_looks_at_data() -> None:
    body = model("return x * self.scale", "self.scale = float(torch.arange(4.0).sum())")
    assert facts_of(body, "[torch.rand(8)]").operations == ("aten.mul [8]",)


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        (model("return x[x > 0]"), "[torch.rand(8)]"),
        (model("return x if x.sum() > 0 else -x"), "[torch.rand(8)]"),
        (model("raise RuntimeError('no')"), "[torch.rand(8)]"),
        (model("return x @ x"), "[torch.rand(8, 4)]"),
        (model("return x", init="import no_such_package"), "[torch.rand(8)]"),
        (model("return lambda: x"), "[torch.rand(8)]"),
        (model("return x"), "[torch.rand(8), torch.rand(8)]"),
        (model("return x"), "torch.rand(8)"),
        ("class Model: pass", "[torch.rand(8)]"),
    ],
    ids=["mask", "branch", "raises", "mismatch", "import", "closure", "too many", "no list", "no module"],
)
def test_what_does_not_run_on_meta_tensors_has_no_facts(body: str, inputs: str) -> None:
    assert program_facts(task_of(body, inputs)) is None


def test_a_forward_that_takes_too_long_has_no_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("egg.evaluator.task.facts.observed", partial(observed, seconds=0.3))
    endless = """
class Model(nn.Module):
    def forward(self, x):
        while True:
            x = x + 1
"""
    assert program_facts(task_of(endless, "[torch.rand(8)]")) is None


def test_asking_twice_gives_the_same_and_leaves_nothing() -> None:
    import sys

    task = Task.from_file(CASES / "linear_gelu/task.py")
    before = set(sys.modules)
    assert program_facts(task) == program_facts(task)
    assert not [m for m in set(sys.modules) - before if m.startswith("egg_task")]


# -- the target ------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpu", table().gpus, ids=lambda g: g.name)
def test_a_gpu_without_a_program(gpu) -> None:
    facts = gpu_facts(gpu, Precision.FP32, None)
    assert (facts.name, facts.arch, facts.sms, facts.bandwidth) == (
        gpu.name,
        gpu.arch,
        gpu.sms,
        gpu.bandwidth,
    )
    assert (facts.shared_per_block, facts.registers_per_sm) == (gpu.shared_per_block, gpu.registers_per_sm)
    assert facts.l2_bytes == gpu.l2_bytes
    assert facts.peak_flops == compute_peak(gpu, "fp32")
    assert facts.floor_milliseconds is None


WORK = ProgramFacts(1e12, 10**9, ("x float32[8, 8]", "output float32[8, 8]"), ("aten.mm [8, 8]",))


@pytest.mark.parametrize("precision", list(Precision))
def test_the_floor_is_the_rooflines(precision: Precision) -> None:
    facts = gpu_facts(H200, precision, WORK)
    half = precision in (Precision.BF16, Precision.FP16)
    least = 5e8 if half else 1e9
    floor = floor_seconds(H200, flops=1e12, bytes=least, precision=precision.value) * 1e3
    assert facts.floor_milliseconds == pytest.approx(floor)
    assert facts.peak_flops == compute_peak(H200, precision.value)


def test_under_match_the_reference_decides_the_roof() -> None:
    def peak(shape: str, operation: str) -> float:
        program = ProgramFacts(1e12, 10**9, ("ids int64[8]", shape), (operation,))
        return gpu_facts(H200, Precision.MATCH, program).peak_flops

    assert peak("x float32[8]", "aten.mm [8]") == compute_peak(H200, "fp32")
    assert peak("x bfloat16[8]", "aten.mm [8]") == compute_peak(H200, "bf16")
    assert peak("x float64[8]", "aten.mm [8]") == compute_peak(H200, "fp64")
    assert peak("x float32[8]", "aten.convolution [8]") == compute_peak(H200, "tf32")
    assert peak("x float32[8]", "... and 9 more: aten.convolution x9") == compute_peak(H200, "tf32")
    assert peak("n int = 3", "aten.mm [8]") == compute_peak(H200, "fp32")


def test_a_half_precision_task_moves_no_less_when_half_is_declared() -> None:
    program = facts_of(model("return x + 1"), "[torch.rand(4096, 4096).to(torch.bfloat16)]")
    for precision in (Precision.MATCH, Precision.BF16, Precision.FP32):
        floor = gpu_facts(H200, precision, program).floor_milliseconds
        assert floor == pytest.approx(2 * 2 * 4096**2 / H200.bandwidth * 1e3)


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("case", ["linear_gelu", "conv_bias_relu", "causal_attention_fp16", "embedding_sum"])
def test_program_and_target_from_one_forward(case: str, precision: Precision) -> None:
    task = Task.from_file(CASES / case / "task.py")
    facts = task_facts(task, H200, precision)
    assert facts.program == program_facts(task)
    saved = facts.gpu.savings
    assert saved == savings(workload(task), H200, precision.value)
    alone = gpu_facts(H200, precision, facts.program)
    assert alone == replace(facts.gpu, savings=None)
    assert alone.floor_milliseconds is not None
    assert saved.whole == pytest.approx(
        min(alone.floor_milliseconds + LAUNCH_MILLISECONDS, saved.pointwise_fused)
    )


TABLE = "self.table = nn.Embedding(1000, 64)"
IDS = "torch.randint(0, 1000, (10,))"
ROWS = 10 * 64 * 4
"""What ten indices pick of the table, in bytes."""


@pytest.mark.parametrize(
    ("forward", "init", "inputs", "least"),
    [
        ("return self.table(x)", TABLE, f"[{IDS}]", 10 * 8 + 2 * ROWS),
        ("return self.table.weight[x].sum(0)", TABLE, f"[{IDS}]", 10 * 8 + ROWS + 64 * 4),
        ("return self.table(x) + self.table.weight.index_select(0, x)", TABLE, f"[{IDS}]", 80 + 3 * ROWS),
        ("return self.table(x) @ self.table.weight.T", TABLE, f"[{IDS}]", 80 + 256_000 + 10 * 1000 * 4),
        ("return self.table(x)", TABLE, "[torch.randint(0, 1000, (5000,))]", 5000 * 8 + 256_000 + 5000 * 256),
        (
            "return self.table(x)",
            "self.table = nn.EmbeddingBag(1000, 64, mode='sum')",
            "[torch.randint(0, 1000, (2, 5))]",
            10 * 8 + ROWS + 2 * 64 * 4,
        ),
        ("return x[0].gather(0, x[1])", "pass", "[[torch.rand(1000, 64), torch.zeros(10, 64).long()]]",
         10 * 64 * 8 + 2 * ROWS),
        ("return x[0][x[1]] + x[0].sum()", "pass", f"[[torch.rand(1000, 64), {IDS}]]", 80 + 256_000 + ROWS),
    ],
    ids=["embedding", "index", "twice", "tied", "more indices than rows", "bag", "gather", "read whole too"],
)  # fmt: skip
def test_a_table_that_is_only_indexed_counts_as_what_is_picked(
    forward: str, init: str, inputs: str, least: int
) -> None:
    facts = facts_of(model(forward, init), inputs)
    assert facts.least_bytes == least
    floor = gpu_facts(H200, Precision.BF16, replace(facts, flops=0.0)).floor_milliseconds
    assert floor is not None
    assert floor <= least / H200.bandwidth * 1e3


def test_a_target_without_a_program_has_nothing_to_save() -> None:
    facts = task_facts(task_of(model("return x[x > 0]"), "[torch.rand(8)]"), H200, Precision.FP32)
    assert facts.program is None
    assert facts.gpu.savings is None


def test_a_half_precision_task_is_held_to_the_half_precision_roof() -> None:
    body = model("return x @ x")
    program = facts_of(body, "[torch.rand(4096, 4096).to(torch.bfloat16)]")
    facts = gpu_facts(H200, Precision.MATCH, program)
    assert facts.floor_milliseconds == pytest.approx(2 * 4096**3 / compute_peak(H200, "bf16") * 1e3)

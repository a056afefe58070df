"""The size that is interpreted and the size that is meant: what only shows at one of them."""

from __future__ import annotations

import textwrap
from dataclasses import replace

import pytest

from egg.core.evaluation import Accepted, Rejected
from egg.core.policy import Precision
from egg.core.source import Candidate, Task
from egg.evaluator.judge.reduction import other_sizes, reduced, smallest
from egg.evaluator.task.rescale import others, rescale
from egg.evaluator.task.stated import copied_constants, outside_of
from egg.evaluator.trial.levels import Probes
from tests.conftest import BRIEF, JudgeFunction

TALL = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x * 2.5

rows = 16384
columns = 512

def get_inputs():
    {made}
    return [torch.randn(rows, columns)]

def get_init_inputs():
    return []
"""
TASK = TALL.format(made="pass")

KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def scale(x, y, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        {body}
        return y
"""
HONEST = "scale[(triton.cdiv(n, 1024),)](x, y, n, 2.5, BLOCK=1024)"


def test_sizes_between_keep_one_of_the_tasks_own():
    task = Task("tall", TASK)
    small = smallest(task)
    assert small.changes
    sizes = [tuple(r.changes.get(k, (0, 0))[1] for k in ("rows", "columns")) for r in others(
        task, small, max_flops=1e9, max_elements=3_000_000
    )]  # fmt: skip
    assert any(rows and not columns for rows, columns in sizes), "columns are the task's own"
    assert any(columns and not rows for rows, columns in sizes), "rows are the task's own"


BUILT = """
import torch
import torch.nn as nn

batch = 512
classes = 80
bins = 96


class Model(nn.Module):
    def __init__(self, classes, bins):
        super().__init__()
        self.classes, self.bins = classes, bins

    def forward(self, feats):
        return [f[:, : 4 * self.bins].sigmoid().sum(1) + f[:, 4 * self.bins :].amax(1) for f in feats]


def get_inputs():
    return [[torch.randn(batch, 4 * bins + classes, 64), torch.randn(batch, 4 * bins + classes, 32)]]


def get_init_inputs():
    return [classes, bins]
"""


def test_one_of_the_sizes_between_keeps_the_module_as_it_is_built():
    """A detection head is written for its classes and bins together, a list of maps has no stated domain."""
    task = Task("head", BUILT)
    changed = [set(size.changes) for size in other_sizes(task, smallest(task))]
    assert any("batch" in names and not names & {"classes", "bins"} for names in changed)


def test_no_other_size_where_none_was_changed():
    task = Task("tall", TASK.replace("16384", "8").replace("512", "8"))
    small = rescale(task, max_flops=1e9, max_elements=10_000)
    assert others(task, small, max_flops=1e9, max_elements=10_000) == []


def test_a_scalar_that_changes_with_one_size(judged: JudgeFunction):
    """The same kernels and operations at every size, and every element written: only running it shows."""
    body = "scale[(triton.cdiv(n, 1024),)](x, y, n, 2.5 if x.shape[0] <= 8192 else 3.0, BLOCK=1024)"
    settings = replace(BRIEF, domain=Probes.ALL, regrades=0, audit_task=False)
    evaluation = judged(TASK, KERNEL.format(body=body), settings=settings)
    assert isinstance(evaluation.verdict, Rejected)
    refusal = evaluation.verdict.refusal
    assert refusal.reason == "correctness.error"
    assert "run at columns 512 ->" in refusal.evidence


def test_a_file_made_for_multiples_is_judged_where_it_runs(judged: JudgeFunction):
    body = f"assert x.shape[1] % 512 == 0\n        {HONEST}"
    evaluation = judged(TASK, KERNEL.format(body=body), settings=replace(BRIEF, domain=Probes.NONE))
    assert isinstance(evaluation.verdict, Accepted), evaluation.verdict


def test_a_refusal_names_the_shapes_that_were_run(judged: JudgeFunction):
    evaluation = judged(TASK, KERNEL.format(body=HONEST.replace("2.5", "2.4")))
    assert isinstance(evaluation.verdict, Rejected)
    assert "float32; rescaled: " in evaluation.verdict.refusal.evidence


def test_inputs_that_look_at_themselves(judged: JudgeFunction):
    made = "most = int(torch.randint(1, 9, (4,)).max().item())"
    task = TALL.format(made=made).replace("16384", "16").replace("512", "64")
    evaluation = judged(task, KERNEL.format(body=HONEST), settings=replace(BRIEF, domain=Probes.NONE))
    assert isinstance(evaluation.verdict, Accepted), evaluation.verdict


@pytest.mark.parametrize(
    ("look", "accepted"),
    [("x[0, 0].item() > 2", True), ("len(x[0][x[0] > 0]) > 2", False)],
    ids=["item", "shape"],
)
def test_host_code_that_looks_at_values_is_compiled_or_refused(
    judged: JudgeFunction, look: str, accepted: bool
):
    body = f"factor = 2.5 if {look} else 2.5\n        {HONEST.replace('2.5', 'factor')}"
    evaluation = judged(TASK, KERNEL.format(body=body), settings=replace(BRIEF, domain=Probes.NONE))
    assert isinstance(evaluation.verdict, Accepted) is accepted, evaluation.verdict
    if isinstance(evaluation.verdict, Rejected):
        assert evaluation.verdict.refusal.reason == "build.not_compiled"
        assert "line" in evaluation.verdict.refusal.evidence


SQUARE = TASK.replace("16384", "512").replace("columns = 512", "columns = 640")
FULL = replace(BRIEF, domain=Probes.ALL, regrades=0, audit_task=False)
BRANCHING = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def scale(x, y, rows, columns, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    i = program * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    to = i
    {branch}
    tl.store(y + to, v * 2.5, mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dim() == 2
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        scale[(triton.cdiv(n, 1024),)](x, y, x.shape[0], x.shape[1], n, BLOCK=1024)
        return y
"""


@pytest.mark.parametrize(
    ("branch", "reason"),
    [
        ("v = tl.where((rows > 500) & (columns > 600), v * 1.01, v)", "correctness.error"),
        ("to = tl.where(program == 317, i + (1 << 28), i)", "kernel.out_of_bounds"),
        ("v = v * 1.0", ""),
    ],
    ids=["product of sizes", "one program", "honest"],
)
def test_a_branch_that_only_the_whole_task_takes(judged: JudgeFunction, branch: str, reason: str):
    assert smallest(Task("square", SQUARE)).changes
    verdict = judged(SQUARE, BRANCHING.format(branch=branch), settings=FULL).verdict
    if reason:
        assert isinstance(verdict, Rejected)
        assert verdict.refusal.reason == reason
        assert "own size" in verdict.refusal.evidence
    else:
        assert isinstance(verdict, Accepted)


@pytest.mark.parametrize(
    ("option", "evidence"),
    [("launch_pdl", "cannot be checked without a GPU"), ("launch_cooperative_grid", "resident at once")],
)
def test_launches_that_a_gpu_would_refuse_or_only_it_can_check(
    judged: JudgeFunction, option: str, evidence: str
):
    body = HONEST.replace("BLOCK=1024)", f"BLOCK=1024, {option}=True)")
    evaluation = judged(TASK, KERNEL.format(body=body), settings=replace(BRIEF, domain=Probes.NONE))
    assert isinstance(evaluation.verdict, Rejected)
    assert evaluation.verdict.refusal.reason == "build.compile"
    assert evidence in evaluation.verdict.refusal.evidence


FOR = """
DOMAIN = {{
    "inputs": {{"x": {{"dtypes": ["float32"], "shape": {shape}, "layout": "contiguous"}}}},
    "sizes": {{"rows": {{"multiple": 32}}}},
}}
"""
OWN_ALONE = """
        if x.shape != (16384, 512) or x.dtype != torch.float32 or not x.is_contiguous():
            raise ValueError("for 16384 x 512 contiguous float32 numbers")
        scale[(triton.cdiv(n, 8192),)](x, y, n, {factor}, BLOCK=8192)"""


def for_shape(shape: str, body: str = HONEST) -> str:
    return KERNEL.format(body=body) + FOR.format(shape=shape)


def test_the_size_that_is_interpreted_lies_inside_the_stated_domain():
    task, file = Task("tall", TASK), Candidate(for_shape("['rows', 512]"))
    found = reduced(task, outside_of(file, task, Precision.MATCH))
    assert set(found.size.changes) == {"rows"}
    assert found.size.changes["rows"][1] % 32 == 0
    assert found.excluded is not None
    assert found.excluded.size == smallest(task)
    assert not found.too_large


def test_a_domain_speaks_of_what_lies_in_containers():
    """As a file for ``forward(self, x)`` with two tensors in ``x`` does: ``x_0`` and ``x_1``."""
    source = TASK.replace("x * 2.5", "x[0] + x[1]")
    source = source.replace(
        "[torch.randn(rows, columns)]", "[[torch.randn(rows, columns) for _ in range(2)]]"
    )
    task = Task("pair", source)
    stated = FOR.format(shape="['rows', 512]").replace('"x"', '"x_0"')
    outside = outside_of(Candidate(KERNEL.format(body=HONEST) + stated), task, Precision.MATCH)
    assert outside is not None
    assert "512" in outside(smallest(task).task)
    assert set(reduced(task, outside).size.changes) == {"rows"}


@pytest.mark.parametrize("shape", ["['rows', 'rows']", "[8, 512]"])
def test_a_domain_that_excludes_the_task_chooses_no_size(shape: str):
    task = Task("tall", TASK)
    assert outside_of(Candidate(for_shape(shape)), task, Precision.MATCH) is None


@pytest.mark.parametrize(
    ("factor", "reason"), [("2.5", "domain.too_large"), ("2.4", "correctness.error")], ids=["right", "wrong"]
)
def test_a_file_for_sizes_that_no_interpreter_bears(judged: JudgeFunction, factor: str, reason: str):
    """Not accepted, as most questions were not asked; and blamed only for what is its fault."""
    file = for_shape("[16384, 512]", OWN_ALONE.format(factor=factor))
    verdict = judged(TASK, file).verdict
    assert isinstance(verdict, Rejected)
    assert verdict.refusal.reason == reason
    if reason == "domain.too_large":
        assert "scale: " in verdict.refusal.evidence
        assert "of 1024 programs" in verdict.refusal.evidence
        assert "judge it on a GPU" in verdict.refusal.hint
    else:
        assert "own size" in verdict.refusal.evidence


WIDTHS = """\
    import torch
    from torch import nn

    widths = (512, 512)
    rows = 4096


    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(512, width) for width in widths)

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x


    def get_inputs():
        return [torch.randn(rows, 512)]


    def get_init_inputs():
        return []
"""


def test_constants_that_a_file_has_taken_over_stay_as_they_are() -> None:
    task = Task("widths", textwrap.dedent(WIDTHS))
    file = task.source.replace("class Model(", "class ModelNew(")
    copied = copied_constants(Candidate(file), task)
    assert copied is not None
    size = reduced(task, None, copied).size
    assert "rows" in size.changes
    assert not any(name.startswith("widths") for name in size.changes)
    assert "widths of its own" in copied(Task("other", task.source.replace("(512, 512)", "(32, 32)")))
    elsewhere = file.replace("rows", "count").replace("widths", "wide")
    assert copied_constants(Candidate(elsewhere), task) is None


LOOKED_UP = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(rows, 64)
        self.register_buffer("offsets", torch.tensor([0, {last}]))

    def forward(self, x):
        return self.table(x + self.offsets)

rows = 40000
many = 4096

def get_inputs():
    return [torch.randint(0, 1000, (many, 2))]

def get_init_inputs():
    return []
"""


def test_no_table_is_made_smaller_than_the_numbers_that_look_it_up() -> None:
    task = Task("looked_up", LOOKED_UP.replace("{last}", "30000"))
    assert dict(smallest(task).changes)["rows"][1] < 30000
    changes = reduced(task, None).size.changes
    assert "rows" not in changes
    assert changes["many"][1] < 4096


def test_a_task_that_raises_at_every_size_is_left_to_say_so() -> None:
    task = Task("looked_up", LOOKED_UP.replace("{last}", "50000"))
    assert reduced(task, None).size == smallest(task)

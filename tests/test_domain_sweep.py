"""The sweep itself: it sees each way in which a file can be wrong beside its captured call."""

from __future__ import annotations

import math
import os
import re
import signal
import time
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.domain import probes
from benchmarks.domain.answers import _leaf_differs
from benchmarks.domain.calls import Call, Kind, Signatures
from benchmarks.domain.layouts import LAYOUTS, Sizes
from benchmarks.domain.outcomes import Outcome, Tried
from benchmarks.domain.pool import reported_by_fork
from benchmarks.domain.probes import Probes
from benchmarks.domain.table import batch_of, summary
from benchmarks.domain.trial import DeviceLost, Sides, described
from benchmarks.domain.work import Terms
from benchmarks.domain.worker import Sweeper
from egg.core.domain import Domain
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task.program import Program

TASK = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features, slope=0.1, residual=False):
        super().__init__()
        self.layer = nn.Linear(features, features)
        self.slope, self.residual = slope, residual

    def forward(self, x, mask=None):
        y = nn.functional.leaky_relu(self.layer(x), self.slope)
        y = y + x if self.residual else y
        return y if mask is None else y * mask

def get_inputs():
    return [torch.randn(4, 8)]

def get_init_inputs():
    return [8]
"""
DOMAIN = {
    "inputs": {
        "x": {"dtypes": ["float32"], "shape": ["batch", "features"], "layout": "any"},
        "mask": {"only": None},
    },
    "sizes": {"batch": {}, "features": {"module": True}},
    "arguments": {"features": "any", "slope": {"only": 0.1}, "residual": {"only": False}},
}


class Honest(nn.Module):
    """Right at every call of its domain, an error beside it."""

    def __init__(self, features: int, slope: float = 0.1, residual: bool = False) -> None:
        super().__init__()
        if slope != 0.1 or residual:
            raise ValueError("slope = 0.1, residual = False only")
        self.layer = nn.Linear(features, features)

    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        if mask is not None or x.dtype != torch.float32:
            raise ValueError("float32 without a mask only")
        return self.answer(x)

    def answer(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.leaky_relu(self.layer(x), 0.1)


class Contiguous(Honest):
    """Reads memory as if it had no gaps."""

    def answer(self, x: torch.Tensor) -> torch.Tensor:
        return super().answer(torch.as_strided(x, x.shape, (x.shape[1], 1)))


class FixedBatch(Honest):
    def answer(self, x: torch.Tensor) -> torch.Tensor:
        return super().answer(x)[:4]


class Baked(Honest):
    def __init__(self, features: int, slope: float = 0.1, residual: bool = False) -> None:
        super().__init__(features)


class NoGradient(Honest):
    def answer(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return super().answer(x)


class Widened(Honest):
    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        return self.answer(x.float()) if mask is None else super().forward(x, mask)

    def answer(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias = self.layer.weight.float(), self.layer.bias.float()
        return nn.functional.leaky_relu(nn.functional.linear(x, weight, bias), 0.1)


class Stale(Honest):
    """Keeps what it made of the weights at its first call."""

    def answer(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "packed"):
            self.packed = self.layer.weight.detach().clone()
        return nn.functional.leaky_relu(nn.functional.linear(x, self.packed, self.layer.bias), 0.1)


class Refusing(Honest):
    """Refuses a batch that its domain claims."""

    def answer(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 1:
            raise ValueError("a batch of 1")
        return super().answer(x)


class Transposing(Honest):
    """Right values in a layout that the reference's output never has."""

    def answer(self, x: torch.Tensor) -> torch.Tensor:
        return super().answer(x).t().contiguous().t()


def swept(candidate: type[nn.Module], domain: Mapping[str, Any] = DOMAIN) -> list[Tried]:
    with Program.load(Task("linear", TASK)) as program:
        signatures = Signatures.of(program)
        sides = Sides(
            program.module.__dict__["Model"],
            candidate,
            signatures,
            Domain.of_literal(domain),
            torch.device("cpu"),
        )
        torch.manual_seed(0)
        inputs = tuple(program.module.__dict__["get_inputs"]())
        base = Call(Kind.CAPTURED, "captured", signatures.arguments([8], {}), inputs)
        return [sides.tried(base), *map(sides.tried, Probes(base, sides))]


def test_an_honest_file_is_right_in_its_domain_and_an_error_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probes, "SLOW", math.inf)  # the larger sizes, on a busy machine too
    found = swept(Honest)
    assert {call.outcome for call in found} == {Outcome.RIGHT, Outcome.ERROR}
    assert not any(call.claimed for call in found)
    for call in found:
        assert (call.outcome is Outcome.ERROR) == bool(call.outside), call
    kinds = {call.kind for call in found}
    assert kinds == {kind.value for kind in Kind}
    sizes = {call.name for call in found if call.kind == "sizes"}
    assert {"batch 1", "batch 3", "batch 17", "batch 8, as another dimension"} <= sizes


@pytest.mark.parametrize(
    ("candidate", "wrong"),
    [
        (Contiguous, {"layout"}),
        (FixedBatch, {"sizes"}),
        (Baked, {"arguments"}),
        (NoGradient, {"gradient"}),
        (Widened, {"dtype"}),
        (Stale, {"gradient", "again"}),
    ],
)
def test_every_silent_fault_is_seen_where_it_is(candidate: type[nn.Module], wrong: set[str]) -> None:
    found = swept(candidate)
    assert {call.kind for call in found if call.outcome is Outcome.WRONG} == wrong
    assert found[0].outcome is Outcome.RIGHT


def test_an_error_inside_the_stated_domain_is_a_false_claim() -> None:
    found = [call for call in swept(Refusing) if call.claimed]
    assert [(call.name, call.detail) for call in found] == [("batch 1", "ValueError: a batch of 1")]


def test_strides_that_the_reference_does_not_have_are_a_fault_of_their_own() -> None:
    found = swept(Transposing)
    assert not any(call.outcome is Outcome.WRONG for call in found)
    captured = found[0]
    assert (captured.outcome, captured.layout) == (Outcome.RIGHT, False)
    assert captured.detail == "output 0 has the strides (1, 4), the reference's (8, 1)"
    assert all(call.layout for call in found if call.name == "batch 1"), "one row has one layout"
    unstated = DOMAIN | {"outputs": [{"format": "unstated"}]}
    assert all(call.layout for call in swept(Transposing, unstated))
    assert all(call.layout for call in swept(Honest))


def test_layouts_keep_every_value() -> None:
    x = torch.randn(2, 4, 3, 5)
    for name, change in LAYOUTS.items():
        made = change(x)
        assert made is not x
        assert torch.equal(made, x[:1].expand_as(x) if name == "expanded" else x), name
        assert made.stride() != x.stride() or made.storage_offset() or made.data_ptr() % 64, name


def test_sizes_that_belong_together_move_together() -> None:
    inputs = (torch.randn(4, 6), torch.randn(6, 4), torch.randn(4))

    def runs(given: tuple[Any, ...]) -> bool:
        a, b, c = given
        return a.shape[1] == b.shape[0] and c.shape[0] in (1, b.shape[1])

    sizes = Sizes(inputs, runs)
    assert sizes.at((0, 0), 7) == {(0, 0): 7}
    assert sizes.at((0, 1), 5) == {(0, 1): 5, (1, 0): 5}
    assert sizes.at((2, 0), 9) == dict.fromkeys([(0, 0), (1, 1), (2, 0)], 9)


# -- processes ---------------------------------------------------------------------------------------


@pytest.mark.system
def test_a_fork_that_dies_or_hangs_leaves_what_it_reported() -> None:
    def dies(report: Any) -> None:
        report({"begin": 1})
        os.kill(os.getpid(), signal.SIGKILL)

    def hangs(report: Any) -> None:
        report({"begin": 2})
        time.sleep(60)

    def raises(report: Any) -> None:
        raise ValueError("no")

    assert list(reported_by_fork(dies, 20)) == [{"begin": 1}, {"exit": -9}]
    assert list(reported_by_fork(hangs, 0.5)) == [{"begin": 2}, {"exit": "silent"}]
    first, last = reported_by_fork(raises, 20)
    assert (first["trouble"], last) == ("ValueError: no", {"exit": 1})


DEADLY = """
import os
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, slope=0.1, steps=2):
        super().__init__()
        self.slope, self.steps = slope, steps

    def forward(self, x):
        if x.shape[0] == 3 or self.steps == 3:
            os._exit(5)
        if x.storage_offset():
            os._exit(6)
        return nn.functional.leaky_relu(x, self.slope) * self.steps

def get_inputs():
    return [torch.randn(4, 8)]

def get_init_inputs():
    return []
"""
"""A reference that costs the process its life where a GPU's assertions would cost it the device."""
DEADLY_FILE = """
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def __init__(self, slope=0.1, steps=2):
        super().__init__()
        self.slope, self.steps = slope, steps

    def forward(self, x):
        return nn.functional.leaky_relu(x, self.slope) * self.steps
"""


def test_a_call_of_which_the_reference_dies_is_skipped_and_the_others_are_tried() -> None:
    row: dict[str, Any] = {"calls": []}
    terms = Terms(torch.device("cpu"), time.monotonic() + 60, rescale=False)
    Sweeper(torch.device("cpu"))._try_all(Task("deadly", DEADLY), DEADLY_FILE, terms, 30, row)
    assert not {"trouble", "cut"} & row.keys(), row
    found = {call["name"]: (call["outcome"], call.get("detail", "")) for call in row["calls"]}
    assert found["offset by one"] == ("skipped", "the reference: the process died: 6")
    outcomes = {outcome for name, (outcome, _) in found.items() if name != "offset by one"}
    assert outcomes <= {"right", "skipped"}
    assert {"steps = 1", "batch 7", "batch 17", "with other weights"} <= found.keys()
    assert not {"batch 3", "steps = 3"} & found.keys()


NAMED_SIZE = """
import torch
import torch.nn as nn

batch_size = 4096

class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.state = torch.ones(batch_size, 8)

    def forward(self, x):
        if x.shape != self.state.shape:
            raise ValueError("another size")
        return x * self.state

def get_inputs():
    return [torch.randn(batch_size, 8)]

def get_init_inputs():
    return []
"""


def test_a_size_that_the_constructor_reads_by_name_is_that_of_the_smaller_task_in_the_file() -> None:
    row: dict[str, Any] = {"calls": []}
    terms = Terms(torch.device("cpu"), time.monotonic() + 60, sample=1)
    task, file = (NAMED_SIZE.format(name=name) for name in ("Model", "ModelNew"))
    Sweeper(torch.device("cpu"))._try_all(Task("named", task), file, terms, 30, row)
    assert row["size"].startswith("batch_size 4096 -> ")
    assert row["calls"][0]["outcome"] == "right", row


class Lost(Sides):
    """As on a GPU, where one illegal access costs everything that comes after it."""

    dead = False

    def synchronise(self) -> None:
        if self.dead:
            raise RuntimeError("CUDA error: device-side assert triggered")


def test_a_device_that_the_reference_cost_is_not_the_files_crash() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            Lost.dead = x.shape[0] == 3
            return x

    with Program.load(Task("linear", TASK)) as program:
        signatures = Signatures.of(program)
    sides = Lost(Model, Model, signatures, None, torch.device("cpu"))
    right, deadly = (Call(Kind.SIZES, f"batch {rows}", {}, (torch.randn(rows, 8),)) for rows in (4, 3))
    assert sides.tried(right).outcome is Outcome.RIGHT
    with pytest.raises(DeviceLost):
        sides.refuses(deadly)
    assert sides.tried(deadly).outcome is Outcome.SKIPPED
    assert sides.lost()
    sides.fatal = [described(deadly)]
    assert sides.refuses(deadly) == "a process died of it"


def test_a_dimension_that_an_index_points_into_is_not_made_smaller() -> None:
    table, index = torch.randn(6, 4), torch.tensor([0, 5, 2, 5, 1, 3, 2, 5])
    asked: list[int] = []

    def runs(given: tuple[Any, ...]) -> bool:
        asked.append(given[0].shape[0])
        return True

    sizes = Sizes((table, index), runs)
    assert sizes.at((0, 0), 3) is None
    assert not asked
    assert sizes.at((0, 0), 9) == {(0, 0): 9}
    assert sizes.at((1, 0), 3) == {(1, 0): 3}


# -- roundings ---------------------------------------------------------------------------------------


def test_what_tf32_explains_is_inexact_and_a_wrong_element_is_not() -> None:
    torch.manual_seed(0)
    golden = torch.randn(200, 200, dtype=torch.float64)
    reference = golden.float()
    noise = torch.randn_like(golden)

    def outcome(candidate: torch.Tensor, wanted: torch.Tensor = reference) -> Outcome | None:
        found = _leaf_differs(candidate, wanted, golden, Precision.MATCH)
        return None if found is None else found.outcome

    assert outcome(reference) is None
    assert outcome((golden + 9e-4 * noise).float()) is Outcome.INEXACT
    assert outcome((golden + 2e-3 * noise).float()) is Outcome.WRONG
    spoilt = (golden + 5e-4 * noise).float()
    spoilt[3, 3] += 0.1
    assert outcome(spoilt) is Outcome.WRONG
    chaotic = (golden + 0.5 * noise).float()
    assert outcome((golden + 3.0 * noise).float(), chaotic) is Outcome.INEXACT
    assert outcome((golden + 3.0 * noise).float()) is Outcome.WRONG
    assert outcome(torch.full_like(chaotic, torch.nan), chaotic) is Outcome.WRONG


# -- figures -----------------------------------------------------------------------------------------


def test_the_summary_counts_what_must_not_be() -> None:
    def call(outcome: str, kind: str = "sizes", name: str = "batch 1", **more: Any) -> dict[str, Any]:
        return {"kind": kind, "name": name, "outcome": outcome, **more}

    rows = [
        {"key": "1/1", "calls": [call("right"), call("right", name="batch 3")], "domain": "any batch"},
        {"key": "1/2", "calls": [call("wrong", detail="shape"), call("crash", "layout", "expanded")]},
        {"key": "1/3", "calls": [call("error", outside="", detail="ValueError: no")], "domain": "any batch"},
        {"key": "1/4", "calls": [call("right", "captured", "x"), call("skipped")], "static": ["code_bypass"]},
        {"key": "1/6", "calls": [call("right", "layout", "transposed", layout=False, detail="(1, 4)")]},
        {"key": "1/5", "calls": [], "reason": "a fault of EGG", "fault": True},
    ]
    assert [batch_of(row) for row in rows[:4]] == ["free", "fixed", "fixed", "none"]
    shown = summary(rows)
    assert "6 tasks, 5 with a file, 8 calls" in shown
    assert "silent wrong answers: 1 calls in 1 files" in shown
    assert "claimed but raised: 1 calls (must be 0); 2 of 5 files state a domain" in shown
    assert "free batch: 1 of 3, 33.3%" in shown
    assert "static check: 4 of 5 files pass" in shown
    assert "fault of ours: 1/5: a fault of EGG" in shown
    assert "wrong: 1/2: batch 1: shape" in shown
    assert "other strides than the reference's: 1 calls in 1 files (must be 0)" in shown
    assert "strides: 1/6: transposed: (1, 4)" in shown
    assert re.search(r"\nlayout +1 +0 +0 +0 +1 +0 +1\n", shown)

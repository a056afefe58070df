"""Every way to change the judge that we know is seen, and an untouched judge is not suspected."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from egg.core.policy import Level
from egg.core.source import Task
from egg.evaluator.compare import compare
from egg.evaluator.gates import second
from egg.evaluator.judge import answers, judge
from egg.evaluator.judge.intact import Snapshot, Tampered
from egg.evaluator.trial import buffers, checks, levels

TASK = Task("t", "class Model: pass\ndef get_inputs(): pass\ndef get_init_inputs(): pass\n")


def other(*args: Any, **kwargs: Any) -> None:
    return None


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    return Snapshot()


@pytest.fixture(autouse=True)
def nothing_stays_changed(snapshot: Snapshot) -> Iterator[None]:
    assert snapshot.changed() == []
    yield
    assert snapshot.changed() == []


def code(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compare.compare, "__code__", other.__code__)


def defaults(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(checks.Checks.check_values, "__defaults__", (None,))


def whole_module(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(
        sys.modules, "egg.evaluator.compare.compare", types.ModuleType("egg.evaluator.compare.compare")
    )


WAYS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "egg.evaluator.trial.checks.Checks.check_values": lambda p: p.setattr(
        checks.Checks, "check_values", other
    ),
    "egg.evaluator.judge.judge.audit": lambda p: p.setattr(judge, "audit", other),
    "egg.evaluator.trial.checks.EXPLICABLE": lambda p: p.setattr(checks, "EXPLICABLE", 1e9),
    "egg.evaluator.trial.checks.max": lambda p: p.setattr(checks, "max", other, raising=False),
    "egg.evaluator.trial.levels.LEVELS": lambda p: p.setitem(
        levels.LEVELS, Level.QUICK, levels.LEVELS[Level.FULL]
    ),
    "egg.evaluator.judge.answers.NEEDED": lambda p: p.setattr(answers, "NEEDED", ()),
    "seeds": lambda p: p.setitem(vars(levels.LEVELS[Level.QUICK]), "seeds", 0),
    "egg.evaluator.compare.compare.compare": code,
    "egg.evaluator.trial.checks.Checks": defaults,
    "egg.evaluator.compare.compare": whole_module,
    "torch.Tensor.abs": lambda p: p.setattr(torch.Tensor, "abs", other, raising=False),
    "torch.isnan": lambda p: p.setattr(torch, "isnan", other),
    "json.dumps": lambda p: p.setattr(sys.modules["json"], "dumps", other),
}


@pytest.mark.parametrize("name", sorted(WAYS))
def test_a_change_is_seen(snapshot: Snapshot, name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        WAYS[name](patch)
        found = snapshot.changed()
    assert any(name in path for path in found), found


def test_a_change_is_the_tasks_error(snapshot: Snapshot) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks.Checks, "check_values", other)
        with pytest.raises(
            Tampered, match=r"task 't' changes the judge: egg.evaluator.trial.checks.Checks.check_values"
        ):
            snapshot.check(TASK)


def test_what_pytorch_does_itself_is_no_change(snapshot: Snapshot) -> None:
    import copy
    import pickle

    from egg.evaluator.transport.exchange import TensorRef

    copy.deepcopy(torch.nn.Linear(2, 2))
    pickle.dumps(TensorRef(1))
    torch.manual_seed(0)
    torch.func.vmap(lambda x: x + 1)(torch.zeros(2))
    assert snapshot.changed() == []


def test_compiling_a_baseline_is_no_change(snapshot: Snapshot) -> None:
    """PyTorch's compiler changes ``nn.Module`` at its first use, which is after the judge was looked at."""
    model = torch.nn.Linear(2, 2)
    with torch.no_grad():
        torch.compile(model, backend="eager", dynamic=False)(torch.zeros(1, 2))
    assert snapshot.changed() == []


class Part:
    """Of no class of the judge's."""


@pytest.fixture
def evaluation() -> buffers.Buffers:
    """An object of the judge's that holds another, in a container."""
    outer = buffers.Buffers.__new__(buffers.Buffers)
    vars(outer)["kept"] = [{"inner": buffers.Buffers.__new__(buffers.Buffers)}]
    return outer


def test_an_untouched_evaluation_is_not_suspected(snapshot: Snapshot, evaluation: buffers.Buffers) -> None:
    snapshot.check(TASK, [evaluation])


def test_a_method_hidden_on_a_live_object_is_seen(snapshot: Snapshot, evaluation: buffers.Buffers) -> None:
    vars(vars(evaluation)["kept"][0]["inner"])["outputs"] = other
    with pytest.raises(Tampered, match=r"Buffers\.outputs of one object"):
        snapshot.check(TASK, [evaluation])


def test_an_object_in_the_place_of_a_part_is_seen(snapshot: Snapshot, evaluation: buffers.Buffers) -> None:
    with pytest.raises(Tampered, match="became a Part"):
        snapshot.check(TASK, [evaluation, Part()])


def test_live_checks_have_no_place_for_another_method() -> None:
    """Those of a call beside the task's own live within one gate, and are not looked at behind it."""
    for cls in (checks.Checks, second.BesideChecks):
        with pytest.raises(AttributeError):
            cls.__new__(cls).check_values = other

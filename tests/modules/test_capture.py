"""Modules of many kinds become tasks that answer as they do, or are refused with a reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from egg.core.errors import TaskError
from egg.core.policy import Precision
from egg.evaluator.task.program import Program
from egg.modules.capture import captured
from egg.modules.structure import flatten
from tests.modules.kinds import KINDS, REFUSED, Call, from_function

CPU = torch.device("cpu")


def test_there_are_forty_kinds() -> None:
    assert len(KINDS) + len(REFUSED) >= 40


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
def test_a_module_becomes_a_task_that_answers_as_it_does(make: Callable[[], Call]) -> None:
    """``captured`` itself holds the printed program against the module; here the judge's loader runs it."""
    torch.manual_seed(0)
    module, args, kwargs = make()
    held = module.state_dict() if isinstance(module, nn.Module) else {}
    before = {n: t.clone() for n, t in held.items() if not nn.parameter.is_lazy(t)}
    found = captured(module, args, kwargs)
    with Program.load(found.task) as program:
        model = program.build(3, CPU, Precision.MATCH)
        inputs = program.inputs(3, CPU, Precision.MATCH)
        program.run(model, inputs)
    given = {id(t): t for t in _tensors(args, kwargs)}.values()
    assert sorted((tuple(t.shape), str(t.dtype)) for t in inputs) == sorted(
        (tuple(t.shape), str(t.dtype)) for t in given
    )
    now = module.state_dict() if isinstance(module, nn.Module) else {}
    for name, tensor in before.items():
        torch.testing.assert_close(now[name], tensor, msg=f"{name} was changed by the capture")


@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_a_task_is_refused_with_a_reason(make: Callable[[], Call], words: str) -> None:
    module, args, kwargs = make()
    with pytest.raises(TaskError, match=words) as refusal:
        captured(module, args, kwargs)
    assert refusal.value.hint


def test_a_refusal_names_the_line() -> None:
    module, args, _ = REFUSED["branch_on_a_value"][0]()
    with pytest.raises(TaskError, match=r"kinds\.py:\d+"):
        captured(module, args)


def test_sizes_are_free_where_the_program_asks_for_none() -> None:
    x = torch.randn(6, 8)
    found = captured(from_function(lambda self, x: x * 2 if x.shape[0] > 3 else x - 1), (x,))
    assert not found.sizes.outside([(40, 9)])
    assert "do not satisfy" in found.sizes.outside([(3, 8)])
    assert "0 or 1" in found.sizes.outside([(1, 8)])


def test_sizes_are_fixed_where_asked_for() -> None:
    x = torch.randn(6, 8)
    found = captured(from_function(lambda self, x: x * 2), (x,), dynamic=False)
    assert "not 6" in found.sizes.outside([(7, 8)])


def test_a_rebound_attribute_is_put_back() -> None:
    module, args, _ = REFUSED["rebound_state"][0]()
    before = module.hidden  # type: ignore[union-attr]
    with pytest.raises(TaskError):
        captured(module, args)
    assert module.hidden is before  # type: ignore[union-attr]


def test_indices_are_drawn_within_the_table() -> None:
    module, args, _ = KINDS["embedding_bag_of_tokens"]()
    assert "torch.randint(0, 11, (2, 3)" in captured(module, args).task.source


def _tensors(args: object, kwargs: object) -> list[torch.Tensor]:
    return [leaf for leaf in flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]

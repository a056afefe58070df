"""What a call leaves: modes, forms, names of state, attributes; and memory that was never written."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from egg.evaluator.operators.ops import Recorder
from egg.evaluator.reference.answers import same_bytes
from egg.evaluator.task.attributes import attributes_of, held_in, shown, shown_in, written
from egg.evaluator.transport.arena import poison
from egg.evaluator.worker.settings import LeftChanged, as_frozen, checked, process_unchanged


class Calls(nn.Module):
    """Does something to itself or its argument, and returns nothing of interest."""

    def __init__(self, does: Callable[[Any, torch.Tensor], object]) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.does = does

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.does(self, x)
        return torch.ones(1)


@pytest.mark.parametrize(
    ("does", "words"),
    [
        (lambda m, x: m.inner.train(False), "self.inner.training"),
        (lambda m, x: m.inner.weight.requires_grad_(False), "self.inner.weight.requires_grad"),
        (lambda m, x: m.register_buffer("last", x.clone()), "self.last in the state_dict"),
        (lambda m, x: m.register_parameter("own", nn.Parameter(x)), "self.own.requires_grad"),
        (lambda m, x: delattr(m.inner, "bias"), "self.inner.bias.requires_grad absent"),
        (lambda m, x: x.squeeze_(0), "argument tensor 0"),
        (lambda m, x: x.requires_grad_(), "argument tensor 0"),
        (lambda m, x: setattr(x, "data", x * 2), "argument tensor 0"),
        (lambda m, x: torch.set_grad_enabled(False), "grad mode"),
        (lambda m, x: setattr(m.inner.weight, "grad", torch.ones(2, 2)), "the gradient of self.inner.weight"),
        (lambda m, x: setattr(x, "grad", torch.ones(1, 3)), "the gradient of argument tensor 0"),
        (
            lambda m, x: setattr(m.inner, "weight", nn.Parameter(torch.ones(2, 2))),
            "the object self.inner.weight",
        ),
        (lambda m, x: setattr(m.inner.weight, "data", torch.ones(2, 2)), "the memory of self.inner.weight"),
        (lambda m, x: m.inner.weight.register_hook(lambda g: g), "hooks on self.inner.weight"),
        (lambda m, x: m.inner.register_forward_hook(lambda *a: None), "hooks of self.inner"),
        (lambda m, x: setattr(x, "seen", True), "attributes of argument tensor 0"),
    ],
)
def test_a_call_that_leaves_something_changed_is_an_error(does: Any, words: str) -> None:
    with pytest.raises(LeftChanged, match=words), torch.enable_grad():
        checked(Calls(does))(torch.zeros(1, 3))


def _frozen_call(does: Callable[[Any, torch.Tensor], object]) -> nn.Module:
    module, x = Calls(does), torch.zeros(1, 3)
    with as_frozen(module, [x]), torch.enable_grad():
        checked(module)(x)
    return module


@pytest.mark.parametrize(
    "does",
    [
        lambda m, x: m.inner.weight.grad.zero_(),
        lambda m, x: m.zero_grad(set_to_none=False),
        lambda m, x: x.grad.add_(1.0),
    ],
)
def test_a_gradient_that_a_caller_accumulated_is_left_alone(does: Any) -> None:
    with pytest.raises(LeftChanged, match="gradient that a caller accumulated"):
        _frozen_call(does)


def test_behind_a_frozen_call_everything_requires_and_holds_what_it_did() -> None:
    seen: list[bool] = []
    module = _frozen_call(lambda m, x: seen.append(m.inner.weight.requires_grad))
    assert seen == [False]
    assert all(p.requires_grad and p.grad is None for p in module.parameters())


def test_what_an_import_or_a_constructor_leaves_in_the_process_is_an_error() -> None:
    left = pytest.raises(LeftChanged, match="the constructor leaves grad mode")
    with left, torch.enable_grad(), process_unchanged("the constructor"):
        torch.set_grad_enabled(False)


@pytest.mark.parametrize(
    "does",
    [
        lambda m, x: m.register_buffer("scratch", x.clone(), persistent=False),
        lambda m, x: setattr(m, "packed", m.inner.weight.t()),
        lambda m, x: x.t(),
    ],
)
def test_scratch_and_views_may_come_and_go(does: Any) -> None:
    checked(Calls(does))(torch.zeros(1, 3))


def test_attributes_are_read_in_parts_and_containers() -> None:
    module: Any = nn.Sequential(nn.Linear(2, 2))
    module[0].load = torch.zeros(2)
    module.stats = {"a": [1.0, torch.ones(1)], "b": ()}
    module._private = torch.ones(1)
    found = attributes_of(module)
    assert {"0.load", "stats['a'][0]", "stats['a'][1]", "0.in_features"} <= found.keys()
    assert not any("_private" in path or path.endswith("training") for path in found)
    before = shown_in(module)
    module[0].load.add_(1.0)
    module.stats["a"][0] = 2.0
    assert set(written(before, shown_in(module))) == {"0.load", "stats['a'][0]"}
    held_in(module)["stats['a'][0]"].put(3.0)
    assert module.stats["a"][0] == 3.0


class Slotted:
    __slots__ = ("load", "unset")

    def __init__(self) -> None:
        self.load = 1.0


class Asked:
    """Would see that it is asked."""

    def __init__(self) -> None:
        object.__setattr__(self, "load", 1.0)

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(name)


def test_attributes_are_read_in_objects_queues_and_passing_buffers() -> None:
    module: Any = nn.Module()
    module.stats, module.recent = Slotted(), deque([torch.ones(1)])
    vars(module)["asked"] = Asked()
    module.register_buffer("passing", torch.zeros(2), persistent=False)
    module.register_buffer("lasting", torch.zeros(2))
    module.device = torch.device("cpu")
    assert set(attributes_of(module)) == {"stats.load", "asked.load", "recent[0]", "passing"}
    held_in(module)["stats.load"].put(3.0)
    assert module.stats.load == 3.0
    before = shown_in(module)
    module.passing.add_(1.0)
    module.recent.append(torch.ones(1))
    assert set(written(before, shown_in(module))) == {"passing", "recent[1]"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1 << 60, (1 << 60) + 1),
        (torch.tensor([1 << 60]), torch.tensor([(1 << 60) + 1])),
        (torch.tensor([1.0 + 1.0j]), torch.tensor([1.0 - 1.0j])),
        (torch.zeros(1 << 15), torch.zeros(1 << 15).index_fill_(0, torch.arange(1 << 14, 1 << 15), 1.0)),
        (torch.eye(2).to_sparse(), torch.eye(2).mul(2).to_sparse()),
    ],
    ids=["int", "integers", "complex", "late elements", "sparse"],
)
def test_attributes_that_differ_are_shown_differently(one: Any, other: Any) -> None:
    assert shown(one, 7) == shown(one, 7) != shown(other, 7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex128, torch.float8_e4m3fn])
def test_what_is_unchanged_has_the_same_bits(dtype: torch.dtype) -> None:
    zeros = torch.zeros(4, 6).to(dtype)
    assert same_bytes(zeros.mT, zeros.clone().mT)
    assert same_bytes(zeros[0, 0], zeros[1, 1])
    assert same_bytes(torch.full_like(zeros, torch.nan), torch.full_like(zeros, torch.nan))
    signed = zeros.clone()
    signed[2, 3] = -0.0
    assert not same_bytes(signed.mT, zeros.mT)


@pytest.mark.parametrize("grown", [lambda: torch.zeros(3).resize_(5), lambda: torch.ones(3).resize_(2, 4)])
def test_memory_that_resize_adds_is_filled_and_what_was_there_is_not(grown: Any) -> None:
    with Recorder(fill_empties=poison):
        found = grown().flatten()
    assert not found[:3].isnan().any()
    assert found[3:].isnan().all()

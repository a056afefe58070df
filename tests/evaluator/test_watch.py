"""Whose work it was: sketches, amounts of work, values read by the host, and the rules over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from egg.core.policy import LibraryCalls, Policy
from egg.evaluator.ops import Recorder
from egg.evaluator.refused import Refused
from egg.evaluator.sketches import Sketch, Sketcher, explains
from egg.evaluator.spent import Work
from egg.evaluator.watch import Watch
from egg.evaluator.worker.hostreads import HostReads
from egg.evaluator.worker.outputs import kind_of

SHAPE = (16, 40)


def sketch(tensor: torch.Tensor) -> Sketch:
    found = Sketcher(7, [tensor.numel()]).sketch(tensor)
    assert found is not None
    return found


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "changed",
    [
        lambda y: y * 4,
        lambda y: 3 - y / 2,
        lambda y: (y * 0.25).t().contiguous(),
        lambda y: y.flip(0) + 1,
        torch.sqrt,
        torch.log,
        lambda y: 1 / y,
    ],
)
def test_an_answer_is_recognised_in_another_form(
    x: torch.Tensor, changed: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    answer = torch.softmax(x, -1)
    assert sketch(answer).follows(sketch(changed(answer)))
    assert not sketch(answer).follows(sketch(x))
    assert not sketch(answer).follows(sketch(torch.softmax(x * 1.01, -1)))


def test_an_answer_under_a_multiple_of_an_input(x: torch.Tensor) -> None:
    answer = torch.softmax(x, -1)
    assert explains(sketch(answer), [sketch(answer + 3 * x), sketch(x)])
    assert not explains(sketch(answer), [sketch(torch.exp(x)), sketch(x)])


def test_places_count_where_data_only_moves(x: torch.Tensor) -> None:
    assert sketch(x).same_values(sketch(x.flip(0)))
    assert not sketch(x).same_places(sketch(x.flip(0)))
    assert sketch(x).same_places(sketch(x.clone()))


def work(function: Callable[[], Any]) -> Work:
    with Recorder(launched=lambda: 0) as recorder:
        function()
    return recorder.work()[1]


def test_the_same_work_under_other_names(x: torch.Tensor) -> None:
    softmax = work(lambda: torch.softmax(x, -1))
    assert work(lambda: torch.exp(x - torch.logsumexp(x, -1, keepdim=True))).covers(softmax, 0.9)
    assert not work(lambda: torch.exp(x)).covers(softmax, 0.9)
    product = work(lambda: x @ x.t())
    assert work(lambda: (x[:, None, :] * x[None, :, :]).sum(-1)).covers(product, 0.9)
    fused = work(lambda: torch.nn.functional.gelu(x @ x.t()))
    assert not product.covers(fused, 0.9), "a tail that kernels took over"
    assert work(lambda: torch.cat([x, x])).covers(work(lambda: x.repeat(2, 1)), 0.9)


@pytest.mark.parametrize(
    ("read", "count"),
    [
        (lambda x: x.tolist(), 640),
        (lambda x: [float(v) for v in x[0]], 40),
        (repr, 640),
        (lambda x: f"{x}", 640),
        (lambda x: x.clone().apply_(abs), 640),
        (lambda x: x[0, 0].item(), 1),
        (lambda x: x.shape, 0),
    ],
)
def test_values_that_the_host_reads(x: torch.Tensor, read: Callable[[torch.Tensor], Any], count: int) -> None:
    with HostReads() as reads:
        read(x)
    assert reads.seen["floats"] == count


def reply(**changes: Any) -> dict[str, Any]:
    nothing = [0.0, 0.0, 0.0]
    plain = {"ops": {}, "moves": {}, "reads": {}, "launches": {"kernel": 1}, "work": [nothing, nothing]}
    return plain | changes


FORBID = Policy(library_calls=LibraryCalls.FORBID)


@pytest.mark.parametrize(
    ("policy", "seen", "reason"),
    [
        (Policy(), reply(launches={}), "provenance.no_kernel"),
        (Policy(), reply(ops={"_softmax": 1}), "provenance.fig_leaf"),
        (Policy(), reply(ops={"exp": 1}, work=[[0.0, 60.0, 0.0], [0.0, 60.0, 0.0]]), "provenance.fig_leaf"),
        (Policy(), reply(reads={"floats": 65}), "provenance.host"),
        (FORBID, reply(ops={"exp": 1}), "provenance.library"),
        (FORBID, reply(reads={"others": 257}), "provenance.host"),
    ],
)
def test_every_call_is_held_to_the_rules(policy: Policy, seen: dict[str, Any], reason: str) -> None:
    watch = Watch(policy, {"_softmax": 1}, {}, Work(others=50.0), 10, steady=True)
    watch.see(reply())
    with pytest.raises(Refused) as refused:
        watch.see(seen)
    assert refused.value.reason == reason


def test_what_is_left_to_libraries_may_be_a_part() -> None:
    watch = Watch(Policy(), {"mm": 1, "gelu": 1}, {}, Work(products=100.0, others=10.0), 10, steady=True)
    watch.see(reply(ops={"mm": 1}, work=[[100.0, 0.0, 0.0], [100.0, 0.0, 0.0]]))
    assert watch.library == {"mm": 1}


def test_moving_counts_where_it_is_the_work() -> None:
    moved = reply(moves={"cat": 1})
    Watch(FORBID, {"_softmax": 1}, {}, Work(others=50.0), 10, steady=True).see(moved)
    with pytest.raises(Refused, match="cat"):
        Watch(FORBID, {}, {"roll": 1}, Work(moved=50.0), 10, steady=True).see(moved)


class Tensor(torch.Tensor):
    """Of the same name, and another class."""


def test_a_plain_tensor_is_told_by_its_class(x: torch.Tensor) -> None:
    assert kind_of(x) == "Tensor"
    assert kind_of(x.as_subclass(Tensor)) != "Tensor"
    x.todo = 1  # type: ignore[attr-defined]
    assert kind_of(x) == "Tensor with attributes todo"

"""Whose work it was: sketches, amounts of work, values read by the host, and the rules over them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from egg.core.policy import LibraryCalls, Policy
from egg.evaluator.operators.ops import Recorder
from egg.evaluator.operators.sketches import Sketch, Sketcher, explains
from egg.evaluator.operators.spent import Work
from egg.evaluator.tensors import hosts
from egg.evaluator.transport.protocol import Record, Spent
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.watch import Watch
from egg.evaluator.worker.hostreads import HostReads
from egg.evaluator.worker.outputs import kind_of
from egg.evaluator.worker.pretend import ClaimCuda

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


def normalized(x: torch.Tensor) -> torch.Tensor:
    apart = x - x.mean(-1, keepdim=True)
    return apart * (apart * apart).mean(-1, keepdim=True)


def averaged(x: torch.Tensor) -> torch.Tensor:
    """Windows of 5 by 5, as differences of prefix sums."""
    sums = x.cumsum(-1)
    rows = (sums[..., 5:] - sums[..., :-5]).cumsum(-2)
    return rows[..., 5:, :] - rows[..., :-5, :]


def two_largest(x: torch.Tensor) -> torch.Tensor:
    first = x.amax(-1, keepdim=True)
    return torch.where(x == first, -torch.inf, x).amax(-1)


@pytest.mark.parametrize(
    ("composite", "parts", "least"),
    [
        (lambda x: F.layer_norm(x, x.shape[-1:]), normalized, 0.9),
        (lambda x: F.group_norm(x[None], 4), lambda x: torch.addcmul(x, *torch.var_mean(x, 0)), 0.9),
        (lambda x: F.avg_pool2d(x[None], 5, 1), averaged, 0.6),
        (lambda x: x.topk(2).values, two_largest, 0.9),
        (lambda x: F.normalize(x), lambda x: x / torch.linalg.vector_norm(x, dim=-1, keepdim=True), 0.9),
    ],
)
def test_an_operator_counts_for_the_cheapest_way_to_write_it(
    x: torch.Tensor, composite: Callable[..., Any], parts: Callable[..., Any], least: float
) -> None:
    whole = work(lambda: composite(x))
    assert work(lambda: parts(x)).covers(whole, least)
    assert not work(lambda: x.mean(-1)).covers(whole, 0.9)


def test_a_single_operation_may_be_done_as_a_product(x: torch.Tensor) -> None:
    watch = Watch(Policy(), {"sum": 1}, {}, Work(others=1000.0), 10, steady=True)
    with pytest.raises(Refused, match="as much work"):
        watch.see(record(Spent(2000.0, 0.0, 0.0), ops={"mv": 1}))
    several = Watch(Policy(), {"mul": 1, "sum": 1, "relu": 1}, {}, Work(others=1000.0), 10, steady=True)
    several.see(record(Spent(2000.0, 0.0, 0.0), ops={"mm": 1}))


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


@pytest.mark.parametrize(
    ("read", "count"),
    [
        (lambda x, host: host.copy_(x), 640),
        (lambda x, host: host.view(-1)[:40].copy_(x[0]), 40),
        (lambda x, host: [torch.empty((n, 0)).shape[0] for n in x[0].abs().long()], 40),
        (lambda x, host: torch.full((2,), x[0, 0]), 1),
        (lambda x, host: host.copy_(host * 2.0), 0),
        (lambda x, host: x.copy_(host), 0),
    ],
)
def test_values_that_leave_the_device(
    x: torch.Tensor, read: Callable[[torch.Tensor, torch.Tensor], Any], count: int
) -> None:
    host = torch.zeros_like(x)
    hosts.leave_on_host(host)
    with ClaimCuda(), Recorder() as recorder:
        read(x, host)
    assert recorder.reads.total() == count


NOTHING = Spent(0.0, 0.0, 0.0)


def record(spent: Spent = NOTHING, **changes: Any) -> Record:
    plain: dict[str, Any] = {name: {} for name in ("ops", "moves", "copies", "reads")}
    return Record(**{**plain, "launches": {"kernel": 1}, **changes}, before=spent, work=spent)


FORBID = Policy(library_calls=LibraryCalls.FORBID)


@pytest.mark.parametrize(
    ("policy", "seen", "reason"),
    [
        (Policy(), record(launches={}), "provenance.no_kernel"),
        (Policy(), record(ops={"_softmax": 1}), "provenance.fig_leaf"),
        (Policy(), record(Spent(0.0, 60.0, 0.0), ops={"exp": 1}), "provenance.fig_leaf"),
        (Policy(), record(reads={"floats": 65}), "provenance.host"),
        (FORBID, record(ops={"exp": 1}), "provenance.library"),
        (FORBID, record(reads={"others": 257}), "provenance.host"),
    ],
)
def test_every_call_is_held_to_the_rules(policy: Policy, seen: Record, reason: str) -> None:
    watch = Watch(policy, {"_softmax": 1}, {}, Work(others=50.0), 10, steady=True)
    watch.see(record())
    with pytest.raises(Refused) as refused:
        watch.see(seen)
    assert refused.value.reason == reason


def test_what_is_left_to_libraries_may_be_a_part() -> None:
    watch = Watch(Policy(), {"mm": 1, "gelu": 1}, {}, Work(products=100.0, others=10.0), 10, steady=True)
    watch.see(record(Spent(100.0, 0.0, 0.0), ops={"mm": 1}))
    assert watch.library == {"mm": 1}


@pytest.mark.parametrize(
    ("ops", "refused"),
    [
        ({"_fft_r2c": 1, "_fft_c2r": 1, "mul": 1}, False),
        ({"_fft_r2c": 1, "_fft_c2r": 1, "mul": 2, "gelu": 1}, True),
        ({"_fft_r2c": 1, "_fft_c2r": 1, "mul": 1, "exp": 1}, True),
        ({"_fft_r2c": 2, "_fft_c2r": 1, "mul": 1}, True),
    ],
)
def test_operations_of_the_reference_may_be_nearly_all_its_work(ops: dict[str, int], refused: bool) -> None:
    """Where a good part of the others is fused, and nothing else stands in for them."""
    wanted = {"_fft_r2c": 1, "_fft_c2r": 1, "mul": 3, "gelu": 1}
    watch = Watch(Policy(), wanted, {}, Work(others=1000.0), 10, steady=True)
    with pytest.raises(Refused) if refused else nullcontext():
        watch.see(record(Spent(0.0, 995.0, 0.0), ops=ops))


def test_moving_counts_where_it_is_the_work() -> None:
    moved = record(moves={"cat": 1})
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


def test_products_and_sums_under_other_names(x: torch.Tensor) -> None:
    weight = torch.randn(40, 24)
    product = work(lambda: x @ weight)
    places = torch.arange(40).expand(16, 40).contiguous()
    bag = torch.nn.functional.embedding_bag
    assert work(lambda: bag(places, weight, mode="sum", per_sample_weights=x)).covers(product, 0.9)
    assert work(lambda: torch.cdist(x, weight.t(), p=1.0)).covers(product, 0.9)
    total = work(lambda: x.sum(0))
    rows = torch.zeros(16, dtype=torch.long)
    assert work(lambda: torch.zeros(1, 40).index_add(0, rows, x)).covers(total, 0.9)


def copies(given: torch.Tensor, function: Callable[[torch.Tensor], Any]) -> int:
    with Recorder(given=[given]) as recorder:
        function(given)
    return sum(recorder.copies.values())


def test_copies_into_another_order_or_dtype(x: torch.Tensor) -> None:
    assert copies(x, lambda t: t.t().contiguous()) == 1
    assert copies(x, lambda t: t.to(torch.bool)) == 1
    assert copies(x, lambda t: torch.empty(40, 16).copy_(t.t())) == 1
    assert copies(x, lambda t: t.clone()) == 0
    assert copies(x.t(), lambda t: t.contiguous()) == 0, "an input as it was given"


@pytest.mark.parametrize(("wanted", "refused"), [({}, True), ({"ne": 1}, True), ({"exp": 1}, False)])
def test_a_copy_is_work_where_the_task_is_no_more(wanted: dict[str, int], refused: bool) -> None:
    watch = Watch(FORBID, wanted, {}, Work(), 10)
    if refused:
        with pytest.raises(Refused) as found:
            watch.see(record(copies={"clone": 1}))
        assert found.value.reason == "provenance.library"
    else:
        watch.see(record(copies={"clone": 1}))


def test_work_behind_a_kernel_that_copied_an_input(x: torch.Tensor) -> None:
    def before(values: torch.Tensor) -> Work:
        with Recorder(launched=lambda: 1, sketcher=Sketcher(7, [x.numel()]), given=[x]) as recorder:
            torch.clamp(values, min=0)
        return recorder.work()[0]

    spent = [before(x.clone()), before(2 * x + 1), before(torch.exp(x))]
    assert [bool(each) for each in spent] == [True, True, False]


def test_other_names_of_a_rectifier() -> None:
    watch = Watch(Policy(), {"relu": 1}, {}, Work(others=10.0), 10)
    with pytest.raises(Refused) as found:
        watch.see(record(ops={"clamp": 1}))
    assert found.value.reason == "provenance.fig_leaf"

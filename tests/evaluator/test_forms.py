"""Forms of results that are known from an earlier call: the same as PyTorch's, for the same question only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from egg.evaluator.tensors.forms import KnownForms

META = torch.device("meta")


def new(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=META)


def turned(*shape: int) -> torch.Tensor:
    return new(*reversed(shape)).permute(*reversed(range(len(shape))))


CALLS: dict[str, Callable[[], Any]] = {
    "where": lambda: torch.where(new(4, 1, dtype=torch.bool), new(4, 8), turned(4, 8)),
    "a scalar's kind": lambda: (new(3, dtype=torch.int32) * 2, new(3, dtype=torch.int32) * 2.0),
    "logsumexp": lambda: torch.logsumexp(turned(4, 8, 2), 1),
    "several results": lambda: turned(6, 9).topk(3, 0),
    "a list of operands": lambda: torch.cat((turned(4, 2), new(3, 2))),
    "turned": lambda: turned(4, 8).clamp(0.0, 1.0),
    "not turned": lambda: new(4, 8).clamp(0.0, 1.0),
    "channels last": lambda: F.hardswish(new(2, 3, 4, 5).to(memory_format=torch.channels_last)),
    "a grid": lambda: F.grid_sample(new(1, 2, 4, 4), new(1, 3, 3, 2), align_corners=False),
    "half": lambda: F.gelu(new(4, dtype=torch.float16)),
    "a check without a result": lambda: torch.linalg.solve(new(4, 4), new(4, 2)),
    "no change": lambda: F.dropout(new(4), training=False),
}


def forms(result: Any) -> list[Any]:
    parts = result if isinstance(result, tuple) else (result,)
    return [(type(part), part.shape, part.stride(), part.dtype, part.device) for part in parts]


@pytest.mark.parametrize("name", CALLS)
def test_an_answer_from_before_is_pytorchs(name: str):
    expected = forms(CALLS[name]())
    with KnownForms():
        assert [forms(CALLS[name]()) for _ in range(3)] == [expected] * 3


def test_results_are_new_tensors_each_time():
    x = new(4)
    with KnownForms():
        first, second = x.exp(), x.exp()
        first.resize_(7)
        assert second.shape == x.exp().shape == (4,)


def test_views_and_writes_reach_their_tensor():
    with KnownForms():
        for _ in range(2):
            x = new(4, 8)
            assert x.t().untyped_storage()._cdata == x.untyped_storage()._cdata
            assert x.add_(1.0) is x


def test_what_is_refused_is_refused_again():
    with KnownForms():
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"broadcast|size"):
                torch.maximum(new(3), new(4))


def test_another_default_dtype_is_another_question():
    before = torch.get_default_dtype()
    with KnownForms():
        assert (new(3, dtype=torch.int64) / 2).dtype == torch.float32
        torch.set_default_dtype(torch.float64)
        try:
            assert (new(3, dtype=torch.int64) / 2).dtype == torch.float64
        finally:
            torch.set_default_dtype(before)


def test_numbers_are_not_taken_for_forms():
    """Tensors with data are computed, whatever was asked about their like without."""
    with KnownForms():
        new(3).exp()
        assert torch.zeros(3).exp().tolist() == [1.0, 1.0, 1.0]

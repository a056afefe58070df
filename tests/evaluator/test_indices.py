"""Indices are refused before an operator uses them, as a CPU refuses them by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode

from egg.evaluator.task.indices import IndicesInRange

TABLE = torch.randn(5, 4)

Calls = dict[str, Callable[[torch.Tensor], torch.Tensor]]
ALONG: Calls = {
    "index_select": lambda i: TABLE.index_select(0, i),
    "gather": lambda i: TABLE.gather(0, i[:, None].expand(-1, 4)),
    "index_add": lambda i: TABLE.index_add(0, i, torch.ones(len(i), 4)),
    "scatter_add": lambda i: TABLE.scatter_add(0, i[:, None].expand(-1, 4), torch.ones(len(i), 4)),
    "scatter_reduce": lambda i: TABLE[:, 0].clone().scatter_reduce_(0, i, torch.ones(len(i)), "amax"),
    "embedding": lambda i: F.embedding(i, TABLE),
    "embedding_bag": lambda i: F.embedding_bag(i, TABLE, torch.tensor([0])),
    "loss": lambda i: F.nll_loss(torch.zeros(len(i), 5), i, ignore_index=99),
}
ENTRIES: Calls = {
    "index": lambda i: TABLE[i],
    "second index": lambda i: TABLE.T[:, i],
    "index_put": lambda i: TABLE.clone().index_put_((i,), torch.ones(4), accumulate=True),
    "take": lambda i: TABLE[:, 0].contiguous().take(i),
}


@pytest.mark.parametrize("name", [*ALONG, *ENTRIES])
def test_indices_inside_the_table_pass_and_those_beyond_it_raise(name: str):
    call = (ALONG | ENTRIES)[name]
    legal = torch.tensor([0, 4, 2, 2])
    expected = call(legal)
    with IndicesInRange():
        assert torch.equal(call(legal), expected)
        with pytest.raises(IndexError, match="indices from 0 to 5"):
            call(torch.tensor([0, 5]))


@pytest.mark.parametrize("name", ENTRIES)
def test_entries_count_from_the_end_too(name: str):
    with IndicesInRange():
        ENTRIES[name](torch.tensor([-5, -1]))
        with pytest.raises(IndexError, match="indices from -6 to 0"):
            ENTRIES[name](torch.tensor([0, -6]))


def test_masks_ignored_classes_and_no_indices_are_legal():
    with IndicesInRange():
        assert TABLE[TABLE[:, 0] > 9].shape == (0, 4)
        assert TABLE[torch.empty(0, dtype=torch.int64)].shape == (0, 4)
        F.nll_loss(torch.zeros(3, 5), torch.tensor([0, 99, 4]), ignore_index=99)


def test_tensors_without_values_have_no_index_to_look_at():
    with FakeTensorMode(), IndicesInRange():
        assert torch.empty(5, 4)[torch.empty(3, dtype=torch.int64)].shape == (3, 4)

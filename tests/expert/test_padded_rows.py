"""The library's 16-bit products whose results would have rows at odd places: heads of odd vocabularies."""

from __future__ import annotations

import pytest
import torch

from egg.expert.moves import Recipe, Without
from tests.expert.elsewhere import normal, program
from tests.expert.test_across import body_of

LEFT = Recipe().after(Without("product"))
HEAD = "self.head = nn.Linear(width, words{bias})\nself.to(torch.{dtype})"
GIVEN = "x = torch.randn(n, length, width, dtype=torch.{dtype})"
SIZES = {"n": 4, "length": 16, "width": 64, "words": 1037}
PADDED = "self.packed(padded_weight, self.head.weight, 0, 64)"


def written(forward: str, dtype: str = "bfloat16", layers: str = HEAD, bias: str = "", **sizes: int) -> str:
    """``forward`` of the file, which was executed with fewer words than it was captured with."""
    layers = layers.format(dtype=dtype, bias=bias)
    known = {**SIZES, **sizes}
    source = program(forward, GIVEN.format(dtype=dtype), layers, "width, words", **known)
    x = normal(3, 5, 32, dtype=getattr(torch, dtype))
    return body_of(source, LEFT, [x], [32, known["words"] - 8])


@pytest.mark.parametrize("bias", ["", ", bias=False"])
def test_a_loss_reads_the_padded_logits_where_they_lie(bias: str):
    body = written("return torch.logsumexp(self.head(x).flatten(0, 1).float(), 1)", bias=bias)
    assert PADDED in body
    assert ("self.packed(padded_weight, self.head.bias, 0, 64)" in body) == (bias == "")
    assert ")[..., :words]" in body
    assert ".contiguous()" not in body.split("padded_weight, self.head")[-1]


def test_what_is_left_out_of_the_rows_is_read_where_it_lies():
    """The last place of each sequence predicts nothing, and only some of the words count."""
    body = written("return torch.logsumexp(self.head(x)[:, 1:, 3:].float(), 2)")
    assert PADDED in body


def test_an_operand_that_lies_across_is_brought_into_rows():
    """Features of an image pooled over its height: the sum runs along what is not innermost."""
    body = written(
        "y = torch.softmax(x.transpose(1, 2).contiguous(), 1).transpose(1, 2)\n"
        "return torch.logsumexp(self.head(y).float(), 2)"
    )
    assert PADDED in body
    assert "torch.bmm" not in body


def test_logits_that_are_returned_are_copied_by_a_pass():
    body = written("y = self.head(x)\nreturn y.view(x.shape[0], -1)")
    assert PADDED in body


def test_a_plain_matrix_is_padded_along_its_columns():
    layers = "self.head = nn.Parameter(torch.randn(width, words))\nself.to(torch.{dtype})"
    body = written("return torch.logsumexp((x @ self.head).float(), 2)", layers=layers)
    assert "torch.matmul(x, self.packed(padded_weight, self.head, 1, 64))[..., :words]" in body


@pytest.mark.parametrize(
    ("dtype", "words"), [("float32", 1037), ("bfloat16", 1040), ("bfloat16", 37)], ids=["fp32", "even", "few"]
)
def test_other_products_stay_as_they_are(dtype: str, words: int):
    body = written("return torch.logsumexp(self.head(x).float(), 2)", dtype, words=words)
    assert "padded_weight" not in body

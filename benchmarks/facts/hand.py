"""Operations of some KernelBench tasks, worked out by hand from their text.

A multiplication and an addition are two. Only products count (matrix products, convolutions,
attention, recurrences), at the sizes the task states. What is written here was not read off any
program: it is what the program is held against.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hand:
    """One task, how its operations come about, and how many they are."""

    level: int
    problem_id: int
    what: str
    flops: int


def _product(m: int, k: int, n: int) -> int:
    return 2 * m * k * n


def _transposed(inputs: int, weights: int) -> int:
    """Every element of the input meets every weight that its channel has."""
    return 2 * inputs * weights


def _attention(batch: int, heads: int, queries: int, keys: int, width: int) -> int:
    """Scores, then their product with the values."""
    return batch * heads * (_product(queries, width, keys) + _product(queries, keys, width))


def _transformer_vision() -> int:
    """224 / 16 = 14, so 196 patches of 3 * 16 * 16 = 768 values, and one class token: 197 of 512.

    The layers do not say whether the batch comes first, so each of 197 tokens is
    taken for a sequence of its own over the 2 images: 8 heads of 64, two queries and two keys.
    """
    tokens = 2 * 197
    layer = (
        _product(tokens, 512, 3 * 512)
        + _attention(197, 8, 2, 2, 64)
        + _product(tokens, 512, 512)
        + _product(tokens, 512, 2048)
        + _product(tokens, 2048, 512)
    )
    head = _product(2, 512, 2048) + _product(2, 2048, 10)
    return _product(2 * 196, 768, 512) + 6 * layer + head


def _transformer_text() -> int:
    """128 sequences of 512 tokens of 768 values, 8 heads of 96, masked only after all scores are made."""
    tokens = 128 * 512
    return (
        _product(tokens, 768, 3 * 768)
        + _attention(128, 8, 512, 512, 96)
        + _product(tokens, 768, 768)
        + _product(tokens, 768, 4 * 768)
        + _product(tokens, 4 * 768, 768)
    )


def _lstm() -> int:
    """4 gates of 256; the first layer reads 128 features, five more read 256; then one product of the end."""
    positions = 10 * 512
    first = _product(positions, 128 + 256, 4 * 256)
    further = _product(positions, 256 + 256, 4 * 256)
    return first + 5 * further + _product(10, 256, 10)


def _gru_both_ways() -> int:
    """3 gates of 256, twice; the first layer reads 128 features, five more read both halves: 512."""
    positions = 10 * 512
    first = _product(positions, 128 + 256, 3 * 256)
    further = _product(positions, 512 + 256, 3 * 256)
    return 2 * (first + 5 * further)


HAND = (
    Hand(1, 1, "square product, 4096", _product(4096, 4096, 4096)),
    Hand(1, 3, "128 products of 512 x 1024 x 2048", 128 * _product(512, 1024, 2048)),
    Hand(1, 8, "product of 8205 x 2949 x 5921", _product(8205, 2949, 5921)),
    Hand(1, 11, "4-D tensor times matrix, bijl,lk", _product(8 * 256 * 512, 256, 768)),
    Hand(1, 56, "5 x 7 convolution, 512 x 256 becomes 508 x 250", 2 * 8 * 508 * 250 * 128 * (64 * 5 * 7)),
    Hand(1, 66, "3 x 5 x 7 convolution in 3-D", 2 * 8 * (14 * 124 * 122) * 64 * (3 * 3 * 5 * 7)),
    Hand(1, 68, "transposed 3-D convolution", _transposed(16 * 32 * 64**3, 64 * 3 * 5 * 5)),
    Hand(1, 72, "the same, strided, in 4 groups", _transposed(8 * 32 * 12 * 24 * 48, 32 // 4 * 3 * 5 * 7)),
    Hand(1, 83, "depthwise 3 x 1, 512 rows become 510", 2 * 64 * 8 * (510 * 512) * 3),
    Hand(1, 86, "depthwise 3 x 3, then 1 x 1", 2 * 16 * 512**2 * (64 * 9 + 64 * 128)),
    Hand(1, 97, "attention, 512 x 512, heads of 1024", _attention(32, 32, 512, 512, 1024)),
    Hand(3, 1, "three linear layers", _product(128, 16384, 2 * 16384 + 8192)),
    Hand(3, 28, "vision transformer, 6 layers", _transformer_vision()),
    Hand(3, 36, "LSTM of 6 layers over 512 steps", _lstm()),
    Hand(3, 41, "GRU of 6 layers, both ways", _gru_both_ways()),
    Hand(3, 44, "transformer block", _transformer_text()),
)

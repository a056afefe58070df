"""Small PyTorch programs drawn at random: task files that no test author wrote.

A program is a chain of steps on one running tensor ``x``; each step is a line of ``forward`` that fits the
shape that ``x`` has by then, with what it needs in the constructor and among the inputs. What makes captures
go wrong is drawn on purpose: sizes that are equal by accident, sizes of 1 and odd ones, numbers written into
``get_inputs`` or given a name, flags and factors with defaults, optional inputs, numbers as inputs, and
layers that know modes.
"""

from __future__ import annotations

from random import Random

from benchmarks.domain.builder import Builder
from benchmarks.domain.steps import MOST_ELEMENTS, STEPS, embedding

POOLS = ((4, 4, 8), (2, 3, 5), (1, 4, 6), (8, 8, 8), (3, 3, 4), (5, 7, 16), (2, 6, 12), (1, 1, 9), (16, 4, 4))
"""Sizes of one program: few, so that many are equal."""
MOST_STEPS = 5
DTYPES = ("float32",) * 7 + ("bfloat16", "float16")


def program(random: Random) -> str:
    """The text of a task."""
    builder = Builder(random, pool=POOLS[random.randrange(len(POOLS))])
    builder.dtype = builder.one(DTYPES)
    rank = random.choice((1, 2, 2, 2, 3, 3, 3, 4, 4))
    shape = [random.choice(builder.pool) for _ in range(rank)]
    while builder.elements(shape) > MOST_ELEMENTS:
        shape[random.randrange(rank)] = 2
    if builder.chance(0.06):
        embedding(builder, shape[:2])
    else:
        builder.shape = shape
        builder.input(shape)
    steps = random.randint(1, MOST_STEPS)
    while steps and len(builder.lines) < 2 * MOST_STEPS:
        steps -= _step(builder)
    return builder.text()


def _step(b: Builder) -> bool:
    weights = [weight for weight, _ in STEPS]
    (chosen,) = b.random.choices([step for _, step in STEPS], weights)
    if not chosen(b):
        return False
    if len(b.kept) < 1 and b.chance(0.08):
        b.lines.append("kept = x")
        b.kept.append("kept")
    return True

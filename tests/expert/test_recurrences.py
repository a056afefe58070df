"""Decaying totals in disguise: rounds of doubling become one scan, and what only looks like them does not."""

from __future__ import annotations

import pytest

from egg.core.source import Task
from egg.expert.algebra.simplify import simplify
from egg.expert.assemble import graph_of, kernel_file
from egg.expert.moves import Recipe
from egg.expert.reading.capture import capture_once
from egg.hardware.gpus import resolve
from tests.expert.captured import check, kinds, program

ROUNDS = """
taken, decay = x * 2.0, rate.sigmoid()
reach = 1
while reach < {until}:
    back = [slice(None)] * x.dim()
    back[{dim}] = slice(None, -reach)
    room = [0, 0] * (x.dim() - 1 - {dim}) + [reach, 0]
    taken = {taken}
    decay = {decay}
    reach *= {by}
return taken.tanh()
"""
TAKEN = "taken + decay * F.pad(taken[tuple(back)], room)"
DECAY = "decay * F.pad(decay[tuple(back)], room, value=1.0)"


def rounds(
    length: int,
    dim: int = 1,
    taken: str = TAKEN,
    decay: str = DECAY,
    until: str = "",
    by: int = 2,
    knobs: str = "L = {}",
) -> Task:
    shape = ["3", "3", "3"]
    shape[dim] = "L"
    text = ROUNDS.format(until=until or f"x.shape[{dim}]", dim=dim, taken=taken, decay=decay, by=by)
    forward = text.strip().replace("\n", "\n        ")
    inputs = ", ".join([f"torch.randn({', '.join(shape)})"] * 2)
    return program(forward, inputs, arguments="x, rate", knobs=knobs.format(length))


@pytest.mark.parametrize("length", [2, 3, 8, 13])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_rounds_of_doubling_become_one_scan(length: int, dim: int) -> None:
    task = rounds(length, dim)
    short = simplify(capture_once(task))
    assert (kinds(short)["scan"], kinds(short)["pad"]) == (1, 0)
    check(short, task)


@pytest.mark.parametrize(
    "terms",
    [
        {"until": "4"},
        {"by": 3},
        {"taken": "taken + decay * F.pad(taken[tuple(back)], room, value=1.0)"},
        {"taken": "taken + decay * F.pad(rate[tuple(back)], room)"},
        {"taken": "taken - decay * F.pad(taken[tuple(back)], room)"},
        {"decay": "decay * F.pad(decay[tuple(back)], room)"},
        {"decay": "decay + F.pad(decay[tuple(back)], room, value=1.0)"},
        {"decay": "decay"},
    ],
    ids=["short", "by threes", "starts from one", "of another", "minus", "forgets", "adds", "never less"],
)
def test_what_only_looks_like_it_stays(terms: dict[str, str]) -> None:
    task = rounds(13, **terms)  # pyright: ignore[reportArgumentType]
    short = simplify(capture_once(task))
    assert kinds(short)["scan"] == 0
    check(short, task)


def test_there_are_as_many_rounds_as_the_length_asks_for_and_one_file() -> None:
    task = rounds(13)
    graph = graph_of(task)
    assert not graph.fixed
    check(graph, task)
    source = kernel_file(task, graph, Recipe(), resolve("H200")).source
    assert source.count("tl.associative_scan(") == source.count("@triton.jit") - 1 == 1
    assert "13" not in source.split('"""', 2)[2]


@pytest.mark.parametrize("knobs", ["L = {}", "P = 3; L = {}", "P, Q = 3, 3; L = {}"])
def test_rounds_that_are_written_down_are_right_for_one_length(knobs: str) -> None:
    """At the lengths that are tried they may all reach far enough, by chance."""
    task = rounds(256, until="256", knobs=knobs)
    graph = graph_of(task)
    assert graph.fixed["L"] == 256
    check(graph, task)

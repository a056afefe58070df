"""Write a small program's one group with the loops pattern, run it at every captured size, and compare
with PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from egg.expert.graph import Graph
from egg.expert.parts import Group, Part, Terms
from egg.expert.patterns.loops.write import write
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.expert.programs import Program, close, evaluate, tensors
from tests.ledgers import INTERPRETED

Build = Callable[[Program], Any]

H200 = resolve("H200")
MODES: tuple[dict[str, Any], ...] = (
    {},
    {"mode": "resident"},
    {"mode": "looped", "BLOCK_R": 16},
    {"mode": "split", "BLOCK_R": 16, "SPLITS": 4},
    {"mode": "resident", "BLOCK_X": 4},
    {"mode": "looped", "BLOCK_X": 4, "BLOCK_R": 16},
    {"mode": "split", "BLOCK_X": 2, "BLOCK_R": 16, "SPLITS": 2},
)
"""Every way to go over a row, by vectors and by tiles, with tiles so small that programs need several."""
ONE_KERNEL = tuple(mode for mode in MODES if mode.get("mode") != "split")


def built(build: Build) -> Graph:
    program = Program()
    results = build(program)
    return program.graph(*(results if isinstance(results, tuple) else (results,)))


def written(build: Build, name: str = "group", **settings: Any) -> tuple[Graph, Part]:
    graph = built(build)
    return graph, write(graph, Group(name, graph.nodes, "loops"), Terms(H200, settings))


def check(build: Build, *, sizes: int = 2, digits: float = 3e-6, shift: float = 0.0, **settings: Any) -> str:
    """Compares at the first ``sizes`` captured sizes; returns the kernels' text."""
    graph, part = written(build, **settings)

    def compare() -> None:
        for at in range(sizes):
            inputs, parameters = tensors(graph, at, seed=at)
            inputs = [t + shift if t.is_floating_point() else t for t in inputs]
            wanted = evaluate(graph, inputs, parameters, at)
            for name, got, want in zip(
                graph.results, harness.run(graph, [part], inputs, parameters), wanted, strict=True
            ):
                close(got, want, graph.value(name).dtype, digits)

    INTERPRETED.once(compare, harness.source(graph, [part]), sizes, digits, shift)
    return "\n".join(part.kernels.values())


def everywhere(build: Build, modes: tuple[dict[str, Any], ...] = MODES, **more: Any) -> None:
    for mode in modes:
        check(build, **more, **mode)

"""From a task and a recipe to a kernel file: the whole way in a few lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from egg.core.source import Task
from egg.expert.capture import capture
from egg.expert.graph import Graph
from egg.expert.moves import Recipe
from egg.expert.parts import Group, Part, Terms
from egg.expert.patterns import attention, convolution, library, loops, product, recurrent
from egg.expert.simplify import simplify
from egg.expert.structure import Choices, Structure, Writer, structured
from egg.expert.write import write_file
from egg.hardware.gpus import Gpu

PATTERNS: Mapping[str, Writer] = {
    "attention": attention.write,
    "convolution": convolution.write,
    "product": product.write,
    "recurrent": recurrent.write,
    "loops": loops.write,
    "library": library.write,
}


class NothingToWrite(Exception):
    """Every operator stays a PyTorch call: there is no kernel to write, and the sentence says why."""


@dataclass(frozen=True)
class Written:
    """A kernel file, and the structure it was written from."""

    source: str
    structure: Structure


def graph_of(task: Task) -> Graph:
    """The program, simplified by what holds for every input."""
    return simplify(capture(task))


def kernel_file(task: Task, graph: Graph, recipe: Recipe, gpu: Gpu) -> Written:
    """The file that ``recipe`` makes of the program."""
    writers = {name: _graded(writer, recipe.grades.get(name)) for name, writer in PATTERNS.items()}
    choices = Choices(recipe.without, recipe.alone, recipe.settings)
    structure = structured(graph, Terms(gpu), writers, choices)
    if not structure.kernels:
        raise NothingToWrite(f"no pattern covers {', '.join(structure.left_to_pytorch)}")
    written = zip(structure.groups, structure.parts, strict=True)
    parts = [(group, _swept(part, recipe.open.get(group.name))) for group, part in written]
    return Written(write_file(task, graph, parts, (f"{task.name}, rewritten as Triton kernels.",)), structure)


def _graded(writer: Writer, grade: str | None) -> Writer:
    if grade is None:
        return writer

    def write(graph: Graph, group: Group, terms: Terms) -> Part:
        return writer(graph, group, replace(terms, settings={"grade": grade, **terms.settings}))

    return write


def _swept(part: Part, names: tuple[str, ...] | None) -> Part:
    """Only constants that were opened are left to a sweep."""
    wanted = names or ()
    closed = tuple(c if c.name in wanted else replace(c, choices=()) for c in part.constants)
    return replace(part, constants=closed)

"""From a task and a recipe to a kernel file: the whole way in a few lines."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from egg.core.errors import EggError
from egg.core.source import Task
from egg.expert.algebra import grouped_heads
from egg.expert.algebra.across import products_across
from egg.expert.algebra.channels_last import channels_last
from egg.expert.algebra.mask_layout import masks_by_key
from egg.expert.algebra.overwritten import stored_in_place
from egg.expert.algebra.padded_rows import padded_rows
from egg.expert.algebra.rounded import rounded_where_it_shows
from egg.expert.algebra.simplify import simplify
from egg.expert.fusion.choices import Choices, Structure
from egg.expert.fusion.structure import structured
from egg.expert.graph import Graph, Node, once
from egg.expert.moves import Recipe
from egg.expert.parts import Constant, Part, Target, Unfit
from egg.expert.patterns import PATTERNS
from egg.expert.reading.capture import capture
from egg.expert.writing.replay import REPLAY, SETTINGS, decided
from egg.expert.writing.write import write_file
from egg.hardware.gpus import Gpu

CHANNELS_LAST = "channels_last"
"""The setting of a file that decides whether fp32 convolutions of the library have their channels last."""


class NothingToWrite(Exception):
    """Every operator stays a PyTorch call: there is no kernel to write, and the sentence says why."""


@dataclass(frozen=True)
class Written:
    """A kernel file, and the structure it was written from."""

    source: str
    structure: Structure
    replays: bool = False
    """Whether its launches are replayed as a CUDA graph, so that the host need not make them."""


class Fault(NothingToWrite):
    """A fault of this package's own: it ends the writing of a file, not the run, and is reported in full."""


@contextmanager
def _faults_reported(doing: str) -> Iterator[None]:
    """An unforeseen exception becomes a sentence that says what went wrong and where."""
    try:
        yield
    except (EggError, NothingToWrite, Unfit):
        raise
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno}, in {at.name})"
        raise Fault(f"a fault of EGG while it {doing}: {message}") from error


@_faults_reported("read the program")
def graph_of(task: Task) -> Graph:
    """The program, simplified by what holds for every input."""
    return stored_in_place(rounded_where_it_shows(simplify(capture(task))))


@_faults_reported("wrote the kernels")
def kernel_file(task: Task, graph: Graph, recipe: Recipe, gpu: Gpu) -> Written:
    """The file that ``recipe`` makes of the program."""
    choices = Choices(recipe.without, recipe.alone, recipe.settings, recipe.grades, recipe.left, recipe.apart)
    laid = in_library_layouts(graph, recipe)
    structure = structured(laid, Target(gpu), choices=choices, answers=_answers(graph))
    if not structure.kernels:
        raise NothingToWrite(f"no pattern covers {', '.join(structure.left_to_pytorch)}")
    written = zip(structure.groups, structure.parts, strict=True)
    parts = [(group, _swept(group.name, part, recipe.open.get(group.name, {}))) for group, part in written]
    title = (f"{task.name}, rewritten as Triton kernels.",)
    replay = decided(structure.graph, parts, gpu, recipe.settings.get(SETTINGS, {}).get("replay"))
    planned = structure.graph
    values, symbols = {**graph.values, **planned.values}, {**graph.symbols, **planned.symbols}
    nodes = (*graph.nodes, *_made_behind(graph, laid))
    known = replace(graph, values=values, symbols=symbols, nodes=nodes, results=laid.results)
    source = write_file(task, known, parts, title, replay)
    return Written(source, structure, replays=replay.replays and REPLAY in source)


@once
def _answers(graph: Graph) -> dict[Any, int | None]:
    """What patterns said of groups of a program, whichever recipe asked."""
    return {}


def in_library_layouts(graph: Graph, recipe: Recipe) -> Graph:
    """The program with convolutions, products and attention as the library takes them, where that computes
    them, and with masks of attention as all of its kernels read them."""

    def left(op: str) -> Callable[[str], bool]:
        own = PATTERNS.anchor(op)[0].name
        return lambda name: own in recipe.without or (own, name) in recipe.left

    single = bool(recipe.settings.get(SETTINGS, {}).get(CHANNELS_LAST, True))
    graph = products_across(channels_last(graph, left("conv"), single), left("matmul"))
    graph = padded_rows(graph, left("matmul"))
    graph = masks_by_key(graph)
    return grouped_heads.by_the_library(graph, left("attention"))


def _made_behind(graph: Graph, laid: Graph) -> list[Node]:
    """The nodes that make results which only the program in library layouts has."""
    nodes, wanted = list[Node](), {name for name in laid.results if name not in graph.values}
    for node in reversed(laid.nodes):
        if wanted.intersection(node.outputs):
            nodes.insert(0, node)
            wanted |= {name for name in node.inputs if name is not None and name not in graph.values}
    return nodes


def _swept(group: str, part: Part, opened: Mapping[str, tuple[int, ...]]) -> Part:
    """Only constants that were opened are left to a sweep, at the values it is to try."""
    return replace(
        part, constants=tuple(_opened(c, opened.get(short(group, c.name))) for c in part.constants)
    )


def _opened(constant: Constant, values: tuple[int, ...] | None) -> Constant:
    if values is None:
        return replace(constant, choices=())
    return replace(constant, value=values[0], choices=values if len(values) > 1 else ())


def short(group: str, constant: str) -> str:
    """A constant's name without its group's: as settings and moves call it."""
    return constant.removeprefix(f"{group.upper()}_")

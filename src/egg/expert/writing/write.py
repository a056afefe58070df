"""The kernel file: parts put together into what a person would have written and would be glad to maintain.

From top to bottom: what the program is, what it is for and which kernel does what; imports; tile sizes and
launch options, with the table of those that may be tuned; the domain; kernels; functions of the host; the
constructors of the task; what the guard needs; ``ModelNew``, whose ``forward`` holds a call to the domain,
names the sizes it needs and then computes group after group. The file stands alone, and the same parts always
give the same text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from egg.core.domain_words import words_of
from egg.core.source import Task
from egg.expert.emit.failures import raising
from egg.expert.emit.keeping import with_method
from egg.expert.emit.languages import LANGUAGES
from egg.expert.emit.names import read_names, underscored
from egg.expert.emit.words import RESERVED
from egg.expert.fusion.reach import largest_counts
from egg.expert.fusion.sharing import renamed_part
from egg.expert.graph import BYTES, Graph
from egg.expert.nesting import names_in_form
from egg.expert.parts import Constant, Group, Unfit
from egg.expert.writing.breaking import LIMIT
from egg.expert.writing.constructor import Constructor, constructor
from egg.expert.writing.dead import without_dead
from egg.expert.writing.domain import domain_of
from egg.expert.writing.errors import with_errors
from egg.expert.writing.fixed_arguments import fixed_arguments
from egg.expert.writing.forward import forward_lines
from egg.expert.writing.guard import Guard
from egg.expert.writing.guard_text import Names
from egg.expert.writing.heading import Parts, module_docstring, wrapped
from egg.expert.writing.imports import sorted_imports
from egg.expert.writing.layout import laid_out
from egg.expert.writing.literals import domain_lines
from egg.expert.writing.replay import Decision
from egg.expert.writing.replay_results import handed_back, placed
from egg.expert.writing.replay_text import replaying, unfit
from egg.expert.writing.tidy import double_quoted

FLOPS_PER_BYTE = 100
"""Operations of a product that take as long as a byte of memory traffic, roughly: to rank groups by."""
MOST_TUNABLES = 8
"""More constants than that no sweep takes."""
OWN = (
    "import torch",
    "from torch import nn",
    *(line for own in LANGUAGES for line in own.imports),
)


def write_file(
    task: Task, graph: Graph, parts: Parts, title: Sequence[str], replay: Decision | None = None
) -> str:
    """A standalone kernel file for ``task``; ``title`` are the first lines of its docstring.

    ``replay``: whether its launches are replayed as a CUDA graph, and why.
    """
    built = constructor(task, names_in_form(graph.form, len(graph.results)))
    parts = _with_own_names(graph, parts, built)
    names = Names.free(graph, built, [name for _, part in parts for name in (*part.kernels, *part.helpers)])
    built = fixed_arguments(built, graph, names)
    counts = largest_counts((part for _, part in parts), graph)
    guard, domain = Guard(graph, built.forward, names, counts), domain_of(graph, counts)
    body = forward_lines(graph, parts)
    if replay is not None and replay.replays and (found := unfit(built)) is not None:
        replay = replay.without(found)
    if replay is not None and replay.sentence:
        title = [*title, replay.sentence]
    helpers: Mapping[str, str] = _agreed((part.helpers for _, part in parts), "helper")
    if replay is not None and replay.replays:
        launches = placed(body, helpers, handed_back(graph))
        helpers = launches.helpers
        forward = replaying(graph, guard.lines(), launches, built.forward, names.seen, replay.elsewhere)
    else:
        forward = ["", *laid_out(built.forward, 4), *guard.lines(), "", *body]
    raised = tuple(dict.fromkeys(name for _, part in parts for name in part.raises))
    if raised:
        helpers = {**helpers, **raising(raised)}
        forward = with_errors(graph, forward, built)
    forward = with_method(built.model, forward)
    first = forward.index("")  # class attributes stand before it
    methods = [*guard.attributes(), *forward[:first], "", *guard.methods(), *forward[first:]]
    constants = _constants(parts, built)
    sections = [
        [*_constant_lines(constants, _tunables(graph, parts)), "", *domain_lines(domain, names.domain)],
        *_definitions(_agreed((part.kernels for _, part in parts), "kernel")),
        *_definitions(helpers),
        *(laid_out(text, only_long=True) for text in built.definitions),
        *guard.definitions(),
        [*laid_out(built.model, only_long=True), "", *methods],
    ]
    text = "\n\n\n".join("\n".join(lines).strip("\n") for lines in sections if lines)
    gap = "\n\n" if _starts_plain(text) else "\n\n\n"
    title = [*title, f"For {words_of(domain)}."]
    return f"{module_docstring(parts, title)}\n\n{_imports(built, text)}{gap}{text}\n"


def _starts_plain(body: str) -> bool:
    """After imports, a formatter wants two blank lines before a definition and one before anything else."""
    return not body.startswith(("def ", "class ", "@"))


# -- names --------------------------------------------------------------------------------------------


def _with_own_names(graph: Graph, parts: Parts, built: Constructor) -> Parts:
    """Functions that share their name with a value, with Python or with the task's code get another."""
    taken = {*graph.values, *graph.symbols, *built.names, *RESERVED}
    kernels = {name for _, part in parts for name in part.kernels}
    functions = kernels | {name for _, part in parts for name in part.helpers}
    names: dict[str, str] = {}
    for name in sorted(functions & taken):
        new = f"{name}_kernel" if name in kernels else f"compute_{name}"
        names[name] = underscored(new, taken | functions)
    if not names:
        return parts
    return [(group, renamed_part(part, names)) for group, part in parts]


# -- head ---------------------------------------------------------------------------------------------


def _imports(built: Constructor, body: str) -> str:
    """Those of PyTorch, of the kernels' language and of the task that the file really uses."""
    wanted = dict.fromkeys((*OWN, *built.imports))
    tree = ast.parse(body)
    return "\n".join(sorted_imports(wanted, read_names(tree) | _quoted_names(tree)))


def _quoted_names(tree: ast.AST) -> set[str]:
    """Names inside texts, as annotations in quotes mention them."""
    texts = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant))
    return {text.split("[")[0].split(".")[0] for text in texts if isinstance(text, str) and len(text) < 60}


# -- constants ----------------------------------------------------------------------------------------


def _constants(parts: Parts, built: Constructor) -> list[Constant]:
    found: dict[str, Constant] = {}
    for _, part in parts:
        for constant in part.constants:
            if constant.name in built.names:
                raise Unfit(f"the task has a constant {constant.name} of its own")
            if found.setdefault(constant.name, constant).value != constant.value:
                raise ValueError(f"two parts disagree on {constant.name}")
    return list(found.values())


def _constant_lines(constants: Sequence[Constant], tunables: Sequence[Constant]) -> list[str]:
    lines = []
    for constant in constants:
        line = f"{constant.name} = {_literal(constant.value)}"
        note = f"  # {' '.join(constant.why.split())}" if constant.why else ""
        if len(line + note) > LIMIT:
            lines += [f"# {part}" for part in wrapped(" ".join(constant.why.split()), LIMIT - 2)]
            note = ""
        lines.append(line + note)
    if tunables:
        rows = [f'    "{t.name}": ({", ".join(_literal(v) for v in _choices(t))}),' for t in tunables]
        lines += ["", "TUNABLES = {", *rows, "}"]
    return lines


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _choices(constant: Constant) -> tuple[Any, ...]:
    """What a sweep may try: the current value among them, all of its type, each once."""
    same = [v for v in constant.choices if type(v) is type(constant.value)]
    distinct = list(dict.fromkeys([*same, constant.value]))
    return tuple(sorted(distinct)) if all(type(v) is int for v in distinct) else tuple(distinct)


def _tunables(graph: Graph, parts: Parts) -> list[Constant]:
    """The few constants that are worth a sweep: those of groups that take long, of each its first ones."""
    weights: dict[str, float] = {}
    places: dict[str, tuple[int, Constant]] = {}
    for place, (group, part) in enumerate(parts):
        weight = _weight(graph, group)
        for rank, constant in enumerate(c for c in part.constants if len(_choices(c)) > 1):
            weights[constant.name] = weights.get(constant.name, 0.0) + weight / (1 + rank)
            places.setdefault(constant.name, (place, constant))
    ordered = sorted(weights, key=lambda name: (-weights[name], places[name][0]))
    return [places[name][1] for name in ordered[:MOST_TUNABLES]]


def _weight(graph: Graph, group: Group) -> float:
    """Bytes that a group moves, and its products counted as bytes."""
    total = 0.0
    for name in dict.fromkeys((*group.reads(graph), *group.writes(graph))):
        value = graph.value(name)
        total += value.elements.value * BYTES.get(value.dtype, 4)
    for node in group.nodes:
        if node.op in ("matmul", "conv", "attention"):
            made, second = graph.value(node.outputs[0]), graph.value(str(node.inputs[1]))
            if node.op == "conv":
                depth = second.elements.value / max(1, second.shape[0].value)
            else:
                depth = second.shape[-2].value
            total += 2.0 * made.elements.value * depth / FLOPS_PER_BYTE
    return total


# -- definitions and forward --------------------------------------------------------------------------


def _agreed(texts: Iterable[Mapping[str, str]], what: str) -> dict[str, str]:
    """The functions of all parts by name; parts that share one have the same text of it."""
    found: dict[str, str] = {}
    for named in texts:
        for name, text in named.items():
            text = text.strip("\n").rstrip()
            if found.setdefault(name, text) != text:
                raise ValueError(f"two parts mean different things by the {what} {name}")
    return found


def _definitions(found: Mapping[str, str]) -> list[list[str]]:
    return [list(_definition(text)) for text in found.values()]


@lru_cache(maxsize=256)
def _definition(text: str) -> tuple[str, ...]:
    """The lines of one function, kept by its text: files of other recipes have most of them in common."""
    return tuple(laid_out(double_quoted(without_dead(text))))

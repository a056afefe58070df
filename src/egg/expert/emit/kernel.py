"""Putting a kernel of a product together: its definition, its launch, and the names both use.

A kernel is known by its body; which sizes it takes follows from the words in it, so that signature and launch
can never disagree. Sizes that divide an index or bound a loop are compile-time constants, the rest is plain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from egg.expert.emit.reader import Body
from egg.expert.emit.words import PRODUCT, RESERVED
from egg.expert.graph import Graph, Value
from egg.expert.parts import REACH, Constant, Setting, Unfit, spelled
from egg.expert.sizes import Size

LINE = 104
"""Characters of a line in the file, less the indentation it gets there."""
WORD = re.compile(r"[A-Za-z_]\w*")
DIVISORS = re.compile(r"(?://|%)\s*(\([^()]*\)|\w+)")
DTYPES = {"float16": "tl.float16", "bfloat16": "tl.bfloat16", "float32": "tl.float32"}


def size_names(graph: Graph) -> frozenset[str]:
    """Every named size of the program."""
    sizes = (s for value in graph.values.values() for s in (*value.shape, *value.stride))
    return frozenset(symbol.name for size in sizes for symbol in size.factors) | frozenset(graph.symbols)


def words(text: str) -> frozenset[str]:
    return frozenset(WORD.findall(text))


@dataclass
class Kernel:
    """One kernel in the making."""

    name: str
    doc: str
    graph: Graph
    body: Body = field(default_factory=Body)
    operands: dict[str, str] = field(default_factory=dict)
    """Tensor arguments and what they are called with, in order."""
    results: dict[str, str] = field(default_factory=dict)
    """The same for tensors that are written."""
    meta: dict[str, str] = field(default_factory=dict)
    """Compile-time constants of the kernel and what they are called with."""
    fixed: frozenset[str] = frozenset()
    """Sizes that are to be compile-time constants whatever the body does with them."""

    def __post_init__(self) -> None:
        sizes = size_names(self.graph)
        if clash := sizes & (PRODUCT | RESERVED):
            raise Unfit(f"sizes are called {sorted(clash)}, as the kernel's own variables are")
        self.body.taken |= sizes | PRODUCT | RESERVED

    def add_pointers(self, pointers: Mapping[str, str]) -> None:
        """Values that a reader loaded."""
        for value, pointer in pointers.items():
            self.operands.setdefault(pointer, spelled(self.graph, value))

    def mentioned(self) -> frozenset[str]:
        """The names in the body."""
        return words("\n".join(self.body.lines))

    def sizes(self) -> tuple[str, ...]:
        return tuple(sorted(self.mentioned() & size_names(self.graph)))

    def used_meta(self) -> dict[str, str]:
        """The constants that the body mentions."""
        found = self.mentioned()
        return {name: value for name, value in self.meta.items() if name in found}

    def definition(self) -> str:
        text = "\n".join(self.body.lines)
        divisors = {word for part in DIVISORS.findall(text) for word in words(part)}
        fixed = divisors | self.fixed
        sizes = [f"{name}: tl.constexpr" if name in fixed else name for name in self.sizes()]
        arguments = [
            *self.operands,
            *self.results,
            *sizes,
            *(f"{name}: tl.constexpr" for name in self.used_meta()),
        ]
        head = f"def {self.name}({', '.join(arguments)}):"
        if len(head) > LINE:
            head = f"def {self.name}(\n" + "".join(f"    {line},\n" for line in folded(arguments)) + "):"
        return "\n".join(("@triton.jit", head, *docstring(self.doc), *self.body.lines))

    def launch(self, grid: str, options: Mapping[str, str]) -> list[str]:
        given = [*self.operands.values(), *self.results.values(), *self.sizes()]
        named = [f"{name}={value}" for name, value in {**self.used_meta(), **options}.items()]
        one = f"{self.name}[{grid}]({', '.join((*given, *named))})"
        if len(one) <= LINE:
            return [one]
        return [f"{self.name}[{grid}](", *(f"    {line}," for line in folded([*given, *named])), ")"]


def folded(items: list[str], width: int = LINE - 10) -> list[str]:
    """Items joined by commas, in as few lines as they need."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(item) + 2 <= width:
            lines[-1] += f", {item}"
        else:
            lines.append(item)
    return lines


def docstring(text: str) -> list[str]:
    """The text between quotes, indented, in lines that fit."""
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + len(word) + 1 <= LINE - 8:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    if len(lines) == 1:
        return [f'    """{lines[0]}"""']
    return [f'    """{lines[0]}', *(f"    {line}" for line in lines[1:]), '    """']


@dataclass
class Knobs:
    """The constants of one group: named after it, decided by settings where those say something."""

    group: str
    settings: Mapping[str, Setting]
    made: dict[str, Constant] = field(default_factory=dict)

    def constant(self, name: str, value: int, choices: tuple[int, ...] = (), why: str = "") -> str:
        """Declare a constant and get its name in the file."""
        full = f"{self.group.upper()}_{name}"
        chosen = int(self.settings.get(name, value))
        offered = tuple(sorted({*choices, chosen})) if choices else ()
        self.made.setdefault(full, Constant(full, chosen, offered if len(offered) > 1 else (), why))
        return full

    def constants(self) -> tuple[Constant, ...]:
        return tuple(self.made.values())


def tuple_text(items: tuple[Size, ...] | list[str]) -> str:
    texts = [item.code() if isinstance(item, Size) else item for item in items]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def allocation(value: Value, device: str) -> str:
    """A fresh tensor for a value, with the strides it is to have."""
    shape = tuple_text(value.shape) if value.shape else "()"
    if value.contiguous:
        return f"{value.name} = torch.empty({shape}, device={device}, dtype=torch.{value.dtype})"
    strides = tuple_text(value.stride)
    return (
        f"{value.name} = torch.empty_strided({shape}, {strides}, device={device}, dtype=torch.{value.dtype})"
    )


def is_large(value: Value) -> bool:
    """Whether a 32-bit offset does not reach all of it."""
    return value.elements.value >= REACH


def part_span(depth: Size) -> str:
    """The line that says how much of the summed dimension a part has: whole blocks."""
    blocks = f"({depth} + BLOCK_K - 1) // BLOCK_K"
    return f"part_span: tl.constexpr = ({blocks} + SPLIT_K - 1) // SPLIT_K * BLOCK_K"

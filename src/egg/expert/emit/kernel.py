"""A kernel as a value: its name, its arguments and its lines, from which definition and launch are read.

Which sizes a kernel takes follows from the names that its lines read, so that signature and launch can never
disagree. Sizes that divide an index or bound a loop are compile-time constants, the rest is plain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from egg.expert.emit.language import LINE, Argument, Language, docstring
from egg.expert.emit.names import divisors, read_by
from egg.expert.emit.reader import Body
from egg.expert.emit.triton.language import TRITON
from egg.expert.emit.words import RESERVED
from egg.expert.graph import Graph, Value
from egg.expert.parts import REACH, Constant, Setting, Unfit, spelled
from egg.expert.sizes import Size


def size_names(graph: Graph) -> frozenset[str]:
    """Every named size of the program."""
    sizes = (s for value in graph.values.values() for s in (*value.shape, *value.stride))
    return frozenset(symbol.name for size in sizes for symbol in size.factors) | frozenset(graph.symbols)


@dataclass(frozen=True)
class DeviceFunction:
    """A function that kernels call."""

    name: str
    text: str


@dataclass
class Kernel:
    """One kernel in the making."""

    name: str
    doc: str
    graph: Graph
    own: frozenset[str] = frozenset()
    """What the lines call their own variables: no size may be called so."""
    body: Body = field(default_factory=Body)
    operands: dict[str, str] = field(default_factory=dict)
    """Tensor arguments and what they are called with, in order."""
    results: dict[str, str] = field(default_factory=dict)
    """The same for tensors that are written."""
    meta: dict[str, str] = field(default_factory=dict)
    """Compile-time constants that the lines may read, and what they are called with."""
    fixed: frozenset[str] = frozenset()
    """Sizes that are to be compile-time constants whatever the lines do with them."""
    order: Sequence[str] = ()
    """The sizes that the lines may read, in the order of the arguments; else all of the graph, sorted."""
    wraps: bool = True
    """Whether the docstring may take several lines."""
    width: int = LINE
    """Characters of the definition's head. Beyond that every argument has a line, also if sizes lose their
    annotations later."""
    language: Language = TRITON

    def __post_init__(self) -> None:
        self.order = self.order or sorted(size_names(self.graph))
        if clash := {*self.order} & (self.own | RESERVED):
            raise Unfit(f"sizes are called {sorted(clash)}, as the kernel's own variables are")
        self.body.taken |= {*self.order} | self.own | RESERVED

    def add_pointers(self, pointers: Mapping[str, str]) -> None:
        """Values that a reader loaded."""
        for value, pointer in pointers.items():
            self.operands.setdefault(pointer, spelled(self.graph, value))

    def reads(self) -> frozenset[str]:
        """The names in the lines."""
        return read_by(self.body.lines)

    def sizes(self) -> tuple[str, ...]:
        read = self.reads()
        return tuple(name for name in self.order if name in read)

    def constants(self) -> tuple[str, ...]:
        """Names of the compile-time constants that the lines read."""
        read = self.reads()
        return tuple(name for name in self.meta if name in read)

    def arguments(self) -> tuple[Argument, ...]:
        """What definition and launch agree on."""
        fixed = divisors(self.body.lines) | self.fixed
        return (
            *(Argument(name, given) for name, given in {**self.operands, **self.results}.items()),
            *(Argument(name, name, known=name in fixed) for name in self.sizes()),
            *(Argument(name, self.meta[name], known=True, by_name=True) for name in self.constants()),
        )

    def definition(self) -> str:
        doc = docstring(self.doc) if self.wraps else [f'    """{self.doc}"""']
        return self.language.definition(self.name, self.arguments(), doc, self.body.lines, self.width)

    def launch(self, grid: str, options: Mapping[str, str]) -> list[str]:
        return self.language.launch(self.name, grid, self.arguments(), options)


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

"""What the emitter asks of the language that kernels are written in.

A :class:`~egg.expert.emit.kernel.Kernel` knows its name, its arguments and its lines; how a definition or a
launch of it is spelled is the language's business. Triton is the first
(:mod:`egg.expert.emit.triton.language`); another one is a folder beside it with an object of this shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

LINE = 104
"""Characters of a line of the host in the file, less the indentation it gets there."""


@dataclass(frozen=True)
class Argument:
    """One argument of a kernel, and what the host passes for it."""

    name: str
    given: str
    known: bool = False
    """Whether the kernel is compiled for its value."""
    by_name: bool = False
    """Whether the launch names it."""
    varies: bool = False
    """Whether it differs from launch to launch: then nothing of the kernel depends on its value."""


class Language(Protocol):
    """How kernels are spelled."""

    @property
    def imports(self) -> tuple[str, ...]:
        """Import lines that a file may need; it gets those whose names it reads."""
        ...

    def definition(
        self,
        name: str,
        arguments: Sequence[Argument],
        doc: Sequence[str],
        lines: Sequence[str],
        width: int = LINE,
    ) -> str:
        """The whole definition of a kernel; ``doc`` and ``lines`` are indented, ``width`` is of its head."""
        ...

    def launch(
        self, name: str, grid: str, arguments: Sequence[Argument], options: Mapping[str, str]
    ) -> list[str]:
        """The statement of the host that launches it."""
        ...

    def load(self, address: str, mask: str = "", other: str = "", hint: str = "") -> str: ...

    def store(self, address: str, value: str, mask: str = "") -> str: ...

    def where(self, condition: str, yes: str, no: str) -> str: ...

    def converted(self, value: str, dtype: str) -> str: ...

    def reads(self, dtype: str) -> bool:
        """Whether kernels can read tensors of that dtype."""
        ...

    def expression(
        self, fn: str, texts: Sequence[str], scalars: Sequence[Any], dtypes: Sequence[str], result: str
    ) -> str:
        """A scalar function of operands, which may be numbers."""
        ...

    def literal(self, value: Any) -> str:
        """A number, infinities and NaN included."""
        ...

    def filled(self, value: Any, dtype: str) -> str:
        """An element of a tensor that holds one number, or one size, everywhere."""
        ...


def folded(items: Sequence[str], width: int = LINE - 10) -> list[str]:
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

"""The parameters of ``forward`` as the rest of the method reads them, whatever kinds the signature has.

The written ``forward`` keeps the task's signature. A call fixes how many arguments ``*rest`` holds, so the
first lines compare that number and unpack them into ``rest_0``, ``rest_1`` and so on; ``**options`` must be
empty, as it was when the program was captured. Behind these lines every argument has a name of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from egg.evaluator.task.signature import numbered
from egg.expert.graph import Graph
from egg.expert.writing.breaking import LIMIT


@dataclass(frozen=True)
class Parameters:
    """Names of the arguments of one file's ``forward``, without ``self``."""

    positional: tuple[str, ...]
    rest: tuple[str, ...]
    """The arguments in ``*rest``."""
    keywords: tuple[str, ...]
    """By keyword alone."""
    optional: tuple[str, ...]
    """Positional ones that have a default."""
    star: str = ""
    """What ``*rest`` is called, if there is one."""
    double_star: str = ""

    @classmethod
    def of(cls, graph: Graph, header: str) -> Parameters:
        (forward,) = ast.parse(f"{header} ...").body
        assert isinstance(forward, ast.FunctionDef)
        given = forward.args
        plain = [argument.arg for argument in (*given.posonlyargs, *given.args)]
        positional, keywords = plain[1:], [argument.arg for argument in given.kwonlyargs]
        star = "" if given.vararg is None else given.vararg.arg
        double_star = "" if given.kwarg is None else given.kwarg.arg
        count = max(0, len(graph.arguments) - len(positional)) if star else 0
        rest = numbered(star, count, {*positional, *keywords, star, double_star})
        optional = plain[len(plain) - len(given.defaults) :]
        return cls(tuple(positional), tuple(rest), tuple(keywords), tuple(optional), star, double_star)

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, in the order of a call."""
        return (*self.positional, *self.rest, *self.keywords)

    @property
    def handed(self) -> tuple[str, ...]:
        """As ``forward`` is called with them, each by its name."""
        return (*self.positional, *self.rest, *(f"{name}={name}" for name in self.keywords))

    @property
    def whole(self) -> tuple[str, ...]:
        """As they are handed on unchanged, by position: ``*rest`` as it came."""
        return (*self.positional, *([f"*{self.star}"] if self.rest else []), *self.keywords)

    @property
    def whole_call(self) -> tuple[str, ...]:
        """The same for ``forward``, which takes some of them by keyword alone."""
        plain = len(self.whole) - len(self.keywords)
        return (*self.whole[:plain], *(f"{name}={name}" for name in self.keywords))

    @property
    def plain(self) -> bool:
        """Whether all of them may be given by position, and none is unpacked."""
        return not (self.star or self.double_star or self.keywords)

    def unpacking(self, outside: str) -> Iterator[str]:
        """What stands first in ``forward``; ``outside`` makes the error for a call that does not fit."""
        if self.double_star:
            yield f"if {self.double_star}:"
            given = f'f"forward is given {{sorted({self.double_star})}}"'
            yield f'    raise {outside}({given}, "calls without further keywords")'
        if self.star:
            count = len(self.rest)
            yield f"if len({self.star}) != {count}:"
            yield f'    raise {outside}(f"*{self.star} has {{len({self.star})}} arguments", "{count}")'
        yield from self._unpacked()

    def _unpacked(self) -> Iterator[str]:
        """The arguments in ``*rest`` under names of their own, as many in a row as fit."""
        first = 0
        while first < len(self.rest):
            last = len(self.rest)
            while len(row := self._row(first, last)) > LIMIT - 8 and last > first + 1:
                last -= 1
            yield row
            first = last

    def _row(self, first: int, last: int) -> str:
        names = ", ".join(self.rest[first:last]) + ("," if last == first + 1 else "")
        every = last - first == len(self.rest)
        return f"{names} = {self.star}" if every else f"{names} = {self.star}[{first}:{last}]"

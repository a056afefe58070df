"""The parameters of ``forward`` as the rest of the method reads them, whatever kinds the signature has.

The written ``forward`` keeps the task's signature. A call fixes how many arguments ``*rest`` holds, so the
first lines compare that number and unpack them into ``rest_0``, ``rest_1`` and so on; ``**options`` must be
empty, as it was when the program was captured. Lists, tuples and dictionaries are unpacked as well
(:mod:`egg.expert.containers`). Behind these lines every tensor and every number has a name of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from egg.evaluator.task.signature import numbered
from egg.expert.containers import Container, Path, subscripted, whole_texts
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
    containers: tuple[Container, ...] = ()
    paths: Mapping[str, Path] = field(default_factory=dict)
    """Where there are containers: by its name, where each thing lies that is none."""

    @classmethod
    def of(cls, graph: Graph, header: str) -> Parameters:
        (forward,) = ast.parse(f"{header} ...").body
        assert isinstance(forward, ast.FunctionDef)
        given = forward.args
        plain = [argument.arg for argument in (*given.posonlyargs, *given.args)]
        positional, keywords = plain[1:], [argument.arg for argument in given.kwonlyargs]
        star = "" if given.vararg is None else given.vararg.arg
        double_star = "" if given.kwarg is None else given.kwarg.arg
        handed = {path[0] for path in (*dict(graph.places), *(c.path for c in graph.containers))}
        count = max(0, len(handed) - len(positional)) if star else 0
        rest = numbered(star, count, {*positional, *keywords, star, double_star})
        optional = plain[len(plain) - len(given.defaults) :]
        return cls(
            tuple(positional),
            tuple(rest),
            tuple(keywords),
            tuple(optional),
            star,
            double_star,
            graph.containers,
            graph.paths,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, in the order of a call."""
        handed = {path[0] for path in (*self.paths.values(), *(c.path for c in self.containers))}
        return (*self.paths, *self._as_given[len(handed) :], *self.keywords)

    def handed(self, changed: Mapping[str, str]) -> tuple[str, ...]:
        """As ``forward`` is called with them, each by its name or by what it is ``changed`` to."""
        texts = whole_texts(
            {changed.get(name, name): path for name, path in self.paths.items()}, self.containers
        )
        left_out = (changed.get(name, name) for name in self._as_given[len(texts) :])
        return (*texts, *left_out, *(f"{name}={changed.get(name, name)}" for name in self.keywords))

    @property
    def whole(self) -> tuple[str, ...]:
        """As they are handed on unchanged, by position: ``*rest`` as it came."""
        return self.names if self.containers else (*self._as_they_came, *self.keywords)

    @property
    def whole_call(self) -> tuple[str, ...]:
        """The same for ``forward``, which takes containers, and some by keyword alone."""
        return (*self._as_they_came, *(f"{name}={name}" for name in self.keywords))

    @property
    def plain(self) -> bool:
        """Whether all of them may be given by position, and none is unpacked."""
        return not (self.star or self.double_star or self.keywords or self.containers)

    @property
    def _as_given(self) -> tuple[str, ...]:
        return (*self.positional, *self.rest)

    @property
    def _as_they_came(self) -> tuple[str, ...]:
        return (*self.positional, *([f"*{self.star}"] if self.rest else []))

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
        yield from _unpacked(self.rest, self.star)
        for container in self.containers:
            yield from self._taken_out(container, outside)

    def _taken_out(self, container: Container, outside: str) -> Iterator[str]:
        """What lies in a container under names of its own, once the container has the captured form."""
        name = subscripted(self._as_given[int(container.path[0])], container.path[1:])
        yield f"if {container.differs(name)}:"
        shown = name.replace('"', "'")
        yield f'    raise {outside}("{shown} is something else", "{container.words} there")'
        own = {path: name for name, path in self.paths.items()}
        held = {key: own.get((*container.path, key)) for key in container.keys}
        if container.kind != "dict" and len(held) > 1 and all(held.values()):
            yield from _unpacked([str(inner) for inner in held.values()], name)
            return
        yield from (f"{inner} = {subscripted(name, (key,))}" for key, inner in held.items() if inner)


def _unpacked(names: Sequence[str], source: str) -> Iterator[str]:
    """What ``source`` holds under ``names``, as many in a row as fit."""
    first = 0
    while first < len(names):
        last = len(names)
        while len(row := _row(names, source, first, last)) > LIMIT - 8 and last > first + 1:
            last -= 1
        yield row
        first = last


def _row(names: Sequence[str], source: str, first: int, last: int) -> str:
    listed = ", ".join(names[first:last]) + ("," if last == first + 1 else "")
    every = last - first == len(names)
    return f"{listed} = {source}" if every else f"{listed} = {source}[{first}:{last}]"

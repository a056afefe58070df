"""The host's side of a product: one function that allocates, packs, launches and returns the results.

``forward`` then has one line per product. Inside the function tensors have the short names that kernels know
them by, sizes are read off the shapes of its arguments where they are one of their dimensions, and whatever
else the launches need is local to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from types import MappingProxyType

from egg.expert.emit.keeping import KEEP
from egg.expert.emit.kernel import size_names
from egg.expert.emit.language import docstring
from egg.expert.emit.names import read_by, underscored
from egg.expert.emit.reader import pointer_stem
from egg.expert.graph import Graph
from egg.expert.parts import Group, spelled
from egg.expert.sizes import Size


@dataclass(frozen=True)
class Function:
    """The function's name and text, and the line that calls it."""

    name: str
    text: str
    call: str
    """Or the expression, where its result is handed to another function."""
    sizes: tuple[str, ...]
    """Named sizes that the call hands over."""


@dataclass(frozen=True)
class Host:
    """Names of one group on the host."""

    graph: Graph
    group: Group

    @property
    def name(self) -> str:
        """Of the function: a value of ``forward`` may be called like the group."""
        own = self.group.name
        return f"compute_{own}" if own in self.graph.values or own in size_names(self.graph) else own

    def local(self, stem: str) -> str:
        """A variable of the function, named so that it is no tensor and no size of the program."""
        taken = {*self._tensors().values(), *size_names(self.graph), *self.group.writes(self.graph)}
        return underscored(stem, taken)

    def _tensors(self) -> dict[str, str]:
        """What the function calls the values that it is given, arguments of the program first."""
        found: dict[str, str] = {}
        taken = {*size_names(self.graph), *self.group.writes(self.graph)}
        for name in sorted(self.group.reads(self.graph), key=self._rank):
            value = self.graph.value(name)
            local = pointer_stem(value) if spelled(self.graph, name) != value.name else value.name
            local = underscored(local, taken)
            taken.add(local)
            found[name] = local
        lent = (name for name in self.group.writes(self.graph) if self.graph.value(name).lent)
        return {**found, **{name: name for name in lent}}

    def _rank(self, name: str) -> tuple[bool, int]:
        arguments = self.graph.arguments
        place = arguments.index(name) if name in arguments else len(arguments)
        return self.graph.value(name).origin == "parameter", place

    def function(
        self, lines: Sequence[str], doc: str, handed: Mapping[str, Function] = MappingProxyType({})
    ) -> Function:
        """The function with these lines, which spell tensors as ``forward`` does.

        ``handed``: what other functions made beforehand, by the name it has here.
        """
        results = self.group.allocates(self.graph)
        made = self._function(self.name, lines, doc, results, handed)
        sizes = dict.fromkeys((*made.sizes, *(size for other in handed.values() for size in other.sizes)))
        call = f"{', '.join(results)} = {made.call}" if results else made.call
        return replace(made, call=call, sizes=tuple(sizes))

    def keeping(self, side: str, lines: Sequence[str], doc: str, made: Sequence[str]) -> Function:
        """A function that packs a weight, called through what keeps its result until the weight changes."""
        packing = self._function(f"{self.group.name}_packed_{side}", lines, doc, made, {})
        given = packing.call.removeprefix(f"{packing.name}(")
        return replace(packing, call=f"{KEEP}({packing.name}, {given}")

    def _function(
        self, name: str, lines: Sequence[str], doc: str, made: Sequence[str], handed: Mapping[str, Function]
    ) -> Function:
        tensors = self._tensors()
        own = {spelled(self.graph, value): local for value, local in tensors.items()}
        body = [_respelled(line, own) for line in lines]
        used = read_by(body)
        tensors |= self._mentioned(used - set(tensors.values()) - set(made))
        given = {value: local for value, local in tensors.items() if local in used}
        needed = used & size_names(self.graph)
        shapes, known = self._shapes(needed, given)
        passed = tuple(sorted(needed - known))
        text = [
            f"def {name}({', '.join((*given.values(), *handed, *passed))}):",
            *docstring(doc),
            *(f"    {line}" for line in (*shapes, *body)),
            *([f"    return {', '.join(made)}"] if made else []),
        ]
        others = (other.call for other in handed.values())
        values = ", ".join((*(spelled(self.graph, value) for value in given), *others, *passed))
        return Function(name, "\n".join(text), f"{name}({values})", passed)

    def _mentioned(self, names: Set[str]) -> dict[str, str]:
        """Arguments of the program that lines mention though the group reads none of them: its results are
        to lie on their device."""
        return {name: name for name in self.graph.arguments if name is not None and name in names}

    def _shapes(self, needed: Iterable[str], tensors: dict[str, str]) -> tuple[list[str], set[str]]:
        """Lines that read sizes off the shapes of tensors, and the sizes that are known then."""
        missing, lines = set(needed), []
        for name, local in tensors.items():
            named = [_named(size) for size in self.graph.value(name).shape]
            found = {size: at for at, size in reversed(list(enumerate(named))) if size in missing}
            if not found:
                continue
            names, places = zip(*sorted(found.items(), key=lambda item: item[1]), strict=True)
            missing -= set(names)
            whole = len(names) == len(named) > 1
            shape = f"{local}.shape" if whole else ", ".join(f"{local}.shape[{at}]" for at in places)
            lines.append(f"{', '.join(names)} = {shape}")
        return lines, set(needed) - missing


def keeping(name: str, text: str, weight: str, sizes: Sequence[Size]) -> Function:
    """A function of one weight and of sizes, called through what keeps its result until the weight
    changes."""
    given = ", ".join((name, weight, *map(str, sizes)))
    named = dict.fromkeys(symbol.name for size in sizes for symbol in size.factors)
    return Function(name, text, f"{KEEP}({given})", tuple(named))


def _named(size: Size) -> str | None:
    """The name of a size that is nothing but a name."""
    return size.factors[0].name if len(size.factors) == 1 and size.number == 1 else None


def _respelled(line: str, names: dict[str, str]) -> str:
    for old in sorted(names, key=len, reverse=True):
        if old != names[old]:
            line = re.sub(rf"(?<![\w.]){re.escape(old)}(?!\w)", names[old], line)
    return line

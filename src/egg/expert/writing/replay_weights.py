"""The method of a ``ModelNew`` that lists where its weights lie, which a recorded graph is good for.

It runs in every call, so it must take little of the host, and it must see a weight that lies elsewhere, a
weight that is replaced and a layer that is replaced: nothing is kept from one call to the next. PyTorch takes
a good part of a microsecond for each attribute of a module, and several times that for each index of a
``Sequential``; to iterate over one takes as long as an attribute. So a path that several weights have in
common is followed once, containers are unpacked, and layers of a container that hold the same weights are one
loop. A few weights are simply named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

from egg.expert.emit.words import RESERVED
from egg.expert.graph import HELD, Graph
from egg.expert.parts import spelled
from egg.expert.writing.layout import laid_out
from egg.expert.writing.slots import path_steps

INDEX = 3
"""Attributes that take as long to look up as one index of a ``Sequential``."""
FEW_LOOKUPS, SAVED = 16, 0.6
"""Attributes that a call may look up for its weights one by one, at some 0.4 microseconds each; of more than
that, the part that must be left where each path is followed once."""
WEIGHTS = "weights"

Tree: TypeAlias = "dict[str, Tree | None]"
"""What is used of a module: by ``.name`` or ``[number]`` what is used of that, ``None`` for a tensor."""


def addresses_method(graph: Graph) -> list[str]:
    """The method ``addresses``."""
    paths = dict.fromkeys(
        spelled(graph, name) for name, value in graph.values.items() if value.origin in HELD
    )
    tree, alone = _tree(paths), sum(path.count(".") + INDEX * path.count("[") for path in paths)
    if alone <= FEW_LOOKUPS or _lookups(tree) > SAVED * alone:
        body = f"return [{', '.join(f'{path}.data_ptr()' for path in paths)}]"
    else:
        body = "\n".join((*_Way().listed(tree), f"return [weight.data_ptr() for weight in {WEIGHTS}]"))
    doc = '"""Where the weights lie: a graph is good for these places only."""'
    return ["    def addresses(self):", f"        {doc}", *laid_out(body, 8)]


def _tree(paths: Sequence[str] | dict[str, None]) -> Tree:
    """What is used of ``self``."""
    tree: Tree = {}
    for path in paths:
        _, *above, last = path_steps(path)
        place = tree
        for step in above:
            below = place.setdefault(step, {})
            assert below is not None, f"{path} is a tensor of a tensor"
            place = below
        place[last] = None
    return tree


def _lookups(tree: Tree) -> int:
    """What each layer and weight is looked up for once, a container unpacked like an attribute."""
    below = sum(_lookups(tree) for tree in tree.values() if tree is not None)
    return below + sum(step.startswith(".") for step in tree) + any(step.startswith("[") for step in tree)


class _Way:
    """Statements that go to every weight, each layer on the way looked up once."""

    def __init__(self) -> None:
        self._taken = {*RESERVED, WEIGHTS, "weight"}

    def listed(self, tree: Tree) -> list[str]:
        """Statements that bind the list of all weights."""
        found, statements = self._at("self", tree, named=True)
        return [f"{WEIGHTS} = [{', '.join(found)}]", *statements]

    def _at(self, module: str, tree: Tree | None, named: bool = False) -> tuple[list[str], list[str]]:
        """Of the weights at ``module``: those that one expression names, and statements that add the others.

        ``named``: the expression may be evaluated often.
        """
        if tree is None:
            return [module], []
        if len(tree) == 1:
            ((step, below),) = tree.items()
            return self._at(module + step, below)
        if all(step.startswith("[") for step in tree):
            return [], self._unpacked(module, tree)
        if named:
            return self._below(module, tree)
        name = self._named(_last_name(module))
        found, statements = self._below(name, tree)
        return [], [f"{name} = {module}", *_added(found), *statements]

    def _below(self, module: str, tree: Tree) -> tuple[list[str], list[str]]:
        found: list[str] = []
        statements: list[str] = []
        for step, below in tree.items():
            own, more = self._at(module + step, below)
            found += own
            statements += more
        return found, statements

    def _unpacked(self, container: str, tree: Tree) -> list[str]:
        """For layers of a container, those with the same weights in a loop."""
        items, runs = f"[*{container}]", list(_runs(tree))
        before: list[str] = []
        found: list[str] = []
        statements: list[str] = []
        if len(runs) > 1:
            name = self._named(_last_name(container) if "." in container else "layers")
            before, items = [f"{name} = {items}"], name
        for first, last in runs:
            below = tree[f"[{first}]"]
            if first == last:
                own, more = self._at(f"{items}[{first}]", below, named=True)
                found += own
                statements += more
                continue
            layer = self._named(_singular(_last_name(container)))
            own, more = self._at(layer, below, named=True)
            statements.append(f"for {layer} in {items}[{first or ''}:{last + 1}]:")
            statements += [f"    {line}" for line in (*_added(own), *more)]
        return [*before, *_added(found), *statements]

    def _named(self, name: str) -> str:
        """A variable that no other statement binds."""
        number, new = 1, name
        while new in self._taken:
            number += 1
            new = f"{name}_{number}"
        self._taken.add(new)
        return new


def _added(found: Sequence[str]) -> list[str]:
    return [f"{WEIGHTS} += [{', '.join(found)}]"] if found else []


def _runs(tree: Tree) -> Iterator[tuple[int, int]]:
    """First and last number of layers one after the other that hold the same weights."""
    numbers = sorted(int(step[1:-1]) for step in tree)
    first = numbers[0]
    for number, after in pairwise([*numbers, -1]):
        if after != number + 1 or tree[f"[{after}]"] != tree[f"[{number}]"]:
            yield first, number
            first = after


def _last_name(module: str) -> str:
    """``conv`` of ``self.features[0].conv[1]``."""
    return re.findall(r"[A-Za-z_]\w*", module)[-1]


def _singular(name: str) -> str:
    return name[:-1] if len(name) > 3 and name.endswith("s") and not name.endswith("ss") else "layer"

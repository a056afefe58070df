"""How named sizes are found, and which of them the constructor decides rather than the caller."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from egg.expert.algebra.upsampled import PHASES
from egg.expert.emit.names import words
from egg.expert.graph import HELD, Graph, Value, once
from egg.expert.reading.formulas import formula_of

COMPUTING = frozenset({"conv", "pool", "cat"})
"""Operators that make sizes by a formula."""


def input_values(graph: Graph) -> list[Value]:
    """The tensors among the arguments of ``forward``, in order."""
    return [graph.value(name) for name in graph.arguments if name is not None]


@once
def held_sizes(graph: Graph) -> frozenset[str]:
    """Sizes that the constructor decides: those in a parameter's shape, those read from ``self``, and a size
    of an input from which alone an operator computes one of a parameter's (``n * n + 1`` positions)."""
    shapes = (value.shape for value in graph.values.values() if value.origin in HELD)
    found = {symbol.name for shape in shapes for size in shape for symbol in size.factors}
    for name, text in graph.symbols.items():
        reads = re.findall(r"[A-Za-z_]\w*", text)
        if "self" in reads and not any(value.path in reads for value in input_values(graph)):
            found.add(name)
    texts = rules(graph)
    for name in sorted(found & texts.keys()):
        chosen = set(_determining(texts, name)) - found
        found |= chosen if len(chosen) == 1 else set()
    return frozenset(found)


def _determining(texts: Mapping[str, str], name: str) -> Iterator[str]:
    """The sizes that stand in the arithmetic of ``name``, as far as it rounds nothing."""
    for word in words(texts[name]) & texts.keys() - {name}:
        if "." in texts[name] or "//" in texts[name]:
            return
        yield from (word, *_determining(texts, word))


@once
def rules(graph: Graph) -> Mapping[str, str]:
    """How each named size is found, every one behind those it is computed from.

    Two inputs may have sizes of which one follows from the other (what is added to a pooled tensor has its
    size). The graph reads both; a call is only right where the operator between them makes one of the other,
    so its formula is the rule.
    """
    texts = dict(graph.symbols)
    for node in graph:
        operands = graph.operands(node)
        computes = node.op in COMPUTING and PHASES not in node.attributes
        for number, name in enumerate(node.outputs if computes else ()):
            for dim, size in enumerate(graph.value(name).shape):
                symbol = size.code()
                if "." not in texts.get(symbol, "") or texts[symbol] != graph.symbols[symbol]:
                    continue
                text = formula_of(node, operands, number, dim, size.values) or symbol
                if text.isidentifier() or any(symbol in reach(texts, word) for word in words(text)):
                    continue
                texts[symbol] = text
    found: dict[str, str] = {}

    def add(name: str) -> None:
        for word in words(texts[name]) & texts.keys() - {*found, name}:
            add(word)
        found[name] = texts[name]

    for name in texts:
        add(name)
    return found


def reach(texts: Mapping[str, str], name: str) -> set[str]:
    """A size and all that it is computed from."""
    found = {name}
    for word in words(texts.get(name, "")) - {name}:
        found |= reach(texts, word)
    return found

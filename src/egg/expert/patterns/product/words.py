"""Operands several of whose elements share a word of memory: weights of four bits, eight in 32.

Read element by element, every lane loads the word of its own element and shifts it, so a word is loaded eight
times. A tile with one dimension more, the place within the word, loads each word once: whatever depends on
the word alone is computed in that shape, and broadcasting does the rest. The last step lays the two
dimensions together, which moves nothing where a thread holds whole words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from egg.expert.emit.reader import address, through_view
from egg.expert.graph import HALF, Graph, Node, Value
from egg.expert.index import Expr, Index, Negative, loop_index
from egg.expert.parts import Unfit
from egg.expert.patterns.product.problem import Problem
from egg.expert.sizes import ONE, Size

PER_WORD = (8, 4, 2, 16)
"""Elements of a word; more than one of these is unusual."""


@dataclass(frozen=True)
class Words:
    """The index along which elements share words."""

    symbol: str
    """The loop index of a plain tile."""
    each: int
    """Elements of a word."""
    count: Size
    """Words along the whole dimension."""
    contiguous: bool
    """Whether words along it lie side by side in memory."""

    def substituted(self, index: Index, word: str, lane: str) -> Index:
        """The index of an operand by word and place in the word."""
        whole = loop_index(word, self.count) * self.each + loop_index(lane, Size(self.each))
        return tuple(at.substituted({self.symbol: whole}) for at in index)


def shared_words(problem: Problem) -> Words | None:
    """How elements of the right operand share words."""
    k, column = loop_index("k", problem.depth), loop_index("column", problem.columns)
    index = problem.right_index(loop_index("batch", problem.batch), k, column)
    return words_of(problem, problem.right, index, {"column": problem.columns, "k": problem.depth})


def words_of(problem: Problem, operand: Value, index: Index, sizes: dict[str, Size]) -> Words | None:
    """How elements of an operand share words along one of the loop indices ``sizes``; ``None``: they do not.

    They do where something is loaded at the quotient of the index alone, and everything else that this index
    reaches is found at a whole number of words as well.
    """
    nodes, sources = problem.behind(operand)
    if operand.dtype not in HALF or not any(node.op == "pointwise" for node in nodes):
        return None
    reached = list(_loads(problem.graph, {id(n) for n in nodes}, operand.name, index))
    for symbol, size in sizes.items():
        for each in PER_WORD:
            count = size.over(Size(each))
            shared = [(name, at) for name, at in reached if _by_word(at, symbol, each)]
            if count is not None and shared and len(sources) > 1:
                return Words(symbol, each, count, _side_by_side(problem.graph, shared, symbol))
    return None


def _by_word(index: Index, symbol: str, each: int) -> bool:
    """Whether an index depends on the word alone."""
    atoms = [atom for at in index for atom, _ in at.terms if symbol in atom.symbols()]
    return bool(atoms) and all(
        atom.base is not None and atom.modulus is None and atom.divisor == Size(each) for atom in atoms
    )


def _side_by_side(graph: Graph, loads: list[tuple[str, Index]], symbol: str) -> bool:
    """Of the largest tensor."""
    name, index = max(loads, key=lambda load: graph.value(load[0]).bytes)
    steps = [factor for atom, factor in address(graph.value(name), index).terms if symbol in atom.symbols()]
    return steps == [ONE]


def _loads(graph: Graph, inside: set[int], name: str, index: Index) -> Iterator[tuple[str, Index]]:
    """What an element is computed from, and where; nothing of what lies behind other operators."""
    node = graph.producer(name)
    if node is None or id(node) not in inside:
        yield name, index
        return
    try:
        if node.op == "view":
            yield from _loads(graph, inside, str(node.inputs[0]), through_view(graph, node, index))
        elif node.op in ("pointwise", "where"):
            for given in node.inputs:
                if given is not None:
                    yield from _loads(graph, inside, given, _fitted(graph, node, given, index))
    except (Unfit, Negative):
        return


def _fitted(graph: Graph, node: Node, name: str, index: Index) -> Index:
    own = graph.value(name).shape
    skip = graph.result(node).rank - len(own)
    return tuple(Expr() if size == ONE else at for at, size in zip(index[skip:], own, strict=True))

"""How many elements a file's kernels can count: which products of sizes its guard compares with that.

Offsets of 32 bits are half the work of 64-bit ones in kernels that do little else than move memory, so that
is what kernels have where the tensors of the captured call allow it. Sizes that the caller chooses can grow
beyond: a part states which counts must not (:attr:`~egg.expert.parts.Part.counts`), and a call that exceeds
one is refused when its signature is first seen, which costs later calls nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod

from egg.expert.fusion.runtime_sizes import is_free
from egg.expert.graph import Graph
from egg.expert.parts import Part
from egg.expert.reading.held import held_sizes

PRODUCT = re.compile(r"\w+(?: \* \w+)*")


def largest_counts(parts: Iterable[Part], graph: Graph) -> tuple[str, ...]:
    """Counts that follow sizes which the caller chooses, without those that others exceed at every size."""
    texts = dict.fromkeys(count for part in parts for count in part.counts)
    held = held_sizes(graph)
    chosen = [text for text in texts if _is_chosen(_names(text), graph.symbols, held)]
    return tuple(text for text in chosen if not any(_exceeds(other, text) for other in chosen))


def _names(text: str) -> list[str]:
    return re.findall(r"[A-Za-z_]\w*", text)


def _is_chosen(names: Iterable[str], symbols: Mapping[str, str], held: frozenset[str]) -> bool:
    """Whether the caller chooses one of these sizes, or one that they follow from; all have a name."""
    waiting, met, found = list(names), set[str](), False
    if not symbols.keys() >= {*waiting}:
        return False
    while waiting:
        name = waiting.pop()
        met.add(name)
        found |= is_free(symbols[name]) and name not in held
        waiting += [word for word in _names(symbols[name]) if word in symbols and word not in met]
    return found


def _exceeds(one: str, other: str) -> bool:
    """Whether a product has all factors of another one, and more."""
    if one == other or not PRODUCT.fullmatch(one) or not PRODUCT.fullmatch(other):
        return False
    (many, names), (few, fewer) = _factors(one), _factors(other)
    return many >= few and fewer <= names


def _factors(text: str) -> tuple[int, Counter[str]]:
    words = text.split(" * ")
    return prod(int(word) for word in words if word.isdigit()), Counter(w for w in words if not w.isdigit())

"""Sizes that an operator takes for one: equal at every captured size, or repeated at every captured size.

PyTorch repeats a dimension of 1. So a capture at which a dimension happens to be 1 proves nothing of the
operand beside it, and a size that was separate there is none that the caller may choose: the kernels read
as if both were equal. Wherever operands are repeated to a common shape, two aligned dimensions must be the
same size, or one of them the number 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from egg.expert.graph import Node, Value
from egg.expert.sizes import ONE, Size

Shape = tuple[Size, ...]


def disagreement(
    node: Node, operands: Sequence[Value | None], results: Sequence[Value]
) -> tuple[Size, Size] | None:
    """Two sizes that the node needs to be equal, and that differ at a captured size."""
    for shapes in _repeated(node, [o.shape for o in operands if o is not None], [r.shape for r in results]):
        for a, b in combinations(shapes, 2):
            for one, other in zip(reversed(a), reversed(b), strict=False):
                if one != other and ONE not in (one, other):
                    return one, other
    return None


def _repeated(node: Node, given: Sequence[Shape], made: Sequence[Shape]) -> Iterator[Sequence[Shape]]:
    """Shapes that a node repeats to one, aligned at the end."""
    match node.op:
        case "pointwise" | "where":
            yield [*given, *made]
        case "view" if node["how"] == "expand":
            yield [*given, *made]
        case "cat" | "joined":
            dim = node["dim"]
            yield [shape[:dim] + shape[dim + 1 :] for shape in (*given, *made)]
        case "matmul":
            a, b, *bias = given
            yield [a[:-2], b[:-2], made[0][:-2]]
            yield [a[-1:], b[-2:-1]]
            yield [*bias, made[0]]
        case "triangular_solve":
            matrix, right = given
            yield [matrix[:-2], right[:-2], made[0][:-2]]
            yield [matrix[-2:-1], matrix[-1:], right[-2:-1]]
        case "solve":
            matrix, right = given
            yield [matrix[:-2], right[:-2], made[0][:-2]]
        case "attention":
            q, k, v, *mask = given
            yield [q[:-3], k[:-3], v[:-3], made[0][:-3]]
            yield [k[-3:-1], v[-3:-1]]
            yield [q[-1:], k[-1:]]
            yield [*mask, (*q[:-1], k[-2])]
        case "gather" if node["how"] == "gather":
            source, index = (tuple(s for d, s in enumerate(g) if d != node["dim"]) for g in given[:2])
            pairs = [pair for pair in zip(source, index, strict=False) if pair[0].value == pair[1].value]
            yield [tuple(pair[side] for pair in pairs) for side in (0, 1)]
        case _:
            return

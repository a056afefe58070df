"""``forward`` of a file whose kernels note matrices without a factorisation
(:mod:`egg.expert.emit.failures`): what it was before becomes a method of another name, behind which the new
one raises."""

from __future__ import annotations

from collections.abc import Sequence

from egg.expert.containers import subscripted
from egg.expert.emit.failures import MAKE, RAISE
from egg.expert.emit.keeping import MAKE_ONCE
from egg.expert.emit.names import underscored, words
from egg.expert.graph import Graph
from egg.expert.reading.held import input_values
from egg.expert.writing.constructor import Constructor
from egg.expert.writing.layout import laid_out
from egg.expert.writing.parameters import Parameters

COMPUTED = "computed"


def with_errors(graph: Graph, forward: Sequence[str], built: Constructor) -> list[str]:
    """The lines of ``forward`` under another name, and the new ``forward`` before them."""
    name = underscored(COMPUTED, words(built.model) | words("\n".join(forward)))
    given = Parameters.of(graph, built.forward)
    handed = [*given.positional, *([f"*{given.star}"] if given.star else [])]
    handed += [f"{keyword}={keyword}" for keyword in given.keywords]
    handed += [f"**{given.double_star}"] if given.double_star else []
    device = f"{_tensor(graph, given)}.device"
    lines = [
        *laid_out(built.forward, 4),
        *_BODY.format(
            call=f"self.{name}({', '.join(handed)})",
            look=f"{RAISE}({MAKE_ONCE}({MAKE}, {device}))",
            results=underscored("results", set(given.names)),
        ).split("\n"),
        "",
    ]
    at = next(place for place, line in enumerate(forward) if line.lstrip().startswith("def forward("))
    renamed = forward[at].replace("def forward(", f"def {name}(", 1)
    return [*forward[:at], *lines, renamed, *forward[at + 1 :]]


def _tensor(graph: Graph, given: Parameters) -> str:
    """An argument that is a tensor, as the first lines of the method reach it."""
    path = input_values(graph)[0].path
    if path not in given.paths:
        return path
    first, *inside = given.paths[path]
    if int(first) < len(given.positional):
        return subscripted(given.positional[int(first)], tuple(inside))
    return subscripted(f"{given.star}[{int(first) - len(given.positional)}]", tuple(inside))


_BODY = '''\
        """The results; a matrix without a factorisation raises as in PyTorch, which waits for the GPU."""
        {results} = {call}
        {look}
        return {results}'''

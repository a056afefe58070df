"""Attention of few queries over many keys: parts of the keys side by side, and a kernel that joins them.

One program per head cannot keep a GPU's memory busy while it reads a long cache alone. So the keys of a block
of queries are shared out; every part leaves its sum of values, relative to the largest score *it* saw, with
that score and the sum of its weights. To join them takes one factor per part and row. The parts are added in
a fixed order, so that the result is the same every time.
"""

from __future__ import annotations

from egg.expert.emit.kernel import Kernel
from egg.expert.emit.words import ATTENTION
from egg.expert.patterns.attention.problem import Problem, braced, store_result
from egg.expert.patterns.attention.triton.scores import write_sink
from egg.expert.sizes import Size

MOST_PARTS = 64
"""As many as a program that joins them holds at once."""


def rows_of(problem: Problem) -> Size:
    """Queries of all heads."""
    return problem.batch * problem.queries


def names(problem: Problem) -> tuple[str, str, str]:
    """What ``forward`` calls the parts' values, largest scores and sums of weights."""
    name = problem.group.name
    return f"{name}_parts", f"{name}_maxima", f"{name}_sums"


def store_part(problem: Problem, kernel: Kernel) -> None:
    """The end of a program that saw a part of the keys."""
    line = kernel.body.line
    values, maxima, sums = names(problem)
    kernel.results |= {"parts_ptr": values, "maxima_ptr": maxima, "sums_ptr": sums}
    line(f"at = (share * ({rows_of(problem)}) + batch * {braced(problem.queries)}).to(tl.int64) + query")
    line(f"inside = query < {problem.queries}")
    whole = f"inside & (width < {problem.width})"
    line(f"tl.store(parts_ptr + at * {braced(problem.width)} + width, total, mask={whole})")
    line("tl.store(maxima_ptr + at, top[:, None], mask=inside)")
    line("tl.store(sums_ptr + at, sums[:, None], mask=inside)")


def write_joining(problem: Problem, kernel: Kernel, lifted: bool) -> None:
    """Bring all parts of a row to its largest score, add them up, and do what follows: a program has one row,
    and reads all of its parts at once."""
    body, line = kernel.body, kernel.body.line
    body.taken |= ATTENTION
    values, maxima, sums = names(problem)
    kernel.operands |= {"parts_ptr": values, "maxima_ptr": maxima, "sums_ptr": sums}
    cast = ".to(tl.int64)" if problem.wide_offsets else ""
    line("row = tl.program_id(0)")
    line(f"batch = (row // {braced(problem.queries)}){cast}")
    line(f"query = (row % {braced(problem.queries)} + tl.arange(0, 1)[:, None]){cast}")
    line("width = tl.arange(0, BLOCK_V)[None, :]")
    line("share = tl.arange(0, SHARES)[:, None]")
    line("inside = share < SPLIT")
    line(f"at = share.to(tl.int64) * ({rows_of(problem)}) + row")
    line('top = tl.load(maxima_ptr + at, mask=inside, other=-float("inf"))')
    line("most = tl.max(top, axis=0, keep_dims=True)")
    line('base = tl.where(most == -float("inf"), 0.0, most)  # rows that see nothing')
    line("factor = tl.exp2(top - base)")
    line("norm = tl.load(sums_ptr + at, mask=inside, other=0.0) * factor")
    line("norm = tl.sum(norm, axis=0, keep_dims=True)")
    whole = f"inside & (width < {problem.width})"
    line(f"total = tl.load(parts_ptr + at * {braced(problem.width)} + width, mask={whole}, other=0.0)")
    line("total = tl.sum(total * factor, axis=0, keep_dims=True)")
    write_quotient(problem, kernel, "norm", "most", lifted)


def write_quotient(problem: Problem, kernel: Kernel, norm: str, top: str, lifted: bool) -> None:
    """The sum of values over that of weights, which belong to the largest score ``top``, stored with what
    follows; rows that saw nothing as they are to be. ``lifted``: weights were, for cutting into halves."""
    norm = write_sink(problem, kernel, norm, top, lifted)
    if problem.mask is None or problem.lonely or problem.sink is not None:
        kernel.body.line(f"result = total / {norm}")
    else:
        kernel.body.line(f"result = tl.where({norm} == 0, 0.0, total / {norm})")  # a NaN stays
    store_result(problem, kernel, "result")

"""What a kernel does with scores beside masking them: functions before the mask, and a sink at the end.

Functions are applied to scores in their own scale; exponentials to base 2 want them times ``log2(e)``, which
is multiplied in behind them, with a number that the last function multiplies. Operands of functions are the
same for all keys: they are read once, before the loop over the keys.

A sink is a logit beside those of the keys that has no value. It joins when all keys have been seen: maximum
and sum are brought to the larger of both, as for one more block of keys.
"""

from __future__ import annotations

from egg.expert.emit.kernel import Kernel
from egg.expert.emit.reader import Reader
from egg.expert.emit.triton.scalar_call import number_text
from egg.expert.graph import Value
from egg.expert.index import Expr
from egg.expert.patterns.attention.problem import LOG2_E, Function, Problem, mask_reader
from egg.expert.sizes import ONE

LIFT = 14
"""Powers of two that weights are lifted by, where they are cut into halves: the lower needs room below."""


def read_others(problem: Problem, reader: Reader) -> list[str]:
    """The operands of the functions, at the queries of a block."""
    return [_at_row(problem, reader, value) for value in problem.others]


def write_functions(problem: Problem, kernel: Kernel, others: list[str], rough: bool) -> None:
    """From scaled scores to those that are masked, for exponentials to base 2.

    ``rough``: operands have 16 bits, so that a hyperbolic tangent may be off by a few units of fp32 around 1.
    """
    if not problem.functions:
        return
    *before, last = problem.functions
    functions = before if last.factor is not None else [*before, last]
    left = list(others)
    for function in functions:
        kernel.body.line(f"scores = {_applied(kernel, function, left, rough)}")
    factor = LOG2_E if last.factor is None else f"({number_text(last.factor)} * {LOG2_E})"
    kernel.body.line(f"scores = scores * {factor}")


def _applied(kernel: Kernel, function: Function, others: list[str], rough: bool) -> str:
    if function.fn == "tanh" and rough:
        return f"1.0 - 2.0 / (tl.exp2(scores * {2 * LOG2_E}) + 1.0)"
    texts = ["scores"]
    if function.place is not None:
        texts.insert(1 - function.place, others.pop(0))
    kinds = ["float32"] * len(texts)
    return kernel.language.expression(function.fn, texts, function.scalars, kinds, "float32")


def write_sink(problem: Problem, kernel: Kernel, norm: str, top: str, lifted: bool) -> str:
    """Bring ``total`` and ``norm``, which belong to the maximum ``top``, to what they are with the sink;
    the name of the sum of weights then. All of them are columns."""
    if problem.sink is None:
        return norm
    body, reader = kernel.body, mask_reader(problem, kernel)
    sink = body.let("sink", f"{_at_row(problem, reader, problem.sink)} * {LOG2_E}")
    highest = body.let("highest", f"tl.maximum({top}, {sink})")
    body.line(f'{highest} = tl.where({highest} == -float("inf"), 0.0, {highest})')
    kept = body.let("kept", f"tl.exp2({top} - {highest})")
    lift = f" + {LIFT}" if lifted else ""
    joined = body.let("joined", f"{norm} * {kept} + tl.exp2({sink} - {highest}{lift})")
    if problem.lonely and problem.mask is not None:  # a row without keys has no share to be rescaled
        body.line(f'{joined} = tl.where({norm} == 0, float("nan"), {joined})')
    body.line(f"total = total * {kept}")
    kernel.add_pointers(reader.pointers)
    return joined


def _at_row(problem: Problem, reader: Reader, value: Value) -> str:
    """A value that has one number for all keys, at ``query``."""
    row = problem.index("query", problem.queries, "column", ONE)
    own = row[len(row) - value.rank :]
    index = tuple(Expr() if size == ONE else at for at, size in zip(own, value.shape, strict=True))
    return reader.read(value.name, index)

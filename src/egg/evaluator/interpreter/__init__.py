"""Triton's CPU interpreter, mended from outside so that it can judge kernels.

Out of the box the interpreter computes bf16 as integers, rounds no ``tl.dot`` operand to
TF32, knows no libdevice function, cannot autotune, reads past the end of a tensor without a
word and hides every race between programs, because programs run one after another.
:func:`install` repairs that in place, once, in a worker process that has
``TRITON_INTERPRET=1`` in its environment and has not yet imported the candidate.

Each module mends one thing: ``narrow`` (bf16, fp8, TF32 rounding), ``builder`` (arithmetic
and casts in those types), ``dot`` (matrix products at their precision), ``reduce``
(reductions and scans), ``libdevice``, ``special`` and ``approximate`` (the math library), ``contract``
(products and sums in one rounding), ``memory`` (bounds), ``races``, ``lanes``, ``ordering`` and ``turns``
(conflicts between programs and between lanes), ``hints`` (what a
kernel swears of its numbers), ``language`` (what Python's syntax means inside a
kernel), ``autotune`` and ``launch``. All are guarded by what the installed Triton offers,
never by its version number.
"""

from __future__ import annotations

import os

from egg.evaluator.interpreter.fault import KernelFault
from egg.evaluator.interpreter.session import Launch, Session

__all__ = ["KernelFault", "Launch", "Session", "install"]


def install(*, check_bounds: bool = True, check_races: bool = True) -> Session:
    """Mend the interpreter of this process and start recording; call it once, before any kernel exists.

    Raises ``RuntimeError`` where ``TRITON_INTERPRET`` is not set: kernels decorated in such a
    process would be compiled, and nothing would be checked. That is the harness's mistake,
    never a candidate's, so it is not a :class:`KernelFault`.
    """
    if os.environ.get("TRITON_INTERPRET", "") not in ("1", "true", "on", "yes", "y"):
        raise RuntimeError("TRITON_INTERPRET=1 must be in the worker's environment before Triton is imported")

    from egg.evaluator.interpreter import autotune, caching, hints, language, launch, libdevice
    from egg.evaluator.interpreter import reduce as reductions

    session = Session(check_bounds=check_bounds, check_races=check_races)
    caching.mend()
    builder = launch.mend(session)
    language.mend()
    hints.mend(builder.where)
    reductions.mend()
    libdevice.mend(builder)
    session.configurations = autotune.mend(session)
    return session

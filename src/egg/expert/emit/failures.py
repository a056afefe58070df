"""Matrices without a factorisation: kernels note them, and ``forward`` raises what PyTorch raises.

PyTorch waits for the GPU at every factorisation, to raise where a matrix is singular or not positive
definite. A kernel cannot raise, and a CUDA graph cannot wait. So a kernel notes the first item of a batch
whose factorisation fails, and where it fails, as one number (:data:`FIRST`, :data:`CODES`) in a small tensor
that the module keeps, with a place for every function that PyTorch's errors name. ``forward`` computes
everything, by launches or a replay, and looks at that tensor at its end: it waits for the GPU once in a
call, raises the same error with the same words, and clears what was noted. While nothing fails, nobody
writes there.
"""

from __future__ import annotations

from collections.abc import Sequence

from egg.expert.emit.keeping import MAKE_ONCE

FAILURES = "failures"
"""How lines call the tensor."""
MAKE = "make_failures"
RAISE, RAISE_ONE = "raise_failures", "raise_failure"
FIRST, CODES = 2**40, 64
"""A number that is larger than any item's, and one larger than any code: what is noted is ``(FIRST - item) *
CODES + code``, or the code alone where there is one matrix and no batch. The largest is the first item's."""
_MINOR = (
    "The factorization could not be completed because the input is not positive-definite (the leading minor "
    "of order # is not positive-definite)."
)
_PIVOT = (
    "The diagonal element # is zero, the inversion could not be completed because the input matrix is "
    "singular."
)
_SINGULAR = "The solver failed because the input matrix is singular."
REASONS = {
    "linalg.cholesky": _MINOR,
    "linalg.cholesky_ex": _MINOR,
    "cholesky": _MINOR,
    "linalg.inv": _PIVOT,
    "linalg.inv_ex": _PIVOT,
    "torch.linalg.solve": _SINGULAR,
    "torch.linalg.solve_ex": _SINGULAR,
}
"""What PyTorch's errors say behind the name of the function and the item of the batch; ``#``: the code."""
UNCHECKED = {"inv_ex": "linalg.inv", "solve_ex": "torch.linalg.solve", "cholesky_ex": "linalg.cholesky"}
"""Functions of a library that do not look, and those in whose place they are called."""
NOTE = "note_failures"
HELPERS = {
    MAKE: f'''def {MAKE}(device):
    """Where kernels note matrices without a factorisation: a number for each function, zero for none."""
    return torch.zeros(({len(REASONS)},), dtype=torch.int64, device=device)''',
}


NOTING = {
    **HELPERS,
    NOTE: f'''def {NOTE}(failures, place, codes):
    """Note the first item of a batch whose factorisation failed, and where, by a library's error codes."""
    items = torch.arange(codes.numel(), device=codes.device).reshape(codes.shape)
    noted = ({FIRST} - items) * {CODES} + codes if codes.dim() else codes.long()
    failures[place] = torch.maximum(failures[place], torch.where(codes > 0, noted, 0).max())''',
}
"""The same for calls of a library."""


def slot(name: str) -> int:
    """The place of a function."""
    return list(REASONS).index(name)


def allocated(device: str) -> str:
    """The line that gets the tensor."""
    return f"{FAILURES} = {MAKE_ONCE}({MAKE}, {device})"


def raising(names: Sequence[str]) -> dict[str, str]:
    """The functions of the host that raise, for these functions of PyTorch in this order."""
    calls = "\n".join(f'    {RAISE_ONE}(noted[{slot(name)}], "{name}", "{REASONS[name]}")' for name in names)
    both = f'''def {RAISE}({FAILURES}):
    """Raise what PyTorch raises where kernels noted a matrix without a factorisation. Waits for the GPU."""
    noted = {FAILURES}.tolist()
    if not any(noted):
        return
    {FAILURES}.zero_()
{calls}'''
    return {RAISE_ONE: _ONE, RAISE: both}


_ONE = f'''def {RAISE_ONE}(noted, name, reason):
    """Raise for a function of PyTorch: what was noted is the first item of the batch, and where it fails."""
    first, code = divmod(noted, {CODES})
    if code:
        item = f"(Batch element {{{FIRST} - first}}): " if first else ""
        text = reason.replace("#", str(code))
        raise torch.linalg.LinAlgError(f"{{name}}: {{item}}{{text}}")'''

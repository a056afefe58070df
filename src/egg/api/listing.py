"""The compiled code of one kernel of a file: what ``egg profile --code`` and the tools ``code`` show."""

from __future__ import annotations

from egg.api.profiling import ProfileOptions
from egg.core.errors import UsageError
from egg.core.listing import Listing
from egg.core.source import Candidate, Task

SCHEMA = "egg.listing/1"


def listing_of(task: Task, candidate: Candidate, kernel: str, options: ProfileOptions) -> tuple[Listing, str]:
    """The code of ``kernel`` (``NAME`` or ``NAME:2``) with the GPU it is for.

    :class:`UsageError` names the kernels of the file where that one is not among them.
    """
    from egg.evaluator.profiling.ladder import code

    found = code(
        task,
        candidate,
        kernel,
        device=options.device,
        target=options.target,
        precision=options.precision,
    )
    if found.listing is not None:
        return found.listing, found.gpu
    if not found.kernels:
        raise UsageError("the file launches no Triton kernel of its own", "there is no code to show")
    wrong = f"the file launches no kernel {kernel!r}" if kernel else "the file launches several kernels"
    raise UsageError(wrong, f"name one of {', '.join(found.kernels)}")

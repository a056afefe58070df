"""A kernel file becomes a module."""

from __future__ import annotations

from typing import Any

from egg.evaluator.restrict.execute import execute
from egg.evaluator.restrict.names import CANDIDATE_FILE


def import_candidate(source: str, name: str = "", *, restricted: bool = False) -> Any:
    """Run the text of a kernel file as a module whose lines Triton finds without a file."""
    module = execute(source, f"{name}candidate", f"{name}{CANDIDATE_FILE}", restricted=restricted)
    if not callable(getattr(module, "ModelNew", None)):
        raise ImportError("the kernel file defines no ModelNew")
    return module

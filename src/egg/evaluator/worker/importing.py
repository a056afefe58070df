"""A kernel file becomes a module."""

from __future__ import annotations

import secrets
import string
import sys
from typing import Any

from egg.evaluator.restrict.execute import execute
from egg.evaluator.restrict.names import CANDIDATE_FILE


def import_candidate(source: str, name: str = "", *, restricted: bool = False) -> Any:
    """Run the text of a kernel file as a module whose lines Triton finds without a file."""
    module = execute(source, _drawn_name(), f"{name}{CANDIDATE_FILE}", restricted=restricted)
    if not callable(getattr(module, "ModelNew", None)):
        raise ImportError("the kernel file defines no ModelNew")
    return module


def _drawn_name() -> str:
    """A name as callers give one: a file's or a package's, or that of a kernel which this package loads.

    The printed form of a class or a kernel shows it: a file that does other things under a name of the
    judge's would do them in front of callers too.
    """
    while True:
        word = "".join(secrets.choice(string.ascii_lowercase) for _ in range(3 + secrets.randbelow(8)))
        forms = (word, f"{word}.kernel", "kernel", f"egg_kernel_{word}", f"egg_{word}_{secrets.token_hex(4)}")
        name = secrets.choice(forms)
        if name not in sys.modules and word != __name__.partition(".")[0]:
            return name

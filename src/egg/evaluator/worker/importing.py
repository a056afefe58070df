"""A kernel file becomes a module."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

from egg.evaluator.worker import faults


def import_candidate(source: str, name: str = "") -> Any:
    """Import a kernel file from a file of its own, so that Triton can read its source."""
    path = os.path.join(os.getcwd(), f"{name}{faults.CANDIDATE_FILE}")
    with open(path, "w", encoding="utf-8") as file:
        file.write(source)
    spec = importlib.util.spec_from_file_location(f"{name}candidate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    if not callable(getattr(module, "ModelNew", None)):
        raise ImportError("the kernel file defines no ModelNew")
    return module

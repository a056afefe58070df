"""Runs scripts of small kernels in the mended interpreter.

Whether a kernel is interpreted is decided when ``@triton.jit`` decorates it, so each group of
kernels runs in a process of its own, as a candidate does, and reports what it saw as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import egg

PRELUDE = """
import json
from egg.evaluator.interpreter import KernelFault, Launch, install

session = install()

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

torch.manual_seed(0)
out = {}

def fault(call):
    try:
        call()
    except KernelFault as error:
        return {"reason": error.reason, "message": str(error)}
    return None

def error(got, want):
    return float((got.double() - want.double()).abs().max())
"""

Facts = dict[str, Any]


@pytest.fixture(scope="module")
def interpret(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Facts]:
    """Run a script of kernels under the interpreter and return its ``out``; each script runs once."""
    folder = tmp_path_factory.mktemp("kernels")
    seen: dict[str, Facts] = {}
    source = Path(next(iter(egg.__path__))).parent

    def run(script: str) -> Facts:
        if script not in seen:
            seen[script] = {}
            path = folder / f"group{len(seen)}.py"
            path.write_text(PRELUDE + textwrap.dedent(script) + "\nprint(json.dumps(out))\n")
            environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
            environment["PYTHONPATH"] = os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])
            done = subprocess.run(
                [sys.executable, str(path)], env=environment, capture_output=True, text=True, timeout=120
            )
            assert done.returncode == 0, done.stderr[-3000:]
            seen[script] = json.loads(done.stdout.splitlines()[-1])
        return seen[script]

    return run

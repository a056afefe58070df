"""Runs scripts of small kernels in the mended interpreter.

Whether a kernel is interpreted is decided when ``@triton.jit`` decorates it, so each group of
kernels runs in a process of its own, as a candidate does, and reports what it saw as JSON. The
processes are forks of one that has imported torch and triton: importing takes longer than the kernels.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
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


@pytest.fixture(scope="session")
def interpret(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Facts]]:
    """Run a script of kernels under the interpreter and return its ``out``; each script runs once."""
    folder = tmp_path_factory.mktemp("kernels")
    seen: dict[str, Facts] = {}
    source = Path(next(iter(egg.__path__))).parent
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("forkserver.py"))],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stdin is not None
    assert server.stdout is not None
    to, back = server.stdin, server.stdout

    def run(script: str) -> Facts:
        if script not in seen:
            seen[script] = {}
            path, output = folder / f"group{len(seen)}.py", folder / f"group{len(seen)}.out"
            path.write_text(PRELUDE + textwrap.dedent(script) + "\nprint(json.dumps(out))\n")
            print(json.dumps([str(path), str(output)]), file=to, flush=True)
            assert back.readline().strip() == "0", output.read_text()[-3000:]
            seen[script] = json.loads(output.read_text().splitlines()[-1])
        return seen[script]

    with server:
        yield run
        to.close()

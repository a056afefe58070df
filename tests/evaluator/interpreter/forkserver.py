"""Imports what every script of kernels needs, once, and runs each script in a fork of itself.

Reads one line per script on standard input: the script's path and where its output goes, as JSON; answers
with the exit status. Nothing is mended before the fork: each script installs the interpreter itself.
"""

from __future__ import annotations

import json
import os
import runpy
import sys

import torch  # noqa: F401
import triton.language.extra.libdevice  # noqa: F401

import egg.evaluator.interpreter  # noqa: F401


def main() -> None:
    for line in sys.stdin:
        script, output = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(script, output)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(script: str, output: str) -> None:
    """Never returns into the loop above."""
    code = 1
    try:
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        runpy.run_path(script, run_name="__main__")
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()

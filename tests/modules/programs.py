"""Programs that use EGG, one after another in one process of their own.

Such a process imports PyTorch, its compiler and EGG, and starts a process for tasks and an oracle: fifteen
seconds of CPU time before a program's own work. Programs that do not need a fresh process share one.

Their kernels are judged at a level full that is narrow (:data:`tests.warm.NARROW`). So are those of the
commands which a program starts: such a command runs in a process of its own, by ``python -m`` of this module.
"""

from __future__ import annotations

import io
import json
import os
import runpy
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).parents[2]
RUN = subprocess.run


@dataclass(frozen=True)
class Program:
    """A script with its arguments, its working directory and what it finds in its environment."""

    path: str
    arguments: tuple[str, ...] = ()
    folder: str = "."
    environ: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ended:
    printed: str
    fault: str
    """The traceback, or the exit code, of a program that failed."""

    def output(self) -> str:
        assert not self.fault, self.fault
        return self.printed


def run_programs(programs: Sequence[Program], *, interpret: bool, timeout: float = 800.0) -> list[Ended]:
    """How each ended, in a process where kernels run in Triton's interpreter, or do not run."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.modules.programs"],
        input=json.dumps([asdict(program) for program in programs]),
        capture_output=True, text=True, cwd=ROOT, timeout=timeout, check=False,
        env={**os.environ, "TRITON_INTERPRET": str(int(interpret)), "OMP_NUM_THREADS": "1",
             "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [Ended(**row) for row in json.loads(done.stdout.splitlines()[-1])]


def run_here(program: Program) -> Ended:
    """Run it in this process, as if it had been started by itself."""
    import torch

    import egg

    torch._dynamo.reset()
    egg.backend.reset()
    printed, before, fault = io.StringIO(), os.getcwd(), ""
    os.chdir(program.folder)
    try:
        with (
            redirect_stdout(printed),
            patch.dict(os.environ, program.environ),
            patch.object(sys, "argv", [program.path, *program.arguments]),
        ):
            runpy.run_path(program.path, run_name="__main__")
    except SystemExit as end:
        fault = f"it exited with {end.code}" if end.code else ""
    except Exception:
        fault = traceback.format_exc()
    finally:
        os.chdir(before)
    return Ended(printed.getvalue(), fault)


def run_command(command: list[str], **given: Any) -> subprocess.CompletedProcess[str]:
    """As ``subprocess.run``; a command of EGG judges narrowly."""
    if command[1:3] == ["-m", "egg.cli"]:
        command = [command[0], "-m", "tests.modules.programs", *command[3:]]
    return RUN(command, **given)


def main() -> None:
    """The command that is given, or the programs on standard input."""
    from tests.warm import NARROW, brief_full, warm_oracles

    if sys.argv[1:]:
        from egg.cli.app import main as egg

        with brief_full(NARROW):
            egg()
        return
    programs = [Program(**row) for row in json.load(sys.stdin)]
    with warm_oracles(), brief_full(NARROW), patch.object(subprocess, "run", run_command):
        ended = [asdict(run_here(program)) for program in programs]
    print(json.dumps(ended))


if __name__ == "__main__":
    main()

"""The main job in three scenes: a run from a program to its kernel, the judge, a run on a GPU.

Run by `make demo`. Every command goes through the command line as a user would type it. No model
and no GPU are needed: the built-in team writes and tunes, and without a GPU kernels are compiled for
one, judged in Triton's interpreter, and their times only estimated. The exit code is 0 only if
everything came out as it should.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import textwrap
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from egg.cli.render import console, evaluation_view
from egg.core.evaluation import Evaluation, Rejected

HERE = Path(__file__).resolve().parent
TASK = HERE / "wide_softmax" / "wide_softmax.py"
KEPT_RUN = HERE / "trajectories" / "linear_gelu_residual"
WIDTH = 110


class Surprise(Exception):
    """Something did not come out as it should."""


@dataclass(frozen=True)
class Refused:
    """A kernel that must be refused, and how the reason may begin: which is first depends on the machine."""

    task: str
    kernel: str
    reasons: tuple[str, ...]

    @property
    def command(self) -> tuple[str, ...]:
        task, kernel = (shown(HERE / self.task / f"{name}.py") for name in (self.task, self.kernel))
        return "eval", task, kernel, "--level", "quick"


REFUSED = (
    Refused("row_softmax", "cheat_stale_cache", ("static.", "state.", "correctness.unwritten")),
    Refused("linear_gelu_residual", "wrong_half_precision", ("correctness.error",)),
)


# -- the scenes --------------------------------------------------------------------------------------


def play_a_run(run: Path) -> None:
    """Optimize a program, show the kernel's first lines, then decide all of it again from the log."""
    follow("optimize", shown(TASK), "--budget", "quick", "--no-lessons", "--out", str(run))
    check_end(json.loads((run / "result.json").read_text(encoding="utf-8")))
    if (run / "kernel.py").exists():
        scene_text("kernel.py begins:", (run / "kernel.py").read_text(encoding="utf-8"))
    show("replay", str(run))


def show_refusals(judged: list[Future[Evaluation]]) -> None:
    """The verdicts on ``REFUSED``, in that order."""
    for case, evaluation in zip(REFUSED, judged, strict=True):
        prompt(*case.command)
        console().print(evaluation_view(evaluation.result()))
        verdict = evaluation.result().verdict
        if not isinstance(verdict, Rejected) or not verdict.refusal.reason.startswith(case.reasons):
            raise Surprise(f"{case.task}/{case.kernel} was not refused where it should be")


def judge(case: Refused) -> Evaluation:
    return Evaluation.from_json(json.loads(output(*case.command, "--json")))


def check_end(result: dict[str, Any]) -> None:
    """A kernel is the end that is wanted; the reference is an honest one where a GPU found it as fast."""
    best = result["best"]
    as_fast = best is not None and best["score"]["faster"] is False
    if result["kernel"] is None and not as_fast:
        raise Surprise(f"the run ended without a kernel: {result['reason']}")


# -- the command line --------------------------------------------------------------------------------


def follow(*arguments: str) -> None:
    """Run a command that takes a run on, and print its progress line by line."""
    prompt(*arguments)
    line = command(arguments)
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            print_wrapped(line)
    check_exit(arguments, process.returncode, (0, 1))


def show(*arguments: str) -> None:
    """Run a command with its output left as it is."""
    prompt(*arguments)
    check_exit(arguments, subprocess.run(command(arguments)).returncode, (0,))


def output(*arguments: str) -> str:
    """What a command prints for a program to read."""
    done = subprocess.run(command(arguments), capture_output=True, text=True)
    check_exit(arguments, done.returncode, (0, 1), done.stderr)
    return done.stdout


def check_exit(arguments: tuple[str, ...], code: int, fine: tuple[int, ...], stderr: str = "") -> None:
    """1 is a verdict (refused, or the reference is returned): not a failure of the command."""
    if code not in fine:
        raise Surprise(f"egg {arguments[0]} ended with exit code {code} {stderr}".rstrip())


def command(arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "egg.cli", *arguments]


def prompt(*arguments: str) -> None:
    print(f"\n$ egg {shlex.join(arguments)}", flush=True)


def print_wrapped(*lines: str) -> None:
    for line in lines:
        print(textwrap.fill(line, WIDTH, initial_indent="  ", subsequent_indent="  "), flush=True)


def scene_text(title: str, text: str) -> None:
    """The docstring of a file: what it is, and which kernel does what."""
    docstring = text.split('"""')[1]
    print(f"\n{title}\n\n{textwrap.indent(docstring.strip(), '  ')}", flush=True)


def shown(path: Path) -> str:
    return os.path.relpath(path)


def scene(title: str) -> None:
    print(f"\n{title}\n{'=' * len(title)}", flush=True)


def main() -> int:
    pool = ThreadPoolExecutor()
    judged = [pool.submit(judge, case) for case in REFUSED]  # a run without a GPU keeps one core busy
    try:
        scene("1. A run from end to end: the built-in team, no model, no key, no network")
        run = Path(mkdtemp(prefix="egg-demo-")) / "run"
        play_a_run(run)
        scene("2. The judge: a cheat and an inaccurate kernel are refused, each by its gate")
        show_refusals(judged)
        scene("3. What it looks like on a GPU: a run kept from an H200, decided again from its log")
        show("replay", shown(KEPT_RUN))
    except Surprise as surprise:
        print(f"not as it should be: {surprise}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        pool.shutdown(cancel_futures=True)
    print("\nAs it should be: a run with an accepted kernel, two kernels refused, two logs reproduced.")
    print(f"The run and its kernel are kept: {run}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The main job in three scenes: a run from the first question to its kernel, the judge, a run on a GPU.

Run by `make demo`. Every command goes through the command line as a user would type it. No model
and no GPU are needed: in the first scene the bundled answers in `row_softmax/answers` stand in for
a model (`--team step`: the run stops at each question, and anybody may answer it), and without a
GPU kernels are compiled for one, judged in Triton's interpreter, and their times only estimated.
The exit code is 0 only if everything came out as it should.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from egg.cli.render import console, evaluation_view
from egg.core.evaluation import Evaluation, Gate, Rejected

HERE = Path(__file__).resolve().parent
TASK = HERE / "row_softmax" / "row_softmax.py"
ANSWERS = HERE / "row_softmax" / "answers"
KEPT_RUN = HERE / "trajectories" / "linear_gelu_residual"
WIDTH = 110


class Surprise(Exception):
    """Something did not come out as it should."""


@dataclass(frozen=True)
class Refused:
    """A kernel that must be refused, and the gates that may do it: which is first depends on the machine."""

    task: str
    kernel: str
    gates: frozenset[Gate]

    @property
    def command(self) -> tuple[str, ...]:
        task, kernel = (shown(HERE / self.task / f"{name}.py") for name in (self.task, self.kernel))
        return "eval", task, kernel, "--level", "quick"


REFUSED = (
    Refused("row_softmax", "cheat_stale_cache", frozenset({Gate.STATIC, Gate.STATE})),
    Refused("linear_gelu_residual", "wrong_half_precision", frozenset({Gate.CORRECTNESS})),
)


# -- the scenes --------------------------------------------------------------------------------------


def play_a_run(run: Path) -> None:
    """Begin a run, answer its questions until it has none, then decide all of it again from its log."""
    terms = ("--team", "step", "--device", "auto", "--budget", "quick", "--no-lessons")
    follow("optimize", shown(TASK), *terms, "--out", str(run))
    answers = sorted(ANSWERS.glob("*.md"))
    for question in questions(run):
        follow("reply", str(run), "--file", shown(take_answer(answers, question["purpose"])))
    show("replay", str(run))
    check_end(json.loads((run / "result.json").read_text(encoding="utf-8")))


def judge_what_must_be_refused() -> None:
    """Both at once: without a GPU an evaluation keeps only one core busy."""
    with ThreadPoolExecutor() as pool:
        for case, judged in [(case, pool.submit(judge, case)) for case in REFUSED]:
            prompt(*case.command)
            evaluation = judged.result()
            console().print(evaluation_view(evaluation))
            verdict = evaluation.verdict
            if not isinstance(verdict, Rejected) or verdict.refusal.gate not in case.gates:
                raise Surprise(f"{case.task}/{case.kernel} was not refused where it should be")


def judge(case: Refused) -> Evaluation:
    return Evaluation.from_json(json.loads(output(*case.command, "--json")))


# -- a run answered by hand --------------------------------------------------------------------------


def questions(run: Path) -> Iterator[dict[str, Any]]:
    """What the run asks, one question after the other, until it has ended."""
    while True:
        prompt("next", str(run))
        question = json.loads(output("next", str(run), "--json"))
        if question["waiting"] is None:
            say("it has ended")
            return
        if question["waiting"] != "reply":
            raise Surprise(f"the run waits for {question['waiting']}, not for a reply")
        if any(message["speaker"] == "assistant" for message in question["messages"]):
            raise Surprise(f"the answer was not taken: {question['messages'][-1]['text']}")
        say(*opening(question))
        yield question


def opening(question: dict[str, Any]) -> tuple[str, ...]:
    """Who is asked, and what for: a question begins with its heading and one paragraph."""
    heading, task, *_ = question["messages"][-1]["text"].split("\n\n")
    return f"[{question['purpose']}] {heading.lstrip('# ')}", task, "..."


def take_answer(answers: list[Path], purpose: str) -> Path:
    """The next bundled answer to a question of this kind, taken out of ``answers``.

    Files are called ``NN-purpose.md`` in the order in which they are wanted. Another machine may
    need fewer of them (near the roofline floor no stage is entered); one too many is a surprise.
    """
    for answer in answers:
        if answer.stem.partition("-")[2] == purpose:
            answers.remove(answer)
            return answer
    raise Surprise(f"the run asks as {purpose}, and there is no bundled answer left for that")


def check_end(result: dict[str, Any]) -> None:
    """A kernel is the end that is wanted; the reference is an honest one where a GPU found it as fast."""
    best = result["best"]
    as_fast = best is not None and best["score"]["faster"] is False
    if result["kernel"] is None and not as_fast:
        raise Surprise(f"the run ended without a kernel: {result['reason']}")


# -- the command line --------------------------------------------------------------------------------


def follow(*arguments: str) -> None:
    """Run a command that takes a run on, and pass on line by line what it tells on its way."""
    prompt(*arguments)
    line = command(arguments)
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for told in process.stderr:
            say(told)
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


def check_exit(arguments: tuple[str, ...], code: int, fine: tuple[int, ...], told: str = "") -> None:
    """1 is a verdict (refused, or the reference is returned): not a failure of the command."""
    if code not in fine:
        raise Surprise(f"egg {arguments[0]} ended with exit code {code} {told}".rstrip())


def command(arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "egg.cli", *arguments]


def prompt(*arguments: str) -> None:
    print(f"\n$ egg {shlex.join(arguments)}", flush=True)


def say(*lines: str) -> None:
    for line in lines:
        print(textwrap.fill(line, WIDTH, initial_indent="  ", subsequent_indent="  "), flush=True)


def shown(path: Path) -> str:
    return os.path.relpath(path)


def scene(title: str) -> None:
    print(f"\n{title}\n{'=' * len(title)}", flush=True)


def main() -> int:
    try:
        scene("1. A run from end to end, without a model: its questions are answered from files")
        with TemporaryDirectory(prefix="egg-demo-") as folder:
            play_a_run(Path(folder) / "run")
        scene("2. The judge: a cheat and an inaccurate kernel are refused, each by its gate")
        judge_what_must_be_refused()
        scene("3. What it looks like on a GPU: a run kept from an H200, decided again from its log")
        show("replay", shown(KEPT_RUN))
    except Surprise as surprise:
        print(f"not as it should be: {surprise}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print("\nAs it should be: a run with an accepted kernel, two kernels refused, two logs reproduced.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Judge the bundled examples: honest kernels must be accepted, the others rejected, each by its gate.

Run by `make demo`. Every kernel goes through the command line as a user would send it; the exit
code is 0 only if each verdict is the one that should come out. Without a GPU the kernels are
compiled for one and judged in Triton's interpreter, and no time is measured.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from egg.cli.render import console, evaluation_view
from egg.core.evaluation import Evaluation, Gate, Rejected

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Case:
    """One kernel and what should become of it: accepted when no gate is named."""

    task: str
    kernel: str
    gates: frozenset[Gate] = frozenset()
    """The gates that may refuse it; which one gets there first depends on the machine."""

    @property
    def command(self) -> list[str]:
        folder = os.path.relpath(HERE / self.task)
        return ["eval", f"{folder}/{self.task}.py", f"{folder}/{self.kernel}.py", "--level", "quick"]

    def as_expected(self, evaluation: Evaluation) -> bool:
        verdict = evaluation.verdict
        if isinstance(verdict, Rejected):
            return verdict.refusal.gate in self.gates
        return not self.gates


CASES = (
    Case("row_softmax", "fused"),
    Case("row_softmax", "cheat_stale_cache", frozenset({Gate.STATIC, Gate.STATE})),
    Case("linear_gelu_residual", "fused"),
    Case("linear_gelu_residual", "wrong_half_precision", frozenset({Gate.CORRECTNESS})),
    Case("rms_norm", "fused"),
    Case("rms_norm", "cheat_decoy", frozenset({Gate.STATIC, Gate.PROVENANCE})),
)


def judge(case: Case) -> Evaluation | None:
    """The evaluation, or ``None`` where the machine could not give one (its message is shown)."""
    arguments = case.command
    print(f"$ egg {shlex.join(arguments)}", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "egg.cli", *arguments, "--json"], stdout=subprocess.PIPE, text=True
    )
    return Evaluation.from_json(json.loads(done.stdout)) if done.returncode in (0, 1) else None


def main() -> int:
    screen = console()
    surprises = []
    for case in CASES:
        evaluation = judge(case)
        if evaluation is not None:
            screen.print(evaluation_view(evaluation))
        if evaluation is None or not case.as_expected(evaluation):
            surprises.append(f"{case.task}/{case.kernel}")
    if surprises:
        print(f"not as expected: {', '.join(surprises)}", file=sys.stderr)
        return 1
    honest = sum(1 for case in CASES if not case.gates)
    print(f"As it should be: {honest} honest kernels accepted, {len(CASES) - honest} others rejected.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

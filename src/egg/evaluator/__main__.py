"""``python -m egg.evaluator JOBS.jsonl RESULTS.jsonl [DEVICE]``: judge a batch of kernels.

Needs the standard library, torch and triton only, so it runs on a machine that can install nothing.

Results are appended as they come, so a batch that was interrupted goes on where it was.
Exit code 0 when every job has an answer, 2 for a wrong call, 3 when some job could not be judged.
"""

from __future__ import annotations

import sys
from pathlib import Path

from egg.core.errors import EggError
from egg.core.evaluation import Rejected
from egg.evaluator.batch import exit_code, run_batch
from egg.evaluator.pool import Answer


def main(arguments: list[str]) -> int:
    if len(arguments) not in (2, 3):
        print((__doc__ or "").splitlines()[0], file=sys.stderr)
        return 2
    jobs, results = Path(arguments[0]), Path(arguments[1])
    try:
        return exit_code(run_batch(jobs, results, arguments[2] if len(arguments) == 3 else "auto", _tell))
    except EggError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"interrupted; the same command goes on from {results}", file=sys.stderr)
        return 130


def _tell(answer: Answer, done: int, total: int) -> None:
    if answer.evaluation is None:
        what = f"could not be judged: {answer.error}"
    elif isinstance(answer.evaluation.verdict, Rejected):
        what = f"rejected by {answer.evaluation.verdict.refusal.gate.value}"
    else:
        what = "accepted"
    print(f"[{done}/{total}] {answer.job}: {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

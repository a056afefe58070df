"""``python -m egg.evaluator JOBS.jsonl RESULTS.jsonl [DEVICE] [--seats N]``: judge a batch of kernels.

Needs the standard library, torch and triton only, so it runs on a machine that can install nothing.

``--seats`` is how many kernels are judged at a time on each device, one if it is not given.
Results are appended as they come, so a batch that was interrupted goes on where it was.
Exit code 0 when every job has an answer, 2 for a wrong call, 3 when some job could not be judged.
"""

from __future__ import annotations

import sys
from pathlib import Path

from egg.core.errors import EggError
from egg.evaluator.judge.batch import Times, described, exit_code, run_batch
from egg.evaluator.judge.pool import Answer

USAGE = "usage: python -m egg.evaluator JOBS.jsonl RESULTS.jsonl [DEVICE] [--seats N]"


def main(arguments: list[str]) -> int:
    if arguments in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    arguments, seats = _seats(arguments)
    if len(arguments) not in (2, 3) or seats is None:
        print(USAGE, file=sys.stderr)
        return 2
    jobs, results = Path(arguments[0]), Path(arguments[1])
    try:
        device = arguments[2] if len(arguments) == 3 else "auto"
        times = Times()

        def report(answer: Answer, done: int, total: int) -> None:
            if answer.evaluation is not None:
                times.add(answer.evaluation.seconds, answer.evaluation.waited)
            print(f"[{done}/{total}] {answer.job}: {described(answer)}", file=sys.stderr, flush=True)

        code = exit_code(run_batch(jobs, results, device, report, seats))
        print(times, file=sys.stderr)
        return code
    except EggError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"interrupted; the same command goes on from {results}", file=sys.stderr)
        return 130


def _seats(arguments: list[str]) -> tuple[list[str], int | None]:
    """The arguments without ``--seats N``, and N: 1 where it is not there, ``None`` where it is no count."""
    if "--seats" not in arguments:
        return arguments, 1
    at = arguments.index("--seats")
    rest, given = arguments[:at] + arguments[at + 2 :], arguments[at + 1 : at + 2]
    return rest, int(given[0]) if given and given[0].isdecimal() and int(given[0]) else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

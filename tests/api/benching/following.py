"""A bench in a process of its own, which tells what goes on in it, and can be killed.

    python -m tests.api.benching.following FOLDER JUDGE COUNT

``JUDGE`` is ``cpu``, after a task that does not load, or ``silent``, who never answers. Every news is a line:
its kind and its key.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from egg.api.benching.bench import run_bench
from egg.api.benching.news import Began, Ended, Lost, Moved, News, Opened
from egg.core.policy import Level
from tests.api.benching.pools import ScriptedPool
from tests.api.benching.tasks import BROKEN, ROOT, options, relu, suite


def described(news: News) -> str:
    match news:
        case Opened(rows=rows, pending=pending):
            return f"opened {len(rows)} {len(pending)}"
        case Began(key=key, resumed=resumed):
            return f"began {key} {'again' if resumed else 'anew'}"
        case Moved(key=key, doing=doing):
            return f"moved {key} {doing}"
        case Lost(key=key, retried=again):
            return f"lost {key} {again}"
        case Ended(row=row):
            return f"ended {row.key} {row.verdict.kind}"


def main() -> None:
    folder, judge, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    tasks = [relu(number) for number in range(1, count + 1)]
    result = run_bench(
        suite(*([BROKEN] if judge == "cpu" else []), *tasks),
        options(Level.QUICK),
        folder,
        workers=1 if judge == "cpu" else 2,
        environ={},
        pool=None if judge == "cpu" else ScriptedPool(lambda job, before: True),
        on_news=lambda news: print(described(news), flush=True),
    )
    print("interrupted" if result.interrupted else "finished", *result.missing, flush=True)


class Followed:
    """Such a process."""

    def __init__(self, folder: Path, judge: str, count: int) -> None:
        command = [sys.executable, "-m", "tests.api.benching.following", str(folder), judge, str(count)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        environment["CUDA_VISIBLE_DEVICES"] = ""
        self.process = subprocess.Popen(
            command,
            env=environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A shell that runs the tests in the background may ignore SIGINT, which is inherited.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.lines: list[str] = []

    def until(self, *begins: str) -> None:
        """Read on until every one of these lines has come."""
        assert self.process.stdout is not None
        while not all(any(line.startswith(begin) for line in self.lines) for begin in begins):
            line = self.process.stdout.readline()
            assert line, f"it ended before {begins}: {self.lines} {self.process.stderr.read()}"  # type: ignore
            self.lines.append(line.strip())

    def workers(self) -> set[int]:
        """Its worker processes."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return {int(child) for child in children if "spawn_main" in _command(int(child))}

    def family(self) -> set[int]:
        """Every process that it, or one of them, started."""
        found, looked = set[int](), {self.process.pid}
        while looked:
            pid = looked.pop()
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                with suppress(OSError):  # it has just ended
                    looked |= {int(child) for child in children.read_text().split()}
            found.add(pid)
        return found - {self.process.pid}

    def interrupt(self) -> None:
        """As a terminal does it: every process of the group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self, seconds: float = 240.0) -> str:
        """The rest of its lines; what it wrote to standard error."""
        out, err = self.process.communicate(timeout=seconds)
        self.lines += out.splitlines()
        return err


def deaf_to_ctrl_c(pid: int) -> bool:
    """Whether the signal is blocked or ignored there."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return any(int(status[name], 16) & 1 << signal.SIGINT - 1 for name in ("SigBlk", "SigIgn"))


def _command(pid: int) -> str:
    for _ in range(100):
        text = Path(f"/proc/{pid}/cmdline").read_text()
        if text:
            return text
        time.sleep(0.01)
    return ""


if __name__ == "__main__":
    main()

"""The oracle process: trusted, one or several per device, the only kind that knows what the right answer is.

Run as ``python -m egg.evaluator.oracle FD DEVICE``; it answers questions over a socket until
the other side hangs up. :class:`Oracle` is the orchestrator's handle on it: it holds no CUDA
context and runs no code of a task or a candidate, so whatever happens down there it goes on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from egg.core import errors
from egg.core.codec import from_json, to_json
from egg.core.errors import EggError, MachineError
from egg.core.evaluation import Evaluation, Gate
from egg.evaluator.process import sandbox
from egg.evaluator.process.lasting import lasting
from egg.evaluator.process.wire import Channel, WireClosed
from egg.evaluator.question import Question

ANSWER_SECONDS = 1800.0
CLOSE_SECONDS = 8.0


class Oracle:
    """One oracle process and the conversation with it."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._process: subprocess.Popen[bytes] | None = None

    def judge(
        self,
        question: Question,
        on_gate: Callable[[Gate], None] = lambda _: None,
        timeout: float = ANSWER_SECONDS,
    ) -> Evaluation:
        """Ask, and wait for the answer; raises what the oracle could not do as an :class:`EggError`."""
        self.start()
        try:
            self._channel.send({"question": to_json(question)})
            return self._answer(on_gate, time.monotonic() + timeout)
        except EggError:
            raise
        except WireClosed as error:
            code = self._reap()
            raise MachineError(
                f"the oracle on {self.device} died (exit {code}): {error}",
                "the task may need more memory than there is; run `egg doctor`",
            ) from error
        except BaseException:
            self.close()  # or the answer to this question would be read as the answer to the next
            raise

    def _answer(self, on_gate: Callable[[Gate], None], deadline: float) -> Evaluation:
        """The deadline moves while the oracle says that it waits for others who use the same GPU."""
        while True:
            self._channel.sock.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                message, _ = self._channel.receive()
            except TimeoutError:
                self.close()
                raise MachineError("the evaluation did not end in time", "use a smaller task") from None
            if "gate" in message:
                on_gate(Gate(message["gate"]))
            elif "waited" in message:
                deadline += float(message["waited"])
            elif "error" in message:
                raise error_from(message["error"])
            else:
                return Evaluation.from_json(message["evaluation"])

    def start(self) -> None:
        """Start the process unless it runs. It dies with the *thread* that started it."""
        if self._process is not None and self._process.poll() is None:
            return
        ours, theirs = Channel.pair()
        command = [sys.executable, "-m", "egg.evaluator.oracle", str(theirs.fileno()), self.device]
        self._process = subprocess.Popen(
            command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, env=os.environ | _caches()
        )
        theirs.close()
        self._channel = ours

    def _reap(self) -> int | None:
        process = self._process
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(5) if process is not None else None
        return None

    def interrupt(self) -> None:
        """End the evaluation in progress, from another thread: its :meth:`judge` raises a MachineError."""
        process = self._process
        if process is not None:
            process.terminate()

    def close(self) -> None:
        """End the process. A thread that waits for an answer may close it while another does."""
        process, self._process = self._process, None
        if process is None:
            return
        self._channel.close()
        for insist in (process.terminate, process.kill):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(CLOSE_SECONDS)
            insist()
        process.wait()


def _caches() -> dict[str, str]:
    """Where the references' compiled code is kept for the next evaluation of the same task."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "egg"
    ours = {"TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"), "TRITON_CACHE_DIR": str(home / "triton")}
    return {name: os.environ.get(name, folder) for name, folder in ours.items()}


def error_to(error: EggError) -> dict[str, Any]:
    """As data; a kind that only its own module knows travels as the nearest one that everybody knows."""
    kind = next(base.__name__ for base in type(error).__mro__ if hasattr(errors, base.__name__))
    return {"kind": kind, "message": error.message, "hint": error.hint}


def error_from(data: dict[str, Any]) -> EggError:
    kind = getattr(errors, str(data.get("kind")), MachineError)
    if not (isinstance(kind, type) and issubclass(kind, EggError)):
        kind = MachineError
    error = kind(str(data["message"]), str(data["hint"]))
    if data.get("traceback"):
        error.add_note(str(data["traceback"]))
    return error


def main(channel: Channel, device_name: str) -> None:
    """Serve until the orchestrator hangs up."""
    sandbox.die_with_parent(signal.SIGTERM)
    sandbox.hide_memory()
    signal.signal(signal.SIGTERM, _exit)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with lasting():
        import torch

        from egg.evaluator.judge import Judge

    judge: Judge | None = None
    try:
        while True:
            message, _ = channel.receive()
            try:
                if judge is None:
                    judge = Judge(
                        torch.device(device_name),
                        lambda gate: channel.send({"gate": gate.value}),
                        lambda seconds: channel.send({"waited": seconds}),
                    )
                evaluation = judge.judge(from_json(Question, message["question"]))
                channel.send({"evaluation": evaluation.to_json()})
            except EggError as error:
                channel.send({"error": error_to(error)})
            except torch.OutOfMemoryError as error:
                torch.cuda.empty_cache()
                hint = "use a GPU with more memory, or a smaller task"
                channel.send({"error": error_to(MachineError(f"out of memory: {error}", hint))})
            except WireClosed:
                raise
            except Exception as error:  # a fault of ours: told as such, and the next question is answered
                fault = MachineError(f"internal error: {type(error).__name__}: {error}", "please report it")
                channel.send({"error": {**error_to(fault), "traceback": traceback.format_exc()}})
    except WireClosed:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if judge is not None:
            judge.close()


def _exit(*_: object) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    main(Channel(socket.socket(fileno=int(sys.argv[1]))), sys.argv[2])

"""The oracle process: one or several per device, the only kind that knows what the right answer is.

Run as ``python -m egg.evaluator.judge.oracle FD DEVICE``; it answers questions over a socket until
the other side hangs up. :class:`Oracle` is the orchestrator's handle on it: it holds no CUDA
context and runs no code of a task or a candidate, so whatever happens down there it goes on.

The oracle runs the task's code, which may be a stranger's. It is confined as a candidate is, before it
imports anything that a task could use: no key of the environment, no network, no files but its own folder.
What needs more rights, the parents of the candidates' processes, is started first. What a task prints is
kept from our streams, a task that does not come to an end is ended, and one that changes the judge is refused
(:mod:`egg.evaluator.judge.intact`); the orchestrator takes no acceptance without checks
(:mod:`egg.evaluator.judge.answers`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import egg
from egg.core.codec import from_json, to_json
from egg.core.error_json import error_from, error_to
from egg.core.errors import EggError, MachineError, TaskError, UsageError
from egg.core.evaluation import Evaluation, Gate, PlanAnswer
from egg.core.policy import Host
from egg.core.recording import Recording
from egg.core.source import Task
from egg.evaluator.judge import interpreted
from egg.evaluator.judge.answers import check_answer, check_plan, check_recording, unconfirmed, unreadable
from egg.evaluator.judge.beside import Beside
from egg.evaluator.judge.confinement import LOCKS_VARIABLE, confined, on_gpu
from egg.evaluator.judge.printed import Printed
from egg.evaluator.judge.question import PlanRequest, Question, RecordRequest
from egg.evaluator.judge.substitution import in_place_of_the_author
from egg.evaluator.process.handle import ENVIRONMENT
from egg.evaluator.process.lasting import lasting
from egg.evaluator.process.subreaper import keep
from egg.evaluator.transport.wire import Channel, WireClosed
from egg.hardware.detect import present_gpus

if TYPE_CHECKING:
    from egg.evaluator.judge.judge import Judge

ANSWER_SECONDS = 1800.0
TASK_SECONDS = 45.0
"""For each single thing that is asked of a task's code: to load, to make inputs, to run once."""
TASK_SECONDS_VARIABLE = "EGG_TASK_SECONDS"
CLOSE_SECONDS = 8.0
SETTLE_SECONDS = 60.0
"""For the oracle to confirm an answer, which takes it no time unless it is not its own."""
SETTLED = {"settled": True}
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")
KILLED = 128 + signal.SIGKILL


class Oracle:
    """One oracle process and the conversation with it."""

    def __init__(self, device: str, task_seconds: float | None = None) -> None:
        self.device = device
        self._task_seconds = task_seconds if task_seconds is not None else task_limit(os.environ)
        self._process: subprocess.Popen[bytes] | None = None
        self._phase = ""
        """What of the task's code runs right now."""
        self._printed = Printed()
        self._beside: Beside | None = None
        """On a GPU: the interpreter's verdict on the same question."""

    @property
    def printed(self) -> str:
        """The end of what the task's code, or the oracle itself, wrote to its streams."""
        return self._printed.text

    def judge(
        self,
        question: Question,
        on_gate: Callable[[Gate], None] = lambda _: None,
        timeout: float = ANSWER_SECONDS,
    ) -> Evaluation:
        """Ask, and wait for the answer; raises what the oracle could not do as an :class:`EggError`."""
        if question.policy.host is Host.RECORDED:
            return in_place_of_the_author(self, question, on_gate, timeout)
        if not (on_gpu(self.device) and interpreted.is_wanted(question)):
            return self._asked(question, on_gate, timeout)
        if self._beside is None:
            self._beside = Beside(Oracle("cpu", self._task_seconds))
        self._beside.begin(interpreted.without_a_gpu(question, gpu_name(self.device)))
        try:
            measured = self._asked(question, on_gate, timeout)
            if not measured.accepted:
                return measured
            on_gate(Gate.INTERPRETER)
            return self._beside.confirmed(measured)
        finally:
            self._beside.abandon()

    def _asked(self, question: Question, on_gate: Callable[[Gate], None], timeout: float) -> Evaluation:
        answer = self._exchanged({"question": to_json(question)}, question.task, on_gate, timeout)
        with self._ended_if_unbelievable():
            found = Evaluation.from_json(answer["evaluation"])
            check_answer(question, found)
        return found

    def record(self, request: RecordRequest, timeout: float = ANSWER_SECONDS) -> Recording:
        """What torch.compile generates for a task on this device."""
        message = {"record": to_json(request)}
        answer = self._exchanged(message, request.task, lambda _: None, timeout)
        with self._ended_if_unbelievable():
            found = from_json(Recording, answer["recording"])
            check_recording(found)
        return found

    def plan(self, request: PlanRequest, timeout: float = ANSWER_SECONDS) -> PlanAnswer:
        """A recorded plan of a candidate, or why there is none."""
        answer = self._exchanged({"plan": to_json(request)}, request.task, lambda _: None, timeout)
        with self._ended_if_unbelievable():
            found = from_json(PlanAnswer, answer["plan"])
            check_plan(found)
        return found

    @contextlib.contextmanager
    def _ended_if_unbelievable(self) -> Iterator[None]:
        """The judge's own answer is still to come: it must not be read as that to the next question."""
        try:
            yield
        except EggError:
            self._end_at_once()
            raise
        except Exception as error:
            self._end_at_once()
            raise unreadable(error) from error

    def _exchanged(
        self, message: dict[str, Any], task: Task, on_gate: Callable[[Gate], None], timeout: float
    ) -> dict[str, Any]:
        """Send one message and wait for the answer to it; raises the error that it may be."""
        self.start()
        self._phase = ""
        try:
            self._channel.send(message)
            answer = self._answer(on_gate, time.monotonic() + timeout, task.name)
            if answer.get("last"):
                self._end_at_once()
            else:
                self._settle(task.name)
            if "error" in answer:
                raise error_from(answer["error"])
            return answer
        except EggError:
            raise
        except WireClosed as error:
            raise self._death(task, error) from error
        except BaseException:
            self.close()  # or the answer to this question would be read as the answer to the next
            raise

    def _answer(self, on_gate: Callable[[Gate], None], deadline: float, task: str = "") -> dict[str, Any]:
        """The next message that ends the exchange: a result or an error.

        The deadline moves while the oracle says that it waits for others who use the same GPU. The judge
        answers when none of the task's code runs: an answer during a phase of the task is the task's.
        """
        limit = deadline
        while True:
            self._channel.sock.settimeout(max(0.1, min(deadline, limit) - time.monotonic()))
            try:
                message, _ = self._channel.receive()
            except TimeoutError:
                self._end_at_once()
                if self._phase:
                    raise self._endless(task) from None
                raise MachineError("the evaluation did not end in time", "use a smaller task") from None
            if "task" in message:
                self._phase = str(message["task"])
                limit = time.monotonic() + self._task_seconds if self._phase else deadline
            elif "gate" in message:
                on_gate(Gate(message["gate"]))
            elif "waited" in message:
                deadline += float(message["waited"])
                limit = max(limit, deadline) if not self._phase else limit
            elif self._phase:
                raise self._forged(task, self._phase)
            else:
                return message

    def _settle(self, task: str) -> None:
        """Ask the oracle whether that was its answer: it confirms from the loop that waits for questions.

        Whatever comes instead is of an evaluation that goes on, so the task's code wrote the answer.
        """
        self._channel.send({"settle": True})
        self._channel.sock.settimeout(SETTLE_SECONDS)
        try:
            message, _ = self._channel.receive()
        except TimeoutError:
            self._end_at_once()
            raise unconfirmed(SETTLE_SECONDS) from None
        if message != SETTLED:
            raise self._forged(task, "its code")

    def _forged(self, task: str, what: str) -> TaskError:
        """The process is ended: the judge's own answer is still to come."""
        self._end_at_once()
        return TaskError(
            f"task {task!r}: {what} answered in the judge's place; its process was ended",
            "a task defines a model and its inputs; it must not write to descriptors that it did not open",
        )

    def _endless(self, task: str) -> TaskError:
        return TaskError(
            f"task {task!r}: {self._phase} did not end within {self._task_seconds:g} s; "
            "its process was ended",
            f"a task must come to an end; {TASK_SECONDS_VARIABLE} allows more seconds",
        )

    def _death(self, task: Task, error: WireClosed) -> EggError:
        """A process that ended while the task's code ran was ended by it, unless the system killed it."""
        code = self._reap()
        words = self._printed.last_words()
        if self._phase and code != KILLED:
            return TaskError(
                f"task {task.name!r}: {self._phase} ended its process (exit code {code}){words}",
                "a task file defines things; it must not exit, nor crash",
            )
        if self._phase:
            return MachineError(
                f"the process of task {task.name!r} was killed in {self._phase}{words}",
                "the task needs more memory than there is, or it killed its own process; run `egg doctor`",
            )
        return MachineError(
            f"the oracle on {self.device} died (exit {code}): {error}{words}", "run `egg doctor`"
        )

    def start(self) -> None:
        """Start the process unless it runs. It dies with the *thread* that started it."""
        if self._process is not None and self._process.poll() is None:
            return
        ours, theirs = Channel.pair()
        # -P: the working directory must not be among the places that a task may read
        command = [
            sys.executable,
            "-P",
            "-m",
            "egg.evaluator.judge.oracle",
            str(theirs.fileno()),
            self.device,
        ]
        self._process = subprocess.Popen(
            command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, env=_environment(self.device),
        )  # fmt: skip
        theirs.close()
        self._channel = ours
        assert self._process.stdout is not None
        self._printed = Printed.of(self._process.stdout.fileno())

    def _reap(self) -> int | None:
        process = self._process
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(CLOSE_SECONDS) if process is not None else None
        return None

    def interrupt(self) -> None:
        """End the evaluation in progress, from another thread: its :meth:`judge` raises a MachineError."""
        process = self._process
        if process is not None:
            process.terminate()
        if self._beside is not None:
            self._beside.interrupt()

    def _end_at_once(self) -> None:
        self.interrupt()
        self.close()

    def close(self) -> None:
        """End the process. A thread that waits for an answer may close it while another does."""
        if self._beside is not None:
            self._beside.close()
        process, self._process = self._process, None
        if process is None:
            return
        self._channel.close()
        for insist in (process.terminate, process.kill):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(CLOSE_SECONDS)
            insist()
        process.wait()


def task_limit(environ: Mapping[str, str]) -> float:
    """Seconds for each thing that is asked of a task's code; the environment may name another number."""
    given = environ.get(TASK_SECONDS_VARIABLE, "")
    try:
        seconds = float(given) if given else TASK_SECONDS
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageError(
            f"{TASK_SECONDS_VARIABLE} is no number of seconds: {given!r}", "give a number, as 120"
        )
    return seconds


def _environment(device: str) -> dict[str, str]:
    """What of our environment the oracle may know: nothing that could be a key."""
    kept = {name: os.environ[name] for name in (*ENVIRONMENT, *THREADS) if name in os.environ}
    own = {
        "PYTHONPATH": str(Path(egg.__file__).resolve().parent.parent), "TMPDIR": tempfile.gettempdir(),
        "USER": "egg", "LOGNAME": "egg", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "random",
    }  # fmt: skip
    return kept | own | (_caches() if on_gpu(device) else {})


def gpu_name(device: str) -> str | None:
    """The name of the GPU that is ``device``, as the driver has it; ``None`` where it does not answer."""
    index = int(device.partition(":")[2] or 0)
    return next((gpu.name for gpu in present_gpus() if gpu.index == index), None)


def _caches() -> dict[str, str]:
    """Where the references' compiled code is kept for the next evaluation of the same task."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "egg"
    ours = {"TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"), "TRITON_CACHE_DIR": str(home / "triton")}
    return {name: os.environ.get(name, folder) for name, folder in ours.items()}


def serve(channel: Channel, device_name: str, folder: str, uid: int | None) -> None:
    """Answer until the orchestrator hangs up."""
    signal.signal(signal.SIGTERM, _exit)
    forkservers = confined(device_name, folder, uid)
    with lasting():
        import torch

        from egg.evaluator.judge.intact import Tampered
        from egg.evaluator.judge.judge import Judge
        from egg.evaluator.task.program import OnTask, on_task

    judge: Judge | None = None
    tell: OnTask = lambda what: channel.send({"task": what})  # noqa: E731
    on_task.set(tell)
    try:
        while True:
            message, _ = channel.receive()
            if "settle" in message:
                channel.send(SETTLED)
                continue
            try:
                if judge is None:
                    judge = Judge(
                        torch.device(device_name),
                        lambda gate: channel.send({"gate": gate.value}),
                        lambda seconds: channel.send({"waited": seconds}),
                        forkservers,
                    )
                channel.send(_answered(judge, message))
            except Tampered as error:
                channel.send({"error": error_to(error), "last": True})
                return
            except EggError as error:
                channel.send({"error": error_to(error)})
            except torch.OutOfMemoryError as error:
                torch.cuda.empty_cache()
                hint = "use a GPU with more memory, or a smaller task"
                channel.send({"error": error_to(MachineError(f"out of memory: {error}", hint))})
            except WireClosed:
                raise
            except Exception as error:  # a fault of ours: reported as such, and the next question is answered
                fault = MachineError(f"internal error: {type(error).__name__}: {error}", "please report it")
                channel.send({"error": {**error_to(fault), "traceback": traceback.format_exc()}})
    except WireClosed:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if judge is not None:
            judge.close()
        for forkserver in forkservers.values():
            forkserver.close()


def _answered(judge: Judge, message: dict[str, Any]) -> dict[str, Any]:
    if "record" in message:
        return {"recording": to_json(judge.record(from_json(RecordRequest, message["record"])))}
    if "plan" in message:
        return {"plan": to_json(judge.plan(from_json(PlanRequest, message["plan"])))}
    return {"evaluation": judge.judge(from_json(Question, message["question"])).to_json()}


def _exit(*_: object) -> None:
    raise SystemExit(0)


def main(descriptor: int, device: str) -> None:
    """A subreaper, and below it the oracle; without a GPU the oracle has a user of its own as well."""
    channel = Channel(socket.socket(fileno=descriptor))
    if on_gpu(device):
        os.environ[LOCKS_VARIABLE] = os.path.join(tempfile.gettempdir(), f"egg-gpus-{os.getuid()}")
    else:
        with lasting():
            import torch  # noqa: F401 - here and once: NumPy's threads stay with this process, forks have one
    keep(lambda folder, uid: serve(channel, device, folder, uid), channel.close, own_user=not on_gpu(device))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

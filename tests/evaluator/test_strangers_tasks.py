"""Tasks of strangers in the oracle: confined, ended, quiet, and without a hold on the judge.

What a task finds out it says in an error of its own, so that one judge serves most of these tests.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from egg.core.errors import EggError, MachineError, TaskError
from egg.core.evaluation import Gate, Rejected
from egg.core.policy import Level, Policy
from egg.core.source import Candidate, Task
from egg.evaluator.judge.oracle import Oracle
from egg.evaluator.judge.question import Question
from egg.evaluator.process import landlock
from tests import samples
from tests.conftest import BRIEF

pytestmark = pytest.mark.usefixtures("new_oracles")
KERNEL = Candidate(
    "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
)
REST = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2.0

def get_inputs():
    return [torch.rand(8, 8)]

def get_init_inputs():
    return []
"""
with_landlock = pytest.mark.skipif(landlock.abi() < 1, reason="this kernel has no Landlock")


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRANGE_API_KEY", "sk-0123456789")
        judge = Oracle("cpu", task_seconds=5.0)
        yield judge
        judge.close()


E = TypeVar("E", bound=EggError)
CHANNEL = """
import sys
frame = sys._getframe()
while "channel" not in frame.f_locals:
    frame = frame.f_back
channel = frame.f_locals["channel"]
"""
"""A task that finds the way to the orchestrator in the frames below it."""


def question_on(code: str, name: str = "strange") -> Question:
    task = Task(name, code + REST)
    return Question(task, KERNEL, Policy(level=Level.QUICK), skip=(Gate.STATIC,), settings=BRIEF)


def refused(oracle: Oracle, code: str, name: str = "strange") -> TaskError:
    return failed(oracle, code, TaskError, name)


def failed(oracle: Oracle, code: str, kind: type[E], name: str = "strange") -> E:
    with pytest.raises(kind) as caught:
        oracle.judge(question_on(code, name))
    return caught.value


def answer_of(oracle: Oracle, code: str) -> str:
    message = refused(oracle, f"{code}\nraise RuntimeError(f'answer: {{answer}}')\n").message
    return message.split("answer: ", 1)[1]


def test_a_task_sees_none_of_our_keys(oracle: Oracle) -> None:
    found = eval(answer_of(oracle, "import os\nanswer = sorted(os.environ)"))
    assert "PATH" in found
    assert not [name for name in found if "KEY" in name or "TOKEN" in name]


@with_landlock
def test_a_task_reads_and_writes_only_its_own_folder(oracle: Oracle, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "secret").write_text("42")
    for path in (tmp_path, tmp_path / "kept"):
        path.chmod(0o777)
    code = f"""
import os, shutil
answer = []
for attempt in (
    lambda: open({str(tmp_path / "secret")!r}).read(), lambda: os.listdir({str(Path.home())!r}),
    lambda: open("/etc/passwd"), lambda: open("/etc/shadow"), lambda: os.rmdir({str(tmp_path / "kept")!r}),
    lambda: open({str(tmp_path / "left")!r}, "w"), lambda: open({str(Path(__file__))!r}),
):
    try:
        attempt()
        answer.append("done")
    except OSError:
        pass
open("own", "w").write("x")
"""
    assert answer_of(oracle, code) == "[]"
    assert (tmp_path / "kept").is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user needs root")
def test_a_task_is_another_user_without_rights(oracle: Oracle) -> None:
    code = """
import os, socket
answer = [os.getuid() >= 1_000_000_000]
for attempt in (lambda: os.setuid(0), lambda: os.kill(os.getppid(), 0), lambda: os.chroot("/"),
                lambda: socket.create_connection(("127.0.0.1", 9), timeout=1)):
    try:
        attempt()
        answer.append("done")
    except OSError:
        pass
"""
    assert answer_of(oracle, code) == "[True]"


def test_what_a_task_prints_stays_off_our_streams(oracle: Oracle, capfd: pytest.CaptureFixture[str]) -> None:
    code = "import sys\nprint('{\"verdict\": 1}', flush=True)\nsys.stderr.write('x' * 5_000_000)\nanswer = 1"
    assert answer_of(oracle, code) == "1"
    assert capfd.readouterr() == ("", "")
    assert "xxx" in oracle.printed


def test_a_task_that_exits_is_named_and_not_the_memory(oracle: Oracle) -> None:
    error = refused(oracle, "import os\nprint('bye', flush=True)\nos._exit(0)")
    assert "its module-level code ended its process (exit code 0)" in error.message
    assert "memory" not in str(error)


def test_a_task_that_never_ends_is_ended(oracle: Oracle) -> None:
    error = refused(oracle, "while True:\n    try:\n        pass\n    except BaseException:\n        pass")
    assert "its module-level code did not end within 5 s" in error.message


def test_a_task_that_patches_the_judge_is_refused(oracle: Oracle) -> None:
    checks = "sys.modules['egg.evaluator.trial.checks'].Checks"
    error = refused(oracle, f"import sys\n{checks}.check_values = lambda *a, **k: None\n")
    assert "changes the judge: egg.evaluator.trial.checks.Checks.check_values" in error.message


def test_nothing_that_a_task_started_outlives_the_judge(oracle: Oracle) -> None:
    mark = str(10**9 + uuid.uuid4().int % 10**9)
    code = f"""
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "{mark}"])
    os._exit(0)
os.wait()
answer = 1
"""
    assert answer_of(oracle, code) == "1"
    oracle.close()
    assert subprocess.run(["pgrep", "-f", f"sleep {mark}"], capture_output=True).stdout == b""


FORGED = {"evaluation": samples.rejected().to_json()}
PRETENDED = f"{CHANNEL}channel.send({{'task': ''}})\n"
"""What makes it seem that the task's code has come to its end."""


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (f"{CHANNEL}channel.send({FORGED!r})\n", "its module-level code"),
        (f"{CHANNEL}channel.send({{'error': {{'kind': 'UsageError', 'message': 'm', 'hint': ''}}}})\n",
         "its module-level code"),
        (f"{PRETENDED}channel.send({FORGED!r})\n", "its code"),
    ],
    ids=["a result", "an error", "after a pretended end"],
)  # fmt: skip
def test_an_answer_by_the_task_is_named_so(oracle: Oracle, code: str, what: str) -> None:
    error = refused(oracle, code)
    assert f"{what} answered in the judge's place" in error.message
    assert judged(oracle)


@pytest.mark.parametrize(
    ("answer", "why"),
    [(FORGED, "it is for another task"), ({"evaluation": {}}, "it cannot be read")],
    ids=["for another task", "of no form"],
)
def test_after_a_confirmed_forgery_the_next_question_gets_its_own_answer(
    oracle: Oracle, answer: dict[str, object], why: str
) -> None:
    confirmed = f"{PRETENDED}channel.send({answer!r})\nchannel.receive()\nchannel.send({{'settled': True}})\n"
    error = failed(oracle, confirmed, MachineError)
    assert f"the judge's answer cannot be right: {why}" in error.message
    assert judged(oracle)


def judged(oracle: Oracle) -> bool:
    """Whether the oracle's next answer is on the question that it is put, and has the right verdict."""
    asked = question_on("", "ordinary")
    found = oracle.judge(asked)
    return found.task_hash == asked.task.hash and isinstance(found.verdict, Rejected)

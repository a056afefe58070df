"""The command line and what users get wrong: one message, the right code, nothing left behind.

Every kind of ending is tried once with the real command, in a process of its own with a judge of its own.
The other mistakes go through the same commands in this process, and are heard by the judge of all tests:
a judge takes longer to start than to hear any of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from egg.cli.app import app
from egg.evaluator.judge.oracle import Oracle
from tests.leftovers import Sandbox

CORPUS = Path(__file__).parents[1] / "corpus"
TASK = (CORPUS / "tasks" / "scale_shift.py").read_text()
KERNEL = (CORPUS / "honest" / "scale_shift.py").read_text()
COUNTING = """
def get_inputs():
    return [torch.ones(4, 8), {"step": 1}]

def count(self, x, cache):
    cache["step"] += 1
    return x * 2

Model.forward = count
"""
INPUTS, INIT = "def get_inputs():", "def get_init_inputs():"


def egg(*arguments: object) -> subprocess.CompletedProcess[str]:
    """In a process of its own."""
    command = [sys.executable, "-m", "egg.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def egg_here(*arguments: object) -> subprocess.CompletedProcess[str]:
    """In this process."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


class Files:
    """Files in a folder, and a command line to judge them with."""

    def __init__(self, folder: Path, command: Callable[..., subprocess.CompletedProcess[str]]) -> None:
        self._folder, self._command = folder, command

    def judge(self, task: str, kernel: str, *options: str) -> subprocess.CompletedProcess[str]:
        task_file, kernel_file = self._folder / "task.py", self._folder / "kernel.py"
        task_file.write_text(task)
        kernel_file.write_text(kernel)
        return self._command("eval", task_file, kernel_file, "--level", "quick", "--device", "cpu", *options)


class Lent:
    """The judge of all tests, for a command that closes the one it asks."""

    def __init__(self, oracle: Oracle) -> None:
        self.judge = oracle.judge
        self.printed = ""

    def close(self) -> None:
        pass


@pytest.fixture
def files(tmp_path: Path, oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setattr("egg.evaluator.judge.oracle.Oracle", lambda _: Lent(oracle))
    return Files(tmp_path, egg_here)


@pytest.fixture
def real_files(tmp_path: Path, sandbox: Sandbox) -> Iterator[Files]:
    yield Files(tmp_path, egg)
    assert sandbox.settles(lambda: not sandbox.processes()), "processes were left behind"
    assert sandbox.folders() == [], "folders were left behind"


def complains(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """It ended with ``code``, said why on standard error, and showed nobody a traceback."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert "hint:" in done.stderr
    for word in words:
        assert word in done.stderr


def patched(source: str, old: str, new: str) -> str:
    assert old in source
    return source.replace(old, new)


# files that are not what they should be


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("x = 1\n", ("Model", "get_inputs")),
        ("def broken(:\n", ("not valid Python", "line 1")),
        ("", ("Model",)),
        (TASK.replace("class Model(", "class Other("), ("Model",)),
    ],
    ids=["nothing", "syntax", "empty", "no_model"],
)
def test_a_file_that_is_no_task_is_2(files: Files, task, words):
    complains(files.judge(task, KERNEL), 2, *words)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("x = 1\n", ("ModelNew",)),
        ("class ModelNew(:\n", ("not valid Python",)),
        (KERNEL.replace("class ModelNew", "class Model"), ("ModelNew",)),
        ("\x00", ("kernel",)),
    ],
    ids=["nothing", "syntax", "other_name", "null_byte"],
)
def test_a_file_that_is_no_kernel_is_2(files: Files, kernel, words):
    complains(files.judge(TASK, kernel), 2, *words)


@pytest.mark.system
def test_a_missing_file_is_2(tmp_path):
    complains(egg("eval", tmp_path / "none.py", tmp_path / "none.py"), 2, "no such file")


def test_a_folder_is_no_file(tmp_path):
    complains(egg_here("eval", tmp_path, tmp_path), 2, "cannot read")


# tasks that do not run


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (patched(TASK, INPUTS, f"{INPUTS}\n    raise KeyError('lost')"), ("get_inputs", "KeyError")),
        (patched(TASK, INPUTS, f"{INPUTS}\n    return 3"), ("get_inputs",)),
        (patched(TASK, INIT, f"{INIT}\n    return [1, 2, 3, 4, 5]"), ("Model",)),
        (TASK + "\nraise RuntimeError('at import')\n", ("RuntimeError",)),
        (TASK + "\nimport sys\nsys.exit(0)\n", ("SystemExit",)),
        (TASK + "\nimport a_package_that_is_not_there\n", ("a_package_that_is_not_there",)),
        (TASK + "\nModel.forward = lambda self, x: 'text'\n", ("str",)),
        (TASK + "\nModel.forward = lambda self, x: None\n", ("returns nothing",)),
        (TASK + COUNTING, ("['step'] is int 2",)),
        (TASK + "\nModel = 3\n", ("Model",)),
    ],
    ids=["inputs", "no_list", "constructor", "import", "exit", "package", "output", "nothing", "container",
         "no_class"],
)  # fmt: skip
def test_a_task_that_does_not_run_is_2(files: Files, task, words):
    complains(files.judge(task, KERNEL), 2, *words)


@pytest.mark.system
def test_a_task_that_ends_the_process_is_2_by_the_real_command(real_files: Files):
    complains(real_files.judge(TASK + "\nimport sys\nsys.exit(0)\n", KERNEL), 2, "SystemExit")


def test_a_task_too_large_for_any_machine_is_3(files: Files):
    """No size in it can be made smaller: the number is computed, not named."""
    huge = patched(TASK, INPUTS, f"{INPUTS}\n    return [torch.zeros(int('1' + '0' * 14))]")
    complains(files.judge(huge, KERNEL), 3)


# machines that are not there


@pytest.mark.system
@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_3(real_files: Files):
    complains(real_files.judge(TASK, KERNEL, "--device", "cuda"), 3, "GPU")


@pytest.mark.parametrize(
    "options",
    [
        ("--device", "toaster"),
        ("--device", "mps"),
        ("--target", "toaster"),
        ("--level", "perfect"),
        ("--what",),
    ],
)
def test_a_wrong_option_is_2(files: Files, options):
    done = files.judge(TASK, KERNEL, *options)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


# how it is said


def test_json_says_it_to_programs_too(files: Files):
    done = files.judge("x = 1\n", KERNEL, "--json")
    complains(done, 2)
    printed = json.loads(done.stdout)
    assert (printed["schema"], printed["error"]) == ("egg.error/1", "usage")
    assert printed["hint"]


@pytest.mark.system
def test_debug_shows_the_traceback(real_files: Files):
    done = real_files.judge("x = 1\n", KERNEL, "--debug")
    assert done.returncode == 2
    assert "Traceback" in done.stderr


# candidates that fail are verdicts


@pytest.mark.parametrize(
    ("kernel", "gate"),
    [
        (KERNEL.replace("def __init__(self,", "def __init__(self, one, two, three,"), "build"),
        (KERNEL + "\nraise ValueError('at import')\n", "build"),
        (KERNEL + "\nModelNew.forward = lambda self, x: 'text'\n", None),
    ],
    ids=["constructor", "import", "output"],
)
def test_a_kernel_that_fails_is_rejected_and_not_an_error(files: Files, kernel, gate):
    done = files.judge(TASK, kernel, "--json")
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    verdict = json.loads(done.stdout)["verdict"]
    assert verdict["kind"] == "rejected"
    assert gate is None or verdict["refusal"]["gate"] == gate


@pytest.mark.system
def test_a_kernel_that_fails_is_1_by_the_real_command(real_files: Files):
    done = real_files.judge(TASK, KERNEL + "\nraise ValueError('at import')\n")
    assert done.returncode == 1, done.stderr
    assert "REJECTED" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.system
def test_an_honest_kernel_is_accepted_by_the_same_door(real_files: Files):
    done = real_files.judge(TASK, KERNEL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ACCEPTED" in done.stdout

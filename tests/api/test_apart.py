"""A task's code outside the judge: in a confined process, whatever is asked of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from egg.api import apart
from egg.core.errors import EggError, TaskError
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.process import landlock
from egg.hardware.gpus import resolve

REST = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)

def get_inputs():
    return [torch.rand(32, 128)]

def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module", autouse=True)
def key_in_the_environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRANGE_API_KEY", "sk-0123456789")
        yield


def refused(code: str) -> str:
    with pytest.raises(TaskError) as caught:
        apart.check_loads(Task("strange", code + REST))
    assert "memory" not in str(caught.value)
    return caught.value.message


def test_facts_come_back_as_values() -> None:
    facts = apart.facts_of(Task("softmax", REST), resolve("H200"), Precision.MATCH)
    assert facts.gpu.name == "H200"
    assert facts.program is not None
    assert facts.program.operations == ("aten._softmax [32, 128]",)
    program, workload = apart.seen(Task("softmax", REST))
    assert program == facts.program
    assert workload.flops == program.flops


ON_CUDA = ("rand(32, 128, device='cuda')", "rand(32, 128).cuda()", "rand(32, 128).to('cuda:0')")


@pytest.mark.parametrize("made", ON_CUDA)
def test_inputs_on_cuda_are_an_error_before_a_run_where_there_is_no_gpu(made: str) -> None:
    task = Task("strange", REST.replace("rand(32, 128)", made))
    with pytest.raises(TaskError, match="makes its tensors on CUDA, and there is no GPU here"):
        apart.check_loads(task, "cpu")


def test_inputs_that_look_for_a_gpu_first_are_none() -> None:
    made = "rand(32, 128, device='cuda' if torch.cuda.is_available() else 'cpu')"
    apart.check_loads(Task("strange", REST.replace("rand(32, 128)", made)), "cpu")


def test_the_code_does_not_run_here() -> None:
    assert f"answer: {os.getpid()}" not in refused("import os\nraise RuntimeError(f'answer: {os.getpid()}')")
    assert "sys" in refused("import sys\nraise RuntimeError('sys')")


@pytest.mark.skipif(landlock.abi() < 1, reason="this kernel has no Landlock")
def test_it_finds_no_key_and_no_file_of_ours(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    code = f"""
import os
found = [name for name in os.environ if "KEY" in name]
for path in ({str(Path.home())!r}, "/etc/passwd", {str(tmp_path)!r}):
    try:
        os.listdir(path) if os.path.isdir(path) else open(path)
        found.append(path)
    except OSError:
        pass
raise RuntimeError(f"found {{found}}")
"""
    assert "found []" in refused(code)


def test_a_task_that_exits_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    assert "its module-level code ended its process" in refused("import os\nprint('{}')\nos._exit(0)")
    assert capfd.readouterr().out == ""


def test_a_task_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EGG_TASK_SECONDS", "2")
    assert "its module-level code did not end within 2 s" in refused("while True: pass")


def test_an_answer_of_no_known_form_is_refused() -> None:
    forged = """
import json, os, socket, stat, struct
fds = [int(n) for n in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{n}")]
fd = next(n for n in fds if n > 2 and stat.S_ISSOCK(os.fstat(n).st_mode))
body = json.dumps({"id": 1, "error": 7}).encode()
socket.socket(fileno=os.dup(fd)).sendall(struct.pack("!I", len(body)) + body)
"""
    with pytest.raises(EggError) as caught:
        apart.check_loads(Task("strange", forged + REST))
    assert "in an unknown form" in caught.value.message

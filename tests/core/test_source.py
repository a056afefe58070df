from __future__ import annotations

import hashlib
import json

import pytest

from egg.core.errors import KernelFileError, TaskError
from egg.core.source import Candidate, Task, content_hash, content_sha256, earlier_hash

TASK = """
import torch
class Model(torch.nn.Module):
    pass
def get_inputs(): return []
def get_init_inputs(): return []
"""
KERNEL = "class ModelNew: pass\n"


def test_a_task_file(tmp_path):
    path = tmp_path / "square.py"
    path.write_text(TASK)
    task = Task.from_file(path)
    assert (task.name, task.source, task.level) == ("square", TASK, None)


def test_a_task_line():
    line = json.dumps({"level": 1, "problem_id": 7, "name": "seven", "code": TASK})
    task = Task.from_json_line(line)
    assert (task.name, task.level, task.problem_id) == ("seven", 1, 7)


@pytest.mark.parametrize("line", ["{", "[]", '{"name": "x"}', "3", '{"code": "", "name": "x"}'])
def test_a_bad_task_line(line):
    with pytest.raises(TaskError):
        Task.from_json_line(line)


@pytest.mark.parametrize("missing", ["Model", "get_inputs", "get_init_inputs"])
def test_a_task_says_what_it_lacks(missing):
    with pytest.raises(TaskError, match=missing):
        Task("t", TASK.replace(missing, "other"))


def test_names_bound_by_assignment_or_import_count():
    Task("t", "from x import Model\nget_inputs = get_init_inputs = lambda: []\n")


def test_syntax_errors_name_the_line(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("x = 1\nclass (:\n")
    with pytest.raises(TaskError, match="line 2"):
        Task.from_file(path)
    with pytest.raises(KernelFileError, match="line 2"):
        Candidate.from_file(path)


def test_unreadable_files(tmp_path):
    with pytest.raises(TaskError, match="no such file"):
        Task.from_file(tmp_path / "absent.py")
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(KernelFileError, match="cannot read"):
        Candidate.from_file(tmp_path / "bytes.py")
    with pytest.raises(KernelFileError, match="cannot read"):
        Candidate.from_file(tmp_path)


def test_a_kernel_file_needs_modelnew(tmp_path):
    path = tmp_path / "k.py"
    path.write_text(KERNEL)
    assert Candidate.from_file(path).name == "k"
    path.write_text("class Model: pass\n")
    with pytest.raises(KernelFileError, match="ModelNew"):
        Candidate.from_file(path)


def test_nothing_is_run(tmp_path):
    path = tmp_path / "k.py"
    path.write_text("raise SystemExit\n" + KERNEL)
    assert Candidate.from_file(path).source.startswith("raise SystemExit")


def test_the_hash_tells_any_two_texts_apart():
    texts = [
        "a = 1\nb = 2\n", "a = 1\nb = 2", "\na = 1\nb = 2\n", "a = 1\r\nb = 2\r\n", "a = 1 \nb = 2\n",
        "a = 1\u2028b = 2\n", "a = 1\x0bb = 2\n", "a = 1\x85b = 2\n", "a =  1\nb = 2\n",
        "a = '\ud800'\n", "a = '\\ud800'\n",
    ]  # fmt: skip
    assert len({content_hash(text) for text in texts}) == len(texts)


def test_a_comment_that_swallows_a_line_is_another_file():
    """The right file comments the wrong assignment out behind a separator that ends no line of Python."""
    right, wrong = "SCALE = 1.0  # all\u2028SCALE = 7.0\n", "SCALE = 1.0  # all\nSCALE = 7.0\n"
    assert Candidate(right).hash != Candidate(wrong).hash
    assert earlier_hash(right) is None


def test_a_text_in_the_usual_form_keeps_the_name_it_always_had():
    whole = hashlib.sha256(b"a = 1\nb = 2").hexdigest()
    assert content_sha256("a = 1\nb = 2\n") == Candidate("a = 1\nb = 2\n").sha256 == whole
    assert content_hash("a = 1\nb = 2\n") == whole[:16]
    assert earlier_hash("a = 1\nb = 2\n") is None
    assert earlier_hash("a = 1  \r\nb = 2") == content_hash("a = 1\nb = 2\n")

"""What the processes of a verdict leave on the terminal when they end: nothing of their own."""

from __future__ import annotations

import subprocess
import sys

LEAK = """
import ctypes
from triton._C.libtriton import ir
context = ir.context()
ctypes.pythonapi.Py_IncRef(ctypes.py_object(context))
"""
KEPT = f"""
from egg.evaluator.process.subreaper import keep
keep(lambda folder, uid: exec({LEAK!r}, {{}}), lambda: None, own_user=False)
"""


def ended(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_an_oracle_ends_without_the_compiler_s_notes_on_what_it_leaked():
    assert "nanobind: leaked" in ended(LEAK).stderr, "the compiler says nothing any more: this test is moot"
    kept = ended(KEPT)
    assert (kept.returncode, kept.stdout, kept.stderr) == (0, "", "")

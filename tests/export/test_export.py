"""``egg export``: a kernel becomes an operator that PyTorch finds sound, in a process that has no EGG."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from egg.cli import judging
from egg.cli.app import app
from egg.core.source import Candidate, Task
from tests import samples
from tests.engine.scripts import FULL, begin, go_on

ROOT = Path(__file__).parents[2]
RMS_NORM = ROOT / "examples" / "rms_norm"


def egg(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def apart(*command: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """A process whose path does not lead to this repository."""
    environ = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "TRITON_INTERPRET")}
    return subprocess.run(
        [sys.executable, *map(str, command)],
        env={**environ, "OMP_NUM_THREADS": "1", **variables}, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip


@pytest.fixture
def accepting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge has its own tests: here it accepts, and names what it was given."""

    def evaluate(task: Task, candidate: Candidate, policy: object, **how: object):
        return replace(samples.compiled(), task_hash=task.hash, candidate_hash=candidate.hash, policy=policy)

    monkeypatch.setattr(judging, "evaluate", evaluate)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    begin(tmp_path / "run")
    assert go_on(tmp_path / "run", FULL).state.closed is not None
    return tmp_path / "run"


def test_the_operator_of_a_run_passes_its_own_tests(run: Path, tmp_path: Path) -> None:
    result = egg("export", run, tmp_path / "op", "--json")
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed["operator"].startswith("torch.ops.egg_double_")
    tested = apart(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "op" / "tests",
        "--rootdir", tmp_path / "op", PYTHONPATH=str(tmp_path / "op"),
    )  # fmt: skip
    assert tested.returncode == 0, tested.stdout[-3000:]
    assert " passed" in tested.stdout


@pytest.mark.parametrize("interpret", ["0", "1"])
def test_the_example_uses_an_exported_kernel_without_egg(
    interpret: str, accepting: None, tmp_path: Path
) -> None:
    """Parameters, a number of the constructor, compile, export and a gradient; interpreted, or by PyTorch."""
    task = RMS_NORM / "rms_norm.py"
    result = egg("export", RMS_NORM / "fused.py", tmp_path / "op", "--task", task, "--level", "quick")
    assert result.exit_code == 0, result.output
    used = apart(ROOT / "examples" / "use_exported.py", tmp_path / "op", TRITON_INTERPRET=interpret)
    assert used.returncode == 0, used.stderr[-3000:]
    assert "without egg" in used.stdout


LOADED = """
import importlib.util, sys
from pathlib import Path
variant = Path(sys.argv[1]) / "build" / "torch-universal"
import json
assert json.loads((variant / "metadata.json").read_text())["python-depends"] == []
import torch
for at, path in enumerate((variant / "__init__.py", variant / "rms_norm" / "__init__.py")):
    spec = importlib.util.spec_from_file_location(f"rms_norm_{at}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    x = torch.randn(4, 64)
    fast = module.ModelNew(64)
    wanted = torch.nn.functional.rms_norm(x, (64,), eps=1e-6)
    torch.testing.assert_close(fast(x), wanted, rtol=1e-4, atol=1e-5)
    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.features, self.eps = torch.nn.Parameter(torch.ones(64)), 64, 1e-6
        forward = module.layers.RmsNorm.forward
    torch.testing.assert_close(Own()(x), wanted, rtol=1e-4, atol=1e-5)
assert "egg" not in sys.modules
"""


def test_a_hub_repository_loads_as_the_kernels_package_loads_it(accepting: None, tmp_path: Path) -> None:
    """By path and under a name of its own, in today's layout and in the earlier one."""
    task = RMS_NORM / "rms_norm.py"
    result = egg("export", RMS_NORM / "fused.py", tmp_path / "hub", "--task", task, "--to", "hub")
    assert result.exit_code == 0, result.output
    loaded = apart("-c", LOADED, tmp_path / "hub")
    assert loaded.returncode == 0, loaded.stderr[-3000:]


def test_what_cannot_be_exported_is_said(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert egg("export", RMS_NORM / "fused.py", tmp_path / "op").exit_code == 2
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    assert "not empty" in egg("export", run, tmp_path / "full").output
    begin(tmp_path / "open")
    assert "has not ended" in egg("export", tmp_path / "open", tmp_path / "op").output
    monkeypatch.setattr(judging, "evaluate", lambda *given, **how: samples.rejected())
    refused = egg("export", RMS_NORM / "fused.py", tmp_path / "op", "--task", RMS_NORM / "rms_norm.py")
    assert refused.exit_code == 1
    assert "REJECTED" in refused.output
    assert not (tmp_path / "op").exists()

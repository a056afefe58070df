"""The README: its commands run as written, its figures are those of the evidence, its links lead somewhere.

The judge is replaced by a scripted one, and so are endpoints, a KernelBench checkout and the answers of a
person: what is tried is that every command exists, takes these options and ends well.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from egg.api import optimizing
from egg.api.runs import state_of
from egg.cli import judging
from egg.cli.app import app
from egg.core.source import Candidate
from egg.engine.scripted import Act, ScriptedJudge
from tests import samples
from tests.engine.scripts import FACTS, TASK

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PARSED_ONLY = ("view", "profile", "bench ~/KernelBench", "reply", "optimize task.py --team hybrid")
"""These serve until they are stopped, take long, need a checkout or a person, or ask an endpoint."""


def shell(text: str) -> list[str]:
    """Every command in a fenced block of shell, without its comment."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    joined = "\n".join(blocks).replace("\\\n", " ")
    return [found for line in joined.splitlines() if (found := line.partition("#")[0].strip())]


def commands(text: str) -> list[str]:
    return [line for line in shell(text) if line.startswith("egg ")]


@cache
def help_of(*words: str) -> str:
    done = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "300"})
    assert done.exit_code == 0, f"egg {' '.join(words)}: {done.output}"
    return done.stdout


def check_known(line: str) -> None:
    """The command exists, and so does every option that the line gives it."""
    words = shlex.split(line)[1:]
    verbs = ("score", "compare", "export", "judge")
    inner = words[0] in ("kernels", "skills", "lessons") or (words[0] == "bench" and words[1] in verbs)
    help_text = help_of(*words[: 2 if inner else 1])
    options = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert all(option in help_text for option in options), line


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone as far as the commands see it, and a judge that accepts without a GPU."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (tmp_path / "task.py").write_text(TASK.source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(optimizing, "facts_of", lambda task, gpu, precision: FACTS)
    monkeypatch.setattr(optimizing, "LocalJudge", lambda *_: ScriptedJudge(_timed, None))
    monkeypatch.setattr(judging, "evaluate", lambda *_, **__: samples.compiled())
    return tmp_path


def _timed(candidate: Candidate) -> Act:
    kernels = re.findall(r"^def (\w+)\(", candidate.source, re.MULTILINE)
    return Act(0.5, kernels={kernels[0]: 1})


def test_the_commands_run_as_they_are_written(place: Path) -> None:
    found = commands(README)
    assert len(found) >= 12
    for line in found:
        words = shlex.split(line)[1:]
        check_known(line)
        if line.removeprefix("egg ").startswith(PARSED_ONLY):
            continue
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, f"{line}\n{done.output}"
    closed = state_of(place / "run").closed
    assert closed is not None
    assert (place / "run" / "kernel.py").is_file()
    assert (place / "run" / "report.html").is_file()


def test_the_picture_and_the_table_are_those_of_the_evidence() -> None:
    made = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "figures" / "results.py")))
    found = made.reports()
    assert made.filled(README, made.table(found)) == README
    assert made.picture(found) == made.PICTURE.read_text(encoding="utf-8")


def test_the_output_that_is_shown_is_that_of_the_kept_run() -> None:
    done = CliRunner().invoke(app, ["replay", str(ROOT / "examples/trajectories/linear_gelu_residual")])
    printed = {" ".join(line.split()) for line in done.stdout.splitlines()}
    shown = re.search(r"^```\n( FASTER .*?)^```", README, re.DOTALL | re.MULTILINE)
    assert shown is not None
    assert {" ".join(line.split()) for line in shown[1].splitlines() if line.strip()} <= printed


def test_the_deploy_tutorial_runs_as_it_is_written(place: Path) -> None:
    """Commands with a scripted judge; Python, in the interpreter, with the file of the built-in team."""
    first = (ROOT / "docs" / "tutorials" / "first-module.md").read_text(encoding="utf-8")
    deploy = (ROOT / "docs" / "tutorials" / "deploy.md").read_text(encoding="utf-8")
    module = re.search(r"^```python\n(# gate\.py\n.*?)^```", first, re.DOTALL | re.MULTILINE)
    assert module is not None
    (place / "gate.py").write_text(module[1])
    for line in shell(deploy):
        words = shlex.split(line)
        if words[0] == "cp":
            shutil.copy(words[1], words[2])
            continue
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, f"{line}\n{done.output}"
    blocks = re.findall(r"^```python\n(.*?)^```", deploy, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 5
    script = "\n".join(blocks).replace('device = "cuda"', 'device = "cpu"')
    (place / "deployed.py").write_text(
        script.replace("torch.compile(", 'torch.compile(backend="eager", model=')
    )
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    run = subprocess.run([sys.executable, "deployed.py"], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("use the original module") == 3


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 135


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_in_the_docs_exists_with_its_options(page: Path) -> None:
    for line in commands(page.read_text(encoding="utf-8")):
        check_known(line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target or target.startswith("#"):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve()
        assert found.exists(), f"{page.name}: {target}"
        if anchor and found.suffix == ".md":
            heads = re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
            assert anchor in slugs, f"{page.name}: {target}"


def test_the_files_to_touch_for_an_extension_exist() -> None:
    """Names in capitals stand for a new file or folder: what is before them exists."""
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:src|tests|docs)/[\w./-]+|pyproject\.toml|constraints\.txt)`", text)
    assert len(named) > 20
    for path in named:
        known = re.split(r"[^/]*\b(?:NAME|PATTERN|EXAMPLE)|[^/]*_NAME", path)[0]
        assert (ROOT / known).exists(), path

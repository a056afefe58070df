"""``egg --help``, completion, and what a help page shows of an option."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from egg.cli.app import Commands, app

HEAVY = {"torch", "triton", "pydantic", "jinja2", "rich", "openai", "anthropic", "optuna", "numpy"}
IMPORTED = """
import sys
from egg.cli.app import app
try:
    app(["--help"], prog_name="egg")
except SystemExit as ended:
    assert not ended.code
print(*sys.modules, file=sys.stderr)
"""


def completed(words: str) -> tuple[list[str], set[str]]:
    """What the shell is offered for the last of ``words``, and the modules that were imported for it."""
    asked = {"_EGG_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    code = "import atexit, sys\natexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
    code += "from egg.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, timeout=60
    )
    return done.stdout.split(), set(done.stderr.split())


def test_the_help_imports_nothing_that_a_command_needs():
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    modules = set(done.stderr.split())
    assert not modules & HEAVY
    assert {name for name in modules if name.startswith("egg.")} == {"egg.cli", "egg.cli.app", "egg.cli.lazy"}


@pytest.mark.parametrize("entry", Commands.entries, ids=lambda entry: entry.name)
def test_every_command_is_listed_and_its_own_help_shows_no_type_behind_a_flag(entry):
    listed = CliRunner().invoke(app, ["--help"])
    assert f"  {entry.name} " in listed.stdout
    assert entry.help in listed.stdout
    own = CliRunner().invoke(app, [entry.name, "--help"])
    assert own.exit_code == 0, own.output
    assert "bool" not in own.stdout.lower()


@pytest.mark.parametrize(
    "words", [("bench", "score"), ("bench", "compare"), ("lessons", "prune"), ("skills", "why")]
)
def test_flags_of_subcommands_show_no_type_either(words):
    own = CliRunner().invoke(app, [*words, "--help"])
    assert own.exit_code == 0, own.output
    assert "--json" in own.stdout
    assert "bool" not in own.stdout.lower()


def test_the_shell_completes_commands_without_importing_them():
    offered, modules = completed("egg ev")
    assert offered == ["eval", "eval-batch"]
    assert not modules & (HEAVY - {"rich", "pydantic"}), "beyond what Typer itself imports to complete"
    assert "egg.cli.judge_commands" not in modules


def test_the_shell_completes_subcommands_and_options():
    assert completed("egg bench sco")[0] == ["score"]
    assert completed("egg eval --lev")[0] == ["--level"]


def test_an_unknown_command_is_a_mistake_of_the_user():
    done = CliRunner().invoke(app, ["evla"])
    assert done.exit_code == 2
    assert "evla" in done.output

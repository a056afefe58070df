"""All that a test file depends on is found: a ledger must not leave out a test whose inputs changed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.dependencies import ROOT, SOURCE, TESTS, dependencies, direct, reached

EGG = f"{SOURCE}/egg"


@pytest.mark.parametrize(
    ("test", "needed", "why"),
    [
        ("core/test_domain.py", f"{EGG}/core/domain.py", "it is imported"),
        ("core/test_domain.py", f"{EGG}/core/__init__.py", "its package is imported first"),
        ("core/test_domain.py", f"{TESTS}/conftest.py", "every test has it"),
        ("api/test_apart.py", f"{EGG}/api/taskside.py", "a process is started by its name"),
        ("api/test_apart.py", f"{EGG}/expert/patterns/attention/write.py", "that process imports it"),
        ("test_cli_lessons.py", f"{EGG}/cli/lessons.py", "a table of commands names it"),
        ("knowledge/test_catalogue.py", f"{EGG}/knowledge/skills/split-k/SKILL.md", "it is read as data"),
        ("hardware/test_roofline.py", f"{EGG}/hardware/gpus.toml", "it lies beside a module that reads it"),
        ("bench/test_llm_ops.py", f"{EGG}/bench/llm_ops/lora_linear.py", "it is found by its place"),
        ("evaluator/test_judge.py", f"{EGG}/evaluator/worker/session.py", "a fixture asks the judge"),
        ("evaluator/test_judge.py", f"{EGG}/evaluator/judge/oracle.py", "a fixture asks the judge"),
        (
            "evaluator/interpreter/test_blind_spots.py",
            f"{EGG}/evaluator/interpreter/races.py",
            "the conftest of its folder interprets kernels",
        ),
        ("modules/test_compile_and_tune.py", f"{EGG}/modules/backend.py", "a helper's program imports egg"),
        ("test_readme.py", f"{ROOT}/README.md", "it is read"),
    ],
)
def test_what_is_needed_is_found(test: str, needed: str, why: str) -> None:
    assert needed in dependencies(f"{TESTS}/{test}"), why


def test_what_is_not_needed_does_not_void_a_test() -> None:
    found = dependencies(f"{TESTS}/core/test_domain.py")
    assert not [path for path in found if path.startswith((f"{EGG}/expert", f"{EGG}/evaluator"))]
    assert f"{TESTS}/core/test_source.py" not in found
    verdicts = dependencies(f"{TESTS}/evaluator/test_judge.py")
    assert not [path for path in verdicts if path.startswith(f"{EGG}/expert")]


def test_what_decides_which_tests_run_and_other_rooms_void_nothing() -> None:
    verdicts = dependencies(f"{TESTS}/evaluator/test_modes.py")
    assert f"{TESTS}/conftest.py" in verdicts
    assert f"{TESTS}/evaluator/verdicts.py" in verdicts, "a helper of its room"
    assert not verdicts & {f"{TESTS}/ledger.py", f"{TESTS}/sampling.py", f"{TESTS}/expert/harness.py"}
    assert f"{ROOT}/CHANGELOG.md" not in verdicts


def test_direct_imports_are_apart_from_what_those_import() -> None:
    found = direct(f"{TESTS}/analysis/test_diagnose.py")
    assert f"{EGG}/analysis/diagnose.py" in found
    assert found < dependencies(f"{TESTS}/analysis/test_diagnose.py")
    corpus = direct(f"{TESTS}/evaluator/test_corpus.py")
    assert f"{TESTS}/evaluator/verdicts.py" in corpus, "a helper that it imports"
    assert f"{EGG}/evaluator/trial/levels.py" in corpus, "what the helper imports"


def test_no_ledger_is_among_the_inputs() -> None:
    assert not [path for path in dependencies(f"{TESTS}/test_ledger.py") if "/data/files.json" in path]


def loaded() -> Iterator[ModuleType]:
    """The modules of this repository that this process has imported."""
    for module in list(sys.modules.values()):
        if (getattr(module, "__file__", None) or "").startswith((SOURCE, TESTS)):
            yield module


def origin(value: Any) -> str:
    """The file in which a value of a module's namespace was made, or that it is."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    module = sys.modules.get(name) if isinstance(name, str) else None
    return getattr(module, "__file__", None) or ""


def is_submodule(value: Any, module: ModuleType) -> bool:
    """A package holds those of its modules that were imported."""
    return isinstance(value, ModuleType) and value.__name__.startswith(f"{module.__name__}.")


def test_everything_that_a_loaded_module_holds_comes_from_a_file_that_is_found() -> None:
    modules = {module.__file__: module for module in loaded() if module.__name__ != "egg"}
    assert len(modules) > 20
    missing = {
        (path, origin(value))
        for path, module in modules.items()
        for name, value in vars(module).items()
        if not is_submodule(value, module) and not name.startswith("__compiled_fn")  # what Dynamo leaves
        if path and origin(value).startswith(SOURCE) and origin(value) not in reached(path)
    }
    assert not missing

"""The honest cases: tasks of realistic size, each with a kernel its author would be content with.

A case is a folder with ``task.py`` and ``kernel.py``. The first line of a task may state the
terms it is judged under: ``# policy: precision=tf32 library_calls=forbid``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from egg.core.policy import Level, LibraryCalls, Policy, Precision
from egg.core.source import Candidate, Task
from egg.evaluator.judge.question import Question

CASES = Path(__file__).resolve().parent / "cases"
PREFIX = "# policy:"


@dataclass(frozen=True)
class Case:
    """One honest kernel for one task, and the terms."""

    name: str
    task: Task
    kernel: Candidate
    precision: Precision
    library_calls: LibraryCalls

    def question(self, level: Level) -> Question:
        return Question(self.task, self.kernel, Policy(self.precision, self.library_calls, level))


def load_cases(only: list[str] | None = None) -> list[Case]:
    """All cases by name, or those whose names are given."""
    found = {path.name: path for path in sorted(CASES.iterdir()) if (path / "task.py").is_file()}
    unknown = sorted(set(only or ()) - set(found))
    if unknown:
        raise SystemExit(f"no such case: {', '.join(unknown)}; there are {', '.join(found)}")
    return [load_case(path) for name, path in found.items() if not only or name in only]


def load_case(folder: Path) -> Case:
    source = (folder / "task.py").read_text(encoding="utf-8")
    kernel = Candidate.from_file(folder / "kernel.py")
    terms = policy_terms(source)
    return Case(
        folder.name,
        Task(folder.name, source),
        Candidate(kernel.source, folder.name),
        Precision(terms.pop("precision", "match")),
        LibraryCalls(terms.pop("library_calls", "allow")),
    )


def policy_terms(source: str) -> dict[str, str]:
    """The terms a task states in its first line; none where it states nothing."""
    first = source.partition("\n")[0].strip()
    if not first.startswith(PREFIX):
        return {}
    terms = dict(word.split("=", 1) for word in first.removeprefix(PREFIX).split())
    unknown = sorted(set(terms) - {"precision", "library_calls"})
    if unknown:
        raise ValueError(f"unknown terms in {first!r}: {', '.join(unknown)}")
    return terms

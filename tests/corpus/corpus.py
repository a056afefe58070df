"""Reads the adversarial corpus: which kernel files there are, and what the judge must say of each.

Every kernel file opens with a docstring that explains it and ends in metadata lines ``key: value``;
README.md tells what they mean. Nothing here runs any of the files.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from egg.core.evaluation import Gate
from egg.core.policy import Host, Level, LibraryCalls, Policy, Precision

HERE = Path(__file__).parent
KEYS = ("task", "gates", "reason", "needs", "policy", "static", "probes")


@dataclass(frozen=True)
class Case:
    """One kernel file and the verdict it must get."""

    path: Path
    task_path: Path
    expected: Literal["accepted", "rejected"]
    gates: tuple[Gate, ...]
    """The gates that may refuse it, in order; empty for an honest kernel."""
    reasons: tuple[str, ...]
    """What the reason code may begin with when the first of ``gates`` refuses; one empty text for any."""
    needs: Literal["cpu", "gpu"]
    policy: Policy
    static: bool
    """False: judge it with the static gate switched off, to test the gates behind it."""
    whole: bool = False
    """Whether it takes the calls and values that are tried at level full."""
    callers: bool = False
    """Whether it takes a session as long as those of level full."""

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.stem}"


def load_corpus() -> list[Case]:
    """Every case, exploits first, then hostile files, then honest look-alikes."""
    folders = ("exploits", "hostile", "honest")
    return [read_case(path) for folder in folders for path in sorted((HERE / folder).glob("*.py"))]


def read_case(path: Path) -> Case:
    data = _metadata(path)
    honest = path.parent.name == "honest"
    gates = tuple(Gate(word.strip()) for word in data.get("gates", "").split(",") if word.strip())
    if honest == bool(gates):
        raise ValueError(f"{path}: an honest kernel names no gates, every other names at least one")
    task_path = HERE / "tasks" / f"{data['task']}.py"
    if not task_path.is_file():
        raise ValueError(f"{path}: no task {data['task']!r}")
    if data["needs"] not in ("cpu", "gpu"):
        raise ValueError(f"{path}: needs cpu or gpu, not {data['needs']!r}")
    return Case(
        path=path,
        task_path=task_path,
        expected="accepted" if honest else "rejected",
        gates=gates,
        reasons=tuple(word.strip() for word in data.get("reason", "").split(",")),
        needs="gpu" if data["needs"] == "gpu" else "cpu",
        policy=_policy(data.get("policy", "")),
        static=data.get("static", "on") != "off",
        whole=data.get("probes", "few") == "all",
        callers=data.get("probes", "few") == "callers",
    )


def _metadata(path: Path) -> dict[str, str]:
    """The trailing ``key: value`` lines of the file's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    found: dict[str, str] = {}
    for text in reversed(docstring.splitlines()):
        key, colon, value = text.partition(":")
        if not colon or key not in KEYS:
            break
        found[key] = value.strip()
    missing = [key for key in ("task", "needs") if key not in found]
    if missing:
        raise ValueError(f"{path}: its docstring lacks {', '.join(missing)}")
    return found


def _policy(text: str) -> Policy:
    terms = dict(word.split("=", 1) for word in text.split())
    unknown = set(terms) - {"precision", "library_calls", "host"}
    if unknown:
        raise ValueError(f"unknown policy terms: {sorted(unknown)}")
    return Policy(
        precision=Precision(terms.get("precision", "match")),
        library_calls=LibraryCalls(terms.get("library_calls", "allow")),
        level=Level.QUICK,
        host=Host(terms.get("host", "author")),
    )

"""A PyTorch program to speed up, and a kernel file that claims to: source text with a content hash.

Both follow KernelBench's form. A task defines ``Model``, ``get_inputs`` and
``get_init_inputs``; a kernel file defines ``ModelNew``. Nothing here runs any of it: the
checks are on the syntax tree.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from egg.core.errors import KernelFileError, TaskError, UsageError

TASK_NAMES = ("Model", "get_inputs", "get_init_inputs")


_UNUSUAL_BREAKS = frozenset("\v\f\x1c\x1d\x1e\x85\u2028\u2029")
"""What ``str.splitlines`` takes for the end of a line, and Python for text."""


_SURROGATES = re.compile("[\ud800-\udfff]")
"""Halves of characters, which UTF-8 cannot hold: earlier names spelled them out, as a text itself may."""


SHORT = 16
"""Hex digits of a name: enough to tell files apart by, and few enough that two files with one can be made."""


def content_hash(text: str) -> str:
    """The name of a text in logs, on pages and in prompts: the first 16 digits of :func:`content_sha256`.

    A verdict holds for the text with the same whole hash, never for every text of that name.
    """
    return content_sha256(text)[:SHORT]


def content_sha256(text: str) -> str:
    """The identity of a text: the SHA-256 over its bytes, in 64 hex digits.

    A text in the usual form (no trailing space, ``\\n`` between lines and once at the end) is hashed without
    its last line end, as every version has done, so that names in earlier logs stay valid. Any other text is
    hashed byte for byte behind a mark that no Python text begins with.
    """
    usual = _normal(text)
    if text == f"{usual}\n" and not _SURROGATES.search(text):
        return _digest(usual.encode("utf-8"))
    return _digest(b"\0bytes\0" + text.encode("utf-8", "surrogatepass"))


def earlier_hash(text: str) -> str | None:
    """What versions before the hash over bytes called ``text``, where it is another name than today's.

    ``None`` too for a text with characters that those versions took for others, line separators above all:
    two programs could share such a name.
    """
    if _UNUSUAL_BREAKS.intersection(text) or _SURROGATES.search(text):
        return None
    earlier = _digest(_normal(text).encode("utf-8", "backslashreplace"))[:SHORT]
    return earlier if earlier != content_hash(text) else None


def _normal(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Task:
    """A program to speed up. ``name`` and ``hash`` are for people, ``sha256`` is the identity."""

    name: str
    source: str
    level: int | None = None
    problem_id: int | None = None

    def __post_init__(self) -> None:
        tree = _parse(self.source, self.name, TaskError)
        missing = [n for n in TASK_NAMES if n not in _defined(tree)]
        if missing:
            raise TaskError(
                f"task {self.name!r} does not define {', '.join(missing)}",
                "a task file defines class Model(nn.Module), get_inputs() and get_init_inputs()",
            )

    @cached_property
    def hash(self) -> str:
        return content_hash(self.source)

    @cached_property
    def sha256(self) -> str:
        return content_sha256(self.source)

    @classmethod
    def from_file(cls, path: Path) -> Task:
        return cls(name=path.stem, source=_read(path, TaskError))

    @classmethod
    def from_json_line(cls, line: str) -> Task:
        """One line of a KernelBench export: ``{level, problem_id, name, code}``."""
        try:
            row = json.loads(line)
            return cls(row["name"], row["code"], row.get("level"), row.get("problem_id"))
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise TaskError(
                f"not a task line: {error!r}", "expected JSON with at least 'name' and 'code'"
            ) from error


@dataclass(frozen=True)
class Candidate:
    """A kernel file: the code that claims to do what the task does, faster."""

    source: str
    name: str = "candidate"

    @cached_property
    def hash(self) -> str:
        return content_hash(self.source)

    @cached_property
    def sha256(self) -> str:
        return content_sha256(self.source)

    @classmethod
    def from_file(cls, path: Path) -> Candidate:
        """Read a kernel file, refusing what is not one (a bad kernel is another matter)."""
        source = _read(path, KernelFileError)
        tree = _parse(source, path.name, KernelFileError)
        if "ModelNew" not in _defined(tree):
            raise KernelFileError(
                f"{path.name} does not define ModelNew",
                "a kernel file defines class ModelNew(nn.Module) with the parameters of Model",
            )
        return cls(source=source, name=path.stem)


def _read(path: Path, error: type[UsageError]) -> str:
    with reading(path, error, "check the path", "it must be a UTF-8 Python file"):
        return path.read_text(encoding="utf-8")


@contextmanager
def reading(path: Path, error: type[UsageError], missing: str, form: str) -> Iterator[None]:
    """Raise ``error`` where a text file cannot be read; ``missing`` and ``form`` are the hints for a file
    that is not there, and for one that is something else."""
    try:
        yield
    except FileNotFoundError:
        raise error(f"no such file: {path}", missing) from None
    except OSError as reason:
        raise error(f"cannot read {path}: {reason.strerror}", form) from None
    except UnicodeDecodeError as reason:
        raise error(f"cannot read {path}: {reason}", form) from None


def _parse(source: str, name: str, error: type[UsageError]) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as reason:
        raise error(
            f"{name}, line {reason.lineno} is not valid Python: {reason.msg}", "fix the syntax"
        ) from None
    except ValueError as reason:
        raise error(f"{name} is not valid Python: {reason}", "fix the syntax") from None


def _defined(tree: ast.Module) -> set[str]:
    """Names bound at module level by class, def, import or assignment."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((a.asname or a.name).split(".")[0] for a in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))
    return names

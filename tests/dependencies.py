"""The files of this repository that a test file depends on: what it imports, and what that imports in turn.

Imports are read from the text, those inside functions and in the programs of strings too. A module's name in
quotes, as a command gives it to ``python -m`` or a lazy import to ``import_module``, counts as an import.
Where a module finds its neighbours by their place (``__file__``, ``import_module``, a template loader),
everything in its folder belongs to it; data beside a module always does. Of the tests, every helper and every
data file of a room belongs to every test file that leads into the room, what lies in no room to all. A test
file that speaks of the corpus or of the repository's other folders depends on all of that. What only decides
which tests run (:data:`BOOKKEEPING`) is no input of a test: the tests of it always run.

It may find too much, and so run a test once too often. It must not find too little: tests hold it against the
modules that an interpreter really loads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = str(Path(__file__).parents[1])
SOURCE = f"{ROOT}/src"
TESTS = f"{ROOT}/tests"
CONFTEST = f"{TESTS}/conftest.py"
EGG = f"{SOURCE}/egg/__init__.py"
OFFERED = tuple(f"egg.{name}" for name in ("api.modules", "modules.backend"))
"""What ``egg`` itself imports on first use: it leads there where a test imports ``egg``."""
LEDGERS = re.compile(
    r"((files|texts|costs|inputs)\.json|judged\.txt|compiled\.txt|interpreted\.txt|\.lock|\.pyc)$"
)
IMPORT = re.compile(
    r"^[ \t]*(?:from\s+([\w.]+)\s+import\s+(\([^)]*\)|[^\n#]+)|import\s+([^\n#]+))", re.MULTILINE
)
QUOTED = re.compile(r"""["']((?:egg|tests|benchmarks)(?:\.\w+)+)(?::\w+)?["']""")
NAMED_BACKEND = re.compile(r"backend=[\"']egg")
BY_PLACE = re.compile(r"__file__|import_module|importlib\.resources|pkgutil|PackageLoader|FileSystemLoader")
JUDGING = re.compile(r"\b(judged|oracle|sandbox|new_oracles|kept_oracles)\b")
"""Fixtures of ``conftest`` that need the judge; its others need nothing of this repository."""
ELSEWHERE = re.compile(r"\b(examples|benchmarks|docs|[A-Z]+\.md|pyproject|constraints|Makefile|ci)\b")
CORPUS = "corpus"
BOOKKEEPING = frozenset(
    f"{TESTS}/{name}"
    for name in (
        *("bookkeeping.py", "costs.py", "dependencies.py", "ledger.py", "ledgers.py", "meaning.py"),
        *("sampling.py", "slow.txt"),
    )
)
FOLDERS = ("examples", "benchmarks", "docs", ".ci")


@cache
def dependencies(test: str) -> frozenset[str]:
    """Every file whose content may change what ``test`` finds, itself included."""
    found = reached(test, *_conftests(test))
    ours = [path for path in found - BOOKKEEPING if path.startswith(TESTS)]
    elsewhere = _elsewhere() if any(ELSEWHERE.search(_text(path)) for path in ours) else frozenset()
    return (found | _helpers(ours) | elsewhere) - BOOKKEEPING


@cache
def direct(test: str) -> frozenset[str]:
    """The modules that ``test`` imports itself, or through helpers of the tests, and those helpers."""
    ours = reached_helpers(test) - BOOKKEEPING - {CONFTEST}
    modules = (path for one in ours for path in _next(one) if path.startswith(SOURCE) and _is_module(path))
    return frozenset((*modules, *(ours - {test})))


def reached_helpers(test: str) -> frozenset[str]:
    """``test``, and the files of the tests that it imports."""
    found: set[str] = set()
    waiting = [test]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += [other for other in _next(path) if other.startswith(TESTS)]
    return frozenset(found)


def _is_module(path: str) -> bool:
    return path.endswith(".py") and not path.endswith("__init__.py")


def _helpers(ours: Iterable[str]) -> frozenset[str]:
    """Of the rooms that these files of the tests lie in, and of no room: all but test files and ledgers."""
    rooms = {_room(path) for path in ours} | {""}
    if any(CORPUS in _text(path) for path in ours):
        rooms.add(CORPUS)
    return frozenset(path for path in _all_helpers() if _room(path) in rooms)


@cache
def _all_helpers() -> frozenset[str]:
    return frozenset(
        path
        for path in _below(TESTS)
        if not os.path.basename(path).startswith("test_") and not LEDGERS.search(path)
    )


def _room(path: str) -> str:
    """The folder of the tests that a file lies in."""
    return path.removeprefix(f"{TESTS}/").rpartition("/")[0].partition("/")[0]


@cache
def _elsewhere() -> frozenset[str]:
    beside = (entry.path for entry in os.scandir(ROOT) if entry.is_file())
    return frozenset((*beside, *(path for folder in FOLDERS for path in _below(f"{ROOT}/{folder}"))))


def _below(folder: str) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (f"{place}/{name}" for name in names)


def _conftests(test: str) -> Iterator[str]:
    if JUDGING.search(_text(test)):
        yield CONFTEST
    place = os.path.dirname(test)
    while place.startswith(f"{TESTS}/"):
        if os.path.isfile(f"{place}/conftest.py"):
            yield f"{place}/conftest.py"
        place = os.path.dirname(place)


def reached(*beginnings: str) -> frozenset[str]:
    """What these files lead to, by imports alone; themselves included."""
    found: set[str] = set()
    waiting = list(beginnings)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _next(path)
    return frozenset(found)


@cache
def _next(path: str) -> frozenset[str]:
    """The files that one file leads to."""
    if not path.endswith(".py"):
        return frozenset()
    found = set(_packages(path))
    if path.startswith(SOURCE) and path != EGG:
        found |= set(_beside(path))
    for name in _names(path) if path != EGG else ():
        found |= _files(name)
    return frozenset(found)


def _packages(path: str) -> Iterator[str]:
    """The packages that are imported before a module."""
    place = os.path.dirname(path)
    while os.path.isfile(f"{place}/__init__.py"):
        yield f"{place}/__init__.py"
        place = os.path.dirname(place)


def _beside(path: str) -> Iterable[str]:
    """Data in the folder of a module; everything in it where the module finds things by their place."""
    folder = os.path.dirname(path)
    if BY_PLACE.search(_text(path)):
        return _below(folder)
    return (entry.path for entry in os.scandir(folder) if entry.is_file() and not entry.name.endswith(".py"))


def _names(path: str) -> Iterator[str]:
    """Modules that a file imports or names."""
    own, text = path.startswith(TESTS), _text(path)
    for module, names, modules in IMPORT.findall(text):
        imported = [name.split()[0] for name in (names or modules).strip("()").split(",") if name.strip()]
        yield from (f"{module}.{name}" if module else name for name in imported)
        if own and (module == "egg" or (not module and "egg" in imported)):
            yield from OFFERED
    yield from QUOTED.findall(text)
    if own and NAMED_BACKEND.search(text):
        yield from OFFERED


@cache
def _files(name: str) -> frozenset[str]:
    """The file of a module, or of the module whose attribute ``name`` is; of a package also its program."""
    parts = name.split(".")
    if parts[0] not in ("egg", "tests", "benchmarks"):
        return frozenset()
    top = SOURCE if parts[0] == "egg" else ROOT
    for end in range(len(parts), 0, -1):
        place = "/".join((top, *parts[:end]))
        if os.path.isfile(f"{place}.py"):
            return frozenset((f"{place}.py",))
        if os.path.isfile(f"{place}/__init__.py"):
            program = f"{place}/__main__.py"
            return frozenset((f"{place}/__init__.py", *((program,) if os.path.isfile(program) else ())))
    return frozenset()


@cache
def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")

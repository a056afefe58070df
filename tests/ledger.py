"""What passed before and has not changed since is not run again, where running it is dear.

A ledger is a file beside the tests. :class:`Ledger` keeps names of assets, each with a hash of its text, of
the code that tries it and of the versions of torch and triton under which it passed. :class:`Checks` keeps
hashes alone, for checks that a test makes while it runs: the kernel file that was generated, the test that
checks it, and the code that runs it. The file is generated each time; only running it again is left out.
:class:`Files` keeps whole test files, each with a hash of everything in this repository that it depends on.
Hashes are taken of the code of Python files, without their prose (:mod:`tests.meaning`).
``pytest --everything`` runs all of it, and writes what passed into the ledgers; ``make nightly`` does so.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

from tests.meaning import meaning

LIBRARIES = ("torch", "triton")
SYSTEM = "system"
"""The mark of tests that depend on how the system runs processes."""


class Ledger:
    def __init__(self, path: Path) -> None:
        self._path = path

    def passed(self) -> dict[str, str]:
        return json.loads(self._path.read_text()) if self._path.exists() else {}

    def unchanged(self, name: str, key: str) -> bool:
        return self.passed().get(name) == key

    def record(self, name: str, key: str) -> None:
        """Several test processes may write at a time."""
        self._path.parent.mkdir(exist_ok=True)
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            text = json.dumps({**self.passed(), name: key}, indent=1, sort_keys=True)
            self._path.write_text(text + "\n")

    def replace(self, rows: Mapping[str, str]) -> None:
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text(json.dumps(rows, indent=0, sort_keys=True) + "\n")


def key_of(*texts: str) -> str:
    """A hash of ``texts`` and of the libraries' versions, without what a build adds to them."""
    found = hashlib.sha256()
    for text in (*texts, *(version(name).partition("+")[0] for name in LIBRARIES)):
        found.update(text.encode() + b"\0")
    return found.hexdigest()[:16]


class Checks:
    """Checks that passed, as hashes: one a line, in a file that is only appended to.

    ``machinery`` are the files that run a check. Where one of them changes, every check is made again; with
    ``sampled``, of those whose own content passed before only one in ``share``. The hash of content and
    machinery draws them, so that another change draws others, and the same tree always the same.
    """

    def __init__(self, path: Path, machinery: Iterable[Path], share: int = 1) -> None:
        self._path, self._machinery, self._share = path, tuple(machinery), share
        self._known: frozenset[str] | None = None
        self._text_of_machinery = ""
        self.left_out = 0
        self.everything = False
        self.sampled = False

    def once(self, check: Callable[[], object], *content: object) -> None:
        """Make ``check``, unless the running test made it before with the same ``content`` and it passed."""
        itself = key_of(_running_test(), *map(repr, content))
        run = key_of(self._machinery_text(), itself)
        if not self.everything and (run in self._passed() or self._is_spared(itself, run)):
            self.left_out += 1
            return
        check()
        if self.everything:
            self._record(run)
            self._record(itself)

    def _is_spared(self, itself: str, run: str) -> bool:
        return self.sampled and itself in self._passed() and not is_drawn(run, self._share)

    def _passed(self) -> frozenset[str]:
        if self._known is None:
            self._known = frozenset(self._path.read_text().split() if self._path.exists() else ())
        return self._known

    def _machinery_text(self) -> str:
        if not self._text_of_machinery:
            self._text_of_machinery = key_of(*(_hash(str(path)) for path in sorted(self._machinery)))
        return self._text_of_machinery

    def _record(self, key: str) -> None:
        if key not in self._passed():
            self._path.parent.mkdir(exist_ok=True)
            with self._path.open("a") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write(f"{key}\n")
            self._known = self._passed() | {key}


def is_drawn(key: str, share: int) -> bool:
    """Whether ``key`` is the one in ``share`` that is run."""
    return int(key, 16) % share == 0


class Files:
    """Test files that passed as a whole, for code that does the same whenever it runs.

    A file is left out where nothing that it depends on, itself included, has changed: ``inputs`` finds those
    files. ``foreign`` finds in a test file's text what depends on more than this repository, as on how the
    system runs processes: such a file always runs, as do those that ``always`` names. A file that marks some
    of its tests with ``pytest.mark.system`` says itself which those are: they run, the others are left out.
    ``direct`` finds the files that a test file uses itself.
    Each folder of tests has a ledger of its own.
    """

    def __init__(
        self,
        folder: Path,
        inputs: Callable[[str], Iterable[str]],
        foreign: re.Pattern[str],
        always: Iterable[str] = (),
        direct: Callable[[str], Iterable[str]] = lambda _: (),
    ) -> None:
        self._folder, self._inputs, self._foreign, self._direct = folder, inputs, foreign, direct
        self._always = frozenset(folder / name for name in always)

    def unchanged(self, path: Path) -> bool:
        """Whether ``path`` is such a file and passed as it is."""
        if not self._is_covered(path):
            return False
        ledger, name = self._place(path, "files.json")
        return name in ledger.passed() and ledger.unchanged(name, self.key(path))

    def is_text_unchanged(self, path: Path) -> bool:
        """Whether ``path`` itself passed as it is written now, whatever it depends on."""
        ledger, name = self._place(path, "texts.json")
        return ledger.unchanged(name, _hash(str(path))[:16])

    def left_out(self) -> list[Path]:
        return [path for path in self.all() if self.unchanged(path)]

    def all(self) -> list[Path]:
        return sorted(self._folder.rglob("test_*.py"))

    def name_of(self, path: Path) -> str:
        """As pytest names it."""
        return path.relative_to(self._folder.parent).as_posix()

    def near(self, tests: Iterable[str]) -> set[str]:
        """Those that lead directly to a file which changed since all tests ran."""
        known = self._hashes().passed()
        directly = {test: self._direct(test) for test in tests}
        files = {path for paths in directly.values() for path in paths}
        changed = {path for path in files if known.get(self._relative(path)) != _hash(path)[:16]}
        return {test for test, paths in directly.items() if not changed.isdisjoint(paths)}

    def record_inputs(self, tests: Iterable[str]) -> None:
        """The state of the files that tests lead to directly, after a run of all tests."""
        files = {path for test in tests for path in self._direct(test)}
        self._hashes().replace({self._relative(path): _hash(path)[:16] for path in files})

    def _hashes(self) -> Ledger:
        return Ledger(self._folder / "data" / "inputs.json")

    def _relative(self, path: str) -> str:
        return path.removeprefix(f"{self._folder.parent}/")

    def record(self, path: Path) -> None:
        """Every test of ``path`` passed."""
        if self._is_covered(path):
            ledger, name = self._place(path, "files.json")
            ledger.record(name, self.key(path))
        self.record_text(path)

    def record_text(self, path: Path) -> None:
        """No test of ``path`` failed; some may have been skipped."""
        ledger, name = self._place(path, "texts.json")
        ledger.record(name, _hash(str(path))[:16])

    def _place(self, path: Path, kind: str) -> tuple[Ledger, str]:
        """The ledger of the folder that a test file is in, and its name there."""
        below = path.relative_to(self._folder)
        room = self._folder / below.parts[0] if len(below.parts) > 1 else self._folder
        return Ledger(room / "data" / kind), path.relative_to(room).as_posix()

    def _is_covered(self, path: Path) -> bool:
        mine = path.is_relative_to(self._folder) and path.name.startswith("test_")
        if not mine or path in self._always:
            return False
        return is_sorted(path) or self._foreign.search(path.read_text()) is None

    def key(self, path: Path) -> str:
        """The same in every clone: files count by their place below the folder that holds the tests."""
        python, root = ".".join(map(str, sys.version_info[:2])), f"{self._folder.parent}/"
        inputs = sorted((name.removeprefix(root), _hash(name)) for name in self._inputs(str(path)))
        return key_of(python, *(f"{name}: {content}" for name, content in inputs))


def is_sorted(path: Path) -> bool:
    """Whether a test file marks those of its tests that always run."""
    return f"@pytest.mark.{SYSTEM}" in path.read_text()


def _running_test() -> str:
    """The name of the test that runs, and a hash of its file."""
    name = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    return f"{name}\n{_hash(name.partition('::')[0])}"


@cache
def _hash(path: str) -> str:
    return hashlib.sha256(meaning(os.path.abspath(path))).hexdigest()

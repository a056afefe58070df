"""What passed before and has not changed since is not run again, where running it is dear.

A ledger is a JSON file beside the tests: the name of an asset, and a hash of its text, of the code that tries
it and of the versions of torch and triton under which it passed. ``pytest --everything`` runs what is in it
too, and writes what passed into it; ``make nightly`` does so.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from importlib.metadata import version
from pathlib import Path

LIBRARIES = ("torch", "triton")


class Ledger:
    def __init__(self, path: Path) -> None:
        self._path = path

    def passed(self) -> dict[str, str]:
        return json.loads(self._path.read_text()) if self._path.exists() else {}

    def unchanged(self, name: str, key: str) -> bool:
        return self.passed().get(name) == key

    def record(self, name: str, key: str) -> None:
        """Several test processes may write at a time."""
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            text = json.dumps({**self.passed(), name: key}, indent=1, sort_keys=True)
            self._path.write_text(text + "\n")


def key_of(*texts: str) -> str:
    """A hash of ``texts`` and of the libraries' versions, without what a build adds to them."""
    found = hashlib.sha256()
    for text in (*texts, *(version(name).partition("+")[0] for name in LIBRARIES)):
        found.update(text.encode() + b"\0")
    return found.hexdigest()[:16]

"""The actor: one warm oracle on one device, inside a Ray worker. What comes and goes is JSON."""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import egg
from egg.core.codec import from_json, to_json
from egg.evaluator.judge.pool import Job, Pool
from egg.evaluator.judge.question import Question

TRITON = ("triton", "pytorch-triton", "pytorch-triton-rocm")
"""What PyTorch's builds call the Triton that goes with them."""


@dataclass(frozen=True)
class Kind:
    """What two judges must have in common for their measurements to stand in one table."""

    gpu: str | None
    """As its driver names it; ``None`` for a CPU."""
    torch: str
    triton: str

    def __str__(self) -> str:
        return f"{self.gpu or 'CPU'}, torch {self.torch}, triton {self.triton}"


class OracleActor:
    """Judges one job after the other. Ray calls its methods in the worker's main thread, which matters:
    an oracle ends with the thread that started it."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._pool: Pool | None = None

    def describe(self, fingerprint: str) -> dict[str, Any]:
        """GPU and versions; raises where the package is not the one with that fingerprint."""
        if package_fingerprint() != fingerprint:
            place = Path(egg.__file__).parent
            raise RuntimeError(f"it imports another egg ({egg.__version__}), from {place}")
        return to_json(Kind(_gpu(self._device), _version("torch"), _version(*TRITON)))

    def ping(self) -> None:
        """Called before a job: where this is answered, the judge was alive when it came to the job."""

    def judge(self, line: str) -> str:
        """The answer to a job, both as the lines of a jobs file and a results file."""
        row = json.loads(line)
        self._pool = self._pool or Pool([self._device])
        (answer,) = self._pool.answers([Job(row["job"], from_json(Question, row["question"]))])
        return answer.to_line()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()


def package_fingerprint() -> str:
    """A hash of the sources that decide about a verdict, wherever they are installed."""
    root = Path(egg.__file__).parent
    digest = hashlib.sha256()
    for room in ("core", "hardware", "analysis", "evaluator"):
        for path in sorted((root / room).rglob("*.py")):
            digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _version(*names: str) -> str:
    """Of the package that goes by one of these names."""
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    raise RuntimeError(f"{names[0]} is not installed for its Python {platform.python_version()}")


def _gpu(device: str) -> str | None:
    if device == "cpu":
        return None
    from egg.hardware.detect import present_gpus

    gpus = present_gpus()
    if not gpus:
        raise RuntimeError("Ray lent it a GPU, and its torch sees none")
    return gpus[0].name

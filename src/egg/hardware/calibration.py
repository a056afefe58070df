"""What a GPU really gives, measured once and kept beside the table.

A data sheet says what no program can pass; no program reaches it either. The two are never
mixed: a :class:`~egg.hardware.gpus.Gpu` holds the vendor's figures and carries every floor, a
:class:`Calibration` holds what good code got on the very card, and corrects the constants that
predictions are made with (:mod:`egg.analysis.calibrated`).

Calibrations are JSON files, one per GPU model, in a folder the caller names.
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from egg.core.codec import from_json, to_json
from egg.core.errors import UsageError
from egg.core.places import config_folder
from egg.hardware.gpus import PRECISIONS, Gpu, find, name_key

SCHEMA = "egg.calibration/1"


@dataclass(frozen=True)
class Calibration:
    """What was measured on one GPU. Bandwidths are bytes, rates operations, per second."""

    gpu: str
    """As the driver names it."""
    driver: str
    torch: str
    triton: str
    when: str
    """UTC, ISO 8601."""
    copy_bandwidth: float
    """Of a large copy, read and written bytes together, from and to memory."""
    read_bandwidth: float
    l2_bandwidth: float
    """Of reads that hit in L2."""
    matrix: Mapping[str, float]
    """Of a large product by the vendor's library, by precision; absent where the library has none."""
    vector_fp32: float
    """Of multiply-adds on the ordinary units."""
    launch_milliseconds: float
    """From one empty Triton kernel to the next when Python launches them one after the other."""
    gap_milliseconds: float
    """The same when all of them already wait in the queue: what the GPU itself needs."""
    schema: str = SCHEMA

    def __post_init__(self) -> None:
        unknown = set(self.matrix) - set(PRECISIONS)
        if unknown:
            raise ValueError(f"unknown precisions in matrix: {sorted(unknown)}")
        numbers = {name: getattr(self, name) for name in _NUMBERS} | {
            f"matrix.{precision}": rate for precision, rate in self.matrix.items()
        }
        for name, number in numbers.items():
            if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < math.inf:
                raise ValueError(f"{name} must be a positive number, not {number!r}")
        object.__setattr__(self, "matrix", MappingProxyType(dict(self.matrix)))

    def to_json(self) -> dict[str, Any]:
        return to_json(self)

    @classmethod
    def from_json(cls, data: Any) -> Calibration:
        """:class:`ValueError` says what is wrong with ``data``."""
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, dict) else type(data).__name__
            raise ValueError(f"expected schema {SCHEMA!r}, found {found!r}")
        missing = [name for name in (*_TEXTS, *_NUMBERS, "matrix") if name not in data]
        if missing:
            raise ValueError(f"{', '.join(missing)} missing")
        if not all(isinstance(data[name], str) for name in _TEXTS) or not isinstance(data["matrix"], dict):
            raise ValueError("a field has the wrong type")
        try:
            return from_json(cls, data)
        except TypeError as error:
            raise ValueError(str(error)) from error


_TEXTS = ("gpu", "driver", "torch", "triton", "when")
_NUMBERS = (
    "copy_bandwidth",
    "read_bandwidth",
    "l2_bandwidth",
    "vector_fp32",
    "launch_milliseconds",
    "gap_milliseconds",
)


def default_folder(environment: Mapping[str, str]) -> Path:
    """Where a user's calibrations are: ``$XDG_CONFIG_HOME/egg/calibration``, or under ``~/.config``."""
    return config_folder(environment) / "calibration"


def file_of(gpu_name: str, folder: Path) -> Path:
    """The file of a GPU's calibration. All names that mean the same row of the table mean the same file."""
    row = find(gpu_name)
    slug = re.sub(r"[^a-z0-9]+", "-", (row.name if row else gpu_name).lower()).strip("-")
    return folder / f"{slug or 'unnamed'}.json"


def load(gpu_name: str, folder: Path) -> Calibration | None:
    """The calibration of a GPU; ``None`` where there is none. A damaged file is the user's to hear about."""
    file = file_of(gpu_name, folder)
    return read(file) if file.exists() else None


def read(file: Path) -> Calibration:
    try:
        return Calibration.from_json(json.loads(file.read_text("utf-8")))
    except (OSError, ValueError) as error:
        hint = "measure again with `egg doctor --calibrate`, or delete the file"
        raise UsageError(f"unusable calibration {file}: {error}", hint) from error


def save(calibration: Calibration, folder: Path) -> Path:
    """Write it whole or not at all, over an earlier one, and say where."""
    file = file_of(calibration.gpu, folder)
    write(calibration, file)
    return file


def write(calibration: Calibration, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(calibration.to_json(), indent=2) + "\n"
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@dataclass(frozen=True)
class Attained:
    """What a GPU was measured to give, free of its size, so that one card can be held against another.

    Never a bound: floors take the data sheet.
    """

    memory: float
    """Of the data sheet's bandwidth, by a large copy."""
    matrix: float | None
    """Of the tensor peaks, by the vendor's library: the median over the measured precisions. ``None``
    where none of them has tensor cores."""
    vector: float
    """Of the FMA peak."""
    l2_bytes_per_clock: float
    """Per SM."""
    gap_seconds: float
    """From one kernel to the next."""


def attained(gpu: Gpu, calibration: Calibration) -> Attained:
    """``calibration``, which must be of ``gpu``, against its row."""
    if not same_gpu(gpu.name, calibration.gpu):
        raise ValueError(f"a calibration of {calibration.gpu} says nothing of {gpu.name}")
    shares = [calibration.matrix[p] / peak for p, peak in gpu.tensor.items() if p in calibration.matrix]
    return Attained(
        memory=calibration.copy_bandwidth / gpu.bandwidth,
        matrix=statistics.median(shares) if shares else None,
        vector=calibration.vector_fp32 / gpu.vector["fp32"],
        l2_bytes_per_clock=calibration.l2_bandwidth / (gpu.sms * gpu.clock),
        gap_seconds=calibration.gap_milliseconds / 1e3,
    )


def same_gpu(one: str, other: str) -> bool:
    """Whether two names mean one GPU model."""
    row = find(one)
    return (row is not None and row is find(other)) or name_key(one) == name_key(other)


@dataclass(frozen=True)
class Compared:
    """One measured figure beside the data sheet's; ``sheet`` is ``None`` where no data sheet has it."""

    name: str
    measured: float
    sheet: float | None
    unit: str

    @property
    def share(self) -> float | None:
        return self.measured / self.sheet if self.sheet else None


def compare(calibration: Calibration, gpu: Gpu | None) -> tuple[Compared, ...]:
    """What was measured against ``gpu``'s row, in units people read."""
    return tuple(_compare(calibration, gpu))


def _compare(calibration: Calibration, gpu: Gpu | None) -> Iterator[Compared]:
    sheet = gpu.bandwidth / 1e9 if gpu else None
    yield Compared("copy", calibration.copy_bandwidth / 1e9, sheet, "GB/s")
    yield Compared("read", calibration.read_bandwidth / 1e9, sheet, "GB/s")
    yield Compared("read from L2", calibration.l2_bandwidth / 1e9, None, "GB/s")
    for precision in PRECISIONS:
        if precision in calibration.matrix:
            unit = (gpu.tensor.get(precision) or gpu.vector.get(precision)) if gpu else None
            rate = calibration.matrix[precision] / 1e12
            yield Compared(f"matrix {precision}", rate, unit / 1e12 if unit else None, "TFLOP/s")
    fma = gpu.vector["fp32"] / 1e12 if gpu else None
    yield Compared("multiply-add fp32", calibration.vector_fp32 / 1e12, fma, "TFLOP/s")
    yield Compared("launch", calibration.launch_milliseconds * 1e3, None, "us")
    yield Compared("gap between kernels", calibration.gap_milliseconds * 1e3, None, "us")

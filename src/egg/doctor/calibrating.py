"""Measure a GPU, keep what was found, and hold it against the table.

The measuring program runs in a child with a time limit: a wedged driver must not hang the doctor.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from egg.core.codec import to_json
from egg.core.errors import MachineError
from egg.doctor.diagnosis import Finding, Status
from egg.hardware.calibration import Calibration, Compared, compare, read, save
from egg.hardware.gpus import find

CALIBRATE_SECONDS = 180
PLAUSIBLE = (0.5, 1.1)
"""Shares of the data sheet: below, something else ran or the card was throttled; above, the row is wrong or
the card is clocked beyond it."""
PROGRAM = ("-m", "egg.evaluator.calibrate")


@dataclass(frozen=True)
class Calibrated:
    """A calibration, where it is kept, and its figures beside the table's."""

    calibration: Calibration
    file: Path
    compared: tuple[Compared, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        kept = Finding("calibration", Status.OK, f"{self.calibration.gpu}: kept in {self.file}")
        return (*(_finding(row) for row in self.compared), kept)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": "egg.calibrated/1",
            "file": str(self.file),
            "calibration": self.calibration.to_json(),
            "compared": to_json(self.compared),
        }


def calibrate(folder: Path, device: str = "auto", program: tuple[str, ...] = PROGRAM) -> Calibrated:
    """Measure ``device`` and keep the result in ``folder``; :class:`MachineError` where that fails."""
    with tempfile.TemporaryDirectory(prefix="egg-calibrate-") as scratch:
        out = Path(scratch, "calibration.json")
        _run([sys.executable, *program, "--out", str(out), "--device", device])
        calibration = read(out)
    file = save(calibration, folder)
    return Calibrated(calibration, file, compare(calibration, find(calibration.gpu)))


def _run(command: list[str]) -> None:
    source = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH", ""))))
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=CALIBRATE_SECONDS,
            env={**os.environ, "PYTHONPATH": path},
        )
    except subprocess.TimeoutExpired as error:
        hint = "check `nvidia-smi`: the driver may be wedged, or the GPU busy"
        raise MachineError(f"calibration did not end within {CALIBRATE_SECONDS} s", hint) from error
    if done.returncode:
        raise MachineError(*_failure(done.stderr, done.returncode))


def _failure(stderr: str, code: int) -> tuple[str, str]:
    """The message and the hint of a child that failed: its own where it gave one, else its last line."""
    lines = [line.strip() for line in stderr.strip().splitlines()]
    for number, line in enumerate(lines):
        if line.startswith("error: "):
            hint = next((rest.removeprefix("hint: ") for rest in lines[number + 1 : number + 2]), "")
            return line.removeprefix("error: "), hint
    return f"calibration failed: {lines[-1] if lines else f'exit code {code}'}", "run `egg doctor` first"


def _finding(row: Compared) -> Finding:
    figure = f"{row.measured:,.4g} {row.unit}" if row.measured < 1e4 else f"{row.measured:,.0f} {row.unit}"
    if row.share is None:
        return Finding(row.name, Status.OK, figure)
    detail = f"{figure}, {row.share:.0%} of the data sheet's {row.sheet:,.6g}"
    least, most = PLAUSIBLE
    if row.share < least:
        mend = "stop other work on this GPU, check its clocks and power limit, and measure again"
        return Finding(row.name, Status.WARN, detail, mend)
    if row.share > most:
        return Finding(row.name, Status.WARN, detail, "check the card's row in egg/hardware/gpus.toml")
    return Finding(row.name, Status.OK, detail)

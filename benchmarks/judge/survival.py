"""Hundreds of hostile evaluations in a row: does the judge outlive them, and is nothing left behind?

    PYTHONPATH=src python benchmarks/judge/survival.py --count 200 --out survival.json

Cycles over every attack on processes in the adversarial corpus with the static gate switched off, in one
oracle and with short limits. Afterwards an honest kernel must be accepted, and once the oracle has
closed there must be no process of ours or of a candidate, no temporary folder and no GPU memory left.
Ends with 0 only where all of that holds and not one attack was accepted or took the judge down.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus import outcome, question, reader, short_settings

from egg.core.errors import EggError
from egg.evaluator.judge.oracle import Oracle
from egg.evaluator.judge.pool import devices
from egg.evaluator.process.sandbox import FIRST_UID
from egg.evaluator.trial.levels import LevelSettings

PROCESS_EXPLOITS = (
    "infinite_loop_host",
    "infinite_loop_import",
    "infinite_loop_kernel",
    "illegal_access_far",
    "out_of_memory",
    "out_of_memory_import",
    "exits_at_import",
    "prints_megabytes",
    "crashes_at_import",
    "crashes_when_called",
    "recursion",
)
HONEST = "honest/scale_shift"
BUILD_SECONDS, CALL_SECONDS = 5.0, 3.0
SETTLE_SECONDS = 15.0
MEMORY_SLACK_MIB = 32
PACKAGE = "egg.evaluator"


@dataclass(frozen=True)
class Process:
    """A process as /proc shows it."""

    pid: int
    parent: int
    uid: int
    command: str
    environment: str


def main() -> int:
    options = arguments()
    device = devices(options.device)[0]
    with own_temporary_folder() as folder:
        gpu_before = gpu_memory() if device.startswith("cuda") else {}
        strangers = {p.pid for p in processes()}
        settings = short_settings(BUILD_SECONDS, options.call_seconds)
        result = siege(device, options.count, settings, options.seconds, options.only)
        result |= left_behind(folder, strangers, gpu_before)
    result["survived"] = verdict(result)
    print(f"\n{summary(result)}")
    if options.out:
        options.out.write_text(json.dumps(result, indent=1), encoding="utf-8")
    return 0 if result["survived"] else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--call-seconds", type=float, default=CALL_SECONDS)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no attack beyond this")
    parser.add_argument("--only", action="append", help="part of a name; may be repeated")
    parser.add_argument("--out", type=Path, help="JSON")
    return parser.parse_args()


@contextlib.contextmanager
def own_temporary_folder() -> Iterator[Path]:
    """A temporary folder for this run alone, so that what is left in it is ours.

    Candidates run as other users and must be able to pass through. PyTorch keeps a cache of its own there,
    which is no evaluation's: what the judge makes is called ``egg-*``.
    """
    folder = Path(tempfile.mkdtemp(prefix="judge-survival-"))
    folder.chmod(0o711)
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(folder)
    try:
        yield folder
    finally:
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before
        shutil.rmtree(folder, ignore_errors=True)


# the siege


def siege(
    device: str,
    count: int,
    settings: LevelSettings,
    seconds: float = float("inf"),
    only: list[str] | None = None,
) -> dict[str, Any]:
    """Up to ``count`` attacks on one oracle, then an honest question under the usual limits."""
    cases = {case.name: case for case in reader().load_corpus()}
    attacks = [
        c for name, c in cases.items() if is_attack(name) and (not only or any(o in name for o in only))
    ]
    if not attacks:
        raise SystemExit("no attack has such a name")
    oracle = Oracle(device)
    reasons: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    started = time.monotonic()
    try:
        for number, case in enumerate(itertools.islice(itertools.cycle(attacks), count), 1):
            if rows and time.monotonic() - started > seconds:
                print(f"stopped: --seconds {seconds:.0f} is used up", flush=True)
                break
            row = attack(oracle, case, settings)
            rows.append(row)
            reasons[row["reason"] or row["got"]] += 1
            passed = time.monotonic() - started
            print(
                f"{number:4d}/{count} {passed:6.0f} s  {case.name:36s} {row['got']:12s} {row['reason']}",
                flush=True,
            )
        honest = attack(oracle, cases[HONEST], None)
    finally:
        oracle.close()
    return {
        "device": device,
        "attacks": len(rows),
        "different_attacks": len({r["name"] for r in rows}),
        "seconds": time.monotonic() - started,
        "reasons": dict(reasons.most_common()),
        "accepted": sorted({r["name"] for r in rows if r["got"] == "accepted"}),
        "errors": [f"{r['name']}: {r['evidence']}" for r in rows if r["got"] == "ERROR"],
        "slowest": max((r["seconds"], r["name"]) for r in rows),
        "honest": honest,
    }


def is_attack(name: str) -> bool:
    folder, _, stem = name.partition("/")
    return folder == "hostile" or stem in PROCESS_EXPLOITS


def attack(oracle: Oracle, case: Any, settings: LevelSettings | None) -> dict[str, Any]:
    started = time.monotonic()
    honest = case.expected == "accepted"
    try:
        found = outcome(oracle.judge(question(case, settings, static=honest)))
    except EggError as error:
        found = {"got": "ERROR", "reason": type(error).__name__, "evidence": str(error)}
    return {"name": case.name, **found, "seconds": time.monotonic() - started}


# what is left behind


def left_behind(folder: Path, strangers: set[int], gpu_before: dict[str, int]) -> dict[str, Any]:
    """Look until all is clean, or until it has had time enough to become so."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        left = {
            "processes": [f"{p.pid} uid {p.uid}: {p.command[:160]}" for p in ours(folder, strangers)],
            "folders": sorted(path.name for path in folder.glob("egg-*")),
            "gpu_memory_mib": {k: v - gpu_before.get(k, 0) for k, v in gpu_memory().items()}
            if gpu_before
            else {},
        }
        clean = not left["processes"] and not left["folders"] and not memory_left(left)
        if clean or time.monotonic() > deadline:
            return left
        time.sleep(0.25)


def memory_left(left: dict[str, Any]) -> bool:
    return any(mib > MEMORY_SLACK_MIB for mib in left["gpu_memory_mib"].values())


def ours(folder: Path, strangers: set[int]) -> list[Process]:
    """New processes that are the judge's or a candidate's, and not those of another judge on this machine.

    The oracle is our child and has our temporary folder in its environment; forkservers name it in their
    command line, and everything forked from them keeps that. A candidate that replaced its program is known
    by its user.
    """
    found = []
    for process in processes():
        if process.pid in strangers or process.pid == os.getpid():
            continue
        named = str(folder) in process.command + process.environment or process.parent == os.getpid()
        another = not named and (PACKAGE in process.command)
        if named or (process.uid >= FIRST_UID and not another):
            found.append(process)
    return found


def processes() -> Iterator[Process]:
    """Every process that is alive: one that only waits to be reaped has nothing left to give back."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):
            status, parent = Path("/proc", entry, "stat").read_text().rsplit(")", 1)[1].split()[:2]
            uid = os.stat(f"/proc/{entry}").st_uid
            command, environment = _words(entry, "cmdline"), _words(entry, "environ")
            if status not in "ZX":
                yield Process(int(entry), int(parent), uid, command, environment)


def _words(pid: str, file: str) -> str:
    """The zero-separated words of a file below /proc; nothing where it may not be read."""
    try:
        return Path("/proc", pid, file).read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except PermissionError:
        return ""


def gpu_memory() -> dict[str, int]:
    """MiB in use, by GPU and by process, as nvidia-smi tells; empty where there is none."""
    gpus = _nvidia_smi("--query-gpu=index,memory.used")
    apps = _nvidia_smi("--query-compute-apps=pid,used_memory")
    return {f"gpu {k}": v for k, v in gpus.items()} | {f"pid {k}": v for k, v in apps.items()}


def _nvidia_smi(query: str) -> dict[str, int]:
    if shutil.which("nvidia-smi") is None:
        return {}
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    rows = (line.split(",") for line in done.stdout.splitlines())
    return {r[0].strip(): int(r[1]) for r in rows if len(r) == 2 and r[1].strip().isdigit()}


# telling


def verdict(result: dict[str, Any]) -> bool:
    troubles = ("accepted", "errors", "processes", "folders")
    return (
        result["honest"]["got"] == "accepted"
        and not any(result[trouble] for trouble in troubles)
        and not memory_left(result)
    )


def summary(result: dict[str, Any]) -> str:
    seconds, slowest = result["slowest"]
    honest = result["honest"]
    lines = [
        f"{result['attacks']} attacks of {result['different_attacks']} kinds on {result['device']} in "
        f"{result['seconds']:.0f} s; the slowest took {seconds:.1f} s ({slowest})",
        *(f"  {count:4d}  {reason}" for reason, count in result["reasons"].items()),
        f"attacks accepted: {', '.join(result['accepted']) or 'none'}",
        f"the judge failed: {'; '.join(result['errors']) or 'never'}",
        f"honest kernel afterwards: {honest['got']} {honest['reason']}".rstrip(),
        f"processes left: {'; '.join(result['processes']) or 'none'}",
        f"folders left: {', '.join(result['folders']) or 'none'}",
        f"GPU memory left (MiB): {result['gpu_memory_mib'] or 'not looked at'}",
        "survived" if result["survived"] else "NOT survived",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

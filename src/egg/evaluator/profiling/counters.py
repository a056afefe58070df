"""Nsight Compute as a process: its arguments, its time limit, and its output.

``ncu`` runs the profiled program under its own eyes, replays each chosen kernel until all metrics
are read, and writes one CSV row per launch. Everything can go wrong with it and none of it may
stop a profile: it is not there, the driver refuses counters to ordinary users, another tool holds
them, it hangs, it writes something else. Each of these is an :class:`Unreached` with a reason.
"""

from __future__ import annotations

import csv
import io
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from egg.evaluator.process.confined import NOT_STARTED, Cell, Ended
from egg.evaluator.profiling.times import Garbled

MOST_LOG_BYTES = 64 << 20
UNKNOWN_METRIC = re.compile(r"Failed to find metric[s:]*\s+([\w.]+(?:\s*,\s*[\w.]+)*)")
COUNTERS_REFUSED = "ERR_NVGPUCTRPERM"
COUNTERS_TAKEN = re.compile(
    r"driver resource was unavailable|other tool|another (?:instance|profiler)|InterprocessLock"
    r"|nsight-compute-lock",
    re.IGNORECASE,
)
NUMBER = re.compile(r"\d{1,3}(?:,\d{3}){0,6}(?:\.\d{1,20})?|\d{1,20}(?:\.\d{1,20})?", re.ASCII)
SIZES = re.compile(r"\( *(\d{1,10}), *(\d{1,10}), *(\d{1,10})\)", re.ASCII)
NOTHING_PROFILED = "No kernels were profiled"

ALLOW_COUNTERS = (
    "as root: `modprobe nvidia NVreg_RestrictProfilingToAdminUsers=0`, or that option in /etc/modprobe.d and "
    "a restart; in a container the host must allow it, or give it the capability SYS_ADMIN"
)


class Unreached(Exception):
    """A rung of the ladder that cannot be stood on: why, and what would help."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason, self.hint = reason, hint


@dataclass(frozen=True)
class Counted:
    """One profiled launch: who it was, and what was counted, by the tool's own names and base units."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Wanted:
    """Which launches to profile: the first ``launches`` of those kernels whose function is named."""

    functions: tuple[str, ...]
    launches: int


def collect(
    cell: Cell,
    ncu: str,
    program: Sequence[str],
    wanted: Wanted,
    metrics: Sequence[str],
    seconds: float,
    environment: Mapping[str, str],
) -> tuple[tuple[Counted, ...], tuple[str, ...]]:
    """Profile ``program`` in ``cell``; also the metrics that this tool or this GPU does not know.

    Those are found out by being refused: they are left out, and it is tried once more.
    """

    def attempt(metrics: Sequence[str], log: str) -> tuple[Ended, str]:
        arguments = command(ncu, program, wanted, metrics, str(cell.folder / log))
        # The tool and the program it watches meet in the common temporary folder.
        shared = {**environment, "TMPDIR": tempfile.gettempdir()}
        ended = cell.run(arguments, seconds, watched=True, environment=shared)
        try:
            return ended, cell.take(log, MOST_LOG_BYTES).decode(errors="replace")
        except ValueError:
            return ended, ""

    ended, log = attempt(metrics, "ncu-1.csv")
    unknown = [name for name in unknown_metrics(log + ended.output) if name in metrics]
    known = [name for name in metrics if name not in unknown]
    if unknown and known and ended.code != 0:
        ended, log = attempt(known, "ncu-2.csv")
    trouble = explain(ended, log, seconds)
    if trouble is not None:
        raise trouble
    try:
        rows = read_csv(log)
    except Garbled as garbage:
        raise Unreached(
            f"Nsight Compute wrote something that is not a table of counters: {garbage}"
        ) from None
    return rows, tuple(unknown)


def command(ncu: str, program: Sequence[str], wanted: Wanted, metrics: Sequence[str], log: str) -> list[str]:
    """The clocks are left as they are in use; caches are flushed before every replay, as by default."""
    names = "|".join(re.escape(name) for name in wanted.functions)
    return [
        ncu, "--clock-control", "none", "--profile-from-start", "off",
        "--target-processes", "application-only", "--csv", "--page", "raw", "--print-units", "base",
        "--metrics", ",".join(metrics), "--kernel-name-base", "function",
        "--kernel-name", f"regex:^({names})$", "--launch-count", str(wanted.launches),
        "--log-file", log, *program,
    ]  # fmt: skip


def function_of(kernel: str) -> str:
    """The bare name of a kernel's function: no namespace, template arguments, parameters, return type.

    ``void at::native::fill<4, F<int> >(int, F<int>)`` is ``fill``; a Triton kernel is its own name.
    """
    depth, bare = 0, []
    for character in kernel.replace("(anonymous namespace)", "anonymous").replace("->", ""):
        if character in "<":
            depth += 1
        elif character == ">":
            depth = max(0, depth - 1)
        elif depth == 0 and character == "(":
            break
        elif depth == 0:
            bare.append(character)
    words = "".join(bare).strip().split()
    return words[-1].rsplit("::", 1)[-1] if words else kernel


def unknown_metrics(output: str) -> list[str]:
    """The metrics that the tool cannot find, by its own output."""
    found = (name.strip() for match in UNKNOWN_METRIC.findall(output) for name in match.split(","))
    return list(dict.fromkeys(name.rstrip(".") for name in found))


def explain(ended: Ended, log: str, seconds: float) -> Unreached | None:
    """Why there are no counters, in a sentence; ``None`` where there should be."""
    output = f"{log}\n{ended.output}"
    if COUNTERS_REFUSED in output:
        return Unreached(f"the driver refuses counters to this user ({COUNTERS_REFUSED})", ALLOW_COUNTERS)
    if ended.cut == "time":
        return Unreached(
            f"Nsight Compute did not finish within {seconds:g} s and was ended",
            "does `ncu --version` answer? a long program needs a longer time limit",
        )
    if ended.cut == "memory":
        return Unreached("Nsight Compute and the program under it took more memory than they may")
    if ended.code == NOT_STARTED:
        return Unreached(
            f"Nsight Compute could not be started: {_last_line(ended.output)}", "run `egg doctor`"
        )
    if COUNTERS_TAKEN.search(output):
        return Unreached(
            "another profiler holds the counters of this GPU", "end it (DCGM, Nsight, another `egg profile`)"
        )
    if ended.code != 0:
        return Unreached(f"Nsight Compute ended with {ended.code}: {_complaint(log, ended.output)}")
    if NOTHING_PROFILED in output:
        return Unreached("Nsight Compute saw none of the kernels it was asked for")
    return None


def _complaint(log: str, output: str) -> str:
    """The tool's first error, else the last line of its output."""
    errors = [line for text in (log, output) for line in text.splitlines() if line.startswith("==ERROR==")]
    return errors[0].removeprefix("==ERROR==").strip()[:300] if errors else _last_line(output or log)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip()[:300] if lines else "it printed nothing"


def read_csv(text: str) -> tuple[Counted, ...]:
    """The table the tool wrote: names, units, one row per launch; :class:`Garbled` where there is none.

    Lines before the table are the tool's talk. Numbers come with thousands separated by commas;
    metrics that are no finite number, 0 or more, are left out of their row.
    """
    try:
        rows = list(csv.reader(io.StringIO("\n".join(_table(text))), strict=True))
    except csv.Error as error:
        raise Garbled(f"no CSV: {error}") from None
    if len(rows) < 3:
        raise Garbled("no row of a kernel")
    header, units, *launches = rows
    missing = {"Kernel Name", "Grid Size", "Block Size"} - set(header)
    if missing or len(set(header)) != len(header):
        raise Garbled(f"columns {', '.join(sorted(missing)) or 'of the same name'}")
    if any(len(row) != len(header) for row in (units, *launches)):
        raise Garbled("a row that is cut off")
    return tuple(_counted(dict(zip(header, row, strict=True))) for row in launches)


def _table(text: str) -> Iterator[str]:
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith('"') and '"Kernel Name"' in line:
            yield line
            yield from (row for row in lines if row.startswith('"'))


def _counted(row: Mapping[str, str]) -> Counted:
    if not row["Kernel Name"]:
        raise Garbled("a kernel without a name")
    numbers = ((name, _number(cell)) for name, cell in row.items() if "__" in name)
    return Counted(
        kernel=row["Kernel Name"],
        grid=_dimensions(row["Grid Size"]),
        block=_dimensions(row["Block Size"]),
        metrics={name: value for name, value in numbers if value is not None},
    )


def _number(cell: str) -> float | None:
    return float(cell.replace(",", "")) if NUMBER.fullmatch(cell) else None


def _dimensions(cell: str) -> tuple[int, ...]:
    found = SIZES.fullmatch(cell)
    if found is None:
        raise Garbled(f"{cell!r:.60} is not three sizes")
    return tuple(map(int, found.groups()))

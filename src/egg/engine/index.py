"""What a run's folder holds besides its log: an index to search, and the kernels as files.

Both are projections: they say nothing the log does not say, and are made again from it at
any time. The index is rebuilt whole on every call, because that costs milliseconds and then
no earlier state, half-written or of another version, can be wrong; kernel files are named by
their content, so those already there are kept. Each file appears whole or not at all: it is
written beside its place and renamed, and readers go on with the one they opened.

Whoever writes them is the run's writer, or knows that there is none.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

from egg.core.evaluation import Accepted, Evaluation, Measured
from egg.core.events import (
    Answered,
    Evaluated,
    Exchanged,
    Proposed,
    StageClosed,
    StageOpened,
    StageSkipped,
    StepClosed,
    ToolCalled,
)
from egg.core.source import content_hash
from egg.core.step import Origin, Step
from egg.engine.log import LOG, Entry, LogError, decode_line, no_run

INDEX = "index.sqlite"
KERNELS = "kernels"

_TABLES = """
CREATE TABLE events (n INTEGER PRIMARY KEY, at TEXT, kind TEXT, stage TEXT, step INTEGER,
    offset INTEGER, length INTEGER);
CREATE TABLE steps (number INTEGER, stage TEXT, category TEXT, skill TEXT, predicted REAL,
    gain REAL, measured INTEGER, decision TEXT, reason TEXT, candidate TEXT);
CREATE TABLE evaluations (job TEXT, candidate TEXT, verdict TEXT, gate TEXT, reason TEXT,
    milliseconds REAL, speedup REAL, noise REAL);
CREATE TABLE exchanges (n INTEGER PRIMARY KEY, purpose TEXT, model TEXT, input_tokens INTEGER,
    output_tokens INTEGER, cost REAL, seconds REAL);
"""

Row = tuple[Any, ...]


def write_index(folder: Path, entries: Sequence[Entry]) -> None:
    """Project ``entries``, the log of ``folder`` from its first line on, into files beside it."""
    _write_kernels(folder, entries)
    temporary = folder / f".{INDEX}.new"
    temporary.unlink(missing_ok=True)
    with closing(sqlite3.connect(temporary, isolation_level=None)) as index:
        index.execute("PRAGMA journal_mode = OFF")
        index.execute("PRAGMA synchronous = OFF")
        index.executescript(_TABLES)
        index.execute("BEGIN")
        _fill(index, "events", 7, _event_rows(folder, entries))
        _fill(index, "steps", 10, _step_rows(entries))
        _fill(index, "evaluations", 8, _evaluation_rows(entries))
        _fill(index, "exchanges", 7, _exchange_rows(entries))
        index.execute("COMMIT")
    temporary.replace(folder / INDEX)


def read_event(folder: Path, n: int) -> Entry:
    """Entry ``n`` alone: from its place in the index, or by counting lines where that does not help.

    An index may be missing, older than the log, or not ours at all; the line itself says whether
    it is the one that was asked for.
    """
    try:
        with (folder / LOG).open("rb") as log:
            line = _line_by_index(folder, log, n)
            return decode_line(line if line is not None else _line_by_count(folder, log, n), n, folder)
    except (FileNotFoundError, NotADirectoryError):
        raise no_run(folder) from None


def _line_by_index(folder: Path, log: BinaryIO, n: int) -> bytes | None:
    address = f"{(folder / INDEX).resolve().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as index:
            place = index.execute("SELECT offset, length FROM events WHERE n = ?", (n,)).fetchone()
        offset, length = place or (None, None)
    except (sqlite3.Error, ValueError, OverflowError):
        return None
    if not (isinstance(offset, int) and isinstance(length, int) and offset >= 0 and length > 0):
        return None
    log.seek(offset)
    line = log.read(length)
    return line if re.match(rb'\{\s*"n"\s*:\s*%d\s*,' % n, line) and line.endswith(b"\n") else None


def _line_by_count(folder: Path, log: BinaryIO, n: int) -> bytes:
    log.seek(0)
    number = 0
    for number, line in enumerate(_whole_lines(log), 1):
        if number == n:
            return line
    if number == 0:
        raise no_run(folder)
    raise LogError(f"the run in {folder} has no event {n}", f"its events are 1 to {number}")


def _whole_lines(log: BinaryIO) -> Iterator[bytes]:
    return (line for line in log if line.endswith(b"\n"))


def _fill(index: sqlite3.Connection, table: str, columns: int, rows: Iterable[Row]) -> None:
    index.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * columns)})", rows)


def _event_rows(folder: Path, entries: Sequence[Entry]) -> Iterator[Row]:
    offset = 0
    with (folder / LOG).open("rb") as log:
        lines = _whole_lines(log)
        for entry, stage, step in zip(entries, _stages(entries), _steps(entries), strict=True):
            line = next(lines, None)
            if line is None:
                raise LogError(
                    f"the log in {folder} ends before event {entry.number}",
                    "read it again, then make its index",
                )
            yield entry.number, entry.at, entry.event.kind, stage, step, offset, len(line)
            offset += len(line)


def _stages(entries: Sequence[Entry]) -> Iterator[str | None]:
    """The stage each event happened in; ``None`` between stages."""
    stage: str | None = None
    for entry in entries:
        match entry.event:
            case StageOpened(stage=opened):
                stage = opened.value
                yield stage
            case StageSkipped(stage=skipped):
                yield skipped.value
            case StageClosed(handoff=handoff):
                stage = None
                yield handoff.stage.value
            case _:
                yield stage


def _steps(entries: Sequence[Entry]) -> list[int | None]:
    """The step each event belongs to.

    Most say it themselves. An evaluation belongs to the step that proposed its kernel last, a model
    call to the answer it led to, which comes after it in the log.
    """
    proposed: dict[str, int] = {}
    steps: list[int | None] = []
    for entry in entries:
        event = entry.event
        if isinstance(event, Proposed):
            proposed[event.candidate] = event.step
        if isinstance(event, Evaluated):
            steps.append(proposed.get(_asked_about(event.evaluation)))
        else:
            own = getattr(event, "step", None)
            steps.append(own.number if isinstance(own, Step) else own)
    answered: int | None = None
    for at in range(len(entries) - 1, -1, -1):
        event = entries[at].event
        if isinstance(event, Answered):
            answered = event.step
        elif isinstance(event, StageOpened | StageClosed | StepClosed):
            answered = None
        elif isinstance(event, Exchanged | ToolCalled):
            steps[at] = answered
    return steps


def _asked_about(evaluation: Evaluation) -> str:
    """The kernel that an evaluation is of: a side-by-side timing is of its contenders, not of the base."""
    return evaluation.contenders[0].candidate_hash if evaluation.contenders else evaluation.candidate_hash


def _step_rows(entries: Sequence[Entry]) -> Iterator[Row]:
    for entry in entries:
        if not isinstance(entry.event, StepClosed):
            continue
        step = entry.event.step
        plan, gain = step.plan, step.gain
        yield (
            step.number,
            step.stage.value,
            plan.category.value if plan else None,
            plan.skill if plan else None,
            plan.prediction.speedup if plan else None,
            gain.ratio if gain else None,
            gain.measured if gain else None,
            step.decision.value,
            step.reason,
            step.candidate,
        )


def _evaluation_rows(entries: Sequence[Entry]) -> Iterator[Row]:
    """Times are measured: a kernel accepted without a GPU has none. Side-by-side timings are no verdicts."""
    for entry in entries:
        if not isinstance(entry.event, Evaluated) or entry.event.evaluation.contenders:
            continue
        job, evaluation = entry.event.job, entry.event.evaluation
        match evaluation.verdict:
            case Accepted(performance=Measured() as measured):
                speedup = next((b.speedup.median for b in measured.baselines if b.name == "eager"), None)
                found = (None, None, measured.milliseconds.median, speedup, measured.noise_floor)
            case Accepted():
                found = (None, None, None, None, None)
            case rejected:
                found = (rejected.refusal.gate.value, rejected.refusal.reason, None, None, None)
        yield job, evaluation.candidate_hash, evaluation.verdict.kind, *found


def _exchange_rows(entries: Sequence[Entry]) -> Iterator[Row]:
    for entry in entries:
        if isinstance(entry.event, Exchanged):
            request, reply = entry.event.request, entry.event.completion
            used = reply.usage
            yield (
                entry.number,
                request.purpose,
                reply.model,
                used.input_tokens,
                used.output_tokens,
                reply.cost,
                reply.seconds,
            )


def kernel_file(folder: Path, proposed: Proposed) -> Path:
    """Where a proposed kernel lies as a file; the points of a sweep are kept apart.

    A log may come from anywhere, so nothing in it gets to name a place outside the folder.
    """
    named = proposed.candidate if re.fullmatch(r"[0-9a-f]{8,64}", proposed.candidate) else None
    room = folder / KERNELS / "sweep" if proposed.origin is Origin.SWEEP else folder / KERNELS
    return (
        room / f"{int(proposed.step):03d}-{proposed.origin.value}-{named or content_hash(proposed.source)}.py"
    )


def _write_kernels(folder: Path, entries: Sequence[Entry]) -> None:
    for entry in entries:
        if not isinstance(entry.event, Proposed):
            continue
        path, data = kernel_file(folder, entry.event), entry.event.source.encode("utf-8", "surrogatepass")
        if path.is_file() and path.stat().st_size == len(data):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_bytes(data)
        temporary.replace(path)

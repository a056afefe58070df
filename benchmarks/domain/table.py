"""What the rows of a sweep come to, in few lines: the three figures first, then every fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from benchmarks.domain.outcomes import Outcome, Tried
from benchmarks.domain.pool import Json

SHORT = {
    Outcome.RIGHT: "ok",
    Outcome.INEXACT: "inexact",
    Outcome.ERROR: "error",
    Outcome.WRONG: "WRONG",
    Outcome.CRASH: "CRASH",
    Outcome.SKIPPED: "skipped",
}


def tried_in(row: Json) -> list[Tried]:
    return [Tried.of_json(call) for call in row["calls"]] if "calls" in row else []


def line_of(row: Json) -> str:
    """A task in one line."""
    title = f"{row['key']} {row.get('name', '')}"
    if "reason" in row:
        return f"{title}: no file: {row['reason'][:100]}"
    counts = Counter(SHORT[call.outcome] for call in tried_in(row))
    marks = [f"{count} {word}" for word, count in counts.items()]
    marks += [f"{sum(call.claimed for call in tried_in(row))} claimed"] if any_claimed(row) else []
    strides = sum(not call.layout for call in tried_in(row))
    marks += [f"{strides} other strides"] if strides else []
    marks += [f"trouble: {row['trouble'][:100]}"] if "trouble" in row else []
    return f"{title}: {', '.join(marks)} ({row.get('seconds', 0):.0f} s)"


def any_claimed(row: Json) -> bool:
    return any(call.claimed for call in tried_in(row))


def batch_of(row: Json) -> str:
    """``free``, ``fixed`` (or no call was right), or ``none`` where the reference takes no other batch."""
    tried = tried_in(row)
    ended = {call.outcome for call in tried if call.kind == "sizes" and call.name.startswith("batch ")}
    if not ended - {Outcome.SKIPPED}:
        return "none" if any(call.outcome is Outcome.RIGHT for call in tried) else "fixed"
    return "free" if ended <= {Outcome.RIGHT, Outcome.INEXACT, Outcome.SKIPPED} else "fixed"


def summary(rows: Sequence[Json], lines: int = 60) -> str:
    found = list(_figures(rows))
    faults = list(_faults(rows))
    room = max(5, lines - len(found) - 1)
    found += faults[:room]
    if len(faults) > room:
        found.append(f"... and {len(faults) - room} more lines of faults")
    return "\n".join(found)


def _figures(rows: Sequence[Json]) -> Iterator[str]:
    files = [row for row in rows if row.get("calls")]
    calls = [call for row in files for call in tried_in(row)]
    outcomes = Counter(call.outcome for call in calls)
    yield f"{len(rows)} tasks, {len(files)} with a file, {len(calls)} calls"
    yield ", ".join(f"{outcomes[outcome]} {outcome.value}" for outcome in Outcome)
    wrong = sum(any(call.outcome is Outcome.WRONG for call in tried_in(row)) for row in files)
    crashed = sum(any(call.outcome is Outcome.CRASH for call in tried_in(row)) for row in files)
    claimed = sum(call.claimed for call in calls)
    stated = sum(row.get("domain") is not None for row in files)
    yield f"silent wrong answers: {outcomes[Outcome.WRONG]} calls in {wrong} files (must be 0)"
    yield f"crashes: {outcomes[Outcome.CRASH]} calls in {crashed} files (must be 0)"
    yield f"claimed but raised: {claimed} calls (must be 0); {stated} of {len(files)} files state a domain"
    batches = Counter(map(batch_of, files))
    asked = batches["free"] + batches["fixed"]
    share = f"{batches['free'] / asked:.1%}" if asked else "-"
    yield f"free batch: {batches['free']} of {asked}, {share} (at least 95%); {batches['none']} take one only"
    strides = sum(not call.layout for call in calls)
    lying = sum(not all(call.layout for call in tried_in(row)) for row in files)
    static = sum(bool(row.get("static")) for row in files)
    yield f"outputs with other strides than the reference's: {strides} calls in {lying} files (must be 0)"
    yield f"KernelBench's static check: {len(files) - static} of {len(files)} files pass"
    kinds = dict.fromkeys(call.kind for call in calls)
    yield "kind            " + "".join(f"{SHORT[outcome]:>9}" for outcome in Outcome) + "  strides"
    for kind in kinds:
        counts = Counter(call.outcome for call in calls if call.kind == kind)
        lying = sum(not call.layout for call in calls if call.kind == kind)
        yield f"{kind:<16}" + "".join(f"{counts[outcome]:>9}" for outcome in Outcome) + f"{lying:>9}"


def _faults(rows: Sequence[Json]) -> Iterator[str]:
    """The gravest first: a line per file and kind of fault, with one example."""
    for outcome in (Outcome.CRASH, Outcome.WRONG):
        for row in rows:
            calls = [call for call in tried_in(row) if call.outcome is outcome]
            if calls:
                yield _fault(outcome.value, row, calls)
    for row in rows:
        calls = [call for call in tried_in(row) if call.claimed]
        if calls:
            yield _fault("claimed", row, calls)
    for row in rows:
        calls = [call for call in tried_in(row) if not call.layout]
        if calls:
            yield _fault("strides", row, calls)
    for row in rows:
        if "trouble" in row or row.get("fault"):
            yield f"fault of ours: {row['key']}: {row.get('trouble') or row.get('reason')}"[:160]
    reasons = Counter(row["reason"][:100] for row in rows if "reason" in row and not row.get("fault"))
    for reason, count in reasons.most_common():
        yield f"no file: {count} x {reason}"


def _fault(word: str, row: Json, calls: Sequence[Tried]) -> str:
    more = f" (+{len(calls) - 1})" if len(calls) > 1 else ""
    return f"{word}: {row['key']}: {calls[0].name}{more}: {calls[0].detail}"[:170]

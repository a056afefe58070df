"""What many files show without being run: KernelBench's static check, and their claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.domain.pool import Json


def checked(rows: Iterable[Json], folder: Path | None = None) -> Iterator[str]:
    """A line per task without a file, per file that is flagged and per file that takes one batch only; then
    the counts."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    counts, warned = Counter[str](), Counter[str]()
    for row in rows:
        key, source = row["key"], row.get("source")
        if source is None:
            word = "fault" if row.get("fault") or "trouble" in row else "no file"
            counts[word] += 1
            yield f"{key}: {word}: {row.get('reason') or row.get('trouble')}"[:180]
            continue
        if folder is not None:
            (folder / f"{key.replace('/', '_')}.py").write_text(source, encoding="utf-8")
        counts["files"] += 1
        counts["domain"] += row["domain"] is not None
        counts["batch"] += bool(row.get("batch_claimed"))
        counts["valid"] += not row["static"]
        warned.update(row["warned"])
        if not row.get("batch_claimed"):
            yield f"{key}: one batch only: {row['domain']}"[:200]
        yield from (f"{key}: flagged by {rule}" for rule in row["static"])
    files = counts["files"]
    yield f"{files} files, {counts['no file']} tasks without one, {counts['fault']} faults of ours"
    yield f"{counts['valid']} of {files} are valid by KernelBench's static check"
    yield f"{counts['domain']} of {files} state a domain, {counts['batch']} claim any batch"
    for rule, count in warned.most_common():
        yield f"KernelBench warns by {rule}: {count}"

"""What can be said of many files without running them: KernelBench's static check, and their claims."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from benchmarks.domain.work import file_of
from egg.core.source import Task
from egg.evaluator.kernelbench_rules import static_findings


def check(tasks: Mapping[str, Task], folder: Path | None = None) -> int:
    """A line per task without a file, per file that is flagged and per file that takes one batch only; then
    the counts. 0 where every file is valid."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    counts, warned = Counter[str](), Counter[str]()
    for key, task in tasks.items():
        found = file_of(task)
        source = found.get("source")
        if source is None:
            counts["fault" if found.get("fault") else "no file"] += 1
            print(
                f"{key}: {'fault' if found.get('fault') else 'no file'}: {found['reason'][:160]}", flush=True
            )
            continue
        if folder is not None:
            (folder / f"{key.replace('/', '_')}.py").write_text(source, encoding="utf-8")
        counts["files"] += 1
        counts["domain"] += found["domain"] is not None
        counts["batch"] += bool(found.get("batch_claimed"))
        if not found.get("batch_claimed"):
            print(f"{key}: one batch only: {found['domain']}"[:200])
        flags = static_findings(source)
        counts["valid"] += not any(flag.error for flag in flags)
        warned.update({flag.rule for flag in flags if not flag.error})
        for flag in flags:
            if flag.error:
                print(f"{key}: {flag.rule} at line {flag.line}: {flag.evidence!r}")
        sys.stdout.flush()
    files = counts["files"]
    print(f"{files} files, {counts['no file']} tasks without one, {counts['fault']} faults of ours")
    print(f"{counts['valid']} of {files} are valid by KernelBench's static check")
    print(f"{counts['domain']} of {files} state a domain, {counts['batch']} claim any batch")
    for rule, count in warned.most_common():
        print(f"KernelBench warns by {rule}: {count}")
    return int(counts["valid"] < files)

"""KernelBench's static check over the files of many tasks."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from benchmarks.domain.files import written
from egg.core.errors import EggError
from egg.core.source import Task
from egg.evaluator.kernelbench_rules import static_findings
from egg.expert.assemble import NothingToWrite
from egg.expert.parts import Unfit


def check(tasks: Mapping[str, Task], folder: Path | None = None) -> int:
    """A line per file that is flagged, and the count; 0 where every file is valid."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    checked, flagged, warned = 0, 0, Counter[str]()
    for key, task in tasks.items():
        try:
            source = written(task).source
        except (NothingToWrite, Unfit, EggError) as reason:
            print(f"{key}: no file: {str(reason).splitlines()[0][:100]}")
            continue
        if folder is not None:
            (folder / f"{key.replace('/', '_')}.py").write_text(source, encoding="utf-8")
        checked += 1
        found = static_findings(source)
        bad = [finding for finding in found if finding.error]
        flagged += bool(bad)
        warned.update({finding.rule for finding in found if not finding.error})
        for finding in bad:
            print(f"{key}: {finding.rule} at line {finding.line}: {finding.evidence!r}")
        sys.stdout.flush()
    print(f"{checked - flagged} of {checked} files are valid by KernelBench's static check")
    for rule, count in warned.most_common():
        print(f"warned by {rule}: {count}")
    return int(flagged > 0)

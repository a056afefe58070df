"""Command-line arguments as values: tasks, devices, targets. Every mistake is a :class:`UsageError`."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

from egg.core.errors import TaskError, UsageError
from egg.core.lines import text_lines
from egg.core.source import Task
from egg.hardware.gpus import resolve

_LINE = re.compile(r"(?P<file>.+\.jsonl)(?::(?:L?(?P<level>\d+)/)?(?P<id>\d+))?$", re.IGNORECASE)
_FORMS = "a task is FILE.py, FILE.jsonl:LEVEL/ID or FILE.jsonl:ID"


def read_task(spec: str) -> Task:
    """The task ``spec`` names: a Python file, or one line of a KernelBench export by level and problem id."""
    line = _LINE.fullmatch(spec)
    if line is None:
        return Task.from_file(Path(spec))
    level, problem = line["level"], line["id"]
    rows = _rows(Path(line["file"]))
    wanted = [
        text
        for text, row_level, row_id in rows
        if (problem is None or row_id == int(problem)) and (level is None or row_level == int(level))
    ]
    if len(wanted) == 1:
        return Task.from_json_line(wanted[0])
    if not wanted:
        known = [f"{row_level}/{row_id}" for _, row_level, row_id in rows if row_id is not None]
        more = ", ..." if len(known) > 12 else ""
        hint = f"the file has {', '.join(known[:12])}{more}" if known else "no line of it has a problem_id"
        raise TaskError(f"no such task: {spec}", hint)
    raise TaskError(f"{spec} means {len(wanted)} tasks", _FORMS)


def _rows(path: Path) -> list[tuple[str, int | None, int | None]]:
    """Each line with its level and id; a line that is no JSON object is the file's fault, named by number."""
    try:
        lines = text_lines(path, _FORMS)
    except UsageError as reason:
        raise TaskError(reason.message, reason.hint) from None
    rows = []
    for number, text in lines:
        try:
            row = json.loads(text)
            rows.append((text, row.get("level"), row.get("problem_id")))
        except (json.JSONDecodeError, AttributeError):
            raise TaskError(
                f"{path} line {number} is not a JSON object",
                "one task a line: {level, problem_id, name, code}",
            ) from None
    return rows


def check_device(device: str) -> str:
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise UsageError(f"unknown device: {device!r}", "one of auto, cpu, cuda, cuda:0, cuda:1, ...")
    return device


def check_target(target: str | None) -> str | None:
    """A GPU of the table, by a card's name or an architecture's (``sm_90``, ``gfx942``)."""
    if target is not None:
        resolve(target)
    return target


def check_days(days: float | None) -> None:
    """Refuse an age that is none."""
    if days is not None and not (math.isfinite(days) and 0 <= days <= 100_000):
        raise UsageError(f"no number of days: {days}", "for example --older-than 90")

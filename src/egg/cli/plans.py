"""Recorded plans on the command line: written to a file, and shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from egg.cli.render import clean, refusal_view
from egg.cli.tables import pairs
from egg.core.errors import UsageError
from egg.core.evaluation import PlanAnswer, RecordedPlan


def write_plan(path: Path, plan: RecordedPlan) -> RecordedPlan:
    """The same plan, with the file that holds it now."""
    try:
        path.write_text(plan.source, encoding="utf-8")
    except OSError as reason:
        raise UsageError(f"cannot write the plan to {path}: {reason.strerror}", "name another file") from None
    return replace(plan, file=str(path))


def plan_view(answer: PlanAnswer) -> RenderableType:
    """What a plan holds, or why there is none."""
    if answer.plan is None:
        assert answer.refusal is not None
        headline = Text.assemble((" NOT RECORDED ", "reverse bold red"))
        return Group(headline, refusal_view(answer.refusal))
    headline = Text.assemble((" RECORDED ", "reverse bold green"), f"  {clean(answer.plan.file)}")
    return Group(headline, pairs(plan_facts(answer.plan)))


def plan_facts(plan: RecordedPlan) -> list[tuple[str, str]]:
    return [
        ("calls", clean("; ".join(plan.signatures))),
        ("kernels", clean(", ".join(plan.kernels))),
        ("launches", str(plan.launches)),
        ("operators", str(plan.operators)),
        ("buffers", str(plan.buffers)),
        ("sha256", plan.sha256),
    ]

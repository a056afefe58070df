"""Evaluations, audits and findings as tables for people.

On a terminal they are coloured and ruled; into a pipe they are plain text of a fixed width.
Evidence may quote what a candidate printed, so every string from a result is stripped of
control characters and never read as markup.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from egg.cli.tables import pairs, size, table
from egg.core.evaluation import (
    Accepted,
    Baseline,
    Compiled,
    Correctness,
    Evaluation,
    GateRecord,
    Interval,
    Measured,
    Provenance,
    RecordedPlan,
    Refusal,
    Rejected,
    Verified,
)
from egg.core.resources import KernelResources

if TYPE_CHECKING:
    from egg.doctor import Finding
    from egg.evaluator.task.audit import Audit

PIPE_WIDTH = 120
_GAP = ""
_STATUS_STYLE = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def console(file: IO[str] | None = None) -> Console:
    """A console for ``file`` (standard output by default): wide and plain when it is not a terminal."""
    found = Console(file=file, highlight=False, markup=False, emoji=False)
    if found.is_terminal:
        return found
    return Console(file=file, width=PIPE_WIDTH, highlight=False, markup=False, emoji=False, no_color=True)


def evaluation_view(evaluation: Evaluation) -> RenderableType:
    """The verdict first, then what it rests on, then the options it was reached under."""
    verdict = evaluation.verdict
    parts: list[RenderableType] = [_headline(evaluation)]
    if isinstance(verdict, Rejected):
        parts += [refusal_view(verdict.refusal)]
    else:
        parts += [
            _GAP,
            _performance(verdict),
            _checks(verdict.correctness, verdict.provenance, verdict.domain),
        ]
    parts += [_gates(evaluation), _GAP] if evaluation.gates else []
    parts += [Text(f"warning: {clean(w)}", style="yellow") for w in evaluation.warnings]
    parts.append(_terms(evaluation))
    return Group(*parts)


def findings_view(findings: Sequence[Finding]) -> RenderableType:
    rows = table("check", "status", "found")
    for finding in findings:
        found = Text(clean(finding.detail))
        if finding.fix:
            found.append(f"\n-> {clean(finding.fix)}", style="cyan")
        style = _STATUS_STYLE[finding.status.value]
        rows.add_row(clean(finding.name), Text(finding.status.value, style=style), found)
    return rows


def audit_view(audit: Audit) -> RenderableType:
    """Whether a task is sound, and which null candidates say so."""
    word, style = ("DEGENERATE", "bold red") if audit.degenerate else ("SOUND", "bold green")
    headline = Text.assemble((f" {word} ", f"reverse {style}"), f"  {clean(audit.task)}")
    rows = table("null candidate", f"at tolerance {audit.tolerance:g}", "relative error")
    for null in audit.nulls:
        mark = Text("passes", style="bold red") if null.passes else Text("fails, as it must", style="green")
        rows.add_row(clean(null.name), mark, f"{null.error:.3g}")
    rescaled = ", ".join(f"{name} {old} -> {new}" for name, (old, new, *_) in audit.rescaled.items())
    facts = [
        ("precision", audit.precision.value),
        ("device", audit.device),
        ("sizes", clean(rescaled) or "as published"),
    ]
    warnings = [Text(f"warning: {clean(w)}", style="yellow") for w in audit.warnings]
    return Group(headline, _GAP, rows, _GAP, *warnings, _paragraph(facts, style="dim"))


def print_outcome(data: Mapping[str, Any], message: str, as_json: bool) -> None:
    """What a command did, for a program or for a person."""
    print(json.dumps(data) if as_json else clean(message))


def clean(text: str) -> str:
    """``text`` without control characters, so that quoted output cannot drive the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _headline(evaluation: Evaluation) -> Text:
    word, style = ("ACCEPTED", "bold green") if evaluation.accepted else ("REJECTED", "bold red")
    line = Text.assemble((f" {word} ", f"reverse {style}"), "  ")
    line.append(f"{clean(evaluation.candidate)} for {clean(evaluation.task)}", style="bold")
    verdict = evaluation.verdict
    if isinstance(verdict, Rejected):
        line.append(f"  at gate {_refused_where(evaluation, verdict)}", style="red")
    elif isinstance(verdict.performance, Measured):
        line.append(f"  {_claim(verdict.performance)}")
    else:
        line.append("  (no GPU: no time was measured)")
    return line


def _refused_where(evaluation: Evaluation, rejected: Rejected) -> str:
    """The gate whose rule was broken; where another one found it, that one too."""
    gate, found_by = rejected.refusal.gate, _refusing(evaluation.gates)
    if found_by is None or found_by.gate is gate:
        return gate.value
    return f"{gate.value} (found at {found_by.gate.value})"


def _refusing(gates: Sequence[GateRecord]) -> GateRecord | None:
    return next((record for record in gates if not record.passed), None)


def _claim(measured: Measured) -> str:
    """The headline: a gain only where the interval clears the noise floor."""
    eager = next((b for b in measured.baselines if b.name == "eager"), None)
    if eager is None:
        return _times(measured.milliseconds)
    if measured.faster:
        return f"{eager.speedup.median:.2f}x faster than eager" if eager.speedup.median >= 1 else "faster"
    return f"not faster than eager ({_speedup(eager.speedup)})"


def refusal_view(refusal: Refusal) -> RenderableType:
    rows = [
        ("gate", Text(f"{refusal.gate.value} ({clean(refusal.reason)})", style="red")),
        ("evidence", clean(refusal.evidence)),
        ("look at", Text(clean(refusal.hint), style="cyan")),
    ]
    return Padding(pairs(rows), (1, 0, 1, 2), expand=False)


def _performance(accepted: Accepted) -> RenderableType:
    if isinstance(accepted.performance, Measured):
        return _measured(accepted.performance)
    return _compiled(accepted.performance)


def _measured(measured: Measured) -> RenderableType:
    rows = table("on " + clean(measured.gpu), "median", "95% interval", "speedup", "95% interval")
    rows.add_row(Text("this kernel", style="bold"), *_interval_cells(measured.milliseconds, " ms"), "", "")
    for baseline in measured.baselines:
        rows.add_row(*_baseline_cells(baseline))
    floor = measured.floor_milliseconds
    share = f" ({floor / measured.milliseconds.median:.0%} of the roofline)" if floor else ""
    facts = _paragraph(
        [
            ("noise floor", f"{measured.noise_floor:.2%} (the kernel against itself)"),
            (
                "trusted clock",
                f"{measured.wall_milliseconds:.4g} ms a call, {measured.wall_speedup:.2f}x eager",
            ),
            ("roofline floor", f"{floor:.4g} ms{share}" if floor else "unknown: GPU not in the table"),
        ]
    )
    if not measured.kernels:
        return Group(rows, _GAP, facts)
    return Group(rows, _GAP, _resources("kernel", measured.kernels), _GAP, facts)


def _baseline_cells(baseline: Baseline) -> tuple[str, ...]:
    times, gains = _interval_cells(baseline.milliseconds, " ms"), _interval_cells(baseline.speedup, "x")
    return (clean(baseline.name), *times, *gains)


def _compiled(compiled: Compiled) -> RenderableType:
    rows = _resources("kernel for " + clean(compiled.target), compiled.kernels)
    floor = compiled.predicted_floor_milliseconds
    predicted = f"{floor:.4g} ms (predicted, not measured)" if floor is not None else "unknown"
    return Group(
        rows, _GAP, _paragraph([("roofline floor", predicted), ("shapes run", clean(compiled.shapes))])
    )


def _resources(title: str, kernels: Iterable[KernelResources]) -> RenderableType:
    rows = table(
        title,
        "grid",
        "launches",
        "warps",
        "stages",
        "registers",
        "spills",
        "shared",
        "tensor core",
        "widest load",
    )
    for kernel in kernels:
        rows.add_row(*_resource_cells(kernel))
    return rows


def _resource_cells(kernel: KernelResources) -> tuple[str, ...]:
    return (
        clean(kernel.name),
        "x".join(map(str, kernel.grid)),
        str(kernel.launches),
        str(kernel.num_warps),
        str(kernel.num_stages),
        str(kernel.registers),
        f"{kernel.spill_bytes} B" if kernel.spill_bytes else "none",
        size(kernel.shared_bytes),
        f"{kernel.tensor_core_instructions} instr." if kernel.tensor_core_instructions else "no",
        f"{kernel.widest_load_bits} bit" if kernel.widest_load_bits else "-",
    )


def _checks(
    correctness: Correctness, provenance: Provenance, verified: Verified | None = None
) -> RenderableType:
    share = "" if provenance.own_share is None else f"; {provenance.own_share:.1%} of the GPU time is theirs"
    kernelbench = "passes" if correctness.kernelbench else "does not pass"
    if not correctness.kernelbench and not correctness.eager_kernelbench:
        kernelbench += f" (eager itself is {correctness.eager_max_error:.1g} from the exact result)"
    return _paragraph(
        [
            (
                "correctness",
                f"{correctness.checks} checks; worst error {correctness.worst_max_error:.2f} (max) and "
                f"{correctness.worst_rms_error:.2f} (rms) of what is allowed",
            ),
            (
                f"against {correctness.yardstick}",
                f"relative error {correctness.relative_error:.2g}, the reference's own "
                f"{correctness.reference_error:.2g}; KernelBench's rule {kernelbench}",
            ),
            ("kernels run", _counts(provenance.kernels) + share),
            ("library calls", _counts(provenance.library_ops)),
            *_verified(verified),
        ]
    )


def _verified(verified: Verified | None) -> list[tuple[str, str]]:
    """The domain that the file states, and the results of calls beside the task's own."""
    if verified is None:
        return []
    found = [("domain", clean(verified.words.partition(". ")[0]))]
    if verified.own_size:
        found.append(("at the task's own size", clean(verified.own_size)))
    for outcome, label in (("right", "right too"), ("raised", "raises at"), ("skipped", "not tried")):
        calls = [call.what for call in verified.tried if call.outcome == outcome]
        if calls:
            found.append((label, clean("; ".join(calls))))
    return [*found, ("gradients", verified.gradients)] if verified.gradients else found


def _gates(evaluation: Evaluation) -> RenderableType:
    rows = table("gate", "", "seconds", "notes")
    for gate, records in groupby(evaluation.gates, key=lambda record: record.gate):
        parts = list(records)
        mark = Text("refused", style="bold red") if _refusing(parts) else Text("passed", style="green")
        notes = [_notes(record) for record in parts] + [_other_rule(evaluation.verdict, parts)]
        seconds = sum(record.seconds for record in parts)
        rows.add_row(gate.value, mark, f"{seconds:.2f}", clean("; ".join(filter(None, notes))))
    return rows


def _notes(record: GateRecord) -> str:
    return "; ".join(f"{k} {_plain(v)}" for k, v in record.notes.items() if v not in (None, "", [], {}, ()))


def _other_rule(verdict: Accepted | Rejected, records: Sequence[GateRecord]) -> str:
    """Which gate's rule was broken, beside the gate that found it."""
    if not isinstance(verdict, Rejected) or (found_by := _refusing(records)) is None:
        return ""
    rule = verdict.refusal.gate
    return f"breaks the rule of gate {rule.value}" if rule is not found_by.gate else ""


def _plan(plan: RecordedPlan) -> str:
    where = f", written to {clean(plan.file)}" if plan.file else ""
    return f"recorded plan {plan.hash}: {plan.launches} launches, {plan.operators} operators{where}"


def _terms(evaluation: Evaluation) -> RenderableType:
    policy, machine = evaluation.policy, evaluation.machine
    where = " · ".join(
        part
        for part in (
            machine.gpu or "no GPU",
            f"torch {machine.torch}",
            f"triton {machine.triton}",
            f"Python {machine.python}",
            f"driver {machine.driver}" if machine.driver else "",
        )
        if part
    )
    return _paragraph(
        [
            (
                "judged at",
                f"level {policy.level.value}, precision {policy.precision.value}, "
                f"library calls {policy.library_calls.value}, in {evaluation.seconds:.1f} s"
                + (f", and {evaluation.waited}" if evaluation.waited.total else ""),
            ),
            ("machine", clean(where)),
            ("candidate confined by", clean(", ".join(machine.sandbox)) or "(it was not run)"),
            ("hashes", f"task {evaluation.task_hash}, candidate {evaluation.candidate_hash}"),
            *([("judged in its place", _plan(evaluation.recorded))] if evaluation.recorded else []),
        ],
        style="dim",
    )


def _paragraph(facts: Iterable[tuple[str, RenderableType]], style: str = "") -> RenderableType:
    """Pairs with a gap below."""
    return Padding(pairs(facts, style), (0, 0, 1, 0), expand=False)


def _interval_cells(interval: Interval, unit: str) -> tuple[str, str]:
    return f"{interval.median:.4g}{unit}", f"{interval.low:.4g} to {interval.high:.4g}"


def _speedup(interval: Interval) -> str:
    return f"{interval.median:.2f}x, {interval.low:.2f} to {interval.high:.2f}"


def _times(interval: Interval) -> str:
    return f"{interval.median:.4g} ms, {interval.low:.4g} to {interval.high:.4g}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{clean(name)} x{count}" for name, count in counts.items()) or "none"


def _plain(value: Any) -> str:
    """A value from a note or an audit, in one readable string."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        shown = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return _plain(shown)
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={_plain(v)}" for k, v in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(_plain, value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return clean(str(value))

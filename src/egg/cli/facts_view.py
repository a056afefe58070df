"""The facts of a program for people: tensors, operations, the least it has to do, what fusion could save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType

from egg.cli.render import clean
from egg.cli.tables import pairs, table
from egg.cli.words import plural
from egg.core.facts import GpuFacts, Operation, ProgramFacts, Savings, TensorForm, Workload
from egg.report.quantities import factor, milliseconds, per_byte, percent, quantity

MOST_TENSORS = 12
MOST_OPERATIONS = 12
PREDICTED = "(predicted)"
NOTHING_SAVED = 1.02
"""Eager over all fused, below which there is nothing to tell."""


def facts_view(workload: Workload, facts: ProgramFacts, gpu: GpuFacts) -> RenderableType:
    """From what goes in to what it should cost."""
    return Group(
        _tensors(workload),
        "",
        _operations(workload, gpu),
        "",
        pairs([*_totals(workload, facts), *_floor(facts, gpu)]),
    )


def _tensors(workload: Workload) -> RenderableType:
    rows = table("tensor", "", "dtype", "shape", "layout", "size", numbers=[5])
    for kind, tensors in (
        ("input", workload.inputs),
        ("parameter", workload.parameters),
        ("output", workload.outputs),
    ):
        for name, form in list(tensors.items())[:MOST_TENSORS]:
            rows.add_row(
                clean(name), kind, form.dtype, _shape(form), _layout(form), quantity(form.bytes, "B")
            )
        rest = list(tensors.values())[MOST_TENSORS:]
        if rest:
            size = quantity(sum(form.bytes for form in rest), "B")
            rows.add_row(f"... and {len(rest)} more", kind, "", "", "", size)
    return rows


def _shape(form: TensorForm) -> str:
    return "x".join(map(str, form.shape)) or "scalar"


def _layout(form: TensorForm) -> str:
    if form.strides is None:
        return "contiguous"
    return "strides " + ", ".join(map(str, form.strides))


@dataclass
class _Kind:
    """Operations that are the same but for their values."""

    name: str
    family: str
    shape: str
    count: int = 0
    flops: float = 0.0
    bytes: int = 0
    launches: int = 0
    least: float = 0.0
    """Milliseconds, by themselves."""

    def add(self, operation: Operation, gpu: GpuFacts) -> None:
        self.count += 1
        self.flops += operation.flops
        self.bytes += operation.bytes
        self.launches += operation.launches
        arithmetic = operation.flops / gpu.peak_flops if operation.family.multiplies else 0.0
        self.least += max(operation.bytes / gpu.bandwidth, arithmetic) * 1e3


def _operations(workload: Workload, gpu: GpuFacts) -> RenderableType:
    """Alike ones together, longest first by what each must take at least."""
    kinds = grouped(workload.operations, gpu)
    counts = ("FLOPs", "eager\nmoves", "launches", "least time,\npredicted")
    rows = table("operation", "family", "makes", *counts, numbers=range(3, 7))
    for kind in kinds[:MOST_OPERATIONS]:
        often = f" x{kind.count}" if kind.count > 1 else ""
        rows.add_row(clean(kind.name) + often, kind.family, kind.shape, *_sums([kind]))
    rest = kinds[MOST_OPERATIONS:]
    if rest:
        more = f"... and {sum(kind.count for kind in rest):,} more"
        rows.add_row(more, plural(len(rest), "kind"), "", *_sums(rest))
    return rows


def _sums(kinds: Sequence[_Kind]) -> tuple[str, str, str, str]:
    return (
        quantity(sum(kind.flops for kind in kinds), ""),
        quantity(sum(kind.bytes for kind in kinds), "B"),
        f"{sum(kind.launches for kind in kinds):,}",
        milliseconds(sum(kind.least for kind in kinds)),
    )


def grouped(operations: Sequence[Operation], gpu: GpuFacts) -> list[_Kind]:
    kinds: dict[tuple[str, str, str], _Kind] = {}
    for operation in operations:
        made = ", ".join(f"{form.dtype} {_shape(form)}" for form in operation.outputs[:2])
        made += ", ..." if len(operation.outputs) > 2 else ""
        key = (operation.name, operation.family.value, made)
        kinds.setdefault(key, _Kind(*key)).add(operation, gpu)
    return sorted(kinds.values(), key=lambda kind: -kind.least)


def _totals(workload: Workload, facts: ProgramFacts) -> list[tuple[str, str]]:
    total = sum(facts.flops_by_family.values())
    families = sorted(facts.flops_by_family.items(), key=lambda item: -item[1])
    shown = ", ".join(
        f"{name} {quantity(count, '')} ({percent(count / total)})" for name, count in families if count
    )
    more = f", {factor(facts.eager_bytes / facts.least_bytes)} the least" if facts.least_bytes else ""
    return [
        ("FLOPs", f"{quantity(total, '')}: {shown}" if total else "none"),
        (
            "least bytes",
            f"{quantity(facts.least_bytes, 'B')} (inputs, parameters, outputs once; of indexed tables rows)",
        ),
        ("eager moves", f"{quantity(facts.eager_bytes, 'B')}{more}"),
        (
            "eager launches",
            f"about {facts.eager_launches:,}, for {plural(len(workload.operations), 'operation')}",
        ),
    ]


def _floor(facts: ProgramFacts, gpu: GpuFacts) -> list[tuple[str, str]]:
    rows = [(f"floor on {gpu.name}", "unknown")]
    if gpu.floor_milliseconds is not None:
        rows = [
            (
                f"floor on {gpu.name}",
                f"{milliseconds(gpu.floor_milliseconds)} {PREDICTED}; {balance(facts, gpu)}",
            )
        ]
    if gpu.savings is not None:
        rows.append(("fusion could save", _savings(gpu.savings)))
    return rows


def balance(facts: ProgramFacts, gpu: GpuFacts) -> str:
    """Which side of the roofline the fused task is on."""
    if not facts.flops:
        return "memory-bound when fused: nothing is multiplied"
    arithmetic = facts.flops / gpu.peak_flops * 1e3
    side = "arithmetic" if arithmetic >= (gpu.floor_milliseconds or 0.0) * 0.999 else "memory"
    own = f"{per_byte(facts.flops / facts.least_bytes)} of products" if facts.least_bytes else "no traffic"
    return f"{side}-bound when fused: {own}; balance is at {per_byte(gpu.peak_flops / gpu.bandwidth)}"


def _savings(savings: Savings) -> str:
    if savings.eager < NOTHING_SAVED * savings.whole:
        return f"nothing: {milliseconds(savings.eager)} at least in any case {PREDICTED}"
    steps = [f"eager {milliseconds(savings.eager)}"]
    for name, time in (("pointwise fused", savings.pointwise_fused), ("all fused", savings.whole)):
        gain = f" ({factor(savings.eager / time)})" if time > 0 else ""
        steps.append(f"{name} {milliseconds(time)}{gain}")
    return f"{' -> '.join(steps)} {PREDICTED}"

"""A diagnosis in words: one limiter for each kernel that matters, the numbers, and what would refute it."""

from __future__ import annotations

from collections.abc import Iterator

from egg.core.bottleneck import MEANINGS, Bottleneck, Diagnosed, Evidence
from egg.core.profile import Rung

KERNELS_TOLD = 4
SUSPECTS_TOLD = 3
LEAST_SHARE = 0.05
"""Of the program's time: kernels below it are left out."""
READ_FROM = {
    Rung.COUNTERS: "hardware counters and measured times",
    Rung.TIMES: "the measured time, the compiler's word and a model of the GPU; no hardware counters",
    Rung.RESOURCES: "the compiler's word and a model of the GPU; nothing was measured, times are predicted",
    Rung.MODEL: "a model of the GPU alone; nothing was measured, times are predicted",
}


def render_diagnosis(diagnosis: Diagnosed) -> str:
    """For planning the next change; as Markdown.

    The whole program has a line where its kernels do not show it: it has another limiter than its
    longest kernel, or no kernel matters by itself.
    """
    lines = [f"Read from {READ_FROM[diagnosis.rung]}."]
    kernels = [k for k in diagnosis.kernels if k.share >= LEAST_SHARE and k.known][:KERNELS_TOLD]
    longest = max(kernels, key=lambda k: k.share, default=None)
    if longest is None or diagnosis.whole.limiter is not longest.limiter:
        lines += ["", *_lines(diagnosis.whole, "The whole program")]
    for kernel in kernels:
        lines += ["", *_lines(kernel, f"`{kernel.kernel}`, {kernel.share:.0%} of the time")]
    return "\n".join(lines)


def _lines(found: Bottleneck, what: str) -> Iterator[str]:
    yield f"**{what}: {found.limiter.value}** ({MEANINGS[found.limiter]})"
    yield ""
    if found.gain > 1.005:
        yield f"- Without it about {found.gain:.2f} times as fast."
    if found.headroom is not None:
        least = "its work" if found.kernel else "the task"
        yield f"- Now {found.headroom:.3g} times the least that {least} can take."
    yield from (f"- {_number(e)}" for e in found.evidence)
    if found.unless:
        yield f"- Wrong if {found.unless}."
    others = [f"{s.limiter.value} ({s.gain:.2f}x)" for s in found.suspects[:SUSPECTS_TOLD]]
    if others:
        yield f"- Other suspects: {', '.join(others)}."


def _number(evidence: Evidence) -> str:
    unit = f" {evidence.unit}" if evidence.unit else ""
    return f"{evidence.name} {evidence.value:.4g}{unit}: {evidence.says}"

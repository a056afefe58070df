"""A diagnosis in words: one limiter for each kernel that matters, the numbers, and what would refute it."""

from __future__ import annotations

from collections.abc import Iterator

from egg.core.bottleneck import MEANINGS, Bottleneck, Diagnosed, Evidence

KERNELS_SHOWN = 4
SUSPECTS_SHOWN = 3
LEAST_SHARE = 0.05
"""Of the program's time: kernels below it are left out."""


def render_diagnosis(diagnosis: Diagnosed) -> str:
    """For planning the next change; as Markdown.

    Kernels of the file and library calls are ranked by their share of the time. The whole program has a
    line where its kernels do not show it: it has another limiter than its longest kernel, no kernel matters
    by itself, or of the longest nothing but its time is known.
    """
    lines = [f"Read from {diagnosis.rung.sources}."]
    ranked = sorted(diagnosis.kernels, key=lambda k: -k.share)
    kernels = [k for k in ranked if k.share >= LEAST_SHARE and _says_something(k)][:KERNELS_SHOWN]
    if diagnosis.rung.measured and any(k.milliseconds is None for k in kernels):
        lines.append("Only the whole was timed: the shares of its kernels are modelled.")
    longest = kernels[0] if kernels else None
    if longest is None or not longest.known or diagnosis.whole.limiter is not longest.limiter:
        lines += ["", *_lines(diagnosis.whole, "The whole program")]
    for kernel in kernels:
        lines += ["", *(_lines(kernel, _headed(kernel)) if kernel.known else _only_timed(kernel))]
    return "\n".join(lines)


def _says_something(kernel: Bottleneck) -> bool:
    return kernel.known or (not kernel.own and kernel.milliseconds is not None)


def _headed(kernel: Bottleneck) -> str:
    """The name with its share of the time, and whether that was measured."""
    library = "" if kernel.own else " (library call)"
    if kernel.milliseconds is None:
        return f"`{kernel.kernel}`{library}, {kernel.share:.0%} of the time by the model, not measured"
    return (
        f"`{kernel.kernel}`{library}, {kernel.share:.0%} of the time, {kernel.milliseconds:.3g} ms measured"
    )


def _only_timed(kernel: Bottleneck) -> Iterator[str]:
    yield f"**{_headed(kernel)}**"
    yield ""
    yield "- Its code is the library's, and only its time is known: replace the call, or give it less to do."


def _lines(found: Bottleneck, what: str) -> Iterator[str]:
    yield f"**{what}: {found.limiter.value}** ({MEANINGS[found.limiter]})"
    yield ""
    if found.gain > 1.005:
        yield f"- Without it about {found.gain:.2f} times as fast, estimated."
    if found.headroom is not None:
        least = "its work" if found.kernel else "the task"
        yield f"- Now {found.headroom:.3g} times the least that {least} can take."
    yield from (f"- {_number(e)}" for e in found.evidence)
    if found.unless:
        yield f"- Wrong if {found.unless}."
    others = [f"{s.limiter.value} ({s.gain:.2f}x)" for s in found.suspects[:SUSPECTS_SHOWN]]
    if others:
        yield f"- Other suspects: {', '.join(others)}."


def _number(evidence: Evidence) -> str:
    unit = f" {evidence.unit}" if evidence.unit else ""
    return f"{evidence.name} {evidence.value:.4g}{unit}: {evidence.says}"

"""What a tool of the coder or the debugger returns, as text for a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from egg.api.alike import Alike
from egg.core.evaluation import Accepted, Compiled, Evaluation, Measured, Refusal
from egg.core.exemplar import Exemplar
from egg.core.resources import KernelResources
from egg.engine.scoring import score
from egg.hardware.gpus import Gpu
from egg.knowledge.assets import pattern_of
from egg.knowledge.skill import SkillFile
from egg.memory.phrases import score as worded

KERNELS_SHOWN = 24
SKILLS_LISTED = 8


def compiled(evaluation: Evaluation, target: str) -> str:
    """What the compiler made of a file; nothing of it was run."""
    if not isinstance(evaluation.verdict, Accepted):
        return refused(evaluation.verdict.refusal)
    lines = [f"It compiles for {target}. Nothing was run: whether it is right is not known.", ""]
    return "\n".join([*lines, *resources(_kernels(evaluation))])


def judged(evaluation: Evaluation, gpu: Gpu | None) -> str:
    """A verdict with what decided it."""
    if not isinstance(evaluation.verdict, Accepted):
        return refused(evaluation.verdict.refusal)
    found, right = score(evaluation, gpu), evaluation.verdict.correctness
    lines = [
        f"Accepted: right on {right.checks} checks, error {right.worst_max_error:.0%} of the largest allowed."
    ]
    if found is not None:
        lines.append(worded(found))
    performance = evaluation.verdict.performance
    if isinstance(performance, Measured):
        lines += [
            f"{b.speedup.median:.3f}x {b.name} ({b.milliseconds.median:.4g} ms)"
            for b in performance.baselines
        ]
    return "\n".join([*lines, "", *resources(_kernels(evaluation))])


def refused(refusal: Refusal) -> str:
    return f"Refused at gate {refusal.gate.value} ({refusal.reason}).\n\n{refusal.evidence}\n\n{refusal.hint}"


def timed(evaluation: Evaluation, count: int) -> str:
    """The files side by side with the base, in their order."""
    if len(evaluation.contenders) != count:
        return "The files could not be timed beside the base."
    lines = [
        f"{number}. {found.milliseconds.median:.4g} ms, {found.gain.median:.3f}x the base "
        f"({found.gain.low:.3f} to {found.gain.high:.3f})"
        if found.milliseconds is not None and found.gain is not None
        else f"{number}. did not run: {found.reason}"
        for number, found in enumerate(evaluation.contenders, 1)
    ]
    return "\n".join(["Timed side by side with the base, in the order of the call; unchecked.", "", *lines])


def skill(found: SkillFile) -> str:
    """A technique in full with the first of its patterns."""
    pattern = f"\n\nA pattern that runs:\n\n{pattern_of(found.assets[0])}" if found.assets else ""
    return f"{found.name}: {found.description}\n\n{found.body}{pattern}"


def skills_about(words: str, every: Iterable[SkillFile]) -> str:
    """The techniques whose name or description has most of the words."""
    asked = set(words.lower().replace("-", " ").replace("_", " ").split())
    ranked = [(sum(word in f"{s.name} {s.description}".lower() for word in asked), s) for s in every]
    ranked = sorted((found for found in ranked if found[0]), key=lambda found: (-found[0], found[1].name))
    if not ranked:
        return f"No technique speaks of {words!r}."
    lines = [f"- {s.name}: {s.description}" for _, s in ranked[:SKILLS_LISTED]]
    return "\n".join([f"There is no technique {words!r}. These speak of it:", "", *lines])


def alike(found: Sequence[Alike]) -> str:
    if not found:
        return "No accepted kernel of a program like this one is known."
    return "\n\n".join(
        f"{one.task}, likeness {one.likeness:.2f}: {worded(one.kernel.score)}\n\n"
        f"{one.kernel.candidate.source}"
        for one in found
    )


def exemplars(found: Sequence[Exemplar]) -> str:
    """Kernels of earlier runs with what made them fast."""
    return "\n\n".join(
        "\n".join(
            [
                f"{one.task}, likeness {one.likeness:.2f}, {one.gpu}: "
                + (f"{one.speedup:.2f}x eager" if one.speedup is not None else "not measured"),
                *(f"- {won.change}" for won in one.won),
                "",
                one.source,
            ]
        )
        for one in found
    )


def resources(kernels: Sequence[KernelResources]) -> list[str]:
    """A line for each kernel."""
    lines = [
        f"- {k.name}: grid {' x '.join(map(str, k.grid))}, {k.launches} launches, {k.num_warps} warps, "
        f"{k.num_stages} stages, {k.registers} registers, {k.spill_bytes} spill bytes, "
        f"{k.shared_bytes} bytes of shared memory, {k.tensor_core_instructions} tensor-core instructions, "
        f"widest load {k.widest_load_bits} bit{_mix(k)}"
        for k in kernels[:KERNELS_SHOWN]
    ]
    left = len(kernels) - KERNELS_SHOWN
    return [*lines, f"- and {left} more"] if left > 0 else lines


def _mix(kernel: KernelResources) -> str:
    mix = kernel.instructions
    if mix is None:
        return ""
    return (
        f"; machine code of {mix.total} instructions: {mix.warp_group} of warp groups, {mix.async_copies} "
        f"asynchronous copies, {mix.barriers} barriers, narrowest load {mix.narrowest_load_bits} bit"
    )


def _kernels(evaluation: Evaluation) -> tuple[KernelResources, ...]:
    verdict = evaluation.verdict
    assert isinstance(verdict, Accepted)
    performance: Measured | Compiled = verdict.performance
    return performance.kernels

"""Wordings of single facts of a run: a prediction beside its outcome, a failure, a sweep, a score."""

from __future__ import annotations

import re
from collections.abc import Mapping

from egg.core.evaluation import Interval
from egg.core.space import Sweep, SweepPoint
from egg.core.step import Attempt, Contract, Origin, Score, Step

LINE = 160
"""Characters of free text in a line that stands for a whole step."""
PARAGRAPH = 600
"""Characters of free text where there is room."""
SIGNATURE = 240
"""Characters of a failure signature; an objection may be as long as its author liked."""

SLOWER = 0.99
"""A ratio below this is a loss, whatever the noise."""


def one_line(text: str, limit: int) -> str:
    """``text`` as one line of at most ``limit`` characters: it came from a model or a kernel, in any form."""
    flat = re.sub(r"\s+", " ", text).strip()
    return flat if len(flat) <= limit else flat[: limit - 3].rstrip() + "..."


def sentence(text: str, limit: int = LINE) -> str:
    flat = one_line(text, limit)
    return flat if not flat or flat[-1] in ".!?" else f"{flat}."


def signatures(found: tuple[str, ...]) -> tuple[str, ...]:
    """Each once, as it stands in a list."""
    return tuple(dict.fromkeys(one_line(s, SIGNATURE) for s in found if s.strip()))


def missed(step: Step) -> bool:
    """Whether the outcome was not what the plan predicted, in either direction.

    A large gain may be off by a tenth; of a small one at least half must have come, or
    predicting 1.05 for everything would never be wrong.
    """
    if step.plan is None or step.gain is None:
        return False
    predicted = step.plan.prediction.speedup
    allowed = min(max(abs(predicted - 1) / 2, 0.03), 0.10)
    return abs(step.gain.ratio / predicted - 1) > allowed


def prediction_beside_outcome(step: Step) -> str:
    """``predicted 1.30x, measured 1.04x: missed, it fell short``; empty for a step without a plan."""
    if step.plan is None:
        return ""
    predicted = step.plan.prediction.speedup
    forecast = f"predicted {predicted:.2f}x"
    if step.gain is None:
        return f"{forecast}, never timed"
    how = "measured" if step.gain.measured else "estimated"
    unsure = not step.gain.beyond_noise and step.gain.ratio >= SLOWER
    noise = " (within the noise)" if unsure else ""
    verdict = "as predicted"
    if missed(step):
        verdict = f"missed, it {'fell short' if step.gain.ratio < predicted else 'went beyond'}"
    return f"{forecast}, {how} {step.gain.ratio:.2f}x{noise}: {verdict}"


def repairs(step: Step) -> str:
    """What the step's repair chain went through, in a sentence; empty where nothing failed."""
    failed = [a for a in step.attempts if a.failed]
    if not failed:
        return ""
    ways = "; ".join(signatures(tuple(a.signature for a in failed)))
    failures = f"{count(len(failed), 'file')} failed on the way: {ways}"
    last = step.attempts[-1]
    if last.failed or last.diagnosis is None:
        return failures
    repair = f"{last.diagnosis.critical_issue} -> {last.diagnosis.modification_plan}"
    return f"{failures}; repaired by: {sentence(repair, SIGNATURE)}"


def attempt_lines(number: int, attempt: Attempt) -> tuple[str, str, str]:
    """One file of a repair chain: with evidence and diagnosis, less of both, by its failure alone."""
    wrote = {
        Origin.REPAIR: "repair",
        Origin.SEED: "seed",
        Origin.SWEEP: "sweep point",
        Origin.TRANSLATION: "torch.compile's code",
    }
    name = f"{number}. {wrote.get(attempt.origin, 'first file')}"
    short = f"{name}: {one_line(attempt.signature, SIGNATURE)}" if attempt.failed else f"{name}: passed"

    def worded(limit: int) -> str:
        lines = [short]
        if attempt.diagnosis is not None:
            followed = f"{attempt.diagnosis.critical_issue} -> {attempt.diagnosis.modification_plan}"
            lines.append(f"   - followed the diagnosis: {sentence(followed, limit)}")
        if attempt.refusal is not None:
            lines.append(f"   - seen: {sentence(attempt.refusal.evidence, limit)}")
            lines.append(f"   - hint: {sentence(attempt.refusal.hint, limit)}")
        return "\n".join(lines)

    return worded(PARAGRAPH), worded(LINE), short


def sweep(done: Sweep) -> str:
    """How many points, the winner and the spread: what is worth knowing before proposing another value."""
    timed = [p for p in done.points if p.milliseconds is not None]
    text = f"swept {len(done.points)} of {done.size} points"
    if refused := len(done.points) - len(timed):
        text += f", {refused} refused"
    best = next((p for p in done.points if p.candidate == done.winner), None)
    if best is not None:
        text += f"; best {_point(best)}"
    if len(timed) > 1:
        text += f"; slowest {_point(max(timed, key=lambda p: p.milliseconds or 0.0))}"
    return text


def _point(point: SweepPoint) -> str:
    values = ", ".join(f"{name}={value}" for name, value in point.values.items())
    time = "" if point.milliseconds is None else f" at {milliseconds(point.milliseconds)}"
    return f"{values}{time}"


def score(value: Score | None) -> str:
    if value is None:
        return "no kernel was accepted yet"
    parts = [f"{'measured' if value.measured else 'predicted'} {_interval(value.milliseconds)} ms"]
    if value.speedup is not None:
        parts.append(f"{_interval(value.speedup, 3)}x over eager")
        parts.append(f"noise {value.noise:.1%}")
    if value.faster is not None:
        parts.append("faster than eager" if value.faster else "not faster than eager beyond the noise")
    if value.headroom is not None and value.floor_milliseconds is not None:
        floor = milliseconds(value.floor_milliseconds)
        parts.append(f"{value.headroom:.2f} times the roofline floor of {floor}")
    return ", ".join(parts)


def _interval(value: Interval, digits: int = 4) -> str:
    median = f"{value.median:.{digits}g}"
    if value.low == value.high:
        return median
    return f"{median} [{value.low:.{digits}g}, {value.high:.{digits}g}]"


def milliseconds(value: float) -> str:
    return f"{value:.4g} ms"


def contract(value: Contract) -> str:
    lines = ["The structure is fixed to:"]
    for kernel in value.kernels:
        times = f"x{kernel.launches}" if kernel.launches else "not launched at this size"
        made_of = ", ".join(kernel.building_blocks) or "elementwise"
        purpose = f". {sentence(kernel.purpose)}" if kernel.purpose.strip() else ""
        lines.append(f"- `{kernel.name}` {times}: {made_of}{purpose}")
    lines.append(f"- left to libraries: {counted(value.library_ops) or 'nothing'}")
    return "\n".join(lines)


def counted(ops: Mapping[str, int]) -> str:
    return ", ".join(f"`{name}` x{times}" for name, times in sorted(ops.items()))


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

"""A profile and its diagnosis for people: where the time goes, what holds it back, how that is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from egg.cli.facts_view import facts_view
from egg.cli.kernels_view import kernels_view
from egg.cli.render import clean
from egg.cli.tables import pairs
from egg.core.bottleneck import MEANINGS, Bottleneck, Diagnosed, Evidence, Limiter
from egg.core.profile import Profile, Rung
from egg.hardware.detect import DERIVED
from egg.hardware.gpus import Gpu
from egg.memory.diagnosis import LEAST_SHARE
from egg.report.quantities import factor, milliseconds, percent
from egg.report.roofline import Roofline, roofline
from egg.report.roofline_text import ASCII, UNICODE, key, plot, short

if TYPE_CHECKING:
    from egg.api.profiling import Failure, ProfileReport

MOST_DIAGNOSED = 4
MOST_SUSPECTS = 4


def report_view(report: ProfileReport, width: int, *, plain: bool) -> RenderableType:
    """Everything, in the order in which one asks: the task, the kernels, the limiter, the picture."""
    gpu = report.row
    parts: list[RenderableType] = [_headline(report), *_grounds(report), ""]
    if report.workload is not None and report.facts is not None:
        parts += [facts_view(report.workload, report.facts, report.gpu), ""]
    else:
        parts += [Text(f"no facts: {clean(report.unknown)}", style="yellow"), ""]
    if report.failure is not None:
        return Group(*parts, failure_view(report.failure))
    if report.profile is not None and report.diagnosis is not None:
        parts += [*_profile_parts(report.profile, report.diagnosis, gpu), ""]
    chart = roofline(report.profile, gpu, report.gpu, report.workload)
    if chart.points or (chart.ideal is not None and report.profile is None):
        parts.append(picture(chart, width, plain=plain))
    return Group(*parts)


def picture(chart: Roofline, width: int, *, plain: bool) -> RenderableType:
    """The roofline; ``plain`` where only ASCII goes out."""
    marks = ASCII if plain else UNICODE
    lines = [plot(chart, max(60, min(width, 100)), marks=marks), *key(chart, marks)]
    return Text(clean("\n".join(lines)), no_wrap=False)


def failure_view(failure: Failure) -> RenderableType:
    rows: list[tuple[str, RenderableType]] = [("kernel", Text(clean(failure.reason), style="red"))]
    rows.append(("evidence", clean(failure.evidence)))
    rows += [("look at", Text(clean(failure.hint), style="cyan"))] if failure.hint else []
    return Padding(pairs(rows), (0, 0, 0, 2))


def _headline(report: ProfileReport) -> Text:
    what = f"{clean(report.candidate)} for {clean(report.task)}" if report.candidate else clean(report.task)
    line = Text.assemble((" PROFILE ", "reverse bold cyan"), "  ", (what, "bold"), f"  on {report.gpu.name}")
    line.append(f", precision {report.precision.value}")
    if report.failure is not None:
        line.append("  the kernel could not be run", style="red")
    return line


def _grounds(report: ProfileReport) -> Iterator[Text]:
    """What predictions stand on, where it is not the table and the model as they are."""
    if report.row.source == DERIVED:
        yield Text("this GPU is not in the table: its figures are derived from its driver's", style="yellow")
    if report.calibrated:
        day = clean(report.calibrated.partition("T")[0])
        yield Text(f"predictions are corrected by this GPU's own rates, measured {day}", style="dim")


def _profile_parts(profile: Profile, diagnosis: Diagnosed, gpu: Gpu) -> Iterator[RenderableType]:
    yield _ladder(profile)
    yield ""
    if profile.kernels:
        yield from kernels_view(profile, diagnosis, gpu)
        yield ""
    if profile.warnings:
        yield from (Text(f"warning: {clean(warning)}", style="yellow") for warning in profile.warnings)
        yield ""
    yield from _diagnosis(diagnosis)


def _ladder(profile: Profile) -> RenderableType:
    """The time, which rung it was seen from, and why not from a better one.

    Only what was timed can be counted, so where it was not, that one reason is enough.
    """
    rows: list[tuple[str, RenderableType]] = [("time", _time(profile))]
    rows += [("seen by", f"{profile.rung.value}: {profile.rung.sources}")]
    timed = Rung.TIMES not in {lowered.rung for lowered in profile.lowered}
    for lowered in profile.lowered:
        if lowered.rung is Rung.COUNTERS and not timed:
            continue
        reason = Text(clean(lowered.reason))
        if lowered.hint:
            reason.append(f"\n-> {clean(lowered.hint)}", style="cyan")
        both = " or counters" if lowered.rung is Rung.TIMES else ""
        rows.append((f"not by {lowered.rung.value}{both}", reason))
    return pairs(rows)


def _time(profile: Profile) -> str:
    launches = f"{profile.launches:,} launch{'es' if profile.launches != 1 else ''}"
    if profile.milliseconds is None:
        if profile.predicted_milliseconds is None:
            return f"not known; {launches}"
        return f"{milliseconds(profile.predicted_milliseconds)} predicted, not measured; {launches}"
    idle = max(0.0, 1.0 - (profile.busy_milliseconds or 0.0) / profile.milliseconds)
    gaps = f"; no kernel ran in {percent(idle)} of it" if idle > 0 else ""
    return f"{milliseconds(profile.milliseconds)} measured; {launches}{gaps}"


def _diagnosis(diagnosis: Diagnosed) -> Iterator[RenderableType]:
    """The whole first, then the kernels that matter; the longest not again where it says the same."""
    if not diagnosis.kernels and diagnosis.whole.limiter is not Limiter.LAUNCH:
        yield Text("no kernel was seen, so there is no diagnosis")
        return
    yield _bottleneck("the whole", diagnosis.whole)
    kernels = [k for k in diagnosis.kernels if k.share >= LEAST_SHARE and k.known]
    if kernels and kernels[0].limiter is diagnosis.whole.limiter:
        kernels = kernels[1:]
    for kernel in kernels[:MOST_DIAGNOSED]:
        yield ""
        yield _bottleneck(f"{short(kernel.kernel)}, {percent(kernel.share)} of the time", kernel)


def _bottleneck(what: str, found: Bottleneck) -> RenderableType:
    head = Text.assemble((f"{clean(what)}: ", "bold"), (found.limiter.value, "bold yellow"))
    head.append(f": {MEANINGS[found.limiter]}")
    rows: list[tuple[str, RenderableType]] = [("worth", _worth(found))]
    rows += [("" if index else "evidence", _evidence_text(e)) for index, e in enumerate(found.evidence)]
    rows += [("wrong if", clean(found.unless))] if found.unless else []
    others = [f"{s.limiter.value} ({factor(s.gain)})" for s in found.suspects[:MOST_SUSPECTS]]
    rows += [("other suspects", ", ".join(others))] if others else []
    return Group(head, Padding(pairs(rows), (0, 0, 0, 2)))


def _worth(found: Bottleneck) -> str:
    gain = f"about {factor(found.gain)} faster were it no limit" if found.gain >= 1.05 else "little by itself"
    least = "its work" if found.kernel else "the task"
    if found.headroom is None:
        return f"{gain}; the least {least} could take is not known"
    return f"{gain}; takes {factor(found.headroom)} the least {least} could take"


def _evidence_text(evidence: Evidence) -> str:
    value = f"{evidence.value:.4g} {evidence.unit}".rstrip()
    return clean(f"{evidence.name} {value}: {evidence.says}" if evidence.says else f"{evidence.name} {value}")

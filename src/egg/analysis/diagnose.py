"""What holds a program back: one limiter for each kernel and for the whole, with the numbers that say so.

Every rule (``rules/``) says how much faster the kernel would be without its limiter; that gain
is the currency in which limiters are compared. Four things make the currency honest:

- *Bounds.* Units that a remedy does not relieve need their time still, a launch costs what it
  costs, and the work has a floor. A kernel near memory's roof gains nothing by more occupancy.
- *Causes before symptoms.* Spills fill caches and memory, scattered access does too, a small
  grid idles everything. Where a cause is material, what it explains does not stand as a limiter:
  a wall that the cause raises or keeps from being reached, or another symptom of which it
  explains at least half.
- *Walls stand.* Where a unit is used up, a small gain elsewhere does not become the limiter.
- *A remainder.* Latency always applies, as far as nothing is used up; so there is always exactly
  one primary limiter.

The rest is arithmetic: no randomness, no state, no I/O.
"""

from __future__ import annotations

from egg.analysis.features import features
from egg.analysis.predict import FITTED, Constants
from egg.analysis.rules import EXPLAINS, RULES, WALLS, Finding, KernelView, bounded
from egg.analysis.rules.finding import AT, evidence, without
from egg.analysis.rules.seen import ratio
from egg.core.bottleneck import Bottleneck, Diagnosed, Evidence, Limiter, Suspect
from egg.core.profile import Profile
from egg.hardware.gpus import Gpu

MATERIAL = 1.2
"""Gain from which on a cause is worth naming before its symptoms."""
LEAST_SUSPECT = 1.02
LEAST_LIBRARIES = 0.05
"""Share of the time from which on library calls are named."""
GAPS = 1.3
"""Span over the kernels' own time, from which on the gaps between them count."""
PASSED_ON = 1.5
"""Sum of the kernels' floors over the program's, from which on intermediate results are worth naming."""

Weighed = tuple[tuple[Finding, float], ...]
"""Findings with their bounded gains, the primary one first."""


def diagnose(
    profile: Profile, gpu: Gpu, *, floor_milliseconds: float | None = None, constants: Constants = FITTED
) -> Diagnosed:
    """Read ``profile`` as one of ``gpu``; ``floor_milliseconds`` is the least the whole task could take,
    ``constants`` are the model's."""
    views = tuple(KernelView(kernel, gpu, profile.rung, constants) for kernel in profile.kernels)
    total = _total(profile)
    kernels = tuple(_kernel(view, weigh(view), total) for view in views)
    launches = _launches(profile, views, total, constants.launch * 1e3)
    whole = _whole(launches, views, kernels, total, floor_milliseconds)
    leading = max(range(len(views)), key=lambda i: (kernels[i].known, kernels[i].share, -i), default=None)
    view = views[leading] if leading is not None else None
    limiter = kernels[leading].limiter if leading is not None else whole.limiter
    seen = features(profile, view, whole=whole, kernel_limiter=limiter, floor_milliseconds=floor_milliseconds)
    return Diagnosed(profile.rung, whole, kernels, seen)


def weigh(view: KernelView) -> Weighed:
    """All findings of one kernel: the primary limiter, then the others by gain."""
    found = {limiter: finding for limiter, rule in RULES.items() if (finding := rule(view)) is not None}
    gains = {limiter: bounded(finding, view) for limiter, finding in found.items()}
    explained = {
        symptom for cause in gains for symptom in EXPLAINS.get(cause, ()) if _explains(cause, symptom, gains)
    }
    walled = view.busiest() >= AT
    order = {limiter: place for place, limiter in enumerate(RULES)}

    def standing(limiter: Limiter) -> tuple[bool, bool, float, float, int]:
        small = walled and limiter not in WALLS and gains[limiter] < MATERIAL
        return limiter in explained, small, -gains[limiter], -found[limiter].gain, order[limiter]

    primary = min(found, key=standing)
    others = sorted(found.keys() - {primary}, key=lambda limiter: (-gains[limiter], order[limiter]))
    return tuple((found[limiter], gains[limiter]) for limiter in (primary, *others))


def _explains(cause: Limiter, symptom: Limiter, gains: dict[Limiter, float]) -> bool:
    """Half of a symptom, in the logarithm: removing the cause, and the same again, would remove it all."""
    if symptom not in gains or gains[cause] < MATERIAL:
        return False
    return symptom in WALLS or gains[cause] ** 2 >= gains[symptom]


def _kernel(view: KernelView, weighed: Weighed, total: float) -> Bottleneck:
    (primary, gain), *others = weighed
    return Bottleneck(
        kernel=view.kernel.name,
        limiter=primary.limiter,
        gain=gain,
        headroom=view.headroom,
        share=_share(view.kernel.best_milliseconds, total),
        evidence=primary.evidence,
        unless=primary.unless,
        suspects=tuple(Suspect(f.limiter, g) for f, g in others if g >= LEAST_SUSPECT),
        own=view.kernel.own,
        milliseconds=view.kernel.milliseconds,
    )


def _total(profile: Profile) -> float:
    """The program's time from end to end, at least what its kernels take."""
    kernels = sum(k.best_milliseconds for k in profile.kernels)
    return max(profile.milliseconds or profile.predicted_milliseconds or 0.0, kernels)


def _share(part: float, total: float) -> float:
    return min(1.0, max(0.0, part / total)) if total > 0 else 0.0


def _whole(
    launches: Bottleneck | None,
    views: tuple[KernelView, ...],
    kernels: tuple[Bottleneck, ...],
    total: float,
    floor_milliseconds: float | None,
) -> Bottleneck:
    """Launches, or the limiter of the kernel that takes most of the time; whichever would gain more.

    Of a library's kernel often nothing but its time is known. Then the limiter is that of the longest kernel
    of which more is known, its gain counts with its share, and the libraries' share is named beside it.
    """
    floor = floor_milliseconds if floor_milliseconds and floor_milliseconds > 0 else None
    headroom = ratio(total, floor)
    passed_on = _passed_on(views, floor)
    if not kernels:
        nothing = Evidence(
            "kernels", 0, "", "None was seen: nothing can be said of what the program waits for."
        )
        return launches or Bottleneck(
            "", Limiter.LATENCY, 1.0, headroom, 1.0, (nothing,), "kernels ran that the profile did not see"
        )
    largest = max(kernels, key=lambda k: (k.known, k.share))
    passed_on = (*_libraries(kernels), *passed_on)
    gain = _gain_of_all(largest.limiter, kernels)
    alone = len(kernels) == 1
    share = evidence(
        "share",
        None if alone else largest.share,
        "",
        f"The kernel {largest.kernel} takes this share of the program's time.",
    )
    if launches is not None and (launches.gain > gain or largest.limiter is Limiter.LAUNCH):
        suspects = (Suspect(largest.limiter, gain),) if largest.limiter is not Limiter.LAUNCH else ()
        return Bottleneck(
            "",
            Limiter.LAUNCH,
            launches.gain,
            headroom,
            1.0,
            (*launches.evidence, *passed_on),
            launches.unless,
            suspects,
        )
    suspects = [Suspect(s.limiter, without(largest.share * (1.0 - 1.0 / s.gain))) for s in largest.suspects]
    if launches is not None:
        suspects.append(Suspect(Limiter.LAUNCH, launches.gain))
    return Bottleneck(
        kernel="",
        limiter=largest.limiter,
        gain=gain,
        headroom=headroom,
        share=1.0,
        evidence=(*share, *largest.evidence, *passed_on),
        unless=largest.unless,
        suspects=tuple(sorted(suspects, key=lambda s: -s.gain)),
    )


def _libraries(kernels: tuple[Bottleneck, ...]) -> tuple[Evidence, ...]:
    """The share of library calls, where it was measured and matters."""
    share = sum(k.share for k in kernels if not k.own and k.milliseconds is not None)
    says = "Library calls take this share of the time: work on the other kernels leaves it as it is."
    return (Evidence("library_share", share, "", says),) if share >= LEAST_LIBRARIES else ()


def _gain_of_all(limiter: Limiter, kernels: tuple[Bottleneck, ...]) -> float:
    """Of the program, if every kernel that this limiter holds back were rid of it."""
    return without(sum(k.share * (1.0 - 1.0 / k.gain) for k in kernels if k.limiter is limiter))


def _launches(
    profile: Profile, views: tuple[KernelView, ...], total: float, each: float
) -> Bottleneck | None:
    """The program without all launches but one, and without the gaps between them.

    The gaps are what the span exceeds the kernels by. Within the kernels ``each`` launch has its
    fixed cost, in milliseconds; kernels much longer than that hide nothing there.
    """
    launches = max(profile.launches, sum(k.launches for k in profile.kernels))
    if launches < 2 or total <= 0:
        return None
    timed = bool(views) and all(k.milliseconds is not None for k in profile.kernels)
    busy = sum(k.best_milliseconds for k in profile.kernels)
    gap = max(0.0, total - busy) if timed or not views else 0.0
    fixed = sum(v.kernel.launches * min(each, v.milliseconds or each) for v in views) or launches * each
    saved = min(total, gap + fixed * (launches - 1) / launches)
    gain = without(saved / total)
    if gain < GAPS:
        return None
    mean = busy / launches if views else None
    seen = [
        Evidence("launches", launches, "", "One forward pass launches so many kernels."),
        Evidence(
            "launch_time",
            _share(saved, total),
            "",
            "This share of the time is gaps between kernels and the launches themselves.",
        ),
    ]
    if mean is not None:
        seen.append(
            Evidence(
                "mean_kernel",
                mean,
                "ms",
                f"A launch takes so long on average; up to {each:.2g} ms of it are its fixed cost.",
            )
        )
    if timed:
        seen.append(
            Evidence(
                "gap_share",
                _share(gap, total),
                "",
                "No kernel ran in this share of the time between the first and the last.",
            )
        )
    return Bottleneck(
        "",
        Limiter.LAUNCH,
        gain,
        None,
        1.0,
        tuple(seen),
        "the gaps vanish in a captured graph and the kernels' own time does not fall with them",
    )


def _passed_on(views: tuple[KernelView, ...], floor: float | None) -> tuple[Evidence, ...]:
    """Whether the kernels together must move much more than the task: results passed on through memory."""
    if floor is None or len(views) < 2:
        return ()
    floors = [
        v.predicted.floor_milliseconds * max(1, v.kernel.launches) for v in views if v.predicted is not None
    ]
    if sum(floors) < PASSED_ON * floor:
        return ()
    return (
        Evidence(
            "passed_on",
            sum(floors) / floor,
            "x",
            "The kernels' floors add up to so many times the task's: fusing saves what they pass on.",
        ),
    )

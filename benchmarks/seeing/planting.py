"""The planted kernels, the lines kept of their profiles, and a diagnosis held against what was planted.

A line holds the whole profile, so that any later diagnosis can be tried on it without the GPU.
The profile with everything on it also stands for those that saw less: without its counters it is
what kernel times alone show, without its times what the compiler alone says.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from egg.analysis.diagnose import diagnose
from egg.analysis.predict import predict
from egg.core.bottleneck import Bottleneck, Diagnosed, Limiter
from egg.core.codec import to_json
from egg.core.policy import Precision
from egg.core.profile import KernelProfile, Profile, Rung
from egg.core.source import Candidate, Task
from egg.hardware.gpus import Gpu, resolve

FOLDER = Path(__file__).resolve().parent / "planted"
TABLE = FOLDER / "planted.toml"
SEEN = (Rung.COUNTERS, Rung.TIMES, Rung.RESOURCES)
"""How much may be seen, best first: each is a column of the table."""
WANTED = {Rung.COUNTERS: 18, Rung.TIMES: 13}
"""How many of the first twenty and more should be named."""


@dataclass(frozen=True)
class Planted:
    """One kernel of known character."""

    name: str
    limiter: Limiter
    kernel: str
    """Which of its kernels the limiter is about; empty: the program as a whole."""
    why: str
    precision: Precision
    task: Task
    candidate: Candidate


@dataclass(frozen=True)
class Kept:
    """One line of a file of profiles."""

    name: str
    limiter: Limiter
    kernel: str
    gpu: str
    profile: Profile
    machine: Mapping[str, str]
    seconds: float

    def to_line(self) -> str:
        return json.dumps(to_json(self))

    @classmethod
    def from_line(cls, line: str) -> Kept:
        row: dict[str, Any] = json.loads(line)
        return cls(
            row["name"],
            Limiter(row["limiter"]),
            row["kernel"],
            row["gpu"],
            Profile.from_json(row["profile"]),
            row["machine"],
            row["seconds"],
        )


def load_planted(only: Iterable[str] | None = None) -> list[Planted]:
    """All planted kernels in the order of their table, or those named."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    unknown = sorted(set(only or ()) - set(rows))
    if unknown:
        raise SystemExit(f"nothing planted is called {', '.join(unknown)}; there are {', '.join(rows)}")
    return [_load(name, row) for name, row in rows.items() if not only or name in only]


def _load(name: str, row: dict[str, str]) -> Planted:
    folder = FOLDER / name
    return Planted(
        name,
        Limiter(row["limiter"]),
        row["kernel"],
        row["why"],
        Precision(row.get("precision", "match")),
        Task(name, (folder / "task.py").read_text(encoding="utf-8")),
        Candidate(Candidate.from_file(folder / "kernel.py").source, name),
    )


def read_kept(path: Path) -> list[Kept]:
    """The lines of a file, the last one of each name, in the order they were first written."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    kept = [Kept.from_line(line) for line in lines if line.strip()]
    return list({k.name: k for k in kept}.values())


def seen_by(profile: Profile, rung: Rung) -> Profile | None:
    """``profile`` as it would be had only ``rung`` been reached; ``None`` where it stands lower itself."""
    ladder = list(Rung)
    if ladder.index(profile.rung) > ladder.index(rung):
        return None
    if profile.rung is rung:
        return profile
    counters_gone = (replace(k, counters={}) for k in profile.kernels)
    if rung.measured:
        return replace(profile, rung=rung, kernels=tuple(counters_gone))
    kernels = tuple(
        sorted(
            (replace(k, milliseconds=None) for k in counters_gone),
            key=lambda k: -k.best_milliseconds,
        )
    )
    return replace(profile, rung=rung, kernels=kernels, milliseconds=None)


def foretold(profile: Profile, gpu: Gpu) -> Profile:
    """With times as they are predicted today: a kept profile has those of the day it was made."""

    def predicted_anew(kernel: KernelProfile) -> KernelProfile:
        predicted = predict(kernel.resources, gpu) if kernel.resources else None
        if predicted is None:
            return kernel
        return replace(kernel, predicted_milliseconds=kernel.launches * predicted.milliseconds)

    return replace(profile, kernels=tuple(map(predicted_anew, profile.kernels)))


def diagnosed(profile: Profile, gpu: Gpu) -> dict[Rung, Diagnosed]:
    """The diagnosis at every rung that the profile can stand for."""
    profile = foretold(profile, gpu)
    views = ((rung, seen_by(profile, rung)) for rung in SEEN)
    return {rung: diagnose(view, gpu) for rung, view in views if view is not None}


def about(diagnosis: Diagnosed, kernel: str) -> Bottleneck | None:
    """The diagnosis of the kernel that the limiter was planted in."""
    if not kernel:
        return diagnosis.whole
    return next((b for b in diagnosis.kernels if b.kernel == kernel), None)


def gpu_of(kept: Kept) -> Gpu:
    return resolve(kept.gpu)


def verdict(found: Bottleneck | None, planted: Limiter) -> str:
    """``spills 2.1x``, or ``dram (3.)``: found instead, and the planted one's place among the suspects."""
    if found is None:
        return "no such kernel"
    if found.limiter is planted:
        return f"{found.limiter.value} {found.gain:.1f}x"
    places = [s.limiter for s in found.suspects]
    place = f"{places.index(planted) + 2}." if planted in places else "not seen"
    return f"{found.limiter.value} ({place})"


def evidence(found: Bottleneck | None, most: int = 3) -> str:
    if found is None:
        return ""
    return "; ".join(f"{e.name} {e.value:.4g}{e.unit and ' ' + e.unit}" for e in found.evidence[:most])


def suspects(found: Bottleneck | None, most: int = 3) -> str:
    return (
        "" if found is None else ", ".join(f"{s.limiter.value} {s.gain:.1f}x" for s in found.suspects[:most])
    )


def row(kept: Kept) -> tuple[str, ...]:
    """One line of the table: planted, found at each rung, the best rung's suspects and evidence."""
    found = {rung: about(d, kept.kernel) for rung, d in diagnosed(kept.profile, gpu_of(kept)).items()}
    cells = [verdict(found[rung], kept.limiter) if rung in found else "-" for rung in SEEN]
    best = next((found[rung] for rung in SEEN if rung in found), None)
    span = kept.profile.milliseconds
    return (
        kept.name,
        kept.limiter.value,
        *cells,
        "-" if span is None else f"{span:.3f}",
        suspects(best),
        evidence(best),
    )


HEADINGS = ("kernel", "planted", "by counters", "by times", "by compiler", "ms", "suspects", "evidence")
WIDTHS = (20, 20, 27, 27, 27, 8, 48, 90)


def score(kept: Iterable[Kept]) -> dict[Rung, tuple[int, int]]:
    """At each rung: how many planted limiters were named, of how many."""
    counts: dict[Rung, tuple[int, int]] = dict.fromkeys(SEEN, (0, 0))
    for one in kept:
        for rung, diagnosis in diagnosed(one.profile, gpu_of(one)).items():
            found = about(diagnosis, one.kernel)
            named, asked = counts[rung]
            counts[rung] = (named + (found is not None and found.limiter is one.limiter), asked + 1)
    return counts


def summary(counts: Mapping[Rung, tuple[int, int]]) -> str:
    return "\n".join(
        f"named by {rung.value}: {named} of {asked}" + (f" (wanted {WANTED[rung]})" if rung in WANTED else "")
        for rung, (named, asked) in counts.items()
        if asked
    )

"""How every task of a bench is run and judged: fixed when the bench begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from egg.api.optimizing import OFFLINE, inheriting, settle
from egg.api.teams import TEAMS
from egg.core.codec import from_json, to_json
from egg.core.errors import UsageError
from egg.core.policy import Level, Policy
from egg.core.settings import Settings
from egg.hardware.gpus import find

ALONE = tuple(team for team in TEAMS if team != "step")
"""Teams that need no answers from outside."""


@dataclass(frozen=True)
class BenchOptions:
    """What all rows of a bench have in common, so that they can stand in one table."""

    settings: Settings
    """Of every run: team, budget, precision, library calls, device, target, caps, model, seed, skills and
    lessons. Caps hold for each task on its own."""
    level: Level = Level.FULL
    """How the winner of a run is judged for its row. ``full`` is the engine's own regrade; ``quick`` judges
    it as the search does, once more; ``audit`` adds an audit to the regrade."""

    @property
    def policy(self) -> Policy:
        """The options that the row of a task is judged under."""
        return Policy(self.settings.precision, self.settings.library_calls, self.level)

    def to_json(self) -> dict[str, Any]:
        return to_json(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BenchOptions:
        return from_json(cls, dict(data))


def settled(
    options: BenchOptions, environ: Mapping[str, str], *, pooled: bool = False, gpu: str | None = None
) -> BenchOptions:
    """The options as a bench records them; whatever could work for no task is a ``UsageError`` now.

    ``pooled`` says that kernels are judged elsewhere: on a ``gpu`` of that name, or on CPUs. Then what is
    written for is what is there, unless the settings name a target. Teams that wait for answers from outside,
    and judges that are offline, cannot be benched.
    """
    settings = options.settings
    if settings.team not in ALONE:
        raise UsageError(
            f"the team {settings.team!r} cannot run a bench: it has to go on by itself",
            f"use one of {', '.join(ALONE)}",
        )
    if settings.device == OFFLINE:
        raise UsageError(
            "a bench cannot wait for verdicts from another machine",
            "judge on a device of this machine, or on a Ray cluster",
        )
    if pooled:
        settings = _for_pool(settings, gpu)
    return replace(options, settings=inheriting(settle(settings, environ), None))


def _for_pool(settings: Settings, gpu: str | None) -> Settings:
    if gpu is None:
        return replace(settings, device="cpu")
    if settings.target is None:
        known = find(gpu)
        if known is None:
            raise UsageError(f"the GPU {gpu!r} is not in the table", "name the nearest one with --target")
        settings = replace(settings, target=known.name)
    return replace(settings, device="cuda")


def differences(before: BenchOptions, now: BenchOptions) -> list[str]:
    """Which options differ, each as ``precision: tf32 before, fp32 now``."""
    old, new = _named(before), _named(now)
    changed = [name for name in dict.fromkeys((*old, *new)) if old.get(name) != new.get(name)]
    if "budget name" in changed:  # which says all the rest
        changed = [name for name in changed if name == "budget name" or not name.startswith("budget ")]
    return [f"{name}: {old.get(name, 'none')} before, {new.get(name, 'none')} now" for name in changed]


def _named(options: BenchOptions) -> dict[str, Any]:
    """Every term by its plain name; what is ``None`` is left out."""
    return {"level": options.level.value, **dict(_leaves("", to_json(options.settings)))}


def _leaves(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        inner = [(f"{name} {key}".strip(), found) for key, found in value.items()]
        return [leaf for key, found in inner for leaf in _leaves(key, found)]
    if value is None:
        return []
    return [(name, ", ".join(map(str, value)) or "none" if isinstance(value, list) else value)]

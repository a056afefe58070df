"""What torch.compile generated, as prompts show it: every launch in order, and the heaviest kernels' text."""

from __future__ import annotations

from dataclasses import dataclass

from egg.analysis.generated import Launch, kernel_sources, launches
from egg.core.recording import Recording
from egg.core.tokens import estimate_tokens

MOST_LAUNCHES = 60
"""Lines of a prompt."""


@dataclass(frozen=True)
class Generated:
    """Torch.compile's structure for the program."""

    launches: tuple[Launch, ...]
    """The first of them, in order."""
    hidden: int
    """Launches that are not shown."""
    kernels: int
    libraries: int
    """Kernel launches and library calls of one forward pass."""
    milliseconds: float | None
    gpu: str
    texts: tuple[tuple[str, str], ...]
    """Kernels with their Triton text, the heaviest first, as far as there is room."""


def generated(recording: Recording | None, room: int) -> Generated | None:
    """What a prompt shows of a recording, with so many tokens for the text of kernels."""
    if recording is None or recording.graph is None:
        return None
    found = launches(recording)
    return Generated(
        launches=found[:MOST_LAUNCHES],
        hidden=max(0, len(found) - MOST_LAUNCHES),
        kernels=sum(not launch.library for launch in found),
        libraries=sum(launch.library for launch in found),
        milliseconds=recording.milliseconds,
        gpu=recording.gpu,
        texts=_texts(found, kernel_sources(recording.graph), room),
    )


def _texts(found: tuple[Launch, ...], sources: dict[str, str], room: int) -> tuple[tuple[str, str], ...]:
    """Kernels by the time of all their launches, while they fit; one that does not is passed over."""
    spent: dict[str, float] = {}
    for launch in found:
        if launch.name in sources:
            spent[launch.name] = spent.get(launch.name, 0.0) + (launch.milliseconds or 0.0)
    shown: list[tuple[str, str]] = []
    for name in sorted(spent, key=lambda name: -spent[name]):
        tokens = estimate_tokens(sources[name])
        if tokens <= room:
            room -= tokens
            shown.append((name, sources[name]))
    return tuple(shown)

"""A recording of torch.compile at work: the graph that it generated, and what each of its launches takes."""

from __future__ import annotations

from dataclasses import dataclass

from egg.core.compiled import CompiledGraph

CANDIDATE = "candidate"
"""A use of a recording: the team proposes it, translated, where its own kernel is behind PyTorch."""
EVIDENCE = "evidence"
"""A use of a recording: prompts show what torch.compile generated."""
WITHOUT_GPU = frozenset({"cpu", "offline"})
"""Devices on which nothing is recorded: Inductor writes C++ there, or another machine judges."""


@dataclass(frozen=True)
class LaunchTime:
    """One launch or library call of a forward pass, as the host code makes it."""

    name: str
    """Of the kernel, or of the call as it is spelled: ``extern_kernels.mm``."""
    milliseconds: float
    """On the GPU, the median over a few warm calls."""


@dataclass(frozen=True)
class Recording:
    """What one act of recording found."""

    graph: CompiledGraph | None
    """``None`` where nothing usable was generated."""
    reason: str = ""
    """Why there is no graph."""
    timeline: tuple[LaunchTime, ...] = ()
    """In the order of the launches; empty where they were not timed."""
    gpu: str = ""
    seconds: float = 0.0
    """What recording took."""

    def __post_init__(self) -> None:
        if (self.graph is None) != bool(self.reason):
            raise ValueError("a recording has a graph, or the reason why it has none")

    @property
    def milliseconds(self) -> float | None:
        """Of all launches together; ``None`` where they were not timed."""
        return sum(launch.milliseconds for launch in self.timeline) if self.timeline else None


def use_of_recordings(team: str, device: str) -> str:
    """What a run records torch.compile's code for; empty where it records nothing."""
    if device in WITHOUT_GPU:
        return ""
    return CANDIDATE if team == "expert" else EVIDENCE

"""What torch.compile generated, read from its text: which kernels and library calls, in which order, and what
each of them computes.

Inductor writes above every launch which operators of the program it stands for. The text is read line by
line and never run; what is not recognised is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import fmean

from egg.core.compiled import CompiledGraph, LaunchChoice
from egg.core.recording import LaunchTime, Recording

_COMPUTES = re.compile(r"Topologically Sorted Source Nodes: \[(.*?)\], Original ATen: \[(.*?)\]")
_DEFINED = re.compile(r"^(\w+) = async_compile\.triton\(", re.MULTILINE)
_LAUNCHED = re.compile(r"\b(\w+)\.run\(")
_CALLED = re.compile(r"\b((?:extern_kernels|torch\.ops\.\w+|aten)(?:\.\w+)+)\(")
_HOST = re.compile(r"^(?:class Runner\b|def (?:call|partition_\d+)\()", re.MULTILINE)
_JIT = re.compile(r"^@triton\.jit\n(def (\w+)\(.*?)(?=^'''|\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Launch:
    """One kernel launch or library call of the generated host code."""

    name: str
    computes: tuple[str, ...]
    """The operators that it stands for, as ``aten.mul``; empty where the text does not say."""
    choice: LaunchChoice | None
    """Of a kernel; ``None`` for a library call."""
    library: bool
    milliseconds: float | None = None
    """On the GPU; ``None`` where it was not timed."""


def launches(recording: Recording) -> tuple[Launch, ...]:
    """Every launch in the order of the host code, with its time where launches were timed.

    Where other things were timed than the text shows, a launch has the mean of those of its name.
    """
    if recording.graph is None:
        return ()
    found, timeline = tuple(_read(recording.graph)), recording.timeline
    if [launch.name for launch in found] == [timed.name for timed in timeline]:
        times: list[float | None] = [timed.milliseconds for timed in timeline]
    else:
        means = _means(timeline)
        times = [means.get(launch.name) for launch in found]
    return tuple(replace(launch, milliseconds=time) for launch, time in zip(found, times, strict=True))


def _means(timeline: tuple[LaunchTime, ...]) -> dict[str, float]:
    spent: dict[str, list[float]] = {}
    for timed in timeline:
        spent.setdefault(timed.name, []).append(timed.milliseconds)
    return {name: fmean(times) for name, times in spent.items()}


def library_calls(graph: CompiledGraph) -> tuple[str, ...]:
    """The library calls between the kernels, each once."""
    return tuple(dict.fromkeys(launch.name for launch in _read(graph) if launch.library))


def kernel_sources(graph: CompiledGraph) -> dict[str, str]:
    """The Triton function of every kernel, by name, without its decorators."""
    return {found[2]: found[1].rstrip() for found in _JIT.finditer(graph.text)}


def _read(graph: CompiledGraph) -> Iterator[Launch]:
    kernels = set(_DEFINED.findall(graph.text))
    host = _HOST.search(graph.text)
    computes: tuple[str, ...] = ()
    for line in graph.text[host.start() :].splitlines() if host else ():
        if (comment := _COMPUTES.search(line)) is not None:
            computes = tuple(name.strip() for name in comment[2].split(",") if name.strip())
        elif (run := _LAUNCHED.search(line)) is not None and run[1] in kernels:
            yield Launch(run[1], computes, graph.launches.get(run[1]), False)
        elif (called := _CALLED.search(line)) is not None:
            yield Launch(called[1], computes, None, True)

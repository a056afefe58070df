"""Which own kernels were launched, on a GPU or in the interpreter; and how to make them do nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

import torch

from egg.evaluator.operators.ops import ACTIVE
from egg.evaluator.static.likeness import alike
from egg.evaluator.transport.protocol import Configurations, KernelRows, Numbers
from egg.evaluator.work.arguments import Argument, argument_forms, heft

if TYPE_CHECKING:
    from egg.evaluator.offline.describe import Launched
    from egg.evaluator.timing.launch_times import Marks

Around = Callable[[str, Mapping[str, Any], Callable[[], object]], None]
"""Is given a kernel's name, its arguments and what launches it."""
MOST_DESCRIBED = 24
"""Kernels that are described of one call while others wait for the GPU: a disassembler runs for each."""


class Launches(Protocol):
    """A record of kernel launches, and a switch that turns kernels into no-ops."""

    def counts(self) -> dict[str, int]: ...
    def work(self) -> dict[str, int]:
        """How often each kernel was launched, on each grid where that is known."""
        ...

    def numbers(self) -> list[tuple[str, str]]:
        """What each launch was given that is no tensor, and its accesses, where they are known."""
        ...

    def reset(self) -> None: ...
    def skip(self, kernels: set[str]) -> None: ...
    def around(self, launch: Around) -> AbstractContextManager[None]:
        """Meanwhile hand each launch over, to be run or not."""
        ...


@dataclass
class Watched:
    """A compiled kernel, how often it was launched, and the largest of its launches."""

    name: str
    kernel: Any
    """The ``CompiledKernel``."""
    grid: tuple[int, ...]
    arguments: Mapping[str, Argument]
    launches: int = 1

    @property
    def size(self) -> tuple[int, int]:
        return prod(self.grid), heft(self.arguments)


class JitLaunches:
    """Wraps ``JITFunction.run``, through which every compiled launch goes, autotuned ones too.

    A launch inside a capture runs nothing: the CUDA graph keeps it, and each replay counts it again.
    """

    def __init__(self, graphs: type = torch.cuda.CUDAGraph) -> None:
        from triton.runtime.jit import JITFunction

        self._counts: Counter[str] = Counter()
        self._skip: set[str] = set()
        self._watched: list[Watched] | None = None
        self._capture: Counter[str] | None = None
        self._marks: Marks | None = None
        self._around: Around | None = None
        self._wrap_graphs(graphs)
        original = JITFunction.run

        def run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            name = kernel.fn.__name__
            if kwargs.get("warmup"):
                return original(kernel, *args, **kwargs)
            (self._counts if self._capture is None else self._capture)[name] += 1
            for recorder in ACTIVE[-1:]:
                recorder.note_launch((args, kwargs))
            if name in self._skip:
                return None
            if self._around is not None and not self.capturing:
                bound = dict(zip(kernel.arg_names, args, strict=False)) | kwargs
                return self._around(name, bound, lambda: original(kernel, *args, **kwargs))
            if self._watched is not None:
                return self._watch(name, original, kernel, args, kwargs)
            if self._marks is not None and not self.capturing:
                return self._marks.around(name, original)(kernel, *args, **kwargs)
            return original(kernel, *args, **kwargs)

        JITFunction.run = alike(run, original)  # pyright: ignore[reportAttributeAccessIssue]

    def _wrap_graphs(self, graphs: Any) -> None:
        recorded: WeakKeyDictionary[Any, Counter[str]] = WeakKeyDictionary()
        begin, end, replay = graphs.capture_begin, graphs.capture_end, graphs.replay

        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            made = begin(graph, *args, **kwargs)
            self._capture = recorded[graph] = Counter()
            return made

        def capture_end(graph: Any) -> Any:
            self._capture = None
            return end(graph)

        def replayed(graph: Any) -> Any:
            self._counts.update(recorded.get(graph, {}))
            return replay(graph)

        graphs.capture_begin = alike(capture_begin, begin)
        graphs.capture_end = alike(capture_end, end)
        graphs.replay = alike(replayed, replay)

    def counts(self) -> dict[str, int]:
        return dict(self._counts)

    def work(self) -> dict[str, int]:
        return dict(self._counts)

    def numbers(self) -> list[tuple[str, str]]:
        return []

    def reset(self) -> None:
        self._counts.clear()

    def skip(self, kernels: set[str]) -> None:
        self._skip = set(kernels)

    @property
    def capturing(self) -> bool:
        """Whether a CUDA graph is being recorded: what is launched then runs later."""
        return self._capture is not None

    @contextmanager
    def around(self, launch: Around) -> Iterator[None]:
        """Launches inside a capture, and those of a replay, run as they are."""
        self._around = launch
        try:
            yield
        finally:
            self._around = None

    @contextmanager
    def marked(self, marks: Marks) -> Iterator[None]:
        """Meanwhile, put marks around every launch."""
        self._marks = marks
        try:
            yield
        finally:
            self._marks = None

    @contextmanager
    def watching(self) -> Iterator[list[Watched]]:
        """Meanwhile, keep every compiled kernel that is launched and what it was launched with."""
        self._watched = watched = []
        try:
            yield watched
        finally:
            self._watched = None

    def _watch(
        self, name: str, original: Callable[..., Any], kernel: Any, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Launch with a grid that is asked for with the bound arguments, as Triton asks a callable one."""
        asked: list[tuple[Any, dict[str, Argument]]] = []
        grid = kwargs["grid"]

        def noted(bound: dict[str, Any]) -> Any:
            resolved = grid(bound) if callable(grid) else grid
            asked.append((resolved, argument_forms(bound)))
            return resolved

        compiled = original(kernel, *args, **{**kwargs, "grid": noted})
        if compiled is not None and asked and self._watched is not None:
            resolved, forms = asked[-1]
            sizes = (*(int(n) for n in resolved), 1, 1)[:3]
            _remember(self._watched, Watched(name, compiled, sizes, forms))
        return compiled


def _remember(watched: list[Watched], one: Watched) -> None:
    seen = next((w for w in watched if w.kernel is one.kernel), None)
    if seen is None:
        watched.append(one)
        return
    seen.launches += 1
    if one.size > seen.size:
        seen.grid, seen.arguments = one.grid, one.arguments


def described_launches(watched: Sequence[Launched], most: int = MOST_DESCRIBED) -> KernelRows:
    """What is known of each kernel without running it again, and how many were left out."""
    from egg.evaluator.offline.describe import describe_kernels

    rows = describe_kernels(watched[:most])
    return KernelRows(tuple(rows), len(watched) - len(rows))


class InterpretedLaunches:
    """The same for a worker whose kernels run in Triton's interpreter, mended and checked."""

    def __init__(self) -> None:
        from egg.evaluator import interpreter

        self._session = interpreter.install()

    def counts(self) -> dict[str, int]:
        return dict(Counter(launch.kernel for launch in self._session.launches))

    def work(self) -> dict[str, int]:
        return dict(Counter(f"{launch.kernel}{launch.grid}" for launch in self._session.launches))

    def numbers(self) -> list[tuple[str, str]]:
        found = []
        for launch in self._session.launches:
            accesses = ((kind, str(count)) for kind, count in sorted(launch.accesses.items()))
            found += [(f"{launch.kernel}'s {name}", number) for name, number in (*launch.numbers, *accesses)]
        return found

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Meanwhile what each launch loads and stores is counted."""
        self._session.counting = True
        try:
            yield
        finally:
            self._session.counting = False

    def reset(self) -> None:
        self._session.reset()

    def skip(self, kernels: set[str]) -> None:
        self._session.skip = set(kernels)

    @contextmanager
    def around(self, launch: Around) -> Iterator[None]:
        self._session.around = launch
        try:
            yield
        finally:
            self._session.around = None

    def asked(self) -> tuple[tuple[str, Numbers], ...]:
        """Every kernel with the numbers it was launched with, so far."""
        return tuple(self._session.asked)

    @contextmanager
    def excerpted(self, *, brief: bool = False) -> Iterator[Any]:
        """Meanwhile launches that take long run only some of their programs; ``brief``: fewer of them."""
        from egg.evaluator.interpreter.excerpt import BRIEF_SOME, BRIEF_WHOLE, Excerpt

        self._session.excerpt = excerpt = Excerpt(BRIEF_WHOLE, BRIEF_SOME) if brief else Excerpt()
        try:
            yield excerpt
        finally:
            self._session.excerpt = None

    def left(self, marked: Any) -> Any:
        """A watch for loads of bytes that are ``marked``, to be entered around a call."""
        from egg.evaluator.interpreter.left import Left

        return Left(marked, self._session)

    def configure(self, place: int, lot: int = 0) -> Configurations:
        """Have every autotuner take the configuration at ``place``, or one by ``lot``; what ran so far."""
        chosen = self._session.configurations
        found = Configurations(chosen.most, dict(chosen.names), chosen.choices)
        if (place, lot) != (chosen.place, chosen.lot):
            chosen.take(place, lot)
        return found

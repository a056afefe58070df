"""Which own kernels were launched, on a GPU or in the interpreter; and how to make them do nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any, Protocol


class Launches(Protocol):
    """A record of kernel launches, and a switch that turns kernels into no-ops."""

    def counts(self) -> dict[str, int]: ...
    def reset(self) -> None: ...
    def skip(self, kernels: set[str]) -> None: ...


class JitLaunches:
    """Wraps ``JITFunction.run``, through which every compiled launch goes, autotuned ones too."""

    def __init__(self) -> None:
        from triton.runtime.jit import JITFunction

        self._counts: Counter[str] = Counter()
        self._skip: set[str] = set()
        original = JITFunction.run

        def run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            name = kernel.fn.__name__
            if kwargs.get("warmup"):
                return original(kernel, *args, **kwargs)
            self._counts[name] += 1
            return None if name in self._skip else original(kernel, *args, **kwargs)

        JITFunction.run = run  # pyright: ignore[reportAttributeAccessIssue]

    def counts(self) -> dict[str, int]:
        return dict(self._counts)

    def reset(self) -> None:
        self._counts.clear()

    def skip(self, kernels: set[str]) -> None:
        self._skip = set(kernels)


class InterpretedLaunches:
    """The same for a worker whose kernels run in Triton's interpreter, mended and checked."""

    def __init__(self) -> None:
        from egg.evaluator import interpreter

        self._session = interpreter.install()

    def counts(self) -> dict[str, int]:
        return dict(Counter(launch.kernel for launch in self._session.launches))

    def reset(self) -> None:
        self._session.reset()

    def skip(self, kernels: set[str]) -> None:
        self._session.skip = set(kernels)

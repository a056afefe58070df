"""Who uses the GPU in a candidate's process, and when nothing does.

Triton compiles for seconds on the CPU, in the middle of a call, and other judges may measure on the GPU
meanwhile: the process announces that it leaves the GPU alone, and goes on when the judge has answered that
the GPU may be used again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

Announce = Callable[[bool], None]
"""Hears ``True`` when the GPU is left alone; returns from ``False`` when it may be used again."""


class DeviceTurn:
    """A turn that one thread at a time has: with it a thread may use the GPU, without it none does.

    The thread that makes one has it. Several threads that compile do so at the same time, and run their
    kernels one after another.
    """

    def __init__(self, announce: Announce, settle: Callable[[], None]) -> None:
        """``settle`` waits until the GPU has done what this process asked of it."""
        self._announce, self._settle = announce, settle
        self._lock = threading.Lock()
        self._lock.acquire()
        self._owner: int | None = threading.get_ident()
        self._idle = False

    @contextmanager
    def given_away(self) -> Iterator[None]:
        """Meanwhile this thread does not use the GPU. One that has no turn has none to give; a capture of a
        CUDA graph, during which nothing may wait for the GPU, goes on in its own."""
        if self._owner != threading.get_ident() or _capturing():
            yield
            return
        self._settle()  # raises what the kernels so far did wrong: then the turn is kept
        self._give()
        try:
            yield
        finally:
            self._take()

    @contextmanager
    def had(self) -> Iterator[None]:
        """Meanwhile this thread, which has no turn, may use the GPU."""
        self._take()
        try:
            yield
        finally:
            try:
                self._settle()
            finally:
                self._give()

    def _give(self) -> None:
        self._announce(True)
        self._idle, self._owner = True, None
        self._lock.release()

    def _take(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()
        if self._idle:
            self._announce(False)
            self._idle = False


def compile_without(turn: DeviceTurn) -> None:
    """Have Triton compile while the turn is given away. Loading a kernel and launching it come later."""
    from triton.runtime.jit import JITFunction

    original: Callable[..., Any] | None = getattr(JITFunction, "_do_compile", None)
    if original is None:
        return
    compiled = original

    def _do_compile(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        with turn.given_away():
            return compiled(kernel, *args, **kwargs)

    JITFunction._do_compile = _do_compile  # pyright: ignore[reportAttributeAccessIssue]


def _capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()

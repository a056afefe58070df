"""When ``torch.compile`` needs the GPU, and when it does not.

Compiling a program takes tens of seconds, nearly all of them on the CPU: Dynamo traces with tensors that hold
no values, Inductor writes code, processes of its own compile kernels. It needs the GPU where it decides by
measuring whether to pad a matrix product, and as soon as the compiled code is called. Dynamo reports when
it begins and ends; what Inductor measures in between is found by name, since it reports nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import ModuleType
from typing import Any

from egg.evaluator.task.program import Surrounding

TRACING = "DYNAMO"
"""What triggers a report, beside recordings of CUDA graphs and autotuning, which use the GPU."""
MEASURING = ("should_pad_bench", "_should_pad_bench", "_should_pad")
"""Functions of Inductor's padding pass, in different versions, that run products on the GPU."""


@contextmanager
def compiling_within(surrounding: Surrounding) -> Iterator[None]:
    """Meanwhile, enter what ``surrounding`` makes wherever torch.compile works on the CPU alone."""
    with surrounding():  # importing the compiler takes seconds
        from torch._dynamo.callback import callback_handler
        from torch._inductor.fx_passes import pad_mm

    phase = _Phase(surrounding)
    callback_handler.register_start_callback(phase.begins)
    callback_handler.register_end_callback(phase.ends)
    try:
        with ExitStack() as stack:
            for name in MEASURING:
                if hasattr(pad_mm, name):
                    stack.enter_context(_measuring(pad_mm, name, phase))
            yield
    finally:
        callback_handler.remove_start_callback(phase.begins)
        callback_handler.remove_end_callback(phase.ends)


class _Phase:
    """Whether something is being compiled, and what surrounds it."""

    def __init__(self, surrounding: Surrounding) -> None:
        self._surrounding = surrounding
        self._entered: AbstractContextManager[None] | None = None

    def begins(self, report: Any) -> None:
        if report.callback_trigger.name == TRACING:
            self._enter()

    def ends(self, report: Any) -> None:
        self._exit()

    @contextmanager
    def interrupted(self) -> Iterator[None]:
        """Meanwhile the GPU is used."""
        compiling = self._entered is not None
        self._exit()
        try:
            yield
        finally:
            if compiling:
                self._enter()

    def _enter(self) -> None:
        entered = self._surrounding()
        entered.__enter__()
        self._entered = entered

    def _exit(self) -> None:
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.__exit__(*sys.exc_info())  # what ends the process does not wait for the GPU


@contextmanager
def _measuring(module: ModuleType, name: str, phase: _Phase) -> Iterator[None]:
    """Meanwhile the GPU is used inside ``module``'s function ``name``."""
    original: Callable[..., Any] = getattr(module, name)

    def measured(*args: Any, **kwargs: Any) -> Any:
        with phase.interrupted():
            return original(*args, **kwargs)

    setattr(module, name, measured)
    try:
        yield
    finally:
        setattr(module, name, original)

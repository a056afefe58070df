"""What PyTorch itself does in a program's forward that needs values or a device, and that results do not
depend on: switched off while a program is captured, because tensors have neither there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.distributions import Distribution


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Around everything that runs a program on tensors without data."""
    with _unvalidated(), _idle_autocast():
        yield


@contextlib.contextmanager
def _unvalidated() -> Iterator[None]:
    """Distributions do not look at the values of their arguments, as where ``torch.compile`` traces them.

    By default ``torch.distributions`` raises where a scale is not positive or an observation is out of range,
    which needs data. Distributions that are told to validate still ask.
    """
    before = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)


@contextlib.contextmanager
def _idle_autocast() -> Iterator[None]:
    """``torch.autocast(..., enabled=False)`` does nothing: files refuse calls within autocast, so there is
    none to leave. PyTorch knows no autocast for the device that traced tensors are on."""
    kind: Any = torch.autocast
    begin, enter, leave = kind.__init__, kind.__enter__, kind.__exit__
    idle = set[int]()

    def begun(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, **more: Any) -> None:
        idle.discard(id(self))
        if enabled:
            begin(self, device_type, dtype, enabled, **more)
        else:
            idle.add(id(self))

    def entered(self: Any) -> Any:
        return self if id(self) in idle else enter(self)

    def left(self: Any, *raised: Any) -> Any:
        return None if id(self) in idle else leave(self, *raised)

    kind.__init__, kind.__enter__, kind.__exit__ = begun, entered, left
    try:
        yield
    finally:
        kind.__init__, kind.__enter__, kind.__exit__ = begin, enter, leave

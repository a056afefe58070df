"""Settings of a process that a call must leave as they were: the caller's program goes on with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class LeftChanged(Exception):
    """A forward changed settings of the process."""

    reason = "state.settings"


class Settings:
    """As they are now; :meth:`check` compares. What the judge switches around a call it switches back: what a
    call leaves is seen only inside."""

    def __init__(self) -> None:
        self._before = _current()

    def check(self) -> None:
        """Raise :class:`LeftChanged` for the first setting that is another now."""
        for name, value in _current().items():
            if value != self._before[name]:
                raise LeftChanged(f"forward leaves {name} at {value}, it was {self._before[name]}")


def checked(module: Callable[..., Any]) -> Callable[..., Any]:
    """``module``, whose calls must leave the settings as they were."""

    def call(*arguments: Any) -> Any:
        settings = Settings()
        result = module(*arguments)
        settings.check()
        return result

    return call


def _current() -> dict[str, Any]:
    return {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "the default dtype": torch.get_default_dtype(),
        "autocast": torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu"),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "the precision of products": torch.get_float32_matmul_precision(),
    }

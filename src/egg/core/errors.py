"""What can go wrong that is *not* a bad kernel.

A bad kernel is data: it becomes a :class:`~egg.core.evaluation.Rejected` verdict. The
classes here are for the other two parties: the user who handed us something we cannot
use, and the machine that cannot do its job. Each carries a hint, and each knows the exit
code a command ends with.
"""

from __future__ import annotations


class EggError(Exception):
    """Base of every error this package raises on purpose."""

    exit_code = 3

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class UsageError(EggError):
    """The user handed us something we cannot use; nothing was judged."""

    exit_code = 2


class TaskError(UsageError):
    """The task file is unusable: no ``Model``, no inputs, code that does not run."""


class KernelFileError(UsageError):
    """The kernel file is unusable before any judging: missing, unreadable, no ``ModelNew``."""


class MachineError(EggError):
    """The machine cannot judge: no GPU, no memory, a dead worker that will not come back."""

    exit_code = 3

"""What a capture is: a task, and what ties it to the module that it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from egg.core.source import Task
from egg.modules.sizes import Sizes
from egg.modules.slots import Role
from egg.modules.structure import Structure


@dataclass(frozen=True)
class Binding:
    """A tensor of ``Model`` and where the original holds it."""

    attribute: str
    path: str
    """As ``state_dict`` names it; empty for a tensor of the program itself."""
    role: Role


@dataclass(frozen=True)
class Result:
    """One leaf of what the original returns.

    ``computed``: the task's output at ``place``. ``input``: the argument's leaf at ``place``, as it is.
    ``held``: the module's tensor at ``path``. ``constant``: always ``value``.
    """

    kind: str
    place: int = 0
    path: str = ""
    value: Any = None


@dataclass(frozen=True)
class Captured:
    """A module at one use of it, as a task, and what ties the task to the module."""

    task: Task
    bindings: tuple[Binding, ...]
    constants: Mapping[str, torch.Tensor]
    """By attribute of ``Model`` the tensors that belong to the program itself."""
    arguments: Structure
    """Of ``(args, kwargs)``, every argument by position that can be."""
    fixed: tuple[Any, ...]
    """For each leaf of the arguments the value that it must have; ``TENSOR`` where it is a tensor."""
    given: tuple[int, ...]
    """The leaves that ``Model.forward`` takes, in order."""
    twins: tuple[int, ...]
    """For each leaf the place of the first that is the same tensor: code may ask whether two are one."""
    returned: Structure
    results: tuple[Result, ...]
    written: tuple[int, ...]
    """Leaves of the arguments that a call changes in place."""
    sizes: Sizes
    dtypes: tuple[torch.dtype, ...]
    """Of the tensors among the arguments."""
    mutates: bool
    """Whether a call changes an input or a buffer."""
    training: bool
    device: str
    """The kind of device that it was captured on."""


class _Tensor:
    """Stands for any tensor among fixed leaves."""

    def __repr__(self) -> str:
        return "TENSOR"

    def __reduce__(self) -> str:
        return "TENSOR"


TENSOR = _Tensor()

"""Whether the judge is still the judge after a task's code has run beside it.

A task runs in the oracle's process, so it can reach the oracle's own modules. They are looked at before any
task is loaded and again after each gate: every function with its code and its defaults, every class with what
it defines, every constant with what it holds, of this package; and of PyTorch and the standard library the
functions that comparing and reporting rest on; and the objects of the evaluation in progress, of which none
may hide a method of its class. A difference is the task's doing, and the task is refused. The process is not
used again.
"""

from __future__ import annotations

import builtins
import dataclasses
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
import torch._dynamo  # replaces functions of PyTorch's as it is imported: before anything is looked at
from torch._dynamo.mutation_guard import install_generation_tagging_init

from egg.core.errors import TaskError
from egg.core.source import Task
from egg.evaluator.restrict import live

OWN = "egg."
LENT = (
    "builtins", "math", "json", "json.encoder", "json.decoder", "struct", "socket", "time", "random",
    "statistics", "hashlib", "contextlib", "copy", "dataclasses", "torch", "torch.nn.functional",
    "torch.utils._pytree", "torch.random", "torch.autograd.grad_mode",
)  # fmt: skip
"""Modules of others whose functions must stay what they are."""
LENT_CLASSES = (torch.Tensor, torch.nn.Module, torch.nn.Parameter)
GROWING = frozenset(
    ["__slotnames__", "__warningregistry__", "__abstractmethods__", "_abc_impl", "__annotations_cache__"]
)
"""What Python itself adds to a class or a module as it is used."""


class Tampered(TaskError):
    """A task changed the judge that was to judge with it."""


class Slot(NamedTuple):
    """A name, and what it stood for."""

    holder: Mapping[Any, Any]
    key: Any
    value: Any
    path: str


class Code(NamedTuple):
    """A function, and what it did."""

    function: types.FunctionType
    code: types.CodeType
    defaults: tuple[Any, ...] | None
    keywords: dict[str, Any] | None
    values: tuple[Any, ...]
    """Of the defaults by keyword: the dictionary itself may be changed."""
    cells: tuple[types.CellType, ...]
    closed_over: tuple[int, ...]
    path: str

    def stands(self) -> bool:
        now: Any = self.function
        return (
            now.__code__ is self.code
            and now.__defaults__ is self.defaults
            and now.__kwdefaults__ is self.keywords
            and (not self.keywords or self._same_values())
            and (not self.cells or tuple(map(_content, self.cells)) == self.closed_over)
        )

    def _same_values(self) -> bool:
        return _same(list((self.keywords or {}).values()), self.values)


class Snapshot:
    """The judge's modules as they are now, in flat lists of names and functions: looking again is quick."""

    def __init__(self) -> None:
        install_generation_tagging_init()  # PyTorch's compiler changes nn.Module when it first compiles: now
        self._slots: list[Slot] = []
        self._codes: list[Code] = []
        self._sizes: list[tuple[Mapping[Any, Any], frozenset[Any], str]] = []
        self._lists: list[tuple[list[Any], tuple[Any, ...], str]] = []
        self._seen: set[int] = set()
        for name, module in list(sys.modules.items()):
            if name.startswith(OWN):
                self._module(name, module)
        for name in LENT:
            if name in sys.modules:
                self._lent(name, vars(sys.modules[name]))
        self._own_names = {cls: frozenset(vars(cls)) for cls in LENT_CLASSES}
        for cls in LENT_CLASSES:
            self._lent(f"torch.{cls.__name__}", vars(cls))
        self._hooks = _hooks()

    def check(self, task: Task, evaluation: Iterable[object] = ()) -> None:
        """Raises :class:`Tampered` where something is not as it was, or an object of the ``evaluation``, or
        one that it holds, is no longer what its class makes it."""
        changed = [*self.changed(), *live.altered(live.within(evaluation))]
        if changed:
            raise Tampered(
                f"task {task.name!r} changes the judge: {', '.join(changed[:3])}",
                "a task defines a model and its inputs; it must leave other modules as they are",
            )

    def changed(self) -> list[str]:
        """Names of what differs."""
        found = [slot.path for slot in self._slots if slot.holder.get(slot.key, _GONE) is not slot.value]
        found += [was.path for was in self._codes if not was.stands()]
        found += [path for held, items, path in self._lists if not _same(held, items)]
        for holder, keys, path in self._sizes:
            if len(holder) != len(keys):
                found += [f"{path}.{key}" for key in _added(holder, keys, path)]
        for cls in LENT_CLASSES:
            found += [f"torch.{cls.__name__}.{key}" for key in self._shadowing(cls)]
        return found + (["the interpreter's hooks"] if _hooks() != self._hooks else [])

    def _module(self, name: str, module: types.ModuleType) -> None:
        self._slots.append(Slot(sys.modules, name, module, name))
        self._everything(name, vars(module), name)

    def _everything(self, path: str, holder: Mapping[Any, Any], module: str) -> None:
        """Every name of a module or a class of ours, and what hangs on it."""
        self._sizes.append((holder, frozenset(holder) - GROWING, path))
        for key, value in list(holder.items()):
            if key not in GROWING:
                self._slots.append(Slot(holder, key, value, f"{path}.{key}"))
                self._inside(f"{path}.{key}", value, module)

    def _inside(self, path: str, value: Any, module: str) -> None:
        """What could be changed within a value while its name still stands for it."""
        if id(value) in self._seen or isinstance(value, types.ModuleType):
            return
        self._seen.add(id(value))
        for function in _functions(value):
            self._codes.append(_code(function, path))
        if isinstance(value, type):
            if value.__module__ == module:
                self._everything(path, vars(value), module)
        elif isinstance(value, dict):
            self._sizes.append((value, frozenset(value), path))
            for key, held in value.items():
                self._slots.append(Slot(value, key, held, f"{path}[{key!r}]"))
                self._inside(f"{path}[{key!r}]", held, module)
        elif isinstance(value, list | tuple | set | frozenset):
            if isinstance(value, list):
                self._lists.append((value, tuple(value), path))
            for held in value:
                self._inside(path, held, module)
        elif dataclasses.is_dataclass(value) and hasattr(value, "__dict__"):
            for key, held in vars(value).items():
                self._slots.append(Slot(vars(value), key, held, f"{path}.{key}"))
                self._inside(f"{path}.{key}", held, module)

    def _lent(self, path: str, holder: Mapping[Any, Any]) -> None:
        """Functions and methods of others; what else they keep is theirs to change."""
        for key, value in list(holder.items()):
            if callable(value) or isinstance(value, property | staticmethod | classmethod):
                self._slots.append(Slot(holder, key, value, f"{path}.{key}"))
                for function in _functions(value):
                    self._codes.append(_code(function, f"{path}.{key}"))

    def _shadowing(self, cls: type) -> list[str]:
        """Methods that a class has got in front of those that it inherits."""
        new = vars(cls).keys() - self._own_names[cls]
        return sorted(key for key in new if any(key in vars(base) for base in cls.__mro__[1:]))


_GONE = object()


def _functions(value: Any) -> list[types.FunctionType]:
    """The Python functions that a name stands for, through what wraps them."""
    if isinstance(value, property):
        found = (value.fget, value.fset, value.fdel)
    else:
        found = (getattr(value, "__func__", value), getattr(value, "__wrapped__", None))
    return [function for function in found if isinstance(function, types.FunctionType)]


def _code(function: types.FunctionType, path: str) -> Code:
    keywords, cells = function.__kwdefaults__, function.__closure__ or ()
    values = tuple((keywords or {}).values())
    closed_over = tuple(map(_content, cells))
    return Code(
        function, function.__code__, function.__defaults__, keywords, values, cells, closed_over, path
    )


def _content(cell: types.CellType) -> int:
    try:
        return id(cell.cell_contents)
    except ValueError:
        return 0


def _same(held: list[Any], items: tuple[Any, ...]) -> bool:
    return len(held) == len(items) and all(a is b for a, b in zip(held, items, strict=True))


def _added(holder: Mapping[Any, Any], keys: frozenset[Any], path: str) -> list[Any]:
    """Names that were not there, but for parts of a package that were imported since."""
    new = [key for key in holder if key not in keys and key not in GROWING]
    return [key for key in new if not isinstance(sys.modules.get(f"{path}.{key}"), types.ModuleType)]


def _hooks() -> tuple[int, ...]:
    """What would let a task look into, or change, every call of the judge's."""
    return id(builtins.__import__), id(sys.excepthook), id(sys.gettrace()), id(sys.getprofile())

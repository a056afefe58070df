"""A module of a person's program by name, as a task: ``package.module:Block`` or ``path/file.py:Block``.

The name is imported in this process, as running the program would: its neighbours can be imported from the
folder of a file, or from the current one for a dotted name. What comes out is a self-contained task; from
there on nothing of the program is needed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from egg.core.errors import TaskError, UsageError
from egg.core.source import Task
from egg.modules.capture import captured

FORM = "PACKAGE.MODULE:NAME or FILE.py:NAME"


def named_task(spec: str, inputs: str) -> Task:
    """The module that ``spec`` names, at the arguments that the function ``inputs`` returns.

    The name stands for a module, or for a class or function without arguments that makes one. ``inputs``
    names a function beside it, or elsewhere in the same form; it returns the positional arguments as a
    tuple, keyword arguments as a dictionary, or both: ``(args, kwargs)``.
    """
    where, _, name = spec.rpartition(":")
    if not where or not name:
        raise UsageError(f"{spec!r} names no module of a program", f"with --inputs, a task is {FORM}")
    with _importable(where):
        home = _imported(where)
        module = _made(_found(home, where, name), spec)
        place, _, function = inputs.rpartition(":")
        factory = _found(_imported(place) if place else home, place or where, function)
        args, kwargs = _arguments(_called(factory, inputs), inputs)
        return captured(module, args, kwargs).task


@contextmanager
def _importable(where: str) -> Iterator[None]:
    folder = Path(where).resolve().parent if where.endswith(".py") else Path.cwd()
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _imported(where: str) -> ModuleType:
    try:
        if not where.endswith(".py"):
            return importlib.import_module(where)
        path = Path(where)
        found = importlib.util.spec_from_file_location(path.stem, path)
        if found is None or found.loader is None or not path.is_file():
            raise UsageError(f"no such file: {where}", "check the path")
        module = importlib.util.module_from_spec(found)
        sys.modules[path.stem] = module
        found.loader.exec_module(module)
        return module
    except UsageError:
        raise
    except ModuleNotFoundError as error:
        raise UsageError(f"cannot import {where}: {error}", f"a task is {FORM}") from error
    except Exception as error:  # the person's own code
        raise TaskError(f"importing {where} failed: {_last(error)}", "it must import by itself") from error


def _found(home: ModuleType, where: str, name: str) -> Any:
    found: Any = home
    for part in name.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{where} has no {name}", f"a task is {FORM}")
        found = getattr(found, part)
    return found


def _made(found: Any, spec: str) -> Any:
    if isinstance(found, nn.Module):
        return found
    if not callable(found):
        raise UsageError(f"{spec} is a {type(found).__name__}", "name a module, or what makes one")
    made = _called(found, spec)
    if not isinstance(made, nn.Module):
        raise UsageError(f"{spec}() is a {type(made).__name__}", "name a module, or what makes one")
    return made


def _called(function: Any, name: str) -> Any:
    try:
        return function()
    except Exception as error:  # the person's own code
        hint = "it is called without arguments: write a function that makes what is needed"
        raise TaskError(f"{name}() failed: {_last(error)}", hint) from error


def _arguments(value: Any, name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    match value:
        case (tuple() | list() as args, dict() as kwargs):
            return tuple(args), kwargs
        case dict():
            return (), value
        case tuple() | list():
            return tuple(value), {}
        case None:
            raise UsageError(f"{name}() returned nothing", "return the arguments of one call")
    return (value,), {}


def _last(error: Exception) -> str:
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({at.filename}:{at.lineno})"

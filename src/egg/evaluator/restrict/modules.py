"""What a kernel file gets when it imports: real modules of PyTorch and Triton, copies of the others.

A module of the standard library exposes its own imports and functions that set attributes by name
(``functools.wraps``, ``dataclasses.dataclass``). So the file gets a copy with the allowed names, some of them
replaced by guarded versions. Modules of PyTorch and Triton must be the real ones, because Triton compares
them by identity; which of their names may be reached is decided by :mod:`egg.evaluator.static.namespaces`.
"""

from __future__ import annotations

import abc
import builtins
import dataclasses
import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

import torch

from egg.evaluator.restrict.names import RestrictedError
from egg.evaluator.static.namespaces import MODULES, judge, judge_import
from egg.evaluator.static.vocabulary import STANDARD

LIBRARIES = ("torch", "triton", "numpy")
ABC_META = object()
"""Stands for ``abc.ABCMeta``, which called as a function would make classes unseen."""
PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device)
"""What a memoised function may take and give."""


class Modules:
    """The modules a kernel file may hold, by identity, with the path under which names are judged."""

    def __init__(self, own: set[type]) -> None:
        self._own = own
        self._copies: dict[str, ModuleType] = {}
        self._paths: dict[int, str] = {}
        for path in MODULES:
            loaded = sys.modules.get(path)
            if loaded is not None and path.split(".")[0] in LIBRARIES:
                self._paths[id(loaded)] = path

    def path(self, module: ModuleType) -> str | None:
        return self._paths.get(id(module))

    def check_attribute(self, module: ModuleType, name: str) -> None:
        """Refuse a name of a module that the static rules would refuse had they known the module."""
        path = self.path(module)
        verdict = ("", "a module that is not on the list") if path is None else judge(f"{path}.{name}")
        if verdict is not None:
            raise RestrictedError(f".{name} of a module: {verdict[1]}")

    def check_value(self, value: object, name: str) -> None:
        if isinstance(value, ModuleType) and self.path(value) is None:
            raise RestrictedError(f".{name} leads to the module {value.__name__}, which is not on the list")

    def imported(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: tuple[str, ...] | list[str] | None = (),
        level: int = 0,
    ) -> ModuleType | None:
        """Stands for ``__import__``.

        Compiled code of PyTorch that imports on its first use asks the frame that it was called from, which
        is the file's (``PyImport_Import``: with an empty list where a statement has ``None`` or names). It
        takes the module from ``sys.modules``, so what it is given here is nothing.
        """
        if isinstance(fromlist, list) and not fromlist and name.split(".")[0] in LIBRARIES:
            importlib.import_module(name)
            return None
        wanted = [f"{name}.{attribute}" for attribute in fromlist or ()] or [name]
        for path in wanted:
            verdict = ("", "a relative import") if level else judge_import(path)
            if verdict is not None:
                raise RestrictedError(verdict[1], "restricted.import")
        top = name.split(".")[0]
        if top not in LIBRARIES:
            return self._copy(name if fromlist else top)
        module = importlib.import_module(name)
        for path in (name, *wanted):
            loaded = sys.modules.get(path)
            if loaded is not None and path in MODULES:
                self._paths[id(loaded)] = path
        return module if fromlist else sys.modules[top]

    def _copy(self, name: str) -> ModuleType:
        """A module of ours with the allowed names; packages hold their submodules as the real ones do."""
        if name not in self._copies:
            copy = ModuleType(name)
            for attribute, value in self._contents(name).items():
                setattr(copy, attribute, value)
            self._copies[name] = copy
            self._paths[id(copy)] = name
            if name == "collections":
                copy.abc = self._copy("collections.abc")  # type: ignore[attr-defined]
        return self._copies[name]

    def _contents(self, name: str) -> dict[str, Any]:
        made = {"logging": _logging, "warnings": _warnings}.get(name)
        if made is not None:
            return made()
        real = importlib.import_module(name)
        allowed = STANDARD[name]
        names = allowed if allowed is not None else getattr(real, "__all__", None) or dir(real)
        contents = {
            attribute: getattr(real, attribute)
            for attribute in names
            if hasattr(real, attribute) and not isinstance(getattr(real, attribute), ModuleType)
        }
        return contents | self._guarded(name)

    def _guarded(self, name: str) -> dict[str, Any]:
        if name == "abc":
            return {"ABCMeta": ABC_META}
        if name == "dataclasses":
            own = {name: self._of_own(name) for name in ("fields", "replace", "asdict", "astuple")}
            return {"dataclass": self._dataclass, **own}
        if name == "functools":
            return {
                "wraps": _wraps,
                "total_ordering": self._total_ordering,
                "lru_cache": _lru_cache,
                "cache": _memoised,
            }
        return {}

    def _dataclass(self, cls: type | None = None, /, **options: Any) -> Any:
        if cls is None:
            return functools.partial(self._dataclass, **options)
        self._must_be_own(cls, "dataclass")
        made = dataclasses.dataclass(cls, **options)
        self._own.add(made)
        return made

    def _of_own(self, name: str) -> Callable[..., Any]:
        """A function that reads every field of an object, for objects of the file's own classes."""
        function = getattr(dataclasses, name)

        def read(instance: Any, /, *args: Any, **kwargs: Any) -> Any:
            self._must_be_own(instance if isinstance(instance, type) else type(instance), name)
            return function(instance, *args, **kwargs)

        return read

    def _total_ordering(self, cls: type) -> type:
        self._must_be_own(cls, "total_ordering")
        return functools.total_ordering(cls)

    def _must_be_own(self, cls: object, what: str) -> None:
        if not isinstance(cls, type) or cls not in self._own:
            raise RestrictedError(f"{what} of a class that is not the file's own", "restricted.patch")


def _wraps(wrapped: Callable[..., Any]) -> Callable[[FunctionType], FunctionType]:
    def named(function: FunctionType) -> FunctionType:
        if type(function) is not FunctionType or type(wrapped) is not FunctionType:
            raise RestrictedError("functools.wraps of something that is no function", "restricted.patch")
        function.__name__, function.__doc__ = wrapped.__name__, wrapped.__doc__
        return function

    return named


def _lru_cache(maxsize: Any = 128, typed: bool = False) -> Any:
    if callable(maxsize):
        return _memoised(maxsize)
    return lambda function: _memoised(function, maxsize, typed)


def _memoised(function: Callable[..., Any], maxsize: int | None = None, typed: bool = False) -> Any:
    """Remember plain answers to plain questions, such as the number of multiprocessors; never tensors.

    What is returned is an object of Python's own cache, as elsewhere.
    """

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        _must_be_plain((args, tuple(sorted(kwargs.items()))), "is given")
        answer = function(*args, **kwargs)
        _must_be_plain(answer, "gives")
        return answer

    return functools.lru_cache(maxsize, typed)(plain)


def _must_be_plain(value: Any, verb: str) -> None:
    if type(value) is tuple:
        for item in value:
            _must_be_plain(item, verb)
    elif type(value) not in PLAIN and not type(value).__name__.endswith("DeviceProperties"):
        raise RestrictedError(
            f"a memoised function {verb} a {type(value).__name__}; plain numbers, strings and dtypes only",
            "restricted.cache",
        )


class Logger:
    """A logger that drops what it gets, and answers as one of Python's without a configuration."""

    level, disabled, propagate = 0, False, True

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{'RootLogger' if self.name == 'root' else 'Logger'} {self.name} (WARNING)>"

    def drop(self, *args: Any, **kwargs: Any) -> None: ...

    debug = info = warning = warn = error = critical = exception = log = setLevel = drop

    def isEnabledFor(self, level: int) -> bool:
        return level >= WARNING

    def getEffectiveLevel(self) -> int:
        return WARNING


Logger.__module__ = "logging"
WARNING = 30


def _logging() -> dict[str, Any]:
    levels = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50, "NOTSET": 0}
    quiet = Logger("root").drop
    functions = dict.fromkeys(("debug", "info", "warning", "error", "critical", "basicConfig"), quiet)
    return {**levels, **functions, "getLogger": lambda name=None: Logger(name or "root")}


def _warnings() -> dict[str, Any]:
    return dict.fromkeys(("warn", "filterwarnings", "simplefilter"), Logger("root").drop)


def names_of_modules() -> frozenset[str]:
    """Attribute names behind which some loaded module, or a refused name of an allowed one, may lie."""
    found: set[str] = set()
    for path, module in list(sys.modules.items()):
        allowed = path in MODULES
        for name, value in list(vars(module).items()) if isinstance(module, ModuleType) else ():
            if issubclass(type(value), ModuleType) or (allowed and judge(f"{path}.{name}") is not None):
                found.add(name)
    return frozenset(found - set(dir(builtins.str)))


def is_abc_meta(value: object) -> bool:
    return value is ABC_META or value is abc.ABCMeta

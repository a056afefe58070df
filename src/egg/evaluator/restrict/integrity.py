"""Is everything that the judge relies on in this process still what it was before the candidate?

The namespaces of the loaded modules and classes of PyTorch, Triton, this package and the parts of the
standard library that they stand on are copied before the candidate is imported. Afterwards each name must
still hold the same object, by identity, and each function the same code. What a library does to itself is
allowed for: names that appear (a lazy import), and values that are neither functions nor classes (caches,
flags). In this package nothing changes, and no live object of it hides a method of its class.

The comparison runs in the candidate's process. It is the second line: a file that could forge it would need
``sys.modules``, frames or attributes by name, which restricted execution does not give it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from egg.evaluator.restrict import live
from egg.evaluator.restrict.names import CANDIDATE_FILE
from egg.evaluator.static.vocabulary import words

WATCHED = frozenset(
    words("""
    torch triton egg builtins functools collections inspect linecache operator types contextlib weakref enum
    dataclasses typing abc numpy math json socket
    """)
)
UNUSED = tuple(
    f"torch.{part}"
    for part in words("""
    _dynamo _inductor _functorch _export _refs _prims _decomp _higher_order_ops _numpy _meta_registrations ao
    distributed distributions export fx jit masked multiprocessing nested onnx optim package quantization
    sparse testing utils.data utils._sympy utils.benchmark utils.tensorboard utils.viz
    """)
)
"""Parts of PyTorch that nothing runs through while a candidate is judged."""
CODE_WATCHED = (
    "egg",
    "triton",
    "torch._tensor",
    "torch.nn.modules.module",
    "torch.overrides",
    "torch.library",
)
OURS = "egg"
MOST_NAMED = 8
_MISSING = object()
_vars, _type, _isinstance, _id = vars, type, isinstance, id
FunctionState = tuple[Any, Any, Any]


class Snapshot:
    """The namespaces as they were; :meth:`changed` names what is another object now."""

    def __init__(self) -> None:
        self._modules = {name: (m, dict(_vars(m))) for name, m in _watched_modules()}
        classes = {
            _id(value): value
            for _, names in self._modules.values()
            for value in names.values()
            if issubclass(_type(value), _type) and _is_watched(str(value.__module__))
        }
        self._classes = [(cls, dict(_vars(cls))) for cls in classes.values()]
        self._functions = [(f, _state(f)) for f in {_id(f): f for f in self._all_functions()}.values()]

    def _all_functions(self) -> Iterator[FunctionType]:
        modules = [names for name, (_, names) in self._modules.items() if name.startswith(CODE_WATCHED)]
        classes = [names for cls, names in self._classes if str(cls.__module__).startswith(CODE_WATCHED)]
        for names in (*modules, *classes):
            for value in names.values():
                plain = value.__func__ if _type(value) in (staticmethod, classmethod) else value
                if _type(plain) is FunctionType:
                    yield plain

    def changed(self) -> list[str]:
        """What was patched, by dotted name; a few of them."""
        found = [*self._changed_names(), *self._changed_code(), *live.altered(live.in_this_process())]
        return found[:MOST_NAMED]

    def _changed_names(self) -> Iterator[str]:
        for name, (module, before) in self._modules.items():
            if sys.modules.get(name) is not module:
                yield f"sys.modules[{name!r}]"
            ours = name.partition(".")[0] == OURS
            yield from _differences(name, before, _vars(module), strict=ours, added=False)
        for cls, before in self._classes:
            ours = cls.__module__.partition(".")[0] == OURS
            yield from _differences(
                f"{cls.__module__}.{cls.__qualname__}", before, _vars(cls), strict=ours, added=True
            )

    def _changed_code(self) -> Iterator[str]:
        for function, before in self._functions:
            if any(a is not b for a, b in zip(before, _state(function), strict=True)):
                yield f"{function.__module__}.{function.__qualname__} has other code"


def _watched_modules() -> list[tuple[str, ModuleType]]:
    return [
        (name, module)
        for name, module in sys.modules.items()
        if _isinstance(module, ModuleType) and _is_watched(name)
    ]


def _is_watched(name: str) -> bool:
    return name.partition(".")[0] in WATCHED and not name.startswith(UNUSED)


def _state(function: FunctionType) -> FunctionState:
    return function.__code__, function.__defaults__, function.__kwdefaults__


def _differences(where: str, before: dict[str, Any], now: Any, *, strict: bool, added: bool) -> Iterator[str]:
    for name, old in before.items():
        new = now.get(name, _MISSING)
        if new is old or (not strict and _lazily(old, new)):
            continue
        if strict or _matters(old) or _matters(new):
            yield f"{where}.{name}"
    if len(now) == len(before):
        return
    for name in now.keys() - before.keys():
        if _of_the_candidate(now[name]) or (added and _matters(now[name])):
            yield f"{where}.{name}"


def _lazily(old: Any, new: Any) -> bool:
    """What a library does to itself as it loads further parts: it fills a place that was empty, or wraps a
    function of its own under the same name."""
    if _of_the_candidate(new) or _of_the_candidate(getattr(new, "__wrapped__", None)):
        return False
    root = str(getattr(new, "__module__", "")).partition(".")[0]
    named = getattr(new, "__name__", None)
    return old is None or (root in ("torch", "triton") and named == getattr(old, "__name__", _MISSING))


def _matters(value: Any) -> bool:
    """Functions, classes, modules and descriptors; a cache or a flag leads nowhere."""
    return callable(value) or _isinstance(value, ModuleType | property | staticmethod | classmethod)


def _of_the_candidate(value: Any) -> bool:
    code = getattr(value, "__code__", None)
    return getattr(code, "co_filename", "").endswith(CANDIDATE_FILE)

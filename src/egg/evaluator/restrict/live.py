"""Does a live object of the judge still do what its class says?

The modules and classes of this package are compared with copies elsewhere. An object can be changed while its
class stays: an attribute of its own that has the name of a method hides the method, and another class can be
put in the place of its own. Both are found on the object alone, without a copy of what it was.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any

OURS = "egg"
MOST_ITEMS = 4096
"""Of a container that is walked through; longer ones hold data."""
METHODS = (FunctionType, classmethod, staticmethod, property)
_type, _isinstance, _id = type, isinstance, id


def altered(objects: Iterable[Any]) -> list[str]:
    """Methods that some object of this package hides, and objects whose class is not this package's."""
    found: dict[str, None] = {}
    for one in objects:
        cls = _type(one)
        if not _is_ours(cls):
            found[f"{_ours_of(cls) or 'an object of the judge'} became a {cls.__qualname__}"] = None
            continue
        for name in _own_attributes(one):
            if _is_method(cls, name):
                found[f"{cls.__module__}.{cls.__qualname__}.{name} of one object"] = None
    return list(found)


def in_this_process() -> Iterator[Any]:
    """Every object that has a class of this package, or one derived from it."""
    known: dict[type, bool] = {}
    for one in gc.get_objects():
        cls = _type(one)
        ours = known.get(cls)
        if ours is None:
            ours = known[cls] = bool(_ours_of(cls))
        if ours:
            yield one


def within(roots: Iterable[Any]) -> Iterator[Any]:
    """The roots, and the objects of this package that they hold by attributes and plain containers."""
    seen: set[int] = set()
    waiting = list(roots)
    yield from waiting
    while waiting:
        one = waiting.pop()
        if _id(one) in seen:
            continue
        seen.add(_id(one))
        if _isinstance(one, list | tuple | dict):
            if len(one) <= MOST_ITEMS:
                waiting.extend(one.values() if _isinstance(one, dict) else one)
        elif not _isinstance(one, _type) and _ours_of(_type(one)):
            yield one
            waiting.extend(_own_attributes(one).values())
            waiting.extend(_slotted(one))


def _own_attributes(one: Any) -> dict[str, Any]:
    try:
        held = object.__getattribute__(one, "__dict__")
    except AttributeError:
        return {}
    return held if _isinstance(held, dict) else {}


def _slotted(one: Any) -> Iterator[Any]:
    for cls in _type(one).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if _isinstance(slots, str) else slots:
            if hasattr(one, name):
                yield getattr(one, name)


def _is_method(cls: type, name: str) -> bool:
    """Whether the class defines ``name`` as a method; a field whose default is a function is none."""
    for base in cls.__mro__:
        if name in vars(base):
            value = vars(base)[name]
            fields = vars(cls).get("__dataclass_fields__", {})
            return _isinstance(value, METHODS) and name not in fields
    return False


def _is_ours(cls: type) -> bool:
    return _root(cls) == OURS


def _ours_of(cls: type) -> str:
    """The class of this package that ``cls`` is or derives from; empty where there is none."""
    return next((f"{c.__module__}.{c.__qualname__}" for c in cls.__mro__ if _is_ours(c)), "")


def _root(cls: type) -> str:
    module = _type.__getattribute__(cls, "__module__")
    return module.partition(".")[0] if _isinstance(module, str) else ""

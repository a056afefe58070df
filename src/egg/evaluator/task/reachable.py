"""What a task holds in Python objects: everything that its module and its file's names lead to, by path.

A call can leave something behind a property, in a set, on a class, in a global of the file, in a closure or
in an iterator. Kinds of places have no end, so this walk does not list them: it goes wherever a reference
leads (attributes, items, cells, defaults of functions, what a C object says that it holds) and describes each
object that it meets. It runs nothing that the task defines. Left out are the values of parameters and of
saved buffers, which are compared elsewhere.

A library's functions and modules belong to everybody: of its modules and classes that the task names only
the numbers and tensors are described.
"""

from __future__ import annotations

import contextvars
import gc
import hashlib
import random
import sys
import types
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

MOST = 500_000
"""Objects of one task."""
MOST_DENSE = 1 << 24
"""Elements of a sparse tensor that is looked at."""
NUMBERS = (int, float, complex, str, bytes)
OWN_WORDS: tuple[tuple[type, Any], ...] = tuple((kind, kind.__repr__) for kind in NUMBERS)
PLAIN = frozenset((type(None), bool, *NUMBERS, range, torch.dtype, torch.device, torch.Size))
OF_EVERY_CLASS = frozenset(
    str.split("__dict__ __weakref__ __doc__ __module__ __qualname__ __slotnames__ __annotations__ _abc_impl")
)
"""Names in a class that Python itself fills."""
ITERATORS = ("builtins", "itertools", "collections")
"""Modules of types that say in ``__reduce_ex__`` how far they have come."""
HOLDERS = (dict, list, tuple, deque, set, frozenset, torch.Tensor, torch.Generator, nn.Module, random.Random)
_slots_of = type.__dict__["__dict__"].__get__
_classes_of = type.__dict__["__mro__"].__get__


class Unfollowable(Exception):
    """There are too many objects."""


@dataclass(frozen=True)
class Met:
    """One object: what can be said of it beside what it holds, and where it is held."""

    value: Any
    token: Any
    owner: Any
    key: Any

    def put(self, value: Any) -> bool:
        """Another value in its place; returns whether the place takes one."""
        if isinstance(self.owner, nn.Module | types.ModuleType | type):
            setattr(self.owner, self.key, value)
        elif isinstance(self.owner, dict | list | deque):
            self.owner[self.key] = value
        elif isinstance(self.owner, types.CellType):
            self.owner.cell_contents = value
        elif isinstance(self.key, str) and self.key in _instance_dict(self.owner):
            object.__setattr__(self.owner, self.key, value)
        else:
            return False
        return True


Found = dict[str, Met]
Step = tuple[str, Any, Any, Any]
"""The path of an object, the object, what holds it, and under which name, key or index."""


def reachable(module: nn.Module, file: types.ModuleType) -> Found:
    """Everything from the task's ``module`` and from the names of its ``file``."""
    state = [*module.parameters(), *module.state_dict(keep_vars=True).values()]
    walk = _Walk(file, {id(t) for t in state}, [span for t in state for span in _span(t)])
    walk.go(module)
    return walk.found


@dataclass
class _Walk:
    file: types.ModuleType
    compared: set[int]
    """Parameters and buffers whose values are compared elsewhere."""
    spans: list[tuple[int, int]]
    """Their memory."""
    found: Found = field(default_factory=dict)
    seen: dict[int, str] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)
    """What was made on the way: another object at the address of one that is gone would count as seen."""

    def go(self, module: nn.Module) -> None:
        waiting: deque[Step] = deque([("self", module, None, None), ("", self.file, None, None)])
        while waiting:
            path, value, owner, key = waiting.popleft()
            if type(value) in PLAIN:
                self._note(path, (type(value).__name__, repr(value)), value, owner, key)
            elif id(value) in self.seen:
                if self.seen[id(value)] != path:
                    self._note(path, ("again", self.seen[id(value)]), value, owner, key)
            else:
                self.kept.append(value)
                self.seen[id(value)] = path
                self._note(path, self._token(value), value, owner, key)
                waiting.extend(self._held(path, value))

    def _note(self, path: str, token: Any, value: Any, owner: Any, key: Any) -> None:
        if len(self.found) >= MOST:
            raise Unfollowable
        self.found[path] = Met(value, token, owner, key)

    def _token(self, value: Any) -> Any:
        kind = type(value)
        name = kind.__name__
        if isinstance(value, torch.Tensor):
            here = id(value) in self.compared or self._lies_in_the_state(value)
            return name, None if here else _values(value)
        if isinstance(value, NUMBERS):  # of a class of the task's
            return name, next(repr_of(value) for base, repr_of in OWN_WORDS if isinstance(value, base))
        if isinstance(value, torch.Generator):
            return name, value.get_state().numpy().tobytes()
        if isinstance(value, random.Random):
            return name, value.getstate()
        if kind.__module__.partition(".")[0] == "numpy" and hasattr(value, "tobytes"):
            return name, value.tobytes(), getattr(value, "shape", ())
        if isinstance(value, dict | list | tuple | set | frozenset | deque):
            return name, len(value)
        return name, bytes(value) if isinstance(value, bytearray | memoryview) else None

    def _lies_in_the_state(self, tensor: torch.Tensor) -> bool:
        return any(a <= b and c <= d for b, c in _span(tensor) for a, d in self.spans)

    def _held(self, path: str, value: Any) -> Iterator[Step]:
        """What an object leads to: path, value, what holds it there, and under which key."""
        kind = type(value)
        if isinstance(value, types.ModuleType):
            yield from self._of_namespace(path, value, vars(value), value is self.file)
        elif isinstance(value, type):
            yield from self._of_namespace(path, value, _slots_of(value), self._is_own(value))
            if self._is_own(value):
                yield from self._classes(value)
        elif isinstance(value, types.FunctionType):
            yield from self._of_function(path, value)
        elif isinstance(value, types.CellType):
            yield from ((f"{path}'s value", part, value, None) for part in gc.get_referents(value))
        elif isinstance(value, contextvars.ContextVar):
            yield f"{path}'s value", value.get(None), None, None
        else:
            yield from _of_instance(path, value)
            if self._is_own(kind) or isinstance(value, nn.Module):
                yield from self._classes(kind)

    def _classes(self, kind: type) -> Iterator[Step]:
        for one in (*_classes_of(kind), type(kind)):
            if one not in (object, type):
                yield one.__name__, one, None, None

    def _of_namespace(self, path: str, owner: Any, names: Mapping[str, Any], own: bool) -> Iterator[Step]:
        before = f"{path}." if path else ""
        for name, item in list(names.items()):
            ours = own and name not in OF_EVERY_CLASS and name != "__builtins__"
            if ours or (not own and isinstance(item, bool | int | float | torch.Tensor)):
                yield f"{before}{name}", item, owner, name

    def _of_function(self, path: str, value: types.FunctionType) -> Iterator[Step]:
        for number, cell in enumerate(value.__closure__ or ()):
            yield f"{path}.{value.__code__.co_freevars[number]}", cell, None, None
        if not self._is_own(value):
            return
        yield from ((f"{path}.{name}", item, value, name) for name, item in vars(value).items())
        yield f"{path}'s defaults", value.__defaults__, None, None
        yield f"{path}'s defaults by name", value.__kwdefaults__, None, None
        names = value.__globals__
        if names is not vars(self.file) and names is not _names_of(names.get("__name__")):
            yield f"{path}'s globals", names, None, None

    def _is_own(self, value: Any) -> bool:
        """Whether a class or a function is of the task's file, or of no module that can be imported."""
        name = value.__module__
        return name == self.file.__name__ or _names_of(name) is None


def _names_of(module: Any) -> dict[str, Any] | None:
    found = sys.modules.get(module) if isinstance(module, str) else None
    return None if found is None else vars(found)


def _of_instance(path: str, value: Any) -> Iterator[Step]:
    """Items, attributes, slots; of what is written in C whatever it says of itself."""
    if isinstance(value, dict):
        for number, (key, item) in enumerate(list(dict.items(value))):
            if type(key) is str:
                yield f"{path}[{key!r}]", item, value, key
            else:
                yield f"{path}[item {number}]", item, value, key
                yield f"{path}[key {number}]", key, None, None
    elif isinstance(value, list | tuple | deque):
        for number, item in enumerate([*value]):
            yield f"{path}[{number}]", item, value, number
    elif isinstance(value, set | frozenset):
        for number, item in enumerate(sorted(value, key=_in_order)):
            yield f"{path}[item {number}]", item, None, None
    held = [*_instance_dict(value).items(), *_in_slots(value)]
    yield from ((f"{path}.{name}", item, value, name) for name, item in held)
    if not isinstance(value, HOLDERS) and not (held and _is_python(type(value))):
        yield from ((f"{path}'s part {n}", item, None, None) for n, item in enumerate(_in_c(value)))


def _is_python(kind: type) -> bool:
    """Whether a ``class`` statement made it, so that attributes and slots are all there is."""
    return any(not {"__weakref__", "__slots__"}.isdisjoint(_slots_of(one)) for one in _classes_of(kind))


def _in_order(value: Any) -> str:
    return repr(value) if type(value) in PLAIN else type(value).__name__


def _instance_dict(value: Any) -> Mapping[str, Any]:
    for kind in _classes_of(type(value)):
        slot = _slots_of(kind).get("__dict__")
        if isinstance(slot, types.GetSetDescriptorType):
            return {k: v for k, v in slot.__get__(value).items() if type(k) is str}
    return {}


def _in_slots(value: Any) -> Iterator[tuple[str, Any]]:
    for kind in _classes_of(type(value)):
        if "__slots__" in _slots_of(kind):
            for name, slot in list(_slots_of(kind).items()):
                if isinstance(slot, types.MemberDescriptorType):
                    try:
                        yield name, slot.__get__(value)
                    except AttributeError:  # nothing yet
                        continue


def _in_c(value: Any) -> list[Any]:
    """How far an iterator has come, where its type says it; otherwise the objects that it refers to."""
    kind = type(value)
    if kind.__module__ in ITERATORS and hasattr(kind, "__next__"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return [part for part in value.__reduce_ex__(2)[1:] if part is not None]
        except (TypeError, NotImplementedError):
            pass
    return [part for part in gc.get_referents(value) if not isinstance(part, type | types.ModuleType)]


def _span(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """Where the memory of a tensor begins and ends, of one without gaps."""
    if tensor.layout != torch.strided or tensor.is_meta or not tensor.is_contiguous():
        return []
    begin = tensor.data_ptr()
    return [(begin, begin + tensor.numel() * tensor.element_size())]


def _values(tensor: torch.Tensor) -> Any:
    """Form and bytes, in a word."""
    form = tuple(tensor.shape), str(tensor.dtype), str(tensor.layout)
    if tensor.is_meta or (tensor.layout != torch.strided and tensor.numel() > MOST_DENSE):
        return form
    with torch.no_grad():
        dense = tensor.detach() if tensor.layout == torch.strided else tensor.detach().to_dense()
        flat = dense.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        return form, hashlib.sha256(flat.view(torch.uint8).numpy().tobytes()).hexdigest()

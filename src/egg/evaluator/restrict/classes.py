"""Class statements, judged by the objects: which bases a class has, and which special methods."""

from __future__ import annotations

import abc
import builtins
import enum
import functools
import typing
from typing import Any

import torch
from torch import nn

from egg.evaluator.restrict.modules import is_abc_meta
from egg.evaluator.restrict.names import RestrictedError, is_dunder
from egg.evaluator.static.vocabulary import ALLOWED_DUNDER_METHODS, words

AUTOMATIC = frozenset(
    words("""
    __module__ __qualname__ __doc__ __annotations__ __dict__ __weakref__ __slots__ __firstlineno__ __hash__
    __static_attributes__ __orig_bases__ __abstractmethods__ __match_args__ __annotate__ __annotate_func__
    __annotations_cache__ __type_params__ __parameters__
    """)
)
"""Special names that Python itself puts into a class."""
MADE_BY_METACLASS = (enum.Enum, tuple, dict)
"""Classes whose metaclass adds special methods of its own; what the file adds is read in its text."""
OUTSIDE = frozenset(words("__init__ reset_parameters extra_repr train"))
"""Methods of a library's modules that no forward calls."""
ROOTS = (object, torch.autograd.Function, abc.ABC)


class Classes:
    """Stands for ``__build_class__``; keeps the classes that the file made."""

    def __init__(self, own: set[type]) -> None:
        self._own = own

    def build(self, body: Any, name: str, *bases: Any, metaclass: Any = None, **options: Any) -> Any:
        for base in bases:
            if not self._allowed(base):
                raise RestrictedError(f"class {name} derives from {base!r}", "restricted.class")
        if metaclass is not None and not is_abc_meta(metaclass):
            raise RestrictedError(f"class {name} has a metaclass", "restricted.class")
        if set(options) - {"total"}:
            raise RestrictedError(f"class {name} has class keywords", "restricted.class")
        chosen = {} if metaclass is None else {"metaclass": abc.ABCMeta}
        made = builtins.__build_class__(body, name, *bases, **chosen, **options)
        self._check(made)
        self._check_inside(made)
        self._own.add(made)
        return made

    def _allowed(self, base: Any) -> bool:
        if isinstance(base, type):
            if base in self._own or any(base is root for root in ROOTS):
                return True
            return issubclass(base, nn.Module | enum.Enum) or base in (typing.Generic, typing.Protocol)
        if base in (typing.NamedTuple, typing.TypedDict):
            return True
        origin = typing.get_origin(base)
        return origin is not None and self._allowed(origin)

    def _check_inside(self, made: Any) -> None:
        """No method of the file runs inside the forward of a library's module.

        That chooses its way by what is going on around the call (modes, tracing): a method in one of its ways
        would show whether the call is watched. A class with a forward of its own is free.
        """
        if not isinstance(made, type) or not issubclass(made, nn.Module):
            return
        library = [kind for kind in made.__mro__ if kind is not made and kind not in self._own]
        forward = next(kind for kind in made.__mro__ if "forward" in vars(kind))
        if forward is nn.Module or forward not in library:
            return
        replaceable = {name for kind in library if kind not in (nn.Module, object) for name in vars(kind)}
        for kind in (made, *(kind for kind in made.__mro__ if kind in self._own)):
            for name, value in vars(kind).items():
                replaces = callable(value) and name in replaceable - OUTSIDE
                if replaces or isinstance(value, property | functools.cached_property):
                    raise RestrictedError(
                        f"class {made.__name__} has .{name} under the forward of {forward.__name__}, which "
                        "may call it: give the class a forward of its own", "restricted.class",
                    )  # fmt: skip

    def _check(self, made: Any) -> None:
        if not isinstance(made, type) or issubclass(made, MADE_BY_METACLASS):
            return
        protocol = getattr(made, "_is_protocol", False)
        for name in vars(made):
            if (
                is_dunder(name)
                and name not in AUTOMATIC
                and name not in ALLOWED_DUNDER_METHODS
                and not protocol
            ):
                raise RestrictedError(
                    f"class {made.__name__} defines {name}, which Python calls unseen", "restricted.class"
                )

"""The built-ins of a kernel file, and the guards that its attribute accesses go through."""

from __future__ import annotations

import abc
import builtins
import functools
from types import ModuleType
from typing import Any

import torch
import triton.language as tl
from torch import nn
from torch.autograd.function import FunctionCtx
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import KernelInterface

from egg.evaluator.restrict import raised
from egg.evaluator.restrict.classes import Classes
from egg.evaluator.restrict.formats import FORMATTING, plain_format
from egg.evaluator.restrict.modules import Logger, Modules
from egg.evaluator.restrict.names import RestrictedError, is_private, refused_name
from egg.evaluator.static.stand_ins import GUARDED, KERNEL_METHODS, TENSOR_METHODS
from egg.evaluator.static.vocabulary import DENIED_BUILTINS, words

LOAD, KEEP, STORE, NOTE = "__egg_load__", "__egg_keep__", "__egg_store__", "__egg_note__"
"""Special names, which no kernel file can say."""
REGISTER = "register"
"""Of an abstract base class: it would change what ``isinstance`` says elsewhere."""
KEPT_OF_MODULES = frozenset((GUARDED["torch"] | GUARDED["torch.cuda"]) - {"device"})
"""Functions for which a worker may have its own, where the text does not show the module; a tensor's device
is read by the file itself, and ``torch.cuda.device`` is PyTorch's everywhere."""
LOOKED_AT = FORMATTING | {REGISTER} | TENSOR_METHODS | KERNEL_METHODS
"""Names whose load is always guarded, also on what an import gave."""
KERNEL_ATTRIBUTES = frozenset(
    words("run warmup fn base_fn arg_names configs best_config cache keys add_pre_run_hook")
)
"""What a file may use of a kernel. The rest is Triton's: ``get_capture_scope`` gives a module's namespace."""
SLOTS = frozenset(vars(nn.Module())) - {"training"}
"""Where ``nn.Module`` keeps parameters, buffers, parts and hooks, in dictionaries of its own."""
TENSOR_SETTABLE = frozenset(["data", "grad", "requires_grad"])
NATIVE = words("""
    abs all any ascii bin bool bytearray bytes callable chr classmethod complex dict divmod enumerate filter
    float format frozenset hash hex id int isinstance issubclass iter len list map max min next object oct ord
    pow print property range repr reversed round set slice sorted staticmethod str sum super tuple zip
    None True False Ellipsis NotImplemented
    ArithmeticError AssertionError AttributeError Exception ImportError IndexError KeyError LookupError
    ModuleNotFoundError NotImplementedError OSError OverflowError RuntimeError RuntimeWarning StopIteration
    TypeError UserWarning ValueError Warning ZeroDivisionError DeprecationWarning FutureWarning MemoryError
    UnboundLocalError NameError RecursionError FloatingPointError TimeoutError
""")
KERNELS = (KernelInterface, type(tl.sum), type(tl.cdiv))
_getattr, _setattr, _hasattr, _isinstance, _type = getattr, setattr, hasattr, isinstance, type


class Guards:
    """Everything one kernel file is given in the place of Python's own."""

    def __init__(self) -> None:
        self.own: set[type] = set()
        self.modules = Modules(self.own)
        self.classes = Classes(self.own)

    def load(self, receiver: Any, name: str, *default: Any) -> Any:
        """``receiver.name``, where the name could lead to a module or into a foreign object."""
        if name in FORMATTING and (plain := plain_format(receiver, name)) is not None:
            return plain
        kind = _type(receiver)
        if name == REGISTER and _isinstance(receiver, abc.ABCMeta) and receiver not in self.own:
            raise RestrictedError(
                f".{name} makes others instances of {receiver.__name__}", "restricted.patch"
            )
        if kind in self.own or (kind is torch.Tensor and name[0] != "_"):
            return _getattr(receiver, name, *(() if _computes(kind, name) else default))
        _check_kernel(kind, name)
        if not (_isinstance(receiver, _type) and receiver in self.own) and not self._is_parent(receiver):
            if _isinstance(receiver, ModuleType):
                self.modules.check_attribute(receiver, name)
            elif is_private(name):
                raise RestrictedError(f".{name} is private to {_type(receiver).__name__}")
        value = _getattr(receiver, name, *default)
        self.modules.check_value(value, name)
        return value

    def keep(self, receiver: Any, name: str, *default: Any) -> Any:
        """``receiver.name`` where it is not called on the spot: what is a stand-in, its type or its printed
        form would show."""
        if name in FORMATTING and plain_format(receiver, name) is not None:
            raise RestrictedError(f".{name} of a string is kept instead of called")
        if self._stands_in(receiver, name):
            raise RestrictedError(f".{name} is kept instead of called")
        return self.load(receiver, name, *default)

    def _stands_in(self, receiver: Any, name: str) -> bool:
        """Whether the worker may have replaced this method or function."""
        if name in TENSOR_METHODS:
            return _isinstance(receiver, torch.Tensor) or receiver is torch.Tensor
        if name in KERNEL_METHODS:
            return issubclass(_type(receiver), KERNELS)
        if name in KEPT_OF_MODULES and _isinstance(receiver, ModuleType):
            return name in GUARDED.get(self.modules.path(receiver) or "", ())
        return False

    def _is_parent(self, receiver: Any) -> bool:
        """``super()`` of one of the file's own objects: what it inherits is its own to extend."""
        return _type(receiver) is super and _getattr(receiver, "__self_class__") in self.own

    def store(self, receiver: Any, name: str) -> Any:
        """The receiver itself, where the file may assign to this attribute of it."""
        kind = _type(receiver)
        if kind in self.own:
            if name in SLOTS and issubclass(kind, nn.Module):
                raise RestrictedError(f"assigns to {name}, which nn.Module keeps", "restricted.patch")
            return receiver
        if _isinstance(receiver, torch.Tensor):
            allowed = name in TENSOR_SETTABLE
        elif _isinstance(receiver, nn.Module):
            allowed = not is_private(name) and not callable(_getattr(kind, name, None))
        else:
            allowed = _isinstance(receiver, FunctionCtx)
        if not allowed:
            what = receiver.__name__ if _isinstance(receiver, _type | ModuleType) else f"a {kind.__name__}"
            raise RestrictedError(f"assigns to attribute {name} of {what}", "restricted.patch")
        return receiver

    def getattr(self, receiver: Any, name: str, *default: Any) -> Any:
        _check(name)
        return self.keep(receiver, name, *default)

    def hasattr(self, receiver: Any, name: str) -> bool:
        _check(name)
        _check_kernel(_type(receiver), name)
        if _isinstance(receiver, Logger):
            raise RestrictedError(f"asks whether a logger has .{name}")
        return _computes(_type(receiver), name) or _hasattr(receiver, name)

    def setattr(self, receiver: Any, name: str, value: Any) -> None:
        _check(name)
        _setattr(self.store(receiver, name), name, value)

    def builtins(self) -> dict[str, Any]:
        """What stands for the built-in namespace."""
        return {
            **{name: _getattr(builtins, name) for name in NATIVE},
            **{name: _absent(name, why) for name, (_, why) in DENIED_BUILTINS.items()},
            "dir": _absent("dir", "lists names that are to be written out"),
            "getattr": self.getattr,
            "hasattr": self.hasattr,
            "setattr": self.setattr,
            "type": GuardedType,
            "__build_class__": self.classes.build,
            "__import__": self.modules.imported,
            "__debug__": True,
            LOAD: self.load,
            KEEP: self.keep,
            STORE: self.store,
            NOTE: raised.note_leaving,
        }


def _computes(kind: type, name: str) -> bool:
    """Whether a class has a property of this name: what its code raises is no answer to whether it is there.

    ``getattr`` with a default and ``hasattr`` would catch an ``AttributeError`` out of any depth below it.
    """
    found = next((vars(one)[name] for one in kind.__mro__ if name in vars(one)), None)
    return _isinstance(found, property | functools.cached_property)


def _check(name: str) -> None:
    why = refused_name(name)
    if why is not None:
        raise RestrictedError(why)


def names_of_kernels() -> frozenset[str]:
    """Attribute names that are refused of a kernel: those of Triton's own, of the class that is in use."""
    public = {name for kernel in (tl.sum, Autotuner, Heuristics) for name in dir(kernel) if name[0] != "_"}
    return frozenset(public - KERNEL_ATTRIBUTES)


def _check_kernel(kind: type, name: str) -> None:
    if issubclass(kind, KERNELS) and name not in KERNEL_ATTRIBUTES:
        raise RestrictedError(f".{name} of a kernel: a kernel is launched, run or warmed up")


def _absent(name: str, why: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise RestrictedError(f"{name} {why}", "restricted.builtin")

    return refuse


class _Asked(_type):
    """``type(x)`` answers for objects; the type of a class could make classes, so it is not handed out."""

    def __call__(cls, *args: Any) -> Any:
        if len(args) != 1:
            raise RestrictedError("type(...) with three arguments makes a class", "restricted.class")
        if _isinstance(args[0], _type):
            raise RestrictedError("type(...) of a class is a metaclass", "restricted.class")
        return _type(args[0])

    def __instancecheck__(cls, instance: Any) -> bool:
        return _isinstance(instance, _type)


class GuardedType(metaclass=_Asked):
    """Stands for ``type``, and is printed as it is."""


GuardedType.__module__, GuardedType.__name__, GuardedType.__qualname__ = "builtins", "type", "type"

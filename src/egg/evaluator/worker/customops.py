"""Operators that a kernel file registers with ``torch.library.custom_op``.

The dispatcher runs an operator's body below every mode, so what it calls would not be recorded. On a GPU
the body switches the recorder on again. Elsewhere no operator is registered: the body is called directly,
so that a capture follows it to its launches instead of asking for its fake version.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef

from egg.evaluator.operators.ops import ACTIVE, OWN_OPERATORS
from egg.evaluator.restrict.names import CANDIDATE_FILE, RestrictedError
from egg.evaluator.worker import hostreads

TYPES = re.compile(r"[\w.\[\], |]*")
_register = torch.library.custom_op


def install(*, direct: bool) -> None:
    """Stand in for ``torch.library.custom_op`` in this process."""

    def custom_op(name: str, fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        library = _is_library(sys._getframe(1))

        def registered(function: Callable[..., Any]) -> Any:
            if library and not _of_the_candidate(function):
                return _register(name, function, **options)
            _check_annotations(function)
            if direct:
                return DirectOperator(function)
            claimed = _claimed(name)
            made = _register(name, _watched(function), **options)
            OWN_OPERATORS.add(claimed)
            return made

        return registered if fn is None else registered(fn)

    torch.library.custom_op = custom_op  # pyright: ignore[reportAttributeAccessIssue]


def _is_library(caller: FrameType) -> bool:
    """PyTorch registers operators of its own as it imports further parts of itself."""
    return str(caller.f_globals.get("__name__", "")).startswith("torch.")


def _of_the_candidate(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return code is None or code.co_filename.endswith(CANDIDATE_FILE)


def _claimed(name: str) -> str:
    """A name in a namespace that no library has."""
    namespace = name.partition("::")[0]
    known = {n.partition("::")[0] for n in torch._C._dispatch_get_all_op_names()}  # pyright: ignore
    own = {operator.partition("::")[0] for operator in OWN_OPERATORS}
    if namespace in known - own:
        raise RestrictedError(f"registers {name} in a library's namespace", "restricted.patch")
    return name


def _check_annotations(fn: Callable[..., Any]) -> None:
    """PyTorch evaluates annotations that are strings, in a namespace of its own: they must name types."""
    for parameter, annotation in getattr(fn, "__annotations__", {}).items():
        if isinstance(annotation, str) and (not TYPES.fullmatch(annotation) or "__" in annotation):
            raise RestrictedError(
                f"the annotation of {parameter} is no type: {annotation[:80]}", "restricted.builtin"
            )


def _watched(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def body(*args: Any, **kwargs: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for mode in (*ACTIVE[-1:], *hostreads.ACTIVE[-1:]):
                stack.enter_context(mode)
            return fn(*args, **kwargs)

    return body


class DirectOperator:
    """Calls the body; differentiates as the registered operator would, or raises as it would."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn
        self._backward: Callable[..., Any] | None = None
        self._setup: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
        if torch.is_grad_enabled() and any(t.requires_grad for t in given):
            return _differentiable(self._fn, self._setup, self._backward).apply(*args, *kwargs.values())
        return self._fn(*args, **kwargs)

    def register_fake(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        return fn

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        self._backward, self._setup = backward, setup_context


def _differentiable(fn: Any, setup: Any, backward: Any) -> Any:
    class Differentiable(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            output = fn(*args)
            if setup is not None:
                setup(ctx, inputs=args, output=output)
            return output

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            if backward is None:
                raise NotImplementedError("the operator has no registered backward")
            return backward(ctx, *gradients)

    return Differentiable


# An operator that is called directly is printed as one that is registered.
DirectOperator.__module__, DirectOperator.__name__ = CustomOpDef.__module__, CustomOpDef.__name__
DirectOperator.__qualname__ = CustomOpDef.__qualname__

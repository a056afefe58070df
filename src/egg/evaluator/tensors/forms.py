"""Forms of results that operators gave before, for forwards on tensors without data.

On the meta device PyTorch computes the form of a result in Python for many operators: 0.1 to 40 milliseconds
a call, though the answer depends on nothing but the forms of the operands. A program is run at a dozen sizes
and more to find out which of them it takes, and a network or an unrolled loop asks for the same hundreds of
times. So each answer is kept, by the operator, the shapes, strides and dtypes of its operands and its plain
arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from egg.evaluator.tensors.modes import LightMode

META = torch.device("meta")
_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_TENSORS = (torch.Tensor, torch.nn.Parameter)


@dataclass(frozen=True)
class Form:
    """All that is to know of an ordinary tensor without data."""

    shape: torch.Size
    strides: tuple[int, ...]
    dtype: torch.dtype

    def made(self) -> torch.Tensor:
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=META)


@dataclass(frozen=True)
class Plain:
    """An argument that is no tensor; ``1``, ``1.0`` and ``True`` are three."""

    kind: type
    value: Any

    def made(self) -> Any:
        return self.value


Part = Form | Plain | tuple[Any, ...]


class KnownForms(LightMode):
    """Answers from the last time where the operator was asked the same."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return result_of(func, args, kwargs or {})


def result_of(func: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """What an operator of ATen returns for operands on the meta device."""
    if not _makes_new_tensors(func):
        return func(*args, **named)
    try:
        question = tuple(map(_part, args)), tuple((name, _part(value)) for name, value in named.items())
    except _Unusual:
        return func(*args, **named)
    forms = _answer(func, torch.get_default_dtype(), *question)
    if forms is None:
        return func(*args, **named)
    return forms.made() if isinstance(forms, Form) else tuple(form.made() for form in forms)


@lru_cache(maxsize=1 << 14)
def _answer(
    func: Any, default: torch.dtype, args: tuple[Part, ...], named: tuple[tuple[str, Part], ...]
) -> Form | tuple[Form, ...] | None:
    """The form of the result, asked with operands like those of the call; ``None`` where they say no more
    than the operator itself would: dropout that drops nothing hands back its operand."""
    operands = [_again(part) for part in args]
    result = func(*operands, **{name: _again(part) for name, part in named})
    if any(result is operand for operand in operands):
        return None
    if isinstance(result, torch.Tensor):
        return _form(result)
    forms = tuple(_form(part) for part in result if isinstance(part, torch.Tensor))
    known = tuple(form for form in forms if form is not None)
    return known if 0 < len(known) == len(result) else None


@lru_cache(maxsize=4096)
def _makes_new_tensors(func: Any) -> bool:
    """Whether all results of one of PyTorch's operators are tensors of their own, and nothing is written."""
    schema = getattr(func, "_schema", None)
    if schema is None or func.namespace != "aten" or schema.is_mutable:
        return False
    return bool(schema.returns) and all(
        returned.alias_info is None and isinstance(returned.type, torch.TensorType)
        for returned in schema.returns
    )


class _Unusual(Exception):
    """An argument that is no plain value and no ordinary tensor without data."""


def _part(value: Any) -> Part:
    if type(value) in _TENSORS:
        if (form := _form(value)) is None:
            raise _Unusual
        return form
    if isinstance(value, (list, tuple)):
        return tuple(map(_part, value))
    if type(value) not in _PLAIN:
        raise _Unusual
    return Plain(type(value), value)


def _again(part: Part) -> Any:
    return [_again(one) for one in part] if isinstance(part, tuple) else part.made()


def _form(tensor: torch.Tensor) -> Form | None:
    plain = type(tensor) in _TENSORS and tensor.device == META and tensor.layout is torch.strided
    if not plain or tensor.is_conj() or tensor.is_neg():
        return None
    return Form(tensor.shape, tensor.stride(), tensor.dtype)

"""How a step is spelled in public names: ``torch.addmm(...)``, ``x.view(...)``, a launch.

The dispatcher's names are private or missing in places (``aten._to_copy``, ``aten.slice``), so those have a
spelling of their own here; what has none is refused with its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.nn import functional

from egg.evaluator.plan.vocabulary import DTYPES, METHODS, is_function

Word = Callable[[Any], str]
"""Spells a value: a tensor by its name, numbers and lists of both as literals."""


class Unspelled(Exception):
    """Something that a plan does not hold, and what to do instead."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


def values_in(value: Any) -> Iterator[Any]:
    """Leaves of nested lists, tuples, dictionaries and host-side descriptors."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from values_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from values_in(item)
    elif type(value).__name__ == "TensorDescriptor":
        yield value.base
    else:
        yield value


def _whole() -> dict[Any, str]:
    """Functions that are noted as one step: all of ``torch.nn.functional``, layers and products of torch."""
    found: dict[Any, str] = {}
    for name in dir(functional):
        function = getattr(functional, name)
        if callable(function) and is_function(f"torch.nn.functional.{name}") and not name.endswith("_"):
            found[function] = f"torch.nn.functional.{name}"
    for name in [
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "lstm",
        "gru",
        "rnn_tanh",
        "rnn_relu",
        "batch_norm",
        "group_norm",
        "layer_norm",
        "rms_norm",
        "dropout",
        "softmax",
        "log_softmax",
        "einsum",
    ]:
        found[getattr(torch, name)] = f"torch.{name}"
    for module in ("fft", "linalg"):
        space = getattr(torch, module)
        for name in dir(space):
            if is_function(f"torch.{module}.{name}") and callable(getattr(space, name)):
                found[getattr(space, name)] = f"torch.{module}.{name}"
    for name in ("softmax", "log_softmax"):
        found[getattr(torch.Tensor, name)] = f"torch.{name}"
    return found


WHOLE: dict[Any, str] = _whole()


def spelled_operator(
    func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], word: Word, device: str
) -> str:
    """One operator as an expression; ``device`` is spelled where a tensor is made."""
    name = func.overloadpacket.__name__
    if isinstance(kwargs.get("out"), torch.Tensor):
        rest = {n: v for n, v in kwargs.items() if n != "out"}
        return f"{word(kwargs['out'])}.copy_({spelled_operator(func, args, rest, word, device)})"
    special = SPECIAL.get(name)
    if special is not None:
        return special(args, kwargs, word)
    given = {n: v for n, v in kwargs.items() if n not in ("device", "layout", "pin_memory") and v is not None}
    options = [f"{n}={word(v)}" for n, v in given.items()]
    if "device" in kwargs or makes(func):
        options.append(f"device={device}")
    if any(isinstance(v, torch.Generator) for v in given.values()):
        raise Unspelled(
            "a random generator of the file's own", "draw from the default generator, as the task does"
        )
    public = f"torch.{name}"
    if is_function(public) and hasattr(torch, name):
        return f"{public}({', '.join([*map(word, args), *options])})"
    if name in METHODS and args and isinstance(args[0], torch.Tensor):
        return f"{word(args[0])}.{name}({', '.join([*map(word, args[1:]), *options])})"
    public = f"torch.nn.functional.{name}"
    if hasattr(functional, name) and is_function(public):
        return f"{public}({', '.join([*map(word, args), *options])})"
    raise Unspelled(
        f"operator {func} is not among those that a plan holds",
        "use a public function of PyTorch whose result has a shape that follows from its arguments' shapes",
    )


def makes(func: Any) -> bool:
    """Whether it makes a tensor of numbers alone."""
    return any(argument.name == "device" for argument in func._schema.arguments) and not any(
        "Tensor" in str(argument.type) for argument in func._schema.arguments
    )


def _to_copy(args: Any, kwargs: Any, word: Word) -> str:
    options = [f"{n}={word(kwargs[n])}" for n in ("dtype", "memory_format") if kwargs.get(n) is not None]
    return (
        f"{word(args[0])}.to({', '.join([*options, 'copy=True'])})"
        if options
        else f"torch.clone({word(args[0])})"
    )


def _slice(args: Any, kwargs: Any, word: Word) -> str:
    tensor: torch.Tensor = args[0]
    given: list[Any] = [*args[1:], *(0, None, None, 1)[len(args) - 1 :]]
    dim, start, end, step = given[0] % tensor.dim(), *given[1:]
    size = tensor.shape[dim]
    first, last, _ = slice(start, end, step).indices(size)
    part = f"{first}:{last}" + (f":{step}" if step != 1 else "")
    return f"{word(tensor)}[{', '.join([':'] * dim + [part])}]"


def _index(args: Any, kwargs: Any, word: Word) -> str:
    return f"{word(args[0])}[{', '.join(':' if i is None else word(i) for i in args[1])}]"


def _index_put(args: Any, kwargs: Any, word: Word) -> str:
    indices = ", ".join(word(i) for i in args[1])
    if any(i is None for i in args[1]):
        raise Unspelled(
            "a write by an index behind a slice", "write by an index of every dimension, or in a kernel"
        )
    more = f", {word(bool(args[3]))}" if len(args) > 3 else ""
    return f"{word(args[0])}.index_put_(({indices},), {word(args[2])}{more})"


def spelled_strided(base: torch.Tensor, shape: Any, stride: Any, offset: int | None, word: Word) -> str:
    """The offset only where it is not the tensor's own: that of an input is the caller's."""
    given = [word(base), word([int(n) for n in shape]), word([int(n) for n in stride])]
    if offset is not None and offset != base.storage_offset():
        given.append(word(offset))
    return f"torch.as_strided({', '.join(given)})"


def _as_strided(args: Any, kwargs: Any, word: Word) -> str:
    offset = args[3] if len(args) > 3 else kwargs.get("storage_offset")
    return spelled_strided(args[0], args[1], args[2], offset, word)


def _softmax(name: str) -> Callable[[Any, Any, Word], str]:
    def spelled(args: Any, kwargs: Any, word: Word) -> str:
        wide = ", dtype=torch.float32" if args[2] else ""
        return f"torch.{name}({word(args[0])}, {word(args[1])}{wide})"

    return spelled


def _method(name: str) -> Callable[[Any, Any, Word], str]:
    def spelled(args: Any, kwargs: Any, word: Word) -> str:
        rest = [*map(word, args[1:]), *(f"{n}={word(v)}" for n, v in kwargs.items())]
        return f"{word(args[0])}.{name}({', '.join(rest)})"

    return spelled


def _copy(args: Any, kwargs: Any, word: Word) -> str:
    return f"{word(args[0])}.copy_({word(args[1])})"


def _unsupported(what: str, hint: str) -> Callable[[Any, Any, Word], str]:
    def refused(args: Any, kwargs: Any, word: Word) -> str:
        raise Unspelled(what, hint)

    return refused


SPECIAL: dict[str, Callable[[Any, Any, Word], str]] = {
    "_to_copy": _to_copy,
    "_unsafe_view": _method("view"),
    "_conj": _method("conj"),
    "as_strided": _as_strided,
    "slice": _slice,
    "index": _index,
    "index_put_": _index_put,
    "_softmax": _softmax("softmax"),
    "_log_softmax": _softmax("log_softmax"),
    "copy_": _copy,
    "set_": _unsupported("a tensor is given other storage", "make new tensors"),
    "resize_": _unsupported("a tensor is resized", "make new tensors"),
    "_local_scalar_dense": _unsupported("the host reads a value", "compute on the device"),
}


def spelled_value(value: Any, tensor: Word) -> str:
    """A literal, or the name of a tensor."""
    if isinstance(value, torch.Tensor):
        return tensor(value)
    if isinstance(value, torch.dtype | torch.memory_format):
        name = str(value).removeprefix("torch.")
        if name in DTYPES:
            return f"torch.{name}"
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, str):
        return str.__repr__(value)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value) if math.isfinite(value) else _beyond(value)
    if isinstance(value, list | tuple):
        parts = [spelled_value(item, tensor) for item in value]
        if isinstance(value, tuple) and type(value) is not torch.Size:
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        return f"[{', '.join(parts)}]"
    raise Unspelled(
        f"a {type(value).__name__} is handed to an operator or a kernel",
        "hand over tensors, numbers, strings, dtypes and lists of them",
    )


def _beyond(value: float) -> str:
    return "torch.nan" if math.isnan(value) else "torch.inf" if value > 0 else "-torch.inf"

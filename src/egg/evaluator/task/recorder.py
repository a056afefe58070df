"""Watching a forward on meta tensors and writing down what eager PyTorch would do for it on a GPU.

There are two watchers. A *dispatch mode* sees every operator that PyTorch would send to a device,
with the tensors it is given and makes; a *function mode* sees the calls that a library answers as a
whole on a GPU but that meta tensors would take apart: recurrent layers, attention, dropout, RMS norm.

Tensors are distinguished by the memory behind them, so views are transparent, and by who wrote that
memory last, so an in-place operation makes a new *value* like any other. From that follows what
each operation reads and writes, which is what eager moves, and who uses whose results, which is
what fusion could spare (``analysis.savings``).
"""

from __future__ import annotations

import contextlib
import itertools
import math
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from egg.core.facts import Family, Operation, TensorForm
from egg.evaluator.task import costs
from egg.evaluator.task.meta import Meter, Recurrence, WholeRecurrence, distinct_bytes
from egg.evaluator.task.tables import Tables, is_view


def form_of(tensor: torch.Tensor) -> TensorForm:
    usual = tensor.layout != torch.strided or tensor.is_contiguous()
    return TensorForm(
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        itemsize=tensor.element_size(),
        strides=None if usual else tuple(tensor.stride()),
    )


class Values:
    """Numbers the values that memory holds over time."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._current: dict[int, int] = {}
        self._made: set[int] = set()
        self._alive: list[Any] = []
        """Memory that was seen; were it let go, its address could come back as another's."""

    def read(self, tensor: torch.Tensor) -> int:
        """The value behind ``tensor`` now."""
        key = self._memory(tensor)
        if key not in self._current:
            self._current[key] = next(self._numbers)
        return self._current[key]

    def write(self, tensor: torch.Tensor) -> int:
        """The value behind ``tensor`` from now on."""
        number = self._current[self._memory(tensor)] = next(self._numbers)
        self._made.add(number)
        return number

    def knows(self, tensor: torch.Tensor) -> bool:
        return self._memory(tensor) in self._current

    def written(self, tensors: Iterable[torch.Tensor]) -> tuple[int, ...]:
        """Those of the values behind ``tensors`` that an operation made."""
        return tuple(sorted({self.read(t) for t in tensors} & self._made))

    def _memory(self, tensor: torch.Tensor) -> int:
        key, _ = _memory(tensor)
        if key not in self._current:
            self._alive.append(tensor)
        return key


class Recorder(Meter):
    """Writes down every operation that does something: views and empty allocations do not."""

    IDLE = frozenset(
        {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"}
        | {"_unsafe_view", "scalar_tensor"}
    )
    """They allocate, or look at what is there; a lone number travels with the launch that uses it."""
    RESHAPING = frozenset(
        {"as_strided_", "squeeze_", "unsqueeze_", "t_", "transpose_", "detach_", "resize_", "set_"}
    )
    """In place, and yet of the shape alone."""

    def __init__(self, seconds: float, tables: Tables | None = None) -> None:
        super().__init__(seconds)
        self.tables = tables or Tables(())
        """Of the tensors that the forward is given, how much it reads."""
        self.operations: list[Operation] = []
        self.lines: list[str] = []
        """Each operation with the shapes that it returns."""
        self.values = Values()
        self._paused = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        name = func._overloadpacket.__name__
        if not (self._paused or name in self.IDLE or name in self.RESHAPING or is_view(func)):
            self._add(str(func._overloadpacket), costs.Call(name.rstrip("_"), func, args, kwargs or {}, out))
        return out

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """What happens inside is part of something that is written down as a whole."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def add_whole(
        self,
        name: str,
        family: Family,
        given: list[torch.Tensor],
        made: list[torch.Tensor],
        *,
        flops: float,
        launches: int = 1,
        bytes: int | None = None,
    ) -> None:
        """One call of a library that was not seen in parts."""
        moved = distinct_bytes(given) + distinct_bytes(made) if bytes is None else bytes
        if not self._paused:
            self.tables.read(given)
            self._note(name, family, _distinct(given), made, flops=flops, bytes=moved, launches=launches)

    def _add(self, name: str, call: costs.Call) -> None:
        self.tables.see(call)
        family = costs.family_of(call.name, call.func)
        changed = _changed(call)
        unread = _unread(call, changed)
        read = _distinct(t for t in call.given if not any(t is u for u in unread))
        extra = costs.extra_of(call)
        self._note(
            name,
            family,
            read,
            call.made,
            changed,
            flops=costs.flops_of(call, family),
            bytes=_moved(call, read, _distinct((*call.made, *changed))) + extra.bytes,
            launches=1 + extra.launches,
            settings=_settings(call, family),
        )

    def _note(
        self,
        name: str,
        family: Family,
        read: list[torch.Tensor],
        made: list[torch.Tensor],
        changed: Iterable[torch.Tensor] = (),
        **counted: Any,
    ) -> None:
        written = _distinct((*made, *changed))
        over = [t for t in changed if self.values.knows(t) and (family is Family.GATHER or _is_part(t))]
        reads = tuple(self.values.read(t) for t in (*read, *over))
        self.operations.append(
            Operation(
                name=name,
                family=family,
                inputs=tuple(map(form_of, read)),
                outputs=tuple(map(form_of, written)),
                reads=reads,
                writes=tuple(map(self.values.write, written)),
                **counted,
            )
        )
        self.lines.append(f"{name} {', '.join(str(list(t.shape)) for t in made)}".rstrip())


class WholeLayers(WholeRecurrence):
    """A recurrent layer or an attention is one call of a library, whatever meta tensors make of it."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self._recorder = recorder
        self._answers: Mapping[str, Callable[..., Any]] = {
            "scaled_dot_product_attention": self._attention,
            "dropout": self._dropout,
            "rms_norm": self._rms_norm,
            "multi_head_attention_forward": self._heads,
        }

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        answer = self._answers.get(getattr(func, "__name__", ""))
        if answer is not None:
            return answer(func, *args, **(kwargs or {}))
        out = super().__torch_function__(func, types, args, kwargs)
        layer = Recurrence.of(func, args)
        if layer is not None:
            self._recorder.add_whole(
                f"aten.{layer.name}",
                Family.RECURRENCE,
                [layer.sequence, *layer.states, *layer.weights],
                list(out),
                flops=layer.flops,
                launches=costs.recurrence_launches(layer),
                bytes=costs.recurrence_bytes(layer),
            )
        return out

    def _attention(
        self,
        func: Callable[..., torch.Tensor],
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **more: Any,
    ) -> torch.Tensor:
        with self._recorder.paused():
            out = func(query, key, value, attn_mask, dropout_p, is_causal, **more)
        given = [t for t in (query, key, value, attn_mask) if t is not None]
        flops = costs.attention_flops(query, key, out, causal=is_causal)
        self._recorder.add_whole(
            "aten.scaled_dot_product_attention", Family.ATTENTION, given, [out], flops=flops
        )
        return out

    def _dropout(
        self,
        func: Callable[..., torch.Tensor],
        input: torch.Tensor,
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
        **named: bool,
    ) -> torch.Tensor:
        """Drawing, keeping which, and scaling are one kernel on a GPU, unless in place."""
        draws = named.get("train", training) and 0.0 < p < 1.0 and input.numel() > 0
        more = (
            {"train": training, **named}
            if func is torch.dropout
            else {"training": training, "inplace": inplace}
        )
        if inplace or not draws:
            return func(input, p, **more)
        with self._recorder.paused():
            out = func(input, p, **more)
            kept = torch.empty_like(out, dtype=torch.bool)
        self._recorder.add_whole(
            "aten.native_dropout", Family.RANDOM, [input], [out, kept], flops=2.0 * out.numel()
        )
        return out

    def _rms_norm(
        self,
        func: Callable[..., torch.Tensor],
        input: torch.Tensor,
        normalized_shape: Sequence[int],
        weight: torch.Tensor | None = None,
        eps: float | None = None,
    ) -> torch.Tensor:
        with self._recorder.paused():
            out = func(input, normalized_shape, weight, eps)
        given = [t for t in (input, weight) if t is not None]
        row = math.prod(normalized_shape) * input.element_size()
        self._recorder.add_whole(
            "aten._fused_rms_norm",
            Family.NORMALIZATION,
            given,
            [out],
            flops=costs.NORMALIZING * out.numel(),
            bytes=distinct_bytes(given) + distinct_bytes([out]) + costs.again(input, row),
        )
        return out

    def _heads(self, func: types.FunctionType, *args: Any, **kwargs: Any) -> Any:
        """Multi-head attention is Python, inside of which modes like this one are switched off.

        So it is run with a name space in which what it calls is answered here.
        """
        answering: dict[str, Any] = {
            "has_torch_function": lambda _: False,
            "scaled_dot_product_attention": partial(self._attention, F.scaled_dot_product_attention),
            "dropout": partial(self._dropout, F.dropout),
        }
        inside = types.FunctionType(
            func.__code__,
            {**func.__globals__, **answering},
            func.__name__,
            func.__defaults__,
            func.__closure__,
        )
        inside.__kwdefaults__ = func.__kwdefaults__
        return inside(*args, **kwargs)


# -- what an operator got beside its tensors ------------------------------------------------------

_SETTINGS = {
    Family.CONVOLUTION: ("stride", "padding", "dilation", "transposed", "groups"),
    Family.NORMALIZATION: ("training",),
    Family.SOFTMAX: ("dim",),
    Family.REDUCTION: ("dim",),
    Family.SCAN: ("dim",),
    Family.GATHER: ("accumulate",),
}


def _settings(call: costs.Call, family: Family) -> dict[str, tuple[int, ...]]:
    """Those that decide what kind of work it is; a truth as 0 or 1."""
    given = {name: call.argument(name) for name in _SETTINGS.get(family, ())}
    return {
        name: tuple(int(v) for v in (value if isinstance(value, list | tuple) else [value]))
        for name, value in given.items()
        if value is not None
    }


# -- which tensors an operator reads and writes ----------------------------------------------------


def _changed(call: costs.Call) -> list[torch.Tensor]:
    """Arguments that are written: those the schema marks, and the running statistics it does not."""
    marked = [
        call.argument(argument.name)
        for argument in call.func._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    if call.name == "native_batch_norm" and call.argument("training"):
        marked += [call.argument("running_mean"), call.argument("running_var")]
    return costs.tensors_in(marked)


def _unread(call: costs.Call, changed: list[torch.Tensor]) -> list[torch.Tensor]:
    """Arguments that are only written, or only asked for their shape."""
    if call.name.endswith("_like") or call.name.startswith("new_"):
        return call.given
    overwritten = call.name in ("copy", "fill", "zero") or torch.Tag.nondeterministic_seeded in call.func.tags
    if overwritten:
        return changed
    named = {argument.name for argument in call.func._schema.arguments if argument.is_out}
    return costs.tensors_in([call.argument(name) for name in named])


def _distinct(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Without those that are another look at the same elements."""
    found: dict[Any, torch.Tensor] = {}
    for tensor in tensors:
        strided = tensor.layout == torch.strided
        place = (tensor.storage_offset(), tensor.shape, tensor.stride()) if strided else None
        found.setdefault((_memory(tensor)[0], place), tensor)
    return list(found.values())


def _moved(call: costs.Call, read: list[torch.Tensor], written: list[torch.Tensor]) -> int:
    """Bytes of one pass; of a piece of memory no more is read than it holds, through however many views."""
    asked: dict[int, int] = {}
    for tensor in read:
        key = _memory(tensor)[0]
        asked[key] = asked.get(key, 0) + costs.read_bytes(call, tensor, distinct_bytes([tensor]))
    held = {_memory(tensor)[0]: _memory(tensor)[1] for tensor in read}
    reading = sum(min(amount, held[key]) for key, amount in asked.items())
    return reading + sum(costs.written_bytes(call, t, distinct_bytes([t])) for t in written)


def _is_part(tensor: torch.Tensor) -> bool:
    """Whether its memory holds more than this tensor shows."""
    return costs.size_of(tensor) < _memory(tensor)[1]


def _memory(tensor: torch.Tensor) -> tuple[int, int]:
    """Which memory is behind a tensor, and its size in bytes."""
    if tensor.layout != torch.strided:
        return id(tensor), costs.size_of(tensor)
    storage = tensor.untyped_storage()
    return storage._cdata, storage.nbytes()

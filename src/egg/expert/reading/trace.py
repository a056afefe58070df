"""Running a program's forward on tensors without data, and writing down the operators it calls.

PyTorch's own tracer sees every call before it is taken apart for a device, so ``linear``, ``conv2d`` and
attention arrive whole. Tensors are on the meta device: they have shapes and strides and no elements, so a
program of any size is traced in the time Python takes to walk through it.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx, nn
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from egg.core.policy import Precision
from egg.evaluator.task.dataless import META, Uncaptured, WithoutData
from egg.evaluator.task.meta import on_meta
from egg.evaluator.task.precision import HALF_DTYPES
from egg.evaluator.task.program import Program
from egg.evaluator.task.signature import given_names
from egg.evaluator.tensors.forms import result_of
from egg.evaluator.tensors.modes import LightMode
from egg.expert.containers import Flat, filled, flattened
from egg.expert.emit.words import RESERVED
from egg.expert.reading.rows import attribute_text


@dataclass(frozen=True)
class Trace:
    """What the tracer saw."""

    graph: fx.GraphModule
    given: Flat
    """The arguments of ``forward`` by name, as far as the task gives them."""
    parameters: Mapping[int, str]
    """Qualified names of parameters and buffers, by the tensor's identity."""
    attributes: Mapping[int, str]
    """The same for tensors that modules hold without having registered them."""
    rebound: tuple[str, ...]
    """Attributes that ``forward`` gave a new tensor; those tensors are returned after the results."""
    numbers: Mapping[str, int | float]
    """Numbers that modules hold as attributes and arguments of ``forward`` that are numbers, each by the text
    that finds it: ``self.act.negative_slope``, ``k``."""
    defaults: tuple[tuple[str, Any], ...]
    """Parameters of ``forward`` that the task leaves out, with their defaults."""


def trace(program: Program, precision: Precision = Precision.MATCH) -> Trace:
    """One forward of ``program``, operator by operator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = on_meta(program).to(dtype=HALF_DTYPES.get(precision))
        inputs = program.inputs(0, META, precision)
        names = given_names(inspect.signature(module.forward).parameters.values(), len(inputs))
        given = flattened(zip(names, inputs, strict=False), RESERVED | names.keys())
        given = replace(given, arguments=tuple((name, _dense(value)) for name, value in given.arguments))
        arguments = given.arguments
        parameters = {id(t): name for name, t in (*module.named_parameters(), *module.named_buffers())}
        before = dict(_attributes(module))
        attributes = {id(t): name for name, t in before.items()}
        tensors = [value for _, value in arguments if isinstance(value, torch.Tensor)]
        if any(not isinstance(v, torch.Tensor | int | float | str | None) for _, v in arguments):
            raise Uncaptured(
                f"task {program.task.name!r}: an argument of forward is neither tensor nor number"
            )
        rebound: list[str] = []

        def forward(*handed: torch.Tensor) -> Any:
            waiting = iter(handed)
            full = (next(waiting) if isinstance(value, torch.Tensor) else value for _, value in arguments)
            results = program.run(module, filled(inputs, full))
            changed = {n: t for n, t in _attributes(module) if n in before and t is not before[n]}
            rebound.extend(changed)
            return results, list(changed.values())

        with torch.no_grad(), META, QuickNorms(), WithoutData(), _one_fake_mode():
            graph = make_fx(forward, tracing_mode="real", pre_dispatch=True)(*tensors)
    numbers = {name: value for name, value in arguments if type(value) in (int, float)}
    return Trace(
        graph,
        given,
        parameters,
        attributes,
        tuple(rebound),
        {**numbers, **dict(_numbers(module))},
        tuple((name, parameter.default) for name, parameter in [*names.items()][len(inputs) :]),
    )


class QuickNorms(LightMode):
    """Answers for norms by the forms of their results, for convolutions in the layout of a GPU's.

    On the meta device PyTorch takes a norm apart in Python, which is a good part of the time that a network's
    trace takes. The tracer sits above this mode and has written the whole call down already. Statistics of a
    batch norm stay as they are: they have no data. A convolution of a channels-last input is contiguous on
    the meta device, and channels-last everywhere else.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _BATCH_NORMS:
            return _as_batch_norm(*args)
        if func is torch.ops.aten.native_layer_norm.default:
            return _as_layer_norm(*args)
        result = result_of(func, args, kwargs or {})
        if func is torch.ops.aten.convolution.default and is_channels_last(args[0]):
            return torch.empty_like(result, memory_format=CHANNELS_LAST[result.dim()])
        return result


CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def is_channels_last(tensor: torch.Tensor) -> bool:
    """In that order and in no other."""
    form = CHANNELS_LAST.get(tensor.dim())
    return form is not None and tensor.is_contiguous(memory_format=form) and not tensor.is_contiguous()


_BATCH_NORMS = frozenset(
    [torch.ops.aten._native_batch_norm_legit.default, torch.ops.aten.native_batch_norm.default]
)


def _as_batch_norm(
    x: torch.Tensor, weight: Any, bias: Any, mean: torch.Tensor, var: torch.Tensor, training: bool,
    momentum: float, eps: float,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    if any(t is not None and t.shape != x.shape[1:2] for t in (weight, bias, mean, var)):
        raise RuntimeError(f"a batch norm of {x.shape[1]} channels with weights of another number")
    count = x.shape[1] if training else 0
    return torch.empty_like(x), x.new_empty(count), x.new_empty(count)


def _as_layer_norm(
    x: torch.Tensor, shape: Sequence[int], weight: Any, bias: Any, eps: float
) -> tuple[torch.Tensor, ...]:
    if list(x.shape[x.dim() - len(shape) :]) != list(shape):
        raise RuntimeError(f"a layer norm of {list(shape)} for {list(x.shape)}")
    rows = x.new_empty((*x.shape[: x.dim() - len(shape)], *(1 for _ in shape)))
    return torch.empty_like(x, memory_format=torch.contiguous_format), rows, torch.empty_like(rows)


def _one_fake_mode() -> contextlib.AbstractContextManager[object]:
    """The tracer notes every tensor's form as a fake tensor; without this, each in a mode of its own."""
    return tracing(TracingContext(FakeTensorMode(allow_fallback_kernels=True)))


def _dense(value: Any) -> Any:
    """An input that is repeated in memory, or has gaps, as a tensor without: the program's results are the
    same, and a file brings what it is given into this form. Transposed ones stay as they are."""
    if not isinstance(value, torch.Tensor) or value.numel() == 0:
        return value
    step = 1
    for dim in sorted(range(value.dim()), key=lambda d: (value.stride(d), value.shape[d])):
        if value.shape[dim] != 1 and value.stride(dim) != step:
            return value.contiguous()
        step *= value.shape[dim]
    return value


def _attributes(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors in plain attributes, in the lists and dictionaries among them too, spelled as Python would."""
    for prefix, part in module.named_modules():
        for name, held in vars(part).items():
            if name.startswith("_") and name in ("_parameters", "_buffers", "_modules"):
                continue
            path = f"{prefix}.{name}" if prefix else name
            yield from _within(path, held)


def _numbers(module: nn.Module) -> Iterator[tuple[str, int | float]]:
    for prefix, part in module.named_modules():
        for name, held in vars(part).items():
            if type(held) in (int, float) and not name.startswith("_"):
                yield attribute_text(f"{prefix}.{name}" if prefix else name), held


def _within(path: str, held: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(held, torch.Tensor):
        yield path, held
    elif isinstance(held, list | tuple):
        for place, item in enumerate(held):
            yield from _within(f"{path}[{place}]", item)
    elif isinstance(held, dict):
        for key, item in held.items():
            yield from _within(f"{path}[{key!r}]", item)

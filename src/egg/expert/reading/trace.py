"""Running a program's forward on tensors without data, and writing down the operators it calls.

PyTorch's own tracer sees every call before it is taken apart for a device, so ``linear``, ``conv2d`` and
attention arrive whole. Tensors are on the meta device: they have shapes and strides and no elements, so a
program of any size is traced in the time Python takes to walk through it.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode

from egg.core.errors import TaskError
from egg.core.policy import Precision
from egg.evaluator.task.meta import Recurrence, on_meta
from egg.evaluator.task.program import HALF_DTYPES, Program

META = torch.device("meta")
LONGEST_LITERAL = 256
"""Numbers of a ``torch.tensor([...])`` that are written down one by one."""


class Uncaptured(TaskError):
    """The program does something that a graph cannot say; the message tells what."""


@dataclass(frozen=True)
class Trace:
    """What the tracer saw."""

    graph: fx.GraphModule
    arguments: tuple[tuple[str, Any], ...]
    """Of ``forward``, by name, as far as the task gives them."""
    parameters: Mapping[int, str]
    """Qualified names of parameters and buffers, by the tensor's identity."""
    attributes: Mapping[int, str]
    """The same for tensors that modules hold without having registered them."""
    rebound: tuple[str, ...]
    """Attributes that ``forward`` gave a new tensor; those tensors are returned after the results."""
    integers: Mapping[str, int]
    """Whole numbers above one that modules hold as attributes, by path."""


def trace(program: Program, precision: Precision = Precision.MATCH) -> Trace:
    """One forward of ``program``, operator by operator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = on_meta(program).to(dtype=HALF_DTYPES.get(precision))
        inputs = program.inputs(0, META, precision)
        arguments = tuple(zip(_argument_names(module), inputs, strict=False))
        parameters = {id(t): name for name, t in (*module.named_parameters(), *module.named_buffers())}
        before = dict(_attributes(module))
        attributes = {id(t): name for name, t in before.items()}
        tensors = [value for _, value in arguments if isinstance(value, torch.Tensor)]
        if any(not isinstance(v, torch.Tensor | int | float | str | None) for _, v in arguments):
            raise Uncaptured(
                f"task {program.task.name!r}: an argument of forward is neither tensor nor number"
            )
        rebound: list[str] = []

        def forward(*given: torch.Tensor) -> Any:
            waiting = iter(given)
            full = [next(waiting) if isinstance(value, torch.Tensor) else value for _, value in arguments]
            results = program.run(module, full)
            changed = {n: t for n, t in _attributes(module) if n in before and t is not before[n]}
            rebound.extend(changed)
            return results, list(changed.values())

        with torch.no_grad(), META, _Watch(), _one_fake_mode():
            graph = make_fx(forward, tracing_mode="real", pre_dispatch=True)(*tensors)
    return Trace(graph, arguments, parameters, attributes, tuple(rebound), dict(_integers(module)))


def run_without_data(program: Program) -> None:
    """A forward that is not written down, to see whether it works; :class:`TaskError` where it does not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module, inputs = on_meta(program), program.inputs(0, META, Precision.MATCH)
        with META, _Watch():
            program.run(module, inputs)


def _one_fake_mode() -> contextlib.AbstractContextManager[object]:
    """The tracer notes every tensor's form as a fake tensor; without this, each in a mode of its own."""
    return tracing(TracingContext(FakeTensorMode(allow_fallback_kernels=True)))


def _argument_names(module: nn.Module) -> Iterator[str]:
    for parameter in inspect.signature(module.forward).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            raise Uncaptured(f"forward takes *{parameter.name}")
        yield parameter.name


def _attributes(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors in plain attributes, in the lists and dictionaries among them too, spelled as Python would."""
    for prefix, part in module.named_modules():
        for name, held in vars(part).items():
            if name.startswith("_") and name in ("_parameters", "_buffers", "_modules"):
                continue
            path = f"{prefix}.{name}" if prefix else name
            yield from _within(path, held)


def _integers(module: nn.Module) -> Iterator[tuple[str, int]]:
    for prefix, part in module.named_modules():
        for name, held in vars(part).items():
            if type(held) is int and held > 1 and not name.startswith("_"):
                yield f"{prefix}.{name}" if prefix else name, held


def _within(path: str, held: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(held, torch.Tensor):
        yield path, held
    elif isinstance(held, list | tuple):
        for place, item in enumerate(held):
            yield from _within(f"{path}[{place}]", item)
    elif isinstance(held, dict):
        for key, item in held.items():
            yield from _within(f"{path}[{key!r}]", item)


class _Watch(TorchFunctionMode):
    """Turns what meta tensors cannot do into what they can.

    A recurrent layer would be run step by step: it becomes one call of an operator of ours that knows only
    its shapes. Numbers in ``torch.tensor`` would be lost: they become filled tensors. And there is one
    device only.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if "device" in named:
            named["device"] = META
        if func in (torch.tensor, torch.as_tensor) and args and not isinstance(args[0], torch.Tensor):
            return _literal(args[0], named.get("dtype"))
        name = getattr(func, "__name__", "")
        if name in ("cuda", "cpu") and isinstance(args[0], torch.Tensor):
            return args[0]
        if name == "to" and len(args) > 1 and isinstance(args[1], str | torch.device):
            args = (args[0], META, *args[2:])
        if func in (torch.nn.functional.cross_entropy, torch.nn.functional.nll_loss):
            losses = _each_loss(func, args, named)
            if losses is not None:
                return losses
        layer = Recurrence.of(func, args)
        if layer is not None:
            return _whole(layer, args)
        return func(*args, **named)


def _each_loss(func: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> torch.Tensor | None:
    """Losses that are not reduced, by their formula: PyTorch's tracer takes those for a single number.

    A target to be ignored is no valid place, so place 0 is read in its stead.
    """
    given = inspect.signature(func).bind(*args, **named)
    given.apply_defaults()
    told = given.arguments
    x, target, weight = told["input"], told["target"], told["weight"]
    whole = told["reduction"] == "none" and told["size_average"] is None and told["reduce"] is None
    if not whole or target.is_floating_point() or told.get("label_smoothing", 0.0):
        return None
    dim = 0 if x.dim() == 1 else 1
    logs = torch.log_softmax(x, dim) if func is torch.nn.functional.cross_entropy else x
    kept = target != told["ignore_index"]
    place = torch.where(kept, target, 0)
    found = -logs.gather(dim, place.unsqueeze(dim)).squeeze(dim)
    found = found if weight is None else found * weight[place]
    return torch.where(kept, found, 0.0)


def _literal(data: Any, dtype: torch.dtype | None) -> torch.Tensor:
    if isinstance(data, bool | int | float):
        return torch.full((), data, dtype=dtype)
    sample = torch.tensor(data, dtype=dtype, device="cpu")
    numbers = sample.flatten().tolist()
    if len(numbers) > LONGEST_LITERAL:
        raise Uncaptured(f"forward makes a tensor of {len(numbers)} numbers; a buffer would hold them")
    if len(set(numbers)) == 1:
        return torch.full(sample.shape, numbers[0], dtype=sample.dtype)
    return torch.stack([torch.full((), n, dtype=sample.dtype) for n in numbers]).reshape(sample.shape)


def _whole(layer: Recurrence, args: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
    if isinstance(args[4], bool):
        raise Uncaptured("a recurrent layer over a packed sequence")
    _, _, _, bias, layers, dropout, training, bidirectional, batch_first = args
    if dropout and training and layers > 1:
        raise Uncaptured("a recurrent layer with dropout in training mode")
    operator, _ = _recurrent_operator()
    more = (bias, layers, bidirectional, batch_first)
    return tuple(operator(layer.name, layer.sequence, list(layer.states), list(layer.weights), *more))


@functools.cache
def _recurrent_operator() -> tuple[Any, torch.library.Library]:
    """Registered when first needed; the library object keeps the registration alive."""
    kept = torch.library.Library("egg_capture", "FRAGMENT")
    kept.define(
        "recurrent(str cell, Tensor sequence, Tensor[] states, Tensor[] weights, bool bias, int layers, "
        "bool bidirectional, bool batch_first) -> Tensor[]"
    )

    def shapes(
        cell: str, sequence: torch.Tensor, states: list[torch.Tensor], weights: list[torch.Tensor],
        bias: bool, layers: int, bidirectional: bool, batch_first: bool,
    ) -> list[torch.Tensor]:  # fmt: skip
        width = (2 if bidirectional else 1) * states[0].shape[-1]
        made = sequence.new_empty((*sequence.shape[:-1], width))
        return [made, *(state.new_empty(state.shape) for state in states)]

    kept.impl("recurrent", shapes, "Meta")
    return torch.ops.egg_capture.recurrent.default, kept

"""Running a program's forward on tensors without data, and writing down the operators it calls.

PyTorch's own tracer sees every call before it is taken apart for a device, so ``linear``, ``conv2d`` and
attention arrive whole. Tensors are on the meta device: they have shapes and strides and no elements, so a
program of any size is traced in the time Python takes to walk through it.
"""

from __future__ import annotations

import contextlib
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

from egg.core.policy import Precision
from egg.evaluator.task.dataless import META, Uncaptured, WithoutData
from egg.evaluator.task.meta import on_meta
from egg.evaluator.task.program import HALF_DTYPES, Program


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

        with torch.no_grad(), META, WithoutData(), _one_fake_mode():
            graph = make_fx(forward, tracing_mode="real", pre_dispatch=True)(*tensors)
    return Trace(graph, arguments, parameters, attributes, tuple(rebound), dict(_integers(module)))


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

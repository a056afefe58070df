"""How a program's results lie in memory where its inputs lie otherwise than in the task.

PyTorch keeps the order of an input's strides through elementwise operators, and channels-last through
convolutions and pools; softmax, products and layer norms return contiguous results. A program's operators do
not say which of these holds for its results. So the program runs on tensors without data, whose strides
PyTorch computes, once for each of a few layouts of its inputs; the rule that explains every run is the
format of a result. A layout that the program refuses (``view`` of a transposed tensor) proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from egg.core.domain import Format, Output
from egg.core.errors import MachineError, TaskError
from egg.evaluator.task.dataless import META, WithoutData
from egg.evaluator.task.dimensions import Rehearsal
from egg.evaluator.task.program import outputs_of
from egg.expert.containers import filled, values_in
from egg.expert.graph import Graph
from egg.expert.reading.trace import CHANNELS_LAST, QuickNorms, is_channels_last

MOST_RUNS = 12
Strides = tuple[int, ...]


@dataclass(frozen=True)
class Run:
    """One forward: the tensors among its inputs by their place in a row, and its results."""

    inputs: Mapping[int, torch.Tensor]
    results: tuple[torch.Tensor, ...]


def formats(graph: Graph, rehearsal: Rehearsal) -> tuple[Output, ...]:
    """The format of each result; empty where none is known, as the program did not run."""
    given = values_in(rehearsal.given)
    own = _run(rehearsal, given)
    if own is None:
        return ()
    others = [run for values in _layouts(given) if (run := _run(rehearsal, values)) is not None]
    plain = not _writes_inputs(graph) and all(tensor.is_contiguous() for tensor in own.inputs.values())
    return tuple(_format(graph, place, own, others, plain) for place in range(len(own.results)))


def _writes_inputs(graph: Graph) -> bool:
    """A program that writes into an input is only called with a contiguous one."""
    return any(node.op == "update" and node.inputs[0] in graph.arguments for node in graph)


# -- runs ----------------------------------------------------------------------------------------------


def _run(rehearsal: Rehearsal, given: Sequence[Any]) -> Run | None:
    program = rehearsal.program
    try:
        with META, QuickNorms(), WithoutData(), _AsOnAGpu():
            results = outputs_of(program.run(rehearsal.module, filled(rehearsal.given, iter(given))))
    except (TaskError, MachineError):
        return None
    if not all(isinstance(result, torch.Tensor) for _, result in results):
        return None
    tensors = {at: value for at, value in enumerate(given) if isinstance(value, torch.Tensor)}
    return Run(tensors, tuple(torch.as_tensor(result) for _, result in results))


class _AsOnAGpu(TorchFunctionMode):
    """Strides that the meta device computes otherwise than a GPU: channels-last goes through a convolution,
    and a batch norm of any other layout returns a contiguous tensor."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name.startswith("conv") and isinstance(result, torch.Tensor) and is_channels_last(args[0]):
            return result.contiguous(memory_format=CHANNELS_LAST[result.dim()])
        if name == "batch_norm" and not is_channels_last(args[0]):
            return result.contiguous()
        return result


# -- layouts -------------------------------------------------------------------------------------------


def _layouts(given: Sequence[Any]) -> Iterator[list[Any]]:
    """The inputs in other layouts: all of them, then one at a time where there are several."""
    places = [at for at, value in enumerate(given) if isinstance(value, torch.Tensor) and value.dim() > 1]
    groups = [places, *([place] for place in places if len(places) > 1)]
    made = 0
    for group in groups:
        for order in (_in_order, _channels_behind, _last_swapped, _first_swapped):
            changed = list(given)
            for place in group:
                changed[place] = _permuted(given[place], order(given[place].dim()))
            if all(changed[place] is given[place] for place in group):
                continue
            made += 1
            if made > MOST_RUNS:
                return
            yield changed


def _in_order(rank: int) -> list[int]:
    return list(range(rank))


def _channels_behind(rank: int) -> list[int]:
    return [0, *range(2, rank), 1] if rank in CHANNELS_LAST else _in_order(rank)


def _last_swapped(rank: int) -> list[int]:
    return [*range(rank - 2), rank - 1, rank - 2]


def _first_swapped(rank: int) -> list[int]:
    return [1, 0, *range(2, rank)] if rank > 2 else _in_order(rank)


def _permuted(tensor: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """``tensor``, or one with its dimensions in this order in memory, from the outermost to the innermost."""
    made = torch.empty([tensor.shape[dim] for dim in order], dtype=tensor.dtype, device=META)
    made = made.permute([order.index(dim) for dim in range(tensor.dim())])
    return tensor if _same(tensor, made.stride()) else made


# -- rules ---------------------------------------------------------------------------------------------


def _format(graph: Graph, place: int, own: Run, others: Sequence[Run], plain: bool) -> Output:
    mine = own.results[place]
    if all(_same(run.results[place], mine.stride()) for run in others):
        return Output(Format.FIXED)
    inputs = own.inputs if plain and mine.is_contiguous() else {}
    for rule in (Format.PRESERVED, Format.CHANNELS_LAST):
        for at in inputs:
            wanted = [_expected(rule, run.inputs[at], run.results[place]) for run in others]
            if all(
                strides is not None and _same(run.results[place], strides)
                for run, strides in zip(others, wanted, strict=True)
            ):
                return Output(rule, graph.value(str(graph.arguments[at])).path)
    return Output(Format.UNSTATED)


def _expected(rule: Format, given: torch.Tensor, result: torch.Tensor) -> Strides | None:
    """The strides that a result has by a rule; ``None`` where the rule cannot hold."""
    if rule is Format.PRESERVED:
        return torch.empty_like(given).stride() if given.shape == result.shape else None
    if given.dim() != result.dim() or given.dim() not in CHANNELS_LAST:
        return None
    form = CHANNELS_LAST[given.dim()] if is_channels_last(given) else torch.contiguous_format
    return torch.empty_like(result, memory_format=form).stride()


def _same(result: torch.Tensor, strides: Strides) -> bool:
    """Whether elements lie so: the stride of a dimension of 1 leads nowhere."""
    return all(
        size < 2 or found == wanted
        for size, found, wanted in zip(result.shape, result.stride(), strides, strict=True)
    )

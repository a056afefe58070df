"""What is known of a program before any kernel is written: its work, its shapes, its operations.

One forward at the task's own size on meta tensors, which have shapes and no data: nothing is
computed and no memory is taken.
"""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_leaves

from egg.core.errors import MachineError, TaskError
from egg.core.facts import GpuFacts, ProgramFacts
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task.program import HALF_DTYPES, Program, outputs_of
from egg.evaluator.task.rescale import PROBE_SECONDS, Meter, WholeRecurrence, on_meta
from egg.hardware.gpus import Gpu
from egg.hardware.roofline import compute_peak, effective_precision, floor_seconds

LONGEST_LIST = 40
"""Operations, or parameters, that are listed one by one; the rest are counted."""
LONGEST_VALUE = 60
"""Characters of a value that is not a tensor."""


def program_facts(task: Task) -> ProgramFacts | None:
    """One forward of ``task`` at its own size; ``None`` where it does not run on meta tensors in time."""
    try:
        with Program.load(task) as program, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _observed(program)
    except (TaskError, MachineError):
        return None


def gpu_facts(gpu: Gpu, precision: Precision, program: ProgramFacts | None) -> GpuFacts:
    """The target, with the peak rate and the roofline floor that the declared precision allows on it."""
    accuracy = _accuracy(precision, program)
    floor = None
    if program is not None:
        least = program.least_bytes / (2 if precision in HALF_DTYPES else 1)
        floor = floor_seconds(gpu, flops=program.flops, bytes=least, precision=accuracy) * 1e3
    return GpuFacts(
        name=gpu.name,
        arch=gpu.arch,
        sms=gpu.sms,
        shared_per_block=gpu.shared_per_block,
        registers_per_sm=gpu.registers_per_sm,
        l2_bytes=gpu.l2_bytes,
        bandwidth=gpu.bandwidth,
        peak_flops=compute_peak(gpu, accuracy),
        floor_milliseconds=floor,
    )


def _accuracy(precision: Precision, program: ProgramFacts | None) -> str:
    """The precision that results must reach, which chooses the roof.

    Under ``match`` the reference decides: by the narrowest floating dtype it handles, and, as
    cuDNN takes TF32 for fp32 convolutions unasked, by whether it convolves. A floor is a promise
    that nothing is faster, so in doubt the faster unit counts.
    """
    if precision is not Precision.MATCH or program is None:
        return precision.value
    dtypes = [getattr(torch, _dtype_name(line), None) for line in program.shapes]
    floating = [d for d in dtypes if isinstance(d, torch.dtype) and d.is_floating_point]
    narrowest = min(floating, key=lambda d: d.itemsize, default=torch.float32)
    library_error = 1.0 if any("convolution" in line for line in program.operations) else 0.0
    return effective_precision("match", dtype=str(narrowest), reference_error=library_error)


def _dtype_name(line: str) -> str:
    """``float32`` of ``x float32[16384, 1024]``."""
    return line.partition("[")[0].rpartition(" ")[2]


# -- one forward, watched --------------------------------------------------------------------------


def _observed(program: Program) -> ProgramFacts:
    module = on_meta(program)
    inputs = program.inputs(0, torch.device("meta"), Precision.MATCH)
    given = list(_named_inputs(module, inputs))
    meter = Meter(PROBE_SECONDS)
    operations = _Operations()
    with meter, operations, _WholeLayers(meter, operations):
        value = program.run(module, inputs)
    lone = not isinstance(value, list | tuple | Mapping)
    made = [("output" if lone else f"output.{name}", leaf) for name, leaf in outputs_of(value)]
    moved = [
        *(t for t in tree_leaves(inputs) if isinstance(t, torch.Tensor)),
        *module.parameters(),
        *(t for _, t in made if isinstance(t, torch.Tensor)),
    ]
    held = [_described(name, t) for name, t in (*module.named_parameters(), *module.named_buffers())]
    return ProgramFacts(
        flops=meter.flops,
        least_bytes=sum(t.numel() * t.element_size() for t in moved),
        shapes=(
            *(_described(name, leaf) for name, leaf in given),
            *_shortened(held, "parameters and buffers"),
            *(_described(name, leaf) for name, leaf in made),
        ),
        operations=_shortened(operations.lines, _kinds(operations.lines[LONGEST_LIST:])),
    )


def _named_inputs(module: nn.Module, inputs: list[Any]) -> Iterator[tuple[str, Any]]:
    """Each tensor or number that forward is given, by the argument's name and its place within it."""
    for argument, value in zip(_argument_names(module), inputs, strict=False):
        for path, leaf in tree_flatten_with_path(value)[0]:
            yield f"{argument}{keystr(path)}", leaf


def _argument_names(module: nn.Module) -> Iterator[str]:
    """Of forward; those of ``*rest`` are ``rest[0]``, ``rest[1]``, and so on without end."""
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        parameters = [inspect.Parameter("input", inspect.Parameter.VAR_POSITIONAL)]
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            yield from (f"{parameter.name}[{i}]" for i in itertools.count())
        yield parameter.name


def _described(name: str, leaf: Any) -> str:
    """``x float32[64, 128]``, with the strides where they are not the usual ones; ``eps float = 1e-05``."""
    if not isinstance(leaf, torch.Tensor):
        return f"{name} {type(leaf).__name__} = {repr(leaf)[:LONGEST_VALUE]}"
    text = f"{name} {str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
    usual = leaf.layout != torch.strided or leaf.is_contiguous()
    return text if usual else f"{text} with strides {list(leaf.stride())}"


def _shortened(lines: list[str], rest: str) -> tuple[str, ...]:
    """The first lines, and how many more there are of what."""
    more = len(lines) - LONGEST_LIST
    return tuple(lines) if more <= 0 else (*lines[:LONGEST_LIST], f"... and {more} more: {rest}")


def _kinds(lines: Iterable[str]) -> str:
    counted = Counter(line.partition(" ")[0] for line in lines)
    return ", ".join(f"{name} x{count}" for name, count in counted.most_common())


class _Operations(TorchDispatchMode):
    """Writes down every operation that does something: views and empty allocations do not."""

    IDLE = frozenset(
        {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view"}
    )

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        packet = func._overloadpacket
        if packet.__name__ not in self.IDLE and not _is_view(func):
            self.add(str(packet), out)
        return out

    def add(self, name: str, out: Any) -> None:
        shapes = [str(list(t.shape)) for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        self.lines.append(" ".join((name, ", ".join(shapes))).rstrip())


def _is_view(func: Any) -> bool:
    """Whether every result is memory of an argument that was not written."""
    aliases = [r.alias_info for r in func._schema.returns]
    return bool(aliases) and all(a is not None and not a.is_write for a in aliases)


class _WholeLayers(WholeRecurrence):
    """A recurrent layer or an attention is one operation of a library, whatever meta tensors make of it."""

    WHOLE = frozenset({*WholeRecurrence.STATES, "scaled_dot_product_attention"})

    def __init__(self, meter: Meter, operations: _Operations) -> None:
        super().__init__(meter)
        self._operations = operations

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        before = len(self._operations.lines)
        out = super().__torch_function__(func, types, args, kwargs)
        name = getattr(func, "__name__", "")
        if name in self.WHOLE:
            del self._operations.lines[before:]
            self._operations.add(f"aten.{name}", out)
        return out

"""Facts of a program and its target, known before any kernel is written: work, shapes, operations, floor.

The program's part is read off one forward at the task's own size on meta tensors
(``evaluator.task.workload``): nothing is computed and no memory is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from egg.analysis.savings import accuracy, narrowing, savings
from egg.core.errors import MachineError, TaskError
from egg.core.facts import Facts, GpuFacts, ProgramFacts, TensorForm, Workload
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task.traits import traits_of
from egg.evaluator.task.workload import Observed, observed
from egg.hardware.gpus import Gpu
from egg.hardware.roofline import compute_peak, floor_seconds

LONGEST_LIST = 40
"""Operations, or parameters, that are listed one by one; the rest are counted."""
LONGEST_VALUE = 60
"""Characters of a value that is not a tensor."""


def task_facts(task: Task, gpu: Gpu, precision: Precision) -> Facts:
    """Program and target, from one forward; without the program where it does not run on meta tensors."""
    seen = _seen(task)
    if seen is None:
        return Facts(gpu_facts(gpu, precision, None), None)
    program = facts_from(seen)
    return Facts(gpu_facts(gpu, precision, program, seen.workload), program)


def program_facts(task: Task) -> ProgramFacts | None:
    """One forward of ``task`` at its own size; ``None`` where it does not run on meta tensors in time."""
    seen = _seen(task)
    return None if seen is None else facts_from(seen)


def _seen(task: Task) -> Observed | None:
    try:
        return observed(task)
    except (TaskError, MachineError):
        return None


def gpu_facts(
    gpu: Gpu, precision: Precision, program: ProgramFacts | None, workload: Workload | None = None
) -> GpuFacts:
    """The target, with the peak rate and the roofline floor that the declared precision allows on it.

    With the ``workload`` behind ``program`` at hand it also holds what fusion could save.
    """
    dtypes = [] if program is None else [_dtype_name(line) for line in program.shapes]
    convolves = program is not None and any("convolution" in line for line in program.operations)
    grade = accuracy(precision.value, dtypes, convolves) if program is not None else precision.value
    floor = None
    if program is not None:
        least = program.least_bytes / narrowing(precision.value, dtypes)
        floor = floor_seconds(gpu, flops=program.flops, bytes=least, precision=grade) * 1e3
    return GpuFacts(
        name=gpu.name,
        arch=gpu.arch,
        sms=gpu.sms,
        shared_per_block=gpu.shared_per_block,
        registers_per_sm=gpu.registers_per_sm,
        l2_bytes=gpu.l2_bytes,
        bandwidth=gpu.bandwidth,
        peak_flops=compute_peak(gpu, grade),
        floor_milliseconds=floor,
        savings=None if workload is None else savings(workload, gpu, precision.value),
    )


def _dtype_name(line: str) -> str:
    """``float32`` of ``x float32[16384, 1024]``."""
    return line.partition("[")[0].rpartition(" ")[2]


# -- in words --------------------------------------------------------------------------------------


def facts_from(seen: Observed) -> ProgramFacts:
    """A forward that was seen, as lines of text and sums."""
    work = seen.workload
    held = [_described(name, form) for name, form in work.parameters.items()]
    return ProgramFacts(
        flops=work.flops,
        least_bytes=work.least_bytes,
        shapes=(
            *(_described(name, leaf) for name, leaf in seen.arguments),
            *_shortened(held, "parameters and buffers"),
            *(_described(name, leaf) for name, leaf in seen.results),
        ),
        operations=_shortened(seen.lines, _kinds(seen.lines[LONGEST_LIST:])),
        flops_by_family=work.flops_by_family,
        eager_bytes=work.eager_bytes,
        eager_launches=work.eager_launches,
        traits=traits_of(work),
    )


def _described(name: str, leaf: TensorForm | str) -> str:
    """``x float32[64, 128]``, with the strides where they are not the usual ones; ``eps float = 1e-05``."""
    if isinstance(leaf, str):
        kind, _, value = leaf.partition(" = ")
        return f"{name} {kind} = {value[:LONGEST_VALUE]}"
    text = f"{name} {leaf.dtype}{list(leaf.shape)}"
    return text if leaf.strides is None else f"{text} with strides {list(leaf.strides)}"


def _shortened(lines: Iterable[str], rest: str) -> tuple[str, ...]:
    """The first lines, and how many more there are of what."""
    lines = tuple(lines)
    more = len(lines) - LONGEST_LIST
    return lines if more <= 0 else (*lines[:LONGEST_LIST], f"... and {more} more: {rest}")


def _kinds(lines: Iterable[str]) -> str:
    counted = Counter(line.partition(" ")[0] for line in lines)
    return ", ".join(f"{name} x{count}" for name, count in counted.most_common())

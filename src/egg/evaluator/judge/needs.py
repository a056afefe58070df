"""How much GPU memory judging a question will take, predicted from its shapes before any of it is allocated.

The multiples are those that ``tests/evaluator/test_memory_of_the_judge.py`` measures, taken
apart into what they consist of; what shapes do not show (a library's workspace, what
fragmentation wastes, a reference that keeps names for its intermediates) is a margin. Too much
means that fewer questions are judged at a time, too little that one is judged twice.
"""

from __future__ import annotations

from egg.core.facts import Workload
from egg.core.source import Task
from egg.evaluator.reference.reserve import MOST, RESERVE_BYTES
from egg.evaluator.task.workload import workload
from egg.evaluator.trial.buffers import SET_SHARE
from egg.evaluator.trial.deferred import DEFERRED_BYTES

GIB = 1 << 30
CONTEXTS = 2 * GIB + GIB // 2
"""Of the oracle and of the candidate: libraries, kernels, the buffer that flushes the L2, workspaces."""
MARGIN = 1.25


def bytes_needed(task: Task, sets: int, total: int) -> int | None:
    """For judging ``task`` on a GPU of ``total`` bytes with so many sets of inputs, or as many as fit there.

    ``None`` where it does not run on meta tensors, or its work there is unknown.
    """
    try:
        return needed(workload(task), sets, total)
    except Exception:  # the task's or ours: a need that is unknown does not prevent judging
        return None


def needed(work: Workload, sets: int, total: int) -> int:
    """The oracle's and the candidate's peak together."""
    inputs = sum(form.bytes for form in work.inputs.values())
    outputs = sum(form.bytes for form in work.outputs.values())
    weights = sum(form.bytes for form in work.parameters.values())
    sets = max(1, min(sets, total // (SET_SHARE * max(inputs + outputs, 1))))
    made = max(most_alive(work), outputs)
    shared = sets * (inputs + outputs) + weights
    private = sets * inputs
    fp64 = 2 * (inputs + made + weights)
    reference = made + 2 * outputs
    modules = 5 * weights  # the reference's, as it was built, up to two of the opponents, and their weights
    spare = max(
        2 * inputs, 3 * min(MOST * inputs, RESERVE_BYTES)
    )  # draws: shared, ours, and small ones theirs
    candidate = sets * inputs + 2 * made + outputs + 2 * weights
    deferred = min(DEFERRED_BYTES, 48 * (inputs + outputs))
    peak = shared + private + fp64 + reference + modules + candidate + spare
    return int(MARGIN * peak) + deferred + CONTEXTS


def most_alive(work: Workload) -> int:
    """Bytes of the values that the forward makes, at the moment when most of them are still to be read."""
    sizes: dict[int, int] = {}
    last: dict[int, int] = dict.fromkeys(work.kept, len(work.operations))
    for index, operation in enumerate(work.operations):
        for form, value in zip(operation.outputs, operation.writes, strict=False):
            sizes[value] = max(sizes.get(value, 0), form.bytes)
        for value in (*operation.reads, *operation.writes):
            last[value] = max(last.get(value, 0), index)
    dying: dict[int, int] = {}
    for value, index in last.items():
        dying[index] = dying.get(index, 0) + sizes.get(value, 0)
    alive = most = 0
    born: set[int] = set()
    for index, operation in enumerate(work.operations):
        fresh = set(operation.writes) - born
        born |= fresh
        alive += sum(sizes.get(value, 0) for value in fresh)
        most = max(most, alive)
        alive -= dying.get(index, 0)
    return most

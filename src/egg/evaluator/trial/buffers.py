"""Memory that both sides of a trial see: sets of inputs and outputs, the weights, and a reserve of draws.

The judge owns it and lays everything into it; a candidate's process opens it and delivers its outputs there.
What is compared is what lies here, never what the process reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from egg.core.errors import MachineError, TaskError
from egg.evaluator.reference.case import Case
from egg.evaluator.reference.reference import Reference
from egg.evaluator.reference.reserve import Reserve, how_many
from egg.evaluator.task.attributes import unsaved_of
from egg.evaluator.tensors import memory
from egg.evaluator.transport import arena as arenas
from egg.evaluator.transport import protocol
from egg.evaluator.transport.arena import Arena, Layout
from egg.evaluator.transport.slots import Slot
from egg.evaluator.transport.together import Group
from egg.evaluator.trial.surroundings import Surroundings

CANDIDATE_SHARE = 3
"""How many times inputs, weights and outputs together a candidate must find free when it is called."""
SET_SHARE = 8
"""How many times inputs and outputs must be free for each set of them: so much does judging take."""


@dataclass(frozen=True)
class SlotSet:
    """Places for one set of inputs and the outputs computed from it."""

    inputs: tuple[Slot, ...]
    outputs: tuple[Slot | None, ...]
    """``None`` where the output is a plain number."""

    @classmethod
    def placed(cls, layout: Layout, case: Case, groups: Iterable[Group]) -> SlotSet:
        """One behind the other."""
        return cls(
            input_slots(layout, case.tensors, groups),
            tuple(
                layout.place(contiguous_form(leaf)) if isinstance(leaf, torch.Tensor) else None
                for _, leaf in case.outputs
            ),
        )


def input_slots(layout: Layout, tensors: Sequence[torch.Tensor], groups: Iterable[Group]) -> tuple[Slot, ...]:
    """Places for inputs: those of a group lie in one region, every other input has its own."""
    found: dict[int, Slot] = {}
    for group in groups:
        found.update(layout.place_group(group, tensors))
    for at, tensor in enumerate(tensors):
        if at not in found:
            found[at] = layout.place(tensor)
    return tuple(found[at] for at in range(len(tensors)))


class Buffers:
    """The shared memory of one trial, as many input sets as fit comfortably."""

    def __init__(self, reference: Reference, input_sets: int) -> None:
        self.reference, self.device = reference, reference.device
        self.sets: list[SlotSet] = []
        self.spare: list[tuple[Slot, ...]] = []
        self.weights: dict[str, Slot] = {}
        self.unsaved: dict[str, Slot] = {}
        self.bytes_per_call = 0
        self.reserve = Reserve(reference.kinds, reference.draw, self._lay_spare, 0)
        layout = self._plan(input_sets)
        try:
            self.arena: Arena = arenas.create(layout.size, self.device)
        except (torch.OutOfMemoryError, OSError) as error:
            raise MachineError(
                f"task {reference.program.task.name!r} needs {layout.size >> 20} MiB to share: {error}",
                "use a machine with more memory, or a smaller task",
            ) from error
        self.around = Surroundings(self.view, self.device)
        for slots in (*(placed.inputs for placed in self.sets), *self.spare):
            self.around.fill(slots)

    def _plan(self, input_sets: int) -> Layout:
        """Decide where everything lies."""
        sample, layout = self.reference.sample, Layout()
        results = [leaf for _, leaf in sample.outputs if isinstance(leaf, torch.Tensor)]
        one = sum(map(arenas.size_of, (*sample.tensors, *results)))
        sets = self._sets_that_fit(one, input_sets)
        kinds, groups = self.reference.kinds, self.reference.groups
        self.sets = [self._placed(layout, index) for index in range(sets)]
        given = sum(map(arenas.size_of, sample.tensors))
        self.spare = [input_slots(layout, sample.tensors, groups) for _ in range(how_many(kinds, given))]
        self.reserve = Reserve(self.reference.kinds, self.reference.draw, self._lay_spare, len(self.spare))
        self.weights = {name: layout.place(value) for name, value in self.reference.initial.items()}
        unsaved = unsaved_of(self.reference.module)
        self.unsaved = {name: layout.place(value) for name, value in unsaved.items()}
        self.bytes_per_call = one + sum(arenas.size_of(p) for p in self.reference.module.parameters())
        return layout

    def _placed(self, layout: Layout, index: int) -> SlotSet:
        """The set of that number."""
        return SlotSet.placed(layout, self.reference.sample, self.reference.groups)

    def _sets_that_fit(self, nbytes: int, wanted: int) -> int:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # the arena is no part of PyTorch's memory
        memory.make_room(self.device, SET_SHARE * wanted * nbytes)
        free = memory.free_bytes(self.device)
        if free is None:
            return wanted
        return max(1, min(wanted, free // (SET_SHARE * max(nbytes, 1))))

    # laying inputs and weights

    def view(self, slot: Slot) -> torch.Tensor:
        return self.arena.view(slot)

    def place(self, case: Case, index: int = 0) -> None:
        """Lay a case's inputs into input set ``index``."""
        self._lay(self.sets[index].inputs, case.tensors)

    def _lay_spare(self, number: int, tensors: list[torch.Tensor]) -> None:
        self._lay(self.spare[number], tensors)

    def _lay(self, slots: tuple[Slot, ...], tensors: list[torch.Tensor]) -> None:
        self._surround(slots)
        for slot, tensor in zip(slots, tensors, strict=True):
            self.fill(slot, tensor)
        self.around.note(slots)
        self.synchronize()

    def _surround(self, slots: tuple[Slot, ...]) -> None:
        """Before values are laid: the pattern around them is there from the beginning, and stays."""

    def lay_weights(self, state: Mapping[str, torch.Tensor]) -> None:
        for name, tensor in state.items():
            self.fill(self.weights[name], tensor)
        self.synchronize()

    def lay_unsaved(self) -> None:
        for name, tensor in unsaved_of(self.reference.module).items():
            self.fill(self.unsaved[name], tensor)
        self.synchronize()

    def fill(self, slot: Slot, tensor: torch.Tensor) -> None:
        if tuple(tensor.shape) != slot.shape or str(tensor.dtype) != f"torch.{slot.dtype}":
            raise TaskError(
                f"task {self.reference.program.task.name!r}: get_inputs() returns another shape each time",
                "inputs must have the same shapes and dtypes on every call",
            )
        view = self.view(slot)
        if any(stride == 0 and size > 1 for size, stride in zip(slot.shape, slot.stride, strict=True)):
            span = slot.nbytes // view.element_size() - slot.lead
            view.as_strided((span,), (1,)).copy_(tensor.as_strided((span,), (1,)))
        else:
            view.copy_(tensor)

    # outputs

    def poison(self, index: int) -> None:
        for slot in self.sets[index].outputs:
            if slot is not None:
                arenas.poison(self.view(slot))
        self.synchronize()

    def outputs(self, index: int = 0) -> list[torch.Tensor | None]:
        """What the candidate delivered, as it lies in the judge's memory."""
        return [self.view(slot) if slot else None for slot in self.sets[index].outputs]

    def snapshot(self, index: int = 0) -> list[torch.Tensor | None]:
        return [None if value is None else value.clone() for value in self.outputs(index)]

    # as a request names them

    def call_set(self, case: Case, index: int) -> protocol.CallSet:
        """Where the inputs of ``case`` lie, and where its outputs go."""
        return protocol.CallSet(case.structure, self.sets[index].inputs, self.sets[index].outputs)

    def session(self, cases: list[Case], moves: protocol.Json, seeds: list[int]) -> protocol.Session:
        """Calls that rotate over the sets of ``cases``, on values out of the reserve."""
        sets = tuple(self.call_set(case, index) for index, case in enumerate(cases))
        return protocol.Session(sets, moves, tuple(self.spare[: len(self.reserve.draws)]), tuple(seeds))

    # room beside it

    def make_room(self) -> None:
        """Before the candidate is called: what the judge merely caches is memory it may need."""
        memory.make_room(self.device, CANDIDATE_SHARE * self.bytes_per_call)

    @property
    def ample_bytes(self) -> int:
        """With so much free, caches may stay: an fp64 run fits, and the candidate's."""
        return (SET_SHARE + CANDIDATE_SHARE) * self.bytes_per_call

    def roomy(self) -> bool:
        free = memory.free_bytes(self.device)
        return free is None or free >= self.ample_bytes

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def close(self) -> None:
        self.arena.close()


def contiguous_form(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")

"""One evaluation in progress: the reference with its secrets on one side, the candidate on the other.

The :class:`Trial` lays inputs and weights into shared memory, asks the candidate's process, and
compares what it delivers there. It is the only place where the two sides meet. Gates use it
and raise :class:`Refused`; what the process does wrong arrives as a
:class:`~egg.evaluator.process.handle.Fault`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from egg.core.errors import MachineError, TaskError
from egg.core.evaluation import Verified
from egg.core.policy import Policy
from egg.core.resources import KernelResources
from egg.core.source import Candidate
from egg.evaluator.compare.compare import NOT_KNOWN, LeafError, Usual, Worst, compare
from egg.evaluator.process.handle import ForkServer, WorkerHandle
from egg.evaluator.process.patterns import compiler_target
from egg.evaluator.process.sharing import Sharing, Unshared
from egg.evaluator.reference.reference import Case, Reference, finite_share, same_values
from egg.evaluator.reference.reserve import Reserve, how_many
from egg.evaluator.task.program import Program, outputs_of
from egg.evaluator.task.seeds import BUILD_SEED
from egg.evaluator.tensors import memory
from egg.evaluator.timing.contenders import SideBySide
from egg.evaluator.timing.opponents import Opponents
from egg.evaluator.transport import arena as arenas
from egg.evaluator.transport import exchange
from egg.evaluator.transport.arena import Arena, Layout, Slot
from egg.evaluator.trial.levels import LevelSettings
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.watch import Watch
from egg.evaluator.worker.outputs import aliases
from egg.hardware.gpus import Gpu

COPY_SECONDS = 60.0
BUILDING = ("load", "fresh")
"""Requests that build a module, with its random weights, on the CPU."""
CANDIDATE_SHARE = 3
"""How many times inputs, weights and outputs together a candidate must find free when it is called."""
EXPLICABLE = 0.25
"""A relative rms error beyond this is no rounding, however the program amplifies it."""
SET_SHARE = 8
"""How many times inputs and outputs must be free for each set of them: so much does judging take."""


@dataclass(frozen=True)
class SlotSet:
    """Places for one set of inputs and the outputs computed from it."""

    inputs: list[Slot]
    outputs: list[Slot | None]
    """``None`` where the output is a plain number."""


@dataclass
class Offline:
    """What judging without a GPU needs besides: the task at full size and a process to compile in."""

    full: Program
    forkserver: ForkServer
    target: Gpu
    changes: Mapping[str, Any]
    """How the task was rescaled for the interpreter; empty where it was not."""
    worker: WorkerHandle | None = None
    """The process that compiled the candidate, where one did."""
    sizes: Iterator[Any] = field(default_factory=lambda: iter(()))
    """Other sizes at which the task may be judged, where the file does not run at this one."""
    compiled: bool = False
    """Whether the candidate was captured at full size, or could not be."""
    uncompiled: str = ""
    """Why it could not be."""
    faults: tuple[Mapping[str, str], ...] = ()
    """What is wrong at full size, read without running anything: reason and evidence."""
    own_sizes: str = ""
    """The shapes of the task's own inputs, for a person."""
    kernels: tuple[str, ...] = ()
    """Own kernels that forward launches at full size."""
    ops: Mapping[str, int] = field(default_factory=dict)
    """PyTorch's operations at full size."""

    def compiler_target(self) -> dict[str, Any]:
        return compiler_target(self.target)


@dataclass
class Trial:
    """Both sides of one evaluation, and the memory between them."""

    reference: Reference
    candidate: Candidate
    policy: Policy
    settings: LevelSettings
    forkserver: ForkServer
    gpu: Gpu | None = None
    """The GPU that measures, or the one compiled for; ``None`` where the table does not know it."""
    restricted: bool = True
    """Whether the candidate runs under guards; not where the static gate is left out on request."""
    offline: Offline | None = None
    """Set on a machine without a GPU."""
    opponents: Opponents | None = None
    """Set on a machine with one."""
    sharing: Sharing = field(default_factory=Unshared)
    """The judge's place on its GPU."""
    sketch_seed: int = field(default_factory=lambda: secrets.randbits(31))
    """Where outputs are sampled to recognise them."""
    watch: Watch | None = None
    """Since the provenance gate: what every call is held to."""
    worker: WorkerHandle | None = None
    names: dict[str, str] = field(default_factory=dict)
    """The candidate's parameter names, each with the reference's name for it."""
    worst: Worst = field(default_factory=Worst)
    usual: dict[int, Usual] = field(default_factory=dict)
    """The reference's own error at the task's own call, by the output's place."""
    provenance: dict[str, Any] = field(default_factory=dict)
    measured: dict[str, Any] = field(default_factory=dict)
    kernels: tuple[KernelResources, ...] = ()
    """Of the candidate's own kernels, as its process describes them: information, not evidence."""
    timed: list[Case] = field(default_factory=list)
    """The questions that lie in the input sets while the candidate is timed, from one gate to the next."""
    deferred: list[tuple[Case, list[torch.Tensor | None]]] = field(default_factory=list)
    """Copies of timed questions and of what was delivered, to be checked later."""
    verified: Verified | None = None
    """What was tried beside the task's own call."""
    fenced: bool = False
    """Whether a new process was judged in fenced memory: one regrade less is needed."""
    side_by_side: SideBySide = field(default_factory=SideBySide)
    """Other files that run beside the candidate, where they are to be ranked."""

    def __post_init__(self) -> None:
        self._arena = self._plan(self.reference.sample)

    @property
    def device(self) -> torch.device:
        return self.reference.device

    @property
    def warnings(self) -> list[str]:
        return self.reference.warnings

    # the memory between the two sides

    def _plan(self, sample: Case) -> Arena:
        """Decide where everything lies: as many input sets as fit comfortably, and the weights."""
        results = [leaf if isinstance(leaf, torch.Tensor) else None for _, leaf in sample.outputs]
        one = sum(arenas.size_of(t) for t in (*sample.tensors, *results) if t is not None)
        layout = Layout()
        self.sets = [
            SlotSet(
                [layout.place(tensor) for tensor in sample.tensors],
                [None if leaf is None else layout.place(contiguous_form(leaf)) for leaf in results],
            )
            for _ in range(self._sets_that_fit(one))
        ]
        given = sum(map(arenas.size_of, sample.tensors))
        spare = [
            [layout.place(tensor) for tensor in sample.tensors]
            for _ in range(how_many(self.reference.kinds, given))
        ]
        self._spare = spare
        self.reserve = Reserve(self.reference.kinds, self.reference.draw, self._lay_spare, len(spare))
        self.weights = {name: layout.place(value) for name, value in self.reference.initial.items()}
        self.bytes_per_call = one + sum(arenas.size_of(p) for p in self.reference.module.parameters())
        try:
            return arenas.create(layout.size, self.device)
        except (torch.OutOfMemoryError, OSError) as error:
            raise MachineError(
                f"task {self.reference.program.task.name!r} needs {layout.size >> 20} MiB to share: {error}",
                "use a machine with more memory, or a smaller task",
            ) from error

    def _sets_that_fit(self, nbytes: int) -> int:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # the arena is no part of PyTorch's memory
        memory.make_room(self.device, SET_SHARE * self.settings.input_sets * nbytes)
        free = memory.free_bytes(self.device)
        if free is None:
            return self.settings.input_sets
        return max(1, min(self.settings.input_sets, free // (SET_SHARE * max(nbytes, 1))))

    def view(self, slot: Slot) -> torch.Tensor:
        return self._arena.view(slot)

    def place(self, case: Case, index: int = 0) -> None:
        """Lay a case's inputs into input set ``index``."""
        for slot, tensor in zip(self.sets[index].inputs, case.tensors, strict=True):
            self._fill(slot, tensor)
        self._synchronize()

    def _lay_spare(self, number: int, tensors: list[torch.Tensor]) -> None:
        for slot, tensor in zip(self._spare[number], tensors, strict=True):
            self._fill(slot, tensor)
        self._synchronize()

    def spare_slots(self) -> list[list[Any]]:
        """Where the draws of the reserve lie, as far as there are any."""
        return [[slot.to_json() for slot in slots] for slots in self._spare[: len(self.reserve.draws)]]

    def _fill(self, slot: Slot, tensor: torch.Tensor) -> None:
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

    def poison(self, index: int) -> None:
        for slot in self.sets[index].outputs:
            if slot is not None:
                arenas.poison(self.view(slot))
        self._synchronize()

    def outputs(self, index: int = 0) -> list[torch.Tensor | None]:
        """What the candidate delivered, as it lies in the oracle's memory."""
        return [self.view(slot) if slot else None for slot in self.sets[index].outputs]

    def snapshot(self, index: int = 0) -> list[torch.Tensor | None]:
        return [None if value is None else value.clone() for value in self.outputs(index)]

    # asking the candidate

    def make_room(self) -> None:
        """Before the candidate is called: what the oracle merely caches is memory it may need."""
        memory.make_room(self.device, CANDIDATE_SHARE * self.bytes_per_call)

    @property
    def ample_bytes(self) -> int:
        """With so much free, nobody need give back what he caches: an fp64 run fits, and the candidate's."""
        return (SET_SHARE + CANDIDATE_SHARE) * self.bytes_per_call

    def roomy(self) -> bool:
        free = memory.free_bytes(self.device)
        return free is None or free >= self.ample_bytes

    def start(self, **warm: Any) -> Mapping[str, Any]:
        """Bear a fresh worker, open the arena there, import the candidate and build ``ModelNew``."""
        self.worker = self.forkserver.worker(**warm)
        self.forkserver.prepare()
        self.request("attach", COPY_SECONDS, self._arena.fds(), handle=self._arena.handle())
        return self.request("load", self.settings.build_seconds, **self.load_request(self.reference.program))

    def load_request(self, program: Program) -> dict[str, Any]:
        """What a worker needs to import the candidate and build it as ``program`` is built."""
        return {
            "source": self.candidate.source,
            "init": exchange.whole(program.init_arguments()),
            "seed": BUILD_SEED,
            "precision": self.policy.precision.value,
            "target": self.offline and self.offline.compiler_target(),
            "restricted": self.restricted,
        }

    def check_integrity(self) -> None:
        """Refuse a candidate that patched what the judge relies on in its process."""
        changed = self.request("integrity", COPY_SECONDS, keep_cache=True)["changed"]
        if changed:
            raise Refused(
                "provenance.patched", f"the candidate's process changed {', '.join(changed)}",
                "assign only to attributes of the file's own objects",
            )  # fmt: skip

    def restart(self, **warm: Any) -> None:
        """A new process for the same candidate, with the parameters agreed on."""
        if self.process.alive:
            self.check_integrity()
        self.process.end()
        self.start(**warm)
        self.share_weights()

    @property
    def process(self) -> WorkerHandle:
        assert self.worker is not None, "the candidate was not started"
        return self.worker

    def request(
        self, command: str, timeout: float | None = None, fds: tuple[int, ...] = (), **arguments: Any
    ) -> dict[str, Any]:
        self.sharing.give_way()
        with self.yielding() if command in BUILDING else nullcontext():
            return self.process.request(command, timeout or self.settings.call_seconds, fds, **arguments)

    def yielding(self) -> AbstractContextManager[None]:
        """For work that mostly leaves the GPU alone; whoever measures there does not wait for its end."""
        return self.sharing.apart(noisy=True) if self.settings.yields else nullcontext()

    def agree_on(self, names: dict[str, str]) -> None:
        """Settle which of the candidate's parameters is which of the reference's, and share them."""
        self.names = names
        self.share_weights()

    def share_weights(self) -> None:
        """Give the candidate the weights the reference holds now."""
        for name, tensor in self.reference.module.state_dict().items():
            self._fill(self.weights[name], tensor)
        self._synchronize()
        if self.names:
            self.request("weights", COPY_SECONDS, names=self.names, slots=self._weight_slots())

    def reweigh(self) -> None:
        self.reference.reweigh()
        self.share_weights()

    def other_weights(self) -> None:
        """Secret weights, where the reference still has an answer under them; else those as built.

        What a weight is as built (a gate of zero, a gain of one) must not spare a candidate any work.
        """
        self.reference.reweigh()
        if (
            2 * finite_share(outputs_of(self.reference.run(self.reference.draw())))
            < self.reference.finite_share
        ):
            self.reference.restore()
        self.share_weights()

    def restore_weights(self) -> None:
        self.reference.restore()
        self.share_weights()

    def candidate_state(self) -> dict[str, torch.Tensor]:
        """The candidate's own values of the agreed parameters, as it built them."""
        self.request("state", COPY_SECONDS, names=self.names, slots=self._weight_slots())
        return {theirs: self.view(self.weights[theirs]).clone() for theirs in self.names.values()}

    def _weight_slots(self) -> dict[str, Any]:
        return {name: slot.to_json() for name, slot in self.weights.items()}

    def fresh(self, **changes: Any) -> Mapping[str, Any]:
        """Replace the candidate's instance by a new one with the current weights, or one built otherwise."""
        return self.request("fresh", self.settings.build_seconds, **changes)

    def ask(self, case: Case, index: int = 0, **options: Any) -> dict[str, Any]:
        """Have the candidate answer the inputs that lie in set ``index``; its outputs are poisoned first."""
        self.make_room()
        self.poison(index)
        reply = self.request("forward", **self.set_request(case, index), seed=case.seed, **options)
        if "skip" not in options:
            self.see(reply)
        return reply

    def see(self, reply: Mapping[str, Any]) -> None:
        """Hold one call to the rules on whose work it is."""
        if self.watch is not None:
            self.watch.see(reply)

    def set_request(self, case: Case, index: int) -> dict[str, Any]:
        """Where the inputs of ``case`` lie, and where its outputs go."""
        return {
            "inputs": case.structure,
            "slots": [slot.to_json() for slot in self.sets[index].inputs],
            "outputs": self.output_slots(index),
        }

    def output_slots(self, index: int) -> list[Any]:
        return [slot and slot.to_json() for slot in self.sets[index].outputs]

    # comparing

    def check(self, case: Case, reply: Mapping[str, Any] | None, index: int = 0) -> None:
        """Form first, then every value of every output; raises :class:`Refused` at the first fault.

        Without a ``reply`` only what lies in memory is checked: the form was, before.
        """
        numbers = None if reply is None else self.check_form(case, reply["outputs"])
        self.check_values(case, self.outputs(index), numbers)

    def check_values(
        self, case: Case, delivered: list[torch.Tensor | None], numbers: list[float | None] | None = None
    ) -> None:
        """Every value of every output that was ``delivered``, and the plain ``numbers`` if there are any."""
        plain: Sequence[float | None] = numbers or [None] * len(case.outputs)
        self.worst.checks += 1
        for position, ((path, expected), (_, golden)) in enumerate(
            zip(case.outputs, case.golden, strict=True)
        ):
            got = delivered[position] if isinstance(expected, torch.Tensor) else plain[position]
            if got is None:
                continue
            error = self._error(case, position, got, expected, golden)
            self.worst.take(error, own=case.own)
            if case.own:
                before = self.usual.get(position, NOT_KNOWN)
                self.usual[position] = Usual(
                    max(before.max, error.reference_peak),
                    max(before.rms, error.reference_relative),
                    max(before.lost, error.reference_lost),
                )
            if not error.passed:
                raise self._wrong(case, path, error)

    def _error(self, case: Case, position: int, got: Any, expected: Any, golden: Any) -> LeafError:
        """By the ordinary rule; where it refuses what rounding could explain, with conditioning."""
        three = (tensor_of(got), tensor_of(expected), tensor_of(golden))
        error = compare(*three, self.policy.precision)
        if error.passed or error.problem or not error.relative < EXPLICABLE:
            return error
        return compare(*three, self.policy.precision, self.reference.moved(case)[position].times(case.leeway))

    def check_form(self, case: Case, described: list[dict[str, Any]]) -> list[float | None]:
        """Names, shapes, dtypes, devices and plain types as the reference's; returns the plain numbers."""
        names, wanted = [d["path"] for d in described], [path for path, _ in case.outputs]
        if names != wanted:
            raise Refused(
                "correctness.outputs", f"outputs {names} where the reference returns {wanted}",
                "return the same structure as Model.forward: same order, same keys",
            )  # fmt: skip
        for got, (path, expected) in zip(described, case.outputs, strict=True):
            for key, value in _form(expected).items():
                if got.get(key) != value:
                    raise Refused(
                        f"correctness.{key}", f"output {path}: {key} is {got.get(key)!r}, expected {value!r}",
                        "outputs must match the reference exactly in shape, dtype, device and plain type",
                    )  # fmt: skip
            if not isinstance(expected, torch.Tensor) and "number" not in got:
                raise Refused("correctness.number", f"output {path}: no number was given", "return a number")
        return [got.get("number") for got in described]

    def check_apart(self, case: Case, reply: Mapping[str, Any]) -> None:
        """Outputs lie in memory of their own where the reference's do."""
        usual = aliases(case.outputs, case.inputs, self.reference.module)
        for path, whose in reply["aliases"]:
            if [path, whose] not in usual:
                seen = f"output {path} shares its memory with {whose}, and the reference's does not"
                if whose == "itself":
                    seen = f"elements of output {path} lie in the same memory, and the reference's do not"
                raise Refused(
                    "state.aliased", f"{case.label}: {seen}",
                    "return tensors that are written in full, in memory of their own: no expanded view, no "
                    "tensor twice, no input or parameter",
                )  # fmt: skip

    def _wrong(self, case: Case, path: str, error: LeafError) -> Refused:
        if error.problem:
            return Refused(
                "correctness.values", f"{case.label}, output {path}: {error.problem}",
                "look at masks (a masked load without other= holds anything), at elements that no program "
                "writes, and at overflow",
            )  # fmt: skip
        if error.max_ratio <= 1.0 and error.rms_ratio <= 1.0:
            return Refused(
                "correctness.small_values",
                f"{case.label}, output {path}: {100 * error.lost:.2g}% of the elements are off by more than "
                "a hundredth of their own value, and the reference is not",
                "small elements count beside large ones: compute every element to its own precision",
                error.lost,
            )
        inaccurate = (
            f"too inaccurate for precision '{self.policy.precision.value}': accumulate in fp32, round TF32 "
            "operands to nearest, or declare another --precision"
        )
        return Refused(
            "correctness.error",
            f"{case.label}, output {path}: relative rms error {error.relative:.2e} where the reference has "
            f"{error.reference_relative:.2e}; {error.max_ratio:.1f}x the allowed max error, "
            f"{error.rms_ratio:.1f}x the allowed rms error",
            self._wrong_values() if error.relative > 1e-2 else inaccurate,
            error.relative,
        )

    def _wrong_values(self) -> str:
        """Where names differ, parameters were matched by their order: that may be the fault."""
        other = [f"{own} <- {theirs}" for own, theirs in self.names.items() if own != theirs]
        if not other:
            return "wrong values"
        return (
            f"wrong values; parameters were matched by order ({', '.join(other[:4])}) and hold Model's "
            "values as Model lays them out: keep its names and layout, and pack a transposed copy from them "
            "(keyed on `_version`, or in a load_state_dict hook)"
        )

    def check_inputs_unchanged(self, case: Case, index: int = 0) -> None:
        for slot, tensor in zip(self.sets[index].inputs, case.tensors, strict=True):
            if not same_values(self.view(slot), tensor):
                raise Refused(
                    "correctness.inputs", f"{case.label}: an input was changed by the candidate",
                    "write to new tensors; inputs belong to the caller",
                )  # fmt: skip

    def close(self) -> None:
        if self.worker is not None:
            self.worker.end()
        self._arena.close()
        if self.offline is not None:
            if self.offline.worker is not None:
                self.offline.worker.end()
            self.offline.full.unload()
            self.reference.program.unload()

    def sizes(self) -> str:
        """The shapes that are run, for a person; how they differ from the task's, where they do."""
        shapes = [
            f"{' x '.join(map(str, t.shape)) or 'a number'} {str(t.dtype).removeprefix('torch.')}"
            for t in self.reference.sample.tensors[:4]
        ]
        changes = self.offline.changes if self.offline is not None else {}
        rescaled = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in changes.items())
        return ", ".join(shapes) + (f"; rescaled: {rescaled}" if rescaled else "")

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _form(expected: Any) -> dict[str, Any]:
    """What must be said of an output that stands for ``expected``."""
    if not isinstance(expected, torch.Tensor):
        return {"type": "number"}
    return {
        "type": "Tensor",
        "shape": list(expected.shape),
        "dtype": str(expected.dtype),
        "device": expected.device.type,
        "layout": str(expected.layout),
    }


def tensor_of(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.tensor(float(value), dtype=torch.float64)


def contiguous_form(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")

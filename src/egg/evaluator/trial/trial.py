"""One evaluation in progress: the reference with its secrets on one side, the candidate on the other.

A :class:`Trial` holds both sides and what lies between them: shared memory
(:class:`~egg.evaluator.trial.buffers.Buffers`), the candidate's process
(:class:`~egg.evaluator.trial.connection.Connection`) and the checks of what it delivers
(:class:`~egg.evaluator.trial.checks.Checks`). Gates use these and raise
:class:`~egg.evaluator.trial.refused.Refused`; what the process does wrong arrives as a
:class:`~egg.evaluator.process.handle.Fault`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch

from egg.core.evaluation import Baseline, Interval, Provenance, Verified
from egg.core.policy import Policy
from egg.core.resources import KernelResources
from egg.core.source import Candidate
from egg.evaluator.process.handle import Fault, ForkServer, WorkerHandle
from egg.evaluator.process.patterns import compiler_target
from egg.evaluator.process.sharing import Sharing, Unshared
from egg.evaluator.reference.case import Case
from egg.evaluator.reference.reference import Reference
from egg.evaluator.reference.stateful import is_stateful
from egg.evaluator.task.program import Program
from egg.evaluator.task.rescale import Rescaled
from egg.evaluator.task.seeds import BUILD_SEED
from egg.evaluator.timing.contenders import SideBySide
from egg.evaluator.timing.opponents import Opponents
from egg.evaluator.transport import exchange, protocol
from egg.evaluator.trial.buffers import Buffers
from egg.evaluator.trial.checks import Checks
from egg.evaluator.trial.connection import Connection
from egg.evaluator.trial.levels import LevelSettings
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.watch import Watch
from egg.hardware.gpus import Gpu

Notes = dict[str, Any]
"""What a gate found, for the log: numbers and words that no later gate reads."""


@dataclass(frozen=True)
class Excluded:
    """The size at which other files are interpreted, where the domain that this one states excludes it."""

    size: Rescaled
    why: str

    def words(self) -> str:
        return ", ".join(f"{name} {old} -> {new}" for name, (old, new) in self.size.changes.items())


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
    sizes: Iterator[Rescaled] = field(default_factory=lambda: iter(()))
    """Other sizes at which the task may be judged, where the file does not run at this one."""
    captured: protocol.Captured | None = None
    """What the candidate launches at full size; ``None`` before it was captured."""
    own_sizes: str = ""
    """The shapes of the task's own inputs, for a person."""
    excluded: Excluded | None = None
    """A smaller size than any inside the domain that the file states."""
    too_large: str = ""
    """Why no size inside that domain can be interpreted; empty where one can."""
    own_run: str = ""
    """What was run at the task's own size, where none can be interpreted."""

    def compiler_target(self) -> protocol.Target:
        return compiler_target(self.target)


NOT_RUN = "not run: "
"""How :attr:`Trial.own_size` begins where nothing was run there."""


@dataclass(frozen=True)
class Measurement:
    """Times of the candidate and of its opponents, as far as the timing gates have come."""

    milliseconds: Interval
    baselines: tuple[Baseline, ...]
    noise_floor: float
    wall_milliseconds: float | None = None
    """Per call on the judge's own clock, since the clock gate."""
    wall_speedup: float | None = None
    floor_milliseconds: float | None = None
    """Of the roofline."""


@dataclass
class Trial:
    """Both sides of one evaluation, and what the gates have found so far."""

    reference: Reference
    candidate: Candidate
    policy: Policy
    settings: LevelSettings
    forkserver: ForkServer
    gpu: Gpu | None = None
    """The GPU that measures, or the one compiled for; ``None`` where the table does not know it."""
    restricted: bool = True
    """Whether the candidate runs under guards; not where the static gate is left out on request."""
    plan: bool = False
    """Whether the candidate is a recorded plan, which compares no values of tensors."""
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
    provenance: Provenance | None = None
    measured: Measurement | None = None
    """What the timing gates found; ``None`` where time was not measured."""
    kernels: tuple[KernelResources, ...] = ()
    """Of the candidate's own kernels, as its process describes them: information, not evidence."""
    timed: list[Case] = field(default_factory=list)
    """The questions that lie in the input sets while the candidate is timed, from one gate to the next."""
    deferred: list[tuple[Case, list[torch.Tensor | None]]] = field(default_factory=list)
    """Copies of timed questions and of what was delivered, to be checked later."""
    unasked: dict[str, str] = field(default_factory=dict)
    """Calls of the task itself that were not made, without a GPU, and why; the verdict lists them."""
    own_size: str = ""
    """Without a GPU: how much of the task was run at its own size, and why no more."""
    verified: Verified | None = None
    """What was tried beside the task's own call."""
    fenced: bool = False
    """Whether a new process was judged in fenced memory: one regrade less is needed."""
    asked: int = 0
    """Questions that were put to sets of inputs in turn."""
    side_by_side: SideBySide = field(default_factory=SideBySide)
    """Contenders, where files are to be ranked."""

    def __post_init__(self) -> None:
        self.buffers = self._make_buffers()
        self.connection = Connection(
            self.forkserver,
            self.settings,
            self.sharing,
            self.reference,
            self.buffers,
            partial(self.load_request, self.reference.program),
        )
        self.checks = self._make_checks()

    def _make_buffers(self) -> Buffers:
        return Buffers(self.reference, self.settings.input_sets)

    def _make_checks(self) -> Checks:
        return Checks(self.reference, self.policy, self.buffers)

    def parts(self) -> tuple[object, ...]:
        """What a verdict rests on: the trial, and its parts that answer, carry and compare."""
        return self, self.reference, self.buffers, self.connection, self.checks

    @property
    def device(self) -> torch.device:
        return self.reference.device

    @cached_property
    def follows(self) -> bool:
        """Whether answers follow from what earlier calls left in the module."""
        return is_stateful(self.reference)

    @property
    def warnings(self) -> list[str]:
        return self.reference.warnings

    def load_request(self, program: Program) -> protocol.Load:
        """What a worker needs to import the candidate and build it as ``program`` is built."""
        return protocol.Load(
            self.candidate.source,
            exchange.whole(program.init_arguments()),
            BUILD_SEED,
            self.policy.precision.value,
            self.offline and self.offline.compiler_target(),
            self.restricted,
            writes=self.reference.writes,
        )

    def agree_on(self, names: dict[str, str]) -> None:
        """Settle which of the candidate's parameters is which of the reference's, and share them."""
        self.checks.names = names
        self.connection.agree_on(names)

    def ask(
        self,
        case: Case,
        index: int = 0,
        options: protocol.Options | None = None,
        *,
        watched: bool = True,
    ) -> protocol.Forwarded:
        """Have the candidate answer the inputs that lie in set ``index``; its outputs are poisoned first.

        Where the call is not ``watched``, the rules on whose work it is are asked elsewhere.
        """
        chosen = options or protocol.Options()
        self.buffers.make_room()
        self.buffers.poison(index)
        call = self.buffers.call_set(case, index)
        reply = self.connection.request(protocol.Forward(call, case.seed, chosen))
        if not chosen.skip:
            if watched:
                self.see(reply.record)
            self.check_generator(case, reply)
        return reply

    def next_set(self) -> int:
        """Number of the inputs' set that the next question lies in: checked calls take turns as timed ones
        do, so that addresses do not tell the two apart."""
        self.asked += 1
        return self.asked % len(self.buffers.sets)

    def attempt(self, case: Case, options: protocol.Options) -> protocol.Forwarded | None:
        """The answer to inputs that the candidate may refuse; ``None`` where it raises, and lives on."""
        self.buffers.place(case)
        try:
            return self.ask(case, options=options)
        except Fault as fault:
            self.survive(fault)
            return None

    def survive(self, fault: Fault) -> None:
        """Go on with a new instance behind an exception of the candidate's own."""
        self.connection.survive(fault)
        self.level()

    def level(self) -> None:
        """Give both sides the reference's state, where answers follow from it.

        Plain attributes (a number that counts calls) begin anew on both.
        """
        if not self.follows:
            return
        if self.reference.leaves:
            self.reference.module = self.reference.anew()
            self.connection.fresh()
        self.connection.share_weights()

    def check_generator(self, case: Case, reply: protocol.Forwarded) -> None:
        """A program that draws behind this call draws other numbers where this one drew more, or fewer."""
        if case.stands and reply.stands != case.stands:
            raise Refused(
                "state.generator",
                "behind forward PyTorch's random generator stands elsewhere than behind Model's after the "
                "same seed: more random numbers are drawn, fewer, or in another order",
                "draw by the same functions, of the same sizes and in the same order as Model.forward, and "
                "nothing besides; a torch.Generator of the file's own is free",
            )
        if reply.drew and not self.reference.advances:
            raise Refused(
                "state.generator",
                "forward leaves PyTorch's random generator elsewhere than it found it, Model's does not",
                "draw nothing where the reference draws nothing; a torch.Generator of the file's own is free",
            )

    def see(self, record: protocol.Record) -> None:
        """Hold one call to the rules on whose work it is."""
        if self.watch is not None:
            self.watch.see(record)

    def check(self, case: Case, reply: protocol.Forwarded, index: int = 0) -> Case:
        """What one call delivered: its form, and every value; returns the question with the answers that
        these agree with."""
        agreed = self.checks.check(case, reply.outputs, index)
        self.checks.check_returned(agreed, reply)
        return agreed

    def expect(self, case: Case, reply: protocol.Forwarded, reason: str, what: str, hint: str) -> None:
        """Check a call after ``what``, which a wrong answer is the fault of: it is refused as ``reason``."""
        try:
            self.check(case, reply)
        except Refused as wrong:
            if wrong.reason.startswith("provenance."):
                raise
            evidence = f"{what}, and the answer was wrong: {wrong.evidence}"
            raise Refused(reason, evidence, hint, facts=wrong.facts) from None

    def sizes(self) -> str:
        """The shapes that are run, for a person; how they differ from the task's, where they do."""
        shapes = [
            f"{' x '.join(map(str, t.shape)) or 'a number'} {str(t.dtype).removeprefix('torch.')}"
            for t in self.reference.sample.tensors[:4]
        ]
        changes = self.offline.changes if self.offline is not None else {}
        rescaled = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in changes.items())
        return ", ".join(shapes) + (f"; rescaled: {rescaled}" if rescaled else "")

    def close(self) -> None:
        self.connection.end()
        self.buffers.close()
        if self.offline is not None:
            if self.offline.worker is not None:
                self.offline.worker.end()
            self.offline.full.unload()
            self.reference.program.unload()

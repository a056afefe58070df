"""The trusted side of an evaluation: the task's own module, secret questions, and their answers.

Questions are drawn from seeds that no other process sees, after the candidate was loaded; each comes
with the reference's outputs under the declared precision and with those of an exacter run
(:mod:`egg.evaluator.reference.yardstick`), usually in fp64.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from egg.core.errors import MachineError, TaskError
from egg.core.policy import Precision
from egg.evaluator.reference import drawn
from egg.evaluator.reference.answers import (
    alike,
    far,
    finite_share,
    follows_seed,
    same_bytes,
    same_values,
)
from egg.evaluator.reference.case import Case
from egg.evaluator.reference.kinds import check_apart, kinds_of, renewed
from egg.evaluator.reference.limits import Asked
from egg.evaluator.reference.reserve import apart
from egg.evaluator.reference.snapshot import Snapshot
from egg.evaluator.reference.yardstick import (
    SINGLE,
    Draws,
    Recorded,
    Yardstick,
    candidates,
    converted,
    scope,
)
from egg.evaluator.task.attributes import Shown, shown_in, written
from egg.evaluator.task.containers import check_unchanged, contents
from egg.evaluator.task.distributions import redraw, rerandomise
from egg.evaluator.task.indices import in_range
from egg.evaluator.task.precision import precision_scope
from egg.evaluator.task.program import Program, form_of, map_tensors, outputs_of
from egg.evaluator.task.seeds import BUILD_SEED, FORWARD_SEED
from egg.evaluator.task.structure import plain, plain_tensor, structure_of
from egg.evaluator.task.written_inputs import answered, numbered, spared, versions_of
from egg.evaluator.tensors import generators, memory
from egg.evaluator.transport import exchange, together
from egg.evaluator.transport.freshen import Kind
from egg.evaluator.transport.together import Group

FURTHER = 2
"""Calls behind the first that are looked at for what they leave in attributes."""


@dataclass
class Reference:
    """The task's module on the judging device, under the declared precision.

    It keeps no case: inputs and outputs may be gigabytes, and the caller drops them in time.
    """

    program: Program
    precision: Precision
    device: torch.device
    warnings: list[str] = field(default_factory=list)
    stochastic: bool = False
    """Whether forward draws random numbers."""

    def __post_init__(self) -> None:
        self._reweighed = False
        self.module: nn.Module = self._built(BUILD_SEED)
        self.initial = {name: value.detach().clone() for name, value in self.module.state_dict().items()}
        self.finite_share = 1.0
        """Of the outputs for the task's own inputs: a mask may leave rows without a number."""
        self.kinds: list[Kind] = []
        """What the generator does to each input."""
        self.groups: tuple[Group, ...] = ()
        """Inputs that are parts of a storage."""
        self.advances = False
        """Whether forward leaves the random generators elsewhere than it found them."""
        self.asked = Asked()
        """What forward asks of its types."""
        self._drawing = False
        """Whether forward draws at all: it may do so from a seed of its own, or to no effect, and a run in
        another dtype draws other numbers."""
        self.leaves: tuple[str, ...] = ()
        """Plain attributes that forward sets or changes, by path."""
        self.moving: set[str] = set()
        """Buffers that forward changes."""
        self.writes: tuple[int, ...] = ()
        """Inputs that forward writes to, by number: what it leaves there is a part of the answer."""
        self._learning, self._late = True, set[int]()
        """While it is found out which these are, those that were found by their versions."""
        self._yardsticks: list[Yardstick] = [Yardstick.FP64]
        self._counts: drawn.Counts | None = None
        """What counts calls, once it was asked for."""
        self._trusted: Yardstick | None = None
        """A stand-in for the fp64 run that answered as the reference does, at some question."""
        self.sample = self._first_question()
        self._learning = False
        """What questions and answers look like: tensors on the meta device, which hold no values."""

    def case(self, label: str, distribution: str = "task", *, golden: bool = True) -> Case:
        """A fresh secret question under the weights the module holds now."""
        seed = secrets.randbits(48)
        inputs = redraw(
            self._inputs(seed), distribution, seed ^ 0x5EED
        )  # in one breath: a name for the first of the two would keep both
        own = distribution == "task" and not self._reweighed
        return self.answer(label, inputs, golden=golden, own=own)

    def draw(self) -> list[Any]:
        """Inputs of the task's own, from a secret seed."""
        return self._inputs(secrets.randbits(48))

    def _inputs(self, seed: int) -> list[Any]:
        return map_tensors(self.program.inputs(seed, self.device, self.precision), plain_tensor)

    def question(self, label: str, *, alone: bool = False) -> Case:
        """Inputs, for a question whose values will change before it is answered.

        Tensors that stand ``alone`` share no memory with one another, nor with what the task keeps.
        """
        inputs = apart(self.draw()) if alone else self.draw()
        return Case(label, inputs, *exchange.pack(inputs), outputs=[], golden=[])

    def answer(
        self,
        label: str,
        inputs: list[Any],
        *,
        golden: bool = True,
        own: bool = True,
        seed: int | None = None,
    ) -> Case:
        """The question ``inputs`` with the answers to it, under ``seed`` or a new secret one.

        An fp64 run comes first: it is the larger one, and its copies of the inputs are gone
        before the outputs take their place. One that repeats random draws must come second.
        """
        inputs = together.joined(inputs, self.groups)
        structure, tensors = exchange.pack(inputs)
        seed = secrets.randbits(31) if seed is None else seed
        began = Snapshot.of(self.module) if golden and (self.moving or self.leaves) else None
        if self._drawing and golden:
            draws = Draws()
            with Recorded(draws):
                result = self.run(inputs, seed)
            outputs, returned, stands = outputs_of(result), structure_of(result), self._stands()
            with self._back_at(began):
                by, exact = self._exact(inputs, outputs, draws, seed)
            return Case(
                label, inputs, structure, tensors, outputs, exact, own, draws, seed,
                yardstick=by, returned=returned, stands=stands,
            )  # fmt: skip
        by, exact, why = self.yardstick, [], ""
        wide = golden and by is Yardstick.FP64
        if wide and not self.asked.ever:
            exact, why = self._wide(inputs, seed)
        result = self.run(inputs, seed)
        outputs, returned, stands = outputs_of(result), structure_of(result), self._stands()
        with self._back_at(began):
            if wide and self.asked.ever:  # it is told what the reference asked
                exact, why = self._wide(inputs, seed)
            if wide and not why and not alike(outputs, exact):
                why = "it answers in another form"
            if why:
                self._give_up(why)  # not before: what the program itself does not take says nothing of it
            if golden and (why or by is not Yardstick.FP64):
                by, exact = self._exact(inputs, outputs, None, seed)
        return Case(
            label, inputs, structure, tensors, outputs, exact, own, seed=seed,
            yardstick=by, returned=returned, stands=stands,
        )  # fmt: skip

    def _stands(self) -> str:
        return generators.digest(self.device) if self.advances else ""

    def _wide(self, inputs: list[Any], seed: int) -> tuple[list[tuple[str, Any]], str]:
        """The answers of an fp64 run, or why there are none."""
        try:
            return self._measure(inputs, None, seed), ""
        except (TaskError, MachineError) as error:
            return [], str(error)

    @property
    def reweighed(self) -> bool:
        """Whether the weights are others than those as built."""
        return self._reweighed

    @property
    def learning(self) -> bool:
        """Whether under grad mode there is something to record: a weight or an input requires a gradient."""
        return any(tensor.requires_grad for tensor in (*self.module.parameters(), *self.sample.tensors))

    @property
    def yardstick(self) -> Yardstick:
        """What answers are measured by."""
        return self._yardsticks[0]

    def run(self, inputs: list[Any], seed: int = FORWARD_SEED) -> Any:
        """One forward under the declared precision."""

        def forward() -> Any:
            torch.manual_seed(seed)
            with precision_scope(self.precision), in_range(), self.asked.noted():
                return plain(self._called_with(self.module, inputs))

        return self.with_room(forward)

    def beside(self) -> Reference:
        """The same module for questions of another form: what they lack is lacking there only, and where
        inputs lie is a part of each."""
        twin = copy.copy(self)
        twin._yardsticks, twin.warnings, twin.groups = list(self._yardsticks), [], ()
        twin.asked = Asked(ever=self.asked.ever)
        return twin

    @contextmanager
    def in_mode(self, training: bool | None) -> Iterator[None]:
        """Meanwhile with the module in another mode; what it draws there is found out."""
        if training is None:
            yield
            return
        usual = [(part, part.training) for part in self.module.modules()]
        self.module.train(training)
        try:
            yield
        finally:
            for part, before in usual:
                part.training = before

    @contextmanager
    def spared(self) -> Iterator[Snapshot]:
        """Runs that leave the module's buffers and plain attributes as they were."""
        before = Snapshot.of(self.module)
        try:
            yield before
        finally:
            before.put_back()

    @contextmanager
    def _back_at(self, began: Snapshot | None) -> Iterator[None]:
        """Runs from the state in which the reference's own began; its module stays where that went."""
        if began is None:
            yield
            return
        with self.spared():
            began.put_back()
            yield

    def anew(self) -> nn.Module:
        """A module that was never called, with the weights of the one that was."""
        module = self._built(BUILD_SEED)
        module.load_state_dict(self.module.state_dict())
        return module

    def _built(self, seed: int) -> nn.Module:
        with precision_scope(self.precision):
            return self.program.build(seed, self.device, self.precision)

    def _called(self, module: nn.Module) -> None:
        """One forward of another module than the reference's own."""
        self.measured(module, self.draw(), Yardstick.ITSELF, None, FORWARD_SEED)

    def widen(self) -> None:
        """To float64, weights and buffers too."""
        self.module.double()
        self._yardsticks = list(candidates(stochastic=self._drawing, half=False))

    def draws(self, inputs: list[Any]) -> None:
        """Find out whether forward draws random numbers as the module is now, and choose a yardstick."""
        torch.manual_seed(FORWARD_SEED)
        seeded = generators.states(self.device)
        with self.spared():
            first = outputs_of(self.run(inputs))
        advances = generators.advanced(seeded, self.device)
        drawing = follows_seed(first, outputs_of(self.run(inputs, FORWARD_SEED + 1)), drawn=advances)
        if (drawing, drawing or advances) != (self.stochastic, self._drawing):
            self.stochastic, self._drawing = drawing, drawing or advances
            half = any(t.dtype in SINGLE for t in self.initial.values())
            self._yardsticks = list(candidates(stochastic=self._drawing, half=half))

    def reweigh(self, *, late: bool = True) -> None:
        """New generic weights, the same kind of numbers but none of the special ones.

        What is drawn and no such number is drawn anew, and what counts calls stands where it would
        very many calls later, or any number of them.
        """
        self._reweighed = True
        rerandomise(self.module, secrets.randbits(48))
        drawn.redraw(self.module, self.initial, self._built)
        if self._counts is None:
            twin = self.anew() if self.moving else self.module
            self._counts = drawn.counts(twin, self.moving, lambda: self._called(twin))
        self._counts.put(self.module, late=late)

    def other_weights(self) -> None:
        """New generic weights, where there is an answer to the task's own inputs under them."""
        self.reweigh(late=False)
        try:
            answered = finite_share(outputs_of(self.run(self.draw())))
        except TaskError:  # a table that the program looks up by what it computed of the weights
            answered = 0.0
        if 2 * answered < self.finite_share:
            self.restore()

    def restore(self) -> None:
        """Back to the weights the module was built with."""
        self._reweighed = False
        self.module.load_state_dict(self.initial)

    def state(self) -> dict[str, torch.Tensor]:
        """A copy of the weights and buffers as they are."""
        return {name: value.detach().clone() for name, value in self.module.state_dict().items()}

    def resume(self, state: dict[str, torch.Tensor]) -> None:
        """Back to other weights than those as built."""
        self._reweighed = True
        self.module.load_state_dict(state)

    def _first_question(self) -> Case:
        """Answer once, to learn what the task is like: shapes, randomness, whether it spares its inputs."""
        inputs = self.draw()
        structure, tensors = exchange.pack(inputs)
        if any(t.layout == torch.strided and (t.is_conj() or t.is_neg()) for t in tensors):
            raise TaskError(
                f"task {self.program.task.name!r}: get_inputs() returns a conjugate that is not carried out",
                "return x.conj().resolve_conj(): a kernel reads memory, where there is nothing of it",
            )
        before = [t.clone() for t in tensors]
        torch.manual_seed(FORWARD_SEED)
        seeded = generators.states(self.device)
        held = shown_in(self.module)
        with self.spared() as began:  # the second run begins where this one did
            result = self.run(inputs)
            self.leaves = written(held, shown_in(self.module))
            moved = began.moved()
        del began
        changed = {at for at, pair in enumerate(zip(before, tensors, strict=True)) if not same_values(*pair)}
        del before
        if changed := changed | self._late - {*self.writes}:
            self.writes = tuple(sorted({*self.writes, *changed}))
            return self._first_question()
        outputs = outputs_of(result)
        if not outputs:
            raise TaskError(
                f"task {self.program.task.name!r}: Model.forward returns nothing, and writes to no input",
                "return what it computes",
            )
        if any(isinstance(leaf, complex) for _, leaf in outputs):
            raise TaskError(
                f"task {self.program.task.name!r}: Model.forward returns a complex number of Python's",
                "return a tensor: its phase is compared too",
            )
        self.advances = generators.advanced(seeded, self.device)
        again = outputs_of(self.run(inputs, FORWARD_SEED + 1))
        if self.leaves or moved:
            self.leaves = self._left_later(held)
        self.stochastic = follows_seed(outputs, again, drawn=self.advances)
        self._drawing = self.stochastic or self.advances
        if self.stochastic:
            self.warnings.append(
                "the task draws random numbers in forward: both sides run after the same seed"
            )
        self.finite_share = finite_share(outputs)
        del again
        self.kinds = renewed(kinds_of(self.program, tensors, self.draw(), self.run), self.writes)
        self.groups = tuple(together.groups(tensors, self.kinds))
        check_apart(self.program, self.groups, self.writes)
        if self.writes:
            self.warnings.append(
                f"forward writes to {numbered(self.writes)}: what it leaves there is compared too"
            )
        self.moving = {
            name
            for name, value in self.module.state_dict().items()
            if not same_bytes(value, self.initial[name])
        }
        half = any(t.dtype in SINGLE for t in (*tensors, *self.initial.values()))
        self._yardsticks = list(candidates(stochastic=self._drawing, half=half))
        return Case(
            "sample",
            map_tensors(inputs, form_of),
            structure,
            [form_of(t) for t in tensors],
            [(path, form_of(o) if isinstance(o, torch.Tensor) else o) for path, o in outputs],
            golden=[],
        )

    def _left_later(self, held: dict[str, Shown | None]) -> tuple[str, ...]:
        """What a first and further calls leave, where some is there from the second call on."""
        found = [*self.leaves, *written(held, shown_in(self.module))]
        with self.spared():
            for _ in range(FURTHER):
                self.run(self.draw())
                found += written(held, shown_in(self.module))
        return tuple(dict.fromkeys(found))

    def _exact(
        self, inputs: list[Any], outputs: list[tuple[str, Any]], draws: Draws | None, seed: int
    ) -> tuple[Yardstick, list[tuple[str, Any]]]:
        """The answers of the best yardstick that there is, where it is not an ordinary fp64 run.

        One that is far from the reference computes something else, and is given up. Not so where it was near
        at another question: then these inputs are beyond what the program's own casts can hold (numbers that
        are zero in fp16), and the reference itself is the measure of this question alone.
        """
        if draws is not None and draws.other and self.yardstick in (Yardstick.DRAWS, Yardstick.FP32):
            self._yardsticks = [Yardstick.ITSELF]
        while self.yardstick is not Yardstick.ITSELF:
            try:
                exact = self._measure(inputs, draws, seed)
                if not far(outputs, exact):
                    self._trusted = self.yardstick
                    return self.yardstick, exact
                why = "it computes something else"
            except (TaskError, MachineError) as error:
                why = str(error)
            else:
                if self._trusted is self.yardstick:
                    break
            self._give_up(why)
        return Yardstick.ITSELF, outputs

    def _give_up(self, why: str) -> None:
        failed = self._yardsticks.pop(0)
        first = (why.splitlines() or [""])[0]
        self.warnings.append(f"no {failed} run ({first}): errors are measured by {self.yardstick}")

    def _measure(self, inputs: list[Any], draws: Draws | None, seed: int) -> list[tuple[str, Any]]:
        yardstick = self.yardstick

        def forward() -> Any:
            module, wide = converted(self.module, inputs, yardstick)
            return self.measured(module, wide, yardstick, draws, seed)

        return outputs_of(self.with_room(forward))

    def measured(
        self, module: nn.Module, inputs: list[Any], yardstick: Yardstick, draws: Draws | None, seed: int
    ) -> Any:
        """One forward of a converted ``module``, as the yardstick runs it."""
        torch.manual_seed(seed)
        precision = self.precision if yardstick is Yardstick.ITSELF else Precision.FP32
        with precision_scope(precision), scope(yardstick, draws, self.asked), in_range():
            return plain(self._called_with(module, inputs))

    def _called_with(self, module: nn.Module, inputs: list[Any]) -> Any:
        """What a module returns, and what it leaves in inputs that it writes to: in copies of these."""
        given = spared(inputs, self.writes)
        held, versions = contents(given), versions_of(given)
        returned = self.program.run(module, given)
        check_unchanged(self.program.task.name, held, given)
        late = {n for n, version in enumerate(versions_of(given)) if version != versions[n]} - {*self.writes}
        if late and not self._learning:
            raise TaskError(
                f"task {self.program.task.name!r}: Model.forward writes to {numbered(late)} at some calls",
                "write at each call what is to stand there, as torch.where gives it",
            )
        self._late |= late
        return answered(returned, given, self.writes)

    def with_room(self, forward: Callable[[], Any]) -> Any:
        """A forward that found no memory is tried once more, without the garbage."""
        try:
            return forward()
        except MachineError:
            pass  # and out of here: what was raised holds the frames, and those the tensors
        memory.collect(self.device)
        return forward()

"""Calls of the candidate: recorded, in a row, under the stopwatch, backwards, in part."""

from __future__ import annotations

import contextlib
import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch

from egg.evaluator.interpreter import undefined
from egg.evaluator.interpreter.session import by_lot, propagated
from egg.evaluator.operators.contributed import Draw
from egg.evaluator.operators.ops import Recorder
from egg.evaluator.operators.runs import Flow
from egg.evaluator.operators.sketches import Sketch, Sketcher
from egg.evaluator.task.gradients import differentiated
from egg.evaluator.task.structure import structure_of
from egg.evaluator.task.written_inputs import answered, only_read, written_of
from egg.evaluator.tensors import generators
from egg.evaluator.timing import stopwatch
from egg.evaluator.transport import arena as arenas
from egg.evaluator.transport import exchange, freshen, protocol
from egg.evaluator.transport.slots import Slot
from egg.evaluator.worker import faults
from egg.evaluator.worker.following import Following
from egg.evaluator.worker.held import state_of
from egg.evaluator.worker.hostreads import HostReads, recorded
from egg.evaluator.worker.launches import InterpretedLaunches
from egg.evaluator.worker.outputs import aliases, copy_out, kind_of, leaves_of, outlasting, shared_storages
from egg.evaluator.worker.pretend import ClaimCuda
from egg.evaluator.worker.settings import Settings, as_frozen, checked, frozen

MOST_NUMBERS = 2_000
"""That a call hands to the device, of which more are compared by a digest."""
MOST_WORDS = 10_000
"""Of a result's structure."""
MOST_COPIES, COPIED_BYTES = 4096, 64 << 20
"""Of inputs that are held at addresses of their own."""


class Calling(Following):
    """Requests that call the candidate."""

    def on_forward(self, asked: protocol.Forward) -> protocol.Forwarded:
        """One forward; its outputs are described, and copied where they fit.

        Every operator of PyTorch that it runs is recorded, and every value that the host reads.
        """
        assert self._launches is not None
        assert self._module is not None
        options, call, launches = asked.options, asked.call, self._launches
        if options.training is not None:
            self._module.train(options.training)
        launches.reset()
        launches.skip(set(options.skip))
        arguments = self._arguments(call.inputs, call.slots)
        filled = (arenas.poison if options.poison else torch.Tensor.zero_) if options.traced else None
        terms = options.sketch
        state = state_of(self._module)
        left = self._left() if options.left and isinstance(launches, InterpretedLaunches) else None
        filled = left.fresh if left is not None else filled
        flow = Flow(terms.runs, (arguments, state), terms.seed) if terms and terms.runs else None
        draw = Draw(options.follow) if options.follow is not None else None
        if draw is not None:
            draw.begin(arguments)
        writing = launches.around(self._written.launch) if draw is not None else contextlib.nullcontext()
        recorder = Recorder(
            fill_empties=filled,
            sketcher=Sketcher(terms.seed, terms.sizes) if terms else None,
            flow=flow or draw,
            given=arguments,
            launched=lambda: sum(launches.counts().values()),
            reader=left,
            numbers=options.handed,
        )
        torch.manual_seed(asked.seed)
        seeded = generators.states(self._device)
        extremes = propagated() if options.propagate else contextlib.nullcontext()
        drawn = by_lot(options.lot) if options.lot is not None else contextlib.nullcontext()
        answers = undefined.native() if options.native else contextlib.nullcontext()
        frozen = self._as_frozen(arguments, frozen=options.grad is protocol.GradMode.FROZEN)
        marked = left if left is not None else contextlib.nullcontext()
        counting = contextlib.nullcontext()
        if options.handed and isinstance(launches, InterpretedLaunches):
            counting = launches.counting()
        try:
            with frozen, extremes, drawn, answers, marked, counting, writing, recorder, HostReads() as reads:
                result = self._call_checked(arguments, options.grad)
            drew, stands = generators.advanced(seeded, self._device), generators.digest(self._device)
            self._synchronize()
        finally:
            launches.skip(set())
        self._give_back(call.slots)
        leaves = leaves_of(result)
        if draw is not None:
            draw.end([leaf for _, leaf in leaves])
            self._draws.append(draw)
        if options.grad is not protocol.GradMode.OFF:
            leaves = [(path, _detached(leaf)) for path, leaf in leaves]
        if options.keep:
            self._kept = outlasting(leaves, written_of(arguments, self._writes))
        return protocol.Forwarded(
            record=recorded(recorder, reads, launches),
            outputs=self._deliver(leaves, call.outputs),
            aliases=tuple(aliases(leaves, only_read(arguments, self._writes), self._module)),
            launched=launches.work(),
            threads=self._threads.started if self._threads else 0,
            sketches=tuple(map(_sketched, recorder.sketches)),
            moved=tuple(map(_sketched, recorder.moved_sketches)),
            drew=drew,
            found=_found(flow) if flow is not None else (),
            returned=structure_of(result)[:MOST_WORDS],
            handed=_shortened([*launches.numbers(), *recorder.numbers]) if options.handed else (),
            left=left.found if left is not None else "",
            stands=stands,
        )

    def on_excerpt(self, asked: protocol.Excerpt) -> protocol.Excerpted:
        """One forward in which long launches run some of their programs; what those wrote is marked."""
        from egg.evaluator.worker import excerpt

        launches = self._launches
        assert isinstance(launches, InterpretedLaunches)
        launches.reset()
        arguments = self._arguments(asked.call.inputs, asked.call.slots)
        left = self._left() if asked.left else None

        def filled(tensor: torch.Tensor) -> None:
            arenas.poison(tensor)
            if left is not None and asked.fresh:
                left.fresh(tensor)

        recorder = Recorder(
            fill_empties=filled,
            given=arguments,
            launched=lambda: sum(launches.counts().values()),
            reader=left,
        )
        torch.manual_seed(asked.seed)
        seeded = generators.states(self._device)
        watched = left if left is not None else contextlib.nullcontext()
        frozen = asked.grad is protocol.GradMode.FROZEN
        with self._as_frozen(arguments, frozen=frozen), HostReads() as reads, watched:
            ran, result = excerpt.run(
                launches, lambda: self._call_checked(arguments, asked.grad), recorder, brief=asked.brief
            )
        if ran.without:
            return protocol.Excerpted(without=ran.without)
        drew, stands = generators.advanced(seeded, self._device), generators.digest(self._device)
        leaves = leaves_of(result)
        if asked.keep:
            self._kept = outlasting(leaves, written_of(arguments, self._writes))
        self._lay(excerpt.marks(leaves, ran.partial), asked.masks)
        answered = self._forwarded(
            result, asked.call.outputs, arguments, recorded(recorder, reads, launches), drew=drew
        )
        answered = replace(answered, stands=stands, left=left.found if left is not None else "")
        return protocol.Excerpted("", tuple(ran.launches), ran.whole, answered)

    def _as_frozen(self, arguments: list[Any], *, frozen: bool) -> AbstractContextManager[Any]:
        """Entered before there is a recorder: what it computes is none of the file's."""
        assert self._module is not None
        return as_frozen(self._module, arguments) if frozen else contextlib.nullcontext()

    def _forwarded(
        self,
        result: Any,
        outputs: Sequence[Slot | None],
        arguments: list[Any],
        record: protocol.Record,
        *,
        drew: bool,
    ) -> protocol.Forwarded:
        """The reply to a call of which nothing is sketched."""
        assert self._launches is not None
        leaves = [(path, _detached(leaf)) for path, leaf in leaves_of(result)]
        return protocol.Forwarded(
            record=record,
            outputs=self._deliver(leaves, outputs),
            aliases=tuple(aliases(leaves, only_read(arguments, self._writes), self._module)),
            launched=self._launches.work(),
            threads=self._threads.started if self._threads else 0,
            sketches=(),
            moved=(),
            drew=drew,
            found=(),
            returned=structure_of(result)[:MOST_WORDS],
        )

    def on_gradients(self, asked: protocol.Gradients) -> protocol.Backward:
        """Forward and backward under grad mode, recorded; outputs and gradients go where they belong."""
        assert self._launches is not None
        assert self._module is not None
        launches = self._launches
        if asked.training is not None:
            self._module.train(asked.training)
        launches.reset()
        arguments = self._arguments(asked.call.inputs, asked.call.slots)
        recorder = Recorder(given=arguments, launched=lambda: sum(launches.counts().values()))
        reads = HostReads()

        def around() -> contextlib.ExitStack:
            stack = contextlib.ExitStack()
            stack.enter_context(recorder)
            stack.enter_context(reads)
            return stack

        torch.manual_seed(asked.seed)
        with self._pretence:
            found = differentiated(
                self._module, arguments, asked.seed, checked(self._module), asked.way, faults.ordinary, around
            )
        self._synchronize()
        self._give_back(asked.call.slots)
        for name, gradient in found.gradients.items():
            if name in asked.gradients:
                self._lay([(name, gradient)], [asked.gradients[name]])
        outputs = self._deliver(list(found.outputs), asked.call.outputs)
        given = tuple(name for name, value in found.gradients.items() if value is not None)
        record = recorded(recorder, reads, launches)
        return protocol.Backward(
            tuple(found.requires), found.error[:600], given, found.intact, outputs, record
        )

    def on_recheck(self, asked: protocol.Recheck) -> protocol.Delivered:
        """Copy out again the outputs that an earlier ``forward`` kept, for the last time."""
        kept, self._kept = self._kept, []
        return protocol.Delivered(self._deliver(kept, asked.outputs))

    def on_held(self, asked: protocol.Held) -> protocol.Delivered:
        """Copy out again what call ``number`` of those with ``keep`` returned."""
        return protocol.Delivered(self._deliver(self._held[asked.number], asked.outputs))

    def on_drop(self, asked: protocol.Drop) -> protocol.Dropped:
        """Let go of everything held, and report which of it shared its memory."""
        held, self._held = self._held, []
        within = ((number, tuple(aliases(leaves, [], None))) for number, leaves in enumerate(held))
        shared, pairs = tuple(shared_storages(held)), tuple((at, found) for at, found in within if found)
        del held, within
        return protocol.Dropped(shared, pairs, self._live() if asked.count else 0)

    def on_calls(self, asked: protocol.Calls) -> protocol.Called:
        """One call per entry of ``moves``, rotating over the sets; every output is delivered.

        Those of the first ``keep`` calls are held as well, as a caller may hold them. Some calls are
        recorded, and all of them together must leave the settings that each must leave. Inputs that were
        copied elsewhere are held to the end, as far as they take little memory: no address comes twice.
        """
        assert self._module is not None
        assert self._inputs is not None
        sets, calls = asked.session.sets, len(asked.session.moves)
        prepared = [self._arguments(s.inputs, s.slots, moved=True) for s in sets]
        destinations = [[o and self._view(o) for o in s.outputs] for s in sets]
        settings = Settings(self._module, prepared)
        before = self._before(asked.session)
        recorded_calls, records = set(asked.recorded), []
        elsewhere: deque[list[Any]] = deque(maxlen=_copies_of(sets[0].slots))
        for call in range(calls):
            before(call)
            given, arguments = sets[call % len(sets)], prepared[call % len(sets)]
            manner = asked.manners[call] if asked.manners else protocol.Manner()
            self._inputs.refill(given.slots, manner.refills)
            if manner.elsewhere:
                arguments = exchange.unpack(given.inputs, self._inputs.elsewhere(given.slots))
                elsewhere.append(arguments)
            still = manner.grad is protocol.GradMode.FROZEN
            with frozen(self._module, arguments) if still else contextlib.nullcontext():
                if call in recorded_calls:
                    result, record = self._call_recorded(arguments, manner.grad)
                    records.append(record)
                else:
                    result = self._call(arguments, grad=manner.grad)
            copy_out(result, destinations[call % len(sets)])
            if call < asked.keep:
                self._held.append(outlasting(leaves_of(result), written_of(arguments, self._writes)))
            del result
        self._end(asked.session)
        settings.check()
        return protocol.Called(tuple(records))

    def on_time(self, asked: protocol.Time) -> protocol.Timed:
        """Time one call per entry of ``moves``, rotating over the sets; deliver the output of one of them.

        It is delivered right behind its call, which spares a copy that would lie there until the end.
        """
        module = self._module if asked.contender is None else self._contenders[asked.contender]
        prepared = [self._arguments(s.inputs, s.slots, moved=True) for s in asked.session.sets]
        kept = prepared[asked.recheck % len(prepared)]
        assert module is not None
        settings = Settings(module, prepared)
        milliseconds, _ = stopwatch.time_calls(
            lambda call: self._returned(prepared[call % len(prepared)], module),
            len(asked.session.moves),
            self._device,
            before=self._before(asked.session, ahead=True),
            keep=asked.recheck,
            copied=lambda result: self._lay(leaves_of(answered(result, kept, self._writes)), asked.outputs),
        )
        self._end(asked.session)
        if asked.contender is None:
            settings.check()
        return protocol.Timed(tuple(milliseconds))

    def _before(self, session: protocol.Session, *, ahead: bool = False) -> Callable[[int], None]:
        """What precedes each call: its inputs get new values out of the reserve, and the generator a seed.

        The moves go through views of their own, whose version counters the candidate's
        tensors do not share: nothing about a tensor tells that it is being timed. ``ahead``: all views are
        made before the first call, so that the host falls behind a fast GPU no more than it does for an
        opponent, whose inputs stay.
        """
        assert self._inputs is not None
        inputs, moves, seeds = self._inputs, session.moves, session.seeds
        tensors = [[inputs.alias(slot) for slot in s.slots] for s in session.sets]
        spare = [[inputs.near(slot) for slot in slots] for slots in session.reserve]
        copies = (freshen.copies(tensors[at % len(tensors)], spare, made) for at, made in enumerate(moves))
        coming = iter(list(copies) if ahead else copies)
        torch.manual_seed(seeds[0] if seeds else 0)

        def before(call: int) -> None:
            freshen.copy(next(coming))
            if seeds:
                torch.manual_seed(seeds[call])

        return before

    def _end(self, session: protocol.Session) -> None:
        self._synchronize()
        for given in session.sets:
            self._give_back(given.slots)

    def on_observe(self, asked: protocol.Observe) -> protocol.Observation:
        """The calls of a timing session once more, in the same process; those that were drawn are recorded.

        The others precede and separate them: a file that counts calls in a row counts on.
        """
        assert self._module is not None
        sets, chosen = asked.session.sets, set(asked.recorded)
        prepared = [self._arguments(s.inputs, s.slots, moved=True) for s in sets]
        settings = Settings(self._module, prepared)
        before = self._before(asked.session)
        seen: list[protocol.Observed] = []
        for call in range(len(asked.session.moves)):
            before(call)
            if call not in chosen:
                self._call(prepared[call % len(sets)])
                continue
            result, record = self._call_recorded(prepared[call % len(sets)])
            kinds = (kind_of(leaf) for _, leaf in leaves_of(result) if isinstance(leaf, torch.Tensor))
            seen.append(protocol.Observed(record, tuple(kinds)))
            del result
        self._end(asked.session)
        settings.check()
        return protocol.Observation(tuple(seen))

    def _call_recorded(
        self, arguments: list[Any], grad: protocol.GradMode = protocol.GradMode.OFF
    ) -> tuple[Any, protocol.Record]:
        """One call of a session, and what it ran.

        On a GPU without a function mode, as under the clock: PyTorch's own Python code goes other ways where
        there is one, which code that it calls could see. What the host reads there the dispatcher shows.
        """
        assert self._launches is not None
        launches, reads = self._launches, HostReads()
        launches.reset()
        recorder = Recorder(launched=lambda: sum(launches.counts().values()), given=arguments)
        with recorder, reads if isinstance(self._pretence, ClaimCuda) else contextlib.nullcontext():
            result = self._call_checked(arguments, grad)
        return result, recorded(recorder, reads, launches)


def _copies_of(slots: Sequence[Slot]) -> int:
    """How many further copies of one call's inputs may be held."""
    return max(1, min(MOST_COPIES, COPIED_BYTES // max(1, sum(slot.nbytes for slot in slots))))


def _detached(leaf: Any) -> Any:
    """Without the graph that a call under grad mode hangs on it; anything but a plain tensor stays, and so
    does one that no graph made."""
    made = type(leaf) is torch.Tensor and leaf.requires_grad and not leaf.is_leaf
    return leaf.detach() if made else leaf


def _shortened(numbers: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The first ones, and a digest of the others."""
    first, others = numbers[:MOST_NUMBERS], numbers[MOST_NUMBERS:]
    if others:
        digest = hashlib.sha256(repr(others).encode()).hexdigest()
        first.append((f"{len(others)} further numbers", digest))
    return tuple(first)


def _found(flow: Flow) -> tuple[protocol.Found, ...]:
    pairs = zip(flow.made, flow.alone, strict=True)
    return tuple(protocol.Found(tuple(made.tolist()), tuple(alone.tolist())) for made, alone in pairs)


def _sketched(found: Sketch) -> protocol.Sketched:
    return protocol.Sketched(found.numel, found.total, found.norm, found.moments, found.samples)

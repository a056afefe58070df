"""Many calls in a row, whose outputs are held as a caller may hold them.

A buffer that is used in turn, a result that is handed out for ever from some call on: both take as
many calls as their author chose. So there are as many as the time allows, each on values of its
own, in a few requests of lengths drawn by lot. The last outputs of each request are checked; so
are, when all is over, those of calls chosen by lot, the first among them, that were held meanwhile:
of a small task as many as a few seconds allow, since a kernel may be wrong at one draw in hundreds.
Outputs that are all held cannot lie in the same memory.

Where there are many, some are made as other callers make them (:mod:`~egg.evaluator.gates.callers`), and some
on instances of their own: one whose weights nothing loads, one under ``torch.inference_mode``. What an
instance keeps from there may be of no use elsewhere, so it is not called otherwise.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from egg.core.evaluation import RefusalFacts
from egg.evaluator.gates import callers
from egg.evaluator.gates.callers import Part
from egg.evaluator.gates.timing import catch_up, check_left, placed_questions, seeds_for
from egg.evaluator.process.handle import Fault
from egg.evaluator.reference.case import Case
from egg.evaluator.reference.reserve import apart
from egg.evaluator.reference.snapshot import Snapshot
from egg.evaluator.tensors import memory
from egg.evaluator.transport import protocol
from egg.evaluator.trial import in_step
from egg.evaluator.trial.refused import NO_FACTS, Refused
from egg.evaluator.trial.trial import Notes, Trial
from egg.evaluator.worker.outputs import aliases, handed_back

LEAST = 3
FEW = 32
"""Calls: up to so many go into one request, and one output is looked at again."""
REQUESTS = 2
ON_A_GPU = 8
"""Times as many calls: they take microseconds there."""
HELD_BYTES = 512 << 20
RECHECKED = 4
"""Of each request, at least; where copies of their inputs are small all calls are."""
COPIED_BYTES = 64 << 20
"""Of inputs that are kept for that."""
RECORDED_PART, LEAST_RECORDED, MOST_RECORDED = 4, 8, 48
"""Of a request's calls one in so many is recorded, drawn by lot; of a short one no fewer, of a long one no
more than that."""
SHARE = 4
"""Rechecking may take so many times less than the calls."""
USUAL, OTHERS = (callers.ALIKE, callers.VARIED), 4
"""Calls of the usual instance; rechecking those of others takes so many times less."""


def run(trial: Trial, each: float) -> Notes:
    """``each``: the seconds that one call takes."""
    total = _how_many(trial, each)
    trial.level()
    if _large(trial):
        notes = _session(trial, [_Burst(total, callers.ALIKE)])
    elif total < FEW:
        manners = callers.varied(total, elsewhere=False, modes=not trial.reference.learning)
        notes = _session(trial, [_Burst(total, callers.ALIKE, manners)])
    else:
        notes = _of_many(trial, total)
    trial.buffers.reserve.forget()
    return notes


def alike(trial: Trial, length: int) -> Notes:
    """So many calls of the instance as it is."""
    trial.level()
    notes = _session(trial, [_Burst(length, callers.ALIKE)])
    trial.buffers.reserve.forget()
    return notes


@dataclass(frozen=True)
class _Held:
    """A question whose answer is held, to be looked at again."""

    call: int
    case: Case
    state: Snapshot | None = None
    """Of the reference before it, where answers follow from that."""


@dataclass(frozen=True)
class _Burst:
    """Calls of one request."""

    length: int
    part: Part
    manners: tuple[protocol.Manner, ...] = ()


def _of_many(trial: Trial, total: int) -> Notes:
    """The usual instance is called alike and in varied manners, in either order; then others are."""
    learned = bool(trial.connection.names)
    parts = [callers.ALIKE, callers.VARIED, callers.INFERENCE, *([callers.AS_BUILT] if learned else [])]
    alike, varied, inference, *built = callers.lengths(total, parts)
    manners = callers.varied(varied, elsewhere=True)
    usual = [_Burst(alike, callers.ALIKE), _Burst(varied, callers.VARIED, manners)]
    secrets.SystemRandom().shuffle(usual)
    before = _live(trial)
    notes = _session(trial, usual)
    notes["grown"] = _live(trial) - before
    if alike + varied >= FEW and notes["grown"] > FEW // 2:
        _check_grown(trial)
    _begin_anew(trial)
    try:
        _session(trial, [_Burst(inference, callers.INFERENCE, callers.inference(inference))])
    except Fault as fault:
        trial.survive(fault)
        trial.warnings.append(f"raises under torch.inference_mode: {fault.evidence}"[:300])
    if built:
        notes["as_built"] = _as_built(trial, built[0])
    _begin_anew(trial)
    return notes | {"calls": total}


def _begin_anew(trial: Trial) -> None:
    trial.connection.fresh()
    trial.level()


def _live(trial: Trial) -> int:
    return trial.connection.request(protocol.Drop(count=True)).live


def _check_grown(trial: Trial) -> None:
    """Refuse a file that keeps a further tensor for about every call.

    Others keep some for each address of their inputs (a recorded graph has buffers of its own), and the calls
    so far went to many. These go to addresses that the file knows.
    """
    before = _live(trial)
    _session(trial, [_Burst(FEW, callers.ALIKE)])
    grown = _live(trial) - before
    if grown > FEW // 2:
        raise Refused(
            "state.grows",
            f"behind {FEW} more calls on inputs at known addresses {grown} more tensors are alive",
            "keep no tensor for every call, or a fixed number of them: a long session would take all memory",
        )


def _as_built(trial: Trial, length: int) -> bool:
    """Call an instance whose weights nothing loads: whether it draws the reference's, or is given them."""
    before = trial.reference.state() if trial.reference.reweighed else None
    drawn = trial.connection.as_built()
    if trial.reference.leaves:
        trial.reference.module = trial.reference.anew()
    if not drawn:
        trial.connection.share_weights(protocol.Written.IN_PLACE)
    _session(trial, [_Burst(length, callers.AS_BUILT)])
    if before is not None:
        trial.reference.resume(before)
    trial.connection.share_weights()
    return drawn


def _session(trial: Trial, bursts: list[_Burst]) -> Notes:
    """Bursts of one instance, whose outputs are held together."""
    cases, held = placed_questions(trial), _as_many_as_fit(trial)
    total = sum(burst.length for burst in bursts)
    calls = 0
    kept: list[_Held] = []
    for burst in bursts:
        keep = max(0, min(burst.length, held - calls))
        kept += _burst(trial, cases, burst, keep, calls)
        calls += burst.length
    rechecked = _recheck(trial, kept, min(calls, held), bursts, few=total < FEW)
    return {"calls": calls, "held": min(calls, held), "rechecked": rechecked}


def _how_many(trial: Trial, each: float) -> int:
    """As many calls as take the time that the level gives; the exact number is drawn."""
    most = trial.settings.calls * (ON_A_GPU if trial.device.type == "cuda" else 1)
    total = max(LEAST, min(most, int(trial.settings.calls_seconds / max(each, 1e-5))))
    return total + secrets.randbelow(max(2, total // 4))


def _as_many_as_fit(trial: Trial) -> int:
    """Calls whose outputs can be held at once: two at least, or there would be nothing to see."""
    size = sum(t.numel() * t.element_size() for t in trial.buffers.outputs(0) if t is not None)
    free = memory.free_bytes(trial.device)
    room = HELD_BYTES if free is None else max(HELD_BYTES, free // 16)
    return max(2, room // max(size, 1))


def _burst(trial: Trial, cases: list[Case], burst: _Burst, keep: int, first: int) -> list[_Held]:
    """So many calls, of which the first ``keep`` are held; their last outputs are checked.

    Returns the questions of some that are held.
    """
    length = burst.length
    moves = trial.buffers.reserve.for_calls([case.tensors for case in cases], length)
    seeds = seeds_for(trial, length)
    trial.buffers.make_room()
    for index in range(len(cases)):
        trial.buffers.poison(index)
    drawn = secrets.SystemRandom().sample(range(length), _recorded(length) if trial.watch is not None else 0)
    called = trial.connection.request(
        protocol.Calls(
            trial.buffers.session(cases, moves, seeds), keep, tuple(sorted(drawn)), manners=burst.manners
        ),
        trial.settings.call_seconds + trial.settings.calls_seconds,
    )
    check_recorded(trial, called.records, len(drawn))
    large = _large(trial)
    chosen = set(([0] if keep else []) if large else _chosen(trial, keep, first))
    lasts = {call for call in range(length) if call >= length - len(cases)}
    found: list[_Held] = []
    for call in in_step.walked(trial, cases, moves, seeds, chosen | lasts):
        index = call % len(cases)
        question = replace(cases[index], seed=seeds[call]) if seeds else cases[index]
        if call in chosen:
            state = Snapshot.of(trial.reference.module) if trial.follows else None
            inputs = question.inputs if large else apart(question.inputs)
            found.append(_Held(first + call, replace(question, inputs=inputs), state))
        if call in lasts:
            _check(trial, question, index, f"call {first + call + 1} of many", burst.part)
    catch_up(trial, cases, moves)
    check_left(trial, cases, length)
    if large and keep:  # its inputs are no copy: they are made again, and last until the next move
        trial.buffers.reserve.follow(cases[0].tensors, moves[0])
    return found


def _recorded(length: int) -> int:
    """How many of so many calls are recorded."""
    return min(length, MOST_RECORDED, max(LEAST_RECORDED, -(-length // RECORDED_PART)))


def check_recorded(trial: Trial, records: Sequence[protocol.Record], wanted: int) -> None:
    """Hold the calls of a session that were recorded to the rules on whose work it is."""
    if len(records) != wanted:
        raise Refused(
            "limits.protocol", f"{len(records)} records of {wanted} calls", "the record was tampered with"
        )
    for record in records:
        trial.see(record)


def _large(trial: Trial) -> bool:
    """Whether further copies of inputs are too much: one request then, of which the first call is kept."""
    return trial.buffers.bytes_per_call > HELD_BYTES


def _chosen(trial: Trial, keep: int, first: int) -> list[int]:
    """Calls of a request whose outputs may be looked at again, the very first among them."""
    held = trial.reference.module.buffers() if trial.follows else ()
    size = sum(t.numel() * t.element_size() for t in (*trial.reference.sample.tensors, *held))
    room = COPIED_BYTES // max(size, 1) if trial.settings.calls >= FEW else 0
    begin = {0} if keep and not first else set()
    drawn = secrets.SystemRandom().sample(range(keep), min(keep, max(RECHECKED, room // REQUESTS)))
    return sorted(begin | set(drawn))


def _check(trial: Trial, question: Case, index: int, label: str, part: Part) -> Case:
    case = trial.reference.answer(label, question.inputs, own=False, seed=question.seed)
    try:
        trial.checks.check_values(case, trial.buffers.outputs(index))
    except Refused as wrong:
        raise _wrong(part, wrong) from None
    return case


def _recheck(trial: Trial, kept: list[_Held], held: int, bursts: list[_Burst], *, few: bool) -> int:
    """Some of the outputs that were held must be what they were; no two may lie in the same memory."""
    kept = kept[:1] + secrets.SystemRandom().sample(kept[1:], len(kept[1:]))
    least = 2 if few else 1 + RECHECKED
    share = SHARE if bursts[0].part in USUAL else SHARE * OTHERS
    until = time.perf_counter() + (0.0 if few else trial.settings.calls_seconds / share)
    case, rechecked = None, 0
    for question in kept:
        number = question.call
        if rechecked >= least and time.perf_counter() > until:
            break
        rechecked += 1
        trial.buffers.poison(0)
        trial.connection.request(protocol.Held(number, trial.buffers.sets[0].outputs))
        case = _answer(trial, question)
        found = trial.buffers.outputs(0)
        for index in handed_back(case.outputs, case.inputs):  # there the caller finds its own new values
            if (given := found[index]) is not None:
                given.copy_(case.outputs[index][1])
        try:
            trial.checks.check_values(case, found)
        except Refused as wrong:
            part = _part_of(bursts, number)
            if part is not callers.ALIKE and not trial.connection.request(protocol.Drop()).shared:
                raise _wrong(part, wrong) from None
            changed = f"the output of call {number + 1} changed while {held} were held"
            raise _aliased(f"{changed}: {wrong.evidence}", wrong.facts) from None
    reply = trial.connection.request(protocol.Drop())
    if case is None:
        return rechecked
    if reply.shared and not aliases(case.outputs, case.inputs, trial.reference.module):
        one, other = reply.shared[0]
        raise _aliased(f"the outputs of calls {one + 1} and {other + 1}, both held, lie in the same memory")
    usual = aliases(case.outputs, [], None)
    for number, pairs in reply.within:
        for path, whose in pairs:
            if (path, whose) not in usual:
                raise _aliased(f"in call {number + 1} output {path} shares its memory with {whose}")
    return rechecked


def _answer(trial: Trial, held: _Held) -> Case:
    """From the state that the reference had before that call, where answers follow from it."""
    asked, label = held.case, f"call {held.call + 1} of many"
    if held.state is None:
        return trial.reference.answer(label, asked.inputs, own=False, seed=asked.seed)
    with trial.reference.spared():
        held.state.put_back()
        return trial.reference.answer(label, asked.inputs, own=False, seed=asked.seed)


def _part_of(bursts: list[_Burst], number: int) -> Part:
    """Which calls the one with a number in the session is among."""
    ends = accumulate(burst.length for burst in bursts)
    return next(burst.part for burst, end in zip(bursts, ends, strict=True) if number < end)


def _wrong(part: Part, wrong: Refused) -> Refused:
    return Refused(part.reason, f"{part.words}: {wrong.evidence}", part.hint, facts=wrong.facts)


def _aliased(evidence: str, facts: RefusalFacts = NO_FACTS) -> Refused:
    hint = "return a new tensor from every call, not a reused buffer"
    return Refused("state.aliased", evidence, hint, facts=facts)

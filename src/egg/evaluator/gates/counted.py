"""The reference at work, as a candidate is looked at: its operations, and what they do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from egg.evaluator.operators.effects import Effects, Several, picking
from egg.evaluator.operators.lossy import Lossy
from egg.evaluator.operators.ops import Recorder
from egg.evaluator.operators.sketches import Sketch, Sketcher
from egg.evaluator.operators.spent import Work
from egg.evaluator.reference.case import Case
from egg.evaluator.transport import protocol
from egg.evaluator.trial.trial import Trial
from egg.evaluator.trial.watch import CASTS, GATHERING, Effected, by_name


@dataclass(frozen=True)
class Counted:
    """The reference at work, as the candidate is looked at."""

    compute: Mapping[str, int]
    moves: Mapping[str, int]
    copies: Mapping[str, int]
    work: Work
    sketches: tuple[Sketch, ...]
    """Of what its operations produced."""
    inputs: tuple[Sketch, ...]
    parts: Mapping[str, int]
    """What its operations do inside."""
    drops: bool
    """Whether one drops fractions or high bits, by its values."""
    effects: Effected

    @property
    def single(self) -> bool:
        """Whether it is one operation."""
        return sum(self.compute.values()) + sum(self.moves.values()) <= 1

    @property
    def moving(self) -> bool:
        """Whether part of its work is to move elements to other places."""
        moved = self.moves or self.copies.keys() - CASTS
        return bool(moved) or any(name in GATHERING for name in by_name(self.compute))


def counted(trial: Trial, case: Case, sketcher: Sketcher) -> Counted:
    """The reference on ``case``, which the candidate was called on."""
    lossy, effects = Lossy(), Effects()
    with Recorder(sketcher=sketcher, launched=lambda: 0, flow=Several(lossy, effects)) as recorder:
        trial.reference.run(case.inputs, case.seed)  # what it draws is what the candidate drew
    inputs = (sketcher.sketch(tensor) for tensor in case.tensors)
    return Counted(
        recorder.compute,
        recorder.moves,
        recorder.copies,
        recorder.work()[1],
        (*recorder.sketches, *recorder.moved_sketches),
        tuple(sketch for sketch in inputs if sketch is not None),
        recorder.parts,
        lossy.found,
        Effected(effects.masks, effects.coarsens, frozenset(effects.floats)),
    )


def may_pick(reference: Counted, record: protocol.Record) -> bool:
    """Whether copies of the library's might do what the reference's operations do, should these pick."""
    copied = record.moves or record.copies.keys() - CASTS
    return bool(copied) and not set(by_name(reference.compute)) <= GATHERING


def picks(trial: Trial, case: Case) -> frozenset[str]:
    """Names of the reference's operations that pick elements, as two calls show."""
    cases = [case, trial.reference.case("provenance", golden=False)]
    return picking(lambda one=one: trial.reference.run(one.inputs, one.seed) for one in cases)

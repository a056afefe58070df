"""Domain: what a file claims beside the task's own call is tried; nothing may be wrong without an error.

Calls with other sizes, layouts, constructor arguments, modes and dtypes are put to the candidate and to the
reference (:mod:`egg.evaluator.reference.probes`, :mod:`egg.evaluator.gates.beside`). Inside the domain that a
file states it must be right: an exception there is a refusal, except at other constructor arguments, as a
domain cannot say how those and the shapes depend on each other. Outside it must raise an exception or be
right. A file that states nothing is tried in the same way, except at other dtypes, and may raise anywhere. A
wrong answer without an error is a refusal everywhere, with the smallest example that was found. Gradients
must not be lost silently by a file that states a domain; of any other file the verdict states it.

At level quick several things change at once, and each alone only where that raises; at level full each
changes alone as well.
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import chain

from egg.core.domain import Domain
from egg.core.domain_words import words_of
from egg.core.errors import KernelFileError
from egg.core.evaluation import Tried, Verified
from egg.evaluator.gates import parts, weights
from egg.evaluator.gates.beside import Answer, Asking, Outcome, ask, ask_as_it_is
from egg.evaluator.gates.calls import SCATTERED, Calls, numbers_of
from egg.evaluator.gates.claims import CLAIM_LESS, GUARD, Claims, Seen
from egg.evaluator.gates.grad_mode import GradMode
from egg.evaluator.gates.gradients import Gradient
from egg.evaluator.reference.probes import Change, Given
from egg.evaluator.trial.levels import Probes
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import NOT_RUN, Notes, Trial

MOST_SECONDS = 60.0
"""After which nothing more is tried."""
EXTRA_SECONDS = {"cuda": 8.0, "cpu": 40.0}
"""After which nothing is tried alone that was right together with others."""
MOST_PARTS = 4
SHRINKS = 8
"""Further calls that may be spent on a smaller example."""
TIMEOUT, UNSUPPORTED = "limits.timeout", "kernel.unsupported"
OUT_OF_TIME = "there was no time left"


def run(trial: Trial) -> Notes:
    domain = stated(trial.candidate.source)
    probing = Probing(trial, domain)
    try:
        probing.all() if trial.settings.domain is Probes.ALL else probing.few()
        found = probing.gradients()
    finally:
        probing.back()
    trial.verified = probing.verified(found)
    counts = {
        answer: sum(t.outcome == answer for t in probing.tried) for answer in ("right", "raised", "skipped")
    }
    sized = [t for t in probing.tried if t.what in probing.sized]
    return {
        "stated": domain is not None,
        **counts,
        "gradients": found.value,
        "other_shapes": sized[0].what if sized else "none to be had",
        **({"general": all(t.outcome != "raised" for t in sized)} if sized else {}),
    }


def stated(source: str) -> Domain | None:
    """The domain that a file states; a statement that cannot be read is a refusal."""
    try:
        return Domain.of_source(source)
    except KernelFileError as error:
        raise Refused("domain.malformed", error.message, error.hint) from error


@dataclass
class Probing:
    """Calls that were put to one candidate, and what it claims of them."""

    trial: Trial
    domain: Domain | None
    tried: list[Tried] = field(default_factory=list)
    sized: set[str] = field(default_factory=set)
    """Words of those that changed sizes."""
    right_at: list[Change] = field(default_factory=list)
    raised_at: list[Change] = field(default_factory=list)
    chance_at: list[Change] = field(default_factory=list)
    """Right by what the reference is likely to draw: gradients cannot be compared there."""
    weights_words: str = ""
    order: str = ""
    """Words on second derivatives."""
    late: bool = False
    """Whether time ended before all was tried."""
    unsupported: set[str] = field(default_factory=set)
    """Arguments at some value of which the call cannot be judged."""
    held_at: set[Hashable] = field(default_factory=set)
    """Kinds of calls of which a result was held while another followed."""
    _others: bool = False
    """Whether the process holds another instance than the task's."""

    def __post_init__(self) -> None:
        settings = self.trial.settings
        self.until = time.perf_counter() + MOST_SECONDS
        self.whole = settings.domain is Probes.ALL
        extra = EXTRA_SECONDS[self.trial.device.type] if self.whole else 0.0
        self.extra_until = time.perf_counter() + extra
        given = self.trial.reference.program.inputs(0, self.trial.device, self.trial.policy.precision)
        self.claims = Claims(self.trial, self.domain, Given.of(given))
        self.calls = Calls(self.claims)
        self.trial.connection.restore_weights()

    # -- what is tried -------------------------------------------------------------------------------------

    def few(self) -> None:
        calls, forms = self.calls, self.calls.forms(*SCATTERED)
        first = Change(sizes=calls.joint(), forms=forms)
        answer = self.weigh(first).answer
        if answer is Answer.SKIPPED and first.sizes:
            first = Change(sizes=calls.joint(alike=True), forms=forms)
            answer = self.weigh(first).answer
        if answer is not Answer.RIGHT:
            for part in list(first.parts())[:MOST_PARTS]:
                self.weigh(part)
        one = calls.batch_of_one()
        if one is not None and self.weigh(one[0]).answer is Answer.SKIPPED:
            self.weigh(one[1])
        self.weigh(Change(arguments=calls.arguments(), values=calls.values()))
        self.weigh(calls.other_mode())

    def all(self) -> None:
        """First everything once, several things at a time; then, as long as there is time, each alone."""
        self.few()
        calls = self.calls
        for dtype in calls.dtypes():
            self.weigh(dtype)
        bases = [calls.other_mode(), *calls.dtypes(), Change(arguments=calls.arguments())]
        for base in bases:
            if base in self.right_at and len(base.dtypes) < 2:
                for crossed in calls.crossed(base):
                    self.weigh(crossed)
        self._modes_in_turn()
        self._weights_between()
        self._parts()
        multiples = list(calls.multiples())
        for change in multiples[:1]:
            self.weigh(change)
        self._exchanged()
        named = calls.sizes_of(numbers_of(self.trial.candidate.source))
        further = (named, calls.layouts(), calls.aliases(), calls.residues(), calls.values_laid(), multiples)
        single = (calls.pairs_of_arguments(), calls.sizes(), calls.alone(), calls.layouts_of_each())
        self._while_there_is_time([*chain(*further, *single)])

    def _while_there_is_time(self, changes: list[Change]) -> None:
        for at, change in enumerate(changes):
            if time.perf_counter() > self.extra_until:
                left = f"{len(changes) - at} changes, each alone"
                self.tried.append(Tried(left, Answer.SKIPPED.value, None, OUT_OF_TIME))
                self.late = True
                break
            self.weigh(change)

    def _exchanged(self) -> None:
        """At exchanged sizes right behind the task's own: a table kept by the number of elements is stale."""
        for change in self.calls.exchanged():
            if time.perf_counter() < self.until:
                self.ask(Change())
            self.weigh(change)

    def _modes_in_turn(self) -> None:
        """Eval, train, eval, with no weights loaded between: what the first keeps is stale at the last."""
        module = self.trial.reference.module
        if len(module.state_dict()) == sum(1 for _ in module.named_parameters()):
            return
        if any(c.training is not None and c in self.raised_at for c in (self.calls.other_mode(),)):
            return
        self._ready(Change())
        self._others = True
        self.trial.connection.reweigh()
        for training in (False, True, False):
            outcome = ask_as_it_is(self.trial, Change(training=training))
            if outcome.answer is Answer.WRONG:
                mode = "train" if training else "eval"
                raise Refused(
                    "domain.wrong",
                    f"calls in eval, train and eval mode in turn, wrong in {mode} mode: {outcome.evidence}",
                    "read running statistics and weights at every call; keep nothing made of them",
                )
            if outcome.answer is not Answer.RIGHT:
                return
        self.tried.append(Tried("eval, train and eval mode in turn", Answer.RIGHT.value, None))

    def _weights_between(self) -> None:
        """Weights change between two calls, in every way that code around a module changes them."""
        if not self.trial.connection.names:
            return
        if self.ask(Change()).answer is not Answer.RIGHT:
            return
        self._others = True
        self.weights_words = weights.run(self.trial, self.extra_until)
        self._note_time("weights changed in further ways")

    def _parts(self) -> None:
        self._ready(Change())
        self._others = True
        right = parts.run(self.trial, self.extra_until)
        self.tried += [Tried(f"{part} in the other mode", Answer.RIGHT.value, None) for part in right]
        self._note_time("further parts in the other mode")

    def _note_time(self, what: str) -> None:
        """Say what was left out where time ended during a series of questions."""
        if time.perf_counter() > self.extra_until:
            self.tried.append(Tried(what, Answer.SKIPPED.value, None, OUT_OF_TIME))

    # -- trying ----------------------------------------------------------------------------------------------

    def weigh(self, change: Change) -> Outcome:
        """Try one call and refuse what may not be; no change, and one that was tried, is passed over."""
        what = self.claims.describe(change)
        if not what or any(t.what == what for t in self.tried):
            return Outcome(Answer.RIGHT)
        if time.perf_counter() > self.until:
            outcome, self.late = Outcome(Answer.SKIPPED, OUT_OF_TIME), True
        else:
            outcome = self.ask(change)
        reason = self.claims.outside(change) if self.domain is not None else ""
        inside = None if self.domain is None else not reason
        if outcome.answer is Answer.WRONG:
            smallest, found = self._smallest(change, outcome)
            raise self.claims.wrong(smallest, found.evidence)
        self._check_claim(change, outcome, inside=bool(inside))
        note = reason if outcome.answer is Answer.RIGHT and reason else outcome.evidence
        self.tried.append(Tried(what, outcome.answer.value, inside, note[:200]))
        if change.sizes:
            self.sized.add(what)
        if outcome.answer is Answer.RIGHT:
            self.right_at.append(change)
        if outcome.answer is Answer.RAISED:
            self.raised_at.append(change)
        if outcome.reason == UNSUPPORTED:
            self.unsupported |= {name for name, _ in change.arguments}
        if outcome.random:
            self.chance_at.append(change)
        return outcome

    def _check_claim(self, change: Change, outcome: Outcome, *, inside: bool) -> None:
        """An exception, a call without an end, and one that cannot be judged are not what is claimed."""
        what = self.claims.describe(change)
        stated = inside and not change.arguments and not self.claims.leaves_inputs(change)
        if outcome.answer is Answer.RAISED and stated:
            raise Refused(
                "domain.raises",
                f"{what}: inside the domain that the file states, and it raises: {outcome.evidence}"[:900],
                CLAIM_LESS,
            )
        if outcome.reason == TIMEOUT and not self.claims.larger(change):
            raise Refused("domain.hangs", f"{what}: {outcome.evidence}"[:900], GUARD)
        if outcome.reason == UNSUPPORTED and inside and not change.arguments:
            raise Refused(
                "domain.untried",
                f"{what}: inside the stated domain, and it cannot be judged: {outcome.evidence}"[:900],
                CLAIM_LESS,
            )

    def ask(self, change: Change) -> Outcome:
        """With the task's own instance unless the change needs another; in a new process after a death."""
        self._instance(change)
        return ask(self.trial, change, Asking(self.claims.dense(change), self._held(change)))

    def _held(self, change: Change) -> bool:
        """Whether what it returns must outlast a later call: at every mode and dtype, once for each kind."""
        new = (kind := self.claims.kind(change)) not in self.held_at
        self.held_at.add(kind)
        return self.whole and not change.arguments and (new or change.builds or change.training is not None)

    def _instance(self, change: Change) -> None:
        """Have the instance that a change needs, and remember whether it is another than the task's."""
        self._ready(change)
        self._others = self._others or change.builds or change.training is not None

    def _ready(self, change: Change) -> None:
        if not self.trial.connection.process.alive:
            self.trial.connection.restart()
            self._others = False
        elif self._others and not change.builds:
            self.back()

    def back(self) -> None:
        """To the task's own instance and weights, for the gates that come."""
        if not self.trial.connection.process.alive:
            self.trial.connection.restart()
        else:
            self.trial.connection.fresh()
            self.trial.connection.restore_weights()
        self._others = False

    def _smallest(self, change: Change, outcome: Outcome) -> tuple[Change, Outcome]:
        """Fewer things changed, and smaller sizes, as long as the answer is still wrong without an error."""
        left = SHRINKS
        for smaller in (Change.parts, Change.smaller):
            for attempt in smaller(change):
                if left == 0:
                    break
                left -= 1
                found = self.ask(attempt)
                if found.answer is Answer.WRONG:
                    change, outcome = attempt, found
                    break
        return change, outcome

    def gradients(self) -> Gradient:
        """Under grad mode, at the smallest call that was answered rightly, at the largest, and at others."""
        sized = [c for c in self.right_at if c.sizes and not c.builds and not c.forms]
        smallest, largest = (best(sized, key=self.claims.elements, default=Change()) for best in (min, max))
        right, chance = tuple(self.right_at), tuple(self.chance_at)
        asking = GradMode(
            self.trial, self.domain, self.claims, self.whole, self.until, self._instance, right, chance
        )
        found = asking.found(smallest, largest)
        self.order = asking.order
        if asking.unasked:
            left = f"{asking.unasked} further backwards"
            self.tried.append(Tried(left, Answer.SKIPPED.value, None, OUT_OF_TIME))
        return found

    # -- words -----------------------------------------------------------------------------------------------

    def verified(self, found: Gradient) -> Verified:
        """What the file is for, as far as it was tried, and what was."""
        domain, struck = self.domain, []
        if self.whole:
            seen = Seen(tuple(self.right_at), tuple(self.raised_at), frozenset(self.unsupported), self.late)
            domain, struck = self.claims.tried(seen, gradients=found is not Gradient.UNKNOWN)
            why = "claimed, and not tried: " + (
                OUT_OF_TIME if self.late else "there was nothing to try it with"
            )
            self.tried += [Tried(what, Answer.SKIPPED.value, True, why) for what in struck]
        self.tried += [
            Tried(what, Answer.SKIPPED.value, None, why) for what, why in self.trial.unasked.items()
        ]
        literal = None if domain is None else domain.literal()
        return Verified(
            literal, tuple(self.tried), found.value, self.words(found, domain), self.trial.own_size
        )

    def words(self, found: Gradient, domain: Domain | None) -> str:
        """One sentence: what is claimed, what was right, what raises, what could not be tried."""
        sentences = ["states no domain" if domain is None else words_of(domain)]
        for answer, verb in (("right", "right at"), ("raised", "raises at"), ("skipped", "not tried at")):
            calls = [t.what for t in self.tried if t.outcome == answer]
            if calls:
                shown = "; ".join(calls[:6]) + (f" and {len(calls) - 6} more" if len(calls) > 6 else "")
                sentences.append(f"{verb} {shown}")
        if self.trial.own_size.startswith(NOT_RUN):
            sentences.append(f"not run at the task's own size: {self.trial.own_size.removeprefix(NOT_RUN)}")
        elif self.trial.own_size:
            sentences.append(f"run at the task's own size: {self.trial.own_size}")
        if self.weights_words:
            sentences.append(self.weights_words)
        if found is not Gradient.UNKNOWN:
            sentences.append(f"gradients: {found.value}{self.order}")
        return ". ".join(sentences)

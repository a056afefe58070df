"""One step in progress: a change is planned, written, judged, repaired, swept, and kept or given up."""

from __future__ import annotations

from dataclasses import replace

from egg.core.evaluation import Evaluation, Gate, Refusal, Rejected
from egg.core.events import Objected, Proposed, SentBack, StepClosed
from egg.core.parts import DEBUGGER
from egg.core.plan import Diagnosis, Draft, Pass, Plan, Unusable
from egg.core.roles import Failure, Translator
from egg.core.source import Candidate, content_hash
from egg.core.space import Sweep
from egg.core.stage import Stage
from egg.core.step import Attempt, Decision, Gain, Kernel, Origin, Step
from egg.engine.contract import breaches, static_breaches
from egg.engine.effects import Effects
from egg.engine.likeness import compiled_key, program_key, repeats
from egg.engine.scoring import gain
from egg.engine.stages import StageRow
from egg.engine.state import TRANSLATE
from egg.engine.sweeping import Breach, Race, race, sweep_file
from egg.engine.translation import awaits_translation
from egg.engine.tunables import BadTunables, read_space

AS_THEY_ARE = frozenset({Origin.START, Origin.TRANSLATION})
"""Origins of files that no role repairs: the user's own, and PyTorch's."""


class StepInProgress:
    """The step that is being taken. Nothing in it outlives :meth:`close` but the :class:`Step` it records."""

    def __init__(self, effects: Effects, row: StageRow) -> None:
        effects.check_caps()
        self._effects = effects
        self._row = row
        self._number = len(effects.state.steps) + 1
        self._base = effects.state.base
        self._translates = row.stage is Stage.SEED and awaits_translation(effects.state)
        """Whether its file is what torch.compile generated, translated."""
        self._plan: Plan | None = None
        self._attempts: list[Attempt] = []
        self._file: Candidate | None = None
        """The latest one written."""
        self._sweep: Sweep | None = None
        self._gain: Gain | None = None
        """Over the base, of a file that was timed and not judged."""
        self._ending: tuple[Decision, str] | None = None
        """How it ends, where that is settled before anything is accepted."""

    @property
    def failed(self) -> bool:
        return bool(self._attempts) and self._attempts[-1].failed

    @property
    def accepted(self) -> bool:
        return bool(self._attempts) and not self._attempts[-1].failed and self._ending is None

    @property
    def may_repair(self) -> bool:
        if self._attempts and self._attempts[0].origin in AS_THEY_ARE:
            return False
        repairs = self._effects.state.started.settings.budget.repairs
        return self._ending is None and self._repairs < repairs

    @property
    def _repairs(self) -> int:
        return sum(attempt.origin is Origin.REPAIR for attempt in self._attempts)

    def plan(self) -> bool:
        """Have the stage's planner choose one change; whether there is something to write."""
        planner = self._row.planner
        if planner is None:
            return True
        answer, objection = self._planned(planner)
        if objection:
            self._effects.journal.decide(SentBack(planner, self._number, objection))
            answer, objection = self._planned(planner, objection)
        if isinstance(answer, Plan):
            self._plan = answer
            if objection:
                repeated = repeats(answer, self._effects.state.steps, self._base) is not None
                self._ending = (Decision.REPEATED if repeated else Decision.SENT_BACK, objection)
        else:
            decision = Decision.PASSED if isinstance(answer, Pass) else Decision.UNUSABLE
            self._ending = (decision, answer.reason)
        return self._ending is None

    def _planned(self, planner: str, objection: str = "") -> tuple[Plan | Pass | Unusable, str]:
        """The planner's answer to ``objection``, and what there is against that one."""
        answer = self._ask_planner(planner, objection)
        return answer, self._objection_to_plan(answer) if isinstance(answer, Plan) else ""

    def _ask_planner(self, planner: str, objection: str) -> Plan | Pass | Unusable:
        team, brief = self._effects.team, self._effects.brief(self._row, objection=objection)
        choose = team.designer.design if planner == "designer" else team.tuner.tune
        answer = self._effects.ask(planner, self._number, lambda: choose(brief))
        assert isinstance(answer, Plan | Pass | Unusable)
        return answer

    def _objection_to_plan(self, plan: Plan) -> str:
        """Why a plan is not taken; empty when it is."""
        brief = self._effects.brief(self._row)
        if plan.category not in brief.assignment.categories:
            allowed = ", ".join(c.value for c in brief.assignment.categories)
            return f"{plan.category.value} does not belong in this stage; it allows {allowed}"
        offered = {skill.name for skill in brief.skills}
        if plan.skill is not None and plan.skill not in offered:
            return f"no skill {plan.skill!r} was offered; offered were {', '.join(sorted(offered)) or 'none'}"
        earlier = repeats(plan, self._effects.state.steps, self._base)
        if earlier is not None:
            return f"step {earlier.number} tried the same on the same base: {earlier.reason}"
        return ""

    def write(self) -> None:
        """Have the plan written down (or a seed, where there is no plan) and judged.

        A run that was given a kernel file has its seed: no team is asked for one.
        """
        if self._translates:
            self._submit(self._ask_translator(), Origin.TRANSLATION)
            return
        given = self._effects.state.started.start
        if self._plan is None and given is not None:
            self._submit(Draft(given), Origin.START)
            return
        origin = Origin.SEED if self._plan is None else Origin.OPTIMIZE
        answers: list[Draft | Unusable] = []
        for _ in range(self._width):
            answers.append(self._ask_coder(tuple(d.source for d in answers if isinstance(d, Draft))))
        drafts = [answer for answer in answers if isinstance(answer, Draft)]
        if len(drafts) > 1:
            self._submit_together(drafts, origin)
        else:
            self._submit(drafts[0] if drafts else answers[-1], origin)

    @property
    def _width(self) -> int:
        """Drafts to write: one where the file's own points are swept, for these compete already."""
        return 1 if self._row.sweeps else self._effects.state.started.settings.width

    def _ask_translator(self) -> Draft | Unusable:
        coder, brief = self._effects.team.coder, self._effects.brief(self._row)

        def ask() -> Draft | Unusable:
            if isinstance(coder, Translator):
                return coder.translate(brief)
            return Unusable("this team does not translate what torch.compile generated")

        answer = self._effects.ask(TRANSLATE, self._number, ask)
        assert isinstance(answer, Draft | Unusable)
        return answer

    def _ask_coder(self, drafts: tuple[str, ...]) -> Draft | Unusable:
        coder, plan = self._effects.team.coder, self._plan
        brief = replace(self._effects.brief(self._row), drafts=drafts)
        if plan is None:
            answer = self._effects.ask("coder.seed", self._number, lambda: coder.seed(brief))
        else:
            answer = self._effects.ask("coder.optimize", self._number, lambda: coder.optimize(brief, plan))
        assert isinstance(answer, Draft | Unusable)
        return answer

    @property
    def file(self) -> Candidate | None:
        """The latest one written."""
        return self._file

    def refuse(self, candidate: Candidate, refusal: Refusal) -> None:
        """Take up a file that was accepted at first and refused later: it is the one to repair."""
        if self._attempts and self._attempts[-1].candidate == candidate.hash:
            self._attempts[-1] = replace(self._attempts[-1], refusal=refusal)
            return
        self._file = candidate
        self._attempts.append(Attempt(candidate.hash, Origin.SEED, refusal=refusal))

    def repair(self) -> None:
        """Find the cause of the last failure and have the file repaired."""
        assert self._file is not None
        last = self._attempts[-1]
        failure = Failure(self._file, last.refusal, last.objection, tuple(self._attempts[:-1]), self._plan)
        diagnosis = self._diagnose(failure)
        brief = self._effects.brief(self._row, self._attempts)
        coder = self._effects.team.coder
        answer = self._effects.ask(
            "coder.repair", self._number, lambda: coder.repair(brief, failure, diagnosis)
        )
        self._submit(answer, Origin.REPAIR, diagnosis)

    def _diagnose(self, failure: Failure) -> Diagnosis:
        """The debugger's, or the judge's own hint; the engine's objections need no search for a cause."""
        if failure.refusal is None:
            return Diagnosis(
                failure.objection, "Follow the plan within these bounds, in a file that differs."
            )
        if DEBUGGER in self._effects.state.started.settings.without:
            return Diagnosis(failure.refusal.evidence, failure.refusal.hint)
        brief = self._effects.brief(self._row, self._attempts)
        debugger = self._effects.team.debugger
        answer = self._effects.ask("debugger", self._number, lambda: debugger.diagnose(brief, failure))
        if isinstance(answer, Diagnosis):
            return answer
        return Diagnosis(failure.refusal.evidence, failure.refusal.hint)

    def _submit(self, answer: object, origin: Origin, diagnosis: Diagnosis | None = None) -> None:
        """Take a draft to the judge, unless there is something against it already."""
        self._sweep = None  # of an earlier file of the chain
        if not isinstance(answer, Draft):
            assert isinstance(answer, Unusable)
            self._ending = (Decision.UNUSABLE, f"no kernel file: {answer.reason}")
            return
        candidate = Candidate(answer.source, f"{self._row.stage.value}-{self._number}")
        objection = self._objection_to_file(candidate.source)
        self._effects.journal.decide(Proposed(self._number, origin, candidate.hash, candidate.source))
        self._file = candidate
        if objection:
            self._object(candidate, objection)
            self._attempts.append(Attempt(candidate.hash, origin, diagnosis, objection=objection))
            return
        breached = self._breached(candidate)
        timed_first = self._row.sweeps or origin is Origin.TRANSLATION
        if timed_first and (found := race(self._effects, self._number, candidate, breached)):
            self._raced(found, origin, diagnosis)
            return
        (evaluation,) = self._effects.evaluate([candidate])
        refusal = evaluation.verdict.refusal if isinstance(evaluation.verdict, Rejected) else None
        if refusal is None and (objection := self._breach(candidate.source, evaluation)):
            self._object(candidate, objection, judged=True)
        self._attempts.append(Attempt(candidate.hash, origin, diagnosis, refusal, objection))

    def _submit_together(self, drafts: list[Draft], origin: Origin) -> None:
        """Judge several drafts in one batch. The fastest that is right goes on; where none is, the one that
        came furthest is repaired. It is the last of the attempts."""
        attempts: list[tuple[tuple[int, float], Attempt, Candidate]] = []
        standing: list[Candidate] = []
        for draft in drafts:
            candidate = Candidate(draft.source, f"{self._row.stage.value}-{self._number}")
            objection = self._objection_to_file(candidate.source)
            self._effects.journal.decide(Proposed(self._number, origin, candidate.hash, candidate.source))
            if objection:
                self._object(candidate, objection)
                attempts.append(((0, 0.0), Attempt(candidate.hash, origin, objection=objection), candidate))
            else:
                standing.append(candidate)
        for candidate, evaluation in zip(standing, self._effects.evaluate(standing), strict=True):
            refusal = evaluation.verdict.refusal if isinstance(evaluation.verdict, Rejected) else None
            attempt = Attempt(candidate.hash, origin, refusal=refusal)
            attempts.append((self._rank(candidate, refusal), attempt, candidate))
        attempts.sort(key=lambda found: found[0])
        self._attempts += [attempt for _, attempt, _ in attempts]
        self._file = attempts[-1][2]

    def _rank(self, candidate: Candidate, refusal: Refusal | None) -> tuple[int, float]:
        """The largest goes on: a right file by its speed, a wrong one by the gate it reached."""
        if refusal is not None:
            return 1, float(list(Gate).index(refusal.gate))
        return 2, -self._effects.state.kernels[candidate.hash].score.milliseconds.median

    def _raced(self, found: Race, origin: Origin, diagnosis: Diagnosis | None) -> None:
        """The file is the winner, or the one that was faster and wrong; or it ends here, within the noise."""
        assert self._file is not None
        self._sweep = found.sweep
        wrong = found.wrong
        if found.winner is not None:
            self._file = found.winner
        elif wrong is not None:
            self._file = wrong.candidate
        else:
            self._gain = Gain(found.ratio, beyond_noise=False, measured=True)
            reason = f"{found.ratio:.3f}x the base, timed beside it: no gain beyond the noise"
            self._ending = (Decision.NOT_BETTER, reason)
        refusal, objection = (wrong.refusal, wrong.objection) if wrong is not None else (None, "")
        self._attempts.append(Attempt(self._file.hash, origin, diagnosis, refusal, objection))

    def _object(self, candidate: Candidate, objection: str, *, judged: bool = False) -> None:
        self._effects.journal.decide(Objected(self._number, candidate.hash, objection, judged))

    def _objection_to_file(self, source: str) -> str:
        """Why a file need not be judged: it was written before, or breaks what was agreed; else empty."""
        state = self._effects.state
        earlier = state.origins.get(program_key(source), state.origins.get(content_hash(source)))
        if earlier is not None:
            return f"the same program was written in step {earlier}"
        try:
            read_space(source)
        except BadTunables as reason:
            return f"the table of tunables cannot be used: {reason}"
        if self._row.stage.tunes and state.contract is not None:
            return _broken_contract(static_breaches(state.contract, source))
        return ""

    def _breach(self, source: str, evaluation: Evaluation) -> str:
        contract = self._effects.state.contract
        if contract is None or not self._row.stage.tunes:
            return ""
        return _broken_contract(breaches(contract, source, evaluation))

    def _breached(self, file: Candidate) -> Breach:
        return lambda found: self._breach(file.source, found)

    def sweep(self) -> None:
        """Try the values the accepted file leaves open, unless they were raced; the best becomes the file."""
        assert self._file is not None
        if self._sweep is not None:
            return
        swept = sweep_file(self._effects, self._number, self._file, self._breached(self._file))
        if swept is not None:
            self._sweep, self._file = swept

    def close(self) -> None:
        """Decide what came of the step, with the reason, and record it."""
        kernel = self._effects.state.kernels.get(self._file.hash) if self.accepted and self._file else None
        if kernel is None:
            decision, reason = self._ending or self._failure()
            step = self._step(decision, reason, gained=self._gain)
        else:
            step = self._judged(kernel)
        self._effects.journal.decide(StepClosed(step))

    def _failure(self) -> tuple[Decision, str]:
        if not self._attempts:
            return Decision.UNUSABLE, "it was broken off before a kernel was written"
        last = self._attempts[-1]
        tries = self._repairs
        after = f" after {tries} repair{'s' if tries != 1 else ''}" if tries else ""
        back = "; back to the base" if self._base else ""
        return Decision.FAILED, f"{last.signature}{after}{back}"

    def _judged(self, kernel: Kernel) -> Step:
        """Promotion is for a gain beyond the noise; the first kernel that is right has nothing to beat."""
        base = self._effects.state.base_kernel
        name = kernel.candidate.hash
        if base is None:
            return self._step(Decision.PROMOTED, "the first kernel that was accepted", name)
        found = gain(kernel.score, base.score)
        ratio = f"{found.ratio:.3f}x the base, {'measured' if found.measured else 'predicted'}"
        if (twin := self._twin(kernel)) is not None:
            reason = f"it compiles to the same code as {twin}"
            return self._step(Decision.NOT_BETTER, reason, name, found)
        if found.beyond_noise:
            return self._step(Decision.PROMOTED, f"{ratio}, beyond the noise", name, found)
        within = (
            "within the noise" if abs(found.ratio - 1) <= kernel.score.noise else "no gain beyond the noise"
        )
        return self._step(Decision.NOT_BETTER, f"{ratio}: {within}", name, found)

    def _twin(self, kernel: Kernel) -> str | None:
        """An earlier accepted kernel with the same machine code and launches, where that is known."""
        key = compiled_key(kernel.evaluation)
        earlier = {s.candidate: s.number for s in self._effects.state.steps if s.candidate is not None}
        for name, number in earlier.items():
            other = self._effects.state.kernels.get(name)
            if key is not None and other is not None and compiled_key(other.evaluation) == key:
                return f"the kernel of step {number}"
        return None

    def _step(
        self, decision: Decision, reason: str, candidate: str | None = None, gained: Gain | None = None
    ) -> Step:
        return Step(
            number=self._number,
            stage=self._row.stage,
            base=self._base,
            plan=self._plan,
            attempts=tuple(self._attempts),
            decision=decision,
            reason=reason,
            candidate=candidate,
            gain=gained,
            sweep=self._sweep,
        )


def _broken_contract(broken: tuple[str, ...]) -> str:
    return f"the structure contract is broken: {'; '.join(broken)}" if broken else ""

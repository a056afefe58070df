"""The effects of the loop: questions to the team, jobs for the judge, decisions for the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from egg.analysis.diagnose import diagnose
from egg.analysis.evaluated import profile_of
from egg.core.bottleneck import Diagnosed, Limiter
from egg.core.evaluation import Evaluation, Gate, Machine
from egg.core.events import SIDE_BY_SIDE, ContractMade, StageClosed, StageOpened, StageSkipped
from egg.core.parts import CONTRACT, EVIDENCE, SHORT_MEMORY, STAGING
from egg.core.plan import Answer, Exhausted
from egg.core.policy import Level, Policy
from egg.core.recording import Recording
from egg.core.roles import Advisor, Brief, Skill, Team
from egg.core.source import Candidate, content_hash
from egg.core.stage import Stage
from egg.core.step import Attempt, Decision, Handoff, Kernel, Trajectory
from egg.engine.contract import make_contract
from egg.engine.journal import Journal, Judge, Recorder
from egg.engine.stages import LEFT_OUT, StageRow, search
from egg.engine.state import RunState
from egg.engine.translation import own_kernel, wants_recording
from egg.evaluator.judge.pool import Job
from egg.evaluator.judge.question import Question, RecordRequest

BEHIND_COMPILING = (Gate.PROVENANCE, Gate.CORRECTNESS, Gate.STATE)
"""The gates that run a candidate on a machine without a GPU."""


class BudgetEnded(Exception):
    """A cap was reached: the search is over, what was found is not lost."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NoAdvice:
    """No catalogue of skills: every plan is free within its stage's categories."""

    def advise(self, brief: Brief) -> tuple[Skill, ...]:
        return ()


class Effects:
    """One run's journal, team, judge and advisor, with the rules every use of them keeps."""

    def __init__(self, journal: Journal, team: Team, judge: Judge, advisor: Advisor | None = None) -> None:
        self.journal = journal
        self.team = team
        self._judge = judge
        self._advisor = advisor or NoAdvice()

    @property
    def state(self) -> RunState:
        return self.journal.state

    def open(self, row: StageRow) -> None:
        self.journal.decide(StageOpened(row.stage, self.state.base))

    def skip(self, row: StageRow, reason: str) -> None:
        """Where the stage of the structure is left out, the contract is about the first kernel's."""
        self.journal.decide(StageSkipped(row.stage, reason))
        if reason == LEFT_OUT:
            self._agree(row)

    def _agree(self, row: StageRow) -> None:
        """Make the structure of the base the contract, at the end of its stage."""
        base = self.state.base_kernel
        wanted = not {CONTRACT, STAGING} & set(self._without)
        if row.stage is Stage.STRUCTURE and base is not None and wanted:
            self.journal.decide(ContractMade(make_contract(base)))

    @property
    def _without(self) -> tuple[str, ...]:
        return self.state.started.settings.without

    def close(self, row: StageRow, reason: str) -> None:
        """Hand on what the stage found; the structure becomes a contract when its stage ends."""
        self._agree(row)
        best = self.state.best_kernel
        self.journal.decide(
            StageClosed(
                Handoff(
                    stage=row.stage,
                    reason=reason,
                    contract=self.state.contract,
                    best=self.state.best,
                    best_score=best.score if best is not None else None,
                    tried=self.state.steps_in(row.stage),
                    open_bottleneck=_open_bottleneck(self.state, row.stage),
                )
            )
        )

    def close_open_stage(self, reason: str) -> None:
        rows = search(self.state.started.settings)
        row = next((row for row in rows if row.stage is self.state.stage), None)
        if row is not None:
            self.close(row, reason)

    def brief(self, row: StageRow, chain: Sequence[Attempt] = (), objection: str = "") -> Brief:
        """What a role is given, with the skills that fit."""
        state, remembers = self.state, SHORT_MEMORY not in self._without
        evident, own = EVIDENCE not in self._without, own_kernel(self.state)
        steps = state.steps_in(row.stage) if remembers else ()
        inherited = state.inherited.handoffs if state.inherited is not None and remembers else ()
        brief = Brief(
            task=state.started.task,
            policy=self.policy(Level.QUICK),
            facts=state.started.facts,
            assignment=row.assignment,
            trajectory=Trajectory(row.stage, steps, tuple(chain)),
            base=state.base_kernel,
            best=state.best_kernel,
            diagnosis=diagnosed(state) if evident else None,
            handoffs=state.handoffs if remembers else tuple(map(_only_contract, state.handoffs)),
            inherited=inherited,
            weighed=state.inherited.weighed if state.inherited is not None and remembers else (),
            objection=objection,
            exemplars=state.started.exemplars,
            failed=_failed(state, chain),
            machine=_judged_on(state),
            side_by_side=self.side_by_side,
            compiled=state.compiled,
            own=own,
            own_diagnosis=diagnosed(state, own) if evident and own is not None else None,
        )
        return replace(brief, skills=self._advisor.advise(brief))

    def ask(self, role: str, step: int, question: Callable[[], Answer]) -> Answer:
        """A role's answer. Nobody is asked beyond a cap."""
        self.check_caps()
        answer = self.journal.answer(role, step, question)
        if isinstance(answer, Exhausted):
            raise BudgetEnded(answer.reason)
        return answer

    def record(self) -> None:
        """Have torch.compile's code recorded, where the run wants it now and its judge can."""
        if wants_recording(self.state):
            self.journal.record(self._recorded)

    def _recorded(self) -> Recording | None:
        if not isinstance(self._judge, Recorder):
            return None
        started = self.state.started
        return self._judge.record(RecordRequest(started.task, started.settings.precision))

    def evaluate(self, candidates: Sequence[Candidate], level: Level = Level.QUICK) -> list[Evaluation]:
        """The judge's verdicts in the order of the candidates, each judged once per level."""
        return self._judged([self._job(c, self.policy(level), level.value) for c in candidates])

    def compile(self, candidates: Sequence[Candidate]) -> list[Evaluation]:
        """What the compiler makes of the candidates, for ranking them: nothing is run, so nothing is known
        of their being right."""
        policy = self.policy(Level.QUICK)
        return self._judged([self._job(c, policy, "compile", skip=BEHIND_COMPILING) for c in candidates])

    @property
    def side_by_side(self) -> bool:
        return self.state.started.settings.budget.side_by_side

    def time_beside(self, file: Candidate, groups: Sequence[Sequence[Candidate]]) -> list[Evaluation]:
        """The times of each group's files side by side with ``file``, for ranking: nothing is checked."""
        return self._judged([self._side_by_side(file, contenders) for contenders in groups])

    def _side_by_side(self, file: Candidate, contenders: Sequence[Candidate]) -> Job:
        name = SIDE_BY_SIDE + content_hash(" ".join(contender.hash for contender in contenders))
        job = self._job(file, self.policy(Level.QUICK), name)
        return replace(job, question=replace(job.question, contenders=tuple(contenders)))

    def _judged(self, jobs: list[Job]) -> list[Evaluation]:
        verdicts = self.journal.evaluate(jobs, self._judge)
        return [verdicts[job.id] for job in jobs]

    def _job(self, candidate: Candidate, policy: Policy, name: str, skip: tuple[Gate, ...] = ()) -> Job:
        started = self.state.started
        question = Question(started.task, candidate, policy, started.settings.target, skip)
        return Job(f"{started.run}/{candidate.hash}.{name}", question)

    def policy(self, level: Level) -> Policy:
        settings = self.state.started.settings
        return Policy(settings.precision, settings.library_calls, level)

    def check_caps(self) -> None:
        """End the search when a cap is reached."""
        if reached := self.cap_reached():
            raise BudgetEnded(reached)

    def cap_reached(self) -> str:
        """The cap that is reached, in words, or nothing. Only the log counts, so that a replay ends alike."""
        caps, ledger = self.state.started.settings.caps, self.state.ledger
        if caps.cost is not None and ledger.cost >= caps.cost:
            return f"${ledger.cost:.4f} of ${caps.cost:g} are spent"
        if caps.tokens is not None and ledger.usage.total >= caps.tokens:
            return f"{ledger.usage.total} of {caps.tokens} tokens are used"
        if caps.steps is not None and len(self.state.steps) >= caps.steps:
            return f"all {caps.steps} steps are used"
        if caps.minutes is not None and ledger.seconds >= caps.minutes * 60:
            return f"{ledger.seconds / 60:.1f} of {caps.minutes:g} minutes are used"
        return ""


def _only_contract(handoff: Handoff) -> Handoff:
    return replace(handoff, reason="", best=None, best_score=None, tried=(), open_bottleneck="")


def _failed(state: RunState, chain: Sequence[Attempt]) -> Candidate | None:
    """The last file of an open repair chain, where it was proposed."""
    source = state.sources.get(chain[-1].candidate) if chain else None
    return Candidate(source, chain[-1].candidate) if source is not None else None


def _judged_on(state: RunState) -> Machine | None:
    known = list(state.evaluations.values())
    return known[-1].machine if known else None


def diagnosed(state: RunState, kernel: Kernel | None = None) -> Diagnosed | None:
    """What holds a kernel back, the base where none is named, read from what the judge saw of it.

    ``None`` where that says nothing.
    By the model as it is, without this machine's calibration: a log replays alike everywhere.
    """
    kernel, gpu = kernel or state.base_kernel, state.gpu
    if kernel is None or gpu is None:
        return None
    profile = profile_of(kernel.evaluation, gpu)
    if profile is None:
        return None
    found = diagnose(profile, gpu, floor_milliseconds=kernel.score.floor_milliseconds)
    launched = found.whole.limiter is Limiter.LAUNCH
    return found if launched or any(k.known for k in found.kernels) else None


def _open_bottleneck(state: RunState, stage: Stage) -> str:
    """What is left to do after a stage: what its last plan aimed at in vain, or how far the floor is."""
    steps = state.steps_in(stage)
    if steps and steps[-1].plan is not None and steps[-1].decision is not Decision.PROMOTED:
        return steps[-1].plan.bottleneck
    kernel = state.base_kernel
    if kernel is None or kernel.score.headroom is None:
        return ""
    return f"the kernel takes {kernel.score.headroom:.2f} times the roofline floor"

"""The instruments behind the tools of the coder and the debugger, in a run.

They are those of ``egg mcp``: the judge of the run, a compiler for the target that needs no GPU, the
profiler, the skills, and the accepted kernels of the runs beside this one. A file that a tool judged is not
judged a second time when it becomes the answer: the verdict on the same question is kept and handed to the
engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from egg.api import tool_words as words
from egg.api.alike import kernels_alike
from egg.api.lessons import recall_kernels
from egg.api.listing import listing_of
from egg.api.profiling import ProfileOptions, report_on
from egg.core.conversation import ToolCall
from egg.core.errors import TaskError, UsageError
from egg.core.evaluation import Evaluation
from egg.core.events import RunStarted
from egg.core.policy import Level, Policy
from egg.core.recording import Recording
from egg.core.roles import Brief
from egg.core.settings import Settings
from egg.core.source import Candidate
from egg.engine.effects import BEHIND_COMPILING
from egg.engine.journal import Journal, Judge, Recorder
from egg.engine.judges import LocalJudge
from egg.engine.state import target_gpu
from egg.evaluator.judge.pool import Job
from egg.evaluator.judge.question import Question, RecordRequest
from egg.hardware.calibration import default_folder
from egg.knowledge.catalogue import load
from egg.memory.diagnosis import render_diagnosis

OFFLINE = "offline"
CPU = "cpu"
EVERYWHERE = frozenset({"compile", "code", "judge", "profile", "read"})


class Workbench:
    """The instruments of one run while it goes on here; closed with it."""

    def __init__(self, settings: Settings, folder: Path, judge: Judge, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._folder = folder
        self._environ = environ
        self._local: LocalJudge | None = None
        self._kept: dict[tuple[object, ...], Evaluation] = {}
        self._judge = judge

    def judge(self, jobs: Sequence[Job]) -> Iterable[tuple[str, Evaluation]]:
        """The run's judge, which does not judge again what a tool had it judge."""
        unknown = []
        for job in jobs:
            if (known := self._kept.get(_asked(job.question))) is not None:
                yield job.id, replace(known, candidate=job.question.candidate.name)
            else:
                unknown.append(job)
        if unknown:
            yield from self._judge.judge(unknown)

    def record(self, request: RecordRequest) -> Recording | None:
        return self._judge.record(request) if isinstance(self._judge, Recorder) else None

    def for_run(self, started: RunStarted, journal: Journal) -> RunInstruments:
        return RunInstruments(self, started, journal)

    def ask(self, question: Question, name: str) -> Evaluation:
        """One evaluation for a tool; where the run is judged elsewhere, this machine's CPU does it."""
        judge = self._on_cpu if self._settings.device == OFFLINE else self._judge
        return self._one(judge, question, name)

    def compile(self, question: Question, name: str) -> Evaluation:
        """What the compiler makes of a file for the target, with no GPU."""
        judge = self._judge if self._settings.device == CPU else self._on_cpu
        return self._one(judge, replace(question, skip=BEHIND_COMPILING), name)

    def keep(self, question: Question, evaluation: Evaluation) -> None:
        if self._settings.device != OFFLINE:
            self._kept[_asked(question)] = evaluation

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def environ(self) -> Mapping[str, str]:
        return self._environ

    @property
    def _on_cpu(self) -> LocalJudge:
        if self._local is None:
            self._local = LocalJudge(CPU)
        return self._local

    def _one(self, judge: Judge, question: Question, name: str) -> Evaluation:
        ((_, evaluation),) = judge.judge([Job(name, question)])
        return evaluation

    def close(self) -> None:
        if self._local is not None:
            self._local.close()
            self._local = None


class RunInstruments:
    """The tools of a run's team, recorded in its journal."""

    def __init__(self, bench: Workbench, started: RunStarted, journal: Journal) -> None:
        self._bench = bench
        self._started = started
        self._journal = journal

    @property
    def names(self) -> frozenset[str]:
        return tool_names(self._started.settings)

    def record(self, purpose: str, call: ToolCall, run: Callable[[], str]) -> str:
        return self._journal.use(purpose, call, run)

    def use(self, name: str, brief: Brief, kernels: Sequence[str], about: str) -> str:
        """A mistake of the model, or of the task, is a result; a broken machine is an error of the run."""
        try:
            return self._used(name, brief, [Candidate(source, "tried") for source in kernels], about)
        except (UsageError, TaskError) as reason:
            return f"Error: {reason.message}{' (' + reason.hint + ')' if reason.hint else ''}"

    def _used(self, name: str, brief: Brief, files: Sequence[Candidate], about: str) -> str:
        match name:
            case "compile":
                question = self._question(brief, files[0])
                return words.compiled(
                    self._bench.compile(question, self._job(files[0], name)), brief.facts.gpu.name
                )
            case "code":
                return self._code(brief, files[0], about)
            case "judge":
                question = self._question(brief, files[0])
                evaluation = self._bench.ask(question, self._job(files[0], name))
                self._bench.keep(question, evaluation)
                return words.judged(evaluation, target_gpu(self._started))
            case "profile":
                return self._profile(brief, files[0])
            case "time":
                return self._time(brief, files)
            case "skill":
                return self._skill(about)
            case "kernels":
                return self._kernels(brief)
        raise UsageError(f"there is no tool {name!r}")

    def _question(self, brief: Brief, file: Candidate) -> Question:
        """The very question that the engine would ask of the file at this level."""
        policy = Policy(brief.policy.precision, brief.policy.library_calls, Level.QUICK)
        return Question(brief.task, file, policy, self._started.settings.target)

    def _job(self, file: Candidate, name: str) -> str:
        return f"{self._started.run}/{file.hash}.tool-{name}"

    def _seeing(self) -> ProfileOptions:
        settings = self._started.settings
        device = CPU if settings.device == OFFLINE else settings.device
        return ProfileOptions(
            device, settings.target, settings.precision, calibrations=default_folder(self._bench.environ)
        )

    def _code(self, brief: Brief, file: Candidate, kernel: str) -> str:
        from egg.agents.tooling import result_characters
        from egg.evaluator.offline.digest import digest
        from egg.evaluator.profiling.ladder import CannotRun

        try:
            listing, gpu = listing_of(brief.task, file, kernel, self._seeing())
        except CannotRun as error:
            return f"There is no code: {error.reason}\n\n{error.evidence}"
        return digest(listing, gpu, result_characters(self._started.settings.budget.prompt_tokens))

    def _profile(self, brief: Brief, file: Candidate) -> str:
        report = report_on(brief.task, file, self._seeing())
        if report.failure is not None:
            return f"It could not be profiled: {report.failure.reason}\n\n{report.failure.evidence}"
        assert report.diagnosis is not None
        return render_diagnosis(report.diagnosis)

    def _time(self, brief: Brief, files: Sequence[Candidate]) -> str:
        assert brief.base is not None
        question = replace(self._question(brief, brief.base.candidate), contenders=tuple(files))
        return words.timed(self._bench.ask(question, self._job(files[0], "time")), len(files))

    def _kernels(self, brief: Brief) -> str:
        """Those that memory has, else those of the runs beside this one."""
        store = self._started.settings.lessons
        if store is not None:
            known = recall_kernels(Path(store), brief.facts, without=self._started.run)
            if known:
                return words.exemplars(known)
        return words.alike(kernels_alike(brief.facts, self._bench.folder.parent, without=self._bench.folder))

    def _skill(self, name: str) -> str:
        catalogue = load(tuple(Path(folder) for folder in self._started.settings.skills or ()))
        if name in catalogue:
            return words.skill(catalogue[name])
        return words.skills_about(name, catalogue)


def tool_names(settings: Settings) -> frozenset[str]:
    """The tools that work under these settings: files are timed only where a GPU is."""
    times = {"time"} if settings.device not in (OFFLINE, CPU) else set()
    skills = {"skill"} if settings.skills is not None else set()
    return EVERYWHERE | {"kernels"} | times | skills


def _asked(question: Question) -> tuple[object, ...]:
    """What an evaluation depends on: not the name of the file."""
    return question.task.sha256, question.candidate.sha256, question.policy, question.target, question.skip

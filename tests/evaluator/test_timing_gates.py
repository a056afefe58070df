"""The gates that need a GPU, rehearsed without one: the device's clock is replaced, everything else is real.

The candidate's session runs in this process behind the same JSON messages; events are wall
clocks. What is tested is the logic: that timed inputs never repeat, that a candidate which
remembers is caught, that a forged timer contradicts the oracle's own clock.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from egg.core.evaluation import Provenance
from egg.core.policy import Level, Policy, Precision
from egg.core.source import Candidate, Task
from egg.evaluator.gates import build, clock, plausibility, timing
from egg.evaluator.process.handle import Fault
from egg.evaluator.reference.reference import Reference
from egg.evaluator.task.program import Program
from egg.evaluator.timing import stopwatch
from egg.evaluator.timing.contenders import SideBySide
from egg.evaluator.timing.opponents import Opponents
from egg.evaluator.transport import protocol
from egg.evaluator.trial import deferred
from egg.evaluator.trial.levels import LEVELS
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial
from egg.evaluator.worker.session import Session
from egg.hardware.gpus import resolve
from tests.evaluator.workloads import uncounted_attention

TASK = """
import torch
import torch.nn as nn

rows = 16
columns = 64


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return x * self.weight


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return [columns]
"""

HONEST = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return x * self.weight
"""

REMEMBERS = HONEST.replace(
    "        return x * self.weight",
    """        self.calls = getattr(self, "calls", 0) + 1
        if self.calls <= 4 or x.data_ptr() not in self.answers:
            self.answers = getattr(self, "answers", {})
            self.answers[x.data_ptr()] = x * self.weight
        return self.answers[x.data_ptr()].clone()""",
)

DEFERS = HONEST.replace(
    "        return x * self.weight",
    """        self.calls = getattr(self, "calls", 0) + 1
        self.late = [*getattr(self, "late", []), (x, torch.empty_like(x))]
        answer = self.late[-1][1]
        if self.calls <= 4 or self.calls % 4 == 0:
            for late, buffer in self.late:
                torch.mul(late, self.weight, out=buffer)
            self.late = []
        return answer""",
)

SLOW = HONEST.replace("import torch\n", "import time\nimport torch\n", 1).replace(
    "        return x * self.weight", "        time.sleep(0.004)\n        return x * self.weight"
)


class WallEvent:
    """Stands in for a CUDA event: the moment it was recorded on the host."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.moment = 0.0

    def record(self) -> None:
        self.moment = time.perf_counter()

    def elapsed_time(self, end: WallEvent) -> float:
        return max((end.moment - self.moment) * 1e3, 1e-6)


class LocalWorker:
    """A session in this process, spoken to in JSON as over the wire."""

    means: tuple[str, ...] = ()
    alive = True

    def __init__(self, forge: float = 1.0) -> None:
        self._session, self._forge = Session(), forge

    def ask(self, request: protocol.Request[Any], timeout: float, fds: tuple[int, ...] = ()) -> Any:
        message = json.loads(json.dumps({"id": 1, **request.message()}))
        reply = json.loads(json.dumps(self._session.serve(message, list(fds))))
        if "fault" in reply:
            raise Fault(reply["fault"]["reason"], reply["fault"]["evidence"])
        if request.command == "time":
            reply["reply"]["milliseconds"] = [t * self._forge for t in reply["reply"]["milliseconds"]]
        return protocol.reply_to(request, reply["reply"])

    def end(self) -> None:
        self.alive = False


class LocalForkServer:
    def __init__(self, forge: float) -> None:
        self._forge = forge

    def worker(self, *, fence: bool = False) -> LocalWorker:
        worker = LocalWorker(self._forge)
        worker.ask(protocol.Warm("cpu", watch=False), 1)
        return worker

    def prepare(self) -> None:
        pass


@pytest.fixture
def trial_for(monkeypatch: pytest.MonkeyPatch, tmp_path):
    """Builds a trial whose device clock is the host's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stopwatch, "_Event", WallEvent)
    monkeypatch.setattr(stopwatch, "_synchronize", lambda device: None)
    monkeypatch.setattr(stopwatch, "FLUSH_BYTES", 64)
    monkeypatch.setattr(torch.cuda, "Event", WallEvent)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    monkeypatch.setattr(clock, "MILLISECONDS", 20.0)
    made: list[Trial] = []

    def make(
        source: str,
        forge: float = 1.0,
        precision: Precision = Precision.MATCH,
        contenders: tuple[str, ...] = (),
        sets: int = 2,
    ) -> Trial:
        program = Program.load(Task("scale", TASK))
        cpu = torch.device("cpu")
        settings = dataclasses.replace(
            LEVELS[Level.QUICK], opponents=("eager",), rounds=6, round_milliseconds=0.5, input_sets=sets
        )
        trial = Trial(
            Reference(program, precision, cpu),
            Candidate(source),
            Policy(precision, level=Level.QUICK),
            settings,
            LocalForkServer(forge),  # pyright: ignore[reportArgumentType]
            restricted=False,
            gpu=resolve("H200"),
            opponents=Opponents(program, precision, cpu),
            side_by_side=SideBySide(tuple(map(Candidate, contenders))),
        )
        made.append(trial)
        build.run(trial)
        trial.provenance = Provenance({"scale": 1}, {}, None)
        return trial

    yield make
    for trial in made:
        trial.close()


def test_an_honest_candidate_is_timed_and_its_clock_agrees(
    trial_for, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However busy this machine is: its scheduler may take a call's few microseconds a hundred times over."""
    monkeypatch.setattr(clock, "HOST_MILLISECONDS", 2.0)
    trial = trial_for(HONEST)
    assert timing.prepare(trial)["opponents"] == ["eager"]
    notes = timing.run(trial)
    assert notes["fresh_values"]
    assert set(notes["times"]) == {"A", "A'", "eager"}
    assert all(len(values) == 6 for values in notes["times"].values())
    clock.run(trial)
    assert trial.checks.worst.checks == 0, "nothing is computed but what is measured"
    assert len(trial.deferred) > 2 * clock.ATTEMPTS
    timing.settle(trial)
    assert trial.checks.worst.checks > 2 * clock.ATTEMPTS
    assert trial.deferred == trial.timed == []
    plausibility.run(trial)
    assert trial.measured.wall_milliseconds > 0
    assert trial.measured.floor_milliseconds > 0


@pytest.mark.parametrize(
    ("disturbed", "retimed", "held"), [(0, True, 1), (1, True, 2), (9, True, 3), (9, False, 1)]
)
def test_a_session_that_was_disturbed_is_held_again_and_the_calmest_counts(
    trial_for, monkeypatch: pytest.MonkeyPatch, disturbed: int, retimed: bool, held: int
) -> None:
    trial = trial_for(HONEST)
    trial.settings = dataclasses.replace(trial.settings, retimed=retimed)
    calm = [1.0, 1.001, 0.999, 1.0, 1.0, 1.001]
    sessions = []

    def rounds(*_: object) -> dict[str, list[float]]:
        louder = 1.0 + len(sessions) / 10
        eager = (
            calm if len(sessions) >= disturbed else [1.0, 1.0, 2.0 * louder, 3.0 * louder, 2.0 * louder, 1.0]
        )
        sessions.append({"A": calm, "A'": calm, "eager": eager})
        return sessions[-1]

    monkeypatch.setattr(timing, "rounds", rounds)
    notes = timing.run(trial)
    assert notes["sessions"] == len(sessions) == held
    assert notes["times"] == (sessions[-1] if disturbed < held else sessions[0])


def test_a_candidate_that_starts_to_remember_is_caught_while_it_is_timed(trial_for) -> None:
    trial = trial_for(REMEMBERS)
    with pytest.raises(Refused) as refused:
        run_both(trial)
    assert refused.value.reason.startswith("correctness.")


def test_a_candidate_that_answers_later_is_caught_while_it_is_timed(
    trial_for, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its answers, not by a clock that runs on while a busy machine does something else."""
    monkeypatch.setattr(clock, "HOST_MILLISECONDS", 2.0)
    trial = trial_for(DEFERS)
    with pytest.raises(Refused) as refused:
        run_both(trial)
    assert refused.value.reason.startswith("correctness.")


def run_both(trial: Trial) -> None:
    timing.prepare(trial)
    timing.run(trial)
    clock_and_settle(trial)


def clock_and_settle(trial: Trial) -> None:
    clock.run(trial)
    timing.settle(trial)


@pytest.mark.parametrize("room", [0, 1 << 30], ids=["checked at once", "deferred"])
def test_one_set_that_is_never_answered_under_the_clock_is_found(
    trial_for, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """Which of the sets is left out is drawn after all of them were delivered; here, each in its turn."""
    monkeypatch.setattr(deferred, "DEFERRED_BYTES", room)
    turns = itertools.count()
    monkeypatch.setattr(clock, "secrets", SimpleNamespace(randbelow=lambda most: next(turns) % most))
    monkeypatch.setattr(clock, "contradicts", lambda *_: False)  # a busy machine is another matter
    trial = trial_for(HONEST)
    timing.prepare(trial)
    timing.run(trial)
    timing.settle(trial)
    ask = trial.connection.request

    def forgetful(request: protocol.Request[Any], *args: Any) -> Any:
        reply = ask(request, *args)
        if request.command == "calls":
            trial.buffers.poison(1)
        return reply

    trial.connection.request = forgetful
    with pytest.raises(Refused) as refused:
        clock_and_settle(trial)
    assert refused.value.reason == "correctness.values"


@pytest.mark.parametrize(("sets", "checked"), [(1, 1), (2, 1), (3, 2)])
def test_all_sets_but_one_are_checked_after_every_clocked_request(trial_for, sets: int, checked: int) -> None:
    trial = trial_for(HONEST, sets=sets)
    clock._candidate_calls(trial, timing.placed_questions(trial), 2 * sets)
    assert len(trial.deferred) == checked


CHANGES_ITS_INPUT = HONEST.replace(
    "    def forward(self, x):\n", "    def forward(self, x):\n        x.mul_(1.0001)\n"
)
SWITCHES = HONEST.replace(
    "    def forward(self, x):\n", "    def forward(self, x):\n        self.train(not self.training)\n"
)


def test_inputs_are_compared_behind_a_timed_turn(trial_for) -> None:
    assert CHANGES_ITS_INPUT != HONEST
    trial = trial_for(CHANGES_ITS_INPUT)
    with pytest.raises(Refused) as refused:
        timing.turn(trial, timing.placed_questions(trial), 3)
    assert refused.value.reason == "correctness.inputs"


def test_settings_are_compared_around_a_timed_turn(trial_for) -> None:
    """An odd number of calls leaves the mode of the module changed."""
    assert SWITCHES != HONEST
    trial = trial_for(SWITCHES)
    with pytest.raises(Exception, match="training"):
        timing.turn(trial, timing.placed_questions(trial), 3)


def test_a_deferred_answer_is_checked_as_it_was_delivered(trial_for) -> None:
    """Neither later moves of the inputs nor later writes to the outputs change it."""
    trial = trial_for(HONEST)
    timing.prepare(trial)
    trial.deferred.clear()
    (case, *_) = trial.timed
    trial.connection.request(protocol.Calls(trial.buffers.session([case], [[]], [])))
    deferred.put(trial, case, 0, "a call")
    trial.buffers.reserve.follow(case.tensors, trial.buffers.reserve.for_calls([case.tensors], 1)[0])
    trial.buffers.poison(0)
    assert deferred.settle(trial) == {"checked": 1}


def test_where_memory_is_short_the_candidate_makes_room_for_the_answers(
    trial_for, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = trial_for(HONEST)
    timing.prepare(trial)
    timing.run(trial)
    assert trial.deferred
    ended: list[str] = []
    monkeypatch.setattr(trial.buffers, "roomy", lambda: False)
    monkeypatch.setattr(trial.connection.process, "end", lambda: ended.append("ended"), raising=False)
    assert timing.settle(trial)["checked"] > 0
    assert ended == ["ended"]


def test_slow_programs_are_called_less_often_by_the_clock() -> None:
    assert clock._how_many(0.01, 2) == (4, 256)
    assert clock._how_many(1.0, 2) == (4, 60)
    assert clock._how_many(10.0, 2) == (4, 16)
    assert clock._how_many(50.0, 2) == (4, 8)


def test_a_forged_timer_contradicts_the_oracles_clock(trial_for, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "ATTEMPTS", 1)
    trial = trial_for(SLOW, forge=0.01)
    timing.run(trial)
    with pytest.raises(Refused) as refused:
        clock.run(trial)
    assert refused.value.reason == "clock.claimed"


def test_times_that_cannot_be_times_are_a_forgery(trial_for) -> None:
    with pytest.raises(Refused) as refused:
        timing.run(trial_for(HONEST, forge=-1.0))
    assert refused.value.reason == "timing.forged"


def test_a_declared_precision_is_timed_against_the_default_too(trial_for) -> None:
    trial = trial_for(HONEST, precision=Precision.TF32)
    assert timing._contestants(trial) == ("eager", "eager (default precision)", "compile (default precision)")


def test_the_floor_counts_attention_that_pytorch_refuses_to_count(
    trial_for, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial, attend = trial_for(HONEST), uncounted_attention(monkeypatch)
    monkeypatch.setattr(trial.reference, "run", lambda inputs: attend())
    assert plausibility.floors(trial, resolve("H200"))[1] > 0


def test_the_floor_of_bytes_is_that_of_the_facts_where_rows_are_picked(
    trial_for, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial, gpu = trial_for(HONEST), resolve("H200")
    case = trial.reference.question("counted")
    table = case.tensors[0]
    whole, _ = plausibility.floors(trial, gpu)
    assert whole == pytest.approx(trial.buffers.bytes_per_call / gpu.bandwidth * 1e3)
    monkeypatch.setattr(trial.reference, "question", lambda kind: case)
    monkeypatch.setattr(trial.reference, "run", lambda inputs: table[torch.tensor([0, 1])])
    picked, _ = plausibility.floors(trial, gpu)
    left_out = table.nbytes - 2 * table[0].nbytes
    assert picked == pytest.approx((trial.buffers.bytes_per_call - left_out) / gpu.bandwidth * 1e3)


def test_faster_than_memory_is_refused(trial_for, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = trial_for(HONEST)
    timing.run(trial)
    trial.buffers.bytes_per_call = 1 << 50
    with pytest.raises(Refused) as refused:
        plausibility.run(trial)
    assert refused.value.reason == "plausibility.bytes"


@pytest.mark.parametrize(
    ("claimed", "wall", "explained", "caught"),
    [(1.0, 1.05, 0.0, False), (0.03, 0.12, 0.2, False), (0.1, 1.0, 0.2, True), (0.9, 1.2, 0.0, False)],
)
def test_what_the_clock_contradicts(claimed: float, wall: float, explained: float, caught: bool) -> None:
    assert clock.contradicts(claimed, wall, explained) is caught


def test_timed_weights_are_not_those_as_built(trial_for) -> None:
    trial = trial_for(HONEST)
    timing.prepare(trial)
    assert not torch.equal(trial.reference.module.weight, trial.reference.initial["weight"])
    eager = trial.opponents.ready["eager"].call
    assert torch.equal(eager.weight, trial.reference.module.weight)


def test_a_program_that_inductor_cannot_compile_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CUDA graph of compiled code needs the code: one failure stands for both, and is reported for both."""
    asked: list[str] = []

    def failing(module: Any, *, mode: str, dynamic: bool) -> Any:
        def call(*_: Any) -> Any:
            asked.append(mode)
            raise TypeError("list indices must be integers")

        return call

    monkeypatch.setattr(torch, "compile", failing)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    opponents = Opponents(Program.load(Task("scale", TASK)), Precision.MATCH, torch.device("cpu"))
    sample = opponents.program.inputs(0, opponents.device, Precision.MATCH)
    found = opponents.get(("eager", "compile", "reduce-overhead"), sample)
    assert [opponent.name for opponent in found] == ["eager"]
    assert asked == ["default"]
    assert opponents.failed.keys() == {"compile", "reduce-overhead"}
    assert all("list indices" in reason for reason in opponents.failed.values())

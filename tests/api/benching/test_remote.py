"""The way of a kernel to a pool elsewhere and back: each is answered once, whatever the pool loses."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.api.benching.channel import Replied, Submitted, WorkerChannel
from egg.api.benching.remote import Relay, RemoteJudge
from egg.core.errors import MachineError
from egg.core.evaluation import Gate, Refusal
from egg.core.source import Candidate, Task
from egg.engine.scripted import Act, ScriptedJudge
from egg.evaluator.judge.pool import Answer, Job
from egg.evaluator.judge.question import Question
from tests.api.benching.runners import SOURCE

TASK = Task("task", SOURCE.format(act="nothing"))
JUDGE = ScriptedJudge(lambda _: Act(refusal=Refusal(Gate.BUILD, "build.x", "x", "x")))


def job(name: str) -> Job:
    return Job(name, Question(TASK, Candidate(f"class ModelNew: ...  # {name}")))


def verdict(asked: Job) -> Answer:
    ((name, evaluation),) = JUDGE.judge([asked])
    return Answer(name, evaluation)


@dataclass
class Hand:
    """A pool that answers when its test says so."""

    submitted: list[tuple[str, Job]] = field(default_factory=list)
    ready: list[tuple[str, Answer]] = field(default_factory=list)

    def submit(self, ticket: str, job: Job) -> None:
        self.submitted.append((ticket, job))

    def answers(self, timeout: float) -> list[tuple[str, Answer]]:
        given, self.ready = self.ready, []
        return given

    def gpu(self) -> None: ...

    def close(self) -> None: ...


class Relayed:
    """A relay, its pool, a clock, and what every worker heard."""

    def __init__(self, patience: float = 100.0) -> None:
        self.pool, self.now = Hand(), 0.0
        self.relay = Relay(self.pool, patience, lambda: self.now)
        self.heard: dict[int, list[Replied]] = {1: [], 2: []}

    def ask(self, worker: int, batch: int, *names: str) -> None:
        self.relay.take(worker, Submitted(batch, tuple(map(job, names))), self.heard[worker].append)

    def answer(self, place: int) -> None:
        ticket, asked = self.pool.submitted[place]
        self.pool.ready.append((ticket, verdict(asked)))

    def turn(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.relay.pass_on(0.0)

    def replies_to(self, worker: int) -> list[tuple[int, int, str]]:
        return [(found.batch, found.place, found.answer.job) for found in self.heard[worker]]


def test_answers_go_to_who_asked_in_any_order() -> None:
    at = Relayed()
    at.ask(1, 1, "a", "b")
    at.ask(2, 7, "a")
    for place in (2, 1, 0):
        at.answer(place)
    at.turn()
    assert at.replies_to(1) == [(1, 1, "b"), (1, 0, "a")]
    assert at.replies_to(2) == [(7, 0, "a")]
    assert not at.relay.waits


def test_a_lost_job_is_submitted_once_more_and_then_its_asker_is_told() -> None:
    at = Relayed(patience=100)
    at.ask(1, 1, "a")
    at.turn()
    at.turn(101)
    assert [asked.id for _, asked in at.pool.submitted] == ["a", "a"]
    assert at.replies_to(1) == []
    at.turn()
    at.turn(101)
    (found,) = at.heard[1]
    assert isinstance(found.answer.error, MachineError)
    assert not at.relay.waits
    at.answer(0)
    at.answer(1)
    at.turn()
    assert len(at.heard[1]) == 1, "who was told is not told again"


def test_a_long_queue_loses_nothing() -> None:
    """Two hundred jobs, one answered in every ninety seconds: only the oldest is expected soon."""
    at = Relayed(patience=100)
    at.ask(1, 1, *(str(n) for n in range(200)))
    for place in range(200):
        at.turn(90)
        at.answer(place)
    at.turn()
    assert len(at.pool.submitted) == 200
    assert [name for _, _, name in at.replies_to(1)] == [str(n) for n in range(200)]


def test_nobody_hears_what_a_dead_worker_asked_nor_an_earlier_question() -> None:
    at = Relayed()
    at.ask(1, 1, "a")
    at.ask(2, 1, "b")
    at.relay.forget(1)
    at.ask(2, 2, "c")
    for place in range(3):
        at.answer(place)
    at.turn()
    assert at.replies_to(1) == []
    assert at.replies_to(2) == [(2, 0, "c")]


def test_a_pool_that_served_another_bench_answers_this_one_alone() -> None:
    before, now = Relayed(), Relayed()
    before.relay = Relay(now.pool)
    before.ask(1, 1, "theirs")
    now.ask(1, 1, "ours")
    now.answer(0)
    now.turn()
    assert now.replies_to(1) == []
    now.answer(1)
    now.turn()
    assert now.replies_to(1) == [(1, 0, "ours")]


@given(st.lists(st.sampled_from(["answer", "lose", "twice", "wait"]), max_size=40), st.integers(1, 6))
def test_every_job_is_answered_once_whatever_the_pool_does(deeds: list[str], count: int) -> None:
    at = Relayed(patience=10)
    at.ask(1, 1, *(str(n) for n in range(count)))
    next_one = 0
    for deed in [*deeds, *["wait"] * 5 * count]:
        if deed == "wait":
            at.turn(6)
        elif next_one < len(at.pool.submitted):
            if deed != "lose":
                at.answer(next_one)
            if deed == "twice":
                at.answer(next_one)
            next_one += 1
        at.turn()
    assert Counter(place for _, place, _ in at.replies_to(1)) == dict.fromkeys(range(count), 1)


def test_what_one_kernel_met_is_raised_when_the_others_are_answered() -> None:
    ours, theirs = multiprocessing.Pipe()
    jobs = [job(name) for name in "abc"]
    for place, found in enumerate(
        (verdict(jobs[0]), Answer("b", error=MachineError("no memory", "buy some")), verdict(jobs[2]))
    ):
        ours.send(Replied(1, place, found))
    judged: list[str] = []
    with pytest.raises(MachineError, match="no memory") as caught:
        judged.extend(name for name, _ in RemoteJudge(WorkerChannel(theirs)).judge(jobs))
    assert caught.value.hint == "buy some"
    assert judged == ["a", "c"]


def test_a_pool_that_gives_up_ends_the_bench() -> None:
    at = Relayed()
    at.ask(1, 1, "a")

    def broken(timeout: float) -> list[tuple[str, Answer]]:
        raise MachineError("the cluster is gone", "start it")

    at.pool.answers = broken
    with pytest.raises(MachineError, match="the cluster is gone"):
        at.turn()

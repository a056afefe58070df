"""What becomes of jobs, judges and nodes, whatever a cluster does: with a Ray that a test plays."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.core.codec import to_json
from egg.core.errors import MachineError, UsageError
from egg.engine.cluster import slots
from egg.engine.cluster.actor import Kind
from egg.engine.cluster.slots import Cluster, Work

KIND = Kind(None, "2.13.0", "3.9.0")
H200 = Kind("NVIDIA H200", "2.13.0", "3.9.0")
OLD = Kind("NVIDIA A100", "2.13.0", "3.9.0")


class Died(Exception):
    """As Ray's ActorDiedError."""


class Unavailable(Exception):
    """As Ray's ActorUnavailableError: nobody knows what became of the actor."""


class Raised(Exception):
    """As Ray's RayTaskError: the actor's own code raised."""


@dataclass(eq=False)
class Actor:
    """Judges nothing: its test says what comes of every call."""

    node: str
    device: str
    resources: dict[str, float]
    calls: deque[tuple[str, str, Future[Any]]] = field(default_factory=deque)
    killed: bool = False
    dead: bool = False
    """By itself, which nobody hears of before the next call."""

    def __getattr__(self, method: str) -> Any:
        def remote(*arguments: str) -> Any:
            assert not self.killed
            future: Future[Any] = Future()
            if self.dead:
                future.set_exception(Died("it was dead before"))
            elif method == "ping":
                future.set_result(None)
            else:
                self.calls.append((method, arguments[0] if arguments else "", future))
            return SimpleNamespace(future=lambda: future)

        return SimpleNamespace(remote=remote)

    @property
    def judging(self) -> str | None:
        """The line it was given."""
        return next((line for method, line, _ in self.calls if method == "judge"), None)

    def end(self, result: object) -> None:
        """The oldest call ends so; on the death of an actor, all of them do."""
        everything = isinstance(result, Died | Unavailable)
        for _ in range(len(self.calls) if everything else 1):
            _, _, future = self.calls.popleft()
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)


class PlayedRay:
    """Nodes and actors, and what the pool was told."""

    exceptions = SimpleNamespace(RayTaskError=Raised, ActorUnavailableError=Unavailable)
    util = SimpleNamespace(
        scheduling_strategies=SimpleNamespace(NodeAffinitySchedulingStrategy=SimpleNamespace)
    )

    def __init__(self, device: str = "cpu", kind: Kind | None = None, **nodes: dict[str, float]) -> None:
        self.alive = dict(nodes)
        self.actors: list[Actor] = []
        self.messages: list[dict[str, Any]] = []
        self.events: deque[Callable[[], None]] = deque()
        self.cluster = Cluster(self, object, device, kind, 3600.0, self.messages.append, self.events.append)

    # what the cluster asks of Ray

    def nodes(self) -> list[dict[str, Any]]:
        dead = {"NodeID": "dead", "Alive": False, "Resources": {"CPU": 8.0, "GPU": 8.0}}
        return [dead] + [
            {"NodeID": name, "Alive": True, "NodeManagerHostname": f"host-{name}", "Resources": resources}
            for name, resources in self.alive.items()
        ]

    def remote(self, judge: type) -> Any:
        def options(max_restarts: int, scheduling_strategy: Any, **resources: float) -> Any:
            assert max_restarts == 0
            assert not scheduling_strategy.soft

            def create(device: str) -> Actor:
                self.actors.append(Actor(scheduling_strategy.node_id, device, resources))
                return self.actors[-1]

            return SimpleNamespace(remote=create)

        return SimpleNamespace(options=options)

    def kill(self, actor: Actor) -> None:
        actor.killed = True

    def wait(self, references: list[Any], num_returns: int, timeout: float) -> None:
        assert len(references) == num_returns

    # what a test plays

    def turn(self) -> None:
        self.cluster.refresh()
        self.settle()

    def settle(self) -> None:
        while self.events:
            self.events.popleft()()

    def end(self, actor: Actor, result: object) -> None:
        actor.end(result)
        self.settle()

    def waiting(self, method: str) -> list[Actor]:
        """Actors that live and were asked that."""
        living = [actor for actor in self.actors if actor.node in self.alive and not actor.killed]
        return [actor for actor in living if actor.calls and actor.calls[0][0] == method]

    def describe(self, kind: Kind = KIND) -> None:
        """Every new judge is of that kind."""
        for actor in self.waiting("describe"):
            self.end(actor, to_json(kind))

    def submit(self, *tickets: str) -> None:
        for ticket in tickets:
            self.cluster.take(Work(ticket, "job", ticket))
        self.settle()

    def answer(self, actor: Actor) -> None:
        self.end(actor, json.dumps({"answer to": actor.judging}))

    def answers(self) -> Counter[str]:
        return Counter(message["ticket"] for message in self.messages if "ticket" in message)

    def line(self, ticket: str) -> dict[str, Any]:
        (line,) = [message["line"] for message in self.messages if message.get("ticket") == ticket]
        return json.loads(line)

    def notes(self) -> str:
        return "\n".join(message["note"] for message in self.messages if "note" in message)

    def judges(self) -> int:
        return [message["judges"] for message in self.messages if "ready" in message][-1]


# -- whatever happens -----------------------------------------------------------------------------------

KINDS = (
    "submit",
    "answer",
    "died",
    "unavailable",
    "raised",
    "describe",
    "join",
    "leave",
    "leave late",
    "look",
)
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 7)), max_size=40)


@given(STEPS)
def test_every_job_is_answered_once_and_never_judged_twice_at_a_time(
    steps: list[tuple[str, int]],
) -> None:
    ray = PlayedRay(first={"CPU": 1.0})
    ray.turn()
    ray.describe()
    sent: list[str] = []
    for step, choice in steps:
        _play(ray, step, choice, sent)
        judged = Counter(actor.judging for actor in ray.waiting("judge"))
        assert all(count == 1 for count in judged.values())
    ray.alive["last"] = {"CPU": 2.0}
    for _ in range(10 * len(sent) + 10):
        ray.turn()
        ray.describe()
        for actor in ray.waiting("judge"):
            ray.answer(actor)
    assert ray.answers() == Counter(sent)


def _play(ray: PlayedRay, step: str, choice: int, sent: list[str]) -> None:
    busy = ray.waiting("judge")
    starting = ray.waiting("describe")
    ends: dict[str, Any] = {"died": Died("x"), "unavailable": Unavailable("x"), "raised": Raised("x")}
    match step:
        case "submit":
            sent.append(str(len(sent)))
            ray.submit(sent[-1])
        case "answer" if busy:
            ray.answer(busy[choice % len(busy)])
        case "died" | "unavailable" | "raised" if busy:
            ray.end(busy[choice % len(busy)], ends[step])
        case "died" if starting:
            ray.end(starting[choice % len(starting)], Died("x"))
        case "describe" if starting:
            ray.end(starting[choice % len(starting)], to_json(KIND))
        case "join":
            ray.alive[f"node-{choice}"] = {"CPU": 2.0}
        case "leave" | "leave late" if ray.alive:
            gone = list(ray.alive)[choice % len(ray.alive)]
            del ray.alive[gone]
            if step == "leave late":  # that is, Ray tells of the node before it tells of its actors
                ray.turn()
            for actor in [a for a in ray.actors if a.node == gone and a.calls and not a.killed]:
                last = '{"the last": "answer"}' if actor.judging else to_json(KIND)
                ray.end(actor, last if choice % 2 else Died("its node died"))
        case "look":
            ray.turn()


# -- jobs that are lost ---------------------------------------------------------------------------------


def test_a_job_that_ends_its_judge_twice_is_given_up_and_tried_elsewhere_first() -> None:
    ray = PlayedRay(a={"CPU": 4.0}, b={"CPU": 1.0})
    ray.turn()
    ray.describe()
    ray.submit("1")
    (first,) = ray.waiting("judge")
    ray.end(first, Died("Died.\n\tpid: 7\nThe worker was killed. Some common causes are (1)"))
    (second,) = ray.waiting("judge")
    assert second.node != first.node
    ray.end(second, Died("The worker was killed."))
    error = ray.line("1")["error"]
    assert error["kind"] == "MachineError"
    assert error["message"].endswith("2 times, the last time: The worker was killed.")
    ray.describe()
    assert ray.judges() == 3, "both were replaced"


def test_a_job_whose_nodes_die_is_not_to_blame_but_is_not_tried_for_ever() -> None:
    ray = PlayedRay(n0={"CPU": 1.0})
    ray.turn()
    ray.describe()
    ray.submit("1")
    for number in range(slots.LOSSES):
        assert not ray.answers()
        assert len(ray.waiting("judge")) == 1
        ray.alive = {f"n{number + 1}": {"CPU": 1.0}}
        ray.turn()
        ray.describe()
    assert "lost 6 times" in ray.line("1")["error"]["message"]


def test_a_job_is_not_blamed_for_a_node_whose_death_only_its_judge_has_told_of() -> None:
    ray = PlayedRay(n0={"CPU": 1.0})
    ray.turn()
    ray.describe()
    ray.submit("1")
    for number in range(slots.KILLS + 1):
        (actor,) = ray.waiting("judge")
        ray.alive = {f"n{number + 1}": {"CPU": 1.0}}
        ray.end(actor, Died("its node died"))
        ray.describe()
    (actor,) = ray.waiting("judge")
    ray.answer(actor)
    assert ray.line("1") == {"answer to": "1"}


def test_a_job_is_not_blamed_for_judges_that_died_before_they_had_it() -> None:
    dying = slots.KILLS + 1
    ray = PlayedRay(a={"CPU": 2.0 * dying})
    ray.turn()
    ray.describe()
    assert len(ray.actors) == dying
    for actor in ray.actors:
        actor.dead = True
    ray.submit("1")
    assert len(ray.actors) == 2 * dying, "all were found out, one after the other"
    assert not ray.answers()
    ray.describe()
    (actor,) = ray.waiting("judge")
    ray.answer(actor)
    assert ray.line("1") == {"answer to": "1"}


def test_a_judge_that_never_answers_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = PlayedRay(a={"CPU": 1.0})
    ray.turn()
    ray.describe()
    ray.submit("1")
    (silent,) = ray.waiting("judge")
    monkeypatch.setattr(slots, "JOB_SECONDS", -1.0)
    ray.turn()
    monkeypatch.undo()
    assert silent.killed
    ray.describe()
    silent.end("too late")
    ray.settle()
    (fresh,) = ray.waiting("judge")
    ray.answer(fresh)
    assert ray.line("1") == {"answer to": "1"}


# -- which judges there are -----------------------------------------------------------------------------


def test_gpus_get_a_judge_each_and_nodes_without_one_get_none() -> None:
    ray = PlayedRay("auto", head={"CPU": 64.0}, a={"CPU": 8.0, "GPU": 2.0}, b={"GPU": 1.0})
    ray.turn()
    ray.describe(H200)
    assert Counter(actor.node for actor in ray.actors) == {"a": 2, "b": 1}
    assert all(actor.device == "cuda:0" for actor in ray.actors)
    assert all(actor.resources == {"num_gpus": 1, "num_cpus": 0} for actor in ray.actors)
    assert ray.judges() == 3


@pytest.mark.parametrize(("device", "nodes"), [("cpu", {"GPU": 1.0, "CPU": 5.0}), ("auto", {"CPU": 5.0})])
def test_cpus_get_a_judge_for_every_two(device: str, nodes: dict[str, float]) -> None:
    ray = PlayedRay(device, a=nodes, b={"CPU": 1.0})
    ray.turn()
    assert Counter(actor.node for actor in ray.actors) == {"a": 2, "b": 1}
    assert [actor.resources["num_cpus"] for actor in ray.actors] == [2, 2, 1]
    assert all(actor.device == "cpu" for actor in ray.actors)


def test_a_cluster_without_gpus_cannot_judge_on_them() -> None:
    with pytest.raises(UsageError, match="no node of the cluster has a GPU"):
        PlayedRay("cuda", a={"CPU": 8.0})


def test_the_kind_that_most_have_is_kept_and_the_others_are_told_of() -> None:
    ray = PlayedRay("auto", a={"GPU": 1.0}, b={"GPU": 2.0})
    ray.turn()
    for actor in ray.waiting("describe"):
        ray.end(actor, to_json(OLD if actor.node == "a" else H200))
    assert ray.judges() == 2
    assert "host-a is left out: it has NVIDIA A100" in ray.notes()
    ray.alive["c"] = {"GPU": 1.0}
    ray.turn()
    ray.describe(OLD)
    assert "host-c is left out" in ray.notes()
    ray.submit("1", "2", "3")
    assert {actor.node for actor in ray.waiting("judge")} == {"b"}


def test_a_kind_that_was_settled_before_stays() -> None:
    ray = PlayedRay("cuda", kind=H200, a={"GPU": 2.0}, b={"GPU": 1.0})
    ray.turn()
    for actor in ray.waiting("describe"):
        ray.end(actor, to_json(OLD if actor.node == "a" else H200))
    assert ray.judges() == 1
    assert "host-a is left out" in ray.notes()


def test_nothing_is_judged_before_the_kind_is_settled() -> None:
    ray = PlayedRay(a={"CPU": 1.0}, b={"CPU": 1.0})
    ray.turn()
    ray.submit("1")
    ray.end(ray.waiting("describe")[0], to_json(KIND))
    assert not ray.waiting("judge")
    ray.describe()
    assert len(ray.waiting("judge")) == 1


def test_a_node_that_keeps_us_waiting_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "SETTLE_SECONDS", 0.0)
    ray = PlayedRay(a={"CPU": 1.0}, taken={"CPU": 1.0})
    ray.turn()
    ray.end(next(actor for actor in ray.waiting("describe") if actor.node == "a"), to_json(KIND))
    ray.submit("1")
    assert len(ray.waiting("judge")) == 1


def test_nodes_that_say_why_they_cannot_judge_are_left_out_and_alone_are_refused() -> None:
    ray = PlayedRay(a={"CPU": 1.0}, b={"CPU": 1.0})
    ray.turn()
    first, second = ray.waiting("describe")
    ray.end(first, Raised("  trace\nRuntimeError: torch is not installed"))
    assert "host-a is left out: RuntimeError: torch is not installed" in ray.notes()
    with pytest.raises(UsageError, match="no node of the cluster can judge: host-a: RuntimeError: torch"):
        ray.end(second, Raised("RuntimeError: torch is not installed"))


def test_a_judge_that_does_not_start_is_given_up_after_some_tries_and_tried_again_much_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slots, "REST_SECONDS", -1.0)
    ray = PlayedRay(a={"CPU": 1.0}, b={"CPU": 1.0})
    ray.turn()
    ray.end(next(actor for actor in ray.waiting("describe") if actor.node == "b"), to_json(KIND))
    for _ in range(slots.STARTS):
        (starting,) = ray.waiting("describe")
        ray.end(starting, Died("no memory"))
        ray.turn()
    assert not ray.waiting("describe")
    assert "host-a is left out: its judge does not start: no memory" in ray.notes()
    assert ray.judges() == 1
    monkeypatch.setattr(slots, "REOPEN_SECONDS", -1.0)
    ray.turn()
    ray.describe()
    assert ray.judges() == 2


def test_a_cluster_whose_resources_are_taken_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = PlayedRay(a={"CPU": 1.0})
    ray.turn()
    monkeypatch.setattr(slots, "START_SECONDS", -1.0)
    with pytest.raises(MachineError, match="no judge became ready"):
        ray.turn()


def test_a_cluster_that_is_empty_for_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = PlayedRay(a={"CPU": 1.0})
    ray.turn()
    ray.describe()
    ray.submit("1")
    ray.alive.clear()
    ray.turn()
    ray.turn()
    assert ray.judges() == 0
    monkeypatch.setattr(ray.cluster, "_patience", -1.0)
    with pytest.raises(MachineError, match="has had no judge"):
        ray.turn()


def test_closing_ends_every_judge() -> None:
    ray = PlayedRay(a={"CPU": 4.0})
    ray.turn()
    ray.describe()
    ray.submit("1")
    ray.cluster.close()
    assert all(actor.killed for actor in ray.actors)
    assert [method for actor in ray.actors for method, _, _ in actor.calls] == ["judge", "close"]

"""Which judges there are on a cluster, what each of them does, and what becomes of jobs whose judge is lost.

Every node has so many *slots*: one per GPU, or one per few CPUs where kernels are judged on
CPUs. A slot is filled with an actor that is bound to its node, and filled again when the actor
dies. Slots come and go with their nodes: the cluster is looked over every few seconds.

A job that was under way when its judge was lost is tried again, on another node if there is
one. It is given up when it took its judge's process with it twice while the node lived on
(then it is likely to blame), or when it was lost so often that waiting longer is pointless.

All judges of a pool are of one kind (GPU, PyTorch, Triton), or a table would mix what cannot
be compared: the kind that most of the first judges have. The others are left out, with a
note.

Everything here runs in one thread. What Ray reports comes as calls through ``later``.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from egg.core.codec import from_json, to_json
from egg.core.errors import EggError, MachineError, UsageError
from egg.engine.cluster.actor import Kind, package_fingerprint
from egg.evaluator.judge.oracle import ANSWER_SECONDS
from egg.evaluator.judge.pool import Answer

CPUS_PER_JUDGE = 2
KILLS = 2
"""How often a job may end its judge's process before it is given up."""
LOSSES = 6
"""How often a job may be lost at all."""
STARTS = 3
"""How often a slot's judge may fail to start before the slot is given up for a while."""
REOPEN_SECONDS = 600.0
"""That while: what kept a judge from starting may have ended."""
REST_SECONDS = 2.0
"""Before a judge that failed to start is started again."""
SETTLE_SECONDS = 30.0
"""After which those who have answered decide what kind of judges there shall be."""
START_SECONDS = 180.0
"""For the first judge to describe."""
JOB_SECONDS = 3 * ANSWER_SECONDS
"""After which an answer will not come: the judge's own limits should have ended the job long before."""
CLOSE_SECONDS = 5.0

Report = Callable[[dict[str, Any]], None]


class Status(Enum):
    EMPTY = "empty"
    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    CLOSED = "closed"
    """What is there cannot judge, or not comparably."""


@dataclass(eq=False)
class Work:
    """A job on its way."""

    ticket: str
    job: str
    line: str
    kills: int = 0
    """How often its judge's process ended under it while the node lived on."""
    lost_on: list[str] = field(default_factory=list)
    """Nodes, one for each time."""


@dataclass(eq=False)
class Slot:
    """A place for a judge on a node."""

    node: str
    host: str
    needs: dict[str, float]
    """What Ray is to set aside for its judge."""
    status: Status = Status.EMPTY
    actor: Any = None
    kind: Kind | None = None
    work: Work | None = None
    failures: int = 0
    """Starts that failed, one after the other."""
    since: float = 0.0
    """When it came to its status."""
    reason: str = ""
    """Why it is closed."""

    def become(self, status: Status) -> None:
        self.status, self.since = status, time.monotonic()


class Cluster:
    """The judges of a cluster, each an actor of the class ``judge``.

    ``say`` tells the pool; ``later`` has something called in this thread.
    """

    def __init__(
        self,
        ray: Any,
        judge: type,
        device: str,
        kind: Kind | None,
        patience: float,
        report: Report,
        later: Callable[[Callable[[], None]], None],
    ) -> None:
        self._ray, self._judge, self._report, self._later = ray, judge, report, later
        self._slots: list[Slot] = []
        self._waiting: deque[Work] = deque()
        self._kind = kind
        """Settled; ``None`` until then."""
        self._patience = patience
        self._began = self._alive = time.monotonic()
        self._fingerprint = package_fingerprint()
        self._noted: set[str] = set()
        self._reported = 0
        self._gpus = self._judge_on_gpus(device) if kind is None else kind.gpu is not None

    def _judge_on_gpus(self, device: str) -> bool:
        """``auto`` is the GPUs, where there are any when the pool begins: never some of both."""
        if device == "cpu":
            return False
        if any(_gpus_of(node) for node in self._nodes()):
            return True
        if device != "auto":
            raise UsageError(
                "no node of the cluster has a GPU", "see `ray status`; judge on CPUs with --device cpu"
            )
        return False

    # -- slots ---------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Follow the cluster: drop slots of dead nodes, add those of new ones, fill the empty."""
        nodes = {str(node["NodeID"]): node for node in self._nodes()}
        for slot in [slot for slot in self._slots if slot.node not in nodes]:
            self._slots.remove(slot)
            slot.actor = None  # what is still reported of it comes too late
            self._note(f"node {slot.host} is gone", occasion=slot.node)
            self._give_back(slot, "its node died")
        known = {slot.node for slot in self._slots}
        for name, node in nodes.items():
            if name not in known:
                host = str(node.get("NodeManagerHostname") or node["NodeManagerAddress"])
                self._slots.extend(Slot(name, host, needs) for needs in self._places_on(node))
        for slot in self._slots:
            self._maintain(slot)
        self._settle()
        self._check_patience()
        self._assign()

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    def _places_on(self, node: dict[str, Any]) -> list[dict[str, float]]:
        """What each judge of a node takes of it."""
        if self._gpus:
            return [{"num_gpus": 1, "num_cpus": 0}] * _gpus_of(node)
        cpus = int(node["Resources"].get("CPU", 0))
        each = min(CPUS_PER_JUDGE, cpus)
        return [{"num_cpus": each}] * (cpus // each) if cpus else []

    def _maintain(self, slot: Slot) -> None:
        age = time.monotonic() - slot.since
        given_up = slot.failures >= STARTS
        rest = REOPEN_SECONDS if given_up else REST_SECONDS if slot.failures else 0.0
        vacant = slot.status is Status.EMPTY or (slot.status is Status.CLOSED and given_up)
        if vacant and age >= rest:
            self._fill(slot)
        elif slot.status is Status.BUSY and age > JOB_SECONDS:
            self._lose(slot, f"no answer within {JOB_SECONDS / 60:.0f} minutes", blamed=True)

    def _fill(self, slot: Slot) -> None:
        strategies = self._ray.util.scheduling_strategies
        bound = strategies.NodeAffinitySchedulingStrategy(node_id=slot.node, soft=False)
        judge = self._ray.remote(self._judge).options(max_restarts=0, scheduling_strategy=bound, **slot.needs)
        actor = slot.actor = judge.remote("cuda:0" if self._gpus else "cpu")
        slot.become(Status.STARTING)
        self._when_done(actor.describe.remote(self._fingerprint), slot, self._described)

    def _when_done(self, reference: Any, slot: Slot, then: Callable[[Slot, Future[Any]], None]) -> None:
        """Call ``then`` with what came of it, unless the slot has another actor by then."""
        actor = slot.actor

        def call(future: Future[Any]) -> None:
            if slot.actor is actor:
                then(slot, future)

        reference.future().add_done_callback(lambda future: self._later(lambda: call(future)))

    def _described(self, slot: Slot, future: Future[Any]) -> None:
        error = future.exception()
        if error is None:
            slot.kind = from_json(Kind, future.result())
            slot.failures = 0
            slot.become(Status.IDLE)
            self._alive = slot.since
        elif isinstance(error, self._ray.exceptions.RayTaskError):  # the message says why it cannot judge
            self._close(slot, _cause(error))
        else:
            slot.failures += 1
            self._empty(slot)
            if slot.failures >= STARTS:
                self._close(slot, f"its judge does not start: {_cause(error)}")
        self._settle()
        self._assign()

    def _close(self, slot: Slot, reason: str) -> None:
        self._empty(slot)
        slot.reason = reason
        slot.become(Status.CLOSED)
        self._note(f"node {slot.host} is left out: {reason}")

    def _empty(self, slot: Slot) -> None:
        if slot.actor is not None:
            self._ray.kill(slot.actor)
        slot.actor = slot.work = None
        slot.become(Status.EMPTY)

    # -- one kind ------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Choose the kind as soon as all have answered, or some have and the others let us wait."""
        if self._kind is None:
            kinds = Counter(slot.kind for slot in self._slots if slot.status is Status.IDLE and slot.kind)
            hopeful = any(slot.status in (Status.EMPTY, Status.STARTING) for slot in self._slots)
            waited = time.monotonic() - self._began
            if not kinds:
                self._check_start(hopeful or not self._slots, waited)
            if not kinds or (hopeful and waited < SETTLE_SECONDS):
                return
            self._kind = max(kinds, key=lambda kind: (kinds[kind], str(kind)))
        for slot in [slot for slot in self._slots if slot.status is Status.IDLE]:
            if slot.kind != self._kind:
                self._close(slot, f"it has {slot.kind}, and the judges of this bench have {self._kind}")
            else:
                self._note(f"node {slot.host} judges: {slot.kind}", occasion=slot.node)
        self._report_judges()

    def _check_start(self, hopeful: bool, waited: float) -> None:
        if not hopeful:
            reasons = "; ".join(dict.fromkeys(f"{slot.host}: {slot.reason}" for slot in self._slots))
            raise UsageError(
                f"no node of the cluster can judge: {reasons}",
                "every node needs Ray, PyTorch and Triton in the Python that Ray was started with",
            )
        if waited > START_SECONDS:
            raise MachineError(
                f"no judge became ready within {START_SECONDS:.0f} s",
                "are the cluster's GPUs or CPUs taken by others? see `ray status`",
            )

    def _report_judges(self) -> None:
        """The pool hears when it can begin, and of every change in the number of judges."""
        active = self._active()
        if self._kind is not None and len(active) != self._reported:
            self._reported = len(active)
            self._report({"ready": to_json(self._kind), "judges": len(active)})

    def _active(self) -> list[Slot]:
        return [slot for slot in self._slots if slot.status in (Status.IDLE, Status.BUSY)]

    def _check_patience(self) -> None:
        now = time.monotonic()
        if self._active():
            self._alive = now
        elif self._kind is not None and now - self._alive > self._patience:
            minutes = self._patience / 60
            raise MachineError(
                f"the cluster has had no judge for {minutes:.0f} minutes", "see `ray status`, then go on"
            )

    # -- jobs ----------------------------------------------------------------------------------------

    def take(self, work: Work) -> None:
        self._waiting.append(work)
        self._assign()

    def _assign(self) -> None:
        """Give every idle judge the first job that was not lost on its node, or cannot go elsewhere."""
        if self._kind is None:
            return
        usable = {slot.node for slot in self._active()}
        for slot in self._slots:
            if slot.status is Status.IDLE:
                work = next((w for w in self._waiting if _may_go(w, slot.node, usable)), None)
                if work is not None:
                    self._waiting.remove(work)
                    self._send(work, slot)
        self._report_judges()

    def _send(self, work: Work, slot: Slot) -> None:
        """To a judge that is pinged first: where it died idle, the job is not to blame."""
        slot.work = work
        slot.become(Status.BUSY)
        self._when_done(slot.actor.ping.remote(), slot, self._present)

    def _present(self, slot: Slot, future: Future[Any]) -> None:
        error = future.exception()
        if error is None:
            assert slot.work is not None
            self._when_done(slot.actor.judge.remote(slot.work.line), slot, self._judged)
        else:
            self._missing(slot, error, blamed=False)

    def _judged(self, slot: Slot, future: Future[Any]) -> None:
        error = future.exception()
        exceptions = self._ray.exceptions
        if error is None:
            assert slot.work is not None
            self._report({"ticket": slot.work.ticket, "line": future.result()})
            slot.work = None
            slot.become(Status.IDLE)
            self._assign()
        elif isinstance(error, exceptions.RayTaskError):
            assert slot.work is not None
            self._refuse(slot.work, MachineError(f"internal error: {_cause(error)}", "please report it"))
            self._empty(slot)
            self._maintain(slot)
        else:
            self._missing(slot, error, blamed=not isinstance(error, exceptions.ActorUnavailableError))

    def _missing(self, slot: Slot, error: BaseException, blamed: bool) -> None:
        self.refresh()  # it may have been lost with its node, which is then settled here
        if slot in self._slots and slot.status is Status.BUSY:
            self._lose(slot, _cause(error), blamed)

    def _lose(self, slot: Slot, reason: str, blamed: bool) -> None:
        """The judge is lost, and its node is not."""
        if slot.work is not None and blamed:
            slot.work.kills += 1
        self._report({"note": f"a judge on {slot.host} was lost and is replaced: {reason}"})
        self._give_back(slot, reason)
        self._empty(slot)
        self._maintain(slot)
        self._assign()

    def _give_back(self, slot: Slot, reason: str) -> None:
        """The slot's job, to be tried again or given up."""
        work, slot.work = slot.work, None
        if work is None:
            return
        work.lost_on.append(slot.node)
        if work.kills >= KILLS:
            self._refuse(
                work,
                MachineError(
                    f"judging it ended the judge's process {KILLS} times, the last time: {reason}",
                    "the task may need more memory than a node has; look into the logs of the cluster",
                ),
            )
        elif len(work.lost_on) >= LOSSES:
            self._refuse(work, MachineError(f"its judge was lost {LOSSES} times: {reason}", "try it again"))
        else:
            self._waiting.appendleft(work)

    def _refuse(self, work: Work, error: EggError) -> None:
        self._report({"ticket": work.ticket, "line": Answer(work.job, error=error).to_line()})

    def _note(self, text: str, occasion: str = "") -> None:
        """Tell something once, however many slots it is true of."""
        if text + occasion not in self._noted:
            self._noted.add(text + occasion)
            self._report({"note": text})

    def close(self) -> None:
        """Let idle judges end their oracles; the others end with their actors."""
        idle = [slot.actor.close.remote() for slot in self._slots if slot.status is Status.IDLE]
        if idle:
            self._ray.wait(idle, num_returns=len(idle), timeout=CLOSE_SECONDS)
        for slot in self._slots:
            self._empty(slot)


def _gpus_of(node: dict[str, Any]) -> int:
    return int(node["Resources"].get("GPU", 0))


def _may_go(work: Work, node: str, usable: set[str]) -> bool:
    return node not in work.lost_on or usable <= set(work.lost_on)


def _cause(error: BaseException) -> str:
    """The line of Ray's long messages that says what happened, without its guesses about the cause."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line[0].isspace()]
    return (lines[-1] if lines else type(error).__name__).split(" Some common causes")[0][:300]

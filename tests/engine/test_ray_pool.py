"""Judges on a real Ray cluster whose nodes and workers are killed; and addresses that lead nowhere."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from egg.core.errors import MachineError, UsageError
from egg.core.policy import Level, Policy
from egg.core.source import Candidate, Task
from egg.engine import ray_pool
from egg.engine.ray_pool import RayPool
from egg.evaluator.judge.pool import Answer, Job
from egg.evaluator.judge.question import Question
from egg.evaluator.process.forkserver import descendants
from tests.engine.ray_cluster import LocalCluster, local_cluster
from tests.samples import WIDE

PATIENCE_SECONDS = 600.0
"""For a chapter of a test: an actor starts within 3 s alone, and within a minute beside a busy test run."""
STUB = "tests.engine.ray_stub:StubJudge"
TASK = Task("wide", WIDE.format(width=8, forward="self.linear(x)"))


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster() as made:
        yield made


def job(**order: object) -> Job:
    """Of one name, all of them: it is the tickets that tell them apart."""
    kernel = f"# {json.dumps(order)}\nclass ModelNew:\n    pass\n"
    return Job("j", Question(TASK, Candidate(kernel), Policy(level=Level.QUICK)))


class Sent:
    """A pool, what it answered, and what it said."""

    def __init__(self, address: str) -> None:
        self.notes: list[str] = []
        self.got: list[tuple[str, Answer]] = []
        self.pool = RayPool(address, on_note=self.notes.append, judge=STUB)

    def submit(self, *tickets: str, **order: object) -> None:
        for ticket in tickets:
            self.pool.submit(ticket, job(**order))

    def until(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not ready():
            assert time.monotonic() < deadline, (self.got, self.notes)
            self.got += self.pool.answers(0.05)

    def until_answered(self, *tickets: str) -> None:
        """All of these, each of them once, and nothing else."""
        self.until(lambda: {ticket for ticket, _ in self.got} >= set(tickets))
        self.got += self.pool.answers(0.5)
        assert sorted(ticket for ticket, _ in self.got) == sorted(tickets)

    def take(self) -> dict[str, Answer]:
        got, self.got = dict(self.got), []
        return got


def test_every_job_is_answered_once_whatever_becomes_of_nodes_and_workers(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One test, because a cluster takes its time to start: its chapters follow on each other."""
    monkeypatch.setattr(ray_pool, "RETRY_SECONDS", 0.2)
    doomed = cluster.add_node()
    sent = Sent(cluster.address)
    with sent.pool as pool:
        assert pool.gpu() is None
        sent.until(lambda: pool.judges == 2)  # the second node is counted a moment after it joined
        a_node_dies(cluster, doomed, sent, tmp_path / "dies")
        a_job_ends_its_worker(sent)
        a_worker_is_killed(sent, tmp_path / "killed")
        the_envoy_is_killed(sent, tmp_path / "bridge")
        a_node_joins(cluster, sent, tmp_path / "joins")
        (bridge,) = bridges()
    assert not bridges()
    assert not os.path.exists(f"/proc/{bridge}")
    pool.close()  # a second time does no harm
    with pytest.raises(ValueError, match="closed"):
        pool.answers(0)


def a_node_dies(cluster: LocalCluster, doomed: int, sent: Sent, folder: Path) -> None:
    begun, gate = places(folder)
    sent.submit("1", "2", begun=begun, wait_for=gate)
    sent.submit("3", "4", "5")
    sent.until(lambda: len(read(begun)) == 2)
    cluster.kill_node(doomed)
    sent.until(lambda: any("is gone" in note for note in sent.notes))
    assert not sent.got
    Path(gate).touch()
    sent.until_answered("1", "2", "3", "4", "5")
    assert all(answer.evaluation is not None and answer.job == "j" for answer in sent.take().values())
    again = read(begun)[2:]
    assert len(again) == 1
    assert again[0].raylet != doomed
    assert sent.pool.judges == 1


def a_job_ends_its_worker(sent: Sent) -> None:
    sent.submit("killer", die=True)
    sent.submit("fault", fault=True)
    sent.submit("after")
    sent.until_answered("killer", "fault", "after")
    got = sent.take()
    assert isinstance(got["killer"].error, MachineError)
    assert "2 times" in got["killer"].error.message
    assert isinstance(got["fault"].error, MachineError)
    assert "a fault of the judge's own" in got["fault"].error.message
    assert got["after"].evaluation is not None


def a_worker_is_killed(sent: Sent, folder: Path) -> None:
    """While it has nothing to do, and the next one with its job: neither is the job's fault."""
    begun, gate = places(folder)
    sent.submit("0", begun=begun)
    sent.until_answered("0")
    sent.take()
    os.kill(read(begun)[0].worker, signal.SIGKILL)
    sent.submit("1", begun=begun, wait_for=gate)
    sent.until(lambda: len(read(begun)) == 2)
    os.kill(read(begun)[1].worker, signal.SIGKILL)
    Path(gate).touch()
    sent.until_answered("1")
    assert sent.take()["1"].evaluation is not None
    assert len({began.worker for began in read(begun)}) == 3


def the_envoy_is_killed(sent: Sent, folder: Path) -> None:
    begun, gate = places(folder)
    sent.submit("1", begun=begun, wait_for=gate)
    sent.until(lambda: len(read(begun)) == 1)
    (bridge,) = bridges()
    os.kill(bridge, signal.SIGKILL)
    sent.until(lambda: any("connection to the cluster is lost" in note for note in sent.notes))
    sent.submit("2")
    sent.until(lambda: len(read(begun)) == 2)
    Path(gate).touch()
    sent.until_answered("1", "2")
    assert all(answer.evaluation is not None for answer in sent.take().values())


def a_node_joins(cluster: LocalCluster, sent: Sent, folder: Path) -> None:
    begun, gate = places(folder)
    sent.submit("1", "2", begun=begun, wait_for=gate)
    newcomer = cluster.add_node()
    sent.until(lambda: len(read(begun)) == 2)
    assert newcomer in {began.raylet for began in read(begun)}
    assert sent.pool.judges == 2
    Path(gate).touch()
    sent.until_answered("1", "2")
    sent.take()


class Began(NamedTuple):
    """By which processes a job was begun."""

    worker: int
    raylet: int


def places(folder: Path) -> tuple[str, str]:
    """Where jobs write that they began, and what they wait for."""
    folder.mkdir()
    return str(folder / "begun"), str(folder / "gate")


def read(begun: str) -> list[Began]:
    lines = Path(begun).read_text().splitlines() if os.path.exists(begun) else []
    return [Began(*map(int, line.split())) for line in lines]


def bridges() -> list[int]:
    """The processes of this one that talk to Ray."""
    return [pid for pid in descendants(os.getpid()) if "egg.engine.cluster.bridge" in command_line(pid)]


def command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


# -- addresses that lead nowhere -----------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nobody_listens_is_refused_at_once(scheme: str) -> None:
    before = time.monotonic()
    with pytest.raises(UsageError, match="nothing answers at") as refused:
        RayPool(f"{scheme}127.0.0.1:{free_port()}")
    assert "ray://HOST:PORT" in refused.value.hint
    assert time.monotonic() - before < 40


@pytest.mark.parametrize(
    "address", ["", "local", "here", "http://h:1", "h:", ":6379", "h:port", "h:123456", "h 1:2"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="not the address of a Ray cluster"):
        RayPool(address)


def test_a_port_beyond_the_last_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing answers at"):
        RayPool("127.0.0.1:99999")


def test_a_device_that_no_cluster_has_is_refused() -> None:
    with pytest.raises(UsageError, match="not a device of a cluster"):
        RayPool("auto", "cuda:3")


def test_a_server_that_is_not_ray_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_pool, "CONNECT_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts, and says nothing
        address = f"127.0.0.1:{server.getsockname()[1]}"
        before = time.monotonic()
        with pytest.raises(UsageError, match="cannot join the Ray cluster"):
            RayPool(address)
        assert time.monotonic() - before < 60
    assert not bridges()


def test_no_cluster_on_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if subprocess.run(["pgrep", "-f", "gcs_server"], capture_output=True).returncode == 0:
        pytest.skip("another test has a cluster on this machine, which would be joined")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(UsageError, match="cannot join the Ray cluster at 'auto'"):
        RayPool("auto")


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else found(name))
    with pytest.raises(UsageError, match="Ray is not installed") as refused:
        RayPool("auto")
    assert 'pip install "egg-kernels[ray]"' in refused.value.hint

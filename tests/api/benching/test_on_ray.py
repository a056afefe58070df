"""A bench whose kernels are judged on a real Ray cluster of two nodes, one of them killed in the middle."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from egg.api.benching.bench import run_bench
from egg.bench.rows import Passed
from egg.core.policy import Level
from egg.engine.ray_pool import RayPool
from egg.evaluator.process.forkserver import descendants
from tests.api.benching.tasks import options, relu, suite
from tests.engine.ray_cluster import LocalCluster, local_cluster

TASKS = (relu(1), relu(2))
QUICK = replace(options(), level=Level.QUICK)


@pytest.mark.timeout(1200)
def test_every_task_has_its_row_and_none_has_two(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    notes: list[str] = []
    with local_cluster() as cluster:
        doomed = cluster.add_node()
        with RayPool(cluster.address, on_note=notes.append) as pool:
            assert _two_judges(pool), notes
            killer = Killer(cluster, doomed, rows)
            result = run_bench(suite(*TASKS), QUICK, tmp_path, workers=2, environ={}, pool=pool)
            killer.join()
    assert 0 <= killer.rows < len(TASKS), "it was killed in the middle"
    assert any("is gone" in note for note in notes)
    assert not result.missing
    assert Counter(json.loads(line)["key"] for line in rows.read_text().splitlines()) == {"1/1": 1, "1/2": 1}
    assert all(isinstance(row.verdict, Passed) for row in result.rows)


class Killer(threading.Thread):
    """Kills a node while it judges a kernel."""

    def __init__(self, cluster: LocalCluster, raylet: int, rows: Path) -> None:
        super().__init__(daemon=True)
        self.rows = -1
        """How many there were when the node was killed."""
        self._cluster, self._raylet, self._rows = cluster, raylet, rows
        self.start()

    def run(self) -> None:
        while not any(_is_oracle(pid) for pid in descendants(self._raylet)):
            time.sleep(0.2)
        self.rows = len(self._rows.read_text().splitlines())
        self._cluster.kill_node(self._raylet)


def _two_judges(pool: RayPool, seconds: float = 600.0) -> bool:
    """Whether both nodes join. The first judge makes the pool ready; it hears of the second when asked."""
    deadline = time.monotonic() + seconds
    while pool.judges < 2 and time.monotonic() < deadline:
        assert not pool.answers(0.1)
    return pool.judges == 2


def _is_oracle(pid: int) -> bool:
    try:
        return b"egg.evaluator.judge.oracle" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False

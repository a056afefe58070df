"""A real Ray cluster on this machine: every node a raylet of its own, to be killed as a machine is."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from egg.evaluator.process.forkserver import descendants

ROOT = Path(__file__).parents[2]
MEMORY = 80_000_000
"""Of a node's object store, in bytes: about the least that Ray takes."""
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_memory_monitor_refresh_ms": "0",  # others use this machine's memory too
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "2",
    "RAY_worker_register_timeout_seconds": "300",  # of a worker that starts beside a busy test run
    "PYTHONPATH": str(ROOT),  # for stubs; the package itself travels with the job
}
"""The death of a node is noticed within a second or two, not after a quarter of a minute."""


class LocalCluster:
    """Nodes with one CPU each: one judge on every node."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        bare = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
        head = {"num_cpus": 1, "object_store_memory": MEMORY, **bare}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.address = self._cluster.address

    def add_node(self) -> int:
        """Its raylet's process."""
        node = self._cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
        return node.all_processes["raylet"][0].process.pid

    def kill_node(self, raylet: int) -> None:
        """Everything at once, as when a machine loses its power."""
        for pid in (raylet, *descendants(raylet)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        self._cluster.shutdown()


@contextlib.contextmanager
def local_cluster() -> Iterator[LocalCluster]:
    pytest.importorskip("ray")
    folder = Path(tempfile.mkdtemp(prefix="r-", dir="/tmp"))  # short: Ray puts sockets into it
    folder.chmod(0o711)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**SETTINGS, "TMPDIR": str(folder)}.items():
            patch.setenv(name, value)
        patch.delenv("RAY_ADDRESS", raising=False)
        before = signal.getsignal(signal.SIGTERM)  # a node that is started here takes it for itself
        try:
            cluster = LocalCluster()
            try:
                yield cluster
            finally:
                cluster.close()
        finally:
            signal.signal(signal.SIGTERM, before)
            shutil.rmtree(folder, ignore_errors=True)

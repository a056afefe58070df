"""Files of random programs at calls beside the captured one: right or an error, never another answer.

This is the short form; ``python -m benchmarks.domain.random_programs`` draws thousands and keeps what failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.domain.pool import Worker
from benchmarks.domain.random_programs import asked, evidence, failures, task_of
from benchmarks.domain.sweep import WORKER

EXAMPLES, CALLS = 10, 3


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker(WORKER, "cpu")
    yield made
    made.close()


@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example, HealthCheck.data_too_large],
)
@given(st.randoms(use_true_random=False))
def test_a_file_is_right_or_says_no_beside_its_captured_call(worker: Worker, random: Random) -> None:
    task = task_of(random)
    row = worker.ask(asked("random", task, CALLS))
    found = failures(row)
    assert not found, f"{found[0]}: {evidence(row, found[0])}\n\n{task.source}"
    assert row["calls"] or "reason" in row


def test_every_program_runs() -> None:
    for seed in range(50):
        space: dict = {}
        exec(task_of(Random(seed)).source, space)
        given = space["get_init_inputs"]()
        pair = len(given) == 2 and isinstance(given[0], list)
        args, kwargs = given if pair else (given, {})
        space["Model"](*args, **kwargs)(*space["get_inputs"]())

"""What memory makes of lessons: what works rises, what fails sinks, and no lie goes far."""

from __future__ import annotations

import importlib
import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.api.lessons import recall
from egg.core.facts import GpuFacts
from egg.core.plan import Plan, Prediction
from egg.core.policy import Policy
from egg.core.roles import Brief
from egg.core.stage import Category, Metric, Stage
from egg.core.step import Decision, Handoff, Step, Trajectory
from egg.engine.stages import SEARCH
from egg.memory.lessons import Lesson, Verdict
from egg.memory.signature import TaskSignature, signature_of
from egg.memory.standing import (
    LEAST_WEIGHT,
    MOST_WEIGHT,
    Standing,
    from_record,
    standings,
    standings_for,
    to_record,
    weighed,
)
from egg.memory.store import LessonStore
from tests.engine.logs import FACTS, TASK
from tests.memory.test_lessons import SIGNATURE, lesson

H200 = GpuFacts("H200", "sm_90", 132, 232448, 65536, 50 << 20, 4.8e12, 3.3e14, 0.1)
RUNS = itertools.count(1)
LEARNING = Path(__file__).parents[2] / "benchmarks" / "learning"


def worked(skill: str = "split-k", gain: float = 1.25, **changed: Any) -> Lesson:
    return lesson(f"run-{next(RUNS)}", skill=skill, gain=gain, **changed)


def failed(skill: str = "split-k", **changed: Any) -> Lesson:
    return lesson(
        f"run-{next(RUNS)}", skill=skill, gain=0.9, verdict=Verdict.SLOWER, **{"after": 1.1, **changed}
    )


def refused(skill: str = "split-k", failure: str = "correctness: correctness.error") -> Lesson:
    outcome = {"verdict": Verdict.REFUSED, "failure": failure, "gain": None, "after": None}
    return lesson(f"run-{next(RUNS)}", skill=skill, **outcome)


def of(*lessons: Lesson, signature: TaskSignature = SIGNATURE, gpu: Any = H200) -> Standing:
    (found,) = weighed(lessons, signature, gpu).values()
    return found


def test_what_works_rises_and_what_fails_sinks_step_by_step() -> None:
    rising = [of(*[worked() for _ in range(n)]).weight for n in range(1, 8)]
    sinking = [of(*[failed() for _ in range(n)]).weight for n in range(1, 8)]
    assert rising == sorted(rising)
    assert sinking == sorted(sinking, reverse=True)
    assert 1.1 < rising[0] < rising[3] < MOST_WEIGHT
    assert LEAST_WEIGHT < sinking[3] < sinking[0] < 0.9


def test_contradicting_lessons_cancel() -> None:
    assert of(worked(gain=1.1), failed()).weight == pytest.approx(1.0)
    many = [worked(gain=1.1) for _ in range(20)] + [failed() for _ in range(20)]
    assert of(*many).weight == pytest.approx(1.0)


def test_a_larger_gain_lifts_more_but_only_so_far() -> None:
    small, usual, large, absurd = (
        of(*[worked(gain=gain) for _ in range(3)]).weight for gain in (1.02, 1.1, 1.6, 1e6)
    )
    assert small < usual < large <= absurd
    assert absurd / usual <= 1.25 + 1e-3


def test_lessons_count_by_likeness_of_task_and_gpu() -> None:
    far = replace(SIGNATURE, families={"softmax": 0.5, "pointwise": 0.5})
    assert of(worked()).weight > of(worked(signature=far)).weight > 1.0
    assert of(worked()).weight > of(worked(gpu="NVIDIA A100-SXM4-80GB", arch="sm_80")).weight > 1.0
    assert weighed([worked(signature=replace(SIGNATURE, families={"product": 1.0}))], SIGNATURE, H200) == {}


def test_a_prediction_counts_less_than_a_measurement() -> None:
    assert of(worked()).weight > of(worked(measured=False)).weight > 1.0


def test_one_run_counts_little_more_than_once() -> None:
    often = [lesson("loud", n, verdict=Verdict.SLOWER, gain=0.5) for n in range(1, 1001)]
    assert of(*often).weight > of(failed(), failed()).weight
    assert of(*often, worked(), worked(), worked()).weight > 1.0


def test_old_certainty_can_be_outvoted() -> None:
    """A thousand runs that failed weigh no more than a dozen: an improved skill comes up again."""
    old = [failed() for _ in range(1000)]
    assert of(*old, *[worked() for _ in range(1000)]).weight == pytest.approx(1.0, abs=0.3)
    assert of(*old).weight == pytest.approx(of(*[failed() for _ in range(12)]).weight, abs=1e-3)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c"]),
            st.booleans(),
            st.floats(1e-9, 1e9),
            st.booleans(),
            st.integers(0, 3),
        ),
        max_size=60,
    )
)
def test_no_store_pushes_anything_beyond_its_bounds(drawn: list[tuple[str, bool, float, bool, int]]) -> None:
    lessons = [
        lesson(
            f"run-{run}",
            n + 1,
            skill=skill,
            gain=gain,
            measured=measured,
            verdict=Verdict.PROMOTED if good else Verdict.NO_GAIN,
        )
        for n, (skill, good, gain, measured, run) in enumerate(drawn)
    ]
    for standing in weighed(lessons, SIGNATURE, H200).values():
        assert LEAST_WEIGHT <= standing.weight <= MOST_WEIGHT
        assert 0.0 < standing.success < 1.0
        assert 0.0 <= standing.confidence < 1.0
        assert 0.0 < standing.similarity <= 1.0


def test_the_order_of_lessons_does_not_matter() -> None:
    written = [worked(), failed(), refused(), worked("other"), worked(gain=1.7)]
    for order in itertools.permutations(written):
        assert weighed(order, SIGNATURE, H200) == weighed(written, SIGNATURE, H200)


def test_it_explains_itself() -> None:
    found = of(worked(gain=1.2), worked(gain=1.3), refused())
    assert (found.tried, found.worked, found.failure) == (3, 2, "correctness: correctness.error")
    assert found.gain == pytest.approx(1.249, abs=1e-3)
    assert found.similarity == pytest.approx(1.0)
    assert found.sentence == (
        "split-k: worked in 2 of 3 tries on tasks 100% like this one, typically 1.25x; refused most often at "
        f"correctness: correctness.error (rank x{found.weight:.2f})"
    )
    assert "typically" not in of(failed()).sentence
    assert "1 of 1 try" in of(worked()).sentence


def test_a_store_is_asked_for_one_stage(tmp_path: Path) -> None:
    with LessonStore(tmp_path / "s.sqlite") as store:
        store.add([worked("a"), worked("b", stage=Stage.TILING), failed("c")])
        store.add([replace(worked(), skill=None)])
        assert list(standings(store, SIGNATURE, H200, Stage.MAPPING)) == ["a", "c"]
        assert list(standings(store, SIGNATURE, H200, Stage.TILING)) == ["b"]
        assert standings(store, SIGNATURE, H200, Stage.MEMORY) == {}


# -- within a run ----------------------------------------------------------------------------------


def step(skill: str | None, decision: Decision, stage: Stage = Stage.MAPPING) -> Step:
    plan = Plan(Category.SPLIT_WORK, "slow", "do it", Prediction(1.2, Metric.TIME, "less"), skill)
    return Step(1, stage, None, plan, (), decision, "so it was")


def believed(
    known: dict[Stage, dict[str, Standing]], *steps: Step, stage: Stage = Stage.TILING
) -> list[float]:
    """The weights in ``stage`` after ``steps`` of it and of stages before."""
    before = tuple(one for one in steps if one.stage is not stage)
    handed = Handoff(Stage.MAPPING, "done", None, None, None, before, "")
    row = next(row for row in SEARCH if row.stage is stage)
    trajectory = Trajectory(stage, tuple(one for one in steps if one.stage is stage))
    brief = Brief(TASK, Policy(), FACTS, row.assignment, trajectory, handoffs=(handed,))
    return [standing.weight for standing in standings_for(brief, known).values()]


def test_memory_is_believed_as_far_as_the_run_bears_it_out() -> None:
    good, bad = of(*[worked("good") for _ in range(5)]), of(*[failed("bad") for _ in range(5)])
    known = {Stage.MAPPING: {"good": good, "bad": bad}}

    def after(*steps: Step) -> list[float]:
        return believed(known, *steps, stage=Stage.MAPPING)

    fully = after()
    assert fully == [good.weight, bad.weight]
    right, wrong = step("good", Decision.PROMOTED), step("good", Decision.NOT_BETTER)
    assert after(right) == after(step("bad", Decision.FAILED)) == fully
    assert after(wrong) == after(step("bad", Decision.PROMOTED)) == [1.0, 1.0]
    assert after(wrong, wrong, right) == [1.0, 1.0]
    partly = after(right, right, wrong)
    assert 1.0 < partly[0] < fully[0]
    assert 1.0 > partly[1] > fully[1]
    assert after(right, right, right, right, wrong)[0] > partly[0]
    for nothing in (
        step(None, Decision.FAILED),
        step("new", Decision.FAILED),
        step("good", Decision.UNUSABLE),
    ):
        assert after(nothing) == fully


def test_a_store_that_was_wrong_in_one_stage_is_not_believed_in_the_next() -> None:
    good, bad = of(*[worked("s") for _ in range(5)]), of(*[failed("s") for _ in range(5)])
    known = {Stage.MAPPING: {"s": good}, Stage.TILING: {"s": bad}}
    assert believed(known) == [bad.weight]
    assert believed(known, step("s", Decision.PROMOTED)) == [bad.weight]
    assert believed(known, step("s", Decision.FAILED)) == [1.0]
    assert believed(known, step("s", Decision.FAILED, Stage.TILING)) == [bad.weight]
    assert believed(known, stage=Stage.MEMORY) == []


def test_learning_helps_and_false_lessons_do_no_harm() -> None:
    """The experiment of ``benchmarks/learning`` on two of its programs; all of them are in the docs."""
    sys.path.insert(0, str(LEARNING))
    try:
        learning, world = importlib.import_module("learning"), importlib.import_module("world")
    finally:
        sys.path.remove(str(LEARNING))
    found = world.worlds(("layer_norm", "group_norm_silu"), 1)
    only = ("lessons of the first", "contradicting", "false")
    none, learned, contradicted, poisoned = learning.experiment(found, "standard", only)
    assert learned.evaluations < none.evaluations
    assert (learned.worse, contradicted.worse, poisoned.worse) == (0, 0, 0)
    assert contradicted.evaluations <= none.evaluations + 1
    assert poisoned.evaluations <= none.evaluations + 1


# -- with a run ------------------------------------------------------------------------------------


def test_what_a_run_recorded_comes_back_the_same(tmp_path: Path) -> None:
    with LessonStore(tmp_path / "s.sqlite") as store:
        signature = signature_of(FACTS)
        store.add(
            [worked(signature=signature), replace(refused("x"), signature=signature, stage=Stage.TILING)]
        )
        known = {stage: standings(store, signature, FACTS.gpu, stage) for stage in Stage}
    recalled = recall(tmp_path / "s.sqlite", FACTS)
    assert recalled == {stage: found for stage, found in known.items() if found}
    record = to_record(known)
    assert set(record) == {"mapping", "tiling"}
    back = from_record(json.loads(json.dumps(record)))
    assert back == recalled
    assert from_record({}) == {}

"""Which skills are offered, in which order, within which room, and what is said of the others."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from egg.core.bottleneck import Value
from egg.core.plan import Plan, Prediction
from egg.core.stage import Category, Metric, Stage
from egg.core.step import Decision, Step
from egg.core.tokens import estimate_tokens
from egg.knowledge.catalogue import Catalogue, load
from egg.knowledge.select import IN_VAIN, MENDING, Cause, Selected, judged
from egg.knowledge.skill import SkillStage
from egg.knowledge.vocabulary import complete
from egg.knowledge.why import answer_json, context_used, explain, numbers
from egg.memory.standing import Standing
from tests.knowledge.folders import write_skill


def context(**values: Value) -> Mapping[str, Value]:
    return complete({"program_known": True, "arch": "sm_90", "compute_capability": 9.0, **values})


def catalogue(folder: Path) -> Catalogue:
    return load([folder], built_in=False)


def standing(skill: str, weight: float) -> Standing:
    return Standing(skill, 4, 3, 0.7, 1.2, 0.8, 0.6, weight)


def tried(skill: str, decision: Decision = Decision.NOT_BETTER, base: str = "base") -> Step:
    plan = Plan(Category.OPERATOR_FUSION, "slow", "fuse", Prediction(1.5, Metric.TIME, "less"), skill)
    return Step(3, Stage.STRUCTURE, base, plan, (), decision, "so it went")


def offered(*arguments: Any, **more: Any) -> tuple[Selected, ...]:
    return tuple(one for one in judged(*arguments, **more) if one.offered)


def by_name(found: tuple[Selected, ...]) -> dict[str, Selected]:
    return {one.skill.name: one for one in found}


def test_each_thing_that_can_be_against_a_skill(tmp_path: Path) -> None:
    write_skill(tmp_path, "right", gate="rows > 100")
    write_skill(tmp_path, "later", stage="tiling", categories="tile_shape")
    write_skill(tmp_path, "foreign", hardware="amd, sm_100+")
    write_skill(tmp_path, "other-operators", families="convolution, pooling")
    write_skill(tmp_path, "vetoed", veto="rows > 1000")
    write_skill(tmp_path, "closed", gate="rows < 100")
    found = by_name(judged(catalogue(tmp_path), context(rows=4096, has_product=True), Stage.STRUCTURE))
    assert {name: one.cause for name, one in found.items()} == {
        "right": Cause.OFFERED,
        "later": Cause.STAGE,
        "foreign": Cause.HARDWARE,
        "other-operators": Cause.FAMILY,
        "vetoed": Cause.VETO,
        "closed": Cause.GATE,
    }
    assert found["right"].reason == "rows 4096 > 100"
    assert found["later"].reason == "for tiling, not structure"
    assert found["foreign"].reason == "for amd, sm_100+, and the GPU is sm_90"
    assert found["other-operators"].reason == "no convolution or pooling in the program"
    assert found["vetoed"].reason == "rows 4096 > 1000"
    assert found["closed"].reason == "rows 4096 >= 100"
    assert all(not numbers(one) for name, one in found.items() if name != "right")


@pytest.mark.parametrize(
    ("hardware", "fits"),
    [
        ("any", True),
        ("nvidia", True),
        ("sm_90", True),
        ("sm_80+", True),
        ("sm_100+", False),
        ("gfx942", False),
    ],
)
def test_hardware(tmp_path: Path, hardware: str, fits: bool) -> None:
    write_skill(tmp_path, "one", hardware=hardware)
    assert bool(offered(catalogue(tmp_path), context(), Stage.STRUCTURE)) is fits


def test_where_no_condition_holds_the_operators_of_the_program_decide(tmp_path: Path) -> None:
    """A condition on a modelled limiter can close all skills of a stage at once."""
    write_skill(tmp_path, "products", gate="rows < 100", families="product")
    write_skill(tmp_path, "norms", gate="rows < 100", families="normalization", gain="3-4")
    write_skill(tmp_path, "vetoed", gate="rows < 100", families="product", veto="rows > 1000")
    write_skill(tmp_path, "anything", gate="rows < 100")
    write_skill(tmp_path, "pooling", gate="rows < 100", families="pooling")
    write_skill(tmp_path, "mend", stage="debugging", signature="build", gate="rows < 100", families="product")
    seen = context(rows=4096, has_product=True, product_share=0.9, has_normalization=True)
    found = judged(catalogue(tmp_path), seen, Stage.STRUCTURE)
    assert [one.skill.name for one in found if one.offered] == ["products", "norms"]
    assert found[0].reason == "no condition holds in this stage; its own: rows 4096 >= 100"
    again = offered(catalogue(tmp_path), seen, Stage.STRUCTURE, steps=(tried("products"),), base="base")
    assert again[0].tried == (3,)
    assert offered(catalogue(tmp_path), seen, SkillStage.DEBUGGING, failure="build.compile") == ()
    write_skill(tmp_path, "right", gate="rows > 100")
    assert [one.skill.name for one in offered(catalogue(tmp_path), seen, Stage.STRUCTURE)] == ["right"]


def test_operators_that_are_not_known_are_not_there(tmp_path: Path) -> None:
    write_skill(tmp_path, "one", families="product")
    (found,) = judged(catalogue(tmp_path), context(program_known=False), Stage.STRUCTURE)
    assert found.cause is Cause.FAMILY
    assert "not known" in found.reason


def test_rank_is_strength_times_gain_times_memory(tmp_path: Path) -> None:
    write_skill(tmp_path, "promising", gain="2-8")
    write_skill(tmp_path, "modest", gain="1.1-1.3")
    write_skill(tmp_path, "unclear", gain="2-8", gate="rows > 100")
    write_skill(tmp_path, "remembered", gain="1.1-1.3")
    lessons = {"remembered": standing("remembered", 1.6)}
    found = judged(catalogue(tmp_path), context(rows=110), Stage.STRUCTURE, lessons=lessons)
    assert [one.skill.name for one in found] == ["promising", "unclear", "remembered", "modest"]
    scores = {one.skill.name: one.score for one in found}
    assert scores["promising"] == pytest.approx(math.log(4), abs=1e-5)
    assert scores["unclear"] == pytest.approx((0.25 + 0.75 * math.log2(1.1)) * math.log(4), abs=1e-5)
    assert scores["remembered"] == pytest.approx(1.6 * scores["modest"], abs=1e-5)
    assert "3 of 4 tries" in found[2].remembered
    assert numbers(found[0]) == "1.00 x ln 4.00 = 1.386"
    assert "1.60 remembered" in numbers(found[2])


def test_a_gate_that_barely_holds_is_still_ranked_by_what_it_promises(tmp_path: Path) -> None:
    write_skill(tmp_path, "a-little", gain="1-1.1", gate="rows >= columns / 1")
    write_skill(tmp_path, "b-lot", gain="2-8", gate="rows >= columns / 1")
    found = offered(catalogue(tmp_path), context(rows=64, columns=64), Stage.STRUCTURE)
    assert [one.skill.name for one in found] == ["b-lot", "a-little"]
    assert all(one.strength == 0 < one.score for one in found)


def test_what_was_tried_in_vain_on_this_base_sinks(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_skill(tmp_path, name)
    known = catalogue(tmp_path)
    found = judged(known, context(), Stage.STRUCTURE, steps=[tried("one")], base="base")
    assert [one.skill.name for one in found] == ["two", "one"]
    assert found[1].score == pytest.approx(IN_VAIN * found[0].score, abs=1e-5)
    assert found[1].tried == (3,)
    assert found[1].offered, "another way to do it may still work"
    for steps in ([tried("one", base="other")], [tried("one", Decision.PROMOTED)]):
        again = judged(known, context(), Stage.STRUCTURE, steps=steps, base="base")
        assert [one.skill.name for one in again] == ["one", "two"]


def test_room_is_kept_and_a_shorter_one_takes_the_place(tmp_path: Path) -> None:
    write_skill(tmp_path, "best", gain="4-8")
    write_skill(tmp_path, "long", gain="3-4", when="word " * 400)
    write_skill(tmp_path, "short", gain="1.1-1.2")
    known = catalogue(tmp_path)
    room = 2 * estimate_tokens(known["best"].body) + 5
    found = by_name(judged(known, context(), Stage.STRUCTURE, tokens=room))
    assert {name: one.cause for name, one in found.items()} == {
        "best": Cause.OFFERED,
        "long": Cause.ROOM,
        "short": Cause.OFFERED,
    }
    left = room - found["best"].tokens
    assert found["long"].reason.endswith(f"its text has {found['long'].tokens} tokens, {left} are left")
    assert sum(one.tokens for one in found.values() if one.offered) <= room


def test_no_more_than_a_choice(tmp_path: Path) -> None:
    for number in range(5):
        write_skill(tmp_path, f"skill-{number}")
    found = judged(catalogue(tmp_path), context(), Stage.STRUCTURE, most=3)
    assert [one.offered for one in found] == [True] * 3 + [False] * 2
    assert found[3].cause is Cause.RANK
    assert found[3].reason == "always; 3 rank higher"


def test_one_failure_is_mended_by_fewer_in_a_run_and_in_why(tmp_path: Path) -> None:
    for number in range(5):
        write_skill(tmp_path, f"mend-{number}", stage="debugging", signature="correctness")
    (answer,) = explain(catalogue(tmp_path), context(), [SkillStage.DEBUGGING], failure="correctness.error")
    assert len(answer.offered) == MENDING


def test_the_same_whatever_the_order(tmp_path: Path) -> None:
    for number in range(12):
        write_skill(tmp_path, f"skill-{number:02}", gain="1.2-3" if number % 2 else "2-4")
    known = list(catalogue(tmp_path))
    expected = judged(known, context(), Stage.STRUCTURE)
    for seed in range(5):
        shuffled = random.Random(seed).sample(known, len(known))
        assert judged(shuffled, context(), Stage.STRUCTURE) == expected
    assert [one.skill.name for one in expected[:6]] == [f"skill-{n:02}" for n in range(0, 12, 2)]


def test_debugging_by_the_refusal(tmp_path: Path) -> None:
    write_skill(tmp_path, "exact", stage="debugging", signature="correctness.error")
    write_skill(tmp_path, "whole-gate", stage="debugging", signature="correctness, build.compile")
    write_skill(tmp_path, "elsewhere", stage="debugging", signature="build.compile")
    known = catalogue(tmp_path)
    found = by_name(judged(known, context(), SkillStage.DEBUGGING, failure="correctness.error"))
    assert {name for name, one in found.items() if one.offered} == {"exact", "whole-gate"}
    assert found["exact"].reason == "refused with correctness.error"
    assert found["elsewhere"].reason == "for build.compile, not correctness.error"
    assert not offered(known, context(), SkillStage.DEBUGGING)


def test_why_covers_every_skill_of_a_stage_once(tmp_path: Path) -> None:
    write_skill(tmp_path, "one", gate="rows > 100", veto="uses_dot")
    write_skill(tmp_path, "two", gate="columns > 100")
    write_skill(tmp_path, "both", stage="structure, tiling", categories="operator_fusion, tile_shape")
    known = catalogue(tmp_path)
    at = context(rows=4096)
    answers = explain(known, at, (SkillStage.STRUCTURE, SkillStage.TILING))
    assert [[one.skill.name for one in answer.verdicts] for answer in answers] == [
        ["both", "one", "two"],
        ["both"],
    ]
    assert [len(answer.offered) for answer in answers] == [2, 1]
    assert context_used(at, known) == {"columns": 0, "rows": 4096, "uses_dot": False}
    data = answer_json(answers[0])
    assert data["stage"] == "structure"
    assert data["skills"][2] == {
        "skill": "two",
        "offered": False,
        "cause": "gate",
        "reason": "columns 0 <= 100",
        "strength": 0.0,
        "gain": [1.2, 3.0],
        "weight": 1.0,
        "remembered": None,
        "score": 0.0,
        "tokens": 0,
        "origin": str(tmp_path),
    }

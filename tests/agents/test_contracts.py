"""Reply contracts: the schema, the example shown, and the check are one thing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.agents.contracts import (
    CHANGE_WORDS,
    DIAGNOSIS_WORDS,
    DiagnosisReply,
    example_of,
    plan_contract,
    read,
    schema_of,
)
from egg.agents.extraction import Unreadable
from egg.core.plan import Diagnosis, Pass, Plan, Prediction
from egg.core.stage import Category, Metric, Stage
from egg.engine.stages import SEARCH
from egg.llm.schemas import closed, has_open_objects
from tests.agents.briefs import SKILLS, assignment

CONTRACT = plan_contract(assignment(Stage.MAPPING), SKILLS)
GOOD = {
    "bottleneck": "62 waves of tiny programs",
    "worth_optimizing": True,
    "category": "work_per_program",
    "change": "four rows per program",
    "predicted_speedup": 1.2,
    "metric": "time",
    "expectation": "0.040 ms -> 0.033 ms",
    "skill": "more-rows",
    "reason": None,
}


def answer(**changed):
    return read(CONTRACT, json.dumps({**GOOD, **changed})).answer()


def test_a_plan():
    assert answer() == Plan(
        Category.WORK_PER_PROGRAM,
        "62 waves of tiny programs",
        "four rows per program",
        Prediction(1.2, Metric.TIME, "0.040 ms -> 0.033 ms"),
        "more-rows",
    )


def test_a_pass():
    empty = dict.fromkeys(("category", "change", "predicted_speedup", "metric", "expectation", "skill"))
    assert answer(**empty, worth_optimizing=False, reason="at the floor") == Pass("at the floor")


def test_absent_keys_mean_null():
    reply = json.dumps({"bottleneck": "none", "worth_optimizing": False, "reason": "at the floor"})
    assert read(CONTRACT, reply).answer() == Pass("at the floor")


@pytest.mark.parametrize(
    ("changed", "meant"),
    [
        ({"category": "Work per program"}, Category.WORK_PER_PROGRAM),
        ({"category": " PROGRAM-ORDER "}, Category.PROGRAM_ORDER),
        ({"predicted_speedup": "1.2x", "extra": 1}, Category.WORK_PER_PROGRAM),
    ],
)
def test_small_slips_are_forgiven(changed, meant):
    found = answer(**changed)
    assert (found.category, found.prediction.speedup) == (meant, 1.2)


@pytest.mark.parametrize("none", ["", "none", "null", None])
def test_no_skill(none):
    assert answer(skill=none).skill is None


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"category": "tile_shape"}, r"category: .*'program_order'.*not \"tile_shape\""),
        ({"category": ["program_order", "persistence"]}, "category: "),
        ({"category": None}, "category must not be null"),
        ({"metric": "beauty"}, 'metric: .*not "beauty"'),
        ({"metric": "registers"}, "metric: "),
        ({"skill": "magic"}, 'skill: .*not "magic"'),
        ({"change": ""}, "change must not be null"),
        ({"change": "word " * (CHANGE_WORDS + 1)}, f"change: has {CHANGE_WORDS + 1} words"),
        ({"bottleneck": " "}, "bottleneck: must not be empty"),
        ({"predicted_speedup": "much"}, "predicted_speedup: "),
        ({"predicted_speedup": 0.5}, "predicted_speedup is 0.5"),
        ({"predicted_speedup": -1}, "predicted_speedup is -1"),
        ({"predicted_speedup": float("nan")}, "predicted_speedup: "),
        ({"predicted_speedup": float("inf")}, "predicted_speedup: "),
        ({"predicted_speedup": 1e9}, "predicted_speedup is"),
        ({"worth_optimizing": False}, "reason must say why"),
        ({"worth_optimizing": "perhaps"}, "worth_optimizing: "),
        ({"expectation": None, "metric": None}, "metric, expectation must not be null"),
    ],
)
def test_what_breaks_the_contract_is_named(changed, problem):
    with pytest.raises(Unreadable, match=problem):
        answer(**changed)


def test_without_skills_only_null_is_allowed():
    contract = plan_contract(assignment(Stage.MAPPING), ())
    assert schema_of(contract)["properties"]["skill"]["type"] == "null"
    assert read(contract, json.dumps({**GOOD, "skill": None})).answer().skill is None
    with pytest.raises(Unreadable, match="skill"):
        read(contract, json.dumps(GOOD))


def test_the_last_object_that_keeps_the_contract_counts():
    first, second = json.dumps(GOOD), json.dumps({**GOOD, "change": "eight rows"})
    assert read(CONTRACT, f'{first}\n{second}\n{{"note": 1}}').answer().change == "eight rows"


def test_of_several_wrong_objects_the_last_is_explained():
    with pytest.raises(Unreadable, match="tile_shape"):
        read(CONTRACT, '{"x": 1}' + json.dumps({**GOOD, "category": "tile_shape"}))


@pytest.mark.parametrize("stage", [Stage.STRUCTURE, Stage.MAPPING, Stage.TILING, Stage.MEMORY])
def test_the_schema_is_strict_and_names_what_is_allowed(stage):
    schema = schema_of(plan_contract(assignment(stage), SKILLS))
    assert schema == closed(schema)
    assert not has_open_objects(schema)
    assert schema["required"] == list(GOOD)
    assert schema["additionalProperties"] is False
    allowed = schema["properties"]["category"]["anyOf"][0]["enum"]
    assert allowed == [c.value for c in assignment(stage).categories]
    assert schema["properties"]["skill"]["anyOf"] == [
        {"type": "string", "enum": ["wide-loads", "more-rows"]},
        {"type": "null"},
    ]
    unsupported = ("default", "title", "const", "minimum", "maxLength", "pattern", "examples")
    assert not any(f'"{word}":' in json.dumps(schema) for word in unsupported)


@pytest.mark.parametrize("row", [r for r in SEARCH if r.planner], ids=lambda r: r.stage.value)
def test_every_category_of_the_stage_table_can_be_planned(row):
    contract = plan_contract(row.assignment, ())
    metric = row.assignment.metrics[-1]
    for category in row.assignment.categories:
        reply = {**GOOD, "category": category.value, "metric": metric.value, "skill": None}
        assert read(contract, json.dumps(reply)).answer().category is category


def test_one_category_is_an_enumeration_of_one():
    one = plan_contract(
        assignment(Stage.TILING).__class__(Stage.TILING, "", "", "", (Metric.TIME,), (Category.TILE_SHAPE,)),
        (),
    )
    properties = schema_of(one)["properties"]
    assert properties["category"]["anyOf"][0]["enum"] == ["tile_shape"]
    assert properties["metric"]["anyOf"][0]["enum"] == ["time"]


@pytest.mark.parametrize("contract", [CONTRACT, DiagnosisReply])
def test_the_example_has_the_schema_s_keys_and_is_no_answer(contract):
    schema = schema_of(contract)
    example = example_of(schema)
    assert list(json.loads(example)) == schema["required"]
    with pytest.raises(Unreadable):
        read(contract, example)


def test_a_diagnosis():
    reply = '{"critical_issue": " wrong mask ", "modification_plan": "mask rows"}'
    assert read(DiagnosisReply, reply).answer() == Diagnosis("wrong mask", "mask rows")


@given(st.integers(1, 60), st.integers(1, 60))
def test_a_diagnosis_has_at_most_thirty_words_each(issue, plan):
    reply = json.dumps({"critical_issue": "w " * issue, "modification_plan": "w " * plan})
    if max(issue, plan) <= DIAGNOSIS_WORDS:
        assert read(DiagnosisReply, reply).answer().critical_issue.count("w") == issue
    else:
        with pytest.raises(Unreadable, match="words, at most 30"):
            read(DiagnosisReply, reply)

"""What prompts show of kernels, plans, skills and failures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from egg.agents.team import LlmTeam
from egg.core.evaluation import RefusalFacts, WrongPlaces
from egg.core.plan import Weighed
from egg.core.roles import Failure
from egg.core.source import Candidate
from egg.core.stage import Stage
from egg.core.tokens import estimate_tokens
from egg.llm.scripted import ScriptedClient
from tests.agents.briefs import (
    COMPILED_BASE,
    FAILURE,
    KERNEL,
    PLAN,
    REFUSAL,
    SKILLS,
    brief,
    handoff,
    kernel,
)
from tests.agents.prompts import LONG, request, stage_of, texts
from tests.samples import GPU_MACHINE


def test_a_long_base_is_an_outline_with_what_the_plan_names():
    given = brief(Stage.MAPPING, base=kernel(source=LONG))
    _, planned = texts("tuner.mapping", given)
    assert "def helper_11(x):" in planned
    assert "lines not shown" in planned
    assert planned.count("x = x * ") < LONG.count("x = x * ") * 0.9
    hidden = next(i for i in range(11, -1, -1) if f"x = x * {i} + 59" not in planned)
    client = ScriptedClient(lambda _: "nothing")
    team = LlmTeam(client, prompt_tokens=3000, reply_tokens=1000)
    team.coder.optimize(given, replace(PLAN, change=f"unroll helper_{hidden}"))
    written = client.requests[0].messages[-1].text
    assert f"x = x * {hidden} + 59" in written
    assert "replaced as a whole" in written


def test_a_long_failed_file_shows_what_changed():
    given = brief(Stage.MAPPING, base=kernel(source=LONG))
    failed = replace(FAILURE, candidate=Candidate(LONG.replace("x = x * 7 + 3\n", "x = x * 7 + 333\n")))
    _, user = texts("coder.repair", given, failure=failed)
    assert "x = x * 7 + 333\n" in user
    assert user.count("lines not shown") > 2


def test_the_limit_of_a_reply_grows_with_the_file_and_not_beyond_its_end():
    def limit(source: str, per_base: float) -> int:
        client = ScriptedClient(lambda _: "nothing")
        team = LlmTeam(client, prompt_tokens=3000, reply_tokens=1000, reply_per_base=per_base)
        team.coder.optimize(brief(Stage.MAPPING, base=kernel(source=source)), PLAN)
        return client.requests[0].max_output_tokens

    assert limit(LONG, 0.0) == 1000
    assert limit(LONG, 1.25) == int(1.25 * estimate_tokens(LONG))
    assert limit(LONG * 20, 1.25) == 64_000


def test_a_measured_base_shows_its_times():
    _, user = texts("tuner.memory")
    for fact in (
        "0.0402 ms per call",
        "1.80x eager",
        "1.44x compile",
        "0.6%",
        "1.44 times the roofline floor",
    ):
        assert fact in user


def test_a_compiled_base_shows_its_resources_and_no_time():
    _, user = texts("tuner.tiling", brief(Stage.TILING, base=COMPILED_BASE))
    assert "no time was measured" in user
    assert "| gemm | 32 x 16 x 1 | 2 | 8 | 3 | 255 | 440 | 64 KiB | 192 | 128 bit |" in user
    assert "per call on the GPU" not in user


def test_a_best_kernel_apart_from_the_base_is_mentioned():
    given = brief(Stage.MAPPING)
    other = kernel(source=KERNEL + "# another\n")
    assert other.candidate.hash in texts("tuner.mapping", replace(given, best=other))[1]
    assert "best kernel so far is another" not in texts("tuner.mapping", given)[1]


def test_planners_see_all_skills_and_the_coder_the_one_that_is_followed():
    _, planned = texts("tuner.mapping")
    _, written = texts("coder.optimize")
    for skill in SKILLS:
        assert skill.name in planned
        assert skill.reason in planned
        assert skill.body in planned
    assert SKILLS[1].body in written
    assert SKILLS[0].name not in written


def test_the_coder_sees_the_pattern_of_the_skill_it_follows_within_its_room():
    pattern = LONG.replace("helper", "patterned")
    given = replace(brief(Stage.MAPPING), skills=tuple(replace(s, pattern=pattern) for s in SKILLS))
    _, planned = texts("tuner.mapping", given)
    _, written = texts("coder.optimize", given)
    assert "patterned" not in planned
    assert written.count("A pattern that runs") == 1
    assert "def patterned_11(x):" in written
    assert "lines not shown" in written
    whole = replace(given, skills=(SKILLS[0], replace(SKILLS[1], pattern="short_pattern = 1\n")))
    assert "short_pattern = 1" in texts("coder.optimize", whole)[1]


def test_versions_and_the_fastest_of_pytorch_are_told():
    given = replace(brief(Stage.MAPPING), machine=GPU_MACHINE)
    given = replace(given, facts=replace(given.facts, software="torch 2.11.0, triton 3.6.0"))
    system, user = texts("tuner.mapping", given)
    assert "torch 2.11.0, triton 3.6.0" in system
    assert "judged with torch 2.11.0+cu130, triton 3.6.0, Python 3.12.3" in user
    assert "to beat: compile, the fastest of PyTorch that was timed" in user
    assert "of the reference itself 1.1e-06" in user
    assert "2.11.0" not in "".join(texts("tuner.mapping"))


@pytest.mark.parametrize("purpose", ["coder.seed", "coder.optimize"])
def test_a_further_draft_is_told_what_those_before_it_changed(purpose):
    given = brief(stage_of(purpose))
    earlier = KERNEL.replace("tl.exp(", "tl.exp2(").replace("BLOCK", "WIDTH")
    _, user = texts(purpose, replace(given, drafts=(earlier,)))
    assert "## Draft 2 of several" in user
    assert "softmax_rows" in user[user.index("## Draft 2") :]
    assert "Draft" not in texts(purpose, given)[1]


def test_the_plan_is_told_whole():
    _, user = texts("coder.optimize")
    for fact in (
        "work_per_program",
        PLAN.bottleneck,
        PLAN.change,
        "1.20x the base",
        PLAN.prediction.expectation,
    ):
        assert fact in user


@pytest.mark.parametrize("purpose", ["coder.repair", "debugger"])
def test_those_who_mend_see_the_broken_file_its_failure_and_the_chain(purpose):
    given = brief(Stage.MAPPING)
    given = replace(given, trajectory=replace(given.trajectory, chain=FAILURE.chain))
    _, user = texts(purpose, given)
    for fact in (
        FAILURE.candidate.source.strip(),
        REFUSAL.evidence,
        REFUSAL.hint,
        "Mask the row index at the load.",
    ):
        assert user.count(fact) == 1


def test_an_objection_of_the_engine_is_a_failure_too():
    failure = Failure(
        Candidate("class ModelNew: pass"), None, "it launches two kernels, the contract has one", ()
    )
    assert "it launches two kernels" in texts("debugger", failure=failure)[1]


def test_endless_evidence_is_clipped():
    endless = replace(REFUSAL, evidence="begin " + "x" * 10**6 + " end")
    _, user = texts("debugger", failure=replace(FAILURE, refusal=endless))
    assert len(user) < 30_000
    assert "begin" in user
    assert " end\n" in user


def test_what_the_built_in_team_weighed_is_told_with_its_prices():
    weighed = (
        Weighed("leave the product to the library", "it is slow", 1.4, tried=True),
        Weighed("split K", "few tiles", 0.9),
    )
    given = replace(brief(), inherited=(handoff(Stage.STRUCTURE),), weighed=weighed)
    text = request("designer", given).messages[-1].text
    assert "- 1.40x (tried): leave the product to the library (against: it is slow)" in text
    assert "- 0.90x: split K (against: few tiles)" in text
    assert "Other structures" not in request("designer").messages[-1].text


@pytest.mark.parametrize("purpose", ["debugger", "coder.repair"])
def test_where_the_errors_lie_is_told(purpose):
    places = WrongPlaces(
        (64, 48), 64, 3072, (0, 47), float("nan"), 1.47, ("dimension 1 (size 48): only the last index",)
    )
    refusal = replace(REFUSAL, facts=RefusalFacts(places=places))
    text = request(purpose, failure=replace(FAILURE, refusal=refusal)).messages[-1].text
    assert "64 x 48, 64 of 3072 elements" in text
    assert "first at [0, 47]: nan where 1.47 is right" in text
    assert "dimension 1 (size 48): only the last index" in text
    spread = replace(refusal, facts=RefusalFacts(places=replace(places, along=())))
    assert (
        "spread over all indices"
        in request(purpose, failure=replace(FAILURE, refusal=spread)).messages[-1].text
    )
    assert "\nWhere: " not in request(purpose).messages[-1].text

"""The llm team against a scripted model: answers, corrections, refusals, replies cut short."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from egg.agents.extraction import answer_text
from egg.agents.team import LlmTeam
from egg.core.conversation import Completion, Finish, Request, Speaker, Usage
from egg.core.plan import Answer, Diagnosis, Draft, Pass, Plan, Unusable
from egg.core.roles import Team
from egg.core.stage import Stage
from egg.llm.scripted import ScriptedClient
from tests.agents.briefs import DIAGNOSIS, FAILURE, KERNEL, PLAN, brief
from tests.agents.test_contracts import GOOD

STRUCTURE_PLAN = {**GOOD, "category": "operator_fusion"}
PLANS = {
    Stage.STRUCTURE: STRUCTURE_PLAN,
    Stage.MAPPING: GOOD,
    Stage.TILING: {**GOOD, "category": "tile_shape"},
    Stage.MEMORY: {**GOOD, "category": "cache_policy"},
}
CODE = f"```python\n{KERNEL}```"
ISSUE = json.dumps({"critical_issue": "wrong mask", "modification_plan": "mask the rows"})

Ask = Callable[[LlmTeam], Answer]
ROLES: dict[str, tuple[Ask, str]] = {
    "designer": (lambda t: t.designer.design(brief(Stage.STRUCTURE)), json.dumps(STRUCTURE_PLAN)),
    "tuner.mapping": (lambda t: t.tuner.tune(brief(Stage.MAPPING)), json.dumps(PLANS[Stage.MAPPING])),
    "tuner.tiling": (lambda t: t.tuner.tune(brief(Stage.TILING)), json.dumps(PLANS[Stage.TILING])),
    "tuner.memory": (lambda t: t.tuner.tune(brief(Stage.MEMORY)), json.dumps(PLANS[Stage.MEMORY])),
    "coder.seed": (lambda t: t.coder.seed(brief(Stage.SEED)), CODE),
    "coder.optimize": (lambda t: t.coder.optimize(brief(Stage.MAPPING), PLAN), CODE),
    "coder.repair": (lambda t: t.coder.repair(brief(Stage.MAPPING), FAILURE, DIAGNOSIS), CODE),
    "debugger": (lambda t: t.debugger.diagnose(brief(Stage.MAPPING), FAILURE), ISSUE),
}
KINDS = {"designer": Plan, "tuner": Plan, "coder": Draft, "debugger": Diagnosis}


def team(client: ScriptedClient, **options) -> LlmTeam:
    return LlmTeam(client, prompt_tokens=3000, reply_tokens=777, **options)


def ended(text: str, finish: Finish) -> Completion:
    return Completion(text, finish, Usage(10, 10), "scripted", None, 0.0)


def asked(role: str, *replies: str | Completion) -> tuple[Answer, tuple[Request, ...]]:
    client = ScriptedClient(replies)
    return ROLES[role][0](team(client)), client.requests


@pytest.mark.parametrize("role", ROLES)
def test_a_good_reply_is_the_answer(role):
    answer, requests = asked(role, ROLES[role][1])
    assert isinstance(answer, KINDS[role.split(".")[0]])
    (request,) = requests
    assert request.purpose == role
    assert request.max_output_tokens == 777
    assert (request.schema is None) == role.startswith("coder")
    assert [m.speaker for m in request.messages] == [Speaker.SYSTEM, Speaker.USER]


def test_a_role_reasons_as_its_effort_says_and_has_room_for_it():
    for role, (ask, reply) in ROLES.items():
        client = ScriptedClient([reply])
        ask(team(client, efforts={"designer": "high", "coder": "low"}))
        asked = client.requests[0]
        effort, room = {"designer": ("high", 24_000), "coder": ("low", 2_000)}.get(
            role.split(".")[0], (None, 0)
        )
        assert (asked.effort, asked.max_output_tokens) == (effort, 777 + room)


def test_the_draft_is_the_code_as_written():
    answer, _ = asked("coder.seed", f"Here:\n{CODE}\nEnjoy!")
    assert answer == Draft(KERNEL)


def test_nothing_worth_it_is_an_answer():
    reply = {"bottleneck": "at the floor", "worth_optimizing": False, "reason": "1.02 times the floor"}
    assert asked("designer", json.dumps(reply))[0] == Pass("1.02 times the floor")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "junk", ["", "I would rather talk about it.", "{}", "```python\nx = 1\n```", "<think>hm"]
)
def test_a_useless_reply_is_corrected_once(role, junk):
    good = ROLES[role][1]
    answer, (first, second) = asked(role, junk, good)
    assert isinstance(answer, KINDS[role.split(".")[0]])
    assert second.messages[:2] == first.messages
    own, complaint = second.messages[2:]
    assert (own.speaker, complaint.speaker) == (Speaker.MODEL, Speaker.USER)
    assert own.text.strip() == (answer_text(junk).strip() or "(nothing but unfinished reasoning)")
    assert (second.schema, second.purpose, second.max_output_tokens) == (first.schema, role, 777)


@pytest.mark.parametrize("role", ROLES)
def test_two_useless_replies_are_unusable_and_nobody_is_asked_again(role):
    answer, requests = asked(role, "no", "no again", ROLES[role][1])
    assert isinstance(answer, Unusable)
    assert answer.reason
    assert len(requests) == 2


@pytest.mark.parametrize("role", ROLES)
def test_a_refusal_ends_it_at_once(role):
    answer, requests = asked(role, ended("I can't help with that.", Finish.REFUSAL), ROLES[role][1])
    assert answer == Unusable("the model refused to answer: I can't help with that.")
    assert len(requests) == 1


def test_a_refusal_after_a_correction_ends_it_too():
    answer, requests = asked("debugger", "hm", ended("", Finish.REFUSAL), ISSUE)
    assert answer == Unusable("the model refused to answer")
    assert len(requests) == 2


@pytest.mark.parametrize("role", ROLES)
def test_a_cut_reply_is_asked_for_again_shorter(role):
    good = ROLES[role][1]
    answer, (_, second) = asked(role, ended(good[: len(good) // 2], Finish.LENGTH), good)
    assert isinstance(answer, KINDS[role.split(".")[0]])
    complaint = second.messages[-1].text
    assert "cut off at the limit of 777 tokens" in complaint
    assert "shorter" in complaint


@pytest.mark.parametrize("role", ROLES)
def test_a_reply_cut_twice_is_unusable_and_says_why(role):
    half = ended(ROLES[role][1][:40], Finish.LENGTH)
    answer, _ = asked(role, half, half)
    assert isinstance(answer, Unusable)
    assert "cut off" in answer.reason


@pytest.mark.parametrize("role", ["designer", "debugger"])
def test_an_answer_complete_before_the_cut_is_taken(role):
    answer, requests = asked(role, ended(f"{ROLES[role][1]}\nMoreover", Finish.LENGTH))
    assert not isinstance(answer, Unusable)
    assert len(requests) == 1


@pytest.mark.parametrize("stage", PLANS)
def test_a_category_of_another_stage_is_sent_back(stage):
    role = "designer" if stage is Stage.STRUCTURE else f"tuner.{stage.value}"
    foreign = "operator_fusion" if stage.tunes else "tile_shape"
    answer, (_, second) = asked(
        role, json.dumps({**PLANS[stage], "category": foreign}), json.dumps(PLANS[stage])
    )
    assert isinstance(answer, Plan)
    assert f'not "{foreign}"' in second.messages[-1].text
    assert PLANS[stage]["category"] in second.messages[-1].text


def test_too_many_words_are_sent_back():
    wordy = json.dumps({"critical_issue": "word " * 31, "modification_plan": "mask"})
    answer, (_, second) = asked("debugger", wordy, ISSUE)
    assert answer == Diagnosis("wrong mask", "mask the rows")
    assert "critical_issue: has 31 words, at most 30 are allowed" in second.messages[-1].text


def test_a_file_without_the_class_is_sent_back_with_the_reason():
    _, (_, second) = asked("coder.optimize", "```python\nclass Model: pass\n```", CODE)
    assert "does not define class ModelNew" in second.messages[-1].text


def test_reasoning_is_not_shown_to_the_model_again():
    _, (_, second) = asked("debugger", "<think>secret plans</think>It is broken.", ISSUE)
    assert second.messages[2].text == "It is broken."


def test_pieces_of_the_reply_are_passed_on():
    pieces: list[str] = []
    client = ScriptedClient([ISSUE])
    ROLES["debugger"][0](team(client, on_text=pieces.append, temperature=0.3))
    assert "".join(pieces) == ISSUE
    assert client.requests[0].temperature == 0.3


class Halted(Exception):
    pass


def test_a_client_that_stops_the_run_is_not_answered_for():
    def halt(request: Request) -> str:
        raise Halted(request.purpose)

    with pytest.raises(Halted, match=r"tuner\.tiling"):
        team(ScriptedClient(halt)).tuner.tune(brief(Stage.TILING))


def test_there_is_nothing_to_tune_in_stage_one():
    with pytest.raises(ValueError, match="structure"):
        team(ScriptedClient([])).tuner.tune(brief(Stage.STRUCTURE))


def test_it_is_a_team():
    whole: Team = team(ScriptedClient([]))
    assert whole.designer
    assert whole.tuner
    assert whole.coder
    assert whole.debugger

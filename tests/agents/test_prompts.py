"""What every prompt must hold, whatever the run looks like."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources

import pytest

from egg.agents.extraction import fenced_blocks
from egg.agents.prompting import Prompter, clipped, counted, fenced, listed, prompt_file, scaled
from egg.agents.team import LlmTeam
from egg.core.codec import from_json, to_json
from egg.core.conversation import Message, Request
from egg.core.facts import Facts
from egg.core.plan import Draft
from egg.core.policy import LibraryCalls, Precision
from egg.core.roles import Skill
from egg.core.source import Task
from egg.core.stage import Stage
from egg.core.tokens import estimate_tokens
from egg.llm.scripted import ScriptedClient
from tests.agents.briefs import (
    KERNEL,
    PLAN,
    SKILLS,
    brief,
    step,
)
from tests.agents.prompts import PURPOSES, request, stage_of, texts


@pytest.mark.parametrize("purpose", PURPOSES)
def test_the_system_message_is_the_same_for_every_role(purpose):
    """So that a provider's cache holds it through a whole run."""
    system, _ = texts(purpose)
    assert system == texts("designer", brief(Stage.STRUCTURE, steps=9, objection="again"))[0]


def test_all_roles_of_a_step_share_the_base_in_front_of_their_own_text():
    """So that a provider's cache holds it from the planner to the last repair."""
    given = brief(Stage.MAPPING, steps=3)
    users = [
        request(p, given).messages[1] for p in ("tuner.mapping", "coder.optimize", "debugger", "coder.repair")
    ]
    shared = {user.text[: user.cached] for user in users}
    assert len(shared) == 1
    assert KERNEL.strip() in shared.pop()
    assert all(user.text[user.cached :].startswith("# ") for user in users)
    later = request(
        "tuner.mapping", replace(given, trajectory=brief(Stage.MAPPING, steps=9).trajectory)
    ).messages[1]
    assert later.text[: later.cached] == users[0].text[: users[0].cached]
    assert request("coder.seed").messages[1].cached == 0


@pytest.mark.parametrize("purpose", PURPOSES)
def test_the_tokens_of_every_part_are_counted(purpose):
    asked = request(purpose)
    whole = sum(estimate_tokens(message.text) for message in asked.messages)
    assert sum(asked.parts.values()) == pytest.approx(whole, rel=0.02)
    assert {"rules", "task", "skills", "role"} <= set(asked.parts)
    assert ("base" in asked.parts) == (purpose != "coder.seed")
    assert ("failure" in asked.parts) == (purpose in ("coder.repair", "debugger"))
    assert from_json(Request, to_json(asked)).parts == asked.parts


def test_the_system_message_holds_rules_example_program_and_gpu():
    system, _ = texts("designer")
    for fact in (
        "class ModelNew(nn.Module)",
        "@triton.jit",
        "triton.cdiv",
        "powers of two",
        "tl.program_id",
        "`break`",
        "loop variable",
        "mask",
        "TUNABLES",
        "`try`",
        "kept between calls",
        prompt_file("example_task.py").strip(),
        prompt_file("example_kernel.py").strip(),
        "x float32[8192, 1024]",
        "aten._softmax [8192, 1024]",
        "NVIDIA H200 (sm_90)",
        "132 SMs",
        "227 KiB",
        "4.8 TB/s",
        "0.014 ms",
        "limited by memory traffic",
    ):
        assert fact in system


@pytest.mark.parametrize(
    ("precision", "fact"),
    [
        (Precision.MATCH, "tf32x3"),
        (Precision.FP32, "tf32x3"),
        (Precision.TF32, 'input_precision="tf32"'),
        (Precision.BF16, "inputs in bf16"),
        (Precision.FP16, "inputs in fp16"),
    ],
)
def test_the_precision_policy_is_told(precision, fact):
    system, _ = texts("coder.seed", brief(Stage.SEED, precision=precision))
    assert f"## Precision: {precision.value}" in system
    assert fact in system


@pytest.mark.parametrize(
    ("calls", "fact"), [("allow", "cuBLAS"), ("forbid", "No PyTorch operation may compute")]
)
def test_the_library_policy_is_told(calls, fact):
    system, _ = texts("coder.seed", brief(Stage.SEED, library_calls=LibraryCalls(calls)))
    assert f"## Library calls: {calls}" in system
    assert fact in system


@pytest.mark.parametrize("purpose", PURPOSES)
def test_the_assignment_and_the_objection_are_told(purpose):
    stage = stage_of(purpose)
    _, user = texts(purpose, brief(stage, objection="it equals step 4"))
    for fact in (
        f"the objective of {stage.value}",
        f"what {stage.value} may change",
        f"what {stage.value} must keep",
        "it equals step 4",
    ):
        assert fact in user
    for category in brief(stage).assignment.categories:
        assert category.value in user
    assert "Sent back" not in texts(purpose)[1]


@pytest.mark.parametrize("purpose", [p for p in PURPOSES if p != "coder.seed"])
@pytest.mark.parametrize("room", [0, 200, 3000])
def test_the_base_the_contract_and_the_failures_are_always_there(purpose, room):
    given = brief(stage_of(purpose), steps=40)
    _, user = texts(purpose, given, room=room)
    assert KERNEL.strip() in user
    assert "correctness: correctness.error" in user
    if given.handoffs:
        assert "`softmax_rows` x1: reduce" in user
        assert user.count("The structure is fixed to") == 1


@pytest.mark.parametrize("purpose", PURPOSES)
@pytest.mark.parametrize("room", [1000, 3000, 8000])
def test_what_is_remembered_stays_in_its_room(purpose, room):
    """The rest of a prompt (rules, base, question) does not grow with the run."""
    stage = stage_of(purpose)
    skill = Skill("long", "A long one.", "word " * 50_000, "it fits")
    long_run = replace(brief(stage, steps=40), skills=(*SKILLS, skill))
    fresh = replace(brief(stage, steps=0, skills=()), handoffs=())
    grown = estimate_tokens("".join(texts(purpose, long_run, room=room)))
    least = estimate_tokens("".join(texts(purpose, fresh, room=room)))
    assert grown <= least + 1.5 * room + 400


def test_more_room_tells_more():
    given = brief(Stage.MAPPING, steps=60)
    small, large = (texts("tuner.mapping", given, room=room)[1] for room in (500, 20_000))
    assert small.count("change number") < large.count("change number")


@pytest.mark.parametrize("purpose", ["designer", "tuner.mapping", "tuner.tiling", "tuner.memory", "debugger"])
def test_the_example_of_the_reply_comes_from_the_schema(purpose):
    asked = request(purpose)
    assert asked.schema is not None
    blocks = [b for b in fenced_blocks(asked.messages[-1].text) if b.tag == "json"]
    assert list(json.loads(blocks[-1].text)) == asked.schema["required"]


@pytest.mark.parametrize("purpose", [p for p in PURPOSES if p.startswith("coder")])
def test_a_first_file_is_asked_for_whole_and_later_ones_as_edits(purpose):
    asked = request(purpose)
    assert asked.schema is None
    text = asked.messages[-1].text
    assert ("The whole file, complete, in one fenced block" in text) == (purpose == "coder.seed")
    assert ("# edit: replace NAME" in text) == (purpose != "coder.seed")


def test_a_program_that_could_not_be_counted_and_a_gpu_without_a_floor():
    given = brief(Stage.STRUCTURE)
    given = replace(given, facts=Facts(replace(given.facts.gpu, floor_milliseconds=None), None))
    system, _ = texts("designer", given)
    assert "could not be counted" in system
    assert "roofline floor" not in system


@pytest.mark.parametrize("purpose", ["designer", "coder.repair", "debugger"])
def test_a_run_without_an_accepted_kernel_can_be_asked_about(purpose):
    given = replace(brief(stage_of(purpose)), base=None, best=None, handoffs=())
    assert "no kernel file was accepted so far" in texts(purpose, given)[1]


def test_sources_with_fences_in_them_stay_in_one_piece():
    source = prompt_file("example_task.py").replace("learned scale", "```learned``` ````scale````\n```\n")
    system, _ = texts("designer", replace(brief(), task=Task("odd", source)))
    assert source.strip() in [b.text.strip() for b in fenced_blocks(system)]


@pytest.mark.parametrize("purpose", PURPOSES)
def test_prompts_read_well_as_markdown(purpose):
    for message in request(purpose).messages:
        outside = _prose(message)
        assert "\n\n\n" not in outside
        assert "{{" not in outside
        assert "{%" not in outside
        assert "None" not in outside.replace("None has to be followed", "")
        lines = message.text.split("\n")
        headings = [i for i, line in enumerate(lines) if line.startswith("## ")]
        assert all(lines[i - 1] == "" for i in headings)
        assert message.text.startswith("# ")
        assert message.text.endswith("\n")


def _prose(message: Message) -> str:
    text = message.text
    for block in fenced_blocks(text):
        text = text.replace(block.text, "")
    return text


def test_parts_that_are_left_out_are_not_told():
    example, base = prompt_file("example_kernel.py"), brief(Stage.MAPPING)
    whole = Prompter(3000).prompt("coder_optimize.md", base, plan=PLAN, opened="")
    less = Prompter(3000, without=frozenset({"few-shot", "evidence", "edits", "short-memory"}))
    prompt = less.prompt("coder_optimize.md", base, plan=PLAN, opened="")
    system, user = (message.text for message in prompt.messages)
    assert example.strip() in whole.messages[0].text
    assert example.strip() not in system
    assert "headroom" in whole.messages[1].text
    assert "headroom" not in user
    assert "# edit: replace" not in user
    assert "The whole file, complete" in user
    assert "Handed on by earlier stages" in whole.messages[1].text
    assert "Handed on by earlier stages" not in user
    assert "The structure contract" in user
    pattern = replace(SKILLS[0], pattern="x = 1")
    assert less.read((pattern,), pattern=True)[0].pattern == ""


def test_a_whole_file_is_asked_for_and_taken_where_edits_are_left_out():
    client = ScriptedClient(["```python\n# edit: delete softmax_rows\n```", f"```python\n{KERNEL}```"])
    team = LlmTeam(client, prompt_tokens=100, reply_tokens=777, without=("edits",))
    answer = team.coder.optimize(brief(Stage.MAPPING), PLAN)
    assert isinstance(answer, Draft)
    assert answer.edits == ()
    assert "write the whole file" in client.requests[1].messages[-1].text
    assert KERNEL.strip() in client.requests[0].messages[-1].text


def test_every_template_is_package_data_and_used():
    folder = resources.files("egg.agents").joinpath("prompts")
    names = {p.name for p in folder.iterdir() if p.name.endswith(".md")}
    assert names == {
        "system.md",
        "correction.md",
        "base.md",
        *(p.replace(".", "_") + ".md" for p in PURPOSES),
    }
    everything = "".join(p.read_text() for p in folder.iterdir() if p.name.endswith(".md"))
    parts = list(folder.joinpath("parts").iterdir())
    everything += "".join(p.read_text() for p in parts)
    assert all(f'"parts/{p.name}"' in everything for p in parts)


# -- the pieces ------------------------------------------------------------------------------------


def test_pieces():
    assert fenced("a\n```\nb", "text") == "````text\na\n```\nb\n````"
    assert clipped("short", 10) == "short"
    assert clipped("a" * 100, 10) == "aaaaa\n[... 90 characters left out ...]\naaaaa"
    assert listed(["a", "a", "b"], 10) == "- a (x2)\n- b"
    assert listed([str(i) for i in range(100)], 4) == "- 0\n- 1\n- ... 96 more ...\n- 98\n- 99"
    assert counted({}) == "none"
    assert counted({"a": 1, "b": 3}) == "a, b x3"
    assert scaled(232448, ("B", "KiB"), 1024) == "227 KiB"
    assert scaled(5e9, ("B", "KiB"), 1024) == "4882812 KiB"


def test_a_step_of_the_samples_is_told_with_its_prediction():
    given = brief(Stage.MAPPING, steps=0)
    given = replace(given, trajectory=replace(given.trajectory, steps=(step(7, Stage.MAPPING),)))
    assert "predicted 1.20x, measured 1.01x" in texts("tuner.mapping", given)[1]

"""Tools of the coder and the debugger: calls are run, bounded and recorded; the answer may be a draft."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from egg.agents.team import LlmTeam
from egg.core.conversation import Completion, Finish, Request, Speaker, ToolCall, Usage
from egg.core.plan import Diagnosis, Draft, Unusable
from egg.core.roles import Brief
from egg.core.stage import Stage
from egg.llm.scripted import ScriptedClient
from tests.agents.briefs import DIAGNOSIS, FAILURE, KERNEL, PLAN, brief, kernel

EVERY = frozenset({"compile", "code", "judge", "profile", "time", "read", "skill", "kernels"})
EDIT = "# edit: replace BLOCK\nBLOCK = {}\n"
BASE = KERNEL.replace("\n\n\n", "\n\nBLOCK = 128\n\n\n", 1)


class Bench:
    """Says what it was asked."""

    names = EVERY

    def __init__(self) -> None:
        self.used: list[tuple[str, tuple[str, ...], str]] = []
        self.recorded: list[tuple[str, ToolCall, str]] = []

    def use(self, name: str, brief: Brief, kernels: Sequence[str], about: str) -> str:
        self.used.append((name, tuple(kernels), about))
        return f"{name} says so. " + "long " * (5000 if about == "everything" else 0)

    def record(self, purpose: str, call: ToolCall, run: Callable[[], str]) -> str:
        self.recorded.append((purpose, call, run()))
        return self.recorded[-1][2]


def call(name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall(f"id-{name}", name, json.dumps(arguments))


def optimized(
    *replies: str | ToolCall | Completion, calls: int = 4
) -> tuple[object, tuple[Request, ...], Bench]:
    client, bench = ScriptedClient(replies), Bench()
    team = LlmTeam(client, prompt_tokens=3000, reply_tokens=777, instruments=bench, tool_calls=calls)
    answer = team.coder.optimize(brief(Stage.MAPPING, base=kernel(source=BASE)), PLAN)
    return answer, client.requests, bench


def results(request: Request) -> list[str]:
    return [message.text for message in request.messages if message.speaker is Speaker.TOOL]


def test_a_call_is_run_and_its_result_sent_back():
    answer, (first, second), bench = optimized(call("compile", kernel=EDIT.format(256)), EDIT_REPLY)
    assert isinstance(answer, Draft)
    assert {tool.name for tool in first.tools} == EVERY
    assert "you may call tools" in first.messages[-1].text.lower()
    assert "4 times at most" in first.messages[-1].text
    assert "send edits" in first.messages[-1].text
    own, result = second.messages[-2:]
    assert second.messages[: len(first.messages)] == first.messages
    assert (own.calls[0].name, result.result_of) == ("compile", "id-compile")
    assert result.text == "Draft 1.\n\ncompile says so. \n\nCalls left: 3."
    ((name, (tried,), _),) = bench.used
    assert name == "compile"
    assert "BLOCK = 256" in tried
    assert [purpose for purpose, _, _ in bench.recorded] == ["coder.optimize"]


EDIT_REPLY = f"```python\n{EDIT.format(512)}```"


def test_a_draft_that_was_tried_is_the_answer_by_its_number():
    answer, _, bench = optimized(
        call("compile", kernel=EDIT.format(256)),
        call("judge", kernel="# edit: add after BLOCK\nEXTRA = 2\n", on=1),
        "It is right: use draft 2.",
    )
    assert isinstance(answer, Draft)
    assert "BLOCK = 256\n" in answer.source
    assert "EXTRA = 2\n" in answer.source
    assert answer.source == bench.used[1][1][0]


def test_a_draft_that_does_not_exist_is_corrected_without_tools():
    answer, requests, _ = optimized("use draft 3", EDIT_REPLY)
    assert isinstance(answer, Draft)
    assert "there is no draft 3" in requests[1].messages[-1].text
    assert (requests[0].calling, requests[1].calling) == (True, False)
    assert requests[1].tools == requests[0].tools


def test_calls_are_bounded_and_the_last_request_allows_none():
    many = [call("skill", name=f"skill {n}") for n in range(3)]
    answer, requests, bench = optimized(*many[:2], EDIT_REPLY, calls=2)
    assert isinstance(answer, Draft)
    assert [request.calling for request in requests] == [True, True, False]
    assert len(bench.used) == 2
    answer, requests, bench = optimized(*many, EDIT_REPLY, calls=2)
    assert isinstance(answer, Draft)
    assert len(bench.used) == 2
    assert "cannot be used" in requests[-1].messages[-1].text


def test_several_calls_of_one_turn_are_run_in_order_as_long_as_there_are_any():
    three = tuple(ToolCall(f"c{n}", "skill", json.dumps({"name": f"s{n}"})) for n in range(3))
    turn = Completion("Looking.", Finish.STOP, Usage(1, 1), "m", None, 0.0, three, ({"type": "thinking"},))
    answer, (_, second), bench = optimized(turn, EDIT_REPLY, calls=2)
    assert isinstance(answer, Draft)
    assert [used[2] for used in bench.used] == ["s0", "s1"]
    assert second.messages[2].reasoning == ({"type": "thinking"},)
    assert [m.result_of for m in second.messages[3:]] == ["c0", "c1", "c2"]
    assert results(second)[2].startswith("No calls are left")
    assert not second.calling


@pytest.mark.parametrize(
    ("bad", "result"),
    [
        (ToolCall("1", "fly", "{}"), "no tool 'fly'"),
        (ToolCall("1", "compile", '{"kernel": "cut'), "no JSON"),
        (ToolCall("1", "compile", "[1]"), "no JSON object"),
        (ToolCall("1", "compile", "{}"), "needs kernel"),
        (ToolCall("1", "skill", '{"name": 3}'), "of type string"),
        (ToolCall("1", "skill", '{"name": "a", "why": "b"}'), "takes no 'why'"),
        (call("compile", kernel="# edit: replace NOWHERE\nx = 1\n"), "NOWHERE"),
        (call("judge", kernel=EDIT.format(1), on=7), "no draft 7"),
        (call("read", name="nothing"), "defines no 'nothing'"),
    ],
)
def test_what_is_wrong_with_a_call_is_its_result_and_it_counts(bad, result):
    answer, requests, bench = optimized(bad, EDIT_REPLY, calls=1)
    assert isinstance(answer, Draft)
    assert result in results(requests[1])[0]
    assert "Error: " in results(requests[1])[0]
    assert bench.used == []
    assert [recorded for _, recorded, _ in bench.recorded] == [bad]
    assert not requests[1].calling


def test_a_definition_of_the_file_can_be_read_and_long_results_are_cut():
    _, requests, _ = optimized(
        call("read", name="ModelNew.forward"), call("skill", name="everything"), EDIT_REPLY
    )
    read, skill = results(requests[2])
    assert read.startswith("    def forward(self")
    assert len(skill) < 3000
    assert "left out" in skill


def test_a_first_file_has_no_file_to_read_and_a_debugger_looks_at_the_failed_one():
    bench = Bench()
    client = ScriptedClient([f"```python\n{KERNEL}```", call("profile"), json.dumps(ISSUE)])
    team = LlmTeam(client, prompt_tokens=3000, reply_tokens=777, instruments=bench, tool_calls=2)
    assert isinstance(team.coder.seed(brief(Stage.SEED)), Draft)
    assert isinstance(team.debugger.diagnose(brief(Stage.MAPPING), FAILURE), Diagnosis)
    seed, first, second = client.requests
    assert {tool.name for tool in seed.tools} == EVERY - {"read", "profile", "time"}
    assert first.schema is not None
    assert second.messages[-1].speaker is Speaker.TOOL
    assert bench.used == [("profile", (FAILURE.candidate.source,), "")]
    assert "use draft" not in first.messages[-1].text
    assert "edits of the file that failed: `# edit: replace NAME`" in first.messages[-1].text
    assert "send edits" not in seed.messages[-1].text


ISSUE = {"critical_issue": "wrong mask", "modification_plan": "mask the rows"}


def test_code_is_that_of_the_file_of_the_question_where_there_is_one():
    _, _, bench = optimized(call("code", name="norm_rows"), EDIT_REPLY)
    assert bench.used == [("code", (BASE,), "norm_rows")]
    client, bench = ScriptedClient((call("code", name="norm_rows"), EDIT_REPLY, EDIT_REPLY)), Bench()
    team = LlmTeam(client, prompt_tokens=3000, reply_tokens=777, instruments=bench, tool_calls=4)
    team.coder.seed(brief(Stage.STRUCTURE))
    assert results(client.requests[1]) == ["Error: code needs kernel\n\nCalls left: 3."]
    assert bench.used == []


def test_without_instruments_or_calls_there_are_no_tools():
    for options in ({}, {"instruments": Bench()}, {"tool_calls": 3}):
        client = ScriptedClient([f"```python\n{KERNEL}```"])
        team = LlmTeam(client, prompt_tokens=3000, reply_tokens=777, **options)  # type: ignore[arg-type]
        assert not isinstance(team.coder.repair(brief(), FAILURE, DIAGNOSIS), Unusable)
        assert client.requests[0].tools == ()
        assert "## Tools" not in client.requests[0].messages[-1].text

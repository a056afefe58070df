"""Caps on tokens and cost: no call that could pass one is made, and a replay ends alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from egg.api.clients import CappedClient, JournaledClient
from egg.api.runs import advance, replay, start
from egg.api.teams import llm_team
from egg.core.conversation import Completion, Finish, Message, Request, Speaker, Usage
from egg.core.errors import UsageError
from egg.core.settings import Caps, ModelChoice
from egg.core.tokens import estimate_tokens
from egg.engine.journal import OverBudget
from egg.engine.scripted import ScriptedJudge
from egg.engine.state import Ledger
from egg.llm.prices import worst_cost
from egg.llm.scripted import ScriptedClient
from tests.engine.scripts import FACTS, TASK, act, kernel, settings

CHOICE, ADDRESS = ModelChoice("openai", "gpt-4o"), "https://api.openai.com/v1"
REQUEST = Request("coder.seed", (Message(Speaker.USER, "word " * 200),), 1000)
PROMPT = estimate_tokens(REQUEST.messages[0].text)


def capped(caps: Caps, spent: Ledger, script: ScriptedClient) -> CappedClient:
    return CappedClient(script, caps, lambda: spent, CHOICE, ADDRESS)


def test_without_caps_nothing_changes() -> None:
    script = ScriptedClient(["yes"])
    capped(Caps(), Ledger(), script).complete(REQUEST)
    assert script.requests[0].max_output_tokens == 1000


def test_a_reply_is_shortened_to_what_the_tokens_left_allow() -> None:
    script = ScriptedClient(["yes"])
    capped(Caps(tokens=PROMPT + 900), Ledger(usage=Usage(100, 200)), script).complete(REQUEST)
    assert script.requests[0].max_output_tokens == 600


def test_a_reply_that_would_be_too_short_is_not_asked_for() -> None:
    script = ScriptedClient([])
    with pytest.raises(OverBudget, match="--max-tokens"):
        capped(Caps(tokens=PROMPT + 200), Ledger(), script).complete(REQUEST)


def test_the_money_left_bounds_the_reply() -> None:
    whole = worst_cost(PROMPT, 1000, CHOICE.name, CHOICE.provider, ADDRESS)
    prompt = worst_cost(PROMPT, 0, CHOICE.name, CHOICE.provider, ADDRESS)
    assert whole is not None
    assert prompt is not None
    half = prompt + (whole - prompt) / 2
    script = ScriptedClient(["yes"])
    capped(Caps(cost=half + 1.0), Ledger(cost=1.0), script).complete(REQUEST)
    assert script.requests[0].max_output_tokens == pytest.approx(500, abs=1)
    with pytest.raises(OverBudget, match="--max-cost"):
        capped(Caps(cost=prompt + 1.0), Ledger(cost=1.0), script).complete(REQUEST)


def test_a_run_ends_before_it_passes_its_tokens(tmp_path: Path) -> None:
    cap = 30_000
    terms = settings(caps=Caps(tokens=cap))
    start(tmp_path, TASK, terms, FACTS, name="capped")

    def reply(request: Request) -> Completion:
        text = "```python\n" + kernel("0.5 ms") + "```" if request.purpose.startswith("coder") else "no JSON"
        used = Usage(sum(estimate_tokens(m.text) for m in request.messages), estimate_tokens(text))
        return Completion(text, Finish.STOP, used, "m", None, 0.0)

    def team(started, journal):
        client = CappedClient(
            ScriptedClient(reply), terms.caps, lambda: journal.state.ledger, CHOICE, ADDRESS
        )
        return llm_team(terms, JournaledClient(client, journal))

    state = advance(tmp_path, team, ScriptedJudge(act)).state
    assert state.closed is not None
    assert "could pass --max-tokens 30000" in state.closed.stopped
    assert 0 < state.ledger.usage.total <= cap
    assert state.closed.verdict == "faster"
    assert replay(tmp_path).state == state


def test_a_cap_on_cost_needs_a_price() -> None:
    from egg.api.teams import check_model

    local = ModelChoice("openai", "qwen", "http://localhost:8000/v1")
    with pytest.raises(UsageError, match="price of qwen"):
        check_model(local, Caps(cost=1.0), {})

"""Models and efforts by role: read from options, routed by purpose."""

from __future__ import annotations

import pytest

from egg.api.clients import RoutedClient
from egg.cli.run_options import efforts, models_by_role
from egg.core.codec import from_json, to_json
from egg.core.conversation import Request
from egg.core.errors import UsageError
from egg.core.settings import Settings
from egg.engine.budgets import BUDGETS
from egg.llm.scripted import ScriptedClient


def names(text: str | None) -> dict[str, str]:
    default, by_role = models_by_role("llm", text, None, None, None)
    return {"": default.name if default else "", **{role: choice.name for role, choice in by_role.items()}}


def test_models_are_read_by_role():
    assert names(None) == {"": ""}
    assert names("claude-a") == {"": "claude-a"}
    assert names("claude-a, coder=gpt-b") == {"": "claude-a", "coder": "gpt-b"}
    every = {"designer": "claude-a", "tuner": "claude-a", "coder": "gpt-b", "debugger": "gpt-b"}
    assert names("designer=claude-a,coder=gpt-b") == {"": "gpt-b", **every}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("designer=a", "no model for the coder and the debugger"),
        ("planner=a,b", "no role 'planner'"),
        ("coder=,b", "--model is"),
        ("coder=a,coder=b", "--model is"),
    ],
)
def test_a_role_without_a_model_is_a_mistake(text, message):
    with pytest.raises(UsageError, match=message):
        models_by_role("llm", text, None, None, None)


def test_efforts_are_read_by_role():
    assert efforts("llm", None) == {}
    assert efforts("llm", "high") == dict.fromkeys(("designer", "tuner", "coder", "debugger"), "high")
    assert efforts("llm", "low,designer=max")["designer"] == "max"
    with pytest.raises(UsageError, match="'huge'"):
        efforts("llm", "huge")
    with pytest.raises(UsageError, match="no effect"):
        efforts("step", "high")


def test_a_question_goes_to_the_model_of_its_role():
    planner, coder, other = (ScriptedClient(lambda _: "ok", name) for name in ("planner", "coder", "other"))
    client = RoutedClient(other, {"designer": planner, "coder": coder})
    purposes = ("designer", "coder.optimize", "coder.repair", "tuner.mapping", "debugger")
    answered = [client.complete(Request(purpose, (), 10)).model for purpose in purposes]
    assert answered == ["planner", "coder", "coder", "other", "other"]


def test_the_log_keeps_models_and_efforts_and_older_logs_have_none():
    default, by_role = models_by_role("llm", "claude-a,coder=gpt-b", None, None, None)
    settings = Settings("llm", BUDGETS["quick"], model=default, models=by_role, efforts={"coder": "high"})
    assert from_json(Settings, to_json(settings)) == settings
    assert [choice.name for choice in settings.all_models] == ["claude-a", "gpt-b"]
    old = {k: v for k, v in to_json(settings).items() if k not in ("models", "efforts")}
    assert (from_json(Settings, old).models, from_json(Settings, old).efforts) == ({}, {})

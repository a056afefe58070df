"""Choosing a model, finding its key, keeping secrets; prices, limits and the scripted model."""

from __future__ import annotations

import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.core.conversation import Completion, Finish, Usage
from egg.core.errors import UsageError
from egg.core.settings import ModelChoice
from egg.core.tokens import estimate_tokens
from egg.llm.addresses import display_url, is_local
from egg.llm.client import ModelRefusedCall
from egg.llm.connect import connect, parse_model, secrets
from egg.llm.limits import Limited
from egg.llm.prices import cost, price_known, worst_cost
from egg.llm.schemas import closed, has_open_objects, schema_name
from egg.llm.scripted import ScriptedClient, ScriptExhausted
from tests.llm.endpoints import ANTHROPIC, KEY, LOCAL, OPENAI, MockEndpoint, ask, openai_reply

URL = "http://localhost:8000/v1"


@pytest.mark.parametrize(
    ("text", "base_url", "provider", "name"),
    [
        ("claude-sonnet-5-5", None, "anthropic", "claude-sonnet-5-5"),
        ("anthropic/claude-opus-5-5", None, "anthropic", "claude-opus-5-5"),
        ("gpt-5", None, "openai", "gpt-5"),
        ("openai/gpt-5", None, "openai", "gpt-5"),
        (" gpt-5 ", None, "openai", "gpt-5"),
        ("Qwen/Qwen3-Coder", URL, "openai", "Qwen/Qwen3-Coder"),
        ("claude-sonnet-5-5", URL, "openai", "claude-sonnet-5-5"),
        ("anthropic/claude-sonnet-5-5", URL, "anthropic", "claude-sonnet-5-5"),
        ("openai/anthropic/claude", URL, "openai", "anthropic/claude"),
    ],
)
def test_a_model_is_named_in_a_word(text: str, base_url: str | None, provider: str, name: str) -> None:
    assert parse_model(text, base_url) == ModelChoice(provider, name, base_url)


@pytest.mark.parametrize("text", ["", "  ", "openai/", "anthropic/"])
def test_a_model_without_a_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no model"):
        parse_model(text)


@pytest.mark.parametrize(
    "choice", [OPENAI, ANTHROPIC, ModelChoice("openai", "m", "https://llm.example.com/v1")]
)
def test_without_a_key_the_variable_is_named(choice: ModelChoice) -> None:
    with pytest.raises(ModelRefusedCall, match=f"{choice.provider.upper()}_API_KEY is not set"):
        connect(choice, {})


def test_a_local_server_needs_no_key_unless_a_variable_was_named() -> None:
    connect(LOCAL, {})
    with pytest.raises(ModelRefusedCall, match="MY_KEY is not set"):
        connect(ModelChoice("openai", "m", URL, key_variable="MY_KEY"), {"OPENAI_API_KEY": KEY})


def test_the_named_variable_wins() -> None:
    endpoint = MockEndpoint(openai_reply("x"))
    choice = ModelChoice("openai", "m", key_variable="MY_KEY")
    endpoint.client(choice, {"OPENAI_API_KEY": "other", "MY_KEY": f" {KEY}\n"}).complete(ask())
    assert endpoint.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_the_environments_base_url_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "https://process.example.com/v1")
    endpoint = MockEndpoint(openai_reply("x"), openai_reply("x"))
    endpoint.client(
        OPENAI, {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "https://given.example.com/v1"}
    ).complete(ask())
    endpoint.client(OPENAI, {"OPENAI_API_KEY": KEY}).complete(ask())
    assert [r.url.host for r in endpoint.requests] == ["given.example.com", "api.openai.com"]


@pytest.mark.parametrize("key", ["sk 1", "sk\n1", "sk\u20ac", "sk\x7f"])
def test_a_key_that_cannot_be_one_is_not_shown(key: str) -> None:
    with pytest.raises(ModelRefusedCall, match="OPENAI_API_KEY") as caught:
        connect(OPENAI, {"OPENAI_API_KEY": key})
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://host/v1", "http://", "http://host:port/v1", "http://[::1/v1"]
)
def test_a_base_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="base URL"):
        connect(ModelChoice("openai", "m", url), {"OPENAI_API_KEY": KEY})


def test_an_unknown_provider_is_refused() -> None:
    with pytest.raises(UsageError, match="no provider"):
        connect(ModelChoice("llamas", "m"), {})


def test_all_secrets_are_listed() -> None:
    choice = ModelChoice(
        "openai", "m", "https://me:p%40ss@host.example.com/v1?token=abc", key_variable="MY_KEY"
    )
    listed = secrets(choice, {"MY_KEY": f"{KEY}\n", "OPENAI_API_KEY": "other", "PATH": "/bin"})
    assert set(listed) == {f"{KEY}\n", KEY, "other", "p%40ss", "p@ss", "abc"}
    assert list(listed) == sorted(listed, key=lambda value: (-len(value), value))
    assert secrets(LOCAL, {}) == ()


def test_an_address_is_shown_without_its_secrets() -> None:
    assert display_url("https://me:pw@host:8443/v1?key=s#frag") == "https://host:8443/v1"


@pytest.mark.parametrize(
    ("url", "local"),
    [
        (URL, True),
        ("http://127.0.0.1/v1", True),
        ("http://[::1]:8000/v1", True),
        ("http://10.1.2.3/v1", True),
        ("http://0.0.0.0:1/v1", True),
        ("http://gpu-box:8000/v1", True),
        ("http://host.docker.internal:11434/v1", True),
        ("https://api.openai.com/v1", False),
        ("https://8.8.8.8/v1", False),
        ("https://localhost.evil.com/v1", False),
    ],
)
def test_which_addresses_are_local(url: str, local: bool) -> None:
    assert is_local(url) is local


def test_prices_are_known_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object) -> None:
        raise AssertionError("a price was looked up on the network")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    assert cost(Usage(1_000_000, 0), "gpt-4o", "openai") == pytest.approx(2.5)
    assert cost(Usage(1_000_000, 0), "gpt-4o", "openai", "https://api.openai.com/v1") == pytest.approx(2.5)
    assert price_known("claude-sonnet-5-5", "anthropic", "https://api.anthropic.com")


@pytest.mark.parametrize("base_url", [URL, "https://llm.example.com/v1"])
def test_the_price_is_that_of_the_server_not_of_the_protocol(base_url: str) -> None:
    assert cost(Usage(1000, 1000), "gpt-4o", "openai", base_url) is None
    assert worst_cost(1000, 1000, "gpt-4o", "openai", base_url) is None
    assert not price_known("gpt-4o", "openai", base_url)


def test_an_unknown_model_has_no_price() -> None:
    assert cost(Usage(1000, 1000), "in-house-7b", "openai") is None


@given(st.integers(0, 300_000), st.integers(0, 20_000), st.floats(0, 1), st.floats(0, 1))
def test_no_request_costs_more_than_the_worst(
    prompt: int, output: int, cached: float, written: float
) -> None:
    read = int(prompt * cached)
    write = int((prompt - read) * written)
    for model, provider in (("claude-sonnet-5-5", "anthropic"), ("gpt-4o", "openai")):
        worst = worst_cost(prompt, output, model, provider)
        actual = cost(Usage(prompt, output, read, write), model, provider)
        assert worst is not None
        assert actual is not None
        assert actual <= worst * (1 + 1e-9)


def test_counts_that_contradict_themselves_are_priced_all_the_same() -> None:
    assert cost(Usage(10, 0, cache_read_tokens=30), "gpt-4o", "openai") is not None


def test_a_limit_holds_between_threads() -> None:
    gate, inside, most = threading.Lock(), 0, 0
    everyone_in = threading.Barrier(3)

    def answer(request, on_text=None):
        nonlocal inside, most
        with gate:
            inside += 1
            most = max(most, inside)
        everyone_in.wait(timeout=120)
        with gate:
            inside -= 1
        return Completion("x", Finish.STOP, Usage(), "m", None, 0.0)

    class Slow:
        complete = staticmethod(answer)

    client = Limited(Slow(), 3)
    threads = [threading.Thread(target=client.complete, args=(ask(),)) for _ in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads)
    assert most == 3


def test_a_slot_is_given_back_after_an_error() -> None:
    client = Limited(ScriptedClient([]), 1)
    for _ in range(2):
        with pytest.raises(ScriptExhausted):
            client.complete(ask())
    with pytest.raises(ValueError, match="at least one"):
        Limited(ScriptedClient([]), 0)


def test_a_script_is_said_in_order_and_then_ends_loudly() -> None:
    refusal = Completion("no", Finish.REFUSAL, Usage(1, 1), "m", 0.5, 1.0)
    client, pieces = ScriptedClient(["first\nline", refusal]), []
    first = client.complete(ask("one"), pieces.append)
    assert (first.text, pieces, first.cost) == ("first\nline", ["first\n", "line"], None)
    assert first.usage.output_tokens == estimate_tokens("first\nline")
    assert client.complete(ask("two")) is refusal
    with pytest.raises(ScriptExhausted, match=r"2 replies.*'coder.seed'"):
        client.complete(ask("three"))
    assert [r.messages[-1].text for r in client.requests] == ["one", "two", "three"]


def test_a_script_may_be_a_function() -> None:
    client = ScriptedClient(lambda request: request.messages[-1].text.upper())
    assert client.complete(ask("shout")).text == "SHOUT"


def test_schemas_are_closed_all_the_way_down() -> None:
    schema = {
        "type": "object",
        "properties": {
            "default": {"$ref": "#/$defs/Point", "default": None},
            "points": {"type": "array", "items": {"$ref": "#/$defs/Point"}},
            "either": {
                "anyOf": [{"type": "object", "properties": {"a": {"type": "null"}}}, {"type": "null"}]
            },
        },
        "$defs": {"Point": {"type": "object", "properties": {"x": {"enum": ["default"]}}, "required": []}},
    }
    shut = closed(schema)
    assert shut["required"] == ["default", "points", "either"]
    assert shut["properties"]["default"] == {"$ref": "#/$defs/Point"}
    assert shut["$defs"]["Point"]["required"] == ["x"]
    assert shut["$defs"]["Point"]["properties"]["x"] == {"enum": ["default"]}
    assert shut["properties"]["either"]["anyOf"][0]["additionalProperties"] is False
    assert not has_open_objects(schema)
    assert has_open_objects({"anyOf": [{"type": "object"}]})
    assert schema_name("coder.repair / é") == "coder_repair_"


@given(st.text(max_size=200))
def test_an_estimate_is_never_absurd(text: str) -> None:
    tokens = estimate_tokens(text)
    assert 0 <= tokens <= len(text.encode("utf-8", errors="replace"))
    assert estimate_tokens(text + "word") >= tokens

"""Anthropic's wire format, as sent and as read."""

from __future__ import annotations

import pytest

from egg.core.conversation import Finish, Message, Speaker, Usage
from tests.llm.endpoints import (
    ANTHROPIC,
    KEY,
    MockEndpoint,
    anthropic_reply,
    ask,
    event,
    events,
    message_end,
    message_start,
    refused,
    text_delta,
)

SCHEMA = {"type": "object", "properties": {"plan": {"type": "string", "minLength": 3}}}


def test_what_is_sent() -> None:
    endpoint = MockEndpoint(anthropic_reply("ok"))
    endpoint.client(ANTHROPIC).complete(ask(schema=SCHEMA, temperature=0.2))
    request, body = endpoint.requests[0], endpoint.bodies[0]
    assert str(request.url) == "https://api.anthropic.com/v1/messages"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    schema = body.pop("output_config")["format"]
    assert body == {
        "model": "claude-sonnet-5-5",
        "max_tokens": 256,
        "system": [{"type": "text", "text": "You write Triton.", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": "Fuse these."}],
        "stream": True,
    }
    assert schema["type"] == "json_schema"
    assert schema["schema"]["additionalProperties"] is False
    assert schema["schema"]["required"] == ["plan"]
    assert "minLength" not in schema["schema"]["properties"]["plan"]


def test_a_conversation_keeps_its_turns() -> None:
    turns = ((Speaker.USER, "Plan."), (Speaker.MODEL, "{"), (Speaker.USER, "That is no JSON."))
    endpoint = MockEndpoint(anthropic_reply("ok"))
    endpoint.client(ANTHROPIC).complete(ask(messages=tuple(Message(*turn) for turn in turns)))
    body = endpoint.bodies[0]
    assert "system" not in body
    assert [(m["role"], m["content"]) for m in body["messages"]] == [
        ("user", "Plan."),
        ("assistant", "{"),
        ("user", "That is no JSON."),
    ]


def test_effort_is_sent_and_left_out_where_the_model_has_none() -> None:
    no = refused(400, "output_config.effort: not supported by this model", type="invalid_request_error")
    endpoint = MockEndpoint(anthropic_reply("{}"), no, anthropic_reply("{}"))
    client = endpoint.client(ANTHROPIC)
    client.complete(ask(schema=SCHEMA, effort="high"))
    client.complete(ask(schema=SCHEMA, effort="high"))
    first, _, third = endpoint.bodies
    assert (first["thinking"], first["output_config"]["effort"]) == ({"type": "adaptive"}, "high")
    assert "thinking" not in third
    assert list(third["output_config"]) == ["format"], "the schema is still asked for"


def test_a_second_mark_for_the_cache_stands_behind_what_roles_share() -> None:
    endpoint = MockEndpoint(anthropic_reply("ok"))
    turns = (Message(Speaker.SYSTEM, "Rules.", 6), Message(Speaker.USER, "The base. Plan.", 10))
    endpoint.client(ANTHROPIC).complete(ask(messages=turns))
    body = endpoint.bodies[0]
    mark = {"cache_control": {"type": "ephemeral"}}
    assert body["system"] == [{"type": "text", "text": "Rules.", **mark}]
    kept, rest = body["messages"][0]["content"]
    assert kept == {"type": "text", "text": "The base. ", **mark}
    assert rest == {"type": "text", "text": "Plan."}


def test_the_text_streams_in_order_and_cached_input_is_counted_in() -> None:
    pieces: list[str] = []
    answer = anthropic_reply("a", "b", "€", cache_read_input_tokens=700, cache_creation_input_tokens=200)
    completion = MockEndpoint(answer).client(ANTHROPIC).complete(ask(), pieces.append)
    assert [p for p in pieces if p] == ["a", "b", "€"]
    assert completion.text == "ab€"
    assert completion.usage == Usage(1000, 50, cache_read_tokens=700, cache_write_tokens=200)
    assert completion.model == "claude-sonnet-5-5-20261001"
    # $2 for a million in, $0.10 when read from the cache, $2.50 when written to it, $10 out
    assert completion.cost == pytest.approx(100 * 2e-6 + 700 * 0.1e-6 + 200 * 2.5e-6 + 50 * 10e-6)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", Finish.STOP),
        ("stop_sequence", Finish.STOP),
        ("max_tokens", Finish.LENGTH),
        ("model_context_window_exceeded", Finish.LENGTH),
        ("refusal", Finish.REFUSAL),
    ],
)
def test_why_a_reply_ended(reason: str, expected: Finish) -> None:
    completion = MockEndpoint(anthropic_reply("x", reason=reason)).client(ANTHROPIC).complete(ask())
    assert (completion.finish, completion.text) == (expected, "x")


def test_thinking_is_progress_but_not_text() -> None:
    pieces: list[str] = []
    thought = event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "Hm."})
    answer = events(message_start(), thought, thought, text_delta("42"), *message_end("end_turn"))
    completion = MockEndpoint(answer).client(ANTHROPIC).complete(ask(), pieces.append)
    assert completion.text == "42"
    assert len(pieces) > 3


def test_a_model_without_structured_output_is_asked_without_from_then_on() -> None:
    no = refused(400, "output_config.format: Extra inputs are not permitted", type="invalid_request_error")
    endpoint = MockEndpoint(no, anthropic_reply("{}"), anthropic_reply("{}"))
    client = endpoint.client(ANTHROPIC)
    client.complete(ask(schema=SCHEMA))
    client.complete(ask(schema=SCHEMA))
    assert ["output_config" in body for body in endpoint.bodies] == [True, False, False]


@pytest.mark.parametrize(
    "sizes", [{"type": "object", "additionalProperties": True}, {"type": ["string", "null"]}, {}]
)
def test_a_schema_the_api_cannot_enforce_is_left_to_the_caller(sizes: dict) -> None:
    schema = {"type": "object", "properties": {"sizes": sizes}}
    endpoint = MockEndpoint(anthropic_reply("{}"))
    endpoint.client(ANTHROPIC).complete(ask(schema=schema))
    assert "output_config" not in endpoint.bodies[0]


def test_a_gateway_that_leaves_things_out_is_still_read() -> None:
    answer = events(
        event("message_start"), text_delta("fine"), event("message_delta", delta={"stop_reason": "end_turn"})
    )
    completion = MockEndpoint(answer).client(ANTHROPIC).complete(ask())
    assert completion.text == "fine"
    assert completion.usage.total > 0

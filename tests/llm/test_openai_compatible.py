"""OpenAI's wire format, as sent and as read, and what is done when a compatible server is less so."""

from __future__ import annotations

import httpx2
import pytest

from egg.core.conversation import Finish, Usage
from egg.core.settings import ModelChoice
from egg.core.tokens import estimate_tokens
from egg.llm.client import ModelError, ModelRefusedCall
from tests.llm.endpoints import (
    DONE,
    KEY,
    LOCAL,
    OPENAI,
    MockEndpoint,
    ask,
    chunk,
    events,
    openai_reply,
    refused,
)


def test_effort_is_sent_and_left_out_where_the_model_has_none() -> None:
    no = refused(400, "Unrecognized request argument supplied: reasoning_effort")
    endpoint = MockEndpoint(openai_reply("ok"), no, openai_reply("ok"))
    client = endpoint.client()
    client.complete(ask(effort="high"))
    client.complete(ask(effort="high"))
    assert [body.get("reasoning_effort") for body in endpoint.bodies] == ["high", "high", None]


SCHEMA = {
    "type": "object",
    "properties": {"plan": {"type": "string"}, "gain": {"type": "number", "default": 1}},
}


def test_what_is_sent() -> None:
    endpoint = MockEndpoint(openai_reply("ok"))
    endpoint.client().complete(ask(schema=SCHEMA, temperature=0.2))
    request = endpoint.requests[0]
    assert str(request.url) == "https://api.openai.com/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert endpoint.bodies[0] == {
        "model": "gpt-4o",
        "messages": [
            {"role": "system", "content": "You write Triton."},
            {"role": "user", "content": "Fuse these."},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 256,
        "temperature": 0.2,
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "coder_seed",
                "strict": True,
                "schema": {
                    "type": "object",
                    "properties": {"plan": {"type": "string"}, "gain": {"type": "number"}},
                    "additionalProperties": False,
                    "required": ["plan", "gain"],
                },
            },
        },
    }


def test_what_is_not_asked_for_is_not_sent() -> None:
    endpoint = MockEndpoint(openai_reply("ok"))
    endpoint.client(LOCAL, {}).complete(ask())
    assert str(endpoint.requests[0].url) == "http://localhost:8000/v1/chat/completions"
    assert set(endpoint.bodies[0]) == {"model", "messages", "stream", "stream_options", "max_tokens"}


def test_the_choices_temperature_is_used_where_the_request_has_none() -> None:
    endpoint = MockEndpoint(openai_reply("ok"), openai_reply("ok"))
    client = endpoint.client(ModelChoice("openai", "gpt-4o", temperature=0.7))
    client.complete(ask())
    client.complete(ask(temperature=0.0))
    assert [body["temperature"] for body in endpoint.bodies] == [0.7, 0.0]


def test_the_text_streams_in_order_and_the_reply_is_counted() -> None:
    pieces: list[str] = []
    endpoint = MockEndpoint(openai_reply("import ", "triton", "\n", "# €"))
    completion = endpoint.client().complete(ask(), pieces.append)
    assert [p for p in pieces if p] == ["import ", "triton", "\n", "# €"]
    assert completion.text == "import triton\n# €"
    assert completion.finish is Finish.STOP
    assert completion.usage == Usage(1000, 50, cache_read_tokens=400, cache_write_tokens=0)
    assert completion.model == "gpt-4o-2024-08-06"
    # 600 fresh tokens at $2.50, 400 cached at $1.25, 50 out at $10 for a million
    assert completion.cost == pytest.approx(600 * 2.5e-6 + 400 * 1.25e-6 + 50 * 10e-6)


def test_reasoning_is_progress_but_not_text() -> None:
    pieces: list[str] = []
    thinking = [chunk(None, reasoning_content=word) for word in ("Let ", "me ", "see")]
    endpoint = MockEndpoint(events(*thinking, chunk("42"), chunk(None, "stop"), DONE))
    completion = endpoint.client().complete(ask(), pieces.append)
    assert completion.text == "42"
    assert pieces[:4] == ["", "", "", "42"]


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        ("stop", Finish.STOP),
        ("length", Finish.LENGTH),
        ("content_filter", Finish.REFUSAL),
        ("eos", Finish.STOP),
    ],
)
def test_why_a_reply_ended(finish: str, expected: Finish) -> None:
    completion = MockEndpoint(openai_reply("x", finish=finish)).client().complete(ask())
    assert (completion.finish, completion.text) == (expected, "x")


def test_a_reply_that_never_ends_is_ended() -> None:
    endless = events(*[chunk("x" * 4000)] * 500)
    completion = MockEndpoint(endless).client().complete(ask())
    assert completion.finish is Finish.LENGTH
    assert len(completion.text) < 4000 * 500


def test_a_refusal_is_a_reply_that_says_so() -> None:
    answer = events(chunk(None, refusal="I cannot "), chunk(None, refusal="help."), chunk(None, "stop"), DONE)
    completion = MockEndpoint(answer).client().complete(ask())
    assert completion.finish is Finish.REFUSAL
    assert completion.text == "I cannot help."


def test_without_reported_usage_tokens_are_estimated() -> None:
    completion = MockEndpoint(openai_reply("some reply", usage=None)).client().complete(ask("Why?"))
    asked = estimate_tokens("You write Triton.") + estimate_tokens("Why?")
    assert completion.usage == Usage(asked, estimate_tokens("some reply"))


def test_an_unpriced_model_costs_none_not_zero() -> None:
    assert MockEndpoint(openai_reply("x")).client(LOCAL, {}).complete(ask()).cost is None
    unknown = ModelChoice("openai", "in-house-7b", base_url="https://llm.example.com/v1")
    assert MockEndpoint(openai_reply("x")).client(unknown).complete(ask()).cost is None


def test_an_endpoint_without_schemas_is_asked_without_from_then_on() -> None:
    no = refused(400, "Invalid parameter: 'response_format' of type 'json_schema' is not supported")
    endpoint = MockEndpoint(no, openai_reply("{}"), openai_reply("{}"))
    client = endpoint.client()
    client.complete(ask(schema=SCHEMA))
    client.complete(ask(schema=SCHEMA))
    assert ["response_format" in body for body in endpoint.bodies] == [True, False, False]
    assert endpoint.waits == []


def test_the_limit_is_called_what_the_endpoint_calls_it() -> None:
    no = refused(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
    endpoint = MockEndpoint(no, openai_reply("x"), openai_reply("x"))
    client = endpoint.client(LOCAL, {})
    client.complete(ask())
    client.complete(ask())
    names = [{"max_tokens", "max_completion_tokens"} & set(body) for body in endpoint.bodies]
    assert names == [{"max_tokens"}, {"max_completion_tokens"}, {"max_completion_tokens"}]


def test_several_dislikes_are_met_one_after_another() -> None:
    endpoint = MockEndpoint(
        refused(400, "Unsupported value: 'temperature' does not support 0.2 with this model."),
        refused(422, "stream_options: extra fields not permitted"),
        refused(400, "json_schema response format is unknown"),
        openai_reply("x"),
    )
    endpoint.client().complete(ask(schema=SCHEMA, temperature=0.2))
    assert set(endpoint.bodies[-1]) == {"model", "messages", "stream", "max_completion_tokens"}


def test_a_dislike_nothing_can_be_done_about_ends_the_call() -> None:
    words = "'max_tokens' is too large: 256"
    endpoint = MockEndpoint(refused(400, words), refused(400, "'max_completion_tokens' is too large: 256"))
    with pytest.raises(ModelError, match="too large: 256") as caught:
        endpoint.client(LOCAL, {}).complete(ask())
    assert "--reply-tokens" in caught.value.hint
    assert endpoint.left == 0


def test_a_schema_with_open_objects_is_sent_as_it_is() -> None:
    schema = {
        "type": "object",
        "properties": {"sizes": {"type": "object", "additionalProperties": {"type": "integer"}}},
    }
    endpoint = MockEndpoint(openai_reply("{}"))
    endpoint.client().complete(ask(schema=schema))
    sent = endpoint.bodies[0]["response_format"]["json_schema"]
    assert (sent["strict"], sent["schema"]) == (False, schema)


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/json"])
def test_an_address_that_is_no_streaming_api_is_named_as_such(kind: str) -> None:
    page = httpx2.Response(200, content=b"<html></html>", headers={"content-type": kind})
    with pytest.raises(ModelRefusedCall, match="does not stream") as caught:
        MockEndpoint(page).client(OPENAI).complete(ask())
    assert "--base-url" in caught.value.hint


def test_a_text_in_parts_is_put_together() -> None:
    parts = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "fi"},
        {"type": "text", "text": "ne"},
    ]
    completion = MockEndpoint(events(chunk(parts), chunk(None, "stop"), DONE)).client().complete(ask())
    assert completion.text == "fine"


@pytest.mark.parametrize(
    "junk", [b"data: 3\n\n", b"data: {}\n\n", b'data: {"choices": [{}]}\n\n', b": ping\n\n"]
)
def test_odd_chunks_are_passed_over(junk: bytes) -> None:
    answer = events(junk, chunk("fine"), junk, chunk(None, "stop"), junk, DONE)
    assert MockEndpoint(answer).client().complete(ask()).text == "fine"

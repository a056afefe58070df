"""Tools in the formats of the SDKs: offered, called in pieces, answered, forbidden, refused."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from egg.core.conversation import (
    Completion,
    Finish,
    Message,
    Request,
    Speaker,
    Tool,
    ToolCall,
    Usage,
    prompt_texts,
)
from tests.llm.endpoints import (
    ANTHROPIC,
    DONE,
    LOCAL,
    OPENAI_USAGE,
    MockEndpoint,
    anthropic_reply,
    ask,
    chunk,
    event,
    events,
    message_end,
    message_start,
    openai_reply,
    refused,
    text_delta,
)

TOOLS = (Tool("compile", "Compiles.", {"type": "object", "properties": {"kernel": {"type": "string"}}}),)
CALL = ToolCall("call-7", "compile", '{"kernel": "x = 1"}')
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


def answered(first: Request, completion: Completion, *results: str) -> Request:
    turn = Message(Speaker.MODEL, completion.text, calls=completion.calls, reasoning=completion.reasoning)
    answers = (
        Message(Speaker.TOOL, text, result_of=call.id)
        for call, text in zip(completion.calls, results, strict=True)
    )
    return ask(tools=TOOLS, messages=(*first.messages, turn, *answers), schema=SCHEMA, may_call=False)


def openai_calls(*pieces: dict[str, Any]) -> httpx2.Response:
    sent = [chunk(tool_calls=[piece]) for piece in pieces]
    return events(chunk("Trying."), *sent, chunk(None, "tool_calls"), chunk(usage=OPENAI_USAGE), DONE)


def test_chat_completions_carry_calls_and_results():
    endpoint = MockEndpoint(
        openai_calls(
            {
                "index": 0,
                "id": "call-7",
                "type": "function",
                "function": {"name": "compile", "arguments": ""},
            },
            {"index": 0, "function": {"arguments": '{"kernel": '}},
            {"index": 1, "id": "call-8", "function": {"name": "compile", "arguments": "{}"}},
            {"index": 0, "function": {"arguments": '"x = 1"}'}},
        ),
        openai_reply('{"a": "b"}'),
    )
    client, first = endpoint.client(), ask(tools=TOOLS, schema=SCHEMA)
    completion = client.complete(first)
    assert completion.calls == (CALL, ToolCall("call-8", "compile", "{}"))
    assert (completion.text, completion.usage.output_tokens) == ("Trying.", 50)
    second = client.complete(answered(first, completion, "it spills", "empty"))
    assert second.calls == ()
    sent, again = endpoint.bodies
    assert sent["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "compile",
                "description": "Compiles.",
                "parameters": dict(TOOLS[0].parameters),
            },
        }
    ]
    assert sent["tool_choice"] == "auto"
    assert "response_format" not in sent
    assert again["tool_choice"] == "none"
    assert again["response_format"]["type"] == "json_schema"
    turn, result, _ = again["messages"][2:]
    assert turn["tool_calls"][0]["function"] == {"name": "compile", "arguments": CALL.arguments}
    assert result == {"role": "tool", "tool_call_id": "call-7", "content": "it spills"}


def test_calls_without_ids_and_places_get_them():
    whole = {"function": {"name": "compile", "arguments": "{}"}}
    endpoint = MockEndpoint(openai_calls(whole))
    assert endpoint.client(LOCAL).complete(ask(tools=TOOLS)).calls == (ToolCall("call_0", "compile", "{}"),)


def test_an_endpoint_without_tools_is_asked_without_them_from_then_on():
    endpoint = MockEndpoint(
        refused(400, "tools param requires --jinja flag"), openai_reply("x"), openai_reply("y")
    )
    client = endpoint.client(LOCAL)
    assert client.complete(ask(tools=TOOLS, schema=SCHEMA)).text == "x"
    client.complete(ask(tools=TOOLS))
    assert ["tools" in body for body in endpoint.bodies] == [True, False, False]
    assert "response_format" in endpoint.bodies[1]


def test_a_complaint_in_the_middle_of_a_conversation_is_an_error():
    endpoint = MockEndpoint(refused(400, "tool results are too long"))
    first = ask(tools=TOOLS)
    done = Completion("", Finish.STOP, Usage(), "m", None, 0.0, (CALL,))
    with pytest.raises(Exception, match="too long"):
        endpoint.client(LOCAL).complete(answered(first, done, "long"))


def block(index: int, **content: Any) -> bytes:
    return event("content_block_start", index=index, content_block=content)


def delta(index: int, kind: str, **content: Any) -> bytes:
    return event("content_block_delta", index=index, delta={"type": kind, **content})


def stop(index: int) -> bytes:
    return event("content_block_stop", index=index)


def test_messages_carry_reasoning_calls_and_results():
    endpoint = MockEndpoint(
        events(
            message_start(),
            block(0, type="thinking", thinking="", signature=""),
            delta(0, "thinking_delta", thinking="Does it "),
            delta(0, "thinking_delta", thinking="spill?"),
            delta(0, "signature_delta", signature="sig"),
            stop(0),
            block(1, type="redacted_thinking", data="xyz"),
            stop(1),
            block(2, type="text", text=""),
            text_delta("Trying."),
            stop(2),
            block(3, type="tool_use", id="call-7", name="compile", input={}),
            delta(3, "input_json_delta", partial_json='{"kernel": '),
            delta(3, "input_json_delta", partial_json='"x = 1"}'),
            stop(3),
            block(4, type="tool_use", id="call-8", name="compile", input={}),
            stop(4),
            *message_end("tool_use"),
        ),
        anthropic_reply('{"a": "b"}'),
    )
    client, first = endpoint.client(ANTHROPIC), ask(tools=TOOLS, schema=SCHEMA)
    completion = client.complete(first)
    assert completion.calls == (CALL, ToolCall("call-8", "compile", ""))
    assert completion.text == "Trying."
    thought = {"type": "thinking", "thinking": "Does it spill?", "signature": "sig"}
    hidden = {"type": "redacted_thinking", "data": "xyz"}
    assert completion.reasoning == (thought, hidden)
    client.complete(answered(first, completion, "it spills", "empty"))
    sent, again = endpoint.bodies
    assert sent["tools"] == [
        {"name": "compile", "description": "Compiles.", "input_schema": dict(TOOLS[0].parameters)}
    ]
    assert (sent["tool_choice"], again["tool_choice"]) == ({"type": "auto"}, {"type": "none"})
    assert ("output_config" in sent, "output_config" in again) == (False, True)
    asked, turn, results = again["messages"]
    assert (asked["role"], turn["role"], results["role"]) == ("user", "assistant", "user")
    assert turn["content"] == [
        thought,
        hidden,
        {"type": "text", "text": "Trying."},
        {"type": "tool_use", "id": "call-7", "name": "compile", "input": {"kernel": "x = 1"}},
        {"type": "tool_use", "id": "call-8", "name": "compile", "input": {}},
    ]
    one, two = results["content"]
    assert (one["tool_use_id"], one["content"], "cache_control" in one) == ("call-7", "it spills", False)
    assert (two["tool_use_id"], two["cache_control"]) == ("call-8", {"type": "ephemeral"})


def test_the_caps_count_calls_and_tools():
    long = ToolCall("1", "compile", json.dumps({"kernel": "x" * 5000}))
    first = ask(tools=TOOLS)
    with_call = answered(first, Completion("", Finish.STOP, Usage(), "m", None, 0.0, (long,)), "ok")
    assert sum(map(len, prompt_texts(with_call))) > 5000 + sum(len(m.text) for m in with_call.messages)

"""Anthropic's Messages API."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

import anthropic
import httpx2
from anthropic.types import RawMessageStreamEvent

from egg.core.conversation import Finish, Message, Request, Speaker, Tool, Usage
from egg.llm.schemas import closed, has_open_objects
from egg.llm.streaming import CallPiece, Dialect, Piece, expect_events

FINISH = {
    "max_tokens": Finish.LENGTH,
    "model_context_window_exceeded": Finish.LENGTH,
    "refusal": Finish.REFUSAL,
}
"""Every other reason (``end_turn``, ``stop_sequence``) is an ordinary stop."""

SCHEMA_WORDS = ("output_config", "output_format", "schema", "structured output")
"""What a complaint about structured output speaks of."""


class AnthropicWire:
    """The format of messages, streamed as server-sent events.

    The system prompt holds what every call of a run repeats (rules, example, program), so it is marked
    for the prompt cache; a second mark stands behind the base, which all roles of a step share, and a third
    behind the last result of a tool. A request's temperature is not sent: the API takes none any more.
    """

    errors = (anthropic.APIError, httpx2.HTTPError, json.JSONDecodeError, UnicodeDecodeError)

    def __init__(self, model: str, base_url: str, key: str, http_client: httpx2.Client) -> None:
        self._model = model
        self._sdk = anthropic.Anthropic(
            api_key=key, base_url=base_url, max_retries=0, http_client=http_client
        )

    def stream(self, request: Request, dialect: Dialect) -> Generator[Piece, None, None]:
        usage, blocks = Usage(), _Blocks()
        with self._sdk.messages.create(**self._body(request, dialect)) as events:
            expect_events(events.response.headers)
            for event in events:
                piece = _piece(event, usage)
                usage = piece.usage or usage
                yield replace(piece, **blocks.of(event))

    def adapted(self, dialect: Dialect, request: Request, words: str) -> Dialect | None:
        if dialect.tools and request.tools and not request.called and "tool" in words:
            return replace(dialect, tools=False)
        if dialect.effort and request.effort is not None and ("effort" in words or "thinking" in words):
            return replace(dialect, effort=False)
        if dialect.schema and request.schema is not None and any(name in words for name in SCHEMA_WORDS):
            return replace(dialect, schema=False)
        return None

    def _body(self, request: Request, dialect: Dialect) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": request.max_output_tokens,
            "messages": _turns([m for m in request.messages if m.speaker is not Speaker.SYSTEM]),
            "stream": True,
        }
        system = "\n\n".join(m.text for m in request.messages if m.speaker is Speaker.SYSTEM)
        if system:
            body["system"] = [{"type": "text", "text": system, "cache_control": _MARK}]
        if dialect.tools and request.tools:
            body["tools"] = [_described(tool) for tool in request.tools]
            body["tool_choice"] = {"type": "auto" if request.may_call else "none"}
        answers = not (dialect.tools and request.calling)
        schema = _strict(request.schema) if dialect.schema and answers else None
        if schema is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        if dialect.effort and request.effort is not None:
            body["thinking"] = {"type": "adaptive"}
            body["output_config"] = {**body.get("output_config", {}), "effort": request.effort}
        return body


def _turns(messages: list[Message]) -> list[dict[str, Any]]:
    """The conversation in turns: the results of all calls of a turn are one message of the user.

    The last result carries a mark for the cache: the next request of the conversation begins with all that
    is up to there.
    """
    turns: list[dict[str, Any]] = []
    for at, message in enumerate(messages):
        if not message.result_of:
            turns.append({"role": message.speaker.value, "content": _content(message)})
            continue
        result: dict[str, Any] = {
            "type": "tool_result",
            "tool_use_id": message.result_of,
            "content": message.text,
        }
        if all(not later.result_of for later in messages[at + 1 :]):
            result["cache_control"] = _MARK
        if at and messages[at - 1].result_of:
            turns[-1]["content"].append(result)
        else:
            turns.append({"role": Speaker.USER.value, "content": [result]})
    return turns


def _described(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}


def _called(message: Message) -> list[dict[str, Any]]:
    """A turn with calls: the reasoning blocks as they came, the text, the calls."""
    text = [{"type": "text", "text": message.text}] if message.text.strip() else []
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": _object(call.arguments)}
        for call in message.calls
    ]
    return [*(dict(block) for block in message.reasoning), *text, *calls]


def _object(arguments: str) -> dict[str, Any]:
    """The arguments of a call; what is no object was answered with that, and goes back empty."""
    try:
        found = json.loads(arguments or "{}")
    except json.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


class _Blocks:
    """The blocks of a reply that are neither text nor usage: calls of tools, and reasoning while it comes."""

    def __init__(self) -> None:
        self._open: dict[int, dict[str, Any]] = {}

    def of(self, event: RawMessageStreamEvent) -> dict[str, Any]:
        """What an event adds to a piece."""
        kind, place = getattr(event, "type", None), getattr(event, "index", 0) or 0
        if kind == "content_block_start":
            return self._begun(place, getattr(event, "content_block", None))
        if kind == "content_block_delta":
            return self._grown(place, getattr(event, "delta", None))
        if kind == "content_block_stop" and place in self._open:
            return {"reasoning": (self._open.pop(place),)}
        return {}

    def _begun(self, place: int, block: Any) -> dict[str, Any]:
        kind = getattr(block, "type", None)
        if kind == "tool_use":
            given = getattr(block, "input", None)
            whole = json.dumps(given) if given else ""
            return {"calls": (CallPiece(place, getattr(block, "id", ""), getattr(block, "name", ""), whole),)}
        if kind == "thinking":
            self._open[place] = {
                "type": kind,
                "thinking": getattr(block, "thinking", "") or "",
                "signature": "",
            }
        if kind == "redacted_thinking":
            self._open[place] = {"type": kind, "data": getattr(block, "data", "")}
        return {}

    def _grown(self, place: int, delta: Any) -> dict[str, Any]:
        kind, block = getattr(delta, "type", None), self._open.get(place)
        if kind == "input_json_delta":
            return {"calls": (CallPiece(place, arguments=getattr(delta, "partial_json", "") or ""),)}
        if block is not None and kind == "thinking_delta":
            block["thinking"] += getattr(delta, "thinking", "") or ""
        if block is not None and kind == "signature_delta":
            block["signature"] += getattr(delta, "signature", "") or ""
        return {}


_MARK = {"type": "ephemeral"}


def _content(message: Message) -> str | list[dict[str, Any]]:
    """The text; in two blocks with a mark for the cache between them where the message has one."""
    if message.calls:
        return _called(message)
    if not 0 < message.cached < len(message.text):
        return message.text
    kept, rest = message.text[: message.cached], message.text[message.cached :]
    return [{"type": "text", "text": kept, "cache_control": _MARK}, {"type": "text", "text": rest}]


def _strict(schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The schema in the part of JSON Schema that the API enforces; ``None`` where it does not fit."""
    if schema is None or has_open_objects(schema):
        return None
    try:
        return anthropic.transform_schema(closed(schema))
    except (ValueError, AssertionError):  # how the SDK says that it does not know a construct
        return None


def _piece(event: RawMessageStreamEvent, usage: Usage) -> Piece:
    """What one event adds; ``usage`` is what earlier events reported.

    Read with care: gateways that speak this protocol leave out what the types promise.
    """
    kind, delta = getattr(event, "type", None), getattr(event, "delta", None)
    if kind == "message_start":
        message = getattr(event, "message", None)
        reported = _updated(usage, getattr(message, "usage", None))
        return Piece(usage=reported, model=getattr(message, "model", None))
    if kind == "content_block_delta" and getattr(delta, "type", None) == "text_delta":
        return Piece(text=getattr(delta, "text", None) or "")
    if kind == "message_delta":
        reason = getattr(delta, "stop_reason", None)
        reported = _updated(usage, getattr(event, "usage", None))
        return Piece(finish=FINISH.get(reason, Finish.STOP) if reason else None, usage=reported)
    return Piece()


def _updated(known: Usage, reported: Any) -> Usage:
    """Counts are cumulative, and each event reports only some of them.

    The API counts cached input apart from ``input_tokens``; our :class:`Usage` counts it in.
    """
    if reported is None:
        return known

    def newest(name: str, before: int) -> int:
        value = getattr(reported, name, None)
        return before if value is None else value

    read = newest("cache_read_input_tokens", known.cache_read_tokens)
    write = newest("cache_creation_input_tokens", known.cache_write_tokens)
    fresh = newest("input_tokens", known.input_tokens - known.cache_read_tokens - known.cache_write_tokens)
    return Usage(
        input_tokens=fresh + read + write,
        output_tokens=newest("output_tokens", known.output_tokens),
        cache_read_tokens=read,
        cache_write_tokens=write,
    )

"""Anthropic's Messages API."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

import anthropic
import httpx2
from anthropic.types import RawMessageStreamEvent

from egg.core.conversation import Finish, Message, Request, Speaker, Usage
from egg.llm.schemas import closed, has_open_objects
from egg.llm.streaming import Dialect, Piece, expect_events

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
    for the prompt cache; a second mark stands behind the base, which all roles of a step share. A
    request's temperature is not sent: the API takes none any more.
    """

    errors = (anthropic.APIError, httpx2.HTTPError, json.JSONDecodeError, UnicodeDecodeError)

    def __init__(self, model: str, base_url: str, key: str, http_client: httpx2.Client) -> None:
        self._model = model
        self._sdk = anthropic.Anthropic(
            api_key=key, base_url=base_url, max_retries=0, http_client=http_client
        )

    def stream(self, request: Request, dialect: Dialect) -> Generator[Piece, None, None]:
        usage = Usage()
        with self._sdk.messages.create(**self._body(request, dialect)) as events:
            expect_events(events.response.headers)
            for event in events:
                piece = _piece(event, usage)
                usage = piece.usage or usage
                yield piece

    def adapted(self, dialect: Dialect, request: Request, words: str) -> Dialect | None:
        if dialect.effort and request.effort is not None and ("effort" in words or "thinking" in words):
            return replace(dialect, effort=False)
        if dialect.schema and request.schema is not None and any(name in words for name in SCHEMA_WORDS):
            return replace(dialect, schema=False)
        return None

    def _body(self, request: Request, dialect: Dialect) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": request.max_output_tokens,
            "messages": [
                {"role": m.speaker.value, "content": _content(m)}
                for m in request.messages
                if m.speaker is not Speaker.SYSTEM
            ],
            "stream": True,
        }
        system = "\n\n".join(m.text for m in request.messages if m.speaker is Speaker.SYSTEM)
        if system:
            body["system"] = [{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}]
        schema = _strict(request.schema) if dialect.schema else None
        if schema is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        if dialect.effort and request.effort is not None:
            body["thinking"] = {"type": "adaptive"}
            body["output_config"] = {**body.get("output_config", {}), "effort": request.effort}
        return body


def _content(message: Message) -> str | list[dict[str, Any]]:
    """The text; in two blocks with a mark for the cache between them where the message has one."""
    if not 0 < message.cached < len(message.text):
        return message.text
    kept, rest = message.text[: message.cached], message.text[message.cached :]
    mark = {"cache_control": {"type": "ephemeral"}}
    return [{"type": "text", "text": kept, **mark}, {"type": "text", "text": rest}]


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

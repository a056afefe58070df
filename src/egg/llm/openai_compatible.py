"""Any endpoint that speaks OpenAI's chat completions: hosted ones, vLLM, SGLang, llama.cpp, Ollama."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

import httpx2
import openai
from openai.types.chat import ChatCompletionChunk

from egg.core.conversation import Finish, Message, Request, Tool, Usage
from egg.llm.schemas import closed, has_open_objects, schema_name
from egg.llm.streaming import CallPiece, Dialect, Piece, expect_events

FINISH = {"stop": Finish.STOP, "length": Finish.LENGTH, "content_filter": Finish.REFUSAL}
"""Whatever else an endpoint calls its end (a tool call, an end-of-sequence token) is an ordinary stop."""


def dialect_for(base_url: str) -> Dialect:
    """OpenAI's own models take the limit under its newer name only; most other servers know the older."""
    names = ("max_completion_tokens", "max_tokens")
    limit, other = names if httpx2.URL(base_url).host == "api.openai.com" else reversed(names)
    return Dialect(limit=limit, other_limit=other)


class OpenAIWire:
    """The format of chat completions, streamed as server-sent events."""

    errors = (openai.APIError, httpx2.HTTPError, json.JSONDecodeError, UnicodeDecodeError)

    def __init__(self, model: str, base_url: str, key: str, http_client: httpx2.Client) -> None:
        self._model = model
        self._sdk = openai.OpenAI(api_key=key, base_url=base_url, max_retries=0, http_client=http_client)

    def stream(self, request: Request, dialect: Dialect) -> Generator[Piece, None, None]:
        with self._sdk.chat.completions.create(**self._body(request, dialect)) as chunks:
            expect_events(chunks.response.headers)
            for chunk in chunks:
                yield _piece(chunk)

    def adapted(self, dialect: Dialect, request: Request, words: str) -> Dialect | None:
        if dialect.tools and request.tools and not request.called and "tool" in words:
            return replace(dialect, tools=False)
        if dialect.schema and request.schema is not None and _any_in(words, "response_format", "schema"):
            return replace(dialect, schema=False)
        if dialect.effort and request.effort is not None and _any_in(words, "effort", "reasoning"):
            return replace(dialect, effort=False)
        if dialect.usage and _any_in(words, "stream_options", "include_usage"):
            return replace(dialect, usage=False)
        if dialect.temperature and request.temperature is not None and "temperature" in words:
            return replace(dialect, temperature=False)
        if dialect.other_limit is not None and dialect.limit in words:
            return replace(dialect, limit=dialect.other_limit, other_limit=None)
        return None

    def _body(self, request: Request, dialect: Dialect) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [_message(m) for m in request.messages],
            "stream": True,
            dialect.limit: request.max_output_tokens,
        }
        if dialect.usage:
            body["stream_options"] = {"include_usage": True}
        if dialect.temperature and request.temperature is not None:
            body["temperature"] = request.temperature
        if dialect.effort and request.effort is not None:
            body["reasoning_effort"] = request.effort
        if dialect.tools and request.tools:
            body["tools"] = [_function(tool) for tool in request.tools]
            body["tool_choice"] = "auto" if request.may_call else "none"
        if dialect.schema and request.schema is not None and not (dialect.tools and request.calling):
            body["response_format"] = _response_format(request)
        return body


def _message(message: Message) -> dict[str, Any]:
    if message.result_of:
        return {"role": "tool", "tool_call_id": message.result_of, "content": message.text}
    plain: dict[str, Any] = {"role": message.speaker.value, "content": message.text}
    if message.calls:
        plain["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in message.calls
        ]
    return plain


def _function(tool: Tool) -> dict[str, Any]:
    described = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": described}


def _response_format(request: Request) -> dict[str, Any]:
    strict = not has_open_objects(request.schema)
    schema = closed(request.schema) if strict else dict(request.schema or {})
    named = {"name": schema_name(request.purpose), "schema": schema, "strict": strict}
    return {"type": "json_schema", "json_schema": named}


def _piece(chunk: ChatCompletionChunk) -> Piece:
    """Read a chunk with care: compatible servers leave out what the types promise."""
    choices = getattr(chunk, "choices", None) or ()
    delta = getattr(choices[0], "delta", None) if choices else None
    ended = getattr(choices[0], "finish_reason", None) if choices else None
    return Piece(
        text=_text(getattr(delta, "content", None)),
        refusal=getattr(delta, "refusal", None) or "",
        finish=FINISH.get(ended, Finish.STOP) if ended else None,
        usage=_usage(getattr(chunk, "usage", None)),
        model=getattr(chunk, "model", None) or None,
        calls=tuple(_call(at, call) for at, call in enumerate(getattr(delta, "tool_calls", None) or ())),
    )


def _call(at: int, call: Any) -> CallPiece:
    """A part of a call. A server that sends each call whole may leave out its place."""
    place, function = getattr(call, "index", None), getattr(call, "function", None)
    return CallPiece(
        at if place is None else place,
        getattr(call, "id", None) or "",
        getattr(function, "name", None) or "",
        getattr(function, "arguments", None) or "",
    )


def _text(content: Any) -> str:
    """Most send a string; some a list of parts, of which those of type ``text`` are the reply."""
    if not isinstance(content, list):
        return content or ""
    parts = (part for part in content if isinstance(part, Mapping) and part.get("type") == "text")
    return "".join(str(part.get("text") or "") for part in parts)


def _usage(reported: Any) -> Usage | None:
    if reported is None:
        return None
    details = getattr(reported, "prompt_tokens_details", None)
    return Usage(
        input_tokens=getattr(reported, "prompt_tokens", None) or 0,
        output_tokens=getattr(reported, "completion_tokens", None) or 0,
        cache_read_tokens=getattr(details, "cached_tokens", None) or 0,
        cache_write_tokens=getattr(details, "cache_write_tokens", None) or 0,
    )


def _any_in(words: str, *names: str) -> bool:
    return any(name in words for name in names)

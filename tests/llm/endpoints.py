"""Endpoints made of scripted HTTP responses: the real SDKs talk to them through a mock transport."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any

import httpx2

from egg.core.conversation import Message, Request, Speaker
from egg.core.settings import ModelChoice
from egg.llm.client import Client
from egg.llm.connect import connect
from egg.llm.retrying import Patience

KEY = "sk-very-secret-0123456789"
OPENAI = ModelChoice("openai", "gpt-4o")
ANTHROPIC = ModelChoice("anthropic", "claude-sonnet-5-5")
LOCAL = ModelChoice("openai", "qwen", base_url="http://localhost:8000/v1")

Answer = httpx2.Response | Exception | Callable[[httpx2.Request], httpx2.Response]


class MockEndpoint(httpx2.MockTransport):
    """Gives its answers in order and keeps what was sent; the waits of the client are kept too."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__(self._answer)
        self._answers = list(answers)
        self.requests: list[httpx2.Request] = []
        self.waits: list[float] = []
        self.reasons: list[str] = []

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(request.content) for request in self.requests]

    @property
    def left(self) -> int:
        return len(self._answers)

    def client(
        self,
        choice: ModelChoice = OPENAI,
        environ: dict[str, str] | None = None,
        patience: Patience = Patience(),  # noqa: B008
    ) -> Client:
        keys = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY} if environ is None else environ
        return connect(
            choice,
            keys,
            on_wait=lambda _, reason: self.reasons.append(reason),
            transport=self,
            patience=patience,
            sleep=self.waits.append,
            random=Random(0),
        )

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer


def ask(text: str = "Fuse these.", **more: Any) -> Request:
    messages = (Message(Speaker.SYSTEM, "You write Triton."), Message(Speaker.USER, text))
    return Request(**{"purpose": "coder.seed", "messages": messages, "max_output_tokens": 256, **more})


def refused(
    status: int, message: str, headers: dict[str, str] | None = None, **error: Any
) -> httpx2.Response:
    return httpx2.Response(status, json={"error": {"message": message, **error}}, headers=headers)


class Bytes(httpx2.SyncByteStream):
    """A body in pieces, which may break off with an error."""

    def __init__(self, pieces: Iterable[bytes | Exception]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece


def events(*pieces: bytes | Exception) -> httpx2.Response:
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Bytes(pieces))


def chunk(text: Any = None, finish: str | None = None, usage: dict | None = None, **delta: Any) -> bytes:
    """One event of a chat completion."""
    body = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "gpt-4o-2024-08-06",
        "choices": [{"index": 0, "delta": {"content": text, **delta}, "finish_reason": finish}],
    }
    if usage is not None:
        body |= {"usage": usage, "choices": []}
    return f"data: {json.dumps(body)}\n\n".encode()


DONE = b"data: [DONE]\n\n"
OPENAI_USAGE = {
    "prompt_tokens": 1000,
    "completion_tokens": 50,
    "total_tokens": 1050,
    "prompt_tokens_details": {"cached_tokens": 400},
}


def openai_reply(*texts: str, finish: str = "stop", usage: dict | None = OPENAI_USAGE) -> httpx2.Response:
    last = [chunk(usage=usage)] if usage is not None else []
    return events(*[chunk(text) for text in texts], chunk(None, finish), *last, DONE)


def event(kind: str, **body: Any) -> bytes:
    """One event of Anthropic's messages."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **body})}\n\n".encode()


def message_start(**usage: int) -> bytes:
    message = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-5-20261001",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 100, "output_tokens": 1, **usage},
    }
    return event("message_start", message=message)


def text_delta(text: str) -> bytes:
    return event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})


def message_end(reason: str, output_tokens: int = 50) -> tuple[bytes, bytes]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return event("message_delta", delta=delta, usage={"output_tokens": output_tokens}), event("message_stop")


def anthropic_reply(*texts: str, reason: str = "end_turn", **usage: int) -> httpx2.Response:
    block = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    return events(
        message_start(**usage),
        block,
        event("ping"),
        *[text_delta(text) for text in texts],
        event("content_block_stop", index=0),
        *message_end(reason),
    )

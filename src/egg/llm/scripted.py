"""A model that replies from a script. For tests and demonstrations: no network, no key, no cost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

from egg.core.conversation import Completion, Finish, Request, ToolCall, Usage, prompt_texts
from egg.core.errors import UsageError
from egg.core.tokens import estimate_tokens
from egg.llm.client import OnText, ignore_text

Reply = str | Completion | ToolCall
Script = Iterable[Reply] | Callable[[Request], Reply]


class ScriptExhausted(UsageError):
    """More was asked than the script has replies for."""


class ScriptedClient:
    """Answers from a list in order, or from a function of the request; keeps what it was asked.

    A reply is text, the call of a tool, or a whole completion.
    """

    def __init__(self, replies: Script, model: str = "scripted") -> None:
        self._answer = replies if callable(replies) else self._next_of(iter(tuple(replies)))
        self._model = model
        self._turn = threading.RLock()
        self._seen: list[Request] = []

    @property
    def requests(self) -> tuple[Request, ...]:
        """Everything asked so far, oldest first."""
        with self._turn:
            return tuple(self._seen)

    def complete(self, request: Request, on_text: OnText = ignore_text) -> Completion:
        with self._turn:
            self._seen.append(request)
            reply = self._answer(request)
        completion = reply if isinstance(reply, Completion) else self._completion(request, reply)
        for line in completion.text.splitlines(keepends=True):
            on_text(line)
        return completion

    def _next_of(self, replies: Iterator[Reply]) -> Callable[[Request], Reply]:
        def answer(request: Request) -> Reply:
            for reply in replies:
                return reply
            raise ScriptExhausted(
                f"the script has {len(self._seen) - 1} replies, and {request.purpose!r} asks for one more",
                "add a reply to the script, or find out why more is asked than expected",
            )

        return answer

    def _completion(self, request: Request, reply: str | ToolCall) -> Completion:
        asked = sum(map(estimate_tokens, prompt_texts(request)))
        calls = (reply,) if isinstance(reply, ToolCall) else ()
        text = "" if isinstance(reply, ToolCall) else reply
        written = text + "".join(call.arguments for call in calls)
        usage = Usage(input_tokens=asked, output_tokens=estimate_tokens(written))
        return Completion(text, Finish.STOP, usage, self._model, cost=None, seconds=0.0, calls=calls)

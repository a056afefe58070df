"""One exchange with a model: what was asked, what came back, what it used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

EDITING = frozenset({"coder.optimize", "coder.repair"})
"""The purposes of questions that edits of a file may answer."""


class Speaker(StrEnum):
    SYSTEM = "system"
    USER = "user"
    MODEL = "assistant"
    TOOL = "tool"


@dataclass(frozen=True)
class Tool:
    """A function that a model may call before it answers."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of its arguments, an object."""


@dataclass(frozen=True)
class ToolCall:
    """A model's call of a tool. ``arguments`` is the JSON text as it came, which may be no JSON at all."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Message:
    speaker: Speaker
    text: str
    cached: int = 0
    """So many characters from the start are the same in other questions of the run: a provider may cache the
    prompt up to there."""
    calls: tuple[ToolCall, ...] = ()
    """Of a model: the tools it called in this turn."""
    result_of: str = ""
    """Of a tool: the id of the call that this is the result of."""
    reasoning: tuple[Mapping[str, Any], ...] = ()
    """Of a model: blocks of reasoning, which its provider wants back unchanged with the results of calls."""


@dataclass(frozen=True)
class Request:
    """What a model is asked. ``purpose`` is for people and logs: ``designer``, ``coder.repair``."""

    purpose: str
    messages: tuple[Message, ...]
    max_output_tokens: int
    schema: Mapping[str, Any] | None = None
    """JSON schema of the reply, where it is to be JSON."""
    temperature: float | None = None
    effort: str | None = None
    """How much the model reasons before it answers; ``None`` leaves that to the endpoint."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """Estimated tokens of the prompt, by part: ``rules``, ``task``, ``base``, ``memory``, ``skills``,
    ``failure``, ``role``. Empty in logs of earlier versions."""
    tools: tuple[Tool, ...] = ()
    """What the model may call; a conversation with calls in it names them to its end."""
    may_call: bool = True
    """Whether another call is allowed; without, the model has to answer."""

    @property
    def calling(self) -> bool:
        """Whether the reply may be calls in the place of an answer."""
        return bool(self.tools) and self.may_call

    @property
    def called(self) -> bool:
        """Whether the conversation holds calls already."""
        return any(message.calls for message in self.messages)


class Finish(StrEnum):
    """Why a reply ended."""

    STOP = "stop"
    LENGTH = "length"
    REFUSAL = "refusal"


@dataclass(frozen=True)
class Usage:
    """Tokens of one or many replies. Cached input tokens are counted in ``input_tokens`` too."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
        )


@dataclass(frozen=True)
class Completion:
    """What came back. ``cost`` is in US dollars, ``None`` where no price is known."""

    text: str
    finish: Finish
    usage: Usage
    model: str
    cost: float | None
    seconds: float
    calls: tuple[ToolCall, ...] = ()
    """Tools to run before the model goes on; then ``text`` is not the answer yet."""
    reasoning: tuple[Mapping[str, Any], ...] = ()
    """To be sent back with the results of the calls; empty without calls."""


def prompt_texts(request: Request) -> tuple[str, ...]:
    """Everything of a request that a model reads: messages, calls with their arguments, tools."""
    called = (call.name + call.arguments for message in request.messages for call in message.calls)
    tools = (f"{tool.name} {tool.description} {dict(tool.parameters)}" for tool in request.tools)
    return (*(message.text for message in request.messages), *called, *tools)

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


@dataclass(frozen=True)
class Message:
    speaker: Speaker
    text: str
    cached: int = 0
    """So many characters from the start are the same in other questions of the run: a provider may cache the
    prompt up to there."""


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

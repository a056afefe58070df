"""The frame of the protocol: what a request is, how it is sent, and how a reply to it is read."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from egg.core.codec import from_json
from egg.evaluator.transport.strict import plain, strictly

Reply = TypeVar("Reply")
Json = Any
"""Structures that the judge makes and a worker hands on: moves of inputs, numbers of launches."""

REQUESTS: dict[str, type[Request[Any]]] = {}


class Request(Generic[Reply]):
    """A request; its parameter is the class of the reply."""

    command: ClassVar[str]
    replies: ClassVar[Any]
    keep_cache = False
    """Whether what PyTorch cached stays: the next turn under the clock must not begin with allocations."""

    def __init_subclass__(cls, command: str) -> None:
        cls.command = command
        cls.replies = typing.get_args(cls.__orig_bases__[0])[0]  # type: ignore[attr-defined]
        REQUESTS[command] = cls

    def message(self) -> dict[str, Json]:
        """As it goes over the wire."""
        return {"command": self.command, "arguments": plain(self)}


def request_from(message: Mapping[str, Json]) -> Request[Any]:
    """What the judge asked; its messages are trusted."""
    return from_json(REQUESTS[message["command"]], message["arguments"])


def reply_to(request: Request[Reply], data: Json) -> Reply:
    """The reply to ``request``, or :class:`Malformed`."""
    return strictly(type(request).replies, data, request.command)


@dataclass(frozen=True)
class Done:
    """Nothing to report."""


@dataclass(frozen=True)
class Complaint:
    """What went wrong in the worker: a reason code, what was seen, and where in the candidate's file."""

    reason: str
    evidence: str
    line: int | None = None
    function: str = ""
    capturing: bool = False
    """Whether a CUDA graph was being recorded."""

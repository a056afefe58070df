"""A client over a wire: what is the same for every endpoint.

A *wire* knows one provider's format: it sends a request and yields the reply piece by piece.
This client does the rest: it gathers the pieces, retries what broke, gives up the features an
endpoint turns out not to have, counts tokens and money.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from egg.core.conversation import Completion, Finish, Request, ToolCall, Usage, prompt_texts
from egg.core.tokens import estimate_tokens
from egg.llm.client import ModelError, ModelRefusedCall, OnText, ignore_text
from egg.llm.failures import Endpoint, complaint, is_bad_request, sort_failure
from egg.llm.retrying import Retrying, Transient

LONGEST_TOKEN = 40
"""Characters. A reply longer than so many for each token it was allowed is an endpoint that does not stop."""

LONGEST_SECONDS = 3600.0
"""One reply, however steadily it trickles."""


@dataclass(frozen=True)
class Dialect:
    """Which optional parts of the protocol an endpoint takes; learned from its complaints."""

    schema: bool = True
    temperature: bool = True
    effort: bool = True
    tools: bool = True
    usage: bool = True
    """The request may ask that usage is reported in the stream."""
    limit: str = "max_tokens"
    """What the limit on the reply is called."""
    other_limit: str | None = None
    """Its other name, until that has been tried."""


@dataclass(frozen=True)
class CallPiece:
    """Part of the call of a tool; the pieces of one call have the same place, and their texts are joined."""

    place: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True)
class Piece:
    """Part of a reply. ``usage`` is what the whole reply used as far as known: the last one counts."""

    text: str = ""
    refusal: str = ""
    finish: Finish | None = None
    usage: Usage | None = None
    model: str | None = None
    calls: tuple[CallPiece, ...] = ()
    reasoning: tuple[Mapping[str, Any], ...] = ()
    """Blocks of reasoning that are complete."""


class Wire(Protocol):
    """One provider's format."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What its stream may raise when the endpoint or the connection fails."""
        ...

    def stream(self, request: Request, dialect: Dialect) -> Generator[Piece, None, None]:
        """Send a request and read the reply."""
        ...

    def adapted(self, dialect: Dialect, request: Request, words: str) -> Dialect | None:
        """The dialect without what the endpoint complained of; ``None`` when that is nothing we can leave."""
        ...


def expect_events(headers: Mapping[str, str]) -> None:
    """Refuse what is no stream of events, rather than find it empty again and again."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in ("text/html", "application/json"):
        raise ModelRefusedCall(
            f"the endpoint does not stream a reply but sends {kind}",
            "check --base-url: it is the address of an API that streams, most of which end in /v1",
        )


@dataclass(eq=False)
class StreamingClient:
    """The :class:`~egg.llm.client.Client` for every endpoint that streams."""

    wire: Wire
    endpoint: Endpoint
    price: Callable[[Usage, str], float | None]
    retrying: Retrying
    dialect: Dialect
    """What the endpoint takes, as far as known."""
    temperature: float | None = None
    clock: Callable[[], float] = time.monotonic
    _learning: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def complete(self, request: Request, on_text: OnText = ignore_text) -> Completion:
        began = self.clock()
        if request.temperature is None:
            request = replace(request, temperature=self.temperature)
        reply, lost = self.retrying(lambda: self._adapting(request, on_text), self.endpoint.display)
        usage = reply.usage_of(request) + lost
        model = reply.model or self.endpoint.model
        return Completion(
            text=reply.text or reply.refusal,
            finish=Finish.REFUSAL if reply.refusal else reply.finish or Finish.STOP,
            usage=usage,
            model=model,
            cost=self.price(usage, model),
            seconds=self.clock() - began,
            calls=reply.calls if request.calling else (),
            reasoning=tuple(reply.reasoning) if request.calling and reply.calls else (),
        )

    def _adapting(self, request: Request, on_text: OnText) -> _Reply:
        """One attempt; a feature the endpoint refuses is left out from then on, which costs no try."""
        while True:
            dialect = self.dialect
            try:
                return self._attempt(request, dialect, on_text)
            except _Disliked as disliked:
                adapted = self.wire.adapted(dialect, request, disliked.words.lower())
                if adapted is None:
                    raise disliked.failure from None
            with self._learning:
                if self.dialect == dialect:
                    self.dialect = adapted

    def _attempt(self, request: Request, dialect: Dialect, on_text: OnText) -> _Reply:
        """Read one stream to its end. What the caller's ``on_text`` raises is the caller's."""
        reply, deadline = _Reply(), self.clock() + LONGEST_SECONDS
        with closing(self.wire.stream(request, dialect)) as pieces:
            while True:
                try:
                    piece = next(pieces, None)
                except self.wire.errors as error:
                    raise self._failure(error, request, reply) from None
                if piece is None:
                    break
                reply.add(piece)
                on_text(piece.text)
                if reply.length > LONGEST_TOKEN * request.max_output_tokens or self.clock() > deadline:
                    reply.finish = Finish.LENGTH
                    break
        if reply.finish is None:
            raise Transient("the stream ended before the reply did", spent=reply.spent(request))
        return reply

    def _failure(self, error: Exception, request: Request, reply: _Reply) -> Exception:
        failure = sort_failure(error, self.endpoint)
        if is_bad_request(error) and not isinstance(failure, Transient):
            return _Disliked(complaint(error), failure)
        if isinstance(failure, Transient):
            failure.spent = reply.spent(request)
        return failure


class _Disliked(Exception):
    """The endpoint answered 400; ``failure`` is what that means if nothing can be left out."""

    def __init__(self, words: str, failure: ModelError | ModelRefusedCall) -> None:
        super().__init__(words)
        self.words = words
        self.failure = failure


class _Reply:
    """A reply while it comes in."""

    def __init__(self) -> None:
        self.text = ""
        self.refusal = ""
        self.finish: Finish | None = None
        self.usage: Usage | None = None
        self.model: str | None = None
        self.reasoning: list[Mapping[str, Any]] = []
        self._calls: dict[int, CallPiece] = {}

    @property
    def length(self) -> int:
        """Characters of text and of arguments."""
        return len(self.text) + sum(len(call.arguments) for call in self._calls.values())

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """In their order; an endpoint that gives them no id gets one."""
        found = (self._calls[place] for place in sorted(self._calls))
        return tuple(ToolCall(c.id or f"call_{c.place}", c.name, c.arguments) for c in found if c.name)

    def add(self, piece: Piece) -> None:
        self.text += piece.text
        self.refusal += piece.refusal
        self.finish = piece.finish or self.finish
        self.usage = piece.usage or self.usage
        self.model = piece.model or self.model
        self.reasoning += piece.reasoning
        for call in piece.calls:
            known = self._calls.get(call.place, CallPiece(call.place))
            self._calls[call.place] = CallPiece(
                call.place, known.id or call.id, known.name or call.name, known.arguments + call.arguments
            )

    def usage_of(self, request: Request) -> Usage:
        """As reported; estimated where the endpoint reports nothing."""
        if self.usage is not None and self.usage.total > 0:
            return self.usage
        return Usage(
            input_tokens=sum(map(estimate_tokens, prompt_texts(request))),
            output_tokens=estimate_tokens(self.text + self.refusal + self._called()),
        )

    def spent(self, request: Request) -> Usage:
        """What a reply that broke off probably cost: nothing before its first piece, an estimate after."""
        if self.model is None and not self.text:
            return Usage()
        usage = self.usage_of(request)
        came = estimate_tokens(self.text + self._called())
        return replace(usage, output_tokens=max(usage.output_tokens, came))

    def _called(self) -> str:
        return "".join(call.name + call.arguments for call in self._calls.values())

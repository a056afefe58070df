"""Asking a model until its answer is usable, or plainly is not: once, and once more with what was wrong.

The second request is the first with the model's own reply and a precise complaint behind it,
so that whatever the provider cached of the first still counts. Where the question has tools, the model may
call them first (:mod:`egg.agents.tooling`); the correction then stands behind that conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from egg.agents.extraction import CutOff, Unreadable, answer_text
from egg.agents.prompting import Prompt, correction
from egg.agents.tooling import Session
from egg.core.conversation import EDITING, Completion, Finish, Message, Request, Speaker
from egg.core.plan import Unusable
from egg.core.tokens import estimate_tokens
from egg.llm.client import Client, OnText, ignore_text

Value = TypeVar("Value")
Reader = Callable[[str, bool], Value]
"""Makes a value of a reply (its text, and whether it was cut short), or raises :class:`Unreadable`."""

REASONING = {"low": 2_000, "medium": 8_000, "high": 24_000, "xhigh": 48_000, "max": 64_000}
"""Tokens that a reply may have beside the answer, by effort: endpoints count reasoning as output."""
LONGEST_REPLY = 64_000
"""Tokens: what a long file may raise the limit of a reply to."""
NOTHING_TO_SHOW = "(nothing but unfinished reasoning)"


@dataclass(frozen=True)
class Asker:
    """A model, how much it may reply, and where its text is shown."""

    client: Client
    reply_tokens: int
    temperature: float | None = None
    on_text: OnText = ignore_text
    efforts: Mapping[str, str] = field(default_factory=dict)
    """How much each role reasons, by its name."""
    reply_per_base: float = 0.0
    """Tokens of a reply for each of the file that it edits, where that is more than ``reply_tokens``."""

    def request(self, purpose: str, prompt: Prompt, schema: dict | None = None, edited: str = "") -> Request:
        """``edited`` is the file that the reply changes, by edits or as a whole."""
        scaled = min(LONGEST_REPLY, int(self.reply_per_base * estimate_tokens(edited)))
        effort = self.efforts.get(purpose.partition(".")[0])
        longest = max(self.reply_tokens, scaled) + (REASONING[effort] if effort is not None else 0)
        return Request(purpose, prompt.messages, longest, schema, self.temperature, effort, prompt.parts)

    def ask(self, request: Request, read: Reader[Value], session: Session | None = None) -> Value | Unusable:
        """The value that ``read`` makes of the reply, after at most one correction."""
        request, completion = self._conversation(request, session)
        value, problem = _read(completion, read)
        if problem and completion.finish is not Finish.REFUSAL:
            completion = self.client.complete(corrective(request, completion, problem), self.on_text)
            value, problem = _read(completion, read)
        return Unusable(problem) if problem or value is None else value

    def _answer(self, request: Request) -> Completion:
        """The reply to a question without tools.

        The log of a run that had tools may hold calls where the client that resumes it has none: those
        completions are skipped.
        """
        completion = self.client.complete(request, self.on_text)
        while completion.calls:
            completion = self.client.complete(request, self.on_text)
        return completion

    def _conversation(self, request: Request, session: Session | None) -> tuple[Request, Completion]:
        """Ask, run what the model calls and ask on, until it answers; with the conversation up to there.

        The last request allows no further call, so that there are at most as many as the session has.
        """
        if session is None or not session.tools:
            return request, self._answer(request)
        request = replace(request, tools=session.tools)
        while True:
            completion = self.client.complete(request, self.on_text)
            if not (request.calling and completion.calls) or completion.finish is Finish.REFUSAL:
                return replace(request, may_call=False), completion
            turn = Message(
                Speaker.MODEL, completion.text, calls=completion.calls, reasoning=completion.reasoning
            )
            results = [
                Message(Speaker.TOOL, session.call(call), result_of=call.id) for call in completion.calls
            ]
            request = replace(
                request, messages=(*request.messages, turn, *results), may_call=session.left > 0
            )


def corrective(request: Request, completion: Completion, problem: str) -> Request:
    """The same question, the reply it got, and what is wrong with that."""
    shown = answer_text(completion.text).strip() or NOTHING_TO_SHOW
    cut = completion.finish is Finish.LENGTH
    complaint = correction(
        problem,
        cut=cut,
        tokens=request.max_output_tokens,
        json=request.schema is not None,
        edits=request.purpose in EDITING,
    )
    added = (Message(Speaker.MODEL, shown), Message(Speaker.USER, complaint))
    return replace(request, messages=request.messages + added)


def _read(completion: Completion, read: Reader[Value]) -> tuple[Value | None, str]:
    """The value, or why there is none."""
    if completion.finish is Finish.REFUSAL:
        reply = " ".join(completion.text.split())[:200]
        return None, f"the model refused to answer{': ' + reply if reply else ''}"
    cut = completion.finish is Finish.LENGTH
    if cut and not answer_text(completion.text).strip():
        used = completion.usage.output_tokens
        return (
            None,
            f"its {used} tokens went into reasoning and no answer came (--reply-tokens gives more)",
        )
    try:
        return read(completion.text, cut), ""
    except CutOff as error:
        return None, str(error)
    except Unreadable as error:
        return None, f"the reply was cut off for length: {error}" if cut else str(error)

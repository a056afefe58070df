"""Model clients as a run needs them: recorded, held to its caps, or answered from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from egg.core.conversation import Completion, Finish, Request, Usage, prompt_texts
from egg.core.settings import Caps, ModelChoice
from egg.core.tokens import estimate_tokens
from egg.engine.journal import Journal, OverBudget
from egg.engine.state import Ledger
from egg.engine.waiting import WaitingForReply
from egg.llm.client import Client, OnText, ignore_text
from egg.llm.prices import worst_cost

LEAST_REPLY_SHARE = 0.25
"""A reply may be cut to this share of its usual length to stay within a cap; less is not worth asking for."""


class JournaledClient:
    """Every call goes through the run's journal: a recorded one is read back, a live one is recorded."""

    def __init__(self, client: Client, journal: Journal) -> None:
        self._client = client
        self._journal = journal

    def complete(self, request: Request, on_text: OnText = ignore_text) -> Completion:
        return self._journal.exchange(request, lambda: self._client.complete(request, on_text))


class CappedClient:
    """Refuses calls that could pass a cap on tokens or cost, and shortens replies to stay within it."""

    def __init__(
        self, client: Client, caps: Caps, ledger: Callable[[], Ledger], choice: ModelChoice, address: str
    ) -> None:
        self._client = client
        self._caps = caps
        self._ledger = ledger
        self._choice = choice
        self._address = address

    def complete(self, request: Request, on_text: OnText = ignore_text) -> Completion:
        longest = self._longest_reply(request)
        if longest < request.max_output_tokens * LEAST_REPLY_SHARE:
            raise OverBudget(f"asking {request.purpose} could pass {self._cap()}")
        allowed = min(longest, request.max_output_tokens)
        return self._client.complete(replace(request, max_output_tokens=allowed), on_text)

    def _longest_reply(self, request: Request) -> int:
        """How many tokens the reply may have at most; the prompt's own are estimated on the high side."""
        prompt = sum(map(estimate_tokens, prompt_texts(request)))
        longest = request.max_output_tokens
        if self._caps.tokens is not None:
            longest = min(longest, self._caps.tokens - self._ledger().usage.total - prompt)
        if self._caps.cost is not None:
            longest = min(longest, self._affordable(prompt, request.max_output_tokens))
        return longest

    def _affordable(self, prompt: int, wished: int) -> int:
        """Tokens the money left would buy after the prompt is paid for, up to those ``wished`` for."""
        assert self._caps.cost is not None
        left = self._caps.cost - self._ledger().cost
        asked = self._worst(prompt, 0)
        reply = self._worst(prompt, wished) - asked
        return wished if reply <= 0 else int(wished * max(0.0, left - asked) / reply)

    def _worst(self, prompt: int, reply: int) -> float:
        cost = worst_cost(prompt, reply, self._choice.name, self._choice.provider, self._address)
        assert cost is not None, "a run with a cap on cost begins only with a model that has a price"
        return cost

    def _cap(self) -> str:
        named = [
            f"--max-tokens {self._caps.tokens}" if self._caps.tokens is not None else "",
            f"--max-cost {self._caps.cost:g}" if self._caps.cost is not None else "",
        ]
        return " or ".join(name for name in named if name)


class RoutedClient:
    """A model for each role: a question goes to the one of its purpose (``coder.repair``: the coder's)."""

    def __init__(self, default: Client, by_role: Mapping[str, Client]) -> None:
        self._default = default
        self._by_role = by_role

    def complete(self, request: Request, on_text: OnText = ignore_text) -> Completion:
        role = request.purpose.partition(".")[0]
        return self._by_role.get(role, self._default).complete(request, on_text)


class OutsideClient:
    """The caller answers: first the replies that were brought, then the run waits."""

    def __init__(self, replies: Iterable[str] = ()) -> None:
        self.unused = list(replies)

    def complete(self, request: Request, on_text: OnText = ignore_text) -> Completion:
        if not self.unused:
            raise WaitingForReply(request)
        return Completion(self.unused.pop(0), Finish.STOP, Usage(), "somebody outside", 0.0, 0.0)


class WatchedClient:
    """Tells a watcher what is asked and what comes."""

    def __init__(self, client: Client, on_asked: Callable[[str], None], on_text: OnText) -> None:
        self._client = client
        self._on_asked = on_asked
        self._on_text = on_text

    def complete(self, request: Request, on_text: OnText = ignore_text) -> Completion:
        def both(piece: str) -> None:
            self._on_text(piece)
            on_text(piece)

        self._on_asked(request.purpose)
        return self._client.complete(request, both)

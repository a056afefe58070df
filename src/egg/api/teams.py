"""From a run's settings to its team."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from egg.agents.team import LlmTeam
from egg.api.clients import CappedClient, JournaledClient, OutsideClient, WatchedClient
from egg.api.watching import Watcher
from egg.core.errors import UsageError
from egg.core.events import RunStarted
from egg.core.roles import Team
from egg.core.settings import Caps, ModelChoice, Settings
from egg.engine.journal import Journal
from egg.llm.addresses import display_url
from egg.llm.client import Client
from egg.llm.connect import address_of, connect
from egg.llm.prices import price_known

TEAMS = ("llm", "step")
"""``llm``: a model answers. ``step``: the run stops at every question, and somebody outside answers."""


def llm_team(settings: Settings, client: Client) -> Team:
    budget = settings.budget
    temperature = settings.model.temperature if settings.model is not None else None
    return LlmTeam(
        client,
        prompt_tokens=budget.prompt_tokens,
        reply_tokens=budget.reply_tokens,
        temperature=temperature,
    )


def check_model(choice: ModelChoice, caps: Caps, environ: Mapping[str, str]) -> ModelChoice:
    """The choice as a run may record it; anything that could not work later is said now."""
    address = address_of(choice, environ)
    if display_url(address) != address:
        raise UsageError(
            "the base URL holds a user name, a password or a query, which a run's log does not keep",
            "give the plain address; the key goes into an environment variable named with --key-variable",
        )
    if caps.cost is not None and not price_known(choice.name, choice.provider, address):
        raise UsageError(
            f"the price of {choice.name} at {address} is not known, so --max-cost cannot be kept",
            "use --max-tokens or --max-minutes instead",
        )
    connect(choice, environ)
    return replace(choice, base_url=address)


def team_maker(
    settings: Settings,
    environ: Mapping[str, str],
    watcher: Watcher,
    outside: OutsideClient | None = None,
) -> Callable[[RunStarted, Journal], Team]:
    """How the team of these settings is made, once there is a journal for its calls to go through."""
    if settings.team not in TEAMS:
        raise UsageError(f"unknown team: {settings.team!r}", f"one of {', '.join(TEAMS)}")

    def make(started: RunStarted, journal: Journal) -> Team:
        client: Client = outside or OutsideClient()
        if settings.team == "llm" and outside is None:
            client = _live(settings, environ, watcher, journal)
        return llm_team(settings, JournaledClient(client, journal))

    return make


def _live(settings: Settings, environ: Mapping[str, str], watcher: Watcher, journal: Journal) -> Client:
    choice = settings.model
    if choice is None:
        raise UsageError("the llm team needs a model", "name one with --model")
    client = connect(choice, environ, on_wait=watcher.waiting)
    watched = WatchedClient(client, watcher.asked, watcher.text)
    address = address_of(choice, environ)
    return CappedClient(watched, settings.caps, lambda: journal.state.ledger, choice, address)

"""From a run's settings to its team."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NoReturn

from egg.api.apart import ApartTeam
from egg.api.clients import CappedClient, JournaledClient, OutsideClient, RoutedClient, WatchedClient
from egg.api.hybrid import HybridTeam
from egg.api.watching import Watcher
from egg.core.errors import UsageError
from egg.core.events import RunStarted
from egg.core.plan import Diagnosis, Plan
from egg.core.roles import Brief, Coder, Debugger, Designer, Failure, Team, Tuner
from egg.core.settings import Caps, ModelChoice, Settings
from egg.engine.journal import Journal
from egg.engine.waiting import WaitingForTeam
from egg.llm.addresses import display_url
from egg.llm.client import Client
from egg.llm.connect import address_of, connect
from egg.llm.prices import price_known

if TYPE_CHECKING:
    from egg.agents.tooling import Instruments
    from egg.api.tools import Workbench

TEAMS = ("expert", "llm", "hybrid", "step")
"""``expert``: the built-in team. ``llm``: a model answers. ``hybrid``: a model, from the built-in team's
best kernel on. ``step``: the run stops at every question for an answer from outside."""
EXPERT = "expert"
ANSWERED_OUTSIDE = frozenset({"step", "hybrid"})
"""Teams whose questions ``egg reply`` answers; a hybrid run also goes on with its model."""
ASKING = frozenset({"llm", "hybrid"})
"""Teams that ask a model."""


class Absent:
    """Every role of the built-in team, where a run is only looked at: it answers nothing."""

    def design(self, brief: Brief) -> NoReturn:
        raise WaitingForTeam

    def tune(self, brief: Brief) -> NoReturn:
        raise WaitingForTeam

    def seed(self, brief: Brief) -> NoReturn:
        raise WaitingForTeam

    def optimize(self, brief: Brief, plan: Plan) -> NoReturn:
        raise WaitingForTeam

    def repair(self, brief: Brief, failure: Failure, diagnosis: Diagnosis) -> NoReturn:
        raise WaitingForTeam

    def translate(self, brief: Brief) -> NoReturn:
        raise WaitingForTeam

    def diagnose(self, brief: Brief, failure: Failure) -> NoReturn:
        raise WaitingForTeam


@dataclass(frozen=True)
class AbsentTeam:
    """Nobody in any role."""

    designer: Designer = field(default_factory=Absent)
    tuner: Tuner = field(default_factory=Absent)
    coder: Coder = field(default_factory=Absent)
    debugger: Debugger = field(default_factory=Absent)


def llm_team(settings: Settings, client: Client, instruments: Instruments | None = None) -> Team:
    """Prompts and replies need packages that the built-in team does without: they are loaded here."""
    from egg.agents.team import LlmTeam

    budget = settings.budget
    temperature = settings.model.temperature if settings.model is not None else None
    return LlmTeam(
        client,
        prompt_tokens=budget.prompt_tokens,
        reply_tokens=budget.reply_tokens,
        reply_per_base=budget.reply_per_base,
        temperature=temperature,
        efforts=settings.efforts,
        instruments=instruments,
        tool_calls=budget.tool_calls,
        without=settings.without,
    )


def check_model(choice: ModelChoice, caps: Caps, environ: Mapping[str, str]) -> ModelChoice:
    """The choice as a run may record it; a choice that cannot work is refused now."""
    address = address_of(choice, environ)
    if display_url(address) != address:
        raise UsageError(
            "the base URL holds a user name, a password or a query, which a run's log does not keep",
            "give the plain address; the key goes into an environment variable named with --key-variable",
        )
    if caps.cost is not None:
        check_priced(choice, environ)
    connect(choice, environ)
    return replace(choice, base_url=address)


def check_priced(choice: ModelChoice, environ: Mapping[str, str]) -> None:
    """A limit on cost needs a price."""
    address = address_of(choice, environ)
    if not price_known(choice.name, choice.provider, address):
        raise UsageError(
            f"the price of {choice.name} at {address} is not known, so no limit on cost can be kept",
            "use --max-tokens or --max-minutes instead",
        )


def team_maker(
    settings: Settings,
    environ: Mapping[str, str],
    watcher: Watcher,
    outside: OutsideClient | None = None,
    bench: Workbench | None = None,
) -> Callable[[RunStarted, Journal], Team]:
    """How the team of these settings is made, once there is a journal for its calls to go through.

    A model may use the tools of ``bench``; who answers from outside has the same as commands.
    """
    if settings.team not in TEAMS:
        raise UsageError(f"unknown team: {settings.team!r}", f"one of {', '.join(TEAMS)}")

    def make(started: RunStarted, journal: Journal) -> Team:
        if settings.team == "expert":
            return _expert()
        client: Client = outside or OutsideClient()
        instruments = None
        if settings.team in ASKING and outside is None:
            client = _live(settings, environ, watcher, journal)
            instruments = bench.for_run(started, journal) if bench is not None else None
        team = llm_team(settings, JournaledClient(client, journal), instruments)
        return HybridTeam(_expert(), team) if begins_with_expert(settings) else team

    return make


def absent_team(started: RunStarted, journal: Journal) -> Team:
    """For looking at a run and for replays: no question is answered, and the open one is named."""
    settings = started.settings
    if settings.team == "expert":
        return AbsentTeam()
    team = llm_team(settings, JournaledClient(OutsideClient(), journal))
    return HybridTeam(AbsentTeam(), team) if begins_with_expert(settings) else team


def begins_with_expert(settings: Settings) -> bool:
    """Whether the built-in team writes the first kernel of another one, as a seed: hybrid runs did so before
    the built-in team had a run of its own, and do where a kernel file was given."""
    return settings.team == "hybrid" and settings.first != EXPERT


def _expert() -> Team:
    """It runs the task's code to capture it, so it works where that is confined."""
    return ApartTeam()


def _live(settings: Settings, environ: Mapping[str, str], watcher: Watcher, journal: Journal) -> Client:
    choice = settings.model
    if choice is None:
        raise UsageError(f"the {settings.team} team needs a model", "name one with --model")

    def live(choice: ModelChoice) -> Client:
        client = connect(choice, environ, on_wait=watcher.waiting)
        watched = WatchedClient(client, watcher.asked, watcher.text)
        address = address_of(choice, environ)
        return CappedClient(watched, settings.caps, lambda: journal.state.ledger, choice, address)

    if not settings.models:
        return live(choice)
    return RoutedClient(live(choice), {role: live(own) for role, own in settings.models.items()})

"""From a choice of model to a client that talks to it.

The environment is handed in, never read from the process here, and a key goes from it into the
client and nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from egg.core.conversation import Usage
from egg.core.errors import UsageError
from egg.core.settings import ModelChoice
from egg.llm import prices
from egg.llm.addresses import display_url, is_local
from egg.llm.client import Client, ModelRefusedCall
from egg.llm.failures import Endpoint
from egg.llm.retrying import PATIENCE, OnWait, Patience, Retrying, ignore_wait
from egg.llm.streaming import Dialect, StreamingClient, Wire

if TYPE_CHECKING:
    import httpx2

PROVIDERS = {
    "openai": ("https://api.openai.com/v1", "OPENAI"),
    "anthropic": ("https://api.anthropic.com", "ANTHROPIC"),
}
"""The address of each, and how the names of its environment variables begin."""

NO_KEY = "no-key"
"""What a local server is sent that asks for none: the SDKs insist on something."""

CONNECT_SECONDS, SILENCE_SECONDS = 20.0, 600.0
"""A model may think, or a slow machine read a long prompt, for minutes before the first word."""


def parse_model(text: str, base_url: str | None = None) -> ModelChoice:
    """Read what ``--model`` says: ``claude-...`` and ``anthropic/NAME`` are Anthropic's, all else OpenAI's.

    ``openai/NAME`` is ``NAME``. With a base URL even ``claude-...`` is asked for in OpenAI's
    protocol, as gateways serve it, unless ``anthropic/`` says otherwise.
    """
    name = text.strip()
    provider = "anthropic" if name.startswith("claude-") and base_url is None else "openai"
    prefix, slash, rest = name.partition("/")
    if slash and prefix in PROVIDERS:
        provider, name = prefix, rest
    if not name:
        raise UsageError(f"{text!r} names no model", "give one, as in --model claude-sonnet-5-5")
    return ModelChoice(provider=provider, name=name, base_url=base_url)


def connect(
    choice: ModelChoice,
    environ: Mapping[str, str],
    *,
    on_wait: OnWait = ignore_wait,
    transport: httpx2.BaseTransport | None = None,
    patience: Patience = PATIENCE,
    sleep: Callable[[float], None] = time.sleep,
    random: Random | None = None,
) -> Client:
    """A client for ``choice``, which may be shared between threads."""
    address = address_of(choice, environ)
    key, variable = _key(choice, environ, address)
    endpoint = Endpoint(display_url(address), choice.name, variable, secrets(choice, environ))
    wire, dialect = _wire(choice, address, key, transport)
    return StreamingClient(
        wire,
        endpoint,
        price=partial(_price, choice, address),
        retrying=Retrying(patience, random or Random(), sleep, on_wait),
        dialect=dialect,
        temperature=choice.temperature,
    )


def address_of(choice: ModelChoice, environ: Mapping[str, str]) -> str:
    """Where requests go: the choice's base URL, the environment's, or the provider's own."""
    if choice.provider not in PROVIDERS:
        known = " or ".join(PROVIDERS)
        raise UsageError(f"{choice.provider!r} is no provider", f"it is {known}; others by --base-url")
    default, prefix = PROVIDERS[choice.provider]
    address = choice.base_url or environ.get(f"{prefix}_BASE_URL") or default
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(
            "the base URL is not a web address with a host",
            "write it out, as in --base-url http://localhost:8000/v1",
        )
    return address


def secrets(choice: ModelChoice, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Every value that must not reach a log or a screen: keys, passwords in the address. Longest first."""
    default_key = f"{PROVIDERS[choice.provider][1]}_API_KEY" if choice.provider in PROVIDERS else ""
    found = [environ.get(name, "") for name in (choice.key_variable or "", default_key)]
    found += [value.strip() for value in found]
    parts = urlsplit(address_of(choice, environ))
    found += [parts.password or "", unquote(parts.password or "")]
    found += [value for _, value in parse_qsl(parts.query)]
    return tuple(sorted({value for value in found if value}, key=lambda value: (-len(value), value)))


def _key(choice: ModelChoice, environ: Mapping[str, str], address: str) -> tuple[str, str]:
    """The key, and the name of the variable it came from."""
    variable = choice.key_variable or f"{PROVIDERS[choice.provider][1]}_API_KEY"
    key = environ.get(variable, "").strip()
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise ModelRefusedCall(
            f"what {variable} holds cannot be a key: it has spaces, line ends or letters outside ASCII",
            f"set {variable} to the key alone",
        )
    if key:
        return key, variable
    if is_local(address) and choice.key_variable is None:
        return NO_KEY, variable
    raise ModelRefusedCall(
        f"there is no key for {display_url(address)}: the environment variable {variable} is not set",
        f"export {variable}=..., or give the address of a local server with --base-url",
    )


def _wire(
    choice: ModelChoice, address: str, key: str, transport: httpx2.BaseTransport | None
) -> tuple[Wire, Dialect]:
    """The SDKs are imported here, so that only the one in use costs its import."""
    import httpx2

    http_client = httpx2.Client(
        transport=transport,
        timeout=httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS),
        follow_redirects=True,
        # A proxy for the outside world does not lead to a server of one's own.
        mounts=dict.fromkeys(("all://", "http://", "https://")) if is_local(address) else None,
    )
    if choice.provider == "anthropic":
        from egg.llm.anthropic_messages import AnthropicWire

        return AnthropicWire(choice.name, address, key, http_client), Dialect()
    from egg.llm.openai_compatible import OpenAIWire, dialect_for

    return OpenAIWire(choice.name, address, key, http_client), dialect_for(address)


def _price(choice: ModelChoice, address: str, usage: Usage, answered_by: str) -> float | None:
    """By the name the endpoint gives itself, which may be more exact, else by the name that was asked for."""
    for model in (answered_by, choice.name):
        found = prices.cost(usage, model, choice.provider, address)
        if found is not None:
            return found
    return None

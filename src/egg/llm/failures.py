"""Sorting what an endpoint does wrong: try again, give up, or tell the user what to set right.

Both SDKs raise the same family of errors (a status with a body and headers, a broken connection,
a timeout), so one reading serves both. Whatever text of the endpoint reaches a message goes
through :meth:`Endpoint.scrub` first: some servers repeat the key they did not like.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from egg.llm.client import ModelError, ModelRefusedCall
from egg.llm.retrying import RESUME, Transient

TRANSIENT_STATUS = frozenset({408, 409, 425, 429, 529})
"""Besides all of 500 to 599."""

STATUS_OF_TYPE = {
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "billing_error": 402,
    "invalid_request_error": 400,
    "request_too_large": 413,
}
"""What an error inside a stream would have been as a status. Types not listed here are transient."""

LONGEST_DETAIL = 500


@dataclass(frozen=True)
class Endpoint:
    """Whom we talk to, for messages. The key is here only to be kept out of them."""

    display: str
    """The address, without userinfo or query."""
    model: str
    key_variable: str
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def scrub(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def sort_failure(error: Exception, endpoint: Endpoint) -> Transient | ModelRefusedCall | ModelError:
    """What to raise for an error of an SDK or of the connection below it."""
    status = _status(error)
    detail = endpoint.scrub(complaint(error))
    if status is None:
        return Transient(detail or type(error).__name__)
    if status in (401, 402, 403, 404) or _out_of_credit(error):
        return _refused(status, detail, endpoint)
    if _worth_another_try(status, _headers(error)):
        return Transient(f"status {status}: {detail}", retry_after(_headers(error)))
    return ModelError(
        f"{endpoint.display} does not take the request (status {status}): {detail}",
        f"does {endpoint.model} take prompts and replies of this size? A run keeps its settings: "
        "begin another one with a smaller --budget or --reply-tokens",
    )


def complaint(error: Exception) -> str:
    """The endpoint's own words, shortened; the error's where it sent none."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, Mapping) else body
    text = inner.get("message") or inner.get("detail") if isinstance(inner, Mapping) else inner
    words = " ".join(f"{text or error}{_cause(error)}".split())
    return words if len(words) <= LONGEST_DETAIL else words[: LONGEST_DETAIL - 3] + "..."


def _cause(error: Exception) -> str:
    """What lies below a broken connection: a name that is not known, a refused port, a certificate."""
    cause = error.__cause__
    return f" ({cause})" if cause is not None and getattr(error, "body", None) is None and str(cause) else ""


def is_bad_request(error: Exception) -> bool:
    """The endpoint understood us and dislikes something in the request itself."""
    return _status(error) in (400, 422)


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds the endpoint asks us to wait: milliseconds, seconds or a date; ``None`` for nonsense."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None or not text:
        return seconds
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (date - (now or datetime.now(UTC))).total_seconds())


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _status(error: Exception) -> int | None:
    """The status, also of an error that came inside a stream which had begun with 200."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and status >= 300:
        return status
    body: Any = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    if not isinstance(inner, Mapping):
        return None
    code = inner.get("code")
    return code if isinstance(code, int) and code >= 300 else STATUS_OF_TYPE.get(str(inner.get("type")))


def _headers(error: Exception) -> Mapping[str, str]:
    response = getattr(error, "response", None)
    return response.headers if response is not None else {}


def _worth_another_try(status: int, headers: Mapping[str, str]) -> bool:
    verdict = headers.get("x-should-retry")
    if verdict in ("true", "false"):
        return verdict == "true"
    return status >= 500 or status in TRANSIENT_STATUS


def _out_of_credit(error: Exception) -> bool:
    """A 429 that waiting does not resolve."""
    return "insufficient_quota" in (getattr(error, "code", None), getattr(error, "type", None))


def _refused(status: int, detail: str, endpoint: Endpoint) -> ModelRefusedCall:
    where, variable = endpoint.display, endpoint.key_variable
    if status == 401:
        # Its words are left out: they are about the key, and may hold a part of it.
        return ModelRefusedCall(
            f"{where} did not accept the key (status 401)",
            f"put a valid key for this endpoint into the environment variable {variable}",
        )
    if status == 403:
        return ModelRefusedCall(
            f"{where} does not let this key use {endpoint.model} (status 403): {detail}",
            f"the key in {variable} needs permission for this model; or choose another with --model",
        )
    if status == 404:
        return ModelRefusedCall(
            f"{where} knows no model {endpoint.model!r} (status 404): {detail}",
            "check --model and --base-url (most OpenAI-compatible addresses end in /v1); "
            f"the key was taken from {variable}",
        )
    return ModelRefusedCall(
        f"{where} wants to be paid first (status {status}): {detail}",
        f"the account of the key in {variable} is out of credit; then {RESUME}",
    )

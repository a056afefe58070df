"""Endpoints that fail: what is tried again, after how long, and what the user is told in the end."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.core.conversation import Usage
from egg.core.settings import ModelChoice
from egg.llm.client import ModelError, ModelRefusedCall
from egg.llm.failures import retry_after
from egg.llm.retrying import Patience, Retrying, Transient
from tests.llm.endpoints import (
    ANTHROPIC,
    DONE,
    KEY,
    LOCAL,
    OPENAI,
    MockEndpoint,
    anthropic_reply,
    ask,
    chunk,
    event,
    events,
    message_start,
    openai_reply,
    refused,
    text_delta,
)

BOTH = pytest.mark.parametrize(("choice", "reply"), [(OPENAI, openai_reply), (ANTHROPIC, anthropic_reply)])


@BOTH
@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "10", "retry-after": "9"}, 0.01),
    ],
)
def test_a_rate_limit_is_waited_for_as_long_as_the_endpoint_asks(choice, reply, headers, wait) -> None:
    endpoint = MockEndpoint(refused(429, "slow down", headers), reply("x"))
    assert endpoint.client(choice).complete(ask()).text == "x"
    assert endpoint.waits == [wait]
    assert endpoint.reasons == ["status 429: slow down"]


@BOTH
@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_passing_trouble_is_tried_again(choice, reply, status) -> None:
    endpoint = MockEndpoint(refused(status, "trouble"), refused(status, "trouble"), reply("x"))
    assert endpoint.client(choice).complete(ask()).text == "x"
    assert len(endpoint.waits) == 2


@BOTH
@pytest.mark.parametrize(
    "error", [httpx2.ReadTimeout("slow"), httpx2.ConnectTimeout("slow"), httpx2.ConnectError("refused")]
)
def test_timeouts_and_lost_connections_are_tried_again(choice, reply, error) -> None:
    endpoint = MockEndpoint(error, reply("x"))
    assert endpoint.client(choice).complete(ask()).text == "x"
    assert len(endpoint.waits) == 1
    assert endpoint.reasons[0]


@pytest.mark.parametrize(
    "cut",
    [
        events(chunk("half a ker"), httpx2.ReadError("reset")),
        events(chunk("half a ker"), httpx2.RemoteProtocolError("peer closed connection")),
        events(chunk("half a ker"), httpx2.ReadTimeout("silence")),
        events(chunk("half a ker")),
        events(chunk("half a ker"), DONE),
        events(chunk("half a ker"), b"data: {not json\n\n"),
        events(chunk("half a ker"), b'data: {"error": {"message": "overloaded"}}\n\n'),
    ],
    ids=["reset", "closed", "timeout", "ends", "done-too-early", "garbage", "error-event"],
)
def test_a_stream_cut_in_the_middle_is_asked_again_as_a_whole(cut) -> None:
    pieces: list[str] = []
    endpoint = MockEndpoint(cut, openai_reply("a whole kernel"))
    completion = endpoint.client().complete(ask(), pieces.append)
    assert completion.text == "a whole kernel"
    assert "".join(pieces) == "half a kera whole kernel"
    assert len(endpoint.waits) == 1
    assert completion.usage.output_tokens > 50, "what was billed for the broken reply is counted too"


@pytest.mark.parametrize(
    "cut",
    [
        events(message_start(), text_delta("half"), httpx2.ReadError("reset")),
        events(message_start(), text_delta("half")),
        events(message_start(), event("error", error={"type": "overloaded_error", "message": "Overloaded"})),
    ],
    ids=["reset", "ends", "error-event"],
)
def test_anthropics_streams_are_asked_again_too(cut) -> None:
    endpoint = MockEndpoint(cut, anthropic_reply("whole"))
    completion = endpoint.client(ANTHROPIC).complete(ask())
    assert completion.text == "whole"
    assert completion.usage.input_tokens == 200
    assert len(endpoint.waits) == 1


def test_an_error_event_that_is_our_fault_is_not_retried() -> None:
    error = event("error", error={"type": "permission_error", "message": "not yours"})
    endpoint = MockEndpoint(events(message_start(), error))
    with pytest.raises(ModelRefusedCall, match="not yours"):
        endpoint.client(ANTHROPIC).complete(ask())
    assert endpoint.waits == []


def test_patience_ends_and_the_error_says_how_to_go_on() -> None:
    endpoint = MockEndpoint(*[refused(503, "maintenance") for _ in range(4)])
    with pytest.raises(ModelError, match=r"api\.openai\.com/v1 failed 4 times.*maintenance") as caught:
        endpoint.client(patience=Patience(tries=4)).complete(ask())
    assert "egg resume" in caught.value.hint
    assert caught.value.exit_code == 3
    assert len(endpoint.waits) == 3


def test_an_endpoint_that_asks_for_an_hour_is_not_waited_for() -> None:
    endpoint = MockEndpoint(refused(429, "quota of the day", {"retry-after": "3600"}))
    with pytest.raises(ModelError, match="3600 s"):
        endpoint.client().complete(ask())
    assert endpoint.waits == []


def test_an_empty_account_is_not_waited_for() -> None:
    endpoint = MockEndpoint(refused(429, "You exceeded your current quota", code="insufficient_quota"))
    with pytest.raises(ModelRefusedCall, match="paid") as caught:
        endpoint.client().complete(ask())
    assert "OPENAI_API_KEY" in caught.value.hint


@BOTH
@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_call_that_is_refused_names_the_variable_and_not_the_key(choice, reply, status) -> None:
    endpoint = MockEndpoint(refused(status, f"Incorrect API key provided: {KEY}. See docs."))
    with pytest.raises(ModelRefusedCall) as caught:
        endpoint.client(choice).complete(ask())
    assert KEY not in str(caught.value)
    assert f"{choice.provider.upper()}_API_KEY" in caught.value.hint
    assert caught.value.exit_code == 2
    assert endpoint.waits == []


@BOTH
def test_no_failure_shows_the_key(choice, reply) -> None:
    endpoint = MockEndpoint(refused(500, f"bad {KEY}"), refused(400, f"worse {KEY}"))
    with pytest.raises(ModelError) as caught:
        endpoint.client(choice).complete(ask())
    assert KEY not in str(caught.value) + "".join(endpoint.reasons)


def test_a_password_in_the_address_stays_out_of_messages() -> None:
    choice = ModelChoice("openai", "m", base_url="https://me:hunter%402@llm.example.com/v1?token=abc123")
    endpoint = MockEndpoint(refused(404, "no route for me:hunter@2, token abc123"))
    with pytest.raises(ModelRefusedCall, match=r"https://llm\.example\.com/v1") as caught:
        endpoint.client(choice).complete(ask())
    assert not any(secret in str(caught.value) for secret in ("hunter", "abc123"))


def test_an_interrupt_passes_straight_through() -> None:
    def interrupt(request: httpx2.Request) -> httpx2.Response:
        raise KeyboardInterrupt

    endpoint = MockEndpoint(interrupt)
    with pytest.raises(KeyboardInterrupt):
        endpoint.client().complete(ask())
    assert endpoint.waits == []


def test_an_error_of_the_caller_is_the_callers() -> None:
    def broken_view(piece: str) -> None:
        raise ValueError("the view broke")

    endpoint = MockEndpoint(openai_reply("x"))
    with pytest.raises(ValueError, match="the view broke"):
        endpoint.client(LOCAL, {}).complete(ask(), broken_view)
    assert endpoint.waits == []


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "x", "retry-after": "2"}, 2.0),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Sun, 01 Mar 2026 11:00:00 GMT"}, 0.0),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=datetime(2026, 3, 1, 12, tzinfo=UTC)) == seconds


@given(st.text(max_size=40))
def test_retry_after_survives_any_text(text: str) -> None:
    seconds = retry_after({"retry-after": text, "retry-after-ms": text})
    assert seconds is None or seconds >= 0


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_waits_grow_and_stay_bounded(seed: int, tries: int) -> None:
    patience, waits = Patience(tries=tries, total_wait=1e9), []
    retrying = Retrying(patience, Random(seed), sleep=waits.append)

    def fail() -> None:
        raise Transient("no", spent=Usage(1, 1))

    with pytest.raises(ModelError):
        retrying(fail, "endpoint")
    assert len(waits) == tries - 1
    for number, wait in enumerate(waits):
        ceiling = min(patience.longest_wait, patience.first_wait * 2**number)
        assert ceiling / 2 <= wait <= ceiling


def test_what_broken_attempts_used_is_handed_back() -> None:
    attempts = iter([Transient("a", spent=Usage(5, 2)), Transient("b", spent=Usage(5, 3)), None])

    def attempt() -> str:
        failure = next(attempts)
        if failure:
            raise failure
        return "fine"

    assert Retrying(sleep=lambda _: None)(attempt, "endpoint") == ("fine", Usage(10, 5))

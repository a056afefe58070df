"""Secrets do not come through, in any form they travel in; ordinary code does, unchanged."""

from __future__ import annotations

import base64
import json
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.core.codec import to_json
from egg.engine.redaction import Redactor
from tests.engine.logs import sample_events

ROOT = Path(__file__).parents[2]
KEY = "q7Zk/Wp2+Lm9?xT4=v"
KEY_CHARACTERS = string.ascii_letters + string.digits + "-_./+=~!@$%^&*()?[]{}<>|;"

secrets = st.text(KEY_CHARACTERS, min_size=8, max_size=40).filter(lambda s: any(c.isalpha() for c in s))
carriers = st.sampled_from(
    [
        lambda s: s,
        lambda s: quote(s, safe=""),
        quote_plus,
        json.dumps,
        lambda s: base64.b64encode(s.encode()).decode(),
        lambda s: base64.urlsafe_b64encode(f"user:{s}".encode()).decode(),
        lambda s: base64.b64encode(f"u:{s}:tail".encode()).decode(),
        lambda s: json.dumps({"Authorization": f"Bearer {s}"}),
        lambda s: f"https://me:{quote(s, safe='')}@host/path",
    ]
)


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


@st.composite
def laden(draw: st.DrawFn) -> tuple[str, Any]:
    """A secret, and a JSON value that carries it in places, as text and in keys."""
    secret = draw(secrets)
    text = st.text(max_size=12)
    carrying = st.builds(lambda before, carry, after: before + carry(secret) + after, text, carriers, text)
    leaves = st.one_of(st.none(), st.booleans(), st.integers(-999, 999), text, carrying)
    words = st.one_of(text, carrying)
    value = draw(
        st.recursive(
            leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3)
        )
    )
    return secret, [value, draw(carrying)]


@settings(deadline=None)
@given(laden())
def test_a_secret_is_nowhere_in_what_is_written(case: tuple[str, Any]) -> None:
    secret, value = case
    written = json.dumps(Redactor([secret]).clean(value))
    assert secret not in written
    assert quote(secret, safe="") not in written
    assert base64.b64encode(secret.encode()).decode().rstrip("=")[:-1] not in written


@settings(deadline=None)
@given(st.text(min_size=8, max_size=30), st.text(max_size=20), st.text(max_size=20))
def test_any_text_may_be_a_secret(secret: str, before: str, after: str) -> None:
    secret = secret.strip()
    cleaned = Redactor([secret]).clean({before + secret: [secret + after, before + secret + secret + after]})
    if len(secret) >= 8 and secret != "[secret]":
        assert not any(secret in text for text in strings(cleaned))


@settings(deadline=None)
@given(laden())
def test_cleaning_twice_changes_nothing_more(case: tuple[str, Any]) -> None:
    redactor = Redactor([case[0]])
    once = redactor.clean(case[1])
    assert redactor.clean(once) == once


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8), inner),
    )
)
def test_values_without_secrets_come_back_equal(value: Any) -> None:
    assert Redactor([KEY]).clean(value) == value


def test_the_rest_of_a_text_stays() -> None:
    redactor = Redactor([KEY])
    assert redactor.clean(f"error 401: key {KEY} is not valid") == "error 401: key [secret] is not valid"
    assert redactor.clean({"a": [1, 2.5, None, True, (KEY,)]}) == {"a": [1, 2.5, None, True, ["[secret]"]]}


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        quote(KEY, safe=""),
        quote(KEY),
        quote(KEY, safe="")
        .replace("%2F", "%2f")
        .replace("%2B", "%2b")
        .replace("%3F", "%3f")
        .replace("%3D", "%3d"),
        base64.b64encode(KEY.encode()).decode(),
        base64.urlsafe_b64encode(KEY.encode()).decode(),
        base64.b64encode(f"u:{KEY}".encode()).decode(),
        base64.b64encode(f"me:{KEY}".encode()).decode(),
        base64.b64encode(f"you:{KEY}@there".encode()).decode(),
    ],
)
def test_every_form_of_a_known_secret(form: str) -> None:
    cleaned = Redactor([KEY]).clean(f"before {form} after")
    assert "[secret]" in cleaned
    assert cleaned.startswith("before ")
    assert cleaned.endswith(" after")
    assert form not in cleaned


def test_escaped_forms() -> None:
    secret = 'päss"wörd\\n1'
    redactor = Redactor([secret])
    for dumped in (json.dumps({"k": secret}), json.dumps({"k": secret}, ensure_ascii=False)):
        assert redactor.clean(dumped) == '{"k": "[secret]"}'


def test_keys_stay_distinct() -> None:
    cleaned = Redactor([KEY, "another-secret"]).clean({KEY: 1, "another-secret": 2, "plain": 3})
    assert cleaned == {"[secret]": 1, "[secret] 2": 2, "plain": 3}


def test_the_longer_of_two_secrets_goes_whole() -> None:
    assert Redactor(["abcdefgh1", "abcdefgh1-and-more"]).clean("x abcdefgh1-and-more y") == "x [secret] y"


def test_a_secret_that_the_mark_would_complete() -> None:
    assert "t]abcdefg" not in Redactor(["longsecret", "t]abcdefg"]).clean("longsecretabcdefg")


def test_short_and_empty_ones_are_left_alone() -> None:
    text = "EMPTY none dummy 1234567"
    assert Redactor(["EMPTY", "", " ", "none", "dummy", "1234567"]).clean(text) == text


def test_a_key_read_with_its_newline_is_found_without() -> None:
    assert Redactor(["abcdefgh-12345\n"]).clean("key=abcdefgh-12345;") == "key=[secret];"


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("key sk-proj-Ab12cdEf34ghIj56klMn end", "key [secret] end"),
        ("sk-ant-api03-AbCdEf_1234567890-xyz", "[secret]"),
        ('"sk-0123456789abcdef0123"', '"[secret]"'),
        ("Authorization: Bearer abc.def-ghi_jkl", "Authorization: Bearer [secret]"),
        ("{'authorization': 'Basic dXNlcjpwYXNz'}", "{'authorization': 'Basic [secret]'}"),
        ('{\\"Authorization\\": \\"Bearer abcdefgh\\"}', '{\\"Authorization\\": \\"Bearer [secret]\\"}'),
        ("bearer abcdefghijklmnopqrstuvwx", "bearer [secret]"),
        ("x-api-key: 0a1b2c3d4e5f", "x-api-key: [secret]"),
        ("git clone https://user:pass@host/x.git", "git clone https://[secret]@host/x.git"),
        ("postgresql+psycopg://me:p:w!@db:5432/x", "postgresql+psycopg://[secret]@db:5432/x"),
        ("redis://:hunter2@127.0.0.1/0", "redis://[secret]@127.0.0.1/0"),
        ("hf_AbCdEfGhIjKlMnOpQrStUvWx12", "[secret]"),
        ("ghp_0123456789abcdefghij0123456789abcdef", "[secret]"),
        ("AKIAIOSFODNN7EXAMPLE", "[secret]"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVP", "[secret]"),
    ],
)
def test_shapes_of_keys_nobody_told_us(text: str, cleaned: str) -> None:
    assert Redactor().clean(text) == cleaned


@pytest.mark.parametrize(
    "text",
    [
        "task-0123456789abcdef-0123456789",
        "from sk-learn import nothing",
        "risk-adjusted-0123456789-returns",
        "http://127.0.0.1:8080/v1",
        "see https://host:443/a@b and mailto:me@example.org",
        "git+https://git@github.com/org/repo",
        "the bearer of this ring",
        'f"Bearer {key}"',
        '{"Authorization": f"Bearer {token_of_the_service}"}',
        "@triton.jit\ndef k(x_ptr, n: tl.constexpr): ...",
        "x[:, None] @ w[None, :]  # (M, K) @ (K, N)",
        "a = b if c else d:e@f",
        "0123456789abcdef" * 8,
    ],
)
def test_ordinary_text_is_not_damaged(text: str) -> None:
    assert Redactor([KEY]).clean(text) == text


def test_no_kernel_of_the_repository_is_damaged() -> None:
    rooms = ("examples", "tests/corpus", "src/egg/evaluator")
    files = [path for room in rooms for path in (ROOT / room).rglob("*.py")]
    assert len(files) > 100
    redactor = Redactor([KEY])
    assert [path.name for path in files if redactor.clean(text := path.read_text()) != text] == []


def test_no_event_of_a_run_is_damaged() -> None:
    redactor = Redactor([KEY])
    for event in sample_events():
        assert redactor.clean(to_json(event)) == to_json(event)

"""Secrets never enter a log: they are taken out of every string before it is written.

Two nets. The first knows the secrets of this process (the model's key, say) and looks for
each of them as it is and in the forms it takes when it travels: escaped in JSON, quoted in
a URL, or inside base64 at any of the three alignments, because ``user:secret`` is encoded
as a whole. The second knows no secret but the shapes that keys have, for those that came
in with a prompt, an error message or a reply.

Only text is looked at: a number that happens to contain the digits of a secret stays, and
base64 that was broken into lines is not put together again.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

MARK = "[secret]"
SHORTEST = 8
"""Shorter secrets are left alone: they would be found in ordinary words."""

_SHAPES = re.compile(
    r"""
      (?P<scheme> \b[a-z][a-z0-9+.-]{0,20}:// ) [^\s/:@"'<>\[\]{}]* : [^\s/@"'<>{}]+ (?=@[\w\[])
    | (?P<header> \bauthorization\b [\\"']* \s* [:=,] \s* [\\"']* (?:bearer|basic|token) [ ]+ )
        (?![{$<%]) [^\s"'\\,;]{8,}
    | (?P<apikey> \bx-api-key\b [\\"']* \s* [:=,] \s* [\\"']* ) (?![{$<%]) [^\s"'\\,;]{8,}
    | (?P<bearer> \bbearer [ ]+ ) [\w.~+/=-]{16,}
    | (?<![\w-]) (?:
        (?-i: sk-(?=[\w-]*\d)[\w-]{16,} )
      | (?-i: (?:xai|nvapi|glpat|xox[abeoprs])-[\w-]{20,} )
      | (?-i: (?:gh[oprsu]|github_pat|hf|gsk|r8|pplx)_(?=\w*\d)\w{20,} )
      | (?-i: AKIA[0-9A-Z]{16} | AIza[\w-]{35} )
      | (?-i: eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]+ )
      )
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)


class Redactor:
    """Takes secrets out of JSON values. ``secrets`` are those known to this process."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {s.strip() for s in secrets} - {MARK}
        forms = {form for secret in known if len(secret) >= SHORTEST for form in _forms(secret)}
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._known = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def clean(self, value: Any) -> Any:
        """The same value with every secret, in keys too, replaced by ``[secret]``."""
        if isinstance(value, str):
            return self._clean_text(value)
        if isinstance(value, dict):
            return dict(self._clean_items(value))
        if isinstance(value, list | tuple):
            return [self.clean(item) for item in value]
        return value

    def _clean_items(self, value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Keys stay distinct: a second one that becomes ``[secret]`` is counted."""
        taken: set[str] = set()
        for key, item in value.items():
            name = plain = self._clean_text(key)
            count = 1
            while name in taken:
                count += 1
                name = f"{plain} {count}"
            taken.add(name)
            yield name, self.clean(item)

    def _clean_text(self, text: str) -> str:
        """Known secrets first, then shapes. Where the mark itself completes a secret, all of it goes."""
        known = self._known
        if known is not None:
            text = known.sub(MARK, text)
        text = _SHAPES.sub(_keep_the_label, text)
        return MARK if known is not None and known.search(text) else text


def _keep_the_label(match: re.Match[str]) -> str:
    """``Bearer`` and ``https://`` stay, so that a reader sees what was there."""
    return (match[match.lastgroup] if match.lastgroup else "") + MARK


def _forms(secret: str) -> Iterator[str]:
    """What a secret looks like in text that carries it."""
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    data = secret.encode("utf-8", "surrogatepass")
    for quoted in (quote(data, safe=""), quote(data), quote_plus(data)):
        yield quoted
        yield re.sub("%..", lambda escape: escape[0].lower(), quoted)
    for shift in range(3):
        yield from _inside_base64(data, shift)


def _inside_base64(data: bytes, shift: int) -> Iterator[str]:
    """The characters that depend on ``data`` alone when ``shift`` (mod 3) other bytes stand before it."""
    first = -(-shift * 8 // 6)
    last = (shift + len(data)) * 8 // 6
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(bytes(shift) + data).decode()[first:last]

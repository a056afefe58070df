"""Results that say which machine judged: a code over the result, made with a key that both sides have.

Where :data:`KEY_FILE` names a file, or :data:`KEY` holds the key itself, every result that is written is
signed (HMAC-SHA256 over its canonical JSON), and only results with a right signature are taken back.
Without a key nothing is signed and nothing is verified. The key is of the machine and the person, never of a
task or a candidate: their processes do not get these variables.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from egg.core.errors import UsageError

KEY, KEY_FILE = "EGG_RESULTS_KEY", "EGG_RESULTS_KEY_FILE"
SIGNATURE = "signature"


def key_from(environ: Mapping[str, str]) -> bytes | None:
    """The key for results; ``None`` where none is set."""
    if path := environ.get(KEY_FILE):
        try:
            key = Path(path).read_bytes().strip()
        except OSError as reason:
            raise UsageError(f"cannot read {KEY_FILE} {path}: {reason.strerror}", "check the path") from None
    else:
        key = environ.get(KEY, "").encode()
    if path and not key:
        raise UsageError(f"{KEY_FILE} {path} is empty", "write a long random text into it")
    return key or None


def signed(row: Mapping[str, Any], key: bytes | None) -> dict[str, Any]:
    """A row of results with its signature; as it is where there is no key."""
    return dict(row) if key is None else {**row, SIGNATURE: _code(row, key)}


def fault_of(row: Mapping[str, Any], key: bytes | None) -> str:
    """Why a row cannot be believed to be from a machine with this key; empty where it can."""
    if key is None:
        return ""
    given = row.get(SIGNATURE)
    if not isinstance(given, str):
        return "it is not signed"
    plain = {name: value for name, value in row.items() if name != SIGNATURE}
    return "" if hmac.compare_digest(given, _code(plain, key)) else "its signature is not right"


def _code(row: Mapping[str, Any], key: bytes) -> str:
    canonical = json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hmac.new(key, canonical.encode(), hashlib.sha256).hexdigest()

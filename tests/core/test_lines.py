"""Files of JSON lines that others wrote, read in one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from egg.core.errors import UsageError
from egg.core.lines import text_lines


def test_lines_end_at_a_newline_only_and_keep_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes('\ufeff{"code": "a\u2028b\x85c"}\n\n{"last": 1}'.encode())
    assert text_lines(path, "hint") == [(1, '{"code": "a\u2028b\x85c"}'), (3, '{"last": 1}')]


@pytest.mark.parametrize(
    ("content", "message"), [(None, "no such file"), (b"\xff\xfe\xff", "cannot read .*rows.jsonl")]
)
def test_what_cannot_be_read_is_named_with_the_hint(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "rows.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as refused:
        text_lines(path, "look there")
    assert refused.value.hint == "look there"

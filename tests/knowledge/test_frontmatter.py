"""``SKILL.md`` taken apart: what is read, and that every fault has its line."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from egg.knowledge.frontmatter import BYTES, Document, read

GOOD = """---
name: split-k
description: Sums of one tile are shared by several programs.
# a remark
metadata:
  stage: mapping

  gate: limiter == "small_grid" and rows < 4 * sms
  veto: 'limiter == ''dram'''
license: Apache-2.0
---
# Split-K

## When

Few tiles, long sums.

## How
```python
## no heading: a comment
x = 1
```
### Finer
~~~
## nor this
```
~~~
## Expected ##
Twice.

## Risks
None.
"""


def text(tmp_path: Path, content: str | bytes) -> Document:
    file = tmp_path / "SKILL.md"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read(file)


def faults(tmp_path: Path, content: str | bytes) -> list[tuple[int, str]]:
    return [(problem.line, problem.message) for problem in text(tmp_path, content).problems]


def keys(tmp_path: Path, *lines: str) -> list[tuple[int, str]]:
    return faults(tmp_path, "\n".join(("---", *lines, "---", "## When", "x", "")))


def test_everything_is_read_with_its_line(tmp_path):
    document = text(tmp_path, GOOD)
    assert document.problems == []
    assert {key: (entry.text, entry.line) for key, entry in document.keys.items()} == {
        "name": ("split-k", 2),
        "description": ("Sums of one tile are shared by several programs.", 3),
        "license": ("Apache-2.0", 10),
    }
    assert {key: (entry.text, entry.line) for key, entry in document.metadata.items()} == {
        "stage": ("mapping", 6),
        "gate": ('limiter == "small_grid" and rows < 4 * sms', 8),
        "veto": ("limiter == 'dram'", 9),
    }
    assert document.closed == 11
    assert [(title, entry.line) for title, entry in document.sections.items()] == [
        ("When", 14),
        ("How", 18),
        ("Expected", 28),
        ("Risks", 31),
    ]
    assert document.sections["When"].text == "Few tiles, long sums."
    assert "## no heading" in document.sections["How"].text
    assert "## nor this" in document.sections["How"].text


def test_line_ends_of_other_systems(tmp_path):
    document = text(tmp_path, GOOD.replace("\n", "\r\n"))
    assert document.problems == []
    assert document.keys["name"].text == "split-k"
    assert document.sections["Risks"].text == "None."


@pytest.mark.parametrize(
    ("value", "read_as"),
    [
        ('"a: b # c"', "a: b # c"),
        (r'"say \"x\" \\ y"', 'say "x" \\ y'),
        ("'it''s: so'", "it's: so"),
        ("a:b", "a:b"),
        ("a#b", "a#b"),
        ("1.2-3", "1.2-3"),
        ("not x", "not x"),
        ("-x > 2", "-x > 2"),
        ("größer", "größer"),
    ],
)
def test_values(tmp_path, value, read_as):
    document = text(tmp_path, f"---\nname: {value}\n---\n")
    assert document.problems == []
    assert document.keys["name"].text == read_as


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "no value"),
        ('""', "no value"),
        ("' '", "no value"),
        ("what: it does", "must be quoted"),
        ("what it does:", "must be quoted"),
        ("first # of all", "must be quoted"),
        ("[a, b]", "begins with ["),
        ("{a: b}", "begins with {"),
        ("> folded", "begins with >"),
        ("|", "begins with |"),
        ("*alias", "begins with *"),
        ("&anchor x", "begins with &"),
        ("!tag x", "begins with !"),
        ("- item", "begins with -"),
        ("@x", "begins with @"),
        ("%x", "begins with %"),
        ('"dram" == limiter', "not one quoted text"),
        ("'dram' == limiter", "not one quoted text"),
        ('"open', "not one quoted text"),
        (r'"\n"', "not one quoted text"),
    ],
)
def test_values_that_another_reader_would_see_otherwise(tmp_path, value, says):
    [(line, message)] = keys(tmp_path, "description: fine", f"name: {value}")
    assert line == 3
    assert message.startswith("name: ")
    assert says in message


@pytest.mark.parametrize(
    ("lines", "line", "says"),
    [
        (("name: a", "  continued"), 3, "not of the form"),
        (("name: a", "- item"), 3, "not of the form"),
        (("name: a", "name: b"), 3, "name stands here for the second time, first in line 2"),
        (("metadata:", "  gate: a", "  gate: b"), 4, "gate stands here for the second time, first in line 3"),
        (
            ("metadata:", "  a: x", "name: n", "metadata:"),
            5,
            "metadata stands here for the second time, first in line 2",
        ),
        (("metadata:", "  a: x", "    b: y"), 4, "indented otherwise"),
        (("name: a", "  gate: b"), 3, "stands below nothing"),
        (("metadata: x",), 2, "not a value"),
        (("\tname: a",), 2, "a tab"),
        (("na me: a",), 2, "not of the form"),
        (("name:a",), 2, "not of the form"),
        (("name",), 2, "not of the form"),
        (("na\u200bme: a",), 2, "not of the form"),
        (("name: a\x07",), 2, "cannot be seen"),
    ],
)
def test_keys_that_are_refused(tmp_path, lines, line, says):
    found = keys(tmp_path, *lines)
    assert found, "refused"
    assert found[0][0] == line
    assert says in found[0][1]


@pytest.mark.parametrize(
    ("content", "line", "says"),
    [
        ("", 1, "first line must be ---"),
        ("name: a\n", 1, "first line must be ---"),
        (" ---\nname: a\n---\n", 1, "first line must be ---"),
        ("\ufeff---\nname: a\n---\n", 1, "cannot be seen"),
        ("---\nname: a\n", 1, "never end"),
        (b"---\nname: a\xff\n---\n", 2, "not UTF-8"),
        (b"---\nname: a\x00\n---\n", 2, "cannot be seen"),
        (b"x" * (BYTES + 1), 1, "larger than"),
        ("---\nname: a\n---\nHello\n## When\nx\n", 4, "before the first section"),
        ("---\nname: a\n---\n## When\nx\n## When\ny\n", 6, "second time, first in line 4"),
        ("---\nname: a\n---\n## When\n```\n## How\n", 5, "never ends"),
        ("---\nname: a\n---\n## When\nx\n## \ny\n", 6, "without a title"),
    ],
)
def test_files_that_are_refused(tmp_path, content, line, says):
    assert (line, True) in [(at, says in message) for at, message in faults(tmp_path, content)]


def test_a_heading_costs_no_more_than_its_length(tmp_path):
    path = tmp_path / "SKILL.md"
    path.write_text("---\nname: a\n---\n## When" + " " * 100_000 + "x ##  \n", encoding="utf-8")
    started = time.process_time()
    assert list(read(path).sections) == ["When" + " " * 100_000 + "x"]
    assert time.process_time() - started < 5


@pytest.mark.timeout(20)
def test_a_file_that_never_ends_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "SKILL.md")
    [problem] = read(tmp_path / "SKILL.md").problems
    assert problem.message == "cannot be read: not a file"


def test_a_file_that_is_not_there(tmp_path):
    [problem] = read(tmp_path / "SKILL.md").problems
    assert str(problem) == f"{tmp_path / 'SKILL.md'}:1: cannot be read: No such file or directory"
    [problem] = read(tmp_path).problems
    assert "cannot be read" in problem.message


def test_every_fault_is_found_at_once(tmp_path):
    found = keys(tmp_path, "name: a: b", "stray", "metadata:", "  gate:", "  gain: [1]")
    assert [line for line, _ in found] == [2, 3, 5, 6]


@settings(max_examples=150, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.one_of(
        st.binary(max_size=200),
        st.text(max_size=200).map(str.encode),
        st.lists(
            st.sampled_from(
                ["---", "name: a", "metadata:", "  gate: x", "## When", "```", "~~~", "x", "", "\t", "#"]
            ),
            max_size=25,
        ).map(lambda lines: "\n".join(lines).encode()),
    )
)
def test_any_bytes_are_read_or_refused_with_lines(tmp_path, content):
    document = text(tmp_path, content)
    lines = content.count(b"\n") + 1
    for problem in document.problems:
        assert 1 <= problem.line <= lines
    for entry in (*document.keys.values(), *document.metadata.values(), *document.sections.values()):
        assert 1 <= entry.line <= lines
    if not content.startswith(b"---"):
        assert document.problems

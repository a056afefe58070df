"""The text of a ``SKILL.md``, taken apart: flat keys between two ``---`` lines, then sections.

The keys are a small part of YAML: one line each, ``key: value``, and one level of ``metadata``. What
YAML would read as anything but the text that stands there (a colon and a space inside, a ``#``, a list,
a value over several lines) is refused unless it is quoted, so that every other reader of the Agent
Skills form sees the same value. Reading never stops at a fault: all of them are found, each with its
line, and what could be read is there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

BYTES = 256 * 1024
"""The most a file may have: it is meant to be read by people and to fit in a prompt."""

_KEY = re.compile(r"(?P<key>[A-Za-z][A-Za-z0-9_-]*) *:(?: +(?P<value>.*))?")
_HEADING = re.compile(r"## +(?P<title>.*)")
_FENCE = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})(?P<rest>.*)")
_QUOTED = {
    '"': re.compile(r'"((?:[^"\\]|\\["\\])*)"'),
    "'": re.compile(r"'((?:[^']|'')*)'"),
}
_YAML_FIRST = "[]{}&*!|>%@`#,"


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong, and where."""

    file: Path
    line: int
    """Counted from 1."""
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


@dataclass(frozen=True)
class Entry:
    """A value and the line it stands in."""

    text: str
    line: int


@dataclass
class Document:
    """What could be read of one file."""

    path: Path
    keys: dict[str, Entry] = field(default_factory=dict)
    metadata: dict[str, Entry] = field(default_factory=dict)
    sections: dict[str, Entry] = field(default_factory=dict)
    """Text below each heading of the second level, in order."""
    closed: int = 1
    """The line that ends the keys: where a missing one could stand."""
    problems: list[Problem] = field(default_factory=list)

    def fault(self, line: int, message: str) -> None:
        self.problems.append(Problem(self.path, line, message))


def content(path: Path) -> bytes:
    """Of a file of a person's size; :class:`OSError` for another, and for what is no plain file, which
    might never end."""
    if path.exists() and not path.is_file():
        raise OSError("not a file")
    with path.open("rb") as file:
        data = file.read(BYTES + 1)
    if len(data) > BYTES:
        raise OSError(f"larger than {BYTES // 1024} KiB")
    return data


def read(path: Path) -> Document:
    """Take a file apart; whatever is wrong with it is among its problems."""
    document = Document(path)
    try:
        data = content(path)
    except OSError as error:
        document.fault(1, f"cannot be read: {error.strerror or error}")
        return document
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        document.fault(data.count(b"\n", 0, error.start) + 1, "not UTF-8")
        return document
    _take_apart(document, text)
    return document


def _take_apart(document: Document, text: str) -> None:
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    for number, line in enumerate(lines, 1):
        odd = re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff]", line)
        if odd:
            document.fault(number, f"a character that cannot be seen: {odd[0]!a}")
    if lines[0].rstrip() != "---":
        document.fault(1, "the first line must be ---, with name and description below it")
        return
    end = next((number for number, line in enumerate(lines[1:], 2) if line.rstrip() == "---"), None)
    if end is None:
        document.fault(1, "the keys that begin here never end: a second --- is missing")
        return
    document.closed = end
    _read_keys(document, lines[1 : end - 1])
    _read_sections(document, lines[end:], end + 1)


def _read_keys(document: Document, lines: list[str]) -> None:
    block, indent, opened = None, "", 0
    for number, line in enumerate(lines, 2):
        if not line.strip() or line.lstrip(" ").startswith("#"):
            continue
        if "\t" in line:
            document.fault(number, "a tab, where only spaces are allowed")
            continue
        own = line[: len(line) - len(line.lstrip(" "))]
        found = _KEY.fullmatch(line.strip())
        if found is None:
            document.fault(number, "not of the form 'key: value' (a value is one line)")
            continue
        key, value = found["key"], (found["value"] or "").strip()
        if own and block is None:
            document.fault(
                number, f"{key} is indented, but stands below nothing: only metadata has keys of its own"
            )
            continue
        if own and indent and own != indent:
            document.fault(number, f"{key} is indented otherwise than the keys above")
            continue
        if own and block is not None:
            indent = own
            _keep(document, block, key, value, number)
        elif key == "metadata" and not value:
            if opened:
                document.fault(number, f"metadata stands here for the second time, first in line {opened}")
            block, indent, opened = document.metadata, "", opened or number
        else:
            if key == "metadata":
                document.fault(number, "metadata has keys of its own, each in a line below, not a value")
                continue
            _keep(document, document.keys, key, value, number)
            block = None


def _keep(document: Document, block: dict[str, Entry], key: str, value: str, line: int) -> None:
    if key in block:
        document.fault(line, f"{key} stands here for the second time, first in line {block[key].line}")
        return
    try:
        block[key] = Entry(_plain(value), line)
    except ValueError as why:
        document.fault(line, f"{key}: {why}")
        block[key] = Entry("", line)  # known to be there, so that it is not called missing as well


def _plain(value: str) -> str:
    """The text that a YAML reader would see; :class:`ValueError` where that is not what stands there."""
    if not value:
        raise ValueError("no value")
    quoted = _QUOTED.get(value[0])
    if quoted is not None:
        found = quoted.fullmatch(value)
        if found is None:
            raise ValueError(
                f"begins with a quote and is not one quoted text; inside it {value[0]} is written "
                + ('\\" and a backslash \\\\' if value[0] == '"' else "''")
            )
        text = re.sub(r"\\(.)", r"\1", found[1]) if value[0] == '"' else found[1].replace("''", "'")
        if not text.strip():
            raise ValueError("no value")
        return text.strip()
    if value[0] in _YAML_FIRST or re.match(r"[-?:](?: |$)", value):
        raise ValueError(f"a value that begins with {value[0]} must be quoted")
    if ": " in value or value.endswith(":"):
        raise ValueError("a value with a colon and a space in it must be quoted")
    if " #" in value:
        raise ValueError("a value with # in it must be quoted")
    return value


def _read_sections(document: Document, lines: list[str], first: int) -> None:
    title, start, held = None, first, []
    fence, opened = "", first
    for number, line in enumerate(lines, first):
        mark = _FENCE.fullmatch(line)
        if mark and not fence and "`" not in mark["rest"]:
            fence, opened = mark["fence"], number
        elif mark and fence and mark["fence"].startswith(fence) and not mark["rest"].strip():
            fence = ""
        heading = None if fence or mark else _HEADING.fullmatch(line)
        if heading:
            _end_section(document, title, start, held)
            title, start, held = heading["title"].rstrip(" ").rstrip("#").rstrip(" "), number, []
            if not title:
                document.fault(number, "a heading without a title")
        elif title is not None:
            held.append(line)
        elif line.strip() and not line.startswith("# "):
            document.fault(number, "text before the first section: only a title (# ...) may stand there")
            title, start, held = "", number, []
    if fence:
        document.fault(opened, "the code that begins here never ends")
    _end_section(document, title, start, held)


def _end_section(document: Document, title: str | None, start: int, held: list[str]) -> None:
    if not title:
        return
    if title in document.sections:
        first = document.sections[title].line
        document.fault(start, f"section {title} stands here for the second time, first in line {first}")
        return
    document.sections[title] = Entry("\n".join(held).strip("\n").rstrip(), start)


def entries(block: Mapping[str, Entry], key: str) -> list[Entry]:
    """The parts of a comma list; empty where the key is missing."""
    entry = block.get(key)
    return [Entry(part.strip(), entry.line) for part in entry.text.split(",")] if entry and entry.text else []

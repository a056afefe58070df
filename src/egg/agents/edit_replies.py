"""Reading a coder's reply: edits of an earlier file, or a whole file.

An edit begins with a line ``# edit: replace NAME`` (``change``, ``add after``, ``delete``) inside a
fenced block; one block may hold several. ``change`` gives a passage of the definition and its new
text between the marks of a merge conflict. A reply is one or the other: a whole file beside edits,
or a Python block without such a line, is refused, because what it means would be a guess.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from egg.agents.editing import BadEdit, applied
from egg.agents.extraction import (
    PYTHON_TAGS,
    CutOff,
    Unreadable,
    answer_text,
    extract_code,
    fenced_blocks,
)
from egg.core.plan import Draft, Edit, EditKind

_HEADER = re.compile(r"^#\s*edit:\s*(?P<verb>.*?)\s*$", re.IGNORECASE | re.MULTILINE)
_VERB = re.compile(
    r"(?P<kind>replace|change|add(?: after)?|delete) +`?(?P<target>[A-Za-z_]\w*(?:\.\w+)?)`?", re.IGNORECASE
)
_PASSAGE = re.compile(
    r"^<{7}[^\n]*\n(?P<old>.*?)^={7}[^\n]*\n(?P<new>.*?)^>{7}[^\n]*$", re.DOTALL | re.MULTILINE
)
FORMS = "replace NAME, change NAME, add after NAME or delete NAME"


def read_draft(reply: str, base: str | None, *, cut: bool = False) -> Draft:
    """The file that a reply makes of ``base``, or holds whole; :class:`Unreadable` says what is wrong."""
    edits = read_edits(reply, cut=cut)
    if not edits:
        try:
            return Draft(printable(extract_code(reply, cut=cut)))
        except CutOff:
            raise
        except Unreadable as reason:
            raise Unreadable(f"{reason}{_edits_instead(reply, base)}") from None
    if base is None:
        raise BadEdit("there is no file to edit yet: write the whole file")
    source = printable(applied(base, edits))
    if not any(isinstance(n, ast.ClassDef) and n.name == "ModelNew" for n in ast.parse(source).body):
        raise BadEdit("the file after these edits does not define class ModelNew")
    return Draft(source, edits)


def read_edits(reply: str, *, cut: bool = False) -> tuple[Edit, ...]:
    """The edits of a reply, in their order; none where no block has an edit line."""
    text = answer_text(reply)
    blocks = fenced_blocks(text)
    if not any(_HEADER.search(block.text) for block in blocks):
        return ()
    if cut and not blocks[-1].closed:
        raise CutOff("the reply was cut off before its edits were complete")
    edits: list[Edit] = []
    for block in blocks:
        if _HEADER.search(block.text):
            edits += _edits_in(block.text)
        elif block.tag.lower() in PYTHON_TAGS and block.text.strip():
            raise BadEdit("a Python block stands beside the edits without an `# edit:` line of its own")
    return tuple(edits)


def printable(source: str) -> str:
    """Half a surrogate pair, which JSON can smuggle in, fits in no file."""
    return source.encode("utf-8", "replace").decode("utf-8")


def _edits_in(block: str) -> Iterator[Edit]:
    headers = list(_HEADER.finditer(block))
    if block[: headers[0].start()].strip():
        raise BadEdit("there is text in front of the first `# edit:` line of a block")
    ends = [header.start() for header in headers[1:]] + [len(block)]
    for header, end in zip(headers, ends, strict=True):
        yield from _edits_of(header["verb"], block[header.end() : end])


def _edits_of(verb: str, text: str) -> Iterator[Edit]:
    found = _VERB.fullmatch(verb)
    if found is None:
        raise BadEdit(f"`# edit: {verb}` is not one of {FORMS}")
    operation = EditKind(found["kind"].split()[0].lower())
    target = found["target"]
    if operation is EditKind.CHANGE:
        yield from _passages(target, text)
    elif operation is EditKind.DELETE:
        if text.strip():
            raise BadEdit(f"`delete {target}` has a text below it")
        yield Edit(operation, target)
    else:
        yield Edit(operation, target, text.strip("\n") + "\n")


def _passages(target: str, text: str) -> Iterator[Edit]:
    """Every passage of one ``change``; nothing may stand around the marks."""
    if not _PASSAGE.search(text) or _PASSAGE.sub("", text).strip():
        raise BadEdit(
            f"`change {target}` needs the marks <<<<<<<, ======= and >>>>>>> on lines of their own, "
            "the old passage between the first two, the new one behind it"
        )
    for found in _PASSAGE.finditer(text):
        yield Edit(EditKind.CHANGE, target, found["new"], found["old"])


def _edits_instead(reply: str, base: str | None) -> str:
    """The way to reply with a part of the file, where a reply is code that is no whole file."""
    shown = base is not None and any(b.tag.lower() in PYTHON_TAGS for b in fenced_blocks(answer_text(reply)))
    return "; a part of the file needs a line `# edit: replace NAME` above it" if shown else ""

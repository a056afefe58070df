"""The part of a Python file that decides what it does: its text without comments, docstrings and blank lines.

A ledger that hashes this text stays valid after an edit of prose. The spans to cut are found with
:mod:`tokenize`, and the rest is kept to the letter, so that the result is the same for every version of
Python and a change of any other character shows.

Some prose is data. A command's docstring is its help text, a contract's docstring is shown to a model, the
docstring of a file of the corpus names the expected verdict, and patterns and tasks are read as text. Those
files count whole: docstrings are cut in the rooms of :data:`UNREAD` and in the tests alone, and what lies in
a folder of :data:`DATA` is not touched.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

UNREAD = frozenset(
    ("analysis", "bench", "core", "engine", "evaluator", "expert", "hardware", "memory", "modules", "store")
)
"""Rooms of ``egg`` whose docstrings no program reads."""
DATA = re.compile(r"/(skills|llm_ops|real|templates|packaged|prompts|corpus|data|samples)/")
CODE = re.compile(r"/src/egg/(\w+)/.*\.py$|/tests/.*\.py$")
READS_PROSE = re.compile(r"__doc__|inspect\.get(source|doc)")
LAYOUT = frozenset((tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT))


def meaning(path: str) -> bytes:
    """What a hash of the file at ``path`` is to depend on."""
    content = Path(path).read_bytes()
    found = CODE.search(path)
    if found is None or DATA.search(path):
        return content
    text = content.decode(errors="replace")
    unread = found[1] in UNREAD or found[1] is None
    try:
        return without_prose(text, docstrings=unread and not READS_PROSE.search(text)).encode()
    except (tokenize.TokenError, SyntaxError):
        return content


def without_prose(text: str, *, docstrings: bool = True) -> str:
    """``text`` without its comments, and without strings that are statements where ``docstrings`` asks so."""
    lines = text.splitlines(keepends=True)
    for (first, start), (last, end) in reversed(list(_spans(text, docstrings))):
        lines[first - 1 : last] = [lines[first - 1][:start] + lines[last - 1][end:]]
    kept = (line.rstrip() for line in lines)
    return "\n".join(line for line in kept if line)


def _spans(text: str, docstrings: bool) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Where comments and lone strings begin and end, in the order of the text.

    A string is a statement if a logical line begins before it and ends after it.
    """
    at_start, lone = True, None
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NEWLINE:
            if lone is not None:
                yield lone
            at_start, lone = True, None
        elif token.type == tokenize.COMMENT:
            if lone is not None:
                yield lone
                lone = None
            yield token.start, token.end
        elif token.type not in LAYOUT:
            first = docstrings and at_start and token.type == tokenize.STRING
            lone = (token.start, token.end) if first and token.string[0] not in "fF" else None
            at_start = False

"""Python with its parts told apart, as markup: comments, strings, keywords, numbers, decorators, names made.

A file may be broken (a model wrote it), so nothing is parsed: one pattern walks over the text and takes
what it knows. Whatever it does not know stays as it is.
"""

from __future__ import annotations

import keyword
import re
from html import escape

from markupsafe import Markup

from egg.report.elements import visible

_PARTS = re.compile(
    r"""
      (?P<comment>\#[^\n]*)
    | (?P<string>(?i:[rbuf]|rb|br|rf|fr)?(?:'''(?:[^\\']|\\.|'(?!''))*(?:'''|\Z)
        |\"\"\"(?:[^\\"]|\\.|"(?!""))*(?:\"\"\"|\Z)
        |'(?:[^'\\\n]|\\.)*'?|"(?:[^"\\\n]|\\.)*"?))
    | (?P<decorator>^[ \t]*@[\w.]+)
    | (?<=\bdef[ ])(?P<def>\w+) | (?<=\bclass[ ])(?P<class>\w+)
    | (?P<number>\b(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.[\d_]*)?(?:[eE][+-]?\d+)?)\b)
    | (?P<word>\b[^\W\d]\w*\b)
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
_KINDS = {"comment": "c", "string": "s", "decorator": "d", "def": "n", "class": "n", "number": "m"}
LONGEST = 400_000
"""Characters beyond which a file is shown plainly."""


def highlighted(source: str) -> Markup:
    """``source`` with ``span`` elements around its parts; its text is exactly what was given."""
    shown = visible(source)
    if len(shown) > LONGEST:
        return Markup(escape(shown))
    pieces, end = [], 0
    for part in _PARTS.finditer(shown):
        kind = _kind(part)
        if kind:
            before = escape(shown[end : part.start()])
            pieces.append(f'{before}<span class="{kind}">{escape(part[0])}</span>')
            end = part.end()
    return Markup("".join(pieces) + escape(shown[end:]))


def _kind(part: re.Match[str]) -> str:
    name = part.lastgroup or ""
    if name == "word":
        return "k" if keyword.iskeyword(part[0]) else ""
    return _KINDS[name]

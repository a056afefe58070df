"""Python source as markup: Pygments finds the tokens, this module writes the ``span`` elements.

A file may be broken (a model wrote it); Pygments then yields error tokens, which stay plain. The classes
are those of the page's style, so that a page carries no second style sheet; every token is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import groupby

from markupsafe import Markup
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType

from egg.report.elements import visible

CLASSES = (
    (Comment, "c"),
    (String, "s"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (Number, "m"),
    (Name.Decorator, "d"),
    (Name.Function, "n"),
    (Name.Class, "n"),
)
"""A class of the style for each kind of token, the first that holds it."""
LONGEST = 400_000
"""Characters beyond which a file is shown plainly."""


def highlighted(source: str) -> Markup:
    """``source`` with ``span`` elements around its tokens; the text itself is unchanged."""
    shown = visible(source)
    if len(shown) > LONGEST:
        return Markup(escape(shown))
    pieces = []
    for name, run in groupby(_tokens(shown), key=lambda token: token[0]):
        text = escape("".join(token[1] for token in run))
        pieces.append(f'<span class="{name}">{text}</span>' if name else text)
    return Markup("".join(pieces))


def _tokens(source: str) -> Iterator[tuple[str, str]]:
    for _, kind, text in PythonLexer().get_tokens_unprocessed(source):
        yield _class(kind), text


def _class(kind: _TokenType) -> str:
    return next((name for holder, name in CLASSES if kind in holder), "")

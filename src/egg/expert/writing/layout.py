"""Line breaks for generated code, as a formatter would set them.

A logical line that fits stays on one line. One that does not is opened at a bracket, with one item a line
and a comma behind the last (which makes formatters leave it so); a chain of operators without a bracket
to open goes into parentheses, one operand a line, the operator in front. Comments and texts over several
lines are left as they are.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from itertools import pairwise

from egg.expert.writing.breaking import CLOSING, LIMIT, OPENING, Breaker

QUIET = (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def laid_out(text: str, indent: int = 0, *, only_long: bool = False) -> list[str]:
    """The lines of ``text`` (whole statements), moved right by ``indent`` and broken where they must be.

    With ``only_long`` what fits keeps the line breaks it has: for text of an author.
    """
    result: list[str] = []
    rows = text.split("\n")
    done = 0
    for tokens in _logical_lines(text):
        first, last = tokens[0].start[0], tokens[-1].end[0]
        result += [_moved(row, indent) for row in rows[done : first - 1]]
        result += _logical(rows[first - 1 : last], tokens, indent, only_long)
        done = last
    return [*result, *(_moved(row, indent) for row in rows[done:])]


def _moved(row: str, indent: int) -> str:
    return " " * indent + row if row.strip() else ""


def _logical_lines(text: str) -> Iterator[list[tokenize.TokenInfo]]:
    tokens: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NEWLINE:
            if tokens:
                yield tokens
            tokens = []
        elif token.type not in QUIET and (tokens or token.type != tokenize.COMMENT):
            tokens.append(token)


def _logical(rows: list[str], tokens: list[tokenize.TokenInfo], indent: int, only_long: bool) -> list[str]:
    as_it_is = [_moved(rows[0], indent)]
    long_text = any(t.type == tokenize.STRING and t.end[0] > t.start[0] for t in tokens)
    as_it_is += rows[1:] if long_text and indent == 0 else [_moved(row, indent) for row in rows[1:]]
    fits = all(len(row) <= LIMIT for row in as_it_is)
    start = indent + len(rows[0]) - len(rows[0].lstrip())
    *code, last = tokens
    if last.type == tokenize.COMMENT and len(rows) == 1 and not fits and code:
        # the comment first, on a line of its own
        statement = rows[0][: last.start[1]].rstrip()
        return [" " * start + last.string, *_logical([statement], code, indent, only_long)]
    if long_text or any(t.type == tokenize.COMMENT for t in tokens) or (fits and only_long):
        return as_it_is
    flat = _unwrapped(_flattened(tokens))
    held = len(rows) > 1 and _has_last_comma(tokens)
    if start + len(flat) <= LIMIT and not held:
        return [" " * start + flat]
    try:
        return Breaker(flat, opened=held).statement(start)
    except SyntaxError:
        return as_it_is


def _has_last_comma(tokens: list[tokenize.TokenInfo]) -> bool:
    """A comma before a closing bracket, other than that of a tuple with one element."""
    for place, (one, other) in enumerate(pairwise(tokens)):
        if one.string == "," and other.string and other.string in CLOSING and one.type == tokenize.OP:
            depth, commas = 0, 0
            for token in reversed(tokens[:place]):
                depth += (
                    (token.string in CLOSING) - (token.string in OPENING) if token.type == tokenize.OP else 0
                )
                if depth < 0:
                    break
                commas += depth == 0 and token.string == ","
            if commas or other.string != ")":
                return True
    return False


def _flattened(tokens: list[tokenize.TokenInfo]) -> str:
    """On one line, with the author's spaces inside each row; commas that held lines apart go."""
    text, before = "", None
    for place, token in enumerate(tokens):
        if before is not None:
            if before.end[0] == token.start[0]:
                text += " " * (token.start[1] - before.end[1])
            elif before.string not in OPENING and token.string not in CLOSING:
                text += " "
        if not _only_holds(tokens, place):
            text += token.string
        before = token
    return text


def _only_holds(tokens: list[tokenize.TokenInfo], place: int) -> bool:
    """A comma at the end of a row before a closing bracket, unless it makes a tuple of one element."""
    if tokens[place].string != "," or place + 1 == len(tokens) or tokens[place + 1].string not in CLOSING:
        return False
    if tokens[place].end[0] == tokens[place + 1].start[0]:
        return False
    depth = 0
    for at in range(place - 1, -1, -1):
        text = tokens[at].string if tokens[at].type == tokenize.OP else ""
        depth += (text != "" and text in CLOSING) - (text != "" and text in OPENING)
        if depth < 0:
            called = at > 0 and (tokens[at - 1].type == tokenize.NAME or tokens[at - 1].string in (")", "]"))
            return text != "(" or called
        if depth == 0 and text == ",":
            return True
    return False


def _unwrapped(flat: str) -> str:
    """Without parentheses that were only there for line breaks."""
    try:
        (statement,) = ast.parse(flat).body
    except (SyntaxError, ValueError):
        return flat
    value = getattr(statement, "value", None)
    if not isinstance(value, ast.BinOp | ast.BoolOp | ast.Compare | ast.IfExp | ast.Call):
        return flat
    text = flat.encode()
    head, tail = text[: value.col_offset].decode(), text[value.end_col_offset or 0 :].decode()
    while head.endswith("(") and tail.startswith(")") and head[:-1].endswith(" "):
        head, tail = head[:-1], tail[1:]
    return head + text[value.col_offset : value.end_col_offset].decode() + tail

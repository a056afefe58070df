"""An author's text with its layout made regular: four spaces a level, no space at line ends, double quotes.

Pieces of a task are put beside generated code, so they have to agree on indentation; the rest is what any
formatter would do. Line breaks, comments and the words themselves stay. Should the result not parse to the
same program, the text is taken as it was.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

QUIET = (tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT)


def tidied(source: str) -> str:
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    try:
        changed = _without_ends(double_quoted(_indented(source)))
        same = _meaning(changed) == _meaning(source)
    except (SyntaxError, tokenize.TokenError, ValueError):
        return source
    return changed if same else source


def _meaning(source: str) -> str:
    """The program, whatever its docstrings look like."""
    tree = ast.parse(source)
    for text in _docstrings(tree):
        text.value = ""
    return ast.dump(tree)


def _docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        match node:
            case ast.Module(body=[ast.Expr(value=ast.Constant(value=str()) as text), *_]):
                yield text
            case ast.ClassDef(body=[ast.Expr(value=ast.Constant(value=str()) as text), *_]):
                yield text
            case ast.FunctionDef(body=[ast.Expr(value=ast.Constant(value=str()) as text), *_]):
                yield text


def _without_ends(source: str) -> str:
    """Docstrings without space at the ends of their lines."""
    lines = source.split("\n")
    for text in _docstrings(ast.parse(source)):
        for row in range(text.lineno, text.end_lineno or text.lineno):
            lines[row - 1] = lines[row - 1].rstrip()
    return "\n".join(lines)


def _indented(source: str) -> str:
    """Every logical line at four spaces a level; the lines that continue it move along."""
    lines = source.split("\n")
    inside_text: set[int] = set()
    shifts: dict[int, int] = {}
    levels, at_start, shift = [0], True, 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        first, last = token.start[0], token.end[0]
        if token.type == tokenize.STRING and last > first:
            inside_text.update(range(first + 1, last + 1))
        if token.type == tokenize.INDENT:
            levels.append(len(token.string.expandtabs(8)))
        elif token.type == tokenize.DEDENT:
            levels.pop()
        elif token.type == tokenize.NEWLINE:
            at_start = True
        elif token.type not in QUIET and token.type != tokenize.ENDMARKER:
            if at_start:
                shift = 4 * (len(levels) - 1) - levels[-1]
                at_start = False
            shifts.setdefault(first, shift)
    result, shift = [], 0
    for row in range(len(lines), 0, -1):  # a comment moves with the line below it
        line = lines[row - 1]
        shift = shifts.get(row, shift)
        if row in inside_text:
            result.append(line)
            continue
        bare = line.strip()
        width = len(line.expandtabs(8)) - len(line.expandtabs(8).lstrip())
        result.append(" " * max(0, width + shift) + bare if bare else "")
    return "\n".join(reversed(result))


def double_quoted(source: str) -> str:
    """Plain strings in double quotes; those with quotes or backslashes in them stay."""
    lines = source.split("\n")
    found = [t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.STRING]
    for token in reversed(found):
        text = token.string
        if not text.startswith("'") or text.startswith("'''") or any(c in text[1:-1] for c in "\"'\\"):
            continue
        row, column = token.start
        line = lines[row - 1]
        lines[row - 1] = f'{line[:column]}"{text[1:-1]}"{line[token.end[1] :]}'
    return "\n".join(lines)

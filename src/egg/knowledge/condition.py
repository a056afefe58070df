"""Conditions of skills: read once, refused where they mean nothing, and safe to read from any author.

A condition is a Python expression over the names of a vocabulary: ``and``, ``or``, ``not``,
comparisons (also chained), ``+ - * /``, numbers, words in quotes, ``in ("a", "b")``. Python's own
parser reads it, so precedence is the one everybody knows, but nothing is ever run: the text is cut
into known tokens first, within limits of length and depth, and only a short list of node types is
walked. So hostile text is refused with a position, and costs no more than its length.

Evaluation is total. A value that does not exist (a division by zero) makes its comparison neither
true nor false, and so is everything that hangs on it, ``not`` included: a condition holds only
where it is known to hold. ``strength`` says how clearly: a comparison counts by how far beyond its
threshold it is, on a log scale on which a factor of two is 1; words and truths count 1; ``and`` is
as strong as its weakest part, ``or`` as its strongest. ``not`` moves inward, so ``not a > b`` is
``a <= b``. ``reason`` is what decided, and always a true statement: where ``waves < 2`` fails, it
is ``waves 3.5 >= 2``.
"""

from __future__ import annotations

import ast
import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from egg.analysis.features import Feature
from egg.core.bottleneck import Value
from egg.core.errors import UsageError
from egg.knowledge.interpret import MARKS, TRUTHS, Interpreter, spelled, unsigned
from egg.knowledge.vocabulary import VOCABULARY, WORDS

LENGTH, TOKENS, DEPTH, DIGITS = 1000, 250, 24, 24
"""The most that is read: characters, tokens, nesting, and characters of one number."""

_TOKEN = re.compile(
    r" *(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<word>'[A-Za-z0-9_.+-]+'|\"[A-Za-z0-9_.+-]+\")|(?P<mark><=|>=|==|!=|[<>+\-*/(),]))"
)


class ConditionError(UsageError):
    """A condition that cannot be read or means nothing; ``position`` counts its characters from 0."""

    def __init__(self, message: str, position: int, hint: str = "") -> None:
        super().__init__(f"column {position + 1}: {message}", hint)
        self.position = position


@dataclass(frozen=True)
class Outcome:
    """What a condition says of some values."""

    holds: bool
    strength: float
    """0 to 1; 0 where it does not hold."""
    reason: str
    """The comparison that decided, with its value."""


@dataclass(frozen=True)
class Condition:
    """A condition that was read and found meaningful; :func:`parse` makes it."""

    text: str
    names: frozenset[str]
    """That it depends on."""
    _tree: ast.expr = field(repr=False, compare=False)
    _vocabulary: Mapping[str, Feature] = field(repr=False, compare=False)

    def evaluate(self, values: Mapping[str, Value]) -> Outcome:
        """A name without a value takes its neutral one."""
        found = Interpreter(values, self._vocabulary).interpret(self._tree, True)
        return Outcome(found.truth is True, found.strength, found.reason)


def parse(
    text: str,
    vocabulary: Mapping[str, Feature] = VOCABULARY,
    words: Mapping[str, Sequence[str]] = WORDS,
) -> Condition:
    """Read a condition over ``vocabulary``; ``words`` lists what a word can be, where that is known.

    Raises :class:`ConditionError` at the first thing that has no meaning.
    """
    start = _scan(text)
    try:
        tree = ast.parse(text[start:], mode="eval").body
    except SyntaxError as error:
        position = min(len(text), start + error.offset - 1) if error.offset else len(text)
        raise ConditionError(
            "this is no condition", position, "an example: rows > 1024 and not uses_dot"
        ) from None
    except (ValueError, RecursionError, MemoryError):
        raise ConditionError("too deeply nested", start) from None
    checker = _Checker(start, vocabulary, words)
    if checker.kind(tree, 0) != "truth":
        raise checker.fault(tree, f"{spelled(tree)} is no truth by itself", "compare it with something")
    return Condition(text, frozenset(checker.names), tree, vocabulary)


def _scan(text: str) -> int:
    """Where the condition starts, after making sure that it has only tokens that a condition can have."""
    if len(text) > LENGTH:
        raise ConditionError(f"longer than {LENGTH} characters", LENGTH)
    at = count = depth = 0
    end, before = len(text.rstrip(" ")), None
    while at < end:
        token = _TOKEN.match(text, at)
        if token is None:
            at += len(text[at:]) - len(text[at:].lstrip(" "))
            shown = "a quote without a word of letters, digits and _.+- in it" if text[at] in "'\"" else None
            raise ConditionError(f"{shown or ascii(text[at])} has no place in a condition", at)
        what, place = token.lastgroup, token.start(token.lastgroup or 0)
        if what != "mark" and before not in (None, "mark") and place == at:
            raise ConditionError("two things run into each other", place, "put a space between them")
        if what == before == "word":
            raise ConditionError("two words with nothing between them", place)
        if what == "number" and (token.end() - place > DIGITS or not math.isfinite(float(token[what]))):
            raise ConditionError("a number too large or too long", place)
        count, before, at = count + 1, what, token.end()
        depth += {"(": 1, ")": -1}.get(token.group(what or 0), 0)
        if count > TOKENS or depth > DEPTH:
            raise ConditionError(f"more than {TOKENS} parts or {DEPTH} parentheses deep", place)
    if not count:
        raise ConditionError("an empty condition", 0, "'true' holds always")
    return len(text) - len(text.lstrip(" "))


class _Checker:
    """Walks the tree once and says of what kind each part is: ``number``, ``truth`` or ``word``."""

    def __init__(
        self, start: int, vocabulary: Mapping[str, Feature], words: Mapping[str, Sequence[str]]
    ) -> None:
        self._start, self._vocabulary, self._words = start, vocabulary, words
        self.names: set[str] = set()

    def fault(self, node: ast.expr, message: str, hint: str = "") -> ConditionError:
        return ConditionError(message, self._start + node.col_offset, hint)

    def kind(self, node: ast.expr, depth: int) -> str:
        if depth > DEPTH:
            raise self.fault(node, f"nested deeper than {DEPTH}")
        match node:
            case ast.Constant(value=bool()):
                return "truth"
            case ast.Constant(value=int() | float()):
                return "number"
            case ast.Constant(value=str()):
                return "word"
            case ast.Name():
                return self._named(node)
            case ast.BoolOp(values=parts):
                self._all_are("truth", parts, depth)
                return "truth"
            case ast.UnaryOp(op=ast.Not(), operand=part):
                self._all_are("truth", [part], depth)
                return "truth"
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=part):
                self._all_are("number", [part], depth)
                return "number"
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div()):
                self._all_are("number", [node.left, node.right], depth)
                return "number"
            case ast.Compare():
                self._compared(node, depth)
                return "truth"
            case ast.BinOp():
                raise self.fault(node, "a condition computes with + - * / only")
            case ast.Tuple():
                raise self.fault(node, "a list has its place behind 'in' only")
        what = re.sub(r"(?<!^)(?=[A-Z])", " ", type(node).__name__).lower()
        raise self.fault(
            node, f"a condition cannot have this ({what})", "compare, compute with + - * /, join"
        )

    def _named(self, node: ast.Name) -> str:
        if node.id in TRUTHS:
            return "truth"
        feature = self._vocabulary.get(node.id)
        if feature is None:
            near = difflib.get_close_matches(node.id, self._vocabulary, 3) if len(node.id) <= 40 else []
            hint = f"did you mean {' or '.join(near)}?" if near else "words are written in quotes"
            raise self.fault(node, f"unknown name {node.id}", hint)
        self.names.add(node.id)
        return "number" if feature.kind == "integer" else feature.kind

    def _all_are(self, wanted: str, parts: Sequence[ast.expr], depth: int) -> None:
        for part in parts:
            found = self.kind(part, depth + 1)
            if found != wanted:
                raise self.fault(part, f"{spelled(part)} is a {found}, where a {wanted} is needed")

    def _compared(self, node: ast.Compare, depth: int) -> None:
        sides = [node.left, *node.comparators]
        for op, (left, right) in zip(node.ops, pairwise(sides), strict=True):
            if isinstance(op, ast.In | ast.NotIn):
                if len(node.ops) > 1:
                    raise self.fault(left, "'in' cannot be part of a chain")
                if not isinstance(right, ast.Tuple) or not right.elts:
                    hint = 'a list of one is written ("a",)'
                    raise self.fault(right, "'in' needs a list of constants in parentheses", hint)
                for option in right.elts:
                    if not isinstance(unsigned(option), ast.Constant):
                        raise self.fault(option, "'in' needs a list of constants in parentheses")
                    self._alike(left, option, "==", depth)
            elif type(op) in MARKS:
                self._alike(left, right, MARKS[type(op)], depth)
            else:
                raise self.fault(left, "a condition cannot have 'is'", "== compares")

    def _alike(self, left: ast.expr, right: ast.expr, mark: str, depth: int) -> None:
        one, other = self.kind(left, depth + 1), self.kind(right, depth + 1)
        if one != other:
            raise self.fault(left, f"a {one} ({spelled(left)}) compared with a {other} ({spelled(right)})")
        if one == "truth":
            raise self.fault(left, "truths are not compared", "say has_tma or not has_tma")
        if one == "word":
            if mark not in ("==", "!="):
                raise self.fault(left, f"words have no order, {mark} cannot compare them")
            for name, word in ((left, right), (right, left)):
                known = self._words.get(name.id) if isinstance(name, ast.Name) else None
                if known and isinstance(word, ast.Constant) and word.value not in known:
                    raise self.fault(
                        word, f"{spelled(name)} is never {word.value}", f"it is {', '.join(known)}"
                    )

"""Finding a kernel file or a JSON object in whatever a model replied.

Models wrap answers in prose, fences, fences within fences, reasoning tags and JSON, or are
cut off in the middle. What is looked for is known (Python that parses and defines
``ModelNew``; an object that validates), so the reading is guided by it: a fence does not end
inside a string, and of several pieces the one that fits is taken.
Nothing is ever invented to make a broken reply whole.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MODEL = "ModelNew"
PYTHON_TAGS = frozenset(["", "python", "python3", "py", "py3", "triton"])
CODE_KEYS = ("code", "source", "kernel", "file")
BROKEN_OBJECTS_TRIED = 64
"""A reply with more unreadable braces than this is not JSON with a slip in it."""
FENCE_ENDS_TRIED = 16
CODE_STARTS_TRIED = 40
"""A small model may repeat itself to the end of its room: reading that must stay cheap."""

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+#.-]*)(.*)$")
_REASONING = re.compile(r"^\s*<(think|thinking|reasoning)>(.*?)(?:</\1>|\Z)", re.DOTALL)
_REASONING_END = re.compile(r"</(?:think|thinking|reasoning)>")
_CODE_START = re.compile(r"""^(?:import |from \w|@|class |def |\#|[rR]?\"\"\"|[A-Z_]+ *=)""")


class Unreadable(Exception):
    """What is wrong with a reply, in words for the model that wrote it."""


class CutOff(Unreadable):
    """The reply ended for want of room before it was complete, and the words say so."""


# -- text ------------------------------------------------------------------------------------------


def answer_text(reply: str) -> str:
    """A reply without the reasoning in front of it, line ends made plain.

    An opening tag that is never closed swallows everything: the model never came to its
    answer. A closing tag alone ends reasoning that the chat template had opened.
    """
    text = reply.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    while found := _REASONING.match(text):
        text = text[found.end() :]
    prose = text.split("```", 1)[0]
    if ends := list(_REASONING_END.finditer(prose)):
        text = text[ends[-1].end() :]
    return text


# -- code ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """What stood between two fences."""

    tag: str
    text: str
    closed: bool


def extract_code(reply: str, *, cut: bool = False) -> str:
    """The kernel file in a reply: valid Python that defines class ``ModelNew``.

    ``cut`` says that the reply ended for want of room: then a fence left open is an unfinished
    file even where it happens to parse, while without it the closing line was just forgotten.
    """
    text = answer_text(reply)
    if not text.strip():
        raise CutOff("the reply was cut off before any code") if cut else Unreadable("the reply is empty")
    if not cut and (tree := _tree(text)) is not None and _defines_model(tree):
        return text
    if (inner := _code_in_json(text)) is not None:
        return extract_code(inner)
    blocks = fenced_blocks(text)
    if cut and (not blocks or not blocks[-1].closed):
        raise CutOff("the reply was cut off before the code was complete")
    python = [b.text for b in blocks if b.tag.lower() in PYTHON_TAGS and b.text.strip()]
    if python:
        return _chosen(python)
    if (raw := _unfenced(text)) is not None:
        return raw
    raise Unreadable(_why_not(text) if "class ModelNew" in text else "no Python code was found in the reply")


def fenced_blocks(text: str) -> list[Block]:
    """Every fenced block. One tagged as Python, or not at all, does not end inside a docstring."""
    lines = text.split("\n")
    blocks: list[Block] = []
    at = 0
    while at < len(lines):
        found = _FENCE.match(lines[at])
        if found is None or "`" in found[3]:
            at += 1
            continue
        indent = len(lines[at]) - len(lines[at].lstrip())
        end = _end_of_block(lines, at, found[1], indent, python=found[2].lower() in PYTHON_TAGS)
        if end is None:
            rest = _dedented(lines[at + 1 :], indent).rstrip()
            glued = rest.endswith(found[1])
            blocks.append(Block(found[2], rest.removesuffix(found[1]), glued))
            break
        blocks.append(Block(found[2], _dedented(lines[at + 1 : end], indent), True))
        at = end + 1
    return blocks


def _end_of_block(lines: list[str], start: int, opening: str, indent: int, *, python: bool) -> int | None:
    """The line that closes the fence at ``start``: the first, or the first behind an open docstring.

    A docstring may show fenced examples. Up to those the code ends within a string, and only
    then is a later end looked for; where none is right, the first one counts.
    """
    ends = (i for i in range(start + 1, len(lines)) if _closes(lines[i], opening))
    first = next(ends, None)
    if first is None or not python:
        return first
    for end in itertools.islice(itertools.chain([first], ends), FENCE_ENDS_TRIED):
        try:
            ast.parse(_dedented(lines[start + 1 : end], indent))
        except SyntaxError as error:
            if "unterminated triple-quoted" not in error.msg:
                return first
        except (ValueError, RecursionError, MemoryError):
            return first
        else:
            return end
    return first


def _closes(line: str, opening: str) -> bool:
    mark = line.strip()
    return len(mark) >= len(opening) and set(mark) == {opening[0]}


def _dedented(lines: list[str], indent: int) -> str:
    """A fence inside a list item is indented as a whole."""
    prefix = " " * indent
    return "\n".join(line.removeprefix(prefix) for line in lines) + "\n"


def _chosen(blocks: list[str]) -> str:
    """The last block that defines ``ModelNew``, with the blocks it needs; or all of them as one file."""
    blocks = _continued(blocks)
    trees = [_tree(b) for b in blocks]
    homes = [i for i, t in enumerate(trees) if t is not None and _defines_model(t)]
    if homes:
        needed = _with_suppliers(trees, homes[-1])
        return "\n\n".join(blocks[i].strip("\n") for i in needed) + "\n"
    whole = "\n".join(blocks)
    if (tree := _tree(whole)) is not None and _defines_model(tree):
        return whole
    raise Unreadable(_why_not(next((b for b in blocks if f"class {MODEL}" in b), whole)))


def _continued(blocks: list[str]) -> list[str]:
    """A block that begins indented goes on with the one before: a class was split in the middle."""
    joined: list[str] = []
    for block in blocks:
        if joined and block.lstrip("\n")[:1].isspace():
            joined[-1] = f"{joined[-1].rstrip()}\n\n{block}"
        else:
            joined.append(block)
    return joined


def _with_suppliers(trees: list[ast.Module | None], home: int) -> list[int]:
    """Indices of the blocks that make up the file around ``home``, in reading order.

    A file may have been split: kernels in one fence, the module in the next. A block belongs
    to it when it binds a name that is used but bound nowhere yet; for each name the nearest
    block before ``home`` is asked first.
    """
    order = [*range(home - 1, -1, -1), *range(home + 1, len(trees))]
    taken = {home}
    while True:
        mine = [t for i in taken if (t := trees[i]) is not None]
        missing = set().union(*(_loaded(t) for t in mine)) - set().union(*(_bound(t) for t in mine))
        supplier = next(
            (i for i in order if i not in taken and (t := trees[i]) and missing & _bound_at_top(t)), None
        )
        if supplier is None:
            return sorted(taken)
        taken.add(supplier)


def _unfenced(text: str) -> str | None:
    """Code without any fence: what remains without the prose before and after it."""
    lines = text.split("\n")
    starts = [i for i, line in enumerate(lines) if _CODE_START.match(line)]
    for start in starts[:CODE_STARTS_TRIED]:
        code = _without_trailing_prose(lines[start:])
        if code is not None:
            return code
    return None


def _without_trailing_prose(lines: list[str]) -> str | None:
    """The longest valid file in front of plain paragraphs. An indented line behind it means broken code."""
    try:
        tree, end = ast.parse("\n".join(lines)), len(lines)
    except SyntaxError as error:
        end = (error.lineno or 1) - 1
        if any(line[:1].isspace() or _CODE_START.match(line) for line in lines[end:] if line.strip()):
            return None
        tree = _tree("\n".join(lines[:end]))
    except (ValueError, RecursionError, MemoryError):
        return None
    return "\n".join(lines[:end]) + "\n" if tree is not None and _defines_model(tree) else None


def _code_in_json(text: str) -> str | None:
    """``{"code": "..."}``: some models answer everything in JSON."""
    stripped = text.strip()
    blocks = fenced_blocks(text) if stripped.startswith("```json") else []
    body = blocks[0].text if blocks else stripped
    if not body.lstrip().startswith("{"):
        return None
    for found in json_objects(body):
        for key in CODE_KEYS:
            if isinstance(value := found.get(key), str) and MODEL in value:
                return value
    return None


def _why_not(code: str) -> str:
    """What keeps ``code`` from being a kernel file."""
    try:
        tree = ast.parse(code)
    except SyntaxError as error:
        shown = f": `{error.text.strip()}`" if error.text and error.text.strip() else ""
        return f"the code is not valid Python, line {error.lineno}: {error.msg}{shown}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"the code is not valid Python: {error}"
    if any(isinstance(n, ast.ClassDef) and n.name == MODEL for n in ast.walk(tree)):
        return f"class {MODEL} is not at module level"
    if any(isinstance(n, ast.Name) and n.id == MODEL for n in ast.walk(tree)):
        return f"{MODEL} is not defined as a class"
    return f"the code does not define class {MODEL}"


def _tree(code: str) -> ast.Module | None:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _defines_model(tree: ast.Module) -> bool:
    return any(isinstance(n, ast.ClassDef) and n.name == MODEL for n in tree.body)


def _loaded(tree: ast.Module) -> set[str]:
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return names - set(dir(builtins))


def _bound(tree: ast.AST) -> set[str]:
    """Names bound anywhere: enough to see that nothing is missing, scopes aside."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.alias(name=name, asname=asname):
                names.add((asname or name).split(".")[0])
    return names


def _bound_at_top(tree: ast.Module) -> set[str]:
    """Names the module level binds: those of functions and classes, imports, assignments."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        else:
            names |= _bound(node)
    return names


# -- JSON ------------------------------------------------------------------------------------------


def json_objects(reply: str) -> list[dict[str, Any]]:
    """Every JSON object in a reply, the likeliest answer first: the last one, then what is inside it.

    Trailing commas and line breaks inside strings are forgiven; other slips are not guessed at.
    """
    return [found for top in reversed(list(_top_objects(answer_text(reply)))) for found in _nested(top)]


def _top_objects(text: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder(strict=False)
    broken = 0
    at = text.find("{")
    while at >= 0 and broken < BROKEN_OBJECTS_TRIED:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            broken += 1
            value, end = _forgiven(text, at, decoder)
        if isinstance(value, dict):
            yield value
        at = text.find("{", end)


def _forgiven(text: str, start: int, decoder: json.JSONDecoder) -> tuple[Any, int]:
    """The object at ``start`` read without its trailing commas and where it ends; else where to look next."""
    kept: list[str] = []
    depth, quoted, escaped = 0, False, False
    for at in range(start, len(text)):
        char = text[at]
        if quoted:
            quoted, escaped = (escaped or char != '"'), (char == "\\" and not escaped)
        elif char == '"':
            quoted = True
        elif char in "{[":
            depth += 1
        elif char in "}]":
            depth -= 1
            while kept and kept[-1].isspace():
                kept.pop()
            if kept and kept[-1] == ",":
                kept.pop()
        kept.append(char)
        if depth == 0:
            try:
                return decoder.decode("".join(kept)), at + 1
            except (ValueError, RecursionError):
                break
    return None, start + 1


def _nested(value: Any) -> Iterator[dict[str, Any]]:
    """An object and the objects in it, outermost first: ``{"answer": {...}}`` holds an answer too."""
    pending = [value]
    while pending:
        value = pending.pop(0)
        if isinstance(value, dict):
            yield value
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)

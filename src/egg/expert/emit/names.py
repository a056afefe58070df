"""Names in Python source: what a piece of code takes from outside, and how to give something another name.

Everything is read off the syntax tree and changed by position, so that what is not meant to change keeps
its spelling to the byte.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterable, Iterator
from functools import lru_cache
from itertools import count
from textwrap import dedent

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)

Edit = tuple[int, int, int, str]
"""Line (from 1), first and last column in bytes, and the text to put there."""


def numbered(stem: str, taken: Container[str], first: int = 1) -> str:
    """The first of ``stem``, ``stem_2``, ``stem_3`` ... that is not taken; ``first``: where to begin."""
    names = (stem if number == 1 else f"{stem}_{number}" for number in count(first))
    return next(name for name in names if name not in taken)


def underscored(name: str, taken: Container[str]) -> str:
    """``name``, with as many underscores behind it as it takes to be another than all others."""
    while name in taken:
        name += "_"
    return name


def taken_from_outside(node: ast.AST) -> set[str]:
    """Names that the code reads and does not bind itself: globals and built-ins."""
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            return {name}
        case ast.Constant():
            return set()
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            return _of_function(node)
        case ast.ClassDef():
            return _of_class(node)
    if isinstance(node, COMPREHENSIONS):
        targets = {name for part in node.generators for name in bound_names(part.target)}
        return _of_all(ast.iter_child_nodes(node)) - targets
    if isinstance(node, ast.AnnAssign):
        return _of_all(ast.iter_child_nodes(node)) | _of_annotation(node.annotation)
    return _of_all(ast.iter_child_nodes(node))


def bound_names(node: ast.AST) -> set[str]:
    """Names that a statement or target binds in the scope it stands in."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return {name}
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.Import() | ast.ImportFrom():
            return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        case ast.Lambda():
            return set()
    found = set().union(*(bound_names(child) for child in ast.iter_child_nodes(node)))
    if isinstance(node, ast.ExceptHandler) and node.name:
        found.add(node.name)
    return found


def attributes(node: ast.AST) -> set[str]:
    """Every name that stands behind a dot, or that ``getattr`` is asked for."""
    found = {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}
    for inner in ast.walk(node):
        match inner:
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
                found.add(name)
    return found


def read_names(node: ast.AST) -> set[str]:
    """Every name read anywhere in it."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def read_by(lines: Iterable[str]) -> frozenset[str]:
    """Every name that lines of a function read or set; names behind a dot are none."""
    return _names_of("\n".join(lines))[0]


def divisors(lines: Iterable[str]) -> frozenset[str]:
    """Names in what lines of a function divide by."""
    return _names_of("\n".join(lines))[1]


@lru_cache(maxsize=32)
def _names_of(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Names in the lines of a function, indented or not, and those that it divides by. A kernel that is being
    written is asked several times, and parsing one of hundreds of lines takes longer than writing it."""
    read: set[str] = set()
    dividing: set[str] = set()
    for node in ast.walk(ast.parse(dedent(text))):
        match node:
            case ast.Name(id=name):
                read.add(name)
            case ast.BinOp(op=ast.FloorDiv() | ast.Mod(), right=right):
                dividing |= {n.id for n in ast.walk(right) if isinstance(n, ast.Name)}
    return frozenset(read), frozenset(dividing)


def words(line: str) -> set[str]:
    """Names in a line of code that stand for themselves: not behind a dot, no keyword of a call."""
    return set(re.findall(r"(?<![\w.])[A-Za-z_]\w*\b(?!=(?!=))", line))


def edited(text: str, edits: Iterable[Edit]) -> str:
    """``text`` with pieces of its lines replaced; pieces do not overlap."""
    lines = text.split("\n")
    for row, start, end, new in sorted(set(edits), reverse=True):
        line = lines[row - 1].encode()
        lines[row - 1] = (line[:start] + new.encode() + line[end:]).decode()
    return "\n".join(lines)


def renaming(node: ast.AST, old: str, new: str) -> Iterator[Edit]:
    """Edits that give every use of a name another one."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and inner.id == old:
            yield inner.lineno, inner.col_offset, inner.end_col_offset or 0, new


def renamed_functions(text: str, names: dict[str, str]) -> str:
    """Give functions other names where they are defined, called or launched, and nowhere else.

    A kernel may have the name of the value it computes; as ``y[grid](...)`` calls what ``y`` stands for, only
    the place in front of the brackets tells the two apart.
    """
    edits: list[Edit] = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef(name=name) if name in names:
                start = node.col_offset + len("def ")
                edits.append((node.lineno, start, start + len(name.encode()), names[name]))
            case ast.Call(func=ast.Name(id=name) as at) if name in names:
                edits.append((at.lineno, at.col_offset, at.end_col_offset or 0, names[name]))
            case ast.Call(func=ast.Subscript(value=ast.Name(id=name) as at)) if name in names:
                edits.append((at.lineno, at.col_offset, at.end_col_offset or 0, names[name]))
    return edited(text, edits)


def _of_all(nodes: Iterable[ast.AST]) -> set[str]:
    return set().union(*(taken_from_outside(node) for node in nodes))


def _of_function(node: Function) -> set[str]:
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    defaults = [default for default in (*arguments.defaults, *arguments.kw_defaults) if default is not None]
    found = _of_all(defaults)
    for argument in every:
        found |= _of_annotation(argument.annotation)
    own = {argument.arg for argument in every}
    if isinstance(node, ast.Lambda):
        return found | (taken_from_outside(node.body) - own)
    found |= _of_all(node.decorator_list) | _of_annotation(node.returns)
    stated = {name for inner in ast.walk(node) if isinstance(inner, ast.Global) for name in inner.names}
    own |= set().union(*(bound_names(statement) for statement in node.body)) - stated
    return found | (_of_all(node.body) - own) | stated


def _of_class(node: ast.ClassDef) -> set[str]:
    found = _of_all((*node.decorator_list, *node.bases, *node.keywords))
    own: set[str] = set()
    for statement in node.body:
        inside = taken_from_outside(statement)
        found |= inside if isinstance(statement, SCOPES) else inside - own
        own |= bound_names(statement)
    return found


def _of_annotation(node: ast.expr | None) -> set[str]:
    """Also names inside an annotation in quotes."""
    if node is None:
        return set()
    found = taken_from_outside(node)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            try:
                found |= taken_from_outside(ast.parse(inner.value, mode="eval"))
            except SyntaxError:
                continue
    return found

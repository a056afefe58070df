"""What blocks of ``forward`` that look alike differ in: the slots of a block.

A block is a few statements under one comment. Two blocks look alike if they are the same program up to their
slots: what they read from ``self``, whole numbers, and names. Only plain statements can be compared so:
assignments to local variables, and calls.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from egg.expert.emit.names import Edit, edited


class Kind(StrEnum):
    PATH = "path"
    """``self.layers[3].weight``: the longest chain of attributes and numbers in brackets."""
    NAME = "name"
    """A name that is read: of a value, a size, a constant or a function."""
    BOUND = "bound"
    """A name that is assigned to."""
    NUMBER = "number"


@dataclass(frozen=True)
class Slot:
    """A place in a block where another one may have something else."""

    kind: Kind
    text: str
    statement: int
    """Which statement of the block it stands in."""
    span: tuple[int, int, int]
    """Line from 1, first and last column in bytes; a last column of -1 for what runs over several lines."""
    keyword: str = ""
    """The argument that a number is given for, where it is a whole argument."""
    called: bool = False
    """Whether it is the name of a function, at a call."""

    def edit(self, text: str) -> Edit:
        return (*self.span, text)


@dataclass(frozen=True)
class Block:
    """Statements of ``forward`` with the comment over them."""

    comment: str
    text: str
    form: str | None
    """The program without its slots; ``None`` for what must stand alone."""
    slots: tuple[Slot, ...]
    names: frozenset[str]
    """Every name in it."""
    assigned: tuple[str, ...]
    """Names that it assigns to, each as often as it does."""
    statements: int

    def renamed(self, names: dict[str, str]) -> Block:
        """With other names for local variables."""
        if self.names.isdisjoint(names):
            return self
        tree = ast.parse(self.text)
        found = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id in names]
        edits = [(n.lineno, n.col_offset, n.end_col_offset or 0, names[n.id]) for n in found]
        return block_of(self.comment, edited(self.text, edits))


@lru_cache(maxsize=4096)
def block_of(comment: str, text: str) -> Block:
    """The block of these statements; kept, as a file is written many times over with little changed."""
    tree = ast.parse(text)
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    names = frozenset(node.id for node in found)
    assigned = tuple(node.id for node in found if isinstance(node.ctx, ast.Store))
    form, reader = None, _Reader()
    if all(_is_plain(statement) for statement in tree.body):
        for number, statement in enumerate(tree.body):
            reader.read(statement, number)
        form = ast.dump(tree) if all(slot.span[2] >= 0 for slot in reader.slots) else None
    return Block(comment, text, form, tuple(reader.slots), names, assigned, len(tree.body))


def _is_plain(statement: ast.stmt) -> bool:
    """Whether it assigns to local variables or calls, without variables of an inner scope."""
    if any(isinstance(n, ast.JoinedStr | ast.Lambda | ast.comprehension) for n in ast.walk(statement)):
        return False
    match statement:
        case ast.Assign(targets=[ast.Name()]):
            return True
        case ast.Assign(targets=[ast.Tuple(elts=names)]):
            return all(isinstance(name, ast.Name) for name in names)
        case ast.Expr(value=ast.Call()):
            return True
    return False


class _Reader:
    """Collects slots in the order of the tree, and blanks them there."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []

    def read(self, node: ast.AST, statement: int, keyword: str = "") -> None:
        match node:
            case ast.Attribute() | ast.Subscript() if _is_path(node):
                self._slot(Kind.PATH, node, ast.unparse(node), statement)
                node.__dict__.update(value=ast.Constant(None), attr="", slice=ast.Constant(None))
            case ast.Call(func=ast.Subscript(value=ast.Name()) as launch):
                # a kernel is never a slot: a reader of ``forward`` sees what it launches
                self.read(launch.slice, statement)
                for inner in (*node.args, *node.keywords):
                    self.read(inner, statement)
            case ast.Call(func=ast.Name(id=name) as function):
                self._slot(Kind.NAME, function, name, statement, called=True)
                function.id = ""
                for inner in (*node.args, *node.keywords):
                    self.read(inner, statement)
            case ast.Name(id=name):
                kind = Kind.NAME if isinstance(node.ctx, ast.Load) else Kind.BOUND
                self._slot(kind, node, name, statement)
                node.id = ""
            case ast.Constant(value=value) if type(value) is int:
                self._slot(Kind.NUMBER, node, repr(value), statement, keyword)
                node.value = 0
            case ast.keyword(arg=str(name)):
                self.read(node.value, statement, name)
            case _:
                for inner in ast.iter_child_nodes(node):
                    self.read(inner, statement)

    def _slot(
        self, kind: Kind, node: ast.expr, text: str, statement: int, keyword: str = "", called: bool = False
    ) -> None:
        end = node.end_col_offset if node.end_lineno == node.lineno else None
        span = node.lineno, node.col_offset, -1 if end is None else end
        self.slots.append(Slot(kind, text, statement, span, keyword, called))


def _is_path(node: ast.AST) -> bool:
    """Whether it is ``self`` with attributes and numbers in brackets behind it."""
    match node:
        case ast.Attribute(value=ast.Name(id="self")):
            return True
        case ast.Attribute(value=value) | ast.Subscript(value=value, slice=ast.Constant(value=int())):
            return _is_path(value)
    return False


def path_steps(path: str) -> tuple[str, ...]:
    """``self``, ``.layers``, ``[3]``, ``.weight``."""
    node: ast.AST = ast.parse(path, mode="eval").body
    steps: list[str] = []
    while not isinstance(node, ast.Name):
        match node:
            case ast.Attribute(value=node, attr=name):
                steps.append(f".{name}")
            case ast.Subscript(value=node, slice=ast.Constant(value=number)):
                steps.append(f"[{number}]")
            case _:
                raise ValueError(f"{path} is no path")
    return ("self", *reversed(steps))

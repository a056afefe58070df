"""Kernels of Triton with sizes as plain arguments in the place of compile-time numbers, where they can be.

Which sizes that is worth for: :mod:`egg.expert.fusion.runtime_sizes`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import lru_cache

from egg.expert.emit.names import Edit, edited

PASSING = frozenset({"tl.cdiv", "tl.minimum", "tl.maximum", "tl.where"})
"""Functions whose result depends on a number without needing to know it."""
USING = frozenset({"range", "tl.load", "tl.store", "tl.range"})
"""Functions that take any number."""


def with_runtime_sizes(text: str, names: Iterable[str]) -> str:
    """The kernel with those of ``names`` as plain arguments that can be."""
    for name in names:
        tree = ast.parse(text)
        following = _Uses(tree).following(name) if _parameter(tree, name) else None
        if following is not None:
            text = _plain(text, name, following)
    return text


def with_caller_sizes(text: str, names: Mapping[str, bool]) -> str:
    """The same for sizes that the caller chooses: one that divides vectors stays known, and one that is not
    leading (``names`` says which are) if it is used for more than comparisons."""
    return _with_caller_sizes(text, tuple(names.items()))


@lru_cache(maxsize=256)
def _with_caller_sizes(text: str, names: tuple[tuple[str, bool], ...]) -> str:
    """Kept by text: files of other recipes have most kernels in common."""
    tree = ast.parse(text)
    for name, leading in names:
        if _parameter(tree, name) is None:
            continue
        uses = _Uses(tree)
        following = uses.following(name)
        if following is None or not following.isdisjoint(uses.dividing_vectors()):
            continue
        if leading or uses.only_compared(name):
            text = _plain(text, name, following)
            tree = ast.parse(text)
    return text


def _parameter(tree: ast.Module, name: str) -> ast.arg | None:
    """The parameter of that name, where it is a compile-time number."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.arg == name and _is_constexpr(node.annotation):
            return node
    return None


def _is_constexpr(annotation: ast.expr | None) -> bool:
    return isinstance(annotation, ast.Attribute) and annotation.attr == "constexpr"


def _plain(text: str, name: str, following: set[str]) -> str:
    """The kernel with a parameter as a plain argument, and numbers that follow from it as plain variables."""
    edits: list[Edit] = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.arg(arg=own) if own == name and _is_constexpr(node.annotation):
                edits.append((node.lineno, node.col_offset, node.end_col_offset or 0, name))
            case ast.AnnAssign(target=ast.Name(id=other), annotation=stated) if (
                other in following and _is_constexpr(stated)
            ):
                edits.append((node.lineno, node.col_offset, stated.end_col_offset or 0, other))
    return edited(text, edits)


class _Uses:
    """What happens to the compile-time numbers of a kernel."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._constants = {"tl"}
        for node in ast.walk(tree):
            match node:
                case ast.arg(arg=name, annotation=ast.Attribute(attr="constexpr")):
                    self._constants.add(name)
                case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Attribute(attr="constexpr")):
                    self._constants.add(name)

    def following(self, name: str) -> set[str] | None:
        """Compile-time numbers that follow from a parameter, with it; ``None`` where one must be known."""
        known, waiting = {name}, [name]
        while waiting:
            wanted = waiting.pop()
            for node in ast.walk(self._tree):
                if isinstance(node, ast.Name) and node.id == wanted and isinstance(node.ctx, ast.Load):
                    target = self._target(node)
                    if target is None:
                        return None
                    if target and target not in known:
                        known.add(target)
                        waiting.append(target)
        return known

    def dividing_vectors(self) -> set[str]:
        """Names in the divisors of vectors."""
        vectors = self._vectors()
        found: set[str] = set()
        for node in ast.walk(self._tree):
            match node:
                case ast.BinOp(left=left, op=ast.FloorDiv() | ast.Mod(), right=right) if _is_vector(
                    left, vectors
                ):
                    found |= _names(right)
        return found

    def only_compared(self, name: str) -> bool:
        """Whether every use of a parameter ends in a comparison."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
                up = self._parents[node]
                while isinstance(up, ast.BinOp):
                    up = self._parents[up]
                if not isinstance(up, ast.Compare):
                    return False
        return True

    def _vectors(self) -> set[str]:
        """Variables that have an element for each place of a tile."""
        found: set[str] = set()
        while True:
            before = len(found)
            for node in ast.walk(self._tree):
                match node:
                    case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_vector(value, found):
                        found.add(name)
            if len(found) == before:
                return found

    def _constant(self, node: ast.AST) -> bool:
        return _names(node) <= self._constants

    def _target(self, node: ast.AST) -> str | None:
        """The compile-time number that a use goes into; nothing where it ends among numbers of the run;
        ``None`` where it must be known."""
        while True:
            up = self._parents[node]
            match up:
                case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.keyword():
                    pass
                case ast.Call(func=function):
                    called = ast.unparse(function)
                    if called in USING:
                        return ""
                    if called not in PASSING:
                        return None
                case ast.AnnAssign(target=ast.Name(id=target)):
                    return target
                case ast.Assign(targets=[ast.Name(id=target)]):
                    self._constants.add(target)
                    return target
                case _:
                    return None
            if not isinstance(up, ast.keyword) and not self._constant(up):
                return ""
            node = up


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _is_vector(node: ast.AST, vectors: set[str]) -> bool:
    if not _names(node).isdisjoint(vectors):
        return True
    return any(isinstance(inner, ast.Attribute) and inner.attr == "arange" for inner in ast.walk(node))

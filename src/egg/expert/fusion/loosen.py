"""Compile-time sizes of a kernel as ordinary arguments, where it is called with too many of them.

Kernels take sizes as ``tl.constexpr``, because divisors and loop bounds that the compiler knows make faster
code. But every value of one is compiled anew, a good part of a second each. A kernel that the blocks of a
network call with a dozen numbers of channels takes these as plain integers instead: the compiler still learns
whether they are multiples of 16.

Only arithmetic can do with a number that is known at run time alone: the shape of a tile, a condition that
chooses code and the constants of other functions cannot. A size that gets there stays as it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

MOST = 4
"""Values of one size that a kernel may be compiled for."""
PASSING = frozenset({"tl.cdiv", "tl.minimum", "tl.maximum", "tl.where"})
"""Functions whose result depends on a number without needing to know it."""
USING = frozenset({"range", "tl.load", "tl.store", "tl.range"})
"""Functions that take any number."""


def loosened(text: str, names: Iterable[str]) -> str:
    """The kernel with those of ``names`` as plain arguments that can be."""
    for name in names:
        parameter = re.compile(rf"\b{name}: tl\.constexpr(?=\s*[,)])")
        following = _Uses(ast.parse(text)).following(name) if parameter.search(text) else None
        if following is None:
            continue
        text = parameter.sub(name, text, count=1)
        for other in following - {name}:
            text = re.sub(rf"\b{other}: tl\.constexpr = ", f"{other} = ", text)
    return text


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

    def _constant(self, node: ast.AST) -> bool:
        names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
        return names <= self._constants

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

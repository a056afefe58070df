"""Which sizes a kernel is compiled for, and which it is given when it runs.

A size that the compiler knows (``tl.constexpr``) makes quotients and remainders cheap and tells it how far
addresses are aligned; but every value of one is compiled anew, a good part of a second each. So:

*Sizes of the module* (channels, features) are the same in every call: they stay known, unless one kernel
serves blocks of a network with more than :data:`MOST` values of one.

*Sizes that the caller chooses* (what ``forward`` reads off the shape of an argument) are plain arguments
wherever that costs nothing:

- a leading one, such as the batch, everywhere: it scales grids, bounds and the outermost offset;
- any other one where a kernel only compares with it, as with the number of elements of a flat tensor, if
  Triton's own specialisation (whether an argument is a multiple of 16) says as much of the value at capture
  as the value itself did: a multiple of 16, or odd.

Lengths of rows and the sides of images stay known where they stand in addresses and loops: written as plain
arguments, the kernels of norms and of softmax are a fifth to a third longer. So does a size that divides a
vector of indices (such a quotient by a plain number is a dozen instructions for every element), one that only
the compiler can use (the shape of a tile, a condition that chooses code, the constant of another function),
the summed dimension of a product and the rows of its result. And so do all sizes of kernels whose tensors
need 64-bit offsets: products of plain arguments are 32 bits wide.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping

MOST = 4
"""Values of one size that a kernel may be compiled for."""
ALIGNED = 16
"""Triton compiles a kernel anew where an argument is a multiple of this, and where it is 1."""
PASSING = frozenset({"tl.cdiv", "tl.minimum", "tl.maximum", "tl.where"})
"""Functions whose result depends on a number without needing to know it."""
USING = frozenset({"range", "tl.load", "tl.store", "tl.range"})
"""Functions that take any number."""
LEADING = re.compile(r"\w+\.shape\[0\]")
READ = re.compile(r"[\w.\[\]]*\.shape\[-?\d+\]")


def is_free(text: str) -> bool:
    """Whether the caller chooses a size that ``forward`` finds by this text: by the shapes of arguments."""
    read = READ.findall(text)
    return bool(read) and not any(tensor.startswith("self") for tensor in read) and "self." not in text


def is_leading(text: str) -> bool:
    return is_free(text) and all(LEADING.fullmatch(tensor) for tensor in READ.findall(text))


def specialization_tells(value: int) -> bool:
    """Whether Triton's specialisation says as much of a number as the number itself would say."""
    return value % ALIGNED == 0 or value % 2 == 1


def with_runtime_sizes(text: str, names: Iterable[str]) -> str:
    """The kernel with those of ``names`` as plain arguments that can be."""
    for name in names:
        parameter = _parameter(name)
        following = _Uses(ast.parse(text)).following(name) if parameter.search(text) else None
        if following is not None:
            text = _plain(text, name, following)
    return text


def with_caller_sizes(text: str, names: Mapping[str, bool]) -> str:
    """The same for sizes that the caller chooses: one that divides vectors stays known, and one that is not
    leading (``names`` says which are) if it is used for more than comparisons."""
    for name, leading in names.items():
        if not _parameter(name).search(text):
            continue
        uses = _Uses(ast.parse(text))
        following = uses.following(name)
        if following is None or not following.isdisjoint(uses.dividing_vectors()):
            continue
        if leading or uses.only_compared(name):
            text = _plain(text, name, following)
    return text


def _parameter(name: str) -> re.Pattern[str]:
    return re.compile(rf"\b{name}: tl\.constexpr(?=\s*[,)])")


def _plain(text: str, name: str, following: set[str]) -> str:
    text = _parameter(name).sub(name, text, count=1)
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

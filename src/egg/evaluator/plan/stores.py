"""Which parameters of a kernel it may write through, read from its text.

A parameter counts as written where its name can reach the address of a store or of an atomic operation,
through assignments and calls of other kernels. What a load gives is a number and carries no address: text
that makes a pointer of a number is refused by the verifier (:data:`ADDRESSES`). Names are followed without
order and without branches, so a parameter may be listed that is never written; what cannot be followed is
``None``: all of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

WRITES = frozenset(
    ("store", "atomic_add", "atomic_and", "atomic_cas", "atomic_max", "atomic_min", "atomic_or",
     "atomic_xchg", "atomic_xor", "store_tensor_descriptor", "scatter")
)  # fmt: skip
"""Functions of the language, and methods of descriptors, that write to their first argument or receiver."""
READS = frozenset(("load", "load_tensor_descriptor", "gather"))
ADDRESSES = frozenset(("pointer_type", "int_to_ptr"))
"""With these a number becomes an address."""
Function = ast.FunctionDef


class Stores:
    """The kernels of one file, by name."""

    def __init__(self, functions: dict[str, Function]) -> None:
        self._functions = functions
        self._found: dict[str, frozenset[str] | None] = {}

    @classmethod
    def of_source(cls, source: str) -> Stores:
        tree = ast.parse(source)
        return cls({n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)})

    def of(self, name: str) -> frozenset[str] | None:
        """Parameters that kernel ``name`` may write through; ``None`` where that is not known."""
        if name not in self._found:
            self._found[name] = None  # of one that calls itself nothing is known
            if name in self._functions:
                self._found[name] = self._written(self._functions[name])
        return self._found[name]

    def _written(self, function: Function) -> frozenset[str] | None:
        names = parameters(function)
        reach: dict[str, set[str]] = {name: {name} for name in names}
        targets: set[str] = set()
        changed = True
        while changed:
            before = {n: len(r) for n, r in reach.items()}, len(targets)
            for node in ast.walk(function):
                for target, value in _bound(node):
                    reach.setdefault(target, set()).update(self._carried(value, reach))
                if isinstance(node, ast.Call):
                    written = self._call(node, reach)
                    if written is None:
                        return None
                    targets |= written
            changed = before != ({n: len(r) for n, r in reach.items()}, len(targets))
        return frozenset(targets & set(names))

    def _call(self, node: ast.Call, reach: dict[str, set[str]]) -> set[str] | None:
        """Parameters that a call may write through."""
        name = _last(node.func)
        if name in ("inline_asm_elementwise", "extern_elementwise"):
            return self._carried(node, reach)
        if name in WRITES:
            given = [*node.args[:1], *(k.value for k in node.keywords if k.arg in ("pointer", "desc"))]
            receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            return set().union(*(self._carried(v, reach) for v in (*given, *receiver)))
        if isinstance(node.func, ast.Name) and node.func.id in self._functions:
            stored = self.of(node.func.id)
            if stored is None:
                return None
            named = parameters(self._functions[node.func.id])
            if any(isinstance(a, ast.Starred) for a in node.args) or any(
                k.arg is None for k in node.keywords
            ):
                return None
            given = [*zip(named, node.args, strict=False), *((str(k.arg), k.value) for k in node.keywords)]
            return set().union(*(self._carried(v, reach) for n, v in given if n in stored))
        if isinstance(node.func, ast.Name) and node.func.id in reach:
            return None  # a function that was handed over
        return set()

    def _carried(self, value: ast.AST, reach: dict[str, set[str]]) -> set[str]:
        """Parameters whose addresses an expression may hold."""
        found: set[str] = set()
        for name in _addresses(value):
            found |= reach.get(name, set())
        return found


def parameters(function: Function) -> list[str]:
    a = function.args
    return [p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)]


def _addresses(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and _last(node.func) in READS:
        return
    if isinstance(node, ast.Name):
        yield node.id
    for child in ast.iter_child_nodes(node):
        yield from _addresses(child)


def _bound(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    pairs: list[tuple[ast.AST, ast.AST | None]] = []
    if isinstance(node, ast.Assign):
        pairs = [(target, node.value) for target in node.targets]
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr):
        pairs = [(node.target, node.value)]
    elif isinstance(node, ast.For | ast.comprehension):
        pairs = [(node.target, node.iter)]
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        pairs = [(node.optional_vars, node.context_expr)]
    for target, value in pairs:
        for name in ast.walk(target):
            if isinstance(name, ast.Name) and value is not None:
                yield name.id, value


def _last(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")

"""Which parameters of a kernel it may write through, read from its text.

A parameter counts as written where its name can reach the address of a store or of an atomic operation,
through assignments and calls of other kernels. What a load gives is a number and carries no address: text
that makes a pointer of a number is refused by the verifier (:data:`ADDRESSES`) or counts as writing to
everything. Names are followed without order and without branches, so a parameter may be listed that is
never written. A callee is what the file's imports say it is; where that is not known, and where anything
else cannot be followed, the answer is ``None``: all of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

WRITES = frozenset(
    ("store", "atomic_add", "atomic_and", "atomic_cas", "atomic_load", "atomic_max", "atomic_min",
     "atomic_or", "atomic_poll", "atomic_store", "atomic_xchg", "atomic_xor", "store_tensor_descriptor",
     "scatter")
)  # fmt: skip
"""Functions of the language, and methods of descriptors, that write to their first argument or receiver."""
READS = frozenset(("load", "load_tensor_descriptor"))
ADDRESSES = frozenset(("pointer_type", "int_to_ptr", "str_to_ty", "pi32_t", "block_type", "to_ir"))
"""With these a number becomes an address."""
CODE = frozenset(("inline_asm_elementwise", "extern_elementwise"))
WRITING = ("store", "atomic", "scatter", "copy", "async", "asm", "extern")
"""Parts of names of functions that write in ways that are not known here."""
BUILTINS = frozenset(
    ("range", "min", "max", "abs", "float", "int", "bool", "len", "tuple", "print", "isinstance")
)
"""Names of Python's that a kernel may use."""
LANGUAGE = "triton.language"
PARTS = frozenset(("math", "extra", "libdevice", "core", "standard", "random", "cuda", "hip"))
"""Modules of the language."""
Function = ast.FunctionDef


def imports_of(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Each name that an import binds, with what it stands for."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"
        elif alias.asname:
            yield alias.asname, alias.name
        else:
            yield alias.name.split(".")[0], alias.name.split(".")[0]


def is_language(path: str) -> bool:
    """Whether a dotted path is a function of the language, in one of its modules that are known here."""
    if path == "triton.cdiv":
        return True
    rest = path.removeprefix(f"{LANGUAGE}.").split(".")
    return path.startswith(f"{LANGUAGE}.") and PARTS.issuperset(rest[:-1]) and rest[-1] not in PARTS


class Stores:
    """The kernels of one file, by name."""

    def __init__(self, functions: Mapping[str, Function], imported: Mapping[str, str]) -> None:
        self._functions = functions
        self._imported = imported
        self._found: dict[str, frozenset[str] | None] = {}

    @classmethod
    def of_source(cls, source: str) -> Stores:
        tree = ast.parse(source)
        imports = (n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom))
        return cls(
            {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)},
            dict(pair for node in imports for pair in imports_of(node)),
        )

    def of(self, name: str) -> frozenset[str] | None:
        """Parameters that kernel ``name`` may write through, and (:func:`type_of`) those of which it asks the
        type, which makes a pointer of a number if it is a pointer's; ``None`` where that is not known."""
        if name not in self._found:
            self._found[name] = None  # of one that calls itself nothing is known
            if name in self._functions:
                self._found[name] = self._written(self._functions[name])
        return self._found[name]

    def _written(self, function: Function) -> frozenset[str] | None:
        names = parameters(function)
        reach: dict[str, set[str]] = {name: {name} for name in names}
        targets: set[str] = set()
        inside = [node for part in function.body for node in ast.walk(part)]
        elements = {id(n.value) for n in inside if isinstance(n, ast.Attribute) and n.attr == "element_ty"}
        changed = True
        while changed:
            before = {n: len(r) for n, r in reach.items()}, len(targets)
            for node in inside:
                for target, value in _bound(node):
                    reach.setdefault(target, set()).update(self._carried(value, reach))
            for node in inside:
                written = self._node(node, elements, reach)
                if written is None:
                    return None
                targets |= written
            changed = before != ({n: len(r) for n, r in reach.items()}, len(targets))
        return frozenset(targets & {*names, *map(type_of, names)})

    def _node(self, node: ast.AST, elements: set[int], reach: dict[str, set[str]]) -> set[str] | None:
        """Parameters that one expression may write through."""
        if isinstance(node, ast.Call):
            return self._call(node, reach)
        if isinstance(node, ast.Attribute) and node.attr in ADDRESSES:
            return None
        if isinstance(node, ast.Attribute) and node.attr in ("dtype", "type") and id(node) not in elements:
            return set(map(type_of, self._carried(node.value, reach)))
        return set()

    def _call(self, node: ast.Call, reach: dict[str, set[str]]) -> set[str] | None:
        for given in (*node.args, *(k.value for k in node.keywords)):
            inner = given.value if isinstance(given, ast.Starred) else given
            if isinstance(inner, ast.Name) and inner.id in self._functions and self.of(inner.id) != set():
                return None  # a kernel that stores is handed over
        kind, name = self._callee(node.func, reach)
        if kind == "kernel":
            return self._kernel(node, name, reach)
        if kind == "unknown":
            return None
        if name in CODE:
            return self._carried(node, reach)
        if name in WRITES:
            given = [*node.args[:1], *(k.value for k in node.keywords if k.arg in ("pointer", "desc"))]
            receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            return set().union(*(self._carried(v, reach) for v in (*given, *receiver)))
        return None if any(part in name for part in WRITING) else set()

    def _callee(self, function: ast.expr, reach: Mapping[str, set[str]]) -> tuple[str, str]:
        """What is called: ``kernel``, ``language``, ``method`` (of a value), ``builtin`` or ``unknown``."""
        parts = []
        root = function
        while isinstance(root, ast.Attribute):
            parts.append(root.attr)
            root = root.value
        parts.reverse()
        if not isinstance(root, ast.Name):
            return ("method", parts[-1]) if parts else ("unknown", "")
        if root.id in reach:
            return ("method", parts[-1]) if parts else ("unknown", root.id)
        if root.id in self._functions:
            return ("unknown" if parts else "kernel"), root.id
        if root.id in self._imported:
            path = ".".join([self._imported[root.id], *parts])
            return ("language" if is_language(path) else "unknown"), path.rpartition(".")[2]
        if not parts and root.id in BUILTINS:
            return "builtin", root.id
        return "unknown", root.id

    def _kernel(self, node: ast.Call, name: str, reach: dict[str, set[str]]) -> set[str] | None:
        stored = self.of(name)
        if stored is None:
            return None
        named = parameters(self._functions[name])
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            return None
        given = [*zip(named, node.args, strict=False), *((str(k.arg), k.value) for k in node.keywords)]
        found = set().union(*(self._carried(v, reach) for n, v in given if n in stored))
        return found.union(*(map(type_of, self._carried(v, reach)) for n, v in given if type_of(n) in stored))

    def _carried(self, value: ast.AST, reach: dict[str, set[str]]) -> set[str]:
        """Parameters whose addresses an expression may hold."""
        found: set[str] = set()
        for name in self._addresses(value, reach):
            found |= reach.get(name, set())
        return found

    def _addresses(self, node: ast.AST, reach: Mapping[str, set[str]]) -> Iterator[str]:
        if isinstance(node, ast.Call):
            kind, name = self._callee(node.func, reach)
            if kind in ("language", "method") and name in READS:
                return
        if isinstance(node, ast.Name):
            yield node.id
        for child in ast.iter_child_nodes(node):
            yield from self._addresses(child, reach)


def parameters(function: Function) -> list[str]:
    a = function.args
    return [p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)]


def type_of(parameter: str) -> str:
    return f"{parameter}.dtype"


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

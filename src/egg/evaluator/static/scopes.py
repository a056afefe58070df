"""Who is who in a kernel file: scopes, bindings, and the dotted path a name stands for.

The resolver is flow-insensitive and deliberately pessimistic: a name stands for everything that is
ever bound to it, so ``t = torch`` in one branch and ``t = x`` in another makes ``t.ops`` an access to
``torch.ops``. Python's own scoping is followed where ignoring it would let a name hide: comprehension
targets are local to the comprehension, class bodies are invisible to the functions inside them, and a
name bound in a class or module body may still fall through to the scope outside it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


MAX_STEPS = 300_000
MAX_DEPTH = 100
"""Resolving the names of an ordinary kernel file takes some thousand steps, each a few names deep."""


class TangledError(Exception):
    """The names of the file lead through so many others that following them would take for ever."""


@dataclass(frozen=True)
class Imported:
    path: str


@dataclass(frozen=True)
class Assigned:
    value: ast.expr


@dataclass(frozen=True)
class Defined:
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Opaque:
    """A parameter, a loop variable, part of an unpacking: bound to something not followed here."""


Binding = Imported | Assigned | Defined | Opaque


@dataclass(eq=False)
class Scope:
    node: ast.AST
    kind: str
    """``module``, ``class`` or ``function`` (lambdas and comprehensions are functions)."""
    parent: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    outer: dict[str, str] = field(default_factory=dict)
    """Names declared ``global`` or ``nonlocal`` here."""

    def target_of(self, name: str) -> Scope:
        """The scope that an assignment to ``name`` in this one really binds in."""
        if self.outer.get(name) == "global":
            return self.module
        if self.outer.get(name) == "nonlocal":
            scope = self.parent
            while scope and (scope.kind != "function" or name not in scope.bindings) and scope.parent:
                scope = scope.parent
            return scope or self
        return self

    @property
    def module(self) -> Scope:
        return self.parent.module if self.parent else self


class Program:
    """A parsed kernel file with its scopes; every rule asks its questions here."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.root = Scope(tree, "module", None)
        self.scope_of: dict[ast.AST, Scope] = {}
        self.parent_of: dict[ast.AST, ast.AST] = {}
        self.inner_scope: dict[ast.AST, Scope] = {}
        self._steps = 0
        self._enter(tree, self.root)

    def nodes(self) -> Iterator[ast.AST]:
        return iter(self.scope_of)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self.parent_of:
            node = self.parent_of[node]
            yield node

    def function_of(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The innermost ``def`` whose body contains the node."""
        child = node
        for up in self.ancestors(node):
            if isinstance(up, ast.FunctionDef | ast.AsyncFunctionDef) and child in up.body:
                return up
            child = up
        return None

    def class_of(self, function: ast.AST) -> ast.ClassDef | None:
        up = self.parent_of.get(function)
        return up if isinstance(up, ast.ClassDef) else None

    # -- building ------------------------------------------------------------------------------

    def _enter(self, node: ast.AST, scope: Scope) -> None:
        self.scope_of[node] = scope
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._bind(scope, node.name, Defined(node))
            self._function(node, scope)
        elif isinstance(node, ast.Lambda):
            self._function(node, scope)
        elif isinstance(node, ast.ClassDef):
            self._bind(scope, node.name, Defined(node))
            inner = self._new(node, "class", scope)
            for part in ast.iter_child_nodes(node):
                self._child(node, part, inner if part in node.body else scope)
        elif isinstance(node, COMPREHENSIONS):
            self._comprehension(node, scope)
        else:
            self._record(node, scope)
            for part in ast.iter_child_nodes(node):
                self._child(node, part, scope)

    def _child(self, node: ast.AST, part: ast.AST, scope: Scope) -> None:
        self.parent_of[part] = node
        self._enter(part, scope)

    def _new(self, node: ast.AST, kind: str, parent: Scope) -> Scope:
        inner = Scope(node, kind, parent)
        self.inner_scope[node] = inner
        return inner

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: Scope) -> None:
        """Defaults, decorators and annotations belong to the scope outside; parameters and body inside."""
        inner = self._new(node, "function", scope)
        body = node.body if isinstance(node.body, list) else [node.body]
        for statement in body:
            for sub in ast.walk(statement):
                if isinstance(sub, ast.Global | ast.Nonlocal):
                    inner.outer.update(dict.fromkeys(sub.names, type(sub).__name__.lower()))
        for argument in arguments(node):
            inner.bindings.setdefault(argument.arg, []).append(Opaque())
        for part in ast.iter_child_nodes(node):
            self._child(node, part, inner if part in body else scope)

    def _comprehension(self, node: ast.AST, scope: Scope) -> None:
        inner = self._new(node, "function", scope)
        generators: list[ast.comprehension] = node.generators  # type: ignore[attr-defined]
        for part in ast.iter_child_nodes(node):
            self._child(node, part, inner)
        first = generators[0].iter
        for sub in ast.walk(first):
            if self.scope_of.get(sub) is inner:
                self.scope_of[sub] = scope

    def _record(self, node: ast.AST, scope: Scope) -> None:
        match node:
            case ast.Import():
                for name in node.names:
                    path = name.name if name.asname else name.name.split(".")[0]
                    self._bind(scope, name.asname or path, Imported(path))
            case ast.ImportFrom():
                for name in node.names:
                    self._bind(scope, name.asname or name.name, Imported(f"{node.module}.{name.name}"))
            case ast.Assign():
                for target in node.targets:
                    self._assign(target, node.value, scope)
            case ast.AnnAssign() if node.value is not None:
                self._assign(node.target, node.value, scope)
            case ast.NamedExpr():
                while isinstance(scope.node, COMPREHENSIONS) and scope.parent:
                    scope = scope.parent
                self._assign(node.target, node.value, scope)
            case ast.Name(ctx=ast.Store() | ast.Del()) if not self._is_plain_target(node):
                self._bind(scope, node.id, Opaque())
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                self._bind(scope, name, Opaque())

    def _is_plain_target(self, node: ast.AST) -> bool:
        up = self.parent_of.get(node)
        return isinstance(up, ast.Assign | ast.NamedExpr) or (
            isinstance(up, ast.AnnAssign) and up.value is not None
        )

    def _assign(self, target: ast.expr, value: ast.expr, scope: Scope) -> None:
        """``a = v`` and ``a, b = v, w`` are followed; other unpackings bind opaquely by their Store names."""
        if isinstance(target, ast.Name):
            self._bind(scope, target.id, Assigned(value))
        elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            starred = any(isinstance(e, ast.Starred) for e in (*target.elts, *value.elts))
            if not starred and len(target.elts) == len(value.elts):
                for one, other in zip(target.elts, value.elts, strict=True):
                    self._assign(one, other, scope)

    def _bind(self, scope: Scope, name: str, binding: Binding) -> None:
        scope.target_of(name).bindings.setdefault(name, []).append(binding)

    # -- asking --------------------------------------------------------------------------------

    def lookup(self, name: str, scope: Scope) -> tuple[list[tuple[Binding, Scope]], bool]:
        """All bindings ``name`` may refer to, and whether it is surely local to a function."""
        found: list[tuple[Binding, Scope]] = []
        at: Scope | None = scope
        while at:
            visible = at.kind != "class" or at is scope
            if at.outer.get(name) == "global":
                at = at.module
                visible = True
            if visible and name in at.bindings:
                found += [(b, at) for b in at.bindings[name]]
                if at.kind == "function":
                    return found, True
            at = at.parent
        return found, False

    def paths(self, node: ast.expr, _seen: frozenset[ast.expr] = frozenset()) -> frozenset[str]:
        """Every dotted path of an imported thing that the expression may stand for."""
        self._steps += 1
        if self._steps > MAX_STEPS or len(_seen) > MAX_DEPTH:
            raise TangledError
        if node in _seen or node not in self.scope_of:
            return frozenset()
        seen = _seen | {node}
        match node:
            case ast.Name():
                out: set[str] = set()
                for binding, _ in self.lookup(node.id, self.scope_of[node])[0]:
                    if isinstance(binding, Imported):
                        out.add(binding.path)
                    elif isinstance(binding, Assigned):
                        out |= self.paths(binding.value, seen)
                return frozenset(out)
            case ast.Attribute():
                return frozenset(f"{p}.{node.attr}" for p in self.paths(node.value, seen))
            case ast.Call(func=ast.Name(id="getattr"), args=[receiver, ast.Constant(value=str(name)), *_]):
                return frozenset(f"{p}.{name}" for p in self.paths(receiver, seen))
            case ast.IfExp():
                return self.paths(node.body, seen) | self.paths(node.orelse, seen)
            case ast.BoolOp():
                return frozenset().union(*(self.paths(v, seen) for v in node.values))
            case ast.NamedExpr():
                return self.paths(node.value, seen)
        return frozenset()

    def definitions(self, node: ast.expr) -> Iterator[ast.AST]:
        """The ``def`` or ``class`` statements of this file that a name may stand for."""
        if isinstance(node, ast.Name) and node in self.scope_of:
            for binding, _ in self.lookup(node.id, self.scope_of[node])[0]:
                if isinstance(binding, Defined):
                    yield binding.node


def arguments(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.arg]:
    a = node.args
    extra = [x for x in (a.vararg, a.kwarg) if x]
    return [*a.posonlyargs, *a.args, *a.kwonlyargs, *extra]


def line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)

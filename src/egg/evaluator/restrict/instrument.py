"""The tree that runs: the one that was read, with guards where an object decides.

A name that only imports bind stands for what the static gate resolved it to: where that is a module, what is
dotted onto it was judged by its path and stays native. On every other receiver a guard is put in front of

- a read of a private name, or of one behind which a loaded module has a module or a refused function;
- every assignment to an attribute: ``r.a = v`` becomes ``store(r, "a").a = v``, which evaluates ``r`` once.

What leaves a special method as an exception is noted (:mod:`~egg.evaluator.restrict.raised`).

The block behind ``if __name__ == "__main__":`` never runs here, so it is left out. Line numbers stay.
"""

from __future__ import annotations

import ast

from egg.evaluator.restrict.guards import KEEP, KEPT_OF_MODULES, LOAD, LOOKED_AT, NOTE, STORE
from egg.evaluator.restrict.names import RestrictedError, is_dunder, is_private, refused_name
from egg.evaluator.static.main_block import without_main_block
from egg.evaluator.static.namespaces import is_module
from egg.evaluator.static.scopes import Imported, Program

WHOLE = frozenset(["bool", "bytes", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple"])
"""Classes whose positional pattern stands for the object itself; others read what ``__match_args__`` says."""


PLAINLY_CALLED = frozenset(["__init__", "__post_init__", "__call__"])
"""Special methods whose exceptions reach whoever calls them."""


def instrumented(tree: ast.Module, guarded: frozenset[str]) -> ast.Module:
    tree = without_main_block(tree)
    return ast.fix_missing_locations(_Instrument(Program(tree), guarded).visit(tree))


class _Instrument(ast.NodeTransformer):
    def __init__(self, program: Program, guarded: frozenset[str]) -> None:
        self._program = program
        self._guarded = guarded
        self._called: ast.expr | None = None
        """What the call that is being visited calls."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self._called = node.func
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        if is_dunder(node.name) and node.name not in PLAINLY_CALLED:
            noted = ast.Expr(ast.Call(ast.Name(NOTE, ast.Load()), [], []))
            leaving = ast.ExceptHandler(None, None, [noted, ast.Raise(None, None)])
            node.body = [ast.copy_location(ast.Try(node.body, [leaving], [], []), node.body[0])]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        known, called = self._is_module(node.value), self._called is node
        node.value = self.visit(node.value)
        if isinstance(node.ctx, ast.Store | ast.Del):
            node.value = _call(STORE, node, node.value)
        elif node.attr in LOOKED_AT or (not known and self._is_guarded(node.attr)):
            return _call(LOAD if called else KEEP, node, node.value)
        return node

    def visit_MatchClass(self, node: ast.MatchClass) -> ast.MatchClass:
        for name in node.kwd_attrs:
            if refused_name(name) or name in self._guarded or is_private(name) or name in LOOKED_AT:
                raise RestrictedError(f"line {node.lineno}: a pattern reads .{name}")
        if node.patterns and not (isinstance(node.cls, ast.Name) and node.cls.id in WHOLE):
            raise RestrictedError(f"line {node.lineno}: a pattern reads attributes that a class names")
        self.generic_visit(node)
        return node

    def _is_guarded(self, name: str) -> bool:
        return name in self._guarded or name in KEPT_OF_MODULES or is_private(name)

    def _only_imported(self, node: ast.expr) -> bool:
        while isinstance(node, ast.Attribute):
            node = node.value
        if not isinstance(node, ast.Name) or node not in self._program.scope_of:
            return False
        found, _ = self._program.lookup(node.id, self._program.scope_of[node])
        return bool(found) and all(isinstance(binding, Imported) for binding, _ in found)

    def _is_module(self, node: ast.expr) -> bool:
        """An expression of names that only imports bind, and that leads to modules alone."""
        return self._only_imported(node) and all(map(is_module, self._program.paths(node)))


def _call(guard: str, node: ast.Attribute, receiver: ast.expr) -> ast.Call:
    call = ast.Call(ast.Name(guard, ast.Load()), [receiver, ast.Constant(node.attr)], [])
    return ast.copy_location(call, node)

"""The constructor of a plan: the task's own, so that nothing of the author's constructor is used.

Of the task's file the class ``Model`` is taken, with the classes, functions and constants that building it
needs. Every ``forward``, and every method that no name in the rest mentions, is left out: it is not there to
be called. The verifier makes the same from the task and compares.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

from egg.evaluator.plan.kernels import bound_names
from egg.evaluator.plan.spelling import Unspelled

PLAIN = "let the task define Model as a class at module level, with a plain forward"


@dataclass(frozen=True)
class Skeleton:
    imports: tuple[ast.stmt, ...]
    before: tuple[ast.stmt, ...]
    """Statements of the task's module, in order; among them the class ``Model``."""
    parameters: tuple[str, ...]
    """What ``forward`` takes, without ``self``."""
    signature: str
    """The same with the defaults, as text."""
    built: str
    """What the constructor takes, as text."""
    handed: tuple[str, ...]
    """How each of these is handed on: ``width``, ``*rest``, ``key=key``."""


def skeleton(task_source: str) -> Skeleton:
    tree = _without_docstrings(ast.parse(task_source))
    bound: dict[str, list[ast.stmt]] = {}
    for node in tree.body:
        for name in bound_names(node):
            bound.setdefault(name, []).append(node)
    models = bound.get("Model", [])
    if len(models) != 1 or not isinstance(models[0], ast.ClassDef):
        raise Unspelled("the task's Model is no class that is defined once", PLAIN)
    original = models[0]
    forward = next((n for n in original.body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None)
    if forward is None:
        raise Unspelled("the task's Model does not define forward itself", PLAIN)
    given = forward.args
    if given.vararg or given.kwarg or given.kwonlyargs or not (given.posonlyargs or given.args):
        raise Unspelled("the task's forward takes any number of arguments, or some by keyword only", PLAIN)
    wanted = _wanted(original, bound)
    kept = [n for n in tree.body if any(n is w for w in wanted)]
    mentioned = _mentioned(kept)
    before = [_reduced(n, mentioned) if isinstance(n, ast.ClassDef) else n for n in kept]
    imports = tuple(n for n in before if isinstance(n, ast.Import | ast.ImportFrom))
    names = tuple(a.arg for a in (*given.posonlyargs, *given.args))[1:]
    init = next((n for n in original.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    if init is None and not _is_module(original):
        raise Unspelled("the task's Model inherits its constructor", PLAIN)
    built, handed = _constructor(init)
    return Skeleton(
        imports, tuple(n for n in before if n not in imports), names, _plain(given), built, handed
    )


def _is_module(model: ast.ClassDef) -> bool:
    return len(model.bases) == 1 and ast.unparse(model.bases[0]).rpartition(".")[2] == "Module"


def _constructor(init: ast.FunctionDef | None) -> tuple[str, tuple[str, ...]]:
    if init is None:
        return "self", ()
    given = init.args
    handed = [a.arg for a in (*given.posonlyargs, *given.args)][1:]
    handed += [f"*{given.vararg.arg}"] if given.vararg else []
    handed += [f"{a.arg}={a.arg}" for a in given.kwonlyargs]
    handed += [f"**{given.kwarg.arg}"] if given.kwarg else []
    return _plain(given), tuple(handed)


def _plain(given: ast.arguments) -> str:
    """Arguments with their defaults, without annotations."""
    plain = copy.deepcopy(given)
    for argument in ast.walk(plain):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return ast.unparse(plain)


def _wanted(model: ast.ClassDef, bound: dict[str, list[ast.stmt]]) -> list[ast.stmt]:
    """What building the model mentions, directly or not. Methods are reduced first, as far as it is known."""
    found: list[ast.stmt] = [model]
    while True:
        mentioned = _mentioned(found)
        names = {
            n.id
            for statement in found
            for n in _used(
                _reduced(statement, mentioned) if isinstance(statement, ast.ClassDef) else statement
            )
        }
        more = [n for name in sorted(names) for n in bound.get(name, []) if not any(n is f for f in found)]
        if not more:
            return found
        found += list({id(n): n for n in more}.values())


def _used(node: ast.AST, own: frozenset[str] = frozenset()) -> Iterator[ast.Name]:
    """Names but for those that are arguments of the function they stand in."""
    if isinstance(node, ast.Name) and node.id not in own:
        yield node
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        own |= {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
    for child in ast.iter_child_nodes(node):
        yield from _used(child, own)


def _mentioned(statements: list[ast.stmt]) -> set[str]:
    """Names of attributes that constructors lead to; grows until nothing is added."""
    found = {"__init__"}
    while True:
        before = len(found)
        for statement in statements:
            part = _reduced(statement, found) if isinstance(statement, ast.ClassDef) else statement
            found |= {n.attr for n in ast.walk(part) if isinstance(n, ast.Attribute)}
        if len(found) == before:
            return found


def _reduced(node: ast.ClassDef, mentioned: set[str]) -> ast.ClassDef:
    made = copy.copy(node)
    made.body = [
        n
        for n in node.body
        if not isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
        or (n.name in mentioned and n.name != "forward")
    ] or [ast.Pass()]
    return made


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return tree

"""The constructor of a plan: the task's own, so that nothing of the author's constructor is used.

Of the task's file the class ``Model`` is taken, with the classes, functions and constants that building it
needs, and with statements that change one of these. Of a class every method is kept but ``forward`` and
what only a ``forward`` leads to; one that nothing mentions may be called by the class it overrides
(``reset_parameters``, ``__post_init__``). The verifier makes the same from the task and compares, and the
judge compares what the two constructors make (:mod:`egg.evaluator.judge.constructors`).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

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
    before = _reduced(_wanted(original, bound, tree.body))
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


def _wanted(model: ast.ClassDef, bound: dict[str, list[ast.stmt]], body: list[ast.stmt]) -> list[ast.stmt]:
    """What building the model leads to, in the order of the file."""
    found: list[ast.stmt] = [model]
    while True:
        names = {n.id for statement in _reduced(found) for n in _used(statement)}
        more = [n for name in sorted(names) for n in bound.get(name, [])]
        own = {
            name for n in found if not isinstance(n, ast.Import | ast.ImportFrom) for name in bound_names(n)
        }
        more += [n for n in body if _acts(n) and own & _reached(n, bound)]
        new = {id(n): n for n in more if not any(n is f for f in found)}
        if not new:
            return [n for n in body if any(n is f for f in found)]
        found += new.values()


def _acts(node: ast.stmt) -> bool:
    """Whether a statement of the module does something else than to bind names."""
    named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom
    if isinstance(node, named) or (isinstance(node, ast.Assign | ast.AnnAssign) and any(bound_names(node))):
        return False
    return not any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(node))


def _reached(node: ast.stmt, bound: dict[str, list[ast.stmt]]) -> set[str]:
    """Names that a statement uses, itself or in the functions of the file that it mentions."""
    found: set[str] = set()
    parts: list[ast.stmt] = [node]
    while parts:
        new = {n.id for n in _used(parts.pop())} - found
        found |= new
        parts += [f for name in new for f in bound.get(name, []) if isinstance(f, ast.FunctionDef)]
    return found


def _used(node: ast.AST, own: frozenset[str] = frozenset()) -> Iterator[ast.Name]:
    """Names but for those that are arguments of the function they stand in."""
    if isinstance(node, ast.Name) and node.id not in own:
        yield node
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        own |= {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
    for child in ast.iter_child_nodes(node):
        yield from _used(child, own)


def _reduced(statements: list[ast.stmt]) -> list[ast.stmt]:
    """Without the methods that only a call of the module leads to."""
    methods = [
        (owner, method)
        for owner in statements
        if isinstance(owner, ast.ClassDef)
        for method in owner.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    left_out = {id(method) for _, method in methods if method.name == "forward"}
    while True:
        gone = {name for _, method in methods if id(method) in left_out for name in _mentioned(method)}
        kept = [_without(n, left_out) if isinstance(n, ast.ClassDef) else n for n in statements]
        needed = {name for part in kept for name in _mentioned(part)}
        more = {
            id(method)
            for owner, method in methods
            if method.name not in needed
            and not hasattr(nn.Module, method.name)
            and not method.name.startswith("__")
            and (method.name in gone or _is_module(owner))
        } - left_out
        if not more:
            return kept
        left_out |= more


def _mentioned(node: ast.AST) -> set[str]:
    """Names of attributes, and texts, by which attributes are found as well."""
    return {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)} | {
        n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    }


def _without(node: ast.ClassDef, methods: set[int]) -> ast.ClassDef:
    made = copy.copy(node)
    made.body = [n for n in node.body if id(n) not in methods] or [ast.Pass()]
    return made


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return tree

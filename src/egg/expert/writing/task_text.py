"""Small questions about the statements of a task's text."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from egg.expert.emit.names import bound_names


def changed_names(statement: ast.stmt) -> set[str]:
    """Names that a top-level statement binds, or whose object it changes (``CONFIG["a"] = 1``)."""
    found = bound_names(statement)
    match statement:
        case ast.Assign(targets=targets):
            found |= {_root(t) for t in targets if isinstance(t, ast.Subscript | ast.Attribute)}
        case ast.AugAssign(target=ast.Subscript() | ast.Attribute() as target):
            found.add(_root(target))
        case ast.Expr(value=ast.Call(func=ast.Attribute() as called)):
            found.add(_root(called))
    imported = isinstance(statement, ast.Expr) and found & {"torch", "th", "random", "np", "warnings"}
    return set() if imported else found - {""}


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def aliases(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    """Names that an import binds, and the dotted paths they stand for."""
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            top = alias.name.split(".")[0]
            yield (alias.asname, alias.name) if alias.asname else (top, top)
    elif isinstance(statement, ast.ImportFrom):
        for alias in statement.names:
            yield alias.asname or alias.name, f"{statement.module}.{alias.name}"


def runs_a_layer(piece: ast.AST) -> bool:
    """Whether a constructor calls something it has built: ``self.features(torch.zeros(1, 3, 32, 32))``."""
    if not isinstance(piece, ast.FunctionDef):
        return False
    made: set[str] = set()
    for node in ast.walk(piece):
        match node:
            case ast.Assign(targets=[target], value=ast.Call(func=called)):
                if "partial" not in ast.unparse(called):
                    made.add(ast.unparse(target))
    calls = (ast.unparse(node.func) for node in ast.walk(piece) if isinstance(node, ast.Call))
    return piece.name != "forward" and any(call in made for call in calls)


def parameter_texts(arguments: ast.arguments) -> Iterator[str]:
    """The parameters of a function as a formatter would write them."""
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults)) + [*arguments.defaults]
    for place, (argument, default) in enumerate(zip(plain, defaults, strict=True)):
        yield _parameter(argument, default)
        if arguments.posonlyargs and place + 1 == len(arguments.posonlyargs):
            yield "/"
    if arguments.vararg is not None:
        yield "*" + _parameter(arguments.vararg, None)
    elif arguments.kwonlyargs:
        yield "*"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(argument, default)
    if arguments.kwarg is not None:
        yield "**" + _parameter(arguments.kwarg, None)


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg
    equals = "="
    if argument.annotation is not None:
        text, equals = f"{text}: {ast.unparse(argument.annotation)}", " = "
    return text if default is None else text + equals + ast.unparse(default)


def first_line(statement: ast.stmt) -> int:
    return min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", ()))])


def is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)

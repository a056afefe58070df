"""Nothing in a file may depend on whether the judge runs it.

Under restricted execution some built-ins and functions of the standard library are stand-ins: they do the
same, and are other objects. So a file calls them, or decorates with them, and does nothing else with them:
printed, compared or asked for a name they would show who runs the file. The file's own ``__name__`` is what
the caller chose, and is for a logger alone; the block behind ``if __name__ == "__main__":`` is not looked at.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from egg.evaluator.static.findings import Finding
from egg.evaluator.static.scopes import Program, line
from egg.evaluator.static.vocabulary import CUDA, STANDARD, words

BUILTINS = frozenset(words("getattr hasattr setattr dir type"))
GUARDED: dict[str, frozenset[str]] = {
    "functools": frozenset(words("wraps total_ordering lru_cache cache")),
    "dataclasses": frozenset(words("dataclass fields replace asdict astuple")),
    "abc": frozenset(["ABCMeta"]),
    "logging": frozenset(words("getLogger debug info warning error critical basicConfig")),
    "warnings": STANDARD["warnings"] or frozenset(),
    "torch.library": frozenset(["custom_op"]),
    "torch.cuda": CUDA,
    "torch": frozenset(words("asarray as_tensor from_numpy")),
}
"""Functions for which restricted execution, or a worker, has its own."""
TENSOR_METHODS = frozenset(words("tolist apply_ map_ map2_"))
"""Methods of a tensor, likewise; the objects decide whose they are."""
KERNEL_METHODS = frozenset(words("run warmup add_pre_run_hook"))
"""Of a kernel."""
PATHS = frozenset(f"{module}.{name}" for module, names in GUARDED.items() for name in names)
TESTS = ("isinstance", "issubclass")
LOGGER = "logging.getLogger"


def find(program: Program) -> Iterator[Finding]:
    for node in program.nodes():
        if not _is_read(node):
            continue
        if isinstance(node, ast.Name) and node.id == "__name__":
            if not _names_a_logger(program, node):
                yield Finding(line(node), "static.dynamic", "reads __name__, which the caller chooses")
        elif (name := _stand_in(program, node)) and not _is_used_plainly(program, node):
            yield Finding(line(node), "static.dynamic", f"keeps {name} as a value instead of calling it")


def _is_read(node: ast.AST) -> TypeGuard[ast.expr]:
    """A name, an attribute, or ``getattr`` of one by a literal name."""
    if isinstance(node, ast.Name | ast.Attribute):
        return isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.Call)


def _stand_in(program: Program, node: ast.expr) -> str:
    """The built-in or the path that the expression may stand for, where it is a stand-in."""
    if isinstance(node, ast.Name) and node.id in BUILTINS:
        _, local = program.lookup(node.id, program.scope_of[node])
        return "" if local else node.id
    return next(iter(sorted(program.paths(node) & PATHS)), "")


def _is_used_plainly(program: Program, node: ast.expr) -> bool:
    """Called, a decorator, a metaclass, given another name, or a class in an annotation or a test."""
    up = program.parent_of[node]
    match up:
        case ast.Call(func=func) if func is node:
            return True
        case ast.FunctionDef() | ast.ClassDef() if node in up.decorator_list:
            return True
        case ast.keyword(arg="metaclass") | ast.MatchClass():
            return True
        case ast.Assign(targets=targets) if not isinstance(node, ast.Name) or node.id not in BUILTINS:
            return all(isinstance(target, ast.Name) for target in targets)
    return _is_tested_for(program, node) or _is_annotation(program, node)


def _is_tested_for(program: Program, node: ast.expr) -> bool:
    """``isinstance(x, type)``, alone or beside other classes."""
    child: ast.AST = node
    for up in program.ancestors(node):
        match up:
            case ast.Tuple() | ast.BinOp(op=ast.BitOr()):
                child = up
            case ast.Call(func=ast.Name(id=name), args=[_, second]):
                return name in TESTS and second is child
            case _:
                return False
    return False


def _is_annotation(program: Program, node: ast.expr) -> bool:
    child: ast.AST = node
    for up in program.ancestors(node):
        match up:
            case ast.arg() | ast.AnnAssign() if up.annotation is child:
                return True
            case ast.FunctionDef() if up.returns is child:
                return True
            case ast.stmt():
                return False
        child = up
    return False


def _names_a_logger(program: Program, node: ast.Name) -> bool:
    up = program.parent_of[node]
    if isinstance(up, ast.keyword):
        up = program.parent_of[up]
    return isinstance(up, ast.Call) and up.func is not node and program.paths(up.func) == {LOGGER}

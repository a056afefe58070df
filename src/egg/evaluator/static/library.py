"""Rules under ``library_calls=forbid``: no compute outside the candidate's own kernels.

Only what the text alone shows is refused here (functions of torch, calls of nn modules, ``@``,
telling method names); arithmetic on tensors is seen by the dispatch mode when the candidate runs.
Constructors may compute (initial values of parameters), and so may the task's own input functions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from egg.evaluator.static.findings import Finding
from egg.evaluator.static.kernels import jit_functions
from egg.evaluator.static.namespaces import TENSOR_NAMESPACES
from egg.evaluator.static.scopes import Program, line
from egg.evaluator.static.vocabulary import TENSOR_COMPUTE, words

EXEMPT_FUNCTIONS = frozenset(["__init__", "get_inputs", "get_init_inputs", "reset_parameters"])
PLUMBING = frozenset(
    ["Identity", "Flatten", "Unflatten", "ParameterList", "ParameterDict", "Parameter", "Buffer"]
)
AMBIGUOUS_METHODS = frozenset(words("all any add mode range sort split index_put"))
"""Also methods of sets, lists or strings: left to the dispatch mode."""
METHODS = (TENSOR_COMPUTE - AMBIGUOUS_METHODS) | frozenset(
    words("""
    add_ sub_ mul_ div_ pow_ addmm_ baddbmm_ addcmul_ addcdiv_ lerp_ scatter_ scatter_add_ index_add_
    masked_fill_ clamp_ softmax log_softmax bernoulli_ normal_ uniform_ cumsum_ fmod_ remainder_ tril_ triu_
    """)
)


def find(program: Program) -> Iterator[Finding]:
    kernels = jit_functions(program)
    held = _held_modules(program)
    own_methods = {n.name for n in program.nodes() if isinstance(n, ast.FunctionDef) and program.class_of(n)}
    for node in program.nodes():
        if not _is_host_compute_site(program, node, kernels):
            continue
        match node:
            case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()):
                yield Finding(line(node), "static.library", "the @ operator is a library matrix product")
            case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
                yield from _function(program, node)
            case ast.Call(func=func):
                yield from _held_call(program, node, func, held)
                yield from _function(program, node)
                if isinstance(func, ast.Attribute) and func.attr in METHODS and not program.paths(func):
                    mine = (
                        isinstance(func.value, ast.Name)
                        and func.value.id == "self"
                        and func.attr in own_methods
                    )
                    if not mine:
                        yield Finding(line(node), "static.library", f"calls the tensor method .{func.attr}()")


def _is_host_compute_site(program: Program, node: ast.AST, kernels: set[ast.AST]) -> bool:
    """Inside some function, none of whose enclosing functions is a kernel or exempt."""
    around = [u for u in program.ancestors(node) if isinstance(u, ast.FunctionDef | ast.AsyncFunctionDef)]
    return bool(around) and not any(u in kernels or u.name in EXEMPT_FUNCTIONS for u in around)


def _function(program: Program, node: ast.expr) -> Iterator[Finding]:
    for path in sorted(program.paths(node)):
        space, _, name = path.rpartition(".")
        computes = (
            (space == "torch" and name in TENSOR_COMPUTE)
            or (space in TENSOR_NAMESPACES and space != "torch.nn.init" and name != "pad")
            or (space == "torch.Tensor" and name in METHODS | AMBIGUOUS_METHODS)
        )
        if computes:
            yield Finding(line(node), "static.library", f"uses {path}")


def _held_modules(program: Program) -> dict[str, str]:
    """``self.NAME = nn.Something(...)``: attribute -> the nn class that would compute if called."""
    held: dict[str, str] = {}
    for node in program.nodes():
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value):
                for call in ast.walk(value):
                    if not isinstance(call, ast.Call):
                        continue
                    for path in program.paths(call.func):
                        kind = path.rsplit(".", 1)[-1]
                        if path.startswith("torch.nn.") and kind[0].isupper() and kind not in PLUMBING:
                            held.setdefault(name, kind)
    return held


def _held_call(program: Program, node: ast.Call, func: ast.expr, held: dict[str, str]) -> Iterator[Finding]:
    base = func
    while isinstance(base, ast.Subscript):
        base = base.value
    if isinstance(base, ast.Attribute) and base.attr == "forward":
        base = base.value
    if isinstance(base, ast.Name):
        base = _looped_over(program, base) or base
    match base:
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in held:
            yield Finding(line(node), "static.library", f"calls self.{name}, an nn.{held[name]}")


def _looped_over(program: Program, name: ast.Name) -> ast.expr | None:
    """``for layer in self.layers``: what a loop variable runs over; ``layer = self.fc``: what it renames."""
    function = program.function_of(name)
    for node in ast.walk(function) if function else []:
        match node:
            case ast.For(target=ast.Name(id=target), iter=source) if target == name.id:
                return source
            case ast.Assign(targets=[ast.Name(id=target)], value=ast.Attribute() as source) if (
                target == name.id
            ):
                return source
    return None

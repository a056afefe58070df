"""Rules on what must be there (a ``ModelNew``, at least one Triton kernel), and on what a kernel may ask.

A kernel that asks for the Python type of one of its values asks whether it is interpreted or compiled.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from egg.evaluator.static.findings import Finding
from egg.evaluator.static.scopes import Program, line

INTROSPECTION = frozenset(
    {"isinstance", "issubclass", "hasattr", "getattr", "callable", "type", "id", "vars"}
)


def find(program: Program) -> Iterator[Finding]:
    if not jit_functions(program) and not _jit_calls(program):
        yield Finding(0, "static.no_kernel", "no function is decorated with @triton.jit")
    if "ModelNew" not in program.root.bindings:
        yield Finding(0, "static.no_model", "ModelNew is not defined")
    for kernel in jit_functions(program):
        for node in ast.walk(kernel):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Name) and called.id in INTROSPECTION:
                yield Finding(
                    line(node), "static.dynamic", f"a kernel asks what its values are made of: {called.id}"
                )
    yield from _reflections(program)


REFLECTION = frozenset(("hasattr", "getattr", "isinstance", "type", "dir", "vars", "callable", "issubclass"))
WHERE_IT_RUNS = "asks what a kernel is: a compiled kernel and an interpreted one are different objects"


def _reflections(program: Program) -> Iterator[Finding]:
    """Questions about kernels as objects: their answers differ between a GPU and an interpreter."""
    functions = jit_functions(program)
    names = {node.name for node in functions if isinstance(node, ast.FunctionDef)}
    for node in program.nodes():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in REFLECTION:
            about = {part.id for arg in node.args[:1] for part in ast.walk(arg) if isinstance(part, ast.Name)}
            if about & names:
                yield Finding(node.lineno, "static.dynamic", f"{node.func.id}() {WHERE_IT_RUNS}")


def jit_functions(program: Program) -> set[ast.AST]:
    """Functions that run on the GPU: decorated with ``triton.jit``, whatever else is stacked on top."""
    return {
        node
        for node in program.nodes()
        if isinstance(node, ast.FunctionDef) and any(_is_jit(program, d) for d in node.decorator_list)
    }


def _is_jit(program: Program, decorator: ast.expr) -> bool:
    plain = decorator.func if isinstance(decorator, ast.Call) else decorator
    return bool(program.paths(plain) & {"triton.jit", "triton.constexpr_function"})


def _jit_calls(program: Program) -> bool:
    return any(isinstance(n, ast.Call) and "triton.jit" in program.paths(n.func) for n in program.nodes())

"""The kernels of an author's file, verbatim, with the constants that they use; nothing else of it.

Decorators are left out but for ``@triton.jit`` with literal options: what an autotuner or a heuristic chose
is in the launches.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from egg.evaluator.plan.spelling import Unspelled

JIT_OPTIONS = frozenset(("do_not_specialize", "do_not_specialize_on_alignment", "noinline", "debug"))


@dataclass(frozen=True)
class Taken:
    """What a plan takes of the author's text, in its order."""

    imports: tuple[ast.stmt, ...]
    text: str


@dataclass
class _Taking:
    source: str
    bound: dict[str, list[ast.stmt]] = field(default_factory=dict)
    wanted: dict[str, ast.stmt] = field(default_factory=dict)

    def take(self, name: str, by: str) -> None:
        if name in self.wanted:
            return
        found = self.bound.get(name, [])
        if len(found) > 1:
            raise Unspelled(f"{name}, which {by} uses, is bound {len(found)} times", "bind it once")
        if not found:
            return
        (node,) = found
        self.wanted[name] = node
        for used in _free_names(node):
            self.take(used, name)


def taken(source: str, kernels: Iterable[str]) -> Taken:
    """The text of ``kernels`` and of all that they need; raises :class:`Unspelled`."""
    taking = _Taking(source)
    for node in ast.parse(source).body:
        for name in bound_names(node):
            taking.bound.setdefault(name, []).append(node)
    for name in kernels:
        if not any(isinstance(n, ast.FunctionDef) for n in taking.bound.get(name, [])):
            raise Unspelled(f"kernel {name} is not defined at module level", "define kernels at module level")
        taking.take(name, "a launch")
    nodes = sorted({id(n): n for n in taking.wanted.values()}.values(), key=lambda n: n.lineno)
    imports = tuple(n for n in nodes if isinstance(n, ast.Import | ast.ImportFrom))
    return Taken(imports, "\n\n".join(_text(source, n) for n in nodes if n not in imports))


def bound_names(node: ast.stmt) -> Iterator[str]:
    """Names that a statement at module level binds."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)
    else:
        yield from (n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def _free_names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return []
    parts: list[ast.AST] = [node]
    own: set[str] = set()
    if isinstance(node, ast.FunctionDef):
        parts = [*node.body, node.args]
        own = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
        own |= {
            n.id
            for p in node.body
            for n in ast.walk(p)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
    found = (
        n.id for p in parts for n in ast.walk(p) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    )
    return [name for name in dict.fromkeys(found) if name not in own]


def _text(source: str, node: ast.stmt) -> str:
    if not isinstance(node, ast.FunctionDef):
        return ast.unparse(node)
    text = ast.get_source_segment(source, node) or ast.unparse(node)
    options = [
        f"{k.arg}={ast.unparse(k.value)}"
        for d in node.decorator_list
        if isinstance(d, ast.Call) and ast.unparse(d.func).endswith("jit")
        for k in d.keywords
        if k.arg in JIT_OPTIONS
    ]
    given = f"({', '.join(options)})" if options else ""
    return f"\n@triton.jit{given}\n{text}\n"

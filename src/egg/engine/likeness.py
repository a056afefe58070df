"""No repetition: when two kernel files, two plans or two compiled programs are the same.

*Files* are compared by a hash of their syntax tree, from which everything is removed that
cannot change what runs: comments, docstrings, layout, how imports are spelled, annotations
that neither Triton nor Python acts on, and the names of local variables. *Plans* are
compared by the words of the change they propose. *Compiled programs* are compared by the
machine code, which also sees through rewritings that the compiler undoes.

All three err on the side of difference: calling two things the same refuses a candidate
unseen, calling them different costs one evaluation.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Sequence

from egg.core.evaluation import Accepted, Compiled, Evaluation
from egg.core.plan import Plan
from egg.core.source import content_hash
from egg.core.step import Decision, Step
from egg.evaluator.static.scopes import Binding, Imported, Program, Scope, arguments

UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What Python raises of a text that is no program, or one nested beyond its stack."""


def program_key(source: str) -> str:
    """The same for two kernel files exactly if they differ in nothing that could matter when they run."""
    try:
        tree = ast.parse(source)
        normal = ast.dump(_Normaliser(Program(tree)).visit(tree), annotate_fields=False)
    except UNPARSABLE:
        return content_hash(source.encode("utf-8", "backslashreplace").decode())
    return hashlib.sha256(normal.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def compiled_key(evaluation: Evaluation) -> str | None:
    """A fingerprint of what the compiler made of an accepted kernel and how it is launched.

    Two accepted kernels that share it do the same work on the GPU. ``None`` where the machine
    code of a launch is not known.
    """
    accepted = evaluation.verdict
    if not isinstance(accepted, Accepted) or not isinstance(accepted.performance, Compiled):
        return None
    kernels = accepted.performance.kernels
    if not kernels or not all(k.code for k in kernels):
        return None
    launched = sorted((k.code, list(k.grid), k.launches, k.num_warps, k.shared_bytes) for k in kernels)
    whole = [accepted.performance.target, launched, sorted(accepted.provenance.library_ops.items())]
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:16]


# -- plans ---------------------------------------------------------------------------------------

_WORD = re.compile(r"[A-Za-z_](?:[\w.]*\w)?|\d+(?:\.\d+)?")
_FILLERS = """
    a an and as at be by each every for from in into is it its kernel new now of on onto or our over per
    please should so than that the their them then these this those through to up us use using via we which
    there will with would
"""
_NEGATIONS = "no not never without instead except only"
_ENDINGS = ("ing", "ed", "es", "s", "e")
MISSING_WORDS = 8
"""One ordinary word in so many may be missing from the shorter of two descriptions of one change."""


def same_plan(a: Plan, b: Plan) -> bool:
    """Same category, same skill, and essentially the same words for the change.

    Filler words, endings and order do not count. One description may leave out a few words
    that the other has, but no word may stand for another (``rows`` for ``columns``), and
    numbers and identifiers must agree: a tile of 64 is not a tile of 128.
    """
    if (a.category, a.skill) != (b.category, b.skill):
        return False
    ours, theirs = _words(a.change), _words(b.change)
    if not ours or not theirs:
        return ours == theirs and a.change.split() == b.change.split()
    shorter, longer = sorted((ours, theirs), key=len)
    missing = longer - shorter
    return (
        shorter <= longer
        and len(missing) <= len(longer) // MISSING_WORDS
        and not any(_is_exact(word) for word in missing)
        and _numbers(a.change) == _numbers(b.change)
    )


def repeats(plan: Plan, steps: Sequence[Step], base: str | None) -> Step | None:
    """The first earlier step that tried the same plan on the same base in vain."""
    for step in steps:
        tried = step.base == base and step.decision not in (Decision.PROMOTED, Decision.UNUSABLE)
        if tried and step.plan is not None and same_plan(plan, step.plan):
            return step
    return None


def _words(text: str) -> frozenset[str]:
    plain = (w for w in _WORD.findall(text) if w.lower() not in _FILLERS.split())
    return frozenset(w if _is_exact(w) else _root(w.lower()) for w in plain)


def _numbers(text: str) -> list[str]:
    """In order: from 64 to 128 is not from 128 to 64."""
    return re.findall(r"\d+(?:\.\d+)?", text)


def _is_exact(word: str) -> bool:
    """Numbers, identifiers and negations: what no description of a change can do without."""
    named = any(c.isdigit() or c in "_." for c in word) or word[1:] != word[1:].lower()
    return named or word.lower() in _NEGATIONS.split()


def _root(word: str) -> str:
    """``tiles``, ``tiling`` and ``tiled`` are one word."""
    for ending in _ENDINGS:
        if word.endswith(ending) and not word.endswith("ss") and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


# -- files ---------------------------------------------------------------------------------------

_TYPED = re.compile(r"\b(?:u?int|float|bfloat|i|u|fp|bf)\d+\w*\b")
"""Annotations by which Triton fixes the type of an argument: ``tl.int64``, ``"fp32"``, ``tl.float8e5``."""


class _Normaliser(ast.NodeTransformer):
    """Rewrites a tree in place into the form that all equivalent files share.

    Renaming goes by scope: a name is renamed where it surely belongs to a function (or a
    lambda, or a comprehension), numbered by where it appears first. Parameters of a ``def``
    keep their names, since callers use them as keywords, and so does every name that is
    bound anywhere by something else than an assignment (``except ... as``, ``global``, a nested
    ``def``), where a new name would have to be written in more places than names stand.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._numbers: dict[tuple[Scope, str], str] = {}
        self._keep = _names_bound_otherwise(program)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        found, local = self._program.lookup(node.id, self._program.scope_of[node])
        if local:
            node.id = self._local(found[-1][1], node.id)
        elif path := _imported_as(found):
            node.id = f"<{path}>"
        node.ctx = ast.Load()
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """``tl.load``, ``triton.language.load`` and an imported ``load`` become one name."""
        self.generic_visit(node)
        node.ctx = ast.Load()
        if isinstance(node.value, ast.Name) and node.value.id.startswith("<"):
            return ast.Name(f"<{node.value.id.strip('<>')}.{node.attr}>", ast.Load())
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        for argument in arguments(node):
            argument.arg = self._local(self._program.inner_scope[node], argument.arg)
        return self.generic_visit(node)

    def _local(self, scope: Scope, name: str) -> str:
        owner = scope.node
        if name in self._keep:
            return name
        if isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef) and any(
            a.arg == name for a in arguments(owner)
        ):
            return name
        return self._numbers.setdefault((scope, name), f"%{len(self._numbers)}")

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        return (
            None
            if self._is_spelled_out(node, [a.asname or a.name.split(".")[0] for a in node.names])
            else node
        )

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return None if self._is_spelled_out(node, [a.asname or a.name for a in node.names]) else node

    def _is_spelled_out(self, node: ast.stmt, names: list[str]) -> bool:
        """Whether every use of the imported names says by itself what it means."""
        root = self._program.root
        return self._program.scope_of[node] is root and all(
            name != "*" and _imported_as(self._program.lookup(name, root)[0]) for name in names
        )

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Docstrings, and other values that stand there for nothing."""
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Pass(self, node: ast.Pass) -> None:
        return None

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        node.kind = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = self._meaning(node.annotation)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        """A plain assignment where the annotation means nothing; in a class body it may mean a field."""
        if self._program.scope_of[node].kind == "class":
            return self.generic_visit(node)
        if node.value is None:
            return None
        target, value, annotation = (
            self.visit(node.target),
            self.visit(node.value),
            self._meaning(node.annotation),
        )
        if annotation is None:
            return ast.Assign([target], value)
        return ast.AnnAssign(target, annotation, value, node.simple)

    def _meaning(self, annotation: ast.expr | None) -> ast.expr | None:
        """The annotation, if Triton acts on it: ``constexpr``, or a type that is forced on an argument."""
        if annotation is None:
            return None
        text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
        if not isinstance(text, str):
            return None
        if text.endswith("constexpr"):
            return ast.Name("constexpr", ast.Load())
        return ast.Name(text, ast.Load()) if _TYPED.search(text) else None


def _imported_as(found: list[tuple[Binding, Scope]]) -> str | None:
    """The dotted path that all bindings of a name import; ``None`` where one of them is something else."""
    paths = {b.path if isinstance(b, Imported) else None for b, _ in found}
    return paths.pop() if len(paths) == 1 else None


def _names_bound_otherwise(program: Program) -> set[str]:
    """Names that stand in the tree as bare strings: there they could not be renamed along."""
    names: set[str] = set()
    for node in program.nodes():
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                names.add(name)
            case ast.MatchMapping(rest=str(name)):
                names.add(name)
            case ast.Global() | ast.Nonlocal():
                names.update(node.names)
            case ast.Import() | ast.ImportFrom():
                names.update((a.asname or a.name).split(".")[0] for a in node.names)
    return names

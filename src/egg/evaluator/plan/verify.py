"""Is a kernel file a recorded plan and nothing else? Decided by its syntax tree; nothing of it is run.

A plan's module holds imports, what the task's own constructor needs (compared with the task, statement by
statement), constants, kernels under ``@triton.jit``, the two functions of the frame, and ``ModelNew``: the
frame's constructor and guard, and one straight-line method for each signature (:mod:`.straight`). Every name
of the module is bound once. So between two calls there is nothing that could remember, and between a caller
and the launches nothing that could tell callers apart.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from egg.core.evaluation import Gate, Refusal
from egg.evaluator.plan.assemble import FRAME, Signature, model_text
from egg.evaluator.plan.kernels import JIT_OPTIONS, bound_names
from egg.evaluator.plan.skeleton import Skeleton, skeleton
from egg.evaluator.plan.spelling import Unspelled
from egg.evaluator.plan.stores import ADDRESSES, BUILTINS, LANGUAGE, PARTS, READS, WRITES, Stores, imports_of
from egg.evaluator.plan.straight import Straight, is_literal, is_type
from egg.evaluator.plan.vocabulary import VALUES
from egg.evaluator.static.findings import Finding, Findings

REASON = "plan.form"
HINT = "write plans with `egg record`, and do not edit them: change the kernel file and record it again"
SOURCES = frozenset(
    ("torch", "triton", "math", "typing", "__future__", "collections", "functools", "numpy", "dataclasses")
)
"""Packages a plan may import of; the static gate judges what of them."""
CONSTANT_CALLS = frozenset(("constexpr",))
MATH = frozenset(
    ("sqrt", "log", "log2", "exp", "pi", "e", "inf", "pow", "ceil", "floor", "cos", "sin", "tanh")
)
NOT_IN_A_KERNEL = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.Global, ast.Nonlocal, ast.Import,
    ast.ImportFrom, ast.Try, ast.TryStar, ast.With, ast.AsyncWith, ast.Yield, ast.YieldFrom, ast.Await,
    ast.NamedExpr, ast.Delete, ast.AsyncFor, ast.Match,
)  # fmt: skip


def refusal(source: str, task_source: str, state: Iterable[str], moving: Iterable[str]) -> Refusal | None:
    """Refuse a file that is not a plan for this task, whose tensors are ``state``, some of which it moves."""
    found = findings(source, task_source, state, moving)
    if not found:
        return None
    first = found.items[0]
    more = f"; and {len(found.items) - 1} more" if len(found.items) > 1 else ""
    return Refusal(Gate.PLAN, REASON, f"{first}{more}", HINT)


def findings(source: str, task_source: str, state: Iterable[str], moving: Iterable[str]) -> Findings:
    """Everything in a file that is not of a plan's form, by line."""
    try:
        tree, made = ast.parse(source), skeleton(task_source)
        reader = _Reader(tree, made, frozenset(state), frozenset(moving))
        return Findings.of(iter(list(reader.read())))
    except (SyntaxError, ValueError) as error:
        return Findings(
            (Finding(getattr(error, "lineno", 0) or 0, REASON, f"not readable as Python: {error}"),)
        )
    except (RecursionError, MemoryError):
        return Findings((Finding(0, REASON, "nested too deeply to be read"),))
    except Unspelled as reason:
        return Findings((Finding(0, REASON, reason.what),))


@dataclass
class _Reader:
    tree: ast.Module
    made: Skeleton
    state: frozenset[str]
    moving: frozenset[str]
    kernels: dict[str, ast.FunctionDef] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)
    imported: dict[str, str] = field(default_factory=dict)

    def read(self) -> Iterator[Finding]:
        """The statements of the module, one after the other; what comes later may use what was read."""
        body = list(self.tree.body)
        if body and _is_text(body[0]):
            body = body[1:]
        yield from self._bound_once(body)
        task = [ast.dump(node) for node in self.made.before]
        frame = [ast.dump(node) for node in ast.parse(FRAME).body]
        for node in body:
            text = ast.dump(node)
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield from self._import(node)
            elif task and text == task[0]:
                task.pop(0)
            elif frame and text == frame[0]:
                frame.pop(0)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                yield from self._constant(node)
            elif isinstance(node, ast.FunctionDef):
                yield from self._kernel(node)
            elif isinstance(node, ast.ClassDef) and node.name == "ModelNew":
                if node is not body[-1] or task or frame:
                    yield _at(
                        node, "ModelNew must stand last, behind the task's own statements and the frame"
                    )
                yield from self._model(node)
            else:
                yield _at(node, f"a {type(node).__name__} at module level: `{_brief(node)}`")
        if not any(isinstance(n, ast.ClassDef) and n.name == "ModelNew" for n in body):
            yield Finding(0, REASON, "there is no class ModelNew")
        for name, function in self.kernels.items():
            yield from self._body(name, function)

    def _bound_once(self, body: list[ast.stmt]) -> Iterator[Finding]:
        seen: set[str] = set()
        for node in body:
            for name in bound_names(node):
                plain = isinstance(node, ast.Import) and all(a.asname is None for a in node.names)
                if name in seen and not (plain and name in ("torch", "triton")):
                    yield _at(node, f"binds {name} a second time")
                if name in BUILTINS or (name in ("torch", "triton") and not plain) or name.startswith("__"):
                    yield _at(node, f"gives {name} another meaning")
                seen.add(name)

    def _import(self, node: ast.Import | ast.ImportFrom) -> Iterator[Finding]:
        for alias in node.names:
            path = f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
            if getattr(node, "level", 0) or path.split(".")[0] not in SOURCES or alias.name == "*":
                yield _at(node, f"imports {path}")
            if any(part.startswith("_") and part != "__future__" for part in path.split(".")):
                yield _at(node, f"imports {path}")
            renamed = alias.asname not in (None, alias.name) and alias.name not in PARTS
            if path.startswith(f"{LANGUAGE}.") and isinstance(node, ast.ImportFrom) and renamed:
                yield _at(node, f"imports {path} by another name")
            if alias.name in ADDRESSES:
                yield _at(node, f"imports {path}")
        self.imported.update(imports_of(node))

    def _constant(self, node: ast.Assign | ast.AnnAssign) -> Iterator[Finding]:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if isinstance(node, ast.AnnAssign) and not self._is_annotation(node.annotation):
            yield _at(node, f"an annotation that is not a name: `{_brief(node)}`")
        if len(targets) != 1 or not isinstance(targets[0], ast.Name):
            yield _at(node, f"assigns to something else than one name: `{_brief(node)}`")
        elif node.value is None or not self._is_constant(node.value):
            yield _at(node, f"a value that is no plain constant: `{_brief(node)}`")
        else:
            self.constants.add(targets[0].id)

    def _is_constant(self, node: ast.expr) -> bool:
        match node:
            case ast.Constant():
                return True
            case ast.Name(id=name):
                return name in self.constants
            case ast.Tuple(elts=items):
                return all(map(self._is_constant, items))
            case ast.UnaryOp(operand=operand):
                return self._is_constant(operand)
            case ast.BinOp(left=left, right=right, op=op) if not isinstance(op, ast.MatMult):
                return self._is_constant(left) and self._is_constant(right)
            case ast.Attribute():
                return self._is_value(node)
            case ast.Call(func=function, args=args, keywords=[]):
                last = function.attr if isinstance(function, ast.Attribute) else ""
                return (
                    self._is_path(function)
                    and (last in CONSTANT_CALLS or (last in MATH and _root(function) == "math"))
                    and all(map(self._is_constant, args))
                )
        return False

    def _is_path(self, node: ast.expr) -> bool:
        """A dotted public name of the language, of ``math`` or of ``torch``."""
        parts = _dotted(node)
        if not parts or any(part.startswith("_") for part in parts):
            return False
        path = self.imported.get(parts[0], "")
        return path.split(".")[0] in ("triton", "math") or (path == "torch" and len(parts) == 2)

    def _is_value(self, node: ast.Attribute) -> bool:
        """A number of ``math`` or a type, by name; a function is none."""
        path = ".".join([self.imported.get(_root(node), ""), *_dotted(node)[1:]])
        module, _, name = path.rpartition(".")
        if module == LANGUAGE:
            return is_type(name)
        return (module == "math" and name in ("pi", "e", "inf", "nan", "tau")) or (
            module == "torch" and name in VALUES
        )

    def _is_annotation(self, node: ast.expr | None) -> bool:
        if node is None or (isinstance(node, ast.Constant) and isinstance(node.value, str | None)):
            return True
        parts = _dotted(node)
        return (
            bool(parts)
            and not any(p.startswith("_") for p in parts)
            and (len(parts) == 1 or self._is_path(node))
        )

    def _kernel(self, node: ast.FunctionDef) -> Iterator[Finding]:
        """The outside of a kernel: what runs when the module is imported."""
        self.kernels[node.name] = node
        if len(node.decorator_list) != 1 or not _is_jit(node.decorator_list[0]):
            yield _at(node, f"function {node.name} is no kernel: its one decorator must be @triton.jit")
        if node.name in WRITES | READS | ADDRESSES:
            yield _at(node, f"kernel {node.name} has the name of a function of the language")
        given = node.args
        defaults = [*given.defaults, *(d for d in given.kw_defaults if d is not None)]
        if given.kwarg or given.vararg or not all(map(self._is_constant, defaults)):
            yield _at(
                node,
                f"kernel {node.name} has a default that is no plain constant, or any number of arguments",
            )
        for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs):
            if not self._is_annotation(argument.annotation):
                yield _at(node, f"kernel {node.name}: an annotation that is not a name")
        if not self._is_annotation(node.returns) or getattr(node, "type_params", None):
            yield _at(node, f"kernel {node.name}: an annotation that is not a name")

    def _body(self, name: str, function: ast.FunctionDef) -> Iterator[Finding]:
        """The inside: names and constructs that Triton compiles, and none that reach out of it."""
        own = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
        walked = [node for part in function.body for node in ast.walk(part)]
        own |= {n.id for n in walked if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        known = own | self.kernels.keys() | self.constants | self.imported.keys() | BUILTINS
        for node in walked:
            if isinstance(node, NOT_IN_A_KERNEL):
                yield _at(node, f"kernel {name}: a {type(node).__name__}")
            elif isinstance(node, ast.Name) and node.id in ADDRESSES:
                yield _at(node, f"kernel {name} uses {node.id}")
            elif isinstance(node, ast.Name) and node.id not in known:
                yield _at(node, f"kernel {name} uses {node.id}, which is no kernel, constant or argument")
            elif (
                isinstance(node, ast.Name)
                and not isinstance(node.ctx, ast.Load)
                and node.id in self._shared()
            ):
                yield _at(node, f"kernel {name} gives {node.id} another meaning")
            elif isinstance(node, ast.Attribute) and (node.attr.startswith("_") or node.attr in ADDRESSES):
                yield _at(node, f"kernel {name} uses .{node.attr}")
            elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                yield _at(node, f"kernel {name} assigns to .{node.attr}")

    def _shared(self) -> set[str]:
        return {*self.kernels, *self.imported}

    def _model(self, node: ast.ClassDef) -> Iterator[Finding]:
        """The frame's constructor and guard, and the methods that the guard leads to."""
        signatures = list(_signatures(node))
        wanted = ast.parse(model_text(self.made, signatures)).body[0]
        assert isinstance(wanted, ast.ClassDef)
        head = len(wanted.body)
        own = ast.ClassDef(node.name, node.bases, node.keywords, node.body[:head], node.decorator_list)
        if ast.dump(own) != ast.dump(_with_fields(wanted)) or getattr(node, "type_params", None):
            place = next(
                (a for a, b in zip(node.body, wanted.body, strict=False) if ast.dump(a) != ast.dump(b)), node
            )
            yield _at(
                place,
                f"ModelNew does not begin with the constructor and the guard of a plan: `{_brief(place)}`",
            )
        if not signatures:
            yield _at(node, "forward names no signature")
        straight = Straight(
            self.made.parameters, self.state, self.moving, self.kernels, Stores(self.kernels, self.imported)
        )
        names = set(bound_names_of(self.tree))
        methods = node.body[head:]
        for number, method in enumerate(methods, 1):
            if not isinstance(method, ast.FunctionDef) or method.name != f"recorded_{number}":
                yield _at(method, f"is not recorded_{number}: `{_brief(method)}`")
            else:
                yield from (Finding(at, REASON, what) for at, what in straight.read(method, names))
        if len(methods) != len(signatures):
            yield _at(node, f"{len(methods)} recorded methods for {len(signatures)} signatures")


def _signatures(model: ast.ClassDef) -> Iterator[Signature]:
    """What the guard compares with."""
    for forward in model.body:
        for node in (
            forward.body if isinstance(forward, ast.FunctionDef) and forward.name == "forward" else ()
        ):
            match node:
                case ast.If(test=ast.Compare(left=ast.Name(), comparators=[literal])) if is_literal(literal):
                    yield Signature(ast.unparse(literal), (), "")
                case ast.If(
                    test=ast.BoolOp(
                        values=[
                            ast.Compare(comparators=[literal]),
                            ast.Compare(
                                left=ast.Call(args=[ast.List(elts=settings)]),
                                comparators=[ast.Tuple() as set_to],
                            ),
                        ]
                    )
                ) if is_literal(literal) and is_literal(set_to) and all(map(_is_setting, settings)):
                    named = tuple(map(ast.unparse, settings))
                    yield Signature(ast.unparse(literal), (), "", named, ast.unparse(set_to))


def _is_setting(node: ast.expr) -> bool:
    """An attribute of the module or of a part of it; which private ones may be read, the static gate says."""
    if not isinstance(node, ast.Attribute):
        return False
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute) and node.attr.startswith("__"):
            return False
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
            return False
        node = node.value
    return isinstance(node, ast.Name) and node.id == "self"


def _with_fields(node: ast.ClassDef) -> ast.ClassDef:
    return ast.ClassDef(node.name, node.bases, node.keywords, node.body, node.decorator_list)


def bound_names_of(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        yield from bound_names(node)


def _is_jit(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        right = all(k.arg in JIT_OPTIONS and is_literal(k.value) for k in node.keywords)
        return not node.args and right and _dotted(node.func) == ["triton", "jit"]
    return _dotted(node) == ["triton", "jit"]


def _dotted(node: ast.expr) -> list[str]:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []


def _root(node: ast.expr) -> str:
    return (_dotted(node) or [""])[0]


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _at(node: ast.AST, what: str) -> Finding:
    return Finding(getattr(node, "lineno", 0), REASON, what)


def _brief(node: ast.AST) -> str:
    text = ast.unparse(node).strip().splitlines()
    return text[0][:80] if text else ""

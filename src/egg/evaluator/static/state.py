"""Rules on state: what outlives a call may live on ``self`` and nowhere else.

A kernel that remembers its last answer looks infinitely fast. The state probes catch it by behaviour;
these rules refuse the places where such a memory could hide from them: module-level containers and
tensors, class attributes, function attributes, closures, mutable defaults, iterators. Assignments to
attributes of anything that is not ``self`` are refused here too (``torch.allclose = ...``).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from egg.evaluator.static.findings import Finding
from egg.evaluator.static.scopes import Assigned, Binding, Defined, Program, Scope, arguments, line
from egg.evaluator.static.vocabulary import (
    CONTAINERS,
    DATA_MOVEMENT,
    ITERATORS,
    MUTATORS,
    RANDOM,
    TENSOR_COMPUTE,
    TENSOR_METHODS_TO_SHADOW,
)

TENSOR_MAKERS = DATA_MOVEMENT | TENSOR_COMPUTE | RANDOM
SETTABLE = frozenset(["data", "grad", "requires_grad", "weight", "bias", "training"])
CONTAINER_NODES = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
MEMOS = frozenset(["functools.lru_cache", "functools.cache"])
PLAIN = frozenset(["int", "float", "bool", "str"])
Function = ast.FunctionDef | ast.AsyncFunctionDef


def find(program: Program) -> Iterator[Finding]:
    """Every place where state could outlive a call unseen, and every patch of something not ours."""
    class_containers = _class_containers(program)
    for node in program.nodes():
        match node:
            case ast.Global() | ast.Nonlocal():
                word = type(node).__name__.lower()
                yield Finding(line(node), "static.cache", f"{word} {', '.join(node.names)}")
            case ast.Attribute(ctx=ast.Store() | ast.Del()):
                yield from _attribute_target(program, node)
            case ast.Assign() | ast.AnnAssign() if program.scope_of[node].kind == "module":
                yield from _module_value(program, node)
            case ast.Name(ctx=ast.Load()):
                yield from _iterator_use(program, node)
                yield from _memo(program, node)
            case ast.Attribute(ctx=ast.Load()):
                yield from _memo(program, node)
        for target, verb in _mutations(node):
            yield from _mutated(program, node, target, verb, class_containers)
        if isinstance(node, ast.Call):
            yield from _handed_to_mutator(program, node)


# -- containers ------------------------------------------------------------------------------------


def _mutations(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """What the node changes in place: subscript stores, deletions, ``|=`` and calls of mutating methods."""
    match node:
        case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()):
            yield value, "stores into"
        case ast.AugAssign(target=ast.Name() | ast.Attribute() as target):
            yield target, "updates"
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in MUTATORS:
            yield value, f"calls .{name} on"


def _mutated(
    program: Program, node: ast.AST, target: ast.expr, verb: str, class_containers: dict[str, str]
) -> Iterator[Finding]:
    function = program.function_of(node)
    if function is None:
        return
    base = target
    while isinstance(base, ast.Subscript):
        base = base.value
    if isinstance(base, ast.Attribute) and base.attr in class_containers:
        owner = class_containers[base.attr]
        yield Finding(line(node), "static.cache", f"{verb} {owner}.{base.attr}, which all instances share")
    if not isinstance(base, ast.Name):
        return
    for binding, where in _reach(program, base):
        if where.kind == "module" and _is_container(program, binding):
            yield Finding(line(node), "static.cache", f"{verb} {base.id}, a container that outlives the call")
        elif where.kind == "function" and where.node is not function and _is_container(program, binding):
            if _returned_from(where.node, function):
                yield Finding(line(node), "static.cache", f"{verb} {base.id}, kept alive by a closure")
        elif where.node is function and base.id in _mutable_defaults(function):
            yield Finding(line(node), "static.cache", f"{verb} the mutable default of {base.id}")


def _reach(program: Program, name: ast.Name, depth: int = 4) -> Iterator[tuple[Binding, Scope]]:
    """The bindings a name refers to, through plain renamings (``c = CACHE``)."""
    for binding, where in program.lookup(name.id, program.scope_of[name])[0]:
        yield binding, where
        if depth and isinstance(binding, Assigned) and isinstance(binding.value, ast.Name):
            yield from _reach(program, binding.value, depth - 1)


def _is_container(program: Program, binding: Binding) -> bool:
    if not isinstance(binding, Assigned):
        return False
    value = binding.value
    return isinstance(value, CONTAINER_NODES) or (
        isinstance(value, ast.Call) and _callee(program, value) in CONTAINERS
    )


def _callee(program: Program, call: ast.Call) -> str:
    paths = sorted(program.paths(call.func))
    if paths:
        return paths[0].rsplit(".", 1)[-1]
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _class_containers(program: Program) -> dict[str, str]:
    """Attribute name -> class, for containers made once in a class body and never rebound on ``self``."""
    found: dict[str, str] = {}
    for node, scope in program.inner_scope.items():
        if isinstance(node, ast.ClassDef):
            for name, bindings in scope.bindings.items():
                if any(_is_container(program, b) for b in bindings):
                    found[name] = node.name
    for node in program.nodes():
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.pop(node.attr, None)
    return found


def _mutable_defaults(function: Function) -> set[str]:
    a = function.args
    positional = [*a.posonlyargs, *a.args]
    pairs = [*zip(positional[len(positional) - len(a.defaults) :], a.defaults, strict=True)]
    pairs += [(arg, d) for arg, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None]
    return {arg.arg for arg, default in pairs if isinstance(default, (*CONTAINER_NODES, ast.Call))}


def _returned_from(outer: ast.AST, inner: Function) -> bool:
    return any(
        isinstance(n, ast.Return) and any(isinstance(x, ast.Name) and x.id == inner.name for x in ast.walk(n))
        for n in ast.walk(outer)
    )


def _handed_to_mutator(program: Program, call: ast.Call) -> Iterator[Finding]:
    """A module-level container passed to a function of this file that changes its parameter."""
    if program.function_of(call) is None:
        return
    for definition in program.definitions(call.func):
        if not isinstance(definition, ast.FunctionDef):
            continue
        parameters = [a.arg for a in arguments(definition)]
        changed = {
            target.id
            for node in ast.walk(definition)
            for target, _ in _mutations(node)
            if isinstance(target, ast.Name) and target.id in parameters
        }
        given = [*zip(parameters, call.args, strict=False), *((k.arg, k.value) for k in call.keywords)]
        for parameter, value in given:
            if parameter in changed and isinstance(value, ast.Name):
                for binding, where in _reach(program, value):
                    if where.kind == "module" and _is_container(program, binding):
                        what = f"hands {value.id} to {definition.name}, which changes it for later calls"
                        yield Finding(line(call), "static.cache", what)


# -- module-level values ---------------------------------------------------------------------------


def _module_value(program: Program, node: ast.Assign | ast.AnnAssign) -> Iterator[Finding]:
    """Tensors and objects with changing state have no place at module level."""
    for call in [n for n in ast.walk(node.value) if isinstance(n, ast.Call)] if node.value else []:
        if program.function_of(call) or any(isinstance(u, ast.Lambda) for u in program.ancestors(call)):
            continue
        for path in program.paths(call.func):
            last = path.rsplit(".", 1)[-1]
            if path == f"torch.{last}" and last in TENSOR_MAKERS:
                yield Finding(line(call), "static.cache", f"makes a tensor with {path} at module level")
        for definition in program.definitions(call.func):
            if isinstance(definition, ast.ClassDef) and _changes_itself(definition):
                yield Finding(
                    line(call), "static.cache", f"keeps a {definition.name}, which changes, at module level"
                )
            if isinstance(definition, ast.FunctionDef) and _makes_closure_state(program, definition):
                yield Finding(
                    line(call), "static.cache", f"keeps what {definition.name} closes over at module level"
                )


def _changes_itself(definition: ast.ClassDef) -> bool:
    for method in definition.body:
        if isinstance(method, ast.FunctionDef) and method.name not in ("__init__", "__post_init__"):
            for node in ast.walk(method):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    return True
                if any(isinstance(t, ast.Attribute) for t, _ in _mutations(node)):
                    return True
    return False


def _makes_closure_state(program: Program, function: ast.FunctionDef) -> bool:
    generator = any(isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(function))
    inner = [n for n in ast.walk(function) if isinstance(n, ast.FunctionDef) and n is not function]
    containers = [
        name
        for name, bindings in program.inner_scope[function].bindings.items()
        if any(_is_container(program, b) for b in bindings)
    ]
    return generator or any(
        isinstance(t, ast.Name) and t.id in containers
        for f in inner
        for n in ast.walk(f)
        for t, _ in _mutations(n)
    )


def _iterator_use(program: Program, node: ast.Name) -> Iterator[Finding]:
    """An iterator at module level counts calls: ``_calls = itertools.count()``."""
    if program.function_of(node) is None:
        return
    for binding, where in program.lookup(node.id, program.scope_of[node])[0]:
        if (
            where.kind == "function"
            or not isinstance(binding, Assigned)
            or not isinstance(binding.value, ast.Call)
        ):
            continue
        if _callee(program, binding.value) in ITERATORS:
            yield Finding(
                line(node), "static.cache", f"draws from {node.id}, an iterator that outlives the call"
            )


def _memo(program: Program, node: ast.Name | ast.Attribute) -> Iterator[Finding]:
    """A memo may keep the answer to a question of plain numbers: how many multiprocessors there are."""
    if not program.paths(node) & MEMOS:
        return
    up = program.parent_of[node]
    decorator, function = (up, program.parent_of[up]) if isinstance(up, ast.Call) else (node, up)
    if isinstance(function, ast.FunctionDef) and decorator in function.decorator_list:
        given = arguments(function)
        if all(isinstance(a.annotation, ast.Name) and a.annotation.id in PLAIN for a in given):
            return
    yield Finding(
        line(node), "static.cache", "memoises a function whose parameters are not declared plain numbers"
    )


# -- assignments to attributes ---------------------------------------------------------------------


def _attribute_target(program: Program, node: ast.Attribute) -> Iterator[Finding]:
    root, depth = _root(node)
    imported = sorted(program.paths(node.value))
    if imported:
        yield Finding(line(node), "static.patch", f"assigns to {imported[0]}.{node.attr}")
        return
    definitions = [*program.definitions(node.value)]
    if definitions:
        kind = "class" if isinstance(definitions[0], ast.ClassDef) else "function"
        what = f"assigns to attribute {node.attr} of the {kind} {ast.unparse(node.value)}"
        yield Finding(line(node), "static.cache" if kind == "class" else "static.patch", what)
        return
    if (
        isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "type"
    ):
        yield Finding(line(node), "static.cache", f"assigns to attribute {node.attr} of a class")
        return
    if isinstance(root, ast.Name) and root.id == "cls":
        yield Finding(line(node), "static.cache", f"assigns to attribute {node.attr} of the class")
    elif isinstance(root, ast.Name) and root.id == "self" and depth == 1:
        return
    elif node.attr in TENSOR_METHODS_TO_SHADOW or (node.attr not in SETTABLE and _is_callable(program, node)):
        yield Finding(line(node), "static.patch", f"replaces .{node.attr} of {ast.unparse(node.value)}")
    elif isinstance(root, ast.Name) and _module_level(program, root):
        yield Finding(line(node), "static.cache", f"keeps {node.attr} on {root.id}, which outlives the call")


def _root(node: ast.Attribute) -> tuple[ast.expr, int]:
    at: ast.expr = node
    depth = 0
    while isinstance(at, ast.Attribute | ast.Subscript):
        depth += isinstance(at, ast.Attribute)
        at = at.value
    return at, depth


def _is_callable(program: Program, target: ast.Attribute) -> bool:
    up = program.parent_of[target]
    value = up.value if isinstance(up, ast.Assign) else None
    if isinstance(value, ast.Attribute):
        methods = {n.name for n in program.nodes() if isinstance(n, ast.FunctionDef) and program.class_of(n)}
        return value.attr in methods
    return isinstance(value, ast.Lambda) or (isinstance(value, ast.Name) and any(program.definitions(value)))


def _module_level(program: Program, name: ast.Name) -> bool:
    found, local = program.lookup(name.id, program.scope_of[name])
    inside = program.function_of(name) is not None
    return inside and not local and any(isinstance(b, Assigned | Defined) for b, _ in found)

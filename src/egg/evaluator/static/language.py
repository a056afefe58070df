"""Rules on the language itself: imports, names, attributes, classes, exception handling."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from egg.evaluator.static.building import building
from egg.evaluator.static.findings import Finding
from egg.evaluator.static.literal_names import literal_names
from egg.evaluator.static.namespaces import is_module, judge, judge_import
from egg.evaluator.static.scopes import Program, line
from egg.evaluator.static.vocabulary import (
    ALLOWED_DUNDER_ATTRIBUTES,
    ALLOWED_DUNDER_METHODS,
    ALLOWED_DUNDER_NAMES,
    BINDABLE_DUNDER_NAMES,
    DENIED_ATTRIBUTES,
    DENIED_BUILTINS,
    NUMPY_VALUES,
)

BASES = frozenset(
    ["torch.autograd.Function", "abc.ABC", "typing.NamedTuple", "typing.Protocol", "typing.TypedDict"]
)
NOT_MODULES = frozenset(["Parameter", "Buffer", "UninitializedParameter", "UninitializedBuffer"])


def find(program: Program) -> Iterator[Finding]:
    """Every offence against the language rules."""
    own, makers = _own_private_names(program), building(program)
    for node in program.nodes():
        yield from _identifiers(program, node)
        match node:
            case ast.Import() | ast.ImportFrom():
                yield from _imports(node)
                if program.scope_of[node].kind == "class":
                    yield Finding(line(node), "static.dynamic", "imports a module into a class")
            case ast.Name():
                yield from _name(program, node)
                yield from _numpy(program, node, makers)
                yield from _module_as_value(program, node)
            case ast.Attribute():
                yield from _formatting(program, node)
                yield from _attribute(program, node, node.value, node.attr, own)
                yield from _numpy(program, node, makers)
                yield from _module_as_value(program, node)
            case ast.Call():
                yield from _call(program, node, own)
            case ast.ClassDef():
                yield from _class(program, node)
            case ast.FunctionDef() if _is_dunder(node.name) and program.scope_of[node].kind == "class":
                yield from _special_method(node)
            case ast.NamedExpr() if not isinstance(program.parent_of[node], ast.Expr):
                yield from _module_passed_on(program, node)
            case ast.Try() | ast.TryStar():
                yield from _try(program, node)
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                yield Finding(line(node), "static.dynamic", "coroutines run code out of order")
            case ast.MatchClass():
                for name in node.kwd_attrs:
                    yield from _attribute_name(node, name, own)


# -- imports and names -----------------------------------------------------------------------------


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[Finding]:
    if isinstance(node, ast.Import):
        paths = [a.name for a in node.names]
    elif node.level or node.module is None:
        yield Finding(line(node), "static.import", "a relative import")
        return
    else:
        paths = [f"{node.module}.{a.name}" for a in node.names]
    for path in paths:
        if path.endswith(".*"):
            yield Finding(line(node), "static.import", f"imports every name of {path[:-2]}")
        elif verdict := judge_import(path):
            yield Finding(line(node), *verdict)


def _name(program: Program, node: ast.Name) -> Iterator[Finding]:
    """A built-in is dangerous unless a function really has a variable of that name."""
    name = node.id
    allowed = ALLOWED_DUNDER_NAMES if isinstance(node.ctx, ast.Load) else BINDABLE_DUNDER_NAMES
    if _is_dunder(name) and name not in allowed and name not in DENIED_BUILTINS:
        yield Finding(line(node), "static.private", f"uses {name}")
    if name in DENIED_BUILTINS and isinstance(node.ctx, ast.Load):
        _, local = program.lookup(name, program.scope_of[node])
        if not local:
            code, why = DENIED_BUILTINS[name]
            yield Finding(line(node), code, f"{name} {why}")


def _numpy(
    program: Program, node: ast.Name | ast.Attribute, makers: frozenset[ast.FunctionDef]
) -> Iterator[Finding]:
    """NumPy may compute what a constructor builds from, and nothing of a call: it is no kernel, and the gates
    that watch PyTorch do not see it. So a function of it is called on the spot, never kept."""
    names = [path.partition(".") for path in program.paths(node)]
    if not any(top == "numpy" for top, _, _ in names):
        return
    inside = (u for u in program.ancestors(node) if isinstance(u, ast.FunctionDef | ast.Lambda))
    function = next(inside, None)
    if function not in makers:
        yield Finding(line(node), "static.import", "uses NumPy where no constructor alone calls it")
        return
    up = program.parent_of[node]
    used = isinstance(up, ast.Attribute) or (isinstance(up, ast.Call) and up.func is node)
    if not used and any(top == "numpy" and name not in NUMPY_VALUES for top, _, name in names):
        yield Finding(line(node), "static.import", f"keeps numpy.{names[0][2]} instead of calling it")


def _module_as_value(program: Program, node: ast.Name | ast.Attribute) -> Iterator[Finding]:
    """A module may be dotted into or given another name, nothing else: otherwise it could not be followed."""
    if not isinstance(node.ctx, ast.Load):
        return
    modules = sorted(p for p in program.paths(node) if is_module(p))
    if not modules:
        return
    up = program.parent_of[node]
    dotted = isinstance(up, ast.Attribute) or (
        isinstance(up, ast.Call)
        and isinstance(up.func, ast.Name)
        and up.func.id in ("getattr", "hasattr", "setattr")
        and up.args[0] is node
    )
    renamed = (
        isinstance(up, ast.Assign | ast.AnnAssign | ast.NamedExpr)
        and up.value is node
        and all(isinstance(t, ast.Name) for t in (up.targets if isinstance(up, ast.Assign) else [up.target]))
        and program.scope_of[up].kind != "class"
    )
    compared = isinstance(up, ast.Compare) and all(isinstance(op, ast.Is | ast.IsNot) for op in up.ops)
    if not (dotted or renamed or compared or isinstance(up, ast.Expr)):
        yield Finding(line(node), "static.dynamic", f"hands the module {modules[0]} around as a value")


def _module_passed_on(program: Program, node: ast.NamedExpr) -> Iterator[Finding]:
    for path in sorted(p for p in program.paths(node) if is_module(p)):
        yield Finding(line(node), "static.dynamic", f"hands the module {path} around as a value")


def _identifiers(program: Program, node: ast.AST) -> Iterator[Finding]:
    """Special names bound otherwise than by an assignment: ``import ... as``, ``case ... as``, ``def``.

    Every field of every node that holds an identifier is looked at, so that no form of binding is forgotten.
    """
    if isinstance(node, ast.Name | ast.Attribute | ast.Constant | ast.MatchClass):
        return
    for field, value in ast.iter_fields(node):
        for name in value if isinstance(value, list) else [value]:
            if not isinstance(name, str) or not _is_dunder(name) or name in BINDABLE_DUNDER_NAMES:
                continue
            method = isinstance(node, ast.FunctionDef) and program.scope_of[node].kind == "class"
            path = isinstance(node, ast.alias | ast.ImportFrom) and field in ("name", "module")
            if not method and not path and field != "type_comment":
                yield Finding(line(node), "static.private", f"binds {name}")


# -- attributes ------------------------------------------------------------------------------------


def _attribute(
    program: Program, node: ast.expr, receiver: ast.expr, name: str, own: frozenset[str]
) -> Iterator[Finding]:
    """Judge the whole dotted path where it is known, and the attribute's name in any case."""
    before = program.paths(receiver)
    for path in sorted(before):
        if judge(path) is None and (verdict := judge(f"{path}.{name}")):
            yield Finding(line(node), *verdict)
            return
    if not before:
        yield from _attribute_name(node, name, own)
    elif name in DENIED_ATTRIBUTES:
        code, why = DENIED_ATTRIBUTES[name]
        yield Finding(line(node), code, f".{name} {why}")


def _attribute_name(node: ast.AST, name: str, own: frozenset[str]) -> Iterator[Finding]:
    if name in DENIED_ATTRIBUTES:
        code, why = DENIED_ATTRIBUTES[name]
        yield Finding(line(node), code, f".{name} {why}")
    elif _is_dunder(name):
        if name not in ALLOWED_DUNDER_ATTRIBUTES:
            yield Finding(line(node), "static.private", f"uses .{name}")
    elif name.startswith("_") and name != "_version" and name not in own:
        yield Finding(line(node), "static.private", f"uses .{name}, which this file does not define")


def _own_private_names(program: Program) -> frozenset[str]:
    """Private names that the file itself gives to attributes of ``self`` or to methods."""
    names: set[str] = set()
    for node in program.nodes():
        match node:
            case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Store()):
                names.add(node.attr)
            case ast.FunctionDef() if program.class_of(node):
                names.add(node.name)
            case ast.Call(
                func=ast.Attribute(attr="register_buffer" | "register_parameter"), args=[first, *_]
            ):
                if isinstance(first, ast.Constant):
                    names.add(str(first.value))
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                if program.scope_of[node].kind == "class":
                    names.add(name)
    return frozenset(n for n in names if n.startswith("_") and not _is_dunder(n))


def _call(program: Program, node: ast.Call, own: frozenset[str]) -> Iterator[Finding]:
    match node:
        case ast.Call(func=ast.Name(id="getattr" | "setattr" as verb), args=[receiver, name, *_]):
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield from _attribute(program, node, receiver, name.value, own)
                if verb == "setattr":
                    yield from _setattr(node, receiver, name.value)
            elif _is_self(receiver) and (names := literal_names(program, name)):
                for text in sorted(names):
                    yield from _attribute(program, node, receiver, text, own)
            elif not _has_literal_prefix(name):
                yield Finding(line(node), "static.dynamic", f"{verb} with a computed name")
            elif program.paths(receiver):
                yield Finding(
                    line(node), "static.dynamic", f"{verb} with a computed name on an imported object"
                )
        case ast.Call(func=ast.Name(id="type"), args=[_, _, _]):
            yield Finding(
                line(node), "static.dynamic", "type(...) with three arguments makes a class at run time"
            )
        case ast.Call(func=func, args=[_, _, *_]) if any(p.startswith("enum.") for p in program.paths(func)):
            yield Finding(line(node), "static.dynamic", "an enumeration called with names makes a class")
        case ast.Call(func=ast.Attribute(value=text, attr="format")):
            constant = isinstance(text, ast.Constant) and isinstance(text.value, str)
            if not constant or "._" in str(text.value) or "[_" in str(text.value):  # type: ignore[attr-defined]
                yield Finding(line(node), "static.dynamic", "a format string that reads attributes")
    if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr"):
        return
    for argument in node.args:
        if isinstance(argument, ast.Name) and argument.id in ("getattr", "setattr"):
            yield Finding(line(node), "static.dynamic", f"{argument.id} handed to another function")


def _formatting(program: Program, node: ast.Attribute) -> Iterator[Finding]:
    """``str.format`` kept instead of called; restricted execution guards what other names lead to it."""
    if not isinstance(node.ctx, ast.Load):
        return
    text = node.value
    literal = (isinstance(text, ast.Name) and text.id == "str") or isinstance(
        text, ast.Constant | ast.JoinedStr
    )
    called = isinstance(up := program.parent_of[node], ast.Call) and up.func is node
    if node.attr == "format_map":
        yield Finding(line(node), "static.dynamic", "format_map reads attributes named in a string")
    elif node.attr == "format" and not called and (literal or program.paths(text)):
        yield Finding(line(node), "static.dynamic", "keeps a function that formats instead of calling it")


def _setattr(node: ast.Call, receiver: ast.expr, name: str) -> Iterator[Finding]:
    if not _is_self(receiver):
        yield Finding(line(node), "static.patch", f"setattr of {name!r} on something other than self")


def _is_self(receiver: ast.expr) -> bool:
    return isinstance(receiver, ast.Name) and receiver.id == "self"


def _has_literal_prefix(name: ast.expr) -> bool:
    """``f"weight_l{i}"``: the literal beginning rules private names out."""
    if not isinstance(name, ast.JoinedStr) or not name.values:
        return False
    first = name.values[0]
    return isinstance(first, ast.Constant) and len(str(first.value)) > 1 and str(first.value)[0].isalpha()


# -- classes and exceptions ------------------------------------------------------------------------


def _class(program: Program, node: ast.ClassDef) -> Iterator[Finding]:
    for base in node.bases:
        plain = base.value if isinstance(base, ast.Subscript) else base
        paths = program.paths(plain)
        own = [d for d in program.definitions(plain) if isinstance(d, ast.ClassDef)]
        builtin_object = isinstance(plain, ast.Name) and plain.id == "object"
        bad = sorted(p for p in paths if not _allowed_base(p))
        if bad:
            yield Finding(line(node), "static.subclass", f"class {node.name} derives from {bad[0]}")
        elif not (paths or own or builtin_object):
            name = ast.unparse(base)
            yield Finding(
                line(node), "static.subclass", f"class {node.name} derives from {name}, which is not known"
            )
    for keyword in node.keywords:
        if keyword.arg == "metaclass" and program.paths(keyword.value) != {"abc.ABCMeta"}:
            yield Finding(line(node), "static.subclass", f"class {node.name} has a metaclass")


def _allowed_base(path: str) -> bool:
    last = path.rsplit(".", 1)[-1]
    if path.startswith("torch.nn."):
        return last not in NOT_MODULES
    return path in BASES or path.startswith(("enum.", "typing.Generic"))


def _special_method(node: ast.FunctionDef) -> Iterator[Finding]:
    if node.name in ALLOWED_DUNDER_METHODS:
        return
    if node.name in ("__torch_function__", "__torch_dispatch__"):
        yield Finding(line(node), "static.subclass", f"defines {node.name}: results must be plain tensors")
    elif node.name in ("__exit__", "__enter__"):
        yield Finding(line(node), "static.try", f"defines {node.name}: a context manager can swallow errors")
    else:
        yield Finding(
            line(node), "static.dynamic", f"defines {node.name}, which Python calls behind the reader's back"
        )


def _try(program: Program, node: ast.Try | ast.TryStar) -> Iterator[Finding]:
    """Only a guard around imports at module level may catch anything."""
    guard = (
        isinstance(program.parent_of[node], ast.Module)
        and all(isinstance(s, ast.Import | ast.ImportFrom) for s in node.body)
        and all(
            isinstance(s, ast.Import | ast.ImportFrom | ast.Assign | ast.Pass)
            for h in node.handlers
            for s in h.body
        )
        and not node.finalbody
        and not node.orelse
    )
    if not guard:
        where = program.function_of(node)
        place = f"in {where.name}" if where else "outside an import guard"
        yield Finding(line(node), "static.try", f"try/except {place}")


def _is_dunder(name: str) -> bool:
    return len(name) > 4 and name.startswith("__") and name.endswith("__")

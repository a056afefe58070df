"""A kernel file as a reader sees it: its kernels, their launches, what is left to PyTorch, its constants."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

MOST_CHARACTERS = 400_000
"""A longer file is not looked at: it was not written by hand."""
TABLE = "TUNABLES"

_SPARED = frozenset({"__init__", "get_inputs", "get_init_inputs", "reset_parameters"})
"""Functions whose calls are no part of a forward pass."""
_TORCH_NAMES = """
    abs add addmm addmv amax amin argmax argmin baddbmm bmm cat clamp cdist conv1d conv2d conv3d
    conv_transpose1d conv_transpose2d conv_transpose3d cumprod cumsum div dot einsum embedding erf exp flip
    gather ger index_select layer_norm log log_softmax logsumexp matmul max mean min mm mul mv norm outer
    pow prod relu roll rsqrt scatter scatter_add sigmoid sin softmax sort sqrt stack std sub sum tanh
    tensordot tril triu var where
"""
_TORCH = frozenset(_TORCH_NAMES.split())
"""Functions of ``torch`` that compute; whatever makes or reshapes tensors is not among them."""
_METHOD_NAMES = """
    addmm amax amin argmax argmin baddbmm bmm clamp cumsum exp gather index_select log log_softmax
    logsumexp matmul mean mm mul mv norm pow relu rsqrt scatter_add sigmoid softmax sqrt std sum tanh tril
    triu var add_ mul_ sub_ div_
"""
_METHODS = frozenset(_METHOD_NAMES.split())
"""Methods that tensors have, and other objects do not."""
_PLUMBING = frozenset({"Identity", "Flatten", "Unflatten", "Parameter", "ParameterList", "ParameterDict"})
_CONTAINERS = frozenset({"functional", "linalg", "fft", "special"})


@dataclass(frozen=True)
class Function:
    """A function that runs on the GPU."""

    node: ast.FunctionDef
    decorators: frozenset[str]

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def parameters(self) -> tuple[str, ...]:
        given = self.node.args
        return tuple(a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs))


def read_source(source: str) -> SourceView | None:
    """``None`` for what is no Python, or nothing a person would write."""
    if len(source) > MOST_CHARACTERS:
        return None
    try:
        return SourceView(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@dataclass(frozen=True)
class SourceView:
    tree: ast.Module

    @cached_property
    def kernels(self) -> tuple[Function, ...]:
        """Functions under ``@triton.jit``, helpers of kernels among them."""
        return tuple(
            Function(node, named)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef)
            and "jit" in (named := frozenset(_last(d) for d in node.decorator_list))
        )

    @cached_property
    def calls(self) -> tuple[ast.Call, ...]:
        return tuple(node for node in ast.walk(self.tree) if isinstance(node, ast.Call))

    @cached_property
    def launches(self) -> tuple[ast.Call, ...]:
        """``kernel[grid](...)``."""
        return tuple(call for call in self.calls if isinstance(call.func, ast.Subscript))

    @cached_property
    def launched(self) -> tuple[Function, ...]:
        """Kernels that the host launches; where a launch hides its kernel, those that no kernel calls."""
        named = {_last(call.func.value) for call in self.launches if isinstance(call.func, ast.Subscript)}
        found = tuple(kernel for kernel in self.kernels if kernel.name in named)
        if found:
            return found
        called = {call_name(n) for k in self.kernels for n in ast.walk(k.node) if isinstance(n, ast.Call)}
        return tuple(kernel for kernel in self.kernels if kernel.name not in called)

    @cached_property
    def mentioned(self) -> frozenset[str]:
        """Every name, attribute and imported name in the file."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                    found.add(name)
                case _:
                    pass
        return frozenset(found)

    @cached_property
    def constants(self) -> Mapping[str, object]:
        """Literals bound to a name at the top of the file, the last one counting."""
        found: dict[str, object] = {}
        for statement in self.tree.body:
            for name, value in _assigned(statement):
                if isinstance(value, ast.Constant):
                    found[name] = value.value
                elif isinstance(value, ast.Call) and call_name(value) == "constexpr" and value.args:
                    inner = value.args[0]
                    found[name] = inner.value if isinstance(inner, ast.Constant) else None
        return found

    @cached_property
    def tunables(self) -> int:
        """Entries of the table of tunables."""
        for statement in reversed(self.tree.body):
            for name, value in _assigned(statement):
                if name == TABLE and isinstance(value, ast.Dict):
                    return len(value.keys)
        return 0

    @cached_property
    def library_calls(self) -> tuple[ast.AST, ...]:
        """Compute that the host leaves to PyTorch, outside of constructors."""
        held = self._held_modules()
        return tuple(node for node in self._host_nodes() if _is_library(node, held))

    @cached_property
    def named_integers(self) -> tuple[tuple[str, int], ...]:
        """Every whole number that the file binds to a name: by assignment, by keyword, in a dictionary."""
        return tuple(self._named_integers())

    def _named_integers(self) -> Iterator[tuple[str, int]]:
        for node in ast.walk(self.tree):
            match node:
                case ast.Assign() | ast.AnnAssign():
                    pairs = _assigned(node)
                case ast.Call():
                    pairs = list(self._arguments(node).items())
                case ast.Dict():
                    pairs = [
                        (key.value, value)
                        for key, value in zip(node.keys, node.values, strict=True)
                        if isinstance(key, ast.Constant) and isinstance(key.value, str)
                    ]
                case _:
                    continue
            for name, value in pairs:
                known = self.value_of(value)
                if isinstance(known, int) and not isinstance(known, bool):
                    yield name, known

    def value_of(self, node: ast.expr, kernel: Function | None = None) -> object:
        """A literal, or what a name stands for in the file or at a launch of ``kernel``; else ``None``."""
        if isinstance(node, ast.Constant):
            return node.value
        if not isinstance(node, ast.Name):
            return None
        if kernel is not None and node.id in kernel.parameters:
            for launch in self.launches:
                given = self._arguments(launch).get(node.id)
                if given is not None and (known := self.value_of(given)) is not None:
                    return known
            return self._default(kernel, node.id)
        return self.constants.get(node.id)

    def _arguments(self, call: ast.Call) -> dict[str, ast.expr]:
        """By name; those that a launch gives in their place, too, by the kernel's names for them."""
        named = {k.arg: k.value for k in call.keywords if k.arg}
        if isinstance(call.func, ast.Subscript):
            name = _last(call.func.value)
            kernel = next((kernel for kernel in self.kernels if kernel.name == name), None)
            if kernel is not None:
                named = {**dict(zip(kernel.parameters, call.args, strict=False)), **named}
        return named

    def _default(self, kernel: Function, name: str) -> object:
        given = kernel.node.args
        positional = [*given.posonlyargs, *given.args]
        late = positional[len(positional) - len(given.defaults) :]
        for parameter, default in zip(late, given.defaults, strict=True):
            if parameter.arg == name and isinstance(default, ast.Constant):
                return default.value
        return None

    def _held_modules(self) -> frozenset[str]:
        """``self.NAME = nn.Linear(...)``: attributes that compute when they are called."""
        held: set[str] = set()
        for node in ast.walk(self.tree):
            for name, value in _assigned(node, attributes=True):
                made = [_last(n.func) for n in ast.walk(value) if isinstance(n, ast.Call) and _is_layer(n)]
                if any(kind not in _PLUMBING for kind in made):
                    held.add(name)
        return frozenset(held)

    def _host_nodes(self) -> Iterator[ast.AST]:
        """What runs on the host in a forward pass: functions that are neither kernels nor constructors."""
        apart = {id(kernel.node) for kernel in self.kernels}
        waiting: list[ast.AST] = [self.tree]
        while waiting:
            node = waiting.pop()
            for child in ast.iter_child_nodes(node):
                spared = isinstance(child, ast.FunctionDef) and child.name in _SPARED
                if id(child) not in apart and not spared:
                    waiting.append(child)
            yield node


def call_name(call: ast.Call) -> str:
    """``load`` of ``tl.load(...)``."""
    return _last(call.func)


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((k.value for k in call.keywords if k.arg == name), None)


def _last(node: ast.expr) -> str:
    """The last part of a dotted name, through a call: ``autotune`` of ``triton.autotune(...)``."""
    match node:
        case ast.Call(func=func):
            return _last(func)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def _dotted(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            before = _dotted(value)
            return f"{before}.{name}" if before else ""
        case _:
            return ""


def _assigned(node: ast.AST, *, attributes: bool = False) -> list[tuple[str, ast.expr]]:
    """Names and what is bound to them; with ``attributes``, those of ``self`` instead."""
    match node:
        case ast.Assign(targets=targets, value=value):
            pass
        case ast.AnnAssign(target=target, value=value) if value is not None:
            targets = [target]
        case _:
            return []
    if attributes:
        return [(t.attr, value) for t in targets if isinstance(t, ast.Attribute) and _last(t.value) == "self"]
    pairs = [(target, value) for target in targets]
    for target in targets:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs += list(zip(target.elts, value.elts, strict=False))
    return [(name.id, bound) for name, bound in pairs if isinstance(name, ast.Name)]


def _is_layer(call: ast.Call) -> bool:
    path = _dotted(call.func)
    head, _, name = path.rpartition(".")
    return head in ("nn", "torch.nn") and name[:1].isupper()


def _is_library(node: ast.AST, held: frozenset[str]) -> bool:
    match node:
        case ast.BinOp(op=ast.MatMult()):
            return True
        case ast.Call(func=ast.Attribute() as func):
            space, _, name = _dotted(func).rpartition(".")
            if space == "torch":
                return name in _TORCH
            if space == "F" or space.rpartition(".")[2] in _CONTAINERS:
                return name != "pad"
            if space == "self":
                return name in held
            return func.attr in _METHODS and space not in ("tl", "triton", "math", "np")
        case ast.Call(func=ast.Subscript(value=ast.Attribute(attr=name) as value)):
            return _dotted(value) == f"self.{name}" and name in held
        case _:
            return False

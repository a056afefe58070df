"""What Python's syntax means inside a kernel.

A kernel's body runs as Python, but Triton's compiler gives some of Python another meaning:
``a and b`` on blocks is elementwise, ``max(a, b)`` is ``tl.maximum``, and a block has no truth
value at all. The stock interpreter takes Python's meaning and goes on silently with a wrong
one. Here the function's source is rewritten to the compiler's meaning, and a block used as a
condition is a fault.

The language is also patched once for the process. The stock interpreter patches some two
hundred functions again at every launch and at every call of a device function (``tl.sum`` is
one), which costs more than the work in between.
"""

from __future__ import annotations

import ast
import copy
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from egg.evaluator.interpreter.fault import KernelFault

_Stock: Any = interpreter.ASTTransformer

_AND, _OR, _NOT, _BUILTIN = "_egg_and", "_egg_or", "_egg_not", "_egg_builtin"
_CONDITION, _HOLDS, _COUNTED = "_egg_condition", "_egg_holds", "_egg_counted"
_ASSIGNED, _ENCLOSING = "_egg_assigned", "_egg_enclosing"
_RANGE_OPTIONS = (
    "num_stages",
    "loop_unroll_factor",
    "disallow_acc_multi_buffer",
    "flatten",
    "warp_specialize",
)
"""Of ``tl.range``, behind the bounds and the step."""
FRONT_END = "triton.language.semantic"


class StaticAssertion(AssertionError):
    """``tl.static_assert`` failed: the compiler refuses this specialisation of the kernel."""


class KernelSyntax(_Stock):
    """Turns conditions, assignments, boolean operators and min/max into calls that follow the compiler."""

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Assigned numbers become tensors, those in tuples too; nested expressions are visited."""
        if len(node.targets) > 1:
            raise KernelFault("unsupported", f"line {node.lineno}: a = b = value is not allowed in a kernel")
        node.targets = [self.visit(target) for target in node.targets]
        node.value = self._call(node.value, _ASSIGNED, [self.visit(node.value)])
        return node

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.AST:
        node.value = self._call(node.value, _ASSIGNED, [self.visit(node.value)])
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """``n += 1`` is ``n = n + 1``: a constant that is added to becomes a tensor, too."""
        if not isinstance(node.target, ast.Name):
            return self.generic_visit(node)
        before = ast.copy_location(ast.Name(id=node.target.id, ctx=ast.Load()), node.target)
        value = ast.copy_location(ast.BinOp(left=before, op=node.op, right=node.value), node)
        return self.visit(ast.copy_location(ast.Assign(targets=[node.target], value=value), node))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = _AND if isinstance(node.op, ast.And) else _OR
        return self._call(node, name, [self._delayed(value) for value in node.values])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return self._call(node, _NOT, [node.operand]) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """``a < b < c`` as ``a < b and b < c``, with the ``and`` of this module."""
        if len(node.ops) == 1:
            return self.generic_visit(node)
        operands = [node.left, *node.comparators]
        pairs: list[ast.expr] = [
            ast.copy_location(ast.Compare(left=copy.deepcopy(left), ops=[op], comparators=[right]), node)
            for left, op, right in zip(operands, node.ops, operands[1:], strict=False)
        ]
        return self.visit(ast.copy_location(ast.BoolOp(op=ast.And(), values=pairs), node))

    def visit_If(self, node: ast.If) -> ast.AST:
        return self._conditional(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        return self._conditional(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        return self._conditional(node)

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.iter, ast.Call):
            node.iter.args.insert(0, node.iter.func)
            node.iter.func = ast.copy_location(ast.Name(id=_COUNTED, ctx=ast.Load()), node.iter)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.generic_visit(node)
        node.test = self._call(node.test, _HOLDS, [node.test])
        return node

    def _conditional(self, node: ast.If | ast.While | ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        node.test = self._call(node.test, _CONDITION, [node.test])
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            node.func = self._call(node.func, _BUILTIN, [node.func])
        return node

    @staticmethod
    def _delayed(value: ast.expr) -> ast.expr:
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        return ast.copy_location(ast.Lambda(args=nothing, body=value), value)

    @staticmethod
    def _call(node: ast.expr, name: str, args: list[ast.expr]) -> ast.expr:
        return ast.copy_location(
            ast.Call(func=ast.Name(id=name, ctx=ast.Load()), args=args, keywords=[]), node
        )


def logical(stop_at: bool, join: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """``and`` (stops at False) or ``or`` (stops at True), as the compiler evaluates them.

    Compile-time values short-circuit and otherwise drop out; tensors, scalar or block, are
    all evaluated and joined elementwise.
    """

    def evaluate(*operands: Callable[[], Any]) -> Any:
        joined, value = None, None
        for operand in operands:
            value = operand()
            if isinstance(value, tl.tensor):
                truth = value if value.dtype == tl.int1 else value != 0
                joined = truth if joined is None else join(joined, truth)
            elif bool(value) is stop_at:
                return value
        return value if joined is None else joined

    return evaluate


def negated(value: Any) -> Any:
    """``not``: of a tensor, scalar or block, a tensor of one bit, whose sums wrap around at one bit."""
    return value == 0 if isinstance(value, tl.tensor) else not value


def assigned(value: Any) -> Any:
    """What a name is bound to: a number becomes a tensor, also inside a tuple."""
    if isinstance(value, tl.tuple):
        return tl.tuple([assigned(item) for item in value.values])
    if isinstance(value, tuple):
        items = [assigned(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    semantic: Any = interpreter.interpreter_semantic
    return semantic.to_tensor(value, False)


def builtin(function: Callable[..., Any]) -> Callable[..., Any]:
    """Python's ``min`` and ``max`` with the compiler's reach; a function of the kernel's own as it is."""
    replacements = {min: minimum, max: maximum}
    return (
        replacements.get(function, function) if isinstance(function, types.BuiltinFunctionType) else function
    )


def minimum(*args: Any, **named: Any) -> Any:
    return _fold(tl.minimum, args) if _any_tensor(args) else min(*args, **named)


def maximum(*args: Any, **named: Any) -> Any:
    return _fold(tl.maximum, args) if _any_tensor(args) else max(*args, **named)


def counted(function: Callable[..., Any], *bounds: Any, **named: Any) -> Iterable[Any]:
    """What a ``for`` runs over. The counter of ``range`` and ``tl.range`` is a 32-bit integer, not Python's.

    So it wraps around, and its quotients and remainders go towards zero. The counter of
    ``tl.static_range`` is the compiler's own, and Python's.
    """
    if function is not range and not getattr(function, _COUNTED, False):
        return function(*bounds, **named)
    named |= zip(_RANGE_OPTIONS, bounds[3:], strict=False)
    bounds = bounds[:3]
    _require_counting_up(bounds[2] if len(bounds) > 2 else named.get("step"))
    wide = any(isinstance(b, tl.tensor) and b.dtype.primitive_bitwidth > 32 for b in bounds)
    values = _tensors(function(*bounds, **named), tl.int64 if wide else tl.int32)
    builder: Any = interpreter.interpreter_builder
    if builder.races is None:
        return values
    stages = named.get("num_stages")
    fixed = not _any_tensor(bounds) and not isinstance(named.get("step"), tl.tensor)
    return builder.races.pipelines.run(
        builder.races.program,
        values,
        None if stages is None else int(stages),
        sys._getframe(1).f_code,
        flat=bool(named.get("flatten")),
        fixed=fixed,
    )


def _require_counting_up(step: Any) -> None:
    """The compiler takes a step that is no constant for positive: a loop that counts down never runs."""
    count = integer(step) if isinstance(step, tl.tensor) else 1
    if count <= 0:
        raise KernelFault(
            "undefined",
            f"{_where()}: the step of a range is {count}, known only when the kernel runs: on a GPU such "
            "a loop never runs; write the step as a constant, or pass it as tl.constexpr",
        )


def _counting(stock: Callable[..., Any]) -> Callable[..., Any]:
    """``tl.range`` apart from ``tl.static_range``, which the stock interpreter makes the same function."""

    def ranged(*bounds: Any, **named: Any) -> Any:
        return stock(*bounds, **named)

    setattr(ranged, _COUNTED, True)
    return ranged


def _tensors(values: Iterable[int], dtype: Any) -> Iterator[Any]:
    kind = interpreter._get_np_dtype(dtype)
    for value in values:
        wide = not -(2**31) <= value < 2**31
        data = np.array([value], dtype=np.int64 if wide else kind)
        yield tl.tensor(
            interpreter.TensorHandle(data, tl.int64 if wide else dtype), tl.int64 if wide else dtype
        )


def _any_tensor(args: tuple[Any, ...]) -> bool:
    return any(isinstance(arg, tl.tensor) for arg in args)


def _fold(function: Callable[[Any, Any], Any], args: tuple[Any, ...]) -> Any:
    result = args[0]
    for arg in args[1:]:
        result = function(result, arg)
    return result


def _where() -> str:
    builder: Any = interpreter.interpreter_builder
    return builder.where()


def condition(value: Any) -> Any:
    """What ``if`` and ``while`` may ask: a scalar. A block there is a mistake the compiler refuses."""
    if isinstance(value, tl.tensor) and value.handle.data.size != 1:
        raise KernelFault(
            "unsupported",
            f"{_where()}: a block of shape {value.handle.data.shape} is the condition of an if or while; "
            "select elements with tl.where",
        )
    return value


def holds(value: Any) -> bool:
    """``assert`` in a kernel checks nothing on a GPU, unless compiled for debugging: it guards no call."""
    return True


def integer(self: Any) -> int:
    if self.handle.data.size != 1:
        raise KernelFault("unsupported", f"{_where()}: a block is used as a range's bound or an index")
    return int(self.handle.data.item())


def truth(of_value: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A tensor's own truth is its value's. Triton's front end asks only whether it was given one: ``other if
    other else None`` would drop a zero of one element."""

    def __bool__(self: Any) -> bool:
        return sys._getframe(1).f_globals.get("__name__") == FRONT_END or of_value(self)

    return __bool__


def static_assert(cond: Any, msg: Any = "") -> None:
    if not cond:
        raise StaticAssertion(str(msg))


class NothingToRestore:
    """What ``_patch_lang`` returns once the language is patched for good."""

    def restore(self) -> None:
        return None


def mend() -> None:
    """Patch the language for the life of the process, then install the rewritten meanings."""
    body = (lambda: None).__code__
    interpreter._patch_lang(types.FunctionType(body, {"tl": tl, "core": tl.core}))
    interpreter._patch_lang = lambda fn: NothingToRestore()
    tensor: Any = tl.core.tensor
    tensor.__index__ = integer
    tensor.__bool__ = truth(tensor.__bool__)
    stock_range: Any = tl.range
    for module in (tl, tl.core):
        module.static_assert = static_assert  # type: ignore[attr-defined]
        module.range = _counting(stock_range)  # type: ignore[attr-defined]
    helpers = {
        _AND: logical(False, lambda a, b: a & b),
        _OR: logical(True, lambda a, b: a | b),
        _NOT: negated,
        _CONDITION: condition,
        _HOLDS: holds,
        _BUILTIN: builtin,
        _COUNTED: counted,
        _ASSIGNED: assigned,
    }
    rewriter: Any = interpreter.FunctionRewriter
    rewriter.ast_transformer, rewriter._compile_and_exec = KernelSyntax(), enclosed(helpers)
    interpreter.InterpretedFunction.__call__ = call_device_function


def enclosed(helpers: Mapping[str, Any]) -> Callable[[Any, ast.Module], Any]:
    """How a rewritten kernel becomes a function: the names that rewriting put there are those of an enclosing
    function.

    The stock interpreter lays every name of its own module into the file's globals instead, modules such as
    ``inspect`` among them, where host code of the file finds them.
    """

    def made(self: Any, tree: ast.Module) -> Any:
        [kernel] = tree.body
        assert isinstance(kernel, ast.FunctionDef)
        parameters = ast.arguments([], [ast.arg(name) for name in helpers], None, [], [], None, [])
        found = ast.Return(ast.Name(kernel.name, ast.Load()))
        outer = ast.FunctionDef(_ENCLOSING, parameters, [kernel, found], [], None)
        tree.body = [ast.copy_location(outer, kernel)]
        ast.fix_missing_locations(tree)
        space: dict[str, Any] = {}
        exec(compile(tree, self.filename, "exec"), self.fn.__globals__, space)
        function = space[_ENCLOSING](**helpers)
        function.__qualname__ = self.fn.__qualname__
        return function

    return made


def call_device_function(self: Any, *args: Any, **kwargs: Any) -> Any:
    """One kernel function calling another: exceptions pass as they are, so a fault stays a fault."""
    return self.rewrite()(*args, **kwargs)


def scalar_argument(value: bool | float) -> Any:
    """A bool or float kernel argument, typed as the launcher would type it."""
    if isinstance(value, bool):
        return tl.tensor(interpreter.TensorHandle(np.array([value]), tl.int1), tl.int1)
    return tl.tensor(interpreter.TensorHandle(np.array([value], dtype=np.float32), tl.float32), tl.float32)


def typed_argument(value: float, kind: str) -> Any:
    """A number for a parameter of an annotated type, as the launcher packs it."""
    dtype: Any = tl.int1 if kind == "u1" else tl.str_to_ty(kind, None)
    if dtype.is_floating():
        data = np.array([value], dtype=np.float64)
        exact = tl.tensor(interpreter.TensorHandle(data, tl.float64), tl.float64)
        return exact.to(dtype)
    if isinstance(value, float):
        raise TypeError(f"a float is given for a parameter that is annotated as {dtype}")
    return tl.tensor(interpreter.TensorHandle(_integer_of(value, dtype), dtype), dtype)


def _integer_of(value: int, dtype: Any) -> np.ndarray:
    """One integer of a type; a signed one that does not fit is an error at the launch."""
    kind = interpreter._get_np_dtype(dtype)
    if dtype == tl.int1:
        return np.array([bool(value)])
    if dtype.is_int_signed() and not np.iinfo(kind).min <= value <= np.iinfo(kind).max:
        raise OverflowError(f"{value} does not fit a parameter that is annotated as {dtype}")
    return np.array([value & (2**64 - 1)], dtype=np.uint64).astype(kind)

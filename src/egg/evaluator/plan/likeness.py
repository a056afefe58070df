"""Whether two recorded calls are one program at two sizes.

A plan holds the call at the task's own size and one at a size that is interpreted, and most questions are put
to the latter. They tell something of the former as far as both are the same program. So both are read as the
steps that work: launches, and functions of the library that compute. These must be the same, in the same
order, on the same tensors. Only numbers may differ, and of a function only those that sizes explain
(:class:`~egg.evaluator.plan.sizes.Scales`): another slice is another share of the work.

What leads to the operands of a function (views, slices, copies) is compared with it, number by number. What
leads to those of a launch is followed to where it comes from, and no further: where rows lie at odd places a
kernel may need a copy of them, and it reads of a tensor what it likes anyway. Its numbers are free for
the same reason: a kernel is handed its sizes, and can tell by them where it is, whatever else it is handed.
Where sizes do not explain a number that may choose among ways, it is put down in words
(:attr:`Likeness.branches`) for the verdict.

Grids and options of a launch (warps, stages) follow from block sizes, and those may be chosen by size. Free
are also strides of views but zero, and lengths of tables and new memory that no function reads: of others
they are the library's share (:mod:`~egg.evaluator.plan.lengths`), and may be padded.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from egg.evaluator.plan.lengths import compared_lengths, is_memory, is_table, memory
from egg.evaluator.plan.sizes import Number, Scales
from egg.evaluator.plan.vocabulary import OPTIONS

OFFSETS_OF_LAUNCHES = 16
MOST_FLAG = 8
"""Up to here an integer that a kernel is handed may choose among ways; a larger one is some kind of size."""
MOST_DIMENSIONS = 4
EMPTY = ("empty", "new_empty")
"""How functions begin that give memory which holds nothing."""
ZEROS = ("zeros", "new_zeros")
VIEWS = frozenset(
    str.split("""
    view view_as reshape permute transpose t squeeze unsqueeze expand expand_as as_strided narrow select
    movedim moveaxis swapaxes swapdims flatten unflatten unfold diagonal detach alias split
    split_with_sizes chunk unbind view_as_real view_as_complex
    """)
)
CARRIES = frozenset(("clone", "contiguous"))
MOST_NODES = 200_000
"""Of one expression, with what leads to its operands."""
MOST_WORDS = 6


@dataclass(frozen=True)
class Call:
    """One recorded call: its statements, and the literal that names what it was called with."""

    statements: Sequence[str]
    result: str
    form: str


@dataclass(frozen=True)
class Likeness:
    """How one call compares with the other."""

    difference: str = ""
    """The first thing in which they are two programs; empty where they are one."""
    is_number: bool = False
    """Whether that is a number in steps that are the same otherwise."""
    branches: tuple[str, ...] = ()
    """Numbers of launches that sizes do not explain."""


class _Other(Exception):
    def __init__(self, what: str, *, is_number: bool = False) -> None:
        super().__init__(what)
        self.what, self.is_number = what, is_number


@dataclass(frozen=True)
class _Step:
    """One that works."""

    text: str
    value: ast.expr
    """The expression, with what leads to its operands."""
    kernel: str = ""
    """Of a launch."""


def likeness(own: Call, other: Call) -> Likeness:
    """Read both side by side."""
    scales = Scales(own.form, other.form)
    branches: list[str] = []
    try:
        one, two = _Reading(), _Reading()
        steps = one.steps(own), two.steps(other)
        for first, second in zip(*steps, strict=False):
            if first.kernel != second.kernel:
                raise _Other(_both(first.text, second.text))
            branches += _compared(first, second, scales)
        if len(steps[0]) != len(steps[1]):
            where = "the task's own size" if len(steps[0]) > len(steps[1]) else "the smaller size"
            more = max(steps, key=len)[min(map(len, steps))]
            raise _Other(f"`{_brief(more.text)}` at {where} alone")
        first = _Step(own.result, one.origins(_expression(own.result)))
        _compared(first, _Step(other.result, two.origins(_expression(other.result))), scales)
    except _Other as difference:
        return Likeness(difference.what, difference.is_number)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Likeness(f"a statement cannot be read: {type(error).__name__}")
    return Likeness(branches=tuple(dict.fromkeys(branches))[:MOST_WORDS])


@dataclass
class _Reading:
    """Names of one call, and what each stands for."""

    moves: dict[str, ast.expr] = field(default_factory=dict)
    """Views and copies: the expression that made each."""
    empty: dict[str, list[ast.expr]] = field(default_factory=dict)
    """New memory that no step has worked on: what was copied into it."""
    made: dict[str, str] = field(default_factory=dict)
    """Results of steps, by the step's number."""
    rooms: dict[str, ast.expr] = field(default_factory=dict)
    """New memory and tables: the call that gave each."""
    handed: set[str] = field(default_factory=set)
    """New memory that launches were handed."""
    seen: set[str] = field(default_factory=set)
    count: int = 0
    nodes: int = 0

    def steps(self, call: Call) -> list[_Step]:
        """Those of a call that work. Text of a candidate's process: each name is bound once, before it is
        read, or following it might not end."""
        found = []
        for text in call.statements:
            (node,) = ast.parse(text).body
            if not isinstance(node, ast.Assign | ast.Expr):
                raise _Other(f"`{_brief(text)}` is no step")
            names = [name for target in getattr(node, "targets", ()) for name in _names(target)]
            self.seen.update(_names(node.value))
            if not self.seen.isdisjoint(names):
                raise _Other(f"`{_brief(text)}` binds a name a second time, or behind a use of it")
            self.seen.update(names)
            if not self._is_move(names, node.value):
                found.append(self._step(text, names, node.value))
        return found

    def _is_move(self, names: list[str], value: ast.expr) -> bool:
        """Note what only makes room, shows a tensor in another form, or copies it to new memory."""
        if isinstance(value, ast.Subscript):
            if not _is_plain(value.slice) or not names:
                return False
            self.moves[names[0]] = value
            return True
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
            return False
        name = value.func.attr
        if name == "copy_" and not names:
            root = self._root(value.func.value)
            if root not in self.empty:
                return False
            self.empty[root].append(value)
            return True
        if not names:
            return False
        if name.startswith(EMPTY):
            self.empty[names[0]], self.rooms[names[0]] = [], value
            return True
        if name not in VIEWS | CARRIES and not (name == "to" and _keeps_its_type(value)):
            return False
        for place, target in enumerate(names):
            self.moves[target] = value if len(names) == 1 else ast.Subscript(value, ast.Constant(place))
        return True

    def _step(self, text: str, names: list[str], value: ast.expr) -> _Step:
        self.count, self.nodes = self.count + 1, 0
        launch = isinstance(value, ast.Call) and isinstance(value.func, ast.Subscript)
        if launch:
            assert isinstance(value, ast.Call)
            assert isinstance(value.func, ast.Subscript)
            used = [n for part in (*value.args, *value.keywords) for n in ast.walk(part)]
            for place, name in enumerate(n.id for n in used if isinstance(n, ast.Name)):
                self._work_on(name, f"step_{self.count}_{place}")
            given = [self.origins(a) for a in value.args]
            keywords = [ast.keyword(k.arg, self.origins(k.value)) for k in value.keywords
                        if k.arg not in OPTIONS]  # fmt: skip
            kernel = ast.unparse(value.func.value)
            return _Step(text, ast.Call(ast.Name(kernel, ast.Load()), given, keywords), kernel)
        whole = self._whole(value)
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and not names:
            self._work_on(self._root(value.func.value), f"step_{self.count}")
        for place, name in enumerate(names):
            self.made[name] = f"step_{self.count}_{place}"
        if names and (_is_zeros(value) or is_table(value)):
            self.rooms[names[0]] = value
        return _Step(text, whole)

    def _work_on(self, name: str, step: str) -> None:
        """New memory is that of the first step that it is handed to."""
        root = self._root(ast.Name(name, ast.Load()))
        self.handed.add(root)
        if root in self.empty and not self.empty[root]:
            del self.empty[root]
            self.made[root] = step

    def _root(self, node: ast.expr) -> str:
        """The text of the tensor in whose memory an operand lies, or of which it is a copy."""
        while True:
            if isinstance(node, ast.Name) and node.id in self.moves:
                node = self.moves[node.id]
            elif isinstance(node, ast.Subscript):
                node = node.value
            elif isinstance(node, ast.Call):
                node = _receiver(node)
            else:
                return ast.unparse(node)

    def origins(self, node: ast.expr) -> ast.expr:
        """With every name replaced by where it comes from."""
        return _replaced(node, self._origin)

    def _origin(self, name: str) -> ast.expr:
        root = self._root(ast.Name(name, ast.Load()))
        copied = [v.args[0] for v in self.empty.get(root, ()) if isinstance(v, ast.Call) and v.args]
        if not copied:
            return _expression(self.made.get(root, root))
        self._count_node()
        sources = {ast.unparse(source): source for source in map(self.origins, copied)}
        found = list(sources.values())
        return found[0] if len(found) == 1 else ast.Call(ast.Name("copied", ast.Load()), found, [])

    def _whole(self, node: ast.expr) -> ast.expr:
        """With every name replaced by the expression that made it."""
        return _replaced(node, self._expanded)

    def _expanded(self, name: str) -> ast.expr:
        self._count_node()
        if name in self.made:
            return self._memory(name, ast.Name(self.made[name], ast.Load()))
        if name in self.moves:
            return self._whole(self.moves[name])
        if name in self.empty:
            calls = [v for v in self.empty[name] if isinstance(v, ast.Call)]
            parts = [part for v in calls for part in (self._place(v), *map(self._whole, v.args[:1]))]
            made = ast.Call(ast.Name("copied", ast.Load()), parts, [])
            return self._memory(name, made) if name in self.handed else made
        return ast.Name(name, ast.Load())

    def _memory(self, name: str, made: ast.expr) -> ast.expr:
        """With its lengths, where it is new memory or a table: a function is handed all of it."""
        return memory(made, self.rooms[name], self._whole) if name in self.rooms else made

    def _place(self, copy: ast.Call) -> ast.expr:
        """The part of new memory that a copy goes to."""

        def shown(name: str) -> ast.expr:
            self._count_node()
            if name in self.moves:
                return _replaced(self.moves[name], shown)
            return ast.Name("new" if name in self.empty else name, ast.Load())

        return _replaced(_receiver(copy), shown)

    def _count_node(self) -> None:
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise _Other("operands of a step that are made in too many steps")


class _Replacing(ast.NodeTransformer):
    def __init__(self, by: Callable[[str], ast.expr]) -> None:
        self._by = by

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._by(node.id)


def _replaced(node: ast.expr, by: Callable[[str], ast.expr]) -> ast.expr:
    """A copy of an expression with other names."""
    return _Replacing(by).visit(_expression(ast.unparse(node)))


def _compared(one: _Step, two: _Step, scales: Scales) -> list[str]:
    """Raises where they differ; returns numbers of a launch that sizes do not explain."""
    free = _is_zeros(one.value) and _is_zeros(two.value)
    tables = is_table(one.value)
    branches: list[str] = []
    waiting: list[tuple[ast.AST, ast.AST, bool]] = [(one.value, two.value, True)]
    while waiting:
        a, b, computes = waiting.pop()
        left, right = _number(a), _number(b)
        if is_memory(a) and is_memory(b):
            difference, rest = compared_lengths(a, b, scales)
            if difference:
                raise _Other(f"{difference} for {_both(one.text, two.text)}", is_number=True)
            waiting += [(*pair, False) for pair in rest]
            continue
        if left is not None and right is not None:
            if one.kernel and _chooses(left, right, scales):
                branches.append(f"kernel {one.kernel} is handed {left!r}, at the smaller size {right!r}")
            elif not (one.kernel or free) and not _explained(left, right, scales, computes=computes):
                raise _Other(f"{left!r} and {right!r} in {_both(one.text, two.text)}", is_number=True)
            continue
        if tables and isinstance(a, ast.List) and isinstance(b, ast.List):
            continue
        parts = _parts(a), _parts(b)
        if type(a) is not type(b) or len(parts[0]) != len(parts[1]) or _own_text(a) != _own_text(b):
            raise _Other(_both(one.text, two.text))
        if isinstance(a, ast.Call | ast.Subscript):
            computes = isinstance(a, ast.Call) and _name(a) not in VIEWS
        waiting += ((*pair, computes) for pair in zip(*parts, strict=True))
    return branches


def _explained(one: Number, two: Number, scales: Scales, *, computes: bool) -> bool:
    """Small numbers that a function is handed are dimensions, orders and the like: no size explains them."""
    small = type(one) is int and type(two) is int and max(abs(one), abs(two)) <= MOST_DIMENSIONS
    return one == two and type(one) is type(two) if computes and small else scales.explains(one, two)


def _chooses(one: Number, two: Number, scales: Scales) -> bool:
    """Whether a number that a kernel is handed may choose among ways; a power of two is a size of blocks."""
    if scales.explains(one, two, OFFSETS_OF_LAUNCHES):
        return False
    if type(one) is not int or type(two) is not int:
        return True
    blocks = all(n > 0 and n & (n - 1) == 0 for n in (one, two))
    return not blocks and min(abs(one), abs(two)) <= MOST_FLAG and not scales.quotient(one, two)


def _number(node: ast.AST) -> Number | None:
    """Of a literal; ``-torch.inf`` and the like are names."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None or isinstance(inner, bool) else -inner
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        return node.value
    return None


def _parts(node: ast.AST) -> list[ast.AST]:
    """What it consists of; of the strides of a view whether each is zero: any others show as many elements,
    and wrong ones show wrong elements."""
    if isinstance(node, ast.Call) and _name(node) == "as_strided" and len(node.args) >= 3:
        strides = [ast.Constant(int(_number(part) != 0)) for part in getattr(node.args[2], "elts", ())]
        return [node.args[0], node.args[1], ast.List([*strides], ast.Load())]
    return [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr_context)]


def _own_text(node: ast.AST) -> tuple[object, ...]:
    """What a node says beside its parts."""
    plain = str | int | float | bytes
    return tuple((name, repr(v)) for name, v in ast.iter_fields(node) if v is None or isinstance(v, plain))


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _receiver(call: ast.Call) -> ast.expr:
    """What a function or a method is about."""
    base = call.func
    while isinstance(base, ast.Attribute):
        base = base.value
    if isinstance(base, ast.Name) and base.id == "torch":
        return call.args[0] if call.args else base
    return call.func.value if isinstance(call.func, ast.Attribute) else base


def _names(node: ast.AST) -> list[str]:
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]


def _is_plain(index: ast.expr) -> bool:
    """Whether no tensor is among the indices."""
    return not _names(index)


def _keeps_its_type(call: ast.Call) -> bool:
    return not call.args and all(k.arg in ("memory_format", "copy") for k in call.keywords)


def _is_zeros(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and _name(value).startswith(ZEROS)


def _both(one: str, two: str) -> str:
    return f"`{_brief(one)}` at the task's own size, `{_brief(two)}` at the smaller"


def _brief(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 120 else f"{line[:120]}..."

"""Read a kernel file's tunables from its text, and write another point of their space into it.

Nothing is executed: the table and the constants it names are literals, found in the syntax
tree. A rewrite replaces the bytes of those literals and no others, so that two points of a
space differ in nothing but their values.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from egg.core.space import Point, Space, Tunable, Value

TABLE = "TUNABLES"
MOST_TUNABLES = 8
LAUNCH_OPTIONS: tuple[tuple[str, frozenset[int], str], ...] = (
    ("num_warps", frozenset({1, 2, 4, 8, 16, 32}), "a power of two from 1 to 32"),
    ("num_stages", frozenset(range(1, 13)), "from 1 to 12"),
)
"""Constants whose names end so are launch options, and Triton takes only these values for them."""

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOUND_BY_NAME = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_LARGEST = 1 << 63


class BadTunables(ValueError):
    """A declaration that cannot be swept: what is wrong with it, and in which line."""

    def __init__(self, sentence: str, line: int) -> None:
        super().__init__(f"line {line}: {sentence}")
        self.sentence = sentence
        self.line = line


@dataclass(frozen=True)
class _Declaration:
    """A space, and for each of its constants the literal that gives the current value."""

    space: Space
    literals: Mapping[str, ast.expr]


def read_space(source: str) -> Space | None:
    """The space a kernel file declares; ``None`` where it declares none, or an empty table.

    Text that is not Python declares nothing: the judge has better words for it. A table that
    is there but cannot be swept is a :class:`BadTunables`.
    """
    declaration = _read(source)
    return declaration.space if declaration else None


def with_point(source: str, point: Point) -> str:
    """``source`` with its constants at ``point``; a constant that has its value already keeps its spelling.

    The point names every tunable and nothing else: :class:`ValueError` otherwise.
    """
    declaration = _read(source)
    if declaration is None:
        raise ValueError("the kernel file declares no tunables")
    _check_point(declaration.space, point)
    text = source.encode()
    line_starts = [0, *(end.end() for end in _LINE_END.finditer(text))]
    edits = [
        (*_span(declaration.literals[t.name], line_starts), repr(point[t.name]).encode())
        for t in declaration.space.tunables
        if point[t.name] != t.current
    ]
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text.decode()


@lru_cache(maxsize=32)
def program_of(source: str) -> str:
    """What a file does, whatever it leaves open: one text for all files that differ in no more than their
    table, comments and layout. Text that is not Python stands for itself.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    tree.body = [statement for statement in tree.body if not _is_table(statement)]
    return ast.dump(tree)


def _is_table(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name == TABLE
    return False


def _check_point(space: Space, point: Point) -> None:
    names = [t.name for t in space.tunables]
    if sorted(point) != sorted(names):
        raise ValueError(f"the space has {', '.join(names)}; the point names {', '.join(point) or 'nothing'}")
    for tunable in space.tunables:
        value = point[tunable.name]
        if type(value) is not type(tunable.current) or value not in tunable.values:
            raise ValueError(f"{tunable.name} may be one of {tunable.values}, not {value!r}")


def _span(node: ast.expr, line_starts: list[int]) -> tuple[int, int]:
    """The bytes a node occupies in the encoded source (the tree counts columns in bytes)."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (
        line_starts[node.lineno - 1] + node.col_offset,
        line_starts[node.end_lineno - 1] + node.end_col_offset,
    )


# -- the declaration -------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def _read(source: str) -> _Declaration | None:
    try:
        tree = ast.parse(source)
        bindings = _bindings(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if TABLE not in bindings:
        return None
    constants = dict(_assignments(tree))
    table = constants.get(TABLE)
    if len(bindings[TABLE]) > 1:
        raise BadTunables(f"{TABLE} is bound more than once; write one table", bindings[TABLE][1])
    if not isinstance(table, ast.Dict):
        raise BadTunables(
            f'{TABLE} must be a literal dict at module level, as {{"BLOCK": (512, 1024)}}', bindings[TABLE][0]
        )
    if len(table.keys) > MOST_TUNABLES:
        raise BadTunables(f"{len(table.keys)} tunables, at most {MOST_TUNABLES} can be swept", table.lineno)
    tunables: dict[str, Tunable] = {}
    for key, values in zip(table.keys, table.values, strict=True):
        name = _name(key, table)
        if name in tunables:
            raise BadTunables(f"{name} is in {TABLE} twice", values.lineno)
        tunables[name] = _tunable(name, _current(name, bindings, constants, values), values)
    return _Declaration(Space(tuple(tunables.values())), constants) if tunables else None


def _name(key: ast.expr | None, table: ast.Dict) -> str:
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
        at = (key or table).lineno
        raise BadTunables(f"the keys of {TABLE} must be names of constants, in quotes", at)
    return key.value


def _current(
    name: str, bindings: Mapping[str, list[int]], constants: Mapping[str, ast.expr], values: ast.expr
) -> Value:
    """What the constant is now; it must be a literal that nothing else in the module overrides."""
    lines = bindings.get(name, [])
    if not lines:
        raise BadTunables(f"{name} is in {TABLE} but is not a constant of this module", values.lineno)
    if len(lines) > 1:
        raise BadTunables(f"{name} is tunable, so it must be assigned exactly once", lines[1])
    value = _literal(constants[name]) if name in constants else None
    if value is None:
        raise BadTunables(
            f"{name} is tunable, so it must be given an integer, boolean or string literal at module level",
            lines[0],
        )
    return value


def _tunable(name: str, current: Value, values: ast.expr) -> Tunable:
    line = values.lineno
    if not isinstance(values, ast.Tuple | ast.List) or not values.elts:
        raise BadTunables(f"the values of {name} must be a tuple with at least one literal", line)
    found: list[Value] = []
    for element in values.elts:
        value = _literal(element)
        if value is None:
            raise BadTunables(
                f"{name} may be {ast.unparse(element)[:40]}: not an integer, boolean or string literal",
                element.lineno,
            )
        found.append(value)
    if len({type(v) for v in [*found, current]}) > 1:
        raise BadTunables(f"{name} is {current!r} and may be {found}: values of different types", line)
    if len(set(found)) < len(found):
        raise BadTunables(f"the values of {name} name one more than once: {found}", line)
    if current not in found:
        raise BadTunables(f"{name} is {current!r}, which is not among its values {found}", line)
    for ending, allowed, words in LAUNCH_OPTIONS:
        wrong = [v for v in found if type(v) is not int or v not in allowed]
        if name.lower().endswith(ending) and wrong:
            raise BadTunables(f"{name} may be {wrong[0]!r}, but {ending} must be {words}", line)
    return Tunable(name, current, tuple(found))


def _literal(node: ast.expr) -> Value | None:
    """The value of an integer (of at most 64 bits), boolean or string literal."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))) if type(value) is int:
            return -value if value <= _LARGEST else None
        case ast.Constant(value=bool() | str() as value):
            return value
        case ast.Constant(value=int(value)) if value < _LARGEST:
            return value
    return None


# -- names of the module ---------------------------------------------------------------------------


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Names given one value each by a top-level statement: ``A = 1``, ``A: int = 1``, ``A, B = 1, 2``."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[target], value=value):
                yield from _paired(target, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, _unwrapped(value)


def _paired(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, _unwrapped(value)
    elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        starred = any(isinstance(e, ast.Starred) for e in (*target.elts, *value.elts))
        if not starred and len(target.elts) == len(value.elts):
            for one, its in zip(target.elts, value.elts, strict=True):
                yield from _paired(one, its)


def _unwrapped(value: ast.expr) -> ast.expr:
    """What ``tl.constexpr(...)`` holds: kernels read a module-level constant only in that form."""
    match value:
        case ast.Call(
            func=ast.Attribute(attr="constexpr") | ast.Name(id="constexpr"), args=[held], keywords=[]
        ):
            return held
    return value


def _bindings(tree: ast.Module) -> dict[str, list[int]]:
    """The lines where each module-level name is bound or may be: a ``global`` statement counts as one."""
    found: dict[str, list[int]] = {}

    def bind(name: str | None, line: int) -> None:
        if name is not None:
            found.setdefault(name, []).append(line)

    for node, module_level in _walk(tree):
        match node:
            case ast.Global(names=names):
                for name in names:
                    bind(name, node.lineno)
            case _ if not module_level:
                continue
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                bind(name, node.lineno)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.ExceptHandler():
                bind(node.name, node.lineno)
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    bind((alias.asname or alias.name).split(".")[0], node.lineno)
            case ast.MatchAs(name=name) | ast.MatchStar(name=name):
                bind(name, node.lineno)
            case ast.MatchMapping(rest=name):
                bind(name, node.lineno)
    return {name: sorted(lines) for name, lines in found.items()}


def _walk(tree: ast.Module) -> Iterator[tuple[ast.AST, bool]]:
    """Every node, and whether a name stored there is the module's own.

    Names bound in functions and classes are theirs; loop names of a comprehension are its own,
    but ``:=`` inside one binds outside of it.
    """
    queue: list[tuple[ast.AST, bool]] = [(tree, True)]
    while queue:
        node, module_level = queue.pop()
        yield node, module_level
        inside = module_level and not isinstance(node, _BOUND_BY_NAME | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            loop_name = isinstance(node, ast.comprehension) and child is node.target
            queue.append((child, inside and not loop_name))

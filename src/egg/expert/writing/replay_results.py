"""Results that a recorded graph writes where the caller keeps them, so that nothing is copied out.

A graph holds addresses, its results' among them, and what a call has handed out must keep its values. To
count references to a result is not sound (a view, another library or a stream may hold the memory and not the
tensor), and a ring of results only puts the overwriting off. So results of a call that replays are ordinary
new tensors of PyTorch's allocator, and the graph is one for their addresses: the allocator gives a caller who
lets go of results the same few places again and again, just as inputs lie in the same few places. Places that
come a second time get a graph of their own; memory that is still held is by construction not among them.

``launches`` therefore takes the results to write as an argument ``into``. Where a result is memory that the
method, or a function that it calls, allocates itself, that memory is the caller's, also where the function
returns several; so is the result of a matrix product of the library. A result that is brought into its layout
behind a call is copied there from what the call made, instead of being turned first and copied then. Other
results (views, other calls) are copied, as the last nodes of the graph.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from egg.expert.emit.names import underscored, words
from egg.expert.graph import Graph, Origin
from egg.expert.writing.heading import Parts
from egg.expert.writing.layout import laid_out

ALLOCATED = frozenset({"torch.empty", "torch.empty_strided", "torch.zeros"})
"""Calls that make memory which the launches behind them fill."""
CONTIGUOUS = frozenset({"torch.empty", "torch.zeros"})
WITH_OUT = frozenset({"nn.functional.linear", "torch.matmul", "torch.mm", "torch.bmm"})
"""Calls of the library that write into memory they are given. With a third operand, ``linear`` adds the bias
in a pass of its own where it is given memory."""
INDENT, INTO = 8, "into"
"""How far the lines of a method are indented; how ``launches`` calls the results it is given."""


@dataclass(frozen=True)
class Placed:
    """``launches`` with memory for its results as an argument."""

    lines: tuple[str, ...]
    """Its body."""
    helpers: Mapping[str, str]
    """Functions of the host that were changed with it."""
    into: str
    """The argument's name: ``None`` where the method makes its results itself."""
    written: frozenset[int]
    """The results that are written in place, by their order among those that are computed."""


def handed_back(graph: Graph) -> frozenset[int]:
    """Which results are arguments: the caller has them already, at any place."""
    values = [graph.value(str(name)) for name in graph.results]
    return frozenset(order for order, value in enumerate(values) if value.origin is Origin.INPUT)


def computed(graph: Graph) -> list[int]:
    """The other results, by their order: those that a graph writes."""
    return [order for order in range(len(graph.results)) if order not in handed_back(graph)]


def placed(lines: Sequence[str], helpers: Mapping[str, str], handed: frozenset[int] = frozenset()) -> Placed:
    """The body of ``launches`` with every allocation of a result replaced by memory it is given; ``handed``:
    the results that are arguments."""
    text = textwrap.dedent("\n".join(lines))
    into = underscored(INTO, words(text))
    body = ast.parse(text).body
    rows, changed = list(lines), dict(helpers)
    found: dict[int, tuple[ast.Assign, str]] = {}
    several: dict[int, tuple[ast.Assign, dict[int, str]]] = {}
    names = [name for order, name in enumerate(_returned(body)) if order not in handed]
    for order, name in enumerate(names):
        if (part := _one_of_several(body, name)) is not None:
            statement, place = part
            if _taken_places(statement, helpers).get(place) is not None:
                given = several.setdefault(statement.lineno, (statement, {}))[1]
                if given.setdefault(place, f"{into}[{order}]") == f"{into}[{order}]":
                    found[order] = statement, ""
            continue
        statement, given = _made(body, name, f"{into}[{order}]")
        if statement is None or any(statement is known for known, _ in found.values()):
            continue
        new = _in_place(statement, text, changed, into, given)
        if new is not None:
            found[order] = statement, new
    changes = {statement.lineno: (statement, new) for statement, new in found.values()}
    for line, (statement, given) in several.items():
        changes[line] = statement, _several_in_place(statement, text, helpers, changed, into, given)
    for statement, new in sorted(changes.values(), key=lambda item: -item[0].lineno):
        rows[statement.lineno - 1 : statement.end_lineno] = laid_out(new, INDENT)
    return Placed(tuple(rows), changed, into, frozenset(found))


def copied_results(graph: Graph, parts: Parts) -> list[str]:
    """The results that a graph has to copy, as far as the groups that make them show.

    A conversion to the plain layout is one that the program makes in any case. Between two permutations it is
    most often only asked for to be certain, and moves nothing (:mod:`egg.expert.patterns.library.layout`).
    """
    helpers = {name: text for _, part in parts for name, text in part.helpers.items()}
    text = "\n".join(line for _, part in parts for line in part.call)
    body = ast.parse(text).body

    def copied(name: str) -> bool:
        if (part := _one_of_several(body, name)) is not None:
            return part[1] not in _taken_places(part[0], helpers)
        statement, _ = _made(body, name, INTO)
        if statement is None or _in_place(statement, text, dict(helpers), INTO, INTO) is None:
            return True
        made = _brought_from(statement.value)
        return made is not None and ast.unparse(statement.value) != f"{ast.unparse(made)}.contiguous()"

    names = [str(graph.results[order]) for order in computed(graph)]
    return [name for name in names if copied(name)]


# -- one result ----------------------------------------------------------------------------------------


def _returned(body: Sequence[ast.stmt]) -> Iterator[str]:
    """The names that the method returns, in the order of the results; ``""`` for anything else."""
    last = body[-1]
    assert isinstance(last, ast.Return)
    yield from _leaves(last.value)


def _leaves(value: ast.expr | None) -> Iterator[str]:
    match value:
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Dict(values=items):
            for item in items:
                yield from _leaves(item)
        case ast.Name(id=name):
            yield name
        case _:
            yield ""


def _only_assignment(body: Sequence[ast.stmt], name: str) -> ast.Assign | None:
    """The statement that binds a name, where there is one alone and it is not part of a loop."""
    stores = [
        node
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
    ]
    if len(stores) != 1:
        return None
    for statement in body:
        if isinstance(statement, ast.Assign) and statement.targets == stores:
            return statement
    return None


def _one_of_several(body: Sequence[ast.stmt], name: str) -> tuple[ast.Assign, int] | None:
    """The statement that binds a name with others, where it is the only one that does, and the name's place:
    ``a, b = function(x)``."""
    bound = [node for s in body for node in ast.walk(s) if isinstance(node, ast.Name) and node.id == name]
    if sum(isinstance(node.ctx, ast.Store) for node in bound) != 1:
        return None
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=items)], value=ast.Call()):
                places = [at for at, item in enumerate(items) if item in bound]
                if places:
                    return statement, places[0]
    return None


def _made(body: Sequence[ast.stmt], name: str, given: str) -> tuple[ast.Assign | None, str]:
    """The statement that makes a result, and how ``given`` is spelled there.

    A result may be a view of what was made: then all of that memory, under other sizes. What was made is
    ``given`` under its own sizes.
    """
    statement = _only_assignment(body, name)
    viewed = False
    while statement is not None and (source := _viewed(statement.value)) is not None:
        viewed, statement = True, _only_assignment(body, source)
    if statement is None or not viewed:
        return statement, given
    shape = _shape(statement.value)
    return (None, given) if shape is None else (statement, f"{given}.view({shape})")


def _viewed(value: ast.expr) -> str | None:
    """The name of the tensor that an expression only views under other sizes."""
    match value:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="view"), args=args, keywords=[]):
            return name if _sizes(args) else None
    return None


def _sizes(args: Sequence[ast.expr]) -> bool:
    """Whether the arguments of ``view`` are sizes, not a dtype."""
    return not any(isinstance(arg, ast.Attribute) for arg in args)


def _shape(value: ast.expr) -> str | None:
    """The sizes of contiguous memory that an expression allocates."""
    match value:
        case ast.Call(func=func, args=[shape]) if ast.unparse(func) in CONTIGUOUS:
            return ast.unparse(shape)
    return None


def _in_place(statement: ast.Assign, text: str, helpers: dict[str, str], into: str, given: str) -> str | None:
    """The statement of a result that lies in ``given`` where ``into`` is; a function it calls is changed."""
    value, name = statement.value, ast.unparse(statement.targets[0])
    if not isinstance(value, ast.Call) or any(word.arg == "out" for word in value.keywords):
        return None
    source = _row(text, value)
    called = ast.unparse(value.func)
    if (made := _brought_from(value)) is not None:
        row = _row(text, made)
        request = f"{name}{source.removeprefix(row)}"
        return f"{name} = {_joined(row)}\n{name} = {given}.copy_({name}) if {into} else {request}"
    if called in ALLOCATED:
        cleared = f"{given}.zero_()" if called == "torch.zeros" else given
        return f"{name} = {cleared} if {into} else {_joined(source)}"
    if called in WITH_OUT and len(value.args) == 2 and not value.keywords:
        return f"{name} = {_joined(source)[:-1]}, out={into} and {given})"
    if called in helpers:
        helper = _taking(helpers[called])
        if helper is not None:
            helpers[called], argument = helper
            return f"{name} = {_joined(source)[:-1]}, {argument}={into} and {given})"
    return None


def _several_in_place(
    statement: ast.Assign,
    text: str,
    helpers: Mapping[str, str],
    changed: dict[str, str],
    into: str,
    given: Mapping[int, str],
) -> str:
    """A statement that binds several results of one function, those in ``given`` to memory that is there."""
    assert isinstance(statement.value, ast.Call)
    called = ast.unparse(statement.value.func)
    function = _taking_several(helpers[called])
    assert function is not None
    changed[called], arguments = function
    handed = [f"{arguments[place]}={into} and {memory}" for place, memory in sorted(given.items())]
    names = ast.unparse(statement.targets[0]).strip("()")
    return f"{names} = {', '.join((_joined(_row(text, statement.value))[:-1], *handed))})"


def _taken_places(statement: ast.Assign, helpers: Mapping[str, str]) -> dict[int, str]:
    """Of the results of a function, those that it may write into memory it is given."""
    assert isinstance(statement.value, ast.Call)
    function = _taking_several(helpers.get(ast.unparse(statement.value.func), ""))
    return {} if function is None else function[1]


def _row(text: str, value: ast.expr) -> str:
    """The source of an expression on one line."""
    return " ".join((ast.get_source_segment(text, value) or "").split())


def _brought_from(value: ast.expr) -> ast.Call | None:
    """The call whose result an expression brings into another layout: a copy, or one between a permutation
    and its inverse."""
    source = _method(value, "contiguous")
    if source is not None:
        return source if isinstance(source, ast.Call) else None
    for method in ("permute", "transpose"):
        inner = _method(_method(value, method), "contiguous")
        source = _method(inner, method)
        if isinstance(source, ast.Call) and _undone(method, _numbers(inner), _numbers(value)):
            return source
    return None


def _method(value: ast.expr | None, name: str) -> ast.expr | None:
    """What a method of that name is called of, by numbers alone."""
    match value:
        case ast.Call(func=ast.Attribute(value=source, attr=attr), args=args, keywords=[]) if attr == name:
            return source if all(isinstance(arg, ast.Constant) for arg in args) else None
    return None


def _numbers(value: ast.expr | None) -> list[int]:
    assert isinstance(value, ast.Call)
    return [int(ast.literal_eval(arg)) for arg in value.args]


def _undone(method: str, first: list[int], last: list[int]) -> bool:
    """Whether two permutations, one behind the other, leave the dimensions as they are."""
    return first == last if method == "transpose" else [first[dim] for dim in last] == sorted(first)


def _joined(source: str) -> str:
    """A call on one line, without the spaces and the comma that line breaks left."""
    return re.sub(r",? ?\)$", ")", re.sub(r"\( ", "(", source))


def _taking_several(helper: str) -> tuple[str, dict[int, str]] | None:
    """A function of the host that returns several tensors, with memory for each that it allocates as an
    argument, and what those arguments are called, by the place of the result."""
    body = ast.parse(helper).body
    if len(body) != 1 or not isinstance(function := body[0], ast.FunctionDef) or function.decorator_list:
        return None
    last, returns = function.body[-1], [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    if len(returns) != 1 or last is not returns[0] or not isinstance(returns[0].value, ast.Tuple):
        return None
    if not function.args.args:
        return None
    rows, changes, arguments = helper.split("\n"), dict[int, tuple[ast.Assign, str]](), dict[int, str]()
    for place, result in enumerate(returns[0].value.elts):
        statement = _only_assignment(function.body, result.id) if isinstance(result, ast.Name) else None
        if statement is None or not isinstance(statement.value, ast.Call) or statement.lineno in changes:
            continue
        if (called := ast.unparse(statement.value.func)) in ALLOCATED:
            name = arguments[place] = underscored(f"out_{place}", words(helper))
            made = f"{name}.zero_()" if called == "torch.zeros" else name
            target = ast.unparse(statement.targets[0])
            source = _joined(_row(helper, statement.value))
            changes[statement.lineno] = statement, f"{target} = {source} if {name} is None else {made}"
    for statement, new in sorted(changes.values(), key=lambda item: -item[0].lineno):
        rows[statement.lineno - 1 : statement.end_lineno] = [" " * statement.col_offset + new]
    text = with_argument("\n".join(rows), ", ".join(f"{name}=None" for name in arguments.values()))
    return (text, arguments) if arguments else None


def _taking(helper: str) -> tuple[str, str] | None:
    """A function of the host that takes memory for its result, and what it calls that argument."""
    (function,) = ast.parse(helper).body
    if not isinstance(function, ast.FunctionDef) or function.decorator_list:
        return None
    arguments = [argument.arg for argument in function.args.args]
    if arguments and arguments[-1].startswith("out") and function.args.defaults:
        return helper, arguments[-1]
    last, returns = function.body[-1], [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    if len(returns) != 1 or last is not returns[0] or not isinstance(returns[0].value, ast.Name):
        return None
    statement = _only_assignment(function.body, returns[0].value.id)
    if statement is None or not isinstance(statement.value, ast.Call):
        return None
    called, name = ast.unparse(statement.value.func), underscored("out", words(helper))
    if called not in ALLOCATED or not arguments:
        return None
    source = " ".join((ast.get_source_segment(helper, statement.value) or "").split())
    made = f"{name}.zero_()" if called == "torch.zeros" else name
    rows = helper.split("\n")
    indent = " " * statement.col_offset
    new = f"{returns[0].value.id} = {_joined(source)} if {name} is None else {made}"
    rows[statement.lineno - 1 : statement.end_lineno] = [indent + new]
    return with_argument("\n".join(rows), f"{name}=None"), name


def with_argument(text: str, argument: str) -> str:
    """A function's text, or its first line, with one more argument behind its positional ones."""
    (function,) = ast.parse(f"{text} ..." if text.rstrip().endswith(":") else text).body
    assert isinstance(function, ast.FunctionDef)
    nodes = [*function.args.args, *function.args.defaults]
    last = max(nodes, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0))
    rows = text.split("\n")
    row = rows[(last.end_lineno or 1) - 1].encode()
    cut = last.end_col_offset or 0
    rows[(last.end_lineno or 1) - 1] = f"{row[:cut].decode()}, {argument}{row[cut:].decode()}"
    return "\n".join(rows)

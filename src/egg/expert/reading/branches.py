"""Sizes at which a program does something else: tried, and kept out of the graph.

A graph is one program. Code that asks for a size (``if length > 1024``, ``squeeze()`` of a dimension of 1, an
even number) is several. Every size that the caller chooses is set to small values, to odd and even larger
ones, and to the integers around those that the source compares with. A forward without data shows whether
the program calls the same functions; where the source compares, a capture shows whether it also computes the
same numbers. A size that only must not be small gets a least value, every other that changes the program
stays what it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from egg.evaluator.task.dimensions import Place, Rehearsal
from egg.expert.graph import Graph, Origin
from egg.expert.sizes import Size, Symbol

SMALL = (1, 2, 3)
MOST_LIMITS = 4
"""Integers that the source compares with and that sizes are tried around."""
_CHOOSING = frozenset({"min", "max", "minimum", "maximum", "clamp", "clip"})


def callers(graph: Graph) -> list[Symbol]:
    """The sizes that the caller chooses: of inputs, and of nothing that the module holds."""
    held = {
        symbol.name
        for value in graph.values.values()
        if value.origin in (Origin.PARAMETER, Origin.CONSTANT)
        for size in value.shape
        for symbol in size.factors
    }
    found: dict[str, Symbol] = {}
    for name in graph.arguments:
        for size in graph.value(name).shape if name is not None else ():
            found |= {s.name: s for s in size.factors if s.name not in held and type(s.values[0]) is int}
    return [symbol for name, symbol in found.items() if not graph.symbols.get(name, "").startswith("self")]


def sizes_at(graph: Graph, symbol: Symbol, value: int) -> dict[Place, int]:
    """The dimensions of the inputs with another value of one named size, all others the program's own."""
    found: dict[Place, int] = {}
    for path, name in graph.places:
        for dim, size in enumerate(graph.value(name).shape if name is not None else ()):
            if symbol in size.factors:
                count = size.factors.count(symbol)
                found[Place(path, dim)] = size.value // symbol.values[0] ** count * value**count
    return found


def bounds(
    graph: Graph, rehearsal: Rehearsal, limits: Sequence[int], same_at: Callable[[dict[Place, int]], bool]
) -> tuple[dict[str, int], list[Symbol]]:
    """By named size the least value at which the program is this graph; and sizes at which it is not.

    All sizes go to a value together first: where the program is the same then, none needs a try of its own.
    Where it calls something else, ``same_at`` decides whether its graph is the same: rounds whose number
    follows a length become one node.
    """
    own, symbols = rehearsal.record({}), callers(graph)
    records: dict[str, dict[int, Any]] = {symbol.name: {} for symbol in symbols}
    for trial in _trials(symbols, limits):
        joint: dict[Place, int] = {}
        for symbol, value in trial.items():
            joint |= sizes_at(graph, symbol, value)
        same = len(trial) > 1 and rehearsal.record(joint) == own
        for symbol, value in trial.items():
            record = own if same else rehearsal.record(sizes_at(graph, symbol, value))
            if record is not None and record != own and same_at(sizes_at(graph, symbol, value)):
                record = own
            records[symbol.name][value] = record
    least: dict[str, int] = {}
    changing: list[Symbol] = []
    for symbol in symbols:
        seen = records[symbol.name]
        other = [n for n, record in seen.items() if record is not None and record != own]
        enough = min((n for n, record in seen.items() if record == own), default=symbol.values[0])
        if other and max(other) < enough <= symbol.values[0]:
            least[symbol.name] = max(other) + 1
        elif other:
            changing.append(symbol)
    return least, changing


def _trials(symbols: Sequence[Symbol], limits: Sequence[int]) -> Iterator[dict[Symbol, int]]:
    near = [n for limit in limits for n in (limit - 1, limit, limit + 1)]
    for value in dict.fromkeys([*SMALL, *near]):
        yield {symbol: value for symbol in symbols if symbol.values[0] != value}
    for parity in (0, 1):
        sizes = {symbol: symbol.values[0] + 5 + 4 * place for place, symbol in enumerate(symbols)}
        yield {symbol: value + (value + parity) % 2 for symbol, value in sizes.items()}


# -- what the source compares with -----------------------------------------------------------------------


def decides(source: str) -> bool:
    """Whether some class of the source asks before it does something, or leaves out dimensions of 1."""
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    nodes = [node for kind in classes for node in ast.walk(kind)]
    asking = (ast.Compare, ast.If, ast.IfExp, ast.While, ast.Match)
    return any(isinstance(node, asking) or getattr(node, "attr", "") == "squeeze" for node in nodes)


def limits_in(
    source: str, module: Mapping[str, Any], numbers: Mapping[str, int | float], everywhere: bool = False
) -> list[int]:
    """Integers that ``forward``, or what it calls, has in conditions: literals, integers of the source, and
    numbers that a module of the program keeps. Or those of all functions."""
    kept: dict[str, set[int]] = {}
    for text, number in numbers.items():
        if type(number) is int:
            kept.setdefault(text.rsplit(".", 1)[-1], set()).add(number)
    found: list[int] = []
    tree = ast.parse(source)
    parts = [tree] if everywhere else _called(tree)
    for node in (node for part in parts for node in ast.walk(part)):
        for part in _compared(node):
            match part:
                case ast.Constant(value=int(number)) if not isinstance(part.value, bool):
                    found.append(number)
                case ast.Name(id=name) if type(module.get(name)) is int:
                    found.append(module[name])
                case ast.Attribute(attr=name):
                    found += sorted(kept.get(name, ()))
    return [n for n in dict.fromkeys(found) if n > max(SMALL)][:MOST_LIMITS]


def _called(tree: ast.Module) -> list[ast.FunctionDef]:
    """Every ``forward``, and the functions of the source whose names it mentions, and so on."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    found = [function for function in functions if function.name == "forward"]
    for function in found:
        names = {getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(function)}
        found += [f for f in functions if f.name in names and f not in found and f.name != "__init__"]
    return found


def _compared(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare():
            parts: Sequence[ast.AST] = [node]
        case ast.If() | ast.IfExp() | ast.While():
            parts = [node.test]
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _CHOOSING:
            parts = [*node.args, *(keyword.value for keyword in node.keywords)]
        case _:
            return
    for part in parts:
        yield from ast.walk(part)


# -- sizes that stay ---------------------------------------------------------------------------------------


def pinned(graph: Graph, symbols: Sequence[Symbol]) -> Graph:
    """``graph`` at the program's own value of some named sizes, and of those that follow from them alone."""
    numbers = {symbol.name: symbol.values[0] for symbol in symbols}
    texts: dict[str, str] = {}

    def spelled(text: str) -> str:
        return re.sub(r"(?<![\w.])[A-Za-z_]\w*", lambda m: str(numbers.get(m[0], m[0])), text)

    for name, text in graph.symbols.items():
        new = spelled(text)
        if name in numbers or (new != text and not re.search(r"[A-Za-z_]", new)):
            numbers.setdefault(name, _value(graph, name))
        else:
            texts[name] = new

    def change(size: Size) -> Size:
        total, left = size.number, []
        for symbol in size.factors:
            if symbol.name in numbers:
                total *= symbol.values[0]
            else:
                left.append(symbol)
        return Size(total, tuple(left))

    values = {
        name: replace(v, shape=tuple(map(change, v.shape)), stride=tuple(map(change, v.stride)))
        for name, v in graph.values.items()
    }
    nodes = tuple(replace(n, attributes=_mapped(dict(n.attributes), change)) for n in graph.nodes)
    exact = {
        name: (spelled(whole), spelled(times))
        for name, (whole, times) in graph.exact.items()
        if name in texts
    }
    return replace(graph, values=values, nodes=nodes, symbols=texts, exact=exact)


def _value(graph: Graph, name: str) -> Any:
    sizes = [s for v in graph.values.values() for s in (*v.shape, *v.stride)]
    sizes += [s for n in graph.nodes for s in _sizes(dict(n.attributes))]
    return next((s.values[0] for size in sizes for s in size.factors if s.name == name), 0)


def _sizes(thing: Any) -> Iterator[Size]:
    if isinstance(thing, Size):
        yield thing
    elif isinstance(thing, dict | list | tuple):
        for inner in thing.values() if isinstance(thing, dict) else thing:
            yield from _sizes(inner)


def _mapped(thing: Any, change: Callable[[Size], Size]) -> Any:
    """A symbol that stands for a fraction becomes that number."""
    match thing:
        case Size():
            size = change(thing)
            return size if size.factors or isinstance(size.number, int) else size.number
        case dict():
            return {key: _mapped(inner, change) for key, inner in thing.items()}
        case list() | tuple():
            return type(thing)(_mapped(inner, change) for inner in thing)
    return thing

"""The domain of a kernel file, read off its graph: what the captures agreed on, and nothing beside it.

A dimension of an input is what the graph calls it. A name that is computed from other names is replaced by
its arithmetic, so that only sizes with a free choice are left: of the caller, or of the constructor where a
parameter has that size or ``forward`` reads it from ``self``.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping

from egg.core.domain import Domain, Format, Input, Layout, Size, TensorInput
from egg.core.sizes import Dimension, names_in
from egg.expert.graph import Graph
from egg.expert.reading.held import held_sizes, input_values, rules


def domain_of(graph: Graph, counts: Iterable[str] = ()) -> Domain:
    """``counts`` are the numbers of elements that the file's kernels must reach, over the graph's names."""
    texts = rules(graph)
    inputs = tuple(_inputs(graph, texts))
    shapes = [given.shape for given in inputs if isinstance(given, TensorInput)]
    mentioned = [name for shape in shapes for dimension in shape for name in sorted(names_in(dimension))]
    held = held_sizes(graph)
    sizes = tuple(
        Size(
            name,
            least=max(1, graph.usage.least.get(name, 1)),
            module=name in held,
            argument=graph.usage.ties.get(name, "") if name in held else "",
        )
        for name in dict.fromkeys(mentioned)
    )
    outputs = graph.usage.outputs
    stated = outputs if any(output.format is not Format.FIXED for output in outputs) else ()
    elements = tuple(dict.fromkeys(_elements(texts, counts, {size.name for size in sizes})))
    return Domain(inputs, sizes, graph.usage.arguments, graph.usage.modes, outputs=stated, elements=elements)


def written_inputs(graph: Graph) -> frozenset[str]:
    """Inputs that the program writes into: the caller sees it, so no copy may stand for them."""
    targets = {node.inputs[0] for node in graph if node.op == "update"}
    return frozenset(value.name for value in input_values(graph) if value.name in targets)


def follows_inputs(graph: Graph) -> bool:
    """Whether some result lies in memory as an input does; then all inputs are contiguous in the graph."""
    following = (Format.PRESERVED, Format.CHANNELS_LAST)
    return any(output.format in following for output in graph.usage.outputs)


def _inputs(graph: Graph, texts: Mapping[str, str]) -> Iterator[Input]:
    """Tensors and other values in the order of the signature; defaults that were not given come last."""
    values = iter(graph.usage.values)
    written = written_inputs(graph)
    for name in graph.arguments:
        if name is None:
            yield from [value for value in [next(values, None)] if value is not None]
            continue
        given = graph.value(name)
        layout = Layout.CONTIGUOUS if name in written else Layout.ANY
        shape = tuple(_dimension(texts, size.code()) for size in given.shape)
        yield TensorInput(given.path, (given.dtype,), shape, layout)
    yield from values


def _elements(texts: Mapping[str, str], counts: Iterable[str], known: Collection[str]) -> Iterator[str]:
    """The counts that can be written in the domain's own sizes; the guard knows the others alone."""
    for count in counts:
        expanded = _dimension(texts, count)
        try:
            sayable = isinstance(expanded, str) and names_in(expanded) <= set(known)
        except ValueError:
            continue
        if sayable:
            yield str(expanded)


def _dimension(texts: Mapping[str, str], code: str) -> Dimension:
    """``code`` with computed names replaced, as far as a domain can say the arithmetic."""
    if code.lstrip("-").isdigit():
        return int(code)
    expanded = ast.unparse(_Expanded(texts).visit(ast.parse(code, mode="eval")))
    try:
        names_in(expanded)
    except ValueError:
        return code
    return expanded


class _Expanded(ast.NodeTransformer):
    """Names that follow from other names, as what they follow from."""

    def __init__(self, symbols: Mapping[str, str]) -> None:
        self._symbols = symbols

    def visit_Name(self, node: ast.Name) -> ast.expr:
        text = self._symbols.get(node.id)
        if text is None:
            return node
        rule = ast.parse(text, mode="eval").body
        if any(isinstance(inner, ast.Attribute | ast.Call) for inner in ast.walk(rule)):
            return node
        if any(isinstance(inner, ast.Name) and inner.id not in self._symbols for inner in ast.walk(rule)):
            return node
        return self.visit(rule)

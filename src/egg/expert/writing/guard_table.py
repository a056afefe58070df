"""The weights of a network that the guard looks at, as a table: shape, names, and the layers that have them.

A network has tens of shapes, and most layers hold several tensors of one shape under the same names. One call
for each shape with all paths written out would be the longest part of the file.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from egg.expert.emit.names import underscored
from egg.expert.writing.breaking import LIMIT
from egg.expert.writing.literals import literal_text

MANY = 8
"""Shapes of one dtype from which on there is a table."""
INDENT = 8
"""Of the method that the table stands in."""


def weight_tables(
    rows: Mapping[str, list[str]], check: str, taken: frozenset[str]
) -> tuple[list[str], dict[str, list[str]]]:
    """A loop for every dtype with many shapes, and the paths that no loop looks at.

    ``rows`` are paths by the text of their dtype, shape and strides; those with strides, and those of no
    layer, have no part in a table. ``check`` is the call, with ``{paths}``, ``{dtype}``, ``{shape}`` in it.
    """
    dtypes: dict[str, dict[str, str]] = {}
    for laid in rows:
        dtype, _, shape = laid.partition(", ")
        if "), (" not in shape:
            dtypes.setdefault(dtype, {})[shape] = laid
    left, loops = dict(rows), list[str]()
    for dtype, shapes in dtypes.items():
        if len(shapes) > MANY:
            held = {shape: [path for path in rows[laid] if "." in path] for shape, laid in shapes.items()}
            left |= {laid: [path for path in rows[laid] if "." not in path] for laid in shapes.values()}
            loops.append("\n".join(_loop(held, check, dtype, taken)))
    return loops, {laid: paths for laid, paths in left.items() if paths}


def _loop(shapes: Mapping[str, Sequence[str]], check: str, dtype: str, taken: frozenset[str]) -> list[str]:
    words = ("shape", "names", "layers", "layer", "name", "paths")
    shape, names, layers, layer, name, paths = (underscored(word, taken) for word in words)
    rows: list[str] = []
    for text, held in shapes.items():
        for leaves, having in _by_leaves(held).items():
            rows += _row(text, " ".join(leaves), having)
    every = f"for {layer} in {layers}.split() for {name} in {names}.split()"
    each = f'{paths} = " ".join(f"{{{layer}}}.{{{name}}}" {every})'
    call = check.format(paths=paths, dtype=dtype, shape=shape)
    return [f"for {shape}, {names}, {layers} in (", *rows, "):", f"    {each}", f"    {call}"]


def _by_leaves(paths: Sequence[str]) -> dict[tuple[str, ...], list[str]]:
    """Layers by the names of what they hold."""
    held: dict[str, list[str]] = {}
    for path in paths:
        layer, _, leaf = path.rpartition(".")
        held.setdefault(layer, []).append(leaf)
    found: dict[tuple[str, ...], list[str]] = {}
    for layer, leaves in held.items():
        found.setdefault(tuple(leaves), []).append(layer)
    return found


def _row(shape: str, names: str, layers: Sequence[str]) -> list[str]:
    line = f"    ({shape}, {literal_text(names)}, {literal_text(' '.join(layers))}),"
    if len(line) <= LIMIT - INDENT:
        return [line]
    inner = textwrap.wrap(
        " ".join(layers), LIMIT - INDENT - 8, break_long_words=False, break_on_hyphens=False
    )
    head = ["    (", f"        {shape},", f"        {literal_text(names)},", '        """']
    return [*head, *(f"        {text}" for text in inner), '        """,', "    ),"]

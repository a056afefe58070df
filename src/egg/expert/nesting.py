"""How results are returned: bare, in a tuple or list, or nested in these, dictionaries and named tuples.

A graph has its results in a row. Its ``form`` is ``tensor``, ``tuple`` or ``list``; for anything else it is
the text of the whole with a place for each result in order, as ``str.format`` has them:
``{{"boxes": {0}, "levels": [{1}, {2}]}}``, ``Detections({0}, {1})``.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

PLAIN = frozenset({"tensor", "tuple", "list"})


def form_of(results: Any, is_leaf: Any) -> tuple[str, list[Any]]:
    """The form of what ``forward`` returned, and the results in a row; ``ValueError`` for what is neither a
    result nor a tuple, list or dictionary with keys that are literals. A named tuple is one of the task's."""
    leaves: list[Any] = []
    text = _template(results, is_leaf, leaves)
    if is_leaf(results):
        return "tensor", leaves
    if not isinstance(results, dict) and not is_named(type(results)) and all(map(is_leaf, results)):
        return ("list" if isinstance(results, list) else "tuple"), leaves
    return text, leaves


def _template(item: Any, is_leaf: Any, leaves: list[Any]) -> str:
    if is_leaf(item):
        leaves.append(item)
        return f"{{{len(leaves) - 1}}}"
    if isinstance(item, dict):
        if not all(isinstance(key, str | int | float | bool) for key in item):
            raise ValueError("a dictionary with keys that are no literals")
        keys = [_quoted(key).replace("{", "{{").replace("}", "}}") for key in item]
        texts = [_template(value, is_leaf, leaves) for value in item.values()]
        pairs = (f"{key}: {text}" for key, text in zip(keys, texts, strict=True))
        return f"{{{{{', '.join(pairs)}}}}}"
    if isinstance(item, list | tuple):
        texts = [_template(part, is_leaf, leaves) for part in item]
        if is_named(type(item)):
            return f"{type(item).__name__}({', '.join(texts)})"
        return f"[{', '.join(texts)}]" if isinstance(item, list) else tuple_text(texts)
    raise ValueError(f"{type(item).__name__} among the results")


def is_named(kind: Any) -> bool:
    """Whether a class is a named tuple."""
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def names_in_form(form: str, count: int) -> set[str]:
    """The named tuples that results are returned in."""
    if form in PLAIN:
        return set()
    return {node.id for node in ast.walk(ast.parse(form.format(*range(count)))) if isinstance(node, ast.Name)}


def _quoted(key: Any) -> str:
    return f'"{key}"' if isinstance(key, str) and key.isidentifier() else repr(key)


def tuple_text(texts: Sequence[str]) -> str:
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def whole_text(form: str, texts: Sequence[str]) -> str:
    """The expression of all results, from one for each."""
    match form:
        case "tensor":
            return texts[0]
        case "list":
            return f"[{', '.join(texts)}]"
        case "tuple":
            return tuple_text(texts)
    return form.format(*texts)


def places(form: str, count: int) -> list[str]:
    """What to write behind the whole to have each result: ``["boxes"]``, ``["levels"][1]``."""
    if form == "tensor":
        return [""]
    if form in PLAIN:
        return [f"[{at}]" for at in range(count)]
    found: dict[int, str] = {}
    _find(ast.parse(form.format(*range(count)), mode="eval").body, "", found)
    return [found[at] for at in range(count)]


def _find(node: ast.expr, path: str, found: dict[int, str]) -> None:
    match node:
        case ast.Constant(value=int(at)):
            found[at] = path
        case ast.Dict():
            for key, value in zip(node.keys, node.values, strict=True):
                assert isinstance(key, ast.Constant)
                _find(value, f"{path}[{_quoted(key.value)}]", found)
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Call(args=items):
            for at, item in enumerate(items):
                _find(item, f"{path}[{at}]", found)

"""Runnable examples beside a skill: read to see that they are whole, never imported here."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from egg.knowledge.frontmatter import Problem, content

CLASSES, FUNCTIONS = ("Model", "ModelNew"), ("get_inputs", "get_init_inputs")
"""What an example defines: a program, its kernels, and inputs to try both on."""


def asset_problems(asset: Path) -> list[Problem]:
    """What keeps an example from being run: no Python, a part that is missing, an import of this package."""
    try:
        source = content(asset).decode("utf-8")
    except (OSError, ValueError) as error:
        return [Problem(asset, 1, f"cannot be read: {error}")]
    return [Problem(asset, line, message) for line, message in _faults(source)]


def pattern_of(asset: Path) -> str:
    """The kernel file of an example: its text without the program it replaces and the inputs of that."""
    source = content(asset).decode("utf-8")
    lines = source.splitlines(keepends=True)
    for node in reversed(ast.parse(source).body):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name in ("Model", *FUNCTIONS):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            del lines[first - 1 : node.end_lineno]
    return re.sub(r"\n{4,}", "\n\n\n", "".join(lines)).strip() + "\n"


@lru_cache(maxsize=256)
def _faults(source: str) -> tuple[tuple[int, str], ...]:
    """Lines and what is wrong there. A run reads its skills often; their text stays the same."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except SyntaxError as error:
        return ((error.lineno or 1, f"no Python: {error.msg}"),)
    except (ValueError, RecursionError, MemoryError) as error:
        return ((1, f"cannot be read: {error}"),)
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return (
        *((1, f"class {name} is missing") for name in CLASSES if name not in classes),
        *((1, f"{name}() is missing") for name in FUNCTIONS if name not in functions),
        *((line, "imports egg: an example must run without it") for line in _imports_of_egg(source, tree)),
    )


def _imports_of_egg(source: str, tree: ast.Module) -> list[int]:
    """Lines. Most files need no look: an import of it says its name, if perhaps in letters like its own."""
    if source.isascii() and "egg" not in source:
        return []
    return [line for line, module in _imports(tree) if module.split(".")[0] == "egg"]


def _imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=str() as module):
                yield node.lineno, module

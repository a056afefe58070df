"""What a kernel file takes over from its task: everything that builds the module, and nothing that runs it.

``ModelNew(*arguments)`` must have the parameters, buffers and attributes of ``Model(*arguments)``, made in
the same order (so that one seed gives both the same numbers) and under the same names. The surest way is
the author's own constructors, word for word. So the task's text is taken apart:

1. Start with ``Model`` without its ``forward``.
2. Whatever the kept code reads and the module binds comes along: imports, constants, functions, classes.
3. A class that is an ``nn.Module`` keeps ``__init__``, its class attributes, and those methods that kept
   code mentions (``_make_layer``, an ``_init_weights`` handed to ``apply``); until nothing is added.

Nothing is executed: the text is parsed, and pieces of it are copied with their comments.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from egg.core.source import Task
from egg.evaluator.static.namespaces import judge_import
from egg.expert.emit.names import Edit, attributes, bound_names, edited, renaming, taken_from_outside
from egg.expert.parts import Unfit
from egg.expert.writing.task_text import (
    aliases,
    changed_names,
    first_line,
    is_text,
    parameter_texts,
    runs_a_layer,
)
from egg.expert.writing.tidy import tidied

MODEL, NEW = "Model", "ModelNew"
CANONICAL = {"torch": "import torch", "nn": "from torch import nn", "triton": "import triton"}
"""What kernel files import anyway, and how; a task may not mean something else by these names."""
WITHOUT_PARAMETERS = frozenset({"einops.layers.torch.Rearrange", "einops.layers.torch.Reduce"})
"""Layers of packages that a kernel file may not import, and that a place in the list of layers stands for."""
REWORDED = {"pass": "run", "except": "but", "try": "attempt"}
PROSE = re.compile(rf"\b({'|'.join(REWORDED)})\b")
"""Words of prose that KernelBench's static checker, which reads lines and not syntax, takes for code."""
MODULE_METHODS = frozenset(
    {"add_module", "append", "apply", "extend", "insert", "modules", "named_modules", "named_parameters",
     "parameters", "register_buffer", "register_module", "register_parameter", "update"}
)  # fmt: skip


@dataclass(frozen=True)
class Constructor:
    """The pieces of a task that build its module, as text."""

    imports: tuple[str, ...]
    """One name each: ``import math``, ``from typing import Optional``."""
    definitions: tuple[str, ...]
    """Constants, functions and classes in the author's order, ``Model`` apart."""
    model: str
    """``class ModelNew`` up to where ``forward`` follows; indented by four spaces."""
    forward: str
    """``def forward(self, x: torch.Tensor) -> torch.Tensor:``"""
    names: frozenset[str]
    """What all of this binds at module level."""

    def beginning(self, lines: Sequence[str]) -> Constructor:
        """With statements at the start of ``ModelNew.__init__``, behind its docstring."""
        (owner,) = ast.parse(self.model).body
        assert isinstance(owner, ast.ClassDef)
        own = _initializer(owner)
        rows = self.model.split("\n")
        if own is None:
            return replace(self, model="\n".join([*rows, "", *self._inherited(owner, lines)]))
        first = next((s for s in own.body if not is_text(s)), own.body[-1])
        indent = " " * (own.col_offset + 4)
        head, tail = rows[: first.lineno - 1], rows[first.lineno - 1 :]
        if first.lineno == own.lineno:
            before, after = tail[0].encode()[: first.col_offset], tail[0].encode()[first.col_offset :]
            head, tail = [*head, before.decode().rstrip()], [indent + after.decode(), *tail[1:]]
        while head[-1].strip().startswith("#"):
            tail.insert(0, head.pop())
        return replace(self, model="\n".join([*head, *(indent + line for line in lines), *tail]))

    def _inherited(self, owner: ast.ClassDef, lines: Sequence[str]) -> list[str]:
        """A constructor that begins with ``lines`` and leaves the rest to the class it derives from."""
        defined = [
            d for text in self.definitions for d in ast.parse(text).body if isinstance(d, ast.ClassDef)
        ]
        named = {d.name: d for d in defined}
        base = next((named[b.id] for b in owner.bases if isinstance(b, ast.Name) and b.id in named), None)
        found = None if base is None else _initializer(base)
        if found is None:
            raise Unfit("the constructor is inherited, and kernels are right at one value of an argument")
        given = found.args
        if given.vararg or given.kwarg:
            raise Unfit("the constructor is inherited, and takes any arguments")
        handed = [argument.arg for argument in (*given.posonlyargs, *given.args)][1:]
        handed += [f"{argument.arg}={argument.arg}" for argument in given.kwonlyargs]
        return [
            f"    def __init__({', '.join(parameter_texts(given))}):",
            *(f"        {line}" for line in lines),
            f"        super().__init__({', '.join(handed)})",
        ]


def _initializer(owner: ast.ClassDef) -> ast.FunctionDef | None:
    members = (m for m in owner.body if isinstance(m, ast.FunctionDef) and m.name == "__init__")
    return next(members, None)


def constructor(task: Task, returned: Collection[str] = ()) -> Constructor:
    """Everything of ``task`` that ``ModelNew`` needs to be built; :class:`Unfit` says what is in the way.

    ``returned``: named tuples of the task that hold results.
    """
    source = tidied(task.source)
    return _Reader(source, ast.parse(source), returned).read()


class _Reader:
    def __init__(self, source: str, tree: ast.Module, returned: Collection[str]) -> None:
        self._lines = source.split("\n")
        self._tree = tree
        self._binders: dict[str, list[ast.stmt]] = {}
        for statement in tree.body:
            for name in changed_names(statement):
                self._binders.setdefault(name, []).append(statement)
        self._classes = {s.name: s for s in tree.body if isinstance(s, ast.ClassDef)}
        self._model = self._model_class()
        if lost := [name for name in returned if name not in self._binders]:
            raise Unfit(f"results are returned in {lost[0]}, which the task does not define by that name")
        self._kept: set[ast.stmt] = {self._model, *(s for name in returned for s in self._binders[name])}
        self._mentioned: set[str] = set()
        """Names behind dots anywhere in what is kept."""
        self._forwards = False
        """A constructor runs layers (to learn a size, say), so theirs must keep their ``forward``."""

    def read(self) -> Constructor:
        self._reach()
        imports = tuple(dict.fromkeys(self._imports()))
        plain = [s for s in self._tree.body if s in self._kept and s is not self._model]
        definitions = [self._text(s) for s in plain if not isinstance(s, ast.Import | ast.ImportFrom)]
        stand_ins = [_STAND_IN.format(name=name) for name in self._stand_ins()]
        bound = set().union(*(bound_names(s) for s in plain)) | {NEW}
        return Constructor(
            imports,
            (*stand_ins, *definitions),
            self._text(self._model),
            self._forward_header(),
            frozenset(bound),
        )

    # -- what is needed ----------------------------------------------------------------------------

    def _model_class(self) -> ast.ClassDef:
        name, seen = MODEL, set[str]()
        while name not in self._classes and name not in seen:
            seen.add(name)
            match self._binders.get(name):
                case [ast.Assign(value=ast.Name(id=other))]:
                    name = other
        if name not in self._classes:
            raise Unfit("Model is not a class of the task's own")
        return self._classes[name]

    def _reach(self) -> None:
        """Add what is needed until nothing is: methods that are mentioned, and names that are read."""
        while True:
            size = (len(self._kept), len(self._mentioned), self._forwards)
            for statement in list(self._kept):
                for piece in self._pieces(statement):
                    self._mentioned |= attributes(piece)
                    self._forwards |= runs_a_layer(piece)
                    for name in taken_from_outside(piece) | self._signature_names(statement):
                        self._kept.update(self._binders.get(name, ()))
            if size == (len(self._kept), len(self._mentioned), self._forwards):
                return

    def _pieces(self, statement: ast.stmt) -> Iterator[ast.AST]:
        """The parts of a top-level statement that are kept."""
        if not isinstance(statement, ast.ClassDef) or not self._is_module(statement):
            yield statement
            return
        yield from (*statement.decorator_list, *statement.bases, *statement.keywords)
        yield from self._members(statement)

    def _members(self, owner: ast.ClassDef) -> list[ast.stmt]:
        """The statements of an ``nn.Module`` that are kept, its docstring apart."""
        everything = owner.bases != [] and self._has_library_base(owner)
        kept = []
        for member in owner.body:
            if isinstance(member, ast.FunctionDef):
                if member.name == "forward":
                    keep = self._forwards and owner is not self._model
                else:
                    keep = everything or member.name == "__init__" or member.name in self._mentioned
            else:
                keep = not is_text(member) and not isinstance(member, ast.Pass)
            if keep:
                kept.append(member)
        return kept

    def _is_module(self, owner: ast.ClassDef) -> bool:
        for base in owner.bases:
            path = self._path(base)
            if path.startswith("torch.nn."):
                return True
            if path in self._classes and path != owner.name and self._is_module(self._classes[path]):
                return True
        return False

    def _has_library_base(self, owner: ast.ClassDef) -> bool:
        """Derives from a layer of PyTorch, whose constructor may call any method that is overridden."""
        paths = [self._path(base) for base in owner.bases]
        return any(path.startswith("torch.nn.") and path != "torch.nn.Module" for path in paths)

    def _path(self, node: ast.expr) -> str:
        """``nn.Module`` as ``torch.nn.Module``, through the imports of the module."""
        if isinstance(node, ast.Attribute):
            return f"{self._path(node.value)}.{node.attr}"
        if isinstance(node, ast.Subscript):
            return self._path(node.value)
        if not isinstance(node, ast.Name):
            return ""
        for statement in self._binders.get(node.id, ()):
            for alias, path in aliases(statement):
                if alias == node.id:
                    return path
        return node.id

    # -- imports -----------------------------------------------------------------------------------

    def _imports(self) -> Iterator[str]:
        needed = self._needed_names()
        for statement in self._tree.body:
            if statement not in self._kept or not isinstance(statement, ast.Import | ast.ImportFrom):
                continue
            if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
                continue
            for alias in statement.names:
                yield from self._import(statement, alias, needed)
        for name in CANONICAL:
            for statement in self._binders.get(name, ()) if name in needed else ():
                if statement in self._kept and not isinstance(statement, ast.Import | ast.ImportFrom):
                    raise Unfit(f"the task gives the name {name} to something of its own")

    def _import(
        self, statement: ast.Import | ast.ImportFrom, alias: ast.alias, needed: set[str]
    ) -> Iterator[str]:
        bound = (alias.asname or alias.name).split(".")[0]
        if bound not in needed and alias.name != "*":
            return
        if isinstance(statement, ast.Import):
            path = alias.name
            text = f"import {path} as {alias.asname}" if alias.asname else f"import {path}"
        else:
            path = f"{statement.module}.{alias.name}"
            text = f"from {statement.module} import {alias.name}"
            text += f" as {alias.asname}" if alias.asname and alias.asname != alias.name else ""
        if path in WITHOUT_PARAMETERS:
            return
        if alias.name == "*" or judge_import(path):
            raise Unfit(f"the constructor needs {path}, which a kernel file may not import")
        own = {"torch": ("torch",), "nn": ("torch.nn",), "triton": ("triton",), "tl": ("triton.language",)}
        if bound in own and (path if alias.asname or "from" in text else bound) not in own[bound]:
            raise Unfit(f"the task means {path} by {bound}")
        yield CANONICAL.get(bound, text)

    def _stand_ins(self) -> list[str]:
        needed = self._needed_names()
        return [
            name
            for statement in self._tree.body
            for name, path in aliases(statement)
            if path in WITHOUT_PARAMETERS and name in needed
        ]

    def _needed_names(self) -> set[str]:
        found = self._signature_names(self._model)
        for statement in self._kept:
            for piece in self._pieces(statement):
                found |= taken_from_outside(piece)
        return found

    # -- text --------------------------------------------------------------------------------------

    def _text(self, statement: ast.stmt) -> str:
        """A kept statement as the author wrote it, ``Model`` under its new name, pruned if it is a layer."""
        edits = [*renaming(statement, self._model.name, NEW), *self._reworded(statement)]
        if not isinstance(statement, ast.ClassDef) or not self._is_module(statement):
            return self._cut(self._span(statement), edits)
        first = min([statement.lineno, *(d.lineno for d in statement.decorator_list)])
        if statement.body[0].lineno == statement.lineno:
            head = f"class {statement.name}({', '.join(ast.unparse(b) for b in statement.bases)}):"
        else:
            head = self._header(range(first, first_line(statement.body[0])), edits)
        if statement is self._model:
            head = head.replace(f"class {statement.name}", f"class {NEW}", 1)
        blocks = [head + "\n" + self._docstring(statement, edits)]
        previous: ast.stmt | None = None
        for member in self._members(statement):
            if statement.body[0].lineno == statement.lineno:
                text = (
                    "    "
                    + self._cut(range(member.lineno, member.lineno + 1), edits).split(":", 1)[1].strip()
                )
            else:
                text = self._cut(self._span(member), edits)
            close = (
                previous is not None and not isinstance(previous, SCOPED) and not isinstance(member, SCOPED)
            )
            blocks.append(text if close else "\n" + text)
            previous = member
        return "\n".join(blocks)

    def _reworded(self, statement: ast.stmt) -> Iterator[Edit]:
        """Without ``pass`` and without the words in docstrings that KernelBench's checker takes for code."""
        for node in ast.walk(statement):
            if isinstance(node, ast.Pass):
                yield node.lineno, node.col_offset, node.end_col_offset or 0, "..."
            elif isinstance(node, ast.Expr) and is_text(node):
                for row in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    line = self._lines[row - 1]
                    for found in PROSE.finditer(line):
                        start = len(line[: found.start()].encode())
                        end = start + len(found.group().encode())
                        yield row, start, end, REWORDED[found.group()]

    def _header(self, lines: range, edits: list[Edit]) -> str:
        """The lines of a ``class`` statement, without comments and blank lines that follow it."""
        kept = [line for line in self._cut(lines, edits).split("\n") if line.strip()]
        while len(kept) > 1 and kept[-1].lstrip().startswith("#"):
            kept.pop()
        return "\n".join(kept)

    def _docstring(self, owner: ast.ClassDef, edits: list[Edit]) -> str:
        first = owner.body[0]
        kept = self._members(owner)
        computes = any(isinstance(m, ast.FunctionDef) and m.name == "forward" for m in kept)
        if (owner is self._model or computes) and is_text(first) and first.lineno != owner.lineno:
            return self._cut(range(first.lineno, (first.end_lineno or first.lineno) + 1), edits)
        if owner is self._model:
            return '    """The task\'s Model: the same parameters, with its forward written as kernels."""'
        if any(isinstance(m, ast.FunctionDef) and m.name == "__init__" for m in kept):
            return f'    """Keeps the parameters of {owner.name}; ModelNew computes with them."""'
        return '    """Keeps its place among the layers; ModelNew computes it."""'

    def _span(self, statement: ast.stmt) -> range:
        """The lines of a statement with its decorators, and comments that stand directly above it."""
        first = first_line(statement)
        indent = " " * statement.col_offset
        while first > 1 and self._lines[first - 2].startswith(indent + "#"):
            first -= 1
        return range(first, (statement.end_lineno or statement.lineno) + 1)

    def _cut(self, lines: range, edits: list[Edit]) -> str:
        text = "\n".join(self._lines[row - 1] for row in lines)
        inside = [(row - lines.start + 1, a, b, new) for row, a, b, new in edits if row in lines]
        return edited(text, inside)

    # -- forward -----------------------------------------------------------------------------------

    def _forward(self) -> ast.FunctionDef:
        """Of ``Model``, or of the nearest class of the task that it derives from."""
        waiting = [self._model]
        while waiting:
            owner = waiting.pop(0)
            for member in owner.body:
                if isinstance(member, ast.FunctionDef) and member.name == "forward":
                    return member
            waiting += [self._classes[p] for p in map(self._path, owner.bases) if p in self._classes]
        raise Unfit("Model has no forward of the task's own")

    def _signature_names(self, statement: ast.stmt) -> set[str]:
        if statement is not self._model:
            return set()
        forward = self._forward()
        bare = ast.FunctionDef(
            name="forward", args=forward.args, body=[], decorator_list=[], returns=forward.returns
        )
        return taken_from_outside(bare)

    def _forward_header(self) -> str:
        forward = self._forward()
        returns = f" -> {ast.unparse(forward.returns)}" if forward.returns is not None else ""
        return f"def forward({', '.join(parameter_texts(forward.args))}){returns}:"


SCOPED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

_STAND_IN = '''class {name}(nn.Module):
    """Keeps its place among the layers; it has no parameters, and ModelNew computes it."""

    def __init__(self, *pattern, **sizes):
        super().__init__()'''

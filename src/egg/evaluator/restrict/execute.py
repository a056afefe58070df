"""A kernel file becomes a module: from the string that was read, and from nothing else."""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
from types import ModuleType

from egg.evaluator.restrict.guards import Guards, names_of_kernels
from egg.evaluator.restrict.instrument import instrumented
from egg.evaluator.restrict.modules import names_of_modules


@functools.cache
def guarded_names() -> frozenset[str]:
    """Computed once, before there is a candidate: it looks at every loaded module."""
    return names_of_modules() | names_of_kernels()


def lines_of(source: str) -> list[str]:
    """Lines as Python's tokenizer counts them; ``str.splitlines`` knows line ends that Python does not."""
    text = source.replace("\r\n", "\n").replace("\r", "\n")
    return [f"{line}\n" for line in text.removesuffix("\n").split("\n")]


def execute(source: str, name: str, file: str, *, restricted: bool) -> ModuleType:
    """Run ``source`` as module ``name``; what reads its text later (Triton does) finds this string.

    The file need not exist: its lines are laid into ``linecache`` without a modification time, so that
    nothing looks for them on the disk.
    """
    path = os.path.join(os.getcwd(), file)
    linecache.cache[path] = (len(source), None, lines_of(source), path)
    tree = ast.parse(source, path)
    module = ModuleType(name)
    module.__file__ = path
    if restricted:
        tree = instrumented(tree, guarded_names())
        module.__dict__["__builtins__"] = Guards().builtins()
    sys.modules[name] = module
    exec(compile(tree, path, "exec", dont_inherit=True), module.__dict__)
    return module

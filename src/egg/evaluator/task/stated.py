"""Whether a task at some size is a call that a kernel file claims to answer."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from egg.core.containers import leaves
from egg.core.domain import Call, Domain, Layout, Mode, TensorFacts
from egg.core.errors import KernelFileError
from egg.core.policy import Precision
from egg.core.source import Candidate, Task
from egg.evaluator.task.program import Program

Outside = Callable[[Task], str]
"""Why a task's own call is outside a domain, in half a sentence; empty where it is inside."""


def tensor_facts(tensor: torch.Tensor, dtype: str) -> TensorFacts:
    """A tensor as far as a domain speaks of it; ``dtype`` as PyTorch spells it, without the prefix."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    layouts = [Layout.CONTIGUOUS] if tensor.is_contiguous() else []
    if last is not None and tensor.is_contiguous(memory_format=last):
        layouts.append(Layout.CHANNELS_LAST)
    return TensorFacts(dtype, tuple(tensor.shape), frozenset(layouts))


def outside_of(candidate: Candidate, task: Task, precision: Precision) -> Outside | None:
    """The test against the domain that a file states.

    ``None`` where the file states none, or none that can be read, or one that excludes the task itself: such
    a statement says nothing of other sizes. Modes are left out: a size is the same in both.
    """
    try:
        domain = Domain.of_source(candidate.source)
    except (KernelFileError, SyntaxError):
        return None
    if domain is None:
        return None
    anyway = replace(domain, modes=tuple(Mode))

    def outside(at: Task) -> str:
        with Program.load(at) as program:
            return anyway.outside(_call(program, precision))

    return None if outside(task) else outside


def copied_constants(candidate: Candidate, task: Task) -> Outside | None:
    """The test against the constants that a file has taken over from the task.

    A constructor that builds layers from ``widths = (512, 512)`` at module level stands in the file with a
    ``widths`` of its own: a task with other widths is another program, which the file does not claim to be.
    ``None`` where the file uses none of the task's constants.
    """
    try:
        own = _constants(ast.parse(candidate.source), read=True)
        theirs = _constants(ast.parse(task.source))
    except (SyntaxError, ValueError):
        return None
    shared = {name: text for name, text in own.items() if theirs.get(name) == text}

    def outside(at: Task) -> str:
        now = _constants(ast.parse(at.source))
        changed = (name for name, text in shared.items() if now.get(name) != text)
        return next((f"the file has a {name} of its own" for name in changed), "")

    return outside if shared else None


def _constants(tree: ast.Module, read: bool = False) -> dict[str, str]:
    """Text of numbers, tuples and lists at module level by their name; ``read``: those that the file's
    functions and classes read, apart from what makes inputs."""
    found = {
        target.id: ast.unparse(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.Tuple | ast.List)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    if not read:
        return found
    parts = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef))
    kept = [part for part in parts if part.name not in ("get_inputs", "get_init_inputs")]
    names = {node.id for part in kept for node in ast.walk(part) if isinstance(node, ast.Name)}
    return {name: text for name, text in found.items() if name in names}


def _call(program: Program, precision: Precision) -> Call:
    """A task's own call, without data."""
    inputs: dict[str, Any] = {}
    given = program.inputs(0, torch.device("meta"), precision)
    names = program.input_names(len(given))
    used = set(names)
    for outer, whole in zip(names, given, strict=False):
        for name, value in leaves(outer, whole, used):
            tensor = isinstance(value, torch.Tensor)
            facts = tensor_facts(value, str(value.dtype).removeprefix("torch.")) if tensor else value
            inputs[name] = facts
    return Call(inputs, program.bound_arguments())

"""Tensors that were folded into a generated module, as variables of ``forward``.

``torch.tensor([...])`` in a program is a tensor of Inductor's module, which its text only names. A recording
has the numbers of the small ones (:class:`~egg.core.compiled.FoldedConstant`); a file makes each of them once
for a device and reads it in every call. So no launch may write to one, and no caller may get one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

import torch

from egg.core.compiled import NUMBERS, FoldedConstant
from egg.expert.compiled.steps import HostCode
from egg.expert.parts import Unfit
from egg.expert.patterns.library.layers import made_once


@dataclass(frozen=True)
class Folded:
    """A folded tensor in a file."""

    variable: str
    """Of ``forward``."""
    tensor: torch.Tensor
    """Without data."""
    function: str
    """Makes it for a device."""
    text: str
    """The function's definition."""


def folded_of(call: ast.FunctionDef, known: Mapping[str, FoldedConstant]) -> dict[str, Folded]:
    """Those that the host code reads, by their names there, in the order of their first use."""
    names = dict.fromkeys(node.id for node in ast.walk(call) if isinstance(node, ast.Name))
    read = [name for name in names if name in known]
    return {name: _folded(name, place, known[name]) for place, name in enumerate(read)}


def _folded(name: str, place: int, constant: FoldedConstant) -> Folded:
    """The numbers are read and written again: a recording is text that others may have changed."""
    kind = NUMBERS.get(constant.dtype)
    if kind is None:
        raise Unfit(f"the folded tensor {name} has elements of {constant.dtype}")
    try:
        numbers = [repr(kind(word)) for word in constant.numbers.split()]
    except ValueError as error:
        raise Unfit(f"the folded tensor {name} has elements that are no numbers: {error}") from error
    if len(numbers) != prod(constant.shape):
        raise Unfit(f"the folded tensor {name} is {constant.shape}, and {len(numbers)} numbers are known")
    variable = f"folded_{place}"
    function = f"make_{variable}"
    text = made_once(function, " ".join(numbers), constant.dtype, kind is float, constant.shape)
    form = torch.empty(constant.shape, dtype=getattr(torch, constant.dtype), device="meta")
    return Folded(variable, form, function, text)


def check_unchanged(host: HostCode, folded: Iterable[Folded]) -> None:
    """Refuses host code that changes a folded tensor, or returns one or a view of one."""
    shared = {item.variable for item in folded}
    for line in (line for step in host.steps for line in step.lines):
        name, _, text = line.partition(" = ")
        if text.split(".")[0] in shared:
            shared.add(name)
    written = (text for step in host.steps for text in step.writes)
    if any(text.split(".")[0] in shared for text in (*written, *filter(None, host.outputs))):
        raise Unfit("the host code changes or returns a tensor that is folded into the graph")

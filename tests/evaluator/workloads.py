"""Tasks of a few lines, and what is counted of them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest
import torch
from torch.utils.flop_counter import flop_registry

from egg.core.facts import Operation, Workload
from egg.core.source import Task
from egg.evaluator.task.workload import workload

FLOAT = 4


def task_of(forward: str, inputs: str, init: str = "pass", arguments: str = "x") -> Task:
    body = textwrap.indent(textwrap.dedent(forward).strip(), " " * 8)
    setup = textwrap.indent(textwrap.dedent(init).strip(), " " * 8)
    return Task(
        "made",
        f"""
import torch
from torch import nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
{setup}

    def forward(self, {arguments}):
{body}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
""",
    )


def work_of(forward: str, inputs: str, init: str = "pass", arguments: str = "x") -> Workload:
    return workload(task_of(forward, inputs, init, arguments))


def only(work: Workload, *, but: str = "") -> Operation:
    """The one operation there is, apart from those whose name is ``but``."""
    (operation,) = [op for op in work.operations if op.name != but]
    return operation


def bytes_of(forward: str, inputs: str, init: str = "pass", arguments: str = "x") -> list[int]:
    """In elements of four bytes."""
    work = work_of(forward, inputs, init, arguments)
    assert all(op.bytes % FLOAT == 0 for op in work.operations)
    return [op.bytes // FLOAT for op in work.operations]


def uncounted_attention(monkeypatch: pytest.MonkeyPatch) -> Callable[[], object]:
    """Fused attention with fewer heads of keys than of queries, which some releases of PyTorch do not count.

    2 x 8 x 64 queries, 64 keys, 32 wide.
    """

    def refuses(*_: object, **__: object) -> int:
        raise AssertionError("shapes are incompatible")

    fused = torch.ops.aten._scaled_dot_product_flash_attention
    monkeypatch.setitem(flop_registry, fused, refuses)
    query, key = (torch.empty(2, heads, 64, 32, dtype=torch.half, device="meta") for heads in (8, 2))
    return lambda: fused(query, key, key)

"""Small programs, captured and run: what the tests of capturing and simplifying share."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import nn

from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task.precision import double_scope
from egg.evaluator.task.program import Program, outputs_of, to_double
from egg.expert.graph import Graph
from tests.expert.evaluate import Evaluated, evaluate

CPU = torch.device("cpu")

PROGRAM = """
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

{knobs}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {layers}

    def forward(self, {arguments}):
        {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def program(
    forward: str,
    inputs: str,
    layers: str = "pass",
    knobs: str = "B, C, H, W = 4, 16, 18, 20",
    arguments: str = "x",
) -> Task:
    """A task in KernelBench's form. Lines of ``forward`` and ``layers`` are parted by semicolons."""
    lines = {"layers": layers, "forward": forward if "return" in forward else f"return {forward}"}
    indented = {key: "\n        ".join(p.strip() for p in text.split(";")) for key, text in lines.items()}
    return Task("small", PROGRAM.format(knobs=knobs, arguments=arguments, inputs=inputs, **indented))


def resized(task: Task, knobs: str, others: str) -> Task:
    """The same program with other sizes in its first line."""
    assert knobs in task.source
    return Task(task.name, task.source.replace(knobs, others))


def built(task: Task) -> tuple[Program, nn.Module, list[Any]]:
    """The program's module and inputs in fp64."""
    loaded = Program.load(task)
    module = loaded.build(0, CPU, Precision.MATCH)
    inputs = loaded.inputs(0, CPU, Precision.MATCH)
    double, inputs = to_double(module, inputs)
    return loaded, double, inputs


def check(graph: Graph, task: Task) -> Evaluated:
    """Run the graph on the task's tensors and compare with the task itself: results and written buffers."""
    loaded, module, inputs = built(task)
    with loaded, double_scope():
        found = evaluate(graph, module, inputs)
        before = {name: value.clone() for name, value in module.state_dict().items()}
        wanted = [tensor for _, tensor in outputs_of(loaded.run(module, inputs))]
    assert len(wanted) == len(found.results)
    for got, want in zip(found.results, wanted, strict=True):
        assert isinstance(want, torch.Tensor)
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9, equal_nan=True)
    after = module.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed <= found.updates.keys()
    for name in found.updates.keys() & after.keys():
        torch.testing.assert_close(
            found.updates[name].to(after[name].dtype), after[name], rtol=1e-9, atol=1e-9
        )
    return found


def kinds(graph: Graph) -> Counter[str]:
    """How many nodes there are of each kind; pointwise functions and reductions by name."""
    return Counter(str(n.get("fn", n.op)) if n.op in ("pointwise", "reduce") else n.op for n in graph)

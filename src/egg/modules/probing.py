"""The values of what goes into a layer: computed eagerly, from the arguments of the graph around it.

A task draws inputs that are like the program's: a mask that hides no whole row, an index within its table.
What the graph computes between its arguments and a layer has no values while it is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from egg.modules.aot import needed
from egg.modules.cuts import written_arguments
from egg.modules.fake_run import Unsuitable
from egg.modules.regions import Region


class Probe:
    """The part of a graph that computes the arguments of regions, by itself."""

    def __init__(self, graph: fx.GraphModule, regions: Sequence[Region]) -> None:
        self._counts = [len(region.arguments) for region in regions]
        wanted = [argument for region in regions for argument in region.arguments]
        within = needed(wanted)
        new, made = fx.Graph(), {}
        for node in graph.graph.nodes:
            if node in within or node.op == "placeholder":
                made[node] = new.node_copy(node, made.__getitem__)
        new.output(tuple(made[node] for node in wanted))
        self._module = fx.GraphModule(graph, new)

    def values(self, args: Sequence[Any]) -> list[list[Any]]:
        """For each region the values of its arguments; raises :class:`Unsuitable`.

        Nothing of the program changes by it: not a tensor, nor the state of a random generator.
        """
        if written_arguments(self._module):
            raise Unsuitable("what goes into it is computed behind writes into arguments")
        devices = {value.device.index for value in args if isinstance(value, torch.Tensor) and value.is_cuda}
        with torch.no_grad(), torch.random.fork_rng(sorted(devices)):
            found = list(self._module(*args))
        ends = [sum(self._counts[: at + 1]) for at in range(len(self._counts))]
        return [found[end - count : end] for end, count in zip(ends, self._counts, strict=True)]

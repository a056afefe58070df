"""Recurrent layers as a pattern: what planning and fusion may ask of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from egg.core.bottleneck import Bottleneck
from egg.core.stage import Category
from egg.expert.cost import HOST_LAUNCH, Cost, Grades, Machine
from egg.expert.graph import Graph, Node
from egg.expert.moves import Set
from egg.expert.parts import Group, Part, Target, Use
from egg.expert.pattern import Alternative, Anchor, LibraryChoice, Pattern, Refused, Repair, Symptom
from egg.expert.patterns.recurrent.pytorch import recurrent_call
from egg.expert.patterns.recurrent.write import MOST_ROWS, write

LIBRARY_STEP, PERSISTENT_STEP, PERSISTENT = 14e-6, 1.6e-6, 128
"""Seconds of one step of one layer of a library's recurrent network; of one that walks through all steps in a
single kernel, and the hidden units up to which it does so in fp32: 64 units took 1.0 to 1.8 us on an H200,
128 units 2.2 to 2.9, 192 units 6 to 11, 300 units 13 to 17."""
OWN_STEP, OWN_STATE = 1.6e-6, 0.4e-9
"""The same where programs wait for each other in one launch, and for each number of the state that a program
reads: 3 us for 16 rows of 256 units, 8 for 64 rows."""
ALONE_STEP, LAUNCHED_STEP = 9e-6, 17e-6
"""The same where a program has all units of its rows, and where each step is a launch."""


def operations(graph: Graph, node: Node) -> float:
    """Not counted: its steps take their time whatever they compute."""
    return 0.0


def _library_seconds(graph: Graph, node: Node, grade: str | None, machine: Machine) -> float:
    chains = int(node["layers"]) * (2 if node["bidirectional"] else 1)
    persistent = _state(graph, node)[1] <= PERSISTENT
    return _steps(graph, node) * chains * (PERSISTENT_STEP if persistent else LIBRARY_STEP)


def _state(graph: Graph, node: Node) -> tuple[int, int]:
    """Rows of the batch, and hidden units."""
    first = graph.value(str(node.inputs[1]))
    return first.shape[1].value, first.shape[2].value


def _steps(graph: Graph, node: Node) -> int:
    x = graph.value(str(node.inputs[0]))
    return x.shape[1 if node["batch_first"] else 0].value


class Recurrent(Pattern):
    name = "recurrent"
    anchors = (Anchor("recurrent", operations, _library_seconds, recurrent_call),)
    keeps = 2
    left = LibraryChoice(
        "each step waits for the one before, and ours costs a launch each",
        "leave {} to the library",
        ("persistent-recurrence",),
    )

    def write(self, graph: Graph, group: Group, target: Target) -> Part:
        return write(graph, group, target)

    def cost(self, graph: Graph, group: Group, part: Part, grades: Grades, machine: Machine) -> Cost:
        """Steps one after another; each is a launch unless all are in one, or one program has them to
        itself."""
        node, count = group.nodes[0], len(part.launches)
        steps, layers = _steps(graph, node), int(node["layers"])
        each = steps + layers - 1 if count <= 3 else steps * layers  # directions walk side by side
        launched = Use.STEPPED in part.uses
        rows, hidden = _state(graph, node)
        together = OWN_STEP + OWN_STATE * min(rows, MOST_ROWS) * hidden
        alone = ALONE_STEP if Use.COOPERATIVE not in part.uses else together
        device = each * (LAUNCHED_STEP if launched else alone)
        return Cost(device, (each if launched else count) * HOST_LAUNCH)

    def alternatives(self, group: Group, part: Part, found: Bottleneck | None) -> Iterator[Alternative]:
        if Use.COOPERATIVE in part.uses:
            return
        yield Alternative(
            Category.LAUNCH_REDUCTION,
            "a launch for every step costs more than the step",
            f"{group.name} takes all steps in one launch, its programs waiting for each other",
            (Set(group.name, "mode", "cooperative"),),
            "one launch instead of one per step",
            ("persistent-recurrence", "launch-reduction"),
        )

    def repairs(self, graph: Graph, groups: Sequence[Group], refused: Refused) -> Iterator[Repair]:
        """Programs that wait for each other may wait for ever."""
        if refused.symptom is not Symptom.FAILING:
            return
        names = dict.fromkeys(group.name for group in groups)
        whose = ", ".join(names) if refused.located else "a recurrent layer"
        moves = tuple(Set(name, "mode", "steps") for name in names)
        yield Repair(moves, f"each step of {whose} is a launch of its own")


RECURRENT = Recurrent()

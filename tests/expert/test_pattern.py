"""A new pattern is an object and a line in the table: fusion then grows groups around its anchor."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import egg.expert
from egg.expert.assemble import graph_of
from egg.expert.cost import HOST_LAUNCH, Cost, Grades, Machine, bytes_moved, stream_seconds
from egg.expert.emit.spelling import Speller
from egg.expert.fusion.choices import Choices, Structure
from egg.expert.fusion.structure import structured
from egg.expert.graph import Graph, Node
from egg.expert.parts import Group, Part, Target
from egg.expert.pattern import Anchor, Pattern, Patterns
from egg.expert.patterns import OWN, PATTERNS
from egg.expert.patterns.library.pattern import Library
from egg.expert.patterns.loops.write import write
from egg.hardware.gpus import resolve
from tests.expert.captured import program

H200 = resolve("H200")
LOOKUP = program(
    "torch.relu(self.table(x)) * 2",
    "torch.randint(0, 50, (B, 12))",
    "self.table = nn.Embedding(50, 16)",
    "B = 4",
)


def _operations(graph: Graph, node: Node) -> float:
    return 0.0


def _library_seconds(graph: Graph, node: Node, grade: str | None, machine: Machine) -> float:
    return stream_seconds(graph.result(node).bytes, machine)


def _call(speller: Speller, node: Node) -> str:
    source, index = (speller.operand(node, place) for place in (0, 1))
    return f"{node.output} = nn.functional.embedding({index}, {source})"


class Gather(Pattern):
    name = "gather"
    anchors = (Anchor("gather", _operations, _library_seconds, _call),)

    def write(self, graph: Graph, group: Group, target: Target) -> Part:
        return write(graph, group, target)

    def cost(self, graph: Graph, group: Group, part: Part, grades: Grades, machine: Machine) -> Cost:
        seconds = stream_seconds(bytes_moved(graph, group), machine)
        return Cost(seconds, len(part.launches) * HOST_LAUNCH)


def table() -> Patterns:
    own = (Gather(), *OWN)
    return Patterns(*own, Library(own))


def written(patterns: Patterns, choices: Choices | None = None) -> Structure:
    return structured(graph_of(LOOKUP), Target(H200), patterns, choices)


def test_fusion_grows_a_group_around_a_new_anchor() -> None:
    (group,) = written(table()).groups
    assert group.pattern == "gather"
    assert [node.op for node in group.nodes] == ["gather", "pointwise", "pointwise"]


def test_choices_hold_for_a_new_pattern() -> None:
    alone = written(table(), Choices(alone=frozenset({"gather"})))
    assert [group.pattern for group in alone.groups] == ["gather", "loops"]
    left = written(table(), Choices(without=frozenset({"gather"})))
    assert [group.pattern for group in left.groups] == ["library", "loops"]
    assert left.left_to_pytorch == ("gather",)
    assert "nn.functional.embedding(" in left.parts[0].call[0]


def test_the_cost_of_a_call_is_its_patterns_own() -> None:
    patterns = table()
    structure = written(patterns, Choices(without=frozenset({"gather"})))
    group, part = structure.groups[0], structure.parts[0]
    cost = patterns.fallback.cost(structure.graph, group, part, {}, Machine.of(H200))
    assert cost.device == _library_seconds(structure.graph, group.nodes[0], None, Machine.of(H200))


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_has_one_role(name: str) -> None:
    pattern = PATTERNS[name]
    assert [bool(pattern.anchors), bool(pattern.streams), pattern.fallback].count(True) == 1


OPERATORS = {"placing.py": {"library"}, "assemble.py": {"attention"}}
"""Kinds of node that are called like a pattern, by the module that asks about them."""


def test_no_pattern_is_named_where_patterns_are_asked() -> None:
    root = Path(egg.expert.__file__).parent
    modules = [*(root / "deciding").glob("*.py"), *(root / "fusion").glob("*.py")]
    modules += [root / name for name in ("assemble.py", "cost.py", "pattern.py", "team.py")]
    for module in modules:
        nodes = ast.walk(ast.parse(module.read_text("utf-8")))
        texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
        assert texts & {*PATTERNS} <= OPERATORS.get(module.name, set()), module.name

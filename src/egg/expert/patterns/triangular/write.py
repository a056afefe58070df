"""A triangular system with many right sides as one kernel (:mod:`.triton.solve`).

Settings: the constants ``BLOCK_C`` (columns of a program) and ``NUM_WARPS``.
"""

from __future__ import annotations

from egg.expert.emit.code import Code
from egg.expert.emit.kernel import Kernel, Knobs, allocation, is_large, size_names
from egg.expert.emit.names import read_by
from egg.expert.graph import Graph, Node
from egg.expert.parts import Group, Part, Target, Unfit, spelled, within_reach
from egg.expert.patterns.triangular.triton.solve import OWN, System, write_solve

MOST_ROWS = 512
"""Beyond that one program's walk through the rows is too long for a library's to be slower."""


def write(graph: Graph, group: Group, target: Target) -> Part:
    """The group as one kernel and the lines that call it."""
    system = _system(graph, group)
    name, knobs, code = group.name, Knobs(group.name, target.settings), Code()
    columns = max(16, 1 << max(system.columns.value - 1, 0).bit_length())
    block = knobs.constant("BLOCK_C", min(64, columns), tuple(n for n in (32, 64, 128) if n <= columns))
    warps = knobs.constant("NUM_WARPS", 4, (2, 4))
    doc = "Solve a triangular system for some right sides: substitution by blocks of 16 rows."
    kernel = Kernel(f"{name}_kernel", doc, graph, OWN, meta={"BLOCK_C": block})
    write_solve(system, kernel, "tf32x3" if target.gpu.vendor == "nvidia" else "ieee")
    device = f"{spelled(graph, group.reads(graph)[0])}.device"
    code.call.append(allocation(system.result, device))
    grid = f"({system.batch} * triton.cdiv({system.columns}, {block}),)"
    code.launch(kernel, grid, {"num_warps": warps, "num_stages": "1"})
    sizes = sorted(read_by(code.call) & size_names(graph))
    counts = within_reach(graph.value(n).elements for n in (*group.reads(graph), *group.writes(graph)))
    return code.part(knobs.constants(), "a triangular system in one kernel", sizes=sizes, counts=counts)


def _system(graph: Graph, group: Group) -> System:
    """What the group asks for, where one kernel of ours has it."""
    nodes: list[Node] = [node for node in group.nodes if node.op == "triangular_solve"]
    if len(nodes) != 1 or group.nodes[-1] is not nodes[0]:
        raise Unfit("not exactly one triangular system at the end")
    system = System(graph, group, nodes[0])
    values = (system.matrix, system.right, system.result)
    if any(value.dtype != "float32" for value in values):
        raise Unfit(f"a triangular system of {system.result.dtype}")
    if len({value.shape[:-2] for value in values}) != 1:
        raise Unfit("one matrix for several right sides")
    if system.rows.value > MOST_ROWS:
        raise Unfit(f"a triangular system of {system.rows.value} rows")
    if group.writes(graph) != (system.result.name,) and list(group.writes(graph)) != [system.result.name]:
        raise Unfit("what the system is made of is needed elsewhere")
    if any(is_large(graph.value(name)) for name in (*group.reads(graph), *group.writes(graph))):
        raise Unfit("tensors beyond the reach of 32 bits")
    if any(stride.number == 0 for stride in system.result.stride):
        raise Unfit("the result would be stored more than once")
    return system

"""Rows joined by place (:mod:`.problem`) as four kernels: three that file the rows, one that walks the lists.

Settings: the constants ``NODES``, ``ROWS``, ``BLOCK_F`` and ``NUM_WARPS`` of the walk, ``BLOCK`` and
``PLACES`` of the filing, and ``lists``: whether rows are filed however few they are; where it is not set,
their number decides (:func:`is_worth_filing`).
"""

from __future__ import annotations

from egg.expert.cost import ATOMICS, LAUNCH
from egg.expert.emit.code import Code
from egg.expert.emit.kernel import Knobs, allocation, size_names
from egg.expert.emit.names import read_by
from egg.expert.graph import Graph, Value
from egg.expert.parts import Group, Part, Target, Unfit, spelled, within_reach
from egg.expert.patterns.segments.problem import Problem
from egg.expert.patterns.segments.triton.lists import Tensors, count_kernel, fill_kernel, stretch_kernel
from egg.expert.patterns.segments.triton.walk import Asked, write_walk
from egg.expert.sizes import product

LISTS = "lists"
"""The setting that decides whether rows are filed."""
FEWEST_COLUMNS = 16
"""Neighbours in memory of a row, below which atomics are few and a walk's lanes are idle."""
FILED = 5e10
"""Rows per second that are filed: an atomic that returns a rank and a few numbers from the cache each, an
estimate."""
WORTH = 2.5
"""How many times longer atomics must take by the estimate: launches take the host's time as well."""
FILING = 3
"""Launches that only file rows."""
TILE = 2048
"""Elements of a tile: 64 registers of each lane of a warp."""
MANY = 24
"""Rows of a list from which on more of them are in flight."""


def filing_seconds(edges: float) -> float:
    return FILING * LAUNCH + edges / FILED


def is_worth_filing(problem: Problem) -> bool:
    """Whether atomics for every element should take far longer than filing the rows."""
    elements = problem.edges.value * problem.features.value
    return elements / ATOMICS > WORTH * filing_seconds(problem.edges.value)


def write(graph: Graph, group: Group, target: Target) -> Part:
    """The group's kernels and the lines that call them."""
    problem = Problem(graph, group)
    problem.check()
    if product(problem.result.shape[problem.dim + 1 :]).value < FEWEST_COLUMNS:
        raise Unfit("rows are short: a walk's lanes would be idle")
    if not target.settings.get(LISTS, is_worth_filing(problem)):
        raise Unfit("atomics are cheaper than lists for so few rows")
    tensors = Tensors(problem.root.output)
    walk, asked = write_walk(problem, f"{group.name}_kernel", tensors)
    knobs, code = Knobs(group.name, target.settings), Code()
    lists: dict[str, Value | None] = {tensors.edges: None} if asked.edges else {}
    lists |= {tensors.filed(which): value for which, value in enumerate(asked.filed.values())}
    device = f"{spelled(graph, group.reads(graph)[0])}.device"
    code.call += _allocated(problem, tensors, lists, device)
    _file(problem, code, knobs, tensors, lists)
    nodes, rows, columns = _tile(problem, asked, target.gpu.l2_bytes)
    constants = {
        "NODES": knobs.constant("NODES", nodes, (1, 2, 4, 8), "places of a program"),
        "ROWS": knobs.constant("ROWS", rows, (4, 8, 16), "rows of a place in flight"),
        "BLOCK_F": knobs.constant("BLOCK_F", columns, _widths(columns), "columns of a program"),
    }
    warps = knobs.constant("NUM_WARPS", 1, (1, 2, 4))
    walk.meta = constants
    blocks = f"triton.cdiv({problem.nodes}, {constants['NODES']})"
    chunks = f"triton.cdiv({problem.features}, {constants['BLOCK_F']})"
    code.launch(walk, f"({blocks} * {chunks},)", {"num_warps": warps})
    sizes = sorted(read_by(code.call) & size_names(graph))
    names = (*group.reads(graph), *group.writes(graph))
    counts = within_reach((problem.edges, *(graph.value(name).elements for name in names)))
    summary = f"rows are filed under their {problem.nodes} places, and joined there in registers"
    return code.part(knobs.constants(), summary, sizes=sizes, counts=counts)


def _allocated(problem: Problem, tensors: Tensors, lists: dict[str, Value | None], device: str) -> list[str]:
    """Counts begin at zero in every call: the index is data."""
    kind, edges, nodes = f"device={device}, dtype=torch.int32", problem.edges.code(), problem.nodes.code()
    made = {tensors.ranks: edges, tensors.first: nodes, **dict.fromkeys(lists, edges)}
    return [
        f"{tensors.counts} = torch.zeros(({nodes} + 1,), {kind})",
        *(f"{name} = torch.empty(({size},), {kind})" for name, size in made.items()),
        allocation(problem.written[0], device),
    ]


def _file(
    problem: Problem, code: Code, knobs: Knobs, tensors: Tensors, lists: dict[str, Value | None]
) -> None:
    stem, warps = problem.group.name, {"num_warps": "4"}
    block = knobs.constant("BLOCK", 512, (256, 512, 1024), "rows of a program that files them")
    places = knobs.constant("PLACES", 1024)
    over_rows, over_places = (
        f"(triton.cdiv({size}, {many}),)" for size, many in ((problem.edges, block), (problem.nodes, places))
    )
    code.launch(count_kernel(problem, f"{stem}_count_kernel", block, tensors), over_rows, warps)
    code.launch(stretch_kernel(problem, f"{stem}_stretch_kernel", places, tensors), over_places, warps)
    code.launch(fill_kernel(problem, f"{stem}_fill_kernel", block, tensors, lists), over_rows, warps)


def _tile(problem: Problem, asked: Asked, cache: int) -> tuple[int, int, int]:
    """Places, rows and columns of a program's tile.

    Columns are the slowest axis of the grid. Where what is gathered from does not fit the cache as a whole,
    programs take half as many, so that a chunk of all rows may stay there.
    """
    whole = 1 << max(problem.features.value - 1, 1).bit_length()
    reads = sum(problem.graph.value(name).bytes for name in problem.group.reads(problem.graph))
    columns = min(whole, 64 if reads > cache / 2 else 128)
    mean = problem.edges.value / max(problem.nodes.value, 1)
    rows = 16 if mean >= MANY else 8 if mean > 2 else 4
    nodes = max(1, min(8, TILE // (rows * columns * asked.wide)))
    return 1 << nodes.bit_length() - 1, rows, columns


def _widths(columns: int) -> tuple[int, ...]:
    return tuple(width for width in (32, 64, 128) if width <= 2 * columns)

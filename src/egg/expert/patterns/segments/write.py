"""Rows joined by place (:mod:`.problem`) as four kernels: three that file the rows, one that walks the lists.

Settings: the constants ``NODES``, ``ROWS``, ``BLOCK_F`` and ``NUM_WARPS`` of the walk, ``BLOCK`` and
``PLACES`` of the filing, and ``lists``: whether rows are filed however few they are; where it is not set,
their number decides (:func:`is_worth_filing`).
"""

from __future__ import annotations

from egg.expert.cost import LAUNCH, Machine, atomics_per_second
from egg.expert.emit.code import Code
from egg.expert.emit.kernel import Knobs, allocation, size_names
from egg.expert.emit.names import read_by
from egg.expert.graph import Graph, Value
from egg.expert.parts import Group, Part, Target, Unfit, spelled, within_reach
from egg.expert.patterns.segments.problem import FEWEST_COLUMNS, Problem
from egg.expert.patterns.segments.triton.lists import Tensors, count_kernel, fill_kernel, stretch_kernel
from egg.expert.patterns.segments.triton.walk import Asked, write_walk
from egg.expert.sizes import ONE, product

LISTS = "lists"
"""The setting that decides whether rows are filed."""
FILED = 2.2e10
"""Rows per second that are filed: an atomic that returns a rank, and stores all over the lists. 0.8 million
in 36 us, 1.2 million in 52 us, 1.6 million in 95 us on an H200."""
GATHERED = 1.5
"""How many times faster than memory rows are gathered, of which the cache holds a part: an estimate."""
WAITING = 2e-6
"""Seconds of a program that walks a short list: its length, the list, the rows, one behind the other."""
RESIDENT = 32
"""Programs that a multiprocessor has at a time."""
WORTH = 1.1
"""How many times longer atomics must take by the estimate: launches take the host's time as well."""
FILING = 3
"""Launches that only file rows."""
WIDEST = 128
"""Columns of a program, at most."""
TILE = 2048
"""Elements of a tile: 64 registers of each lane of a warp."""
LOADED = 16
"""Rows of a tile, of all its places. From 32 on, one for each lane, the compiler lays the tile out by what is
loaded for a row (its number, its weight), and exchanges all elements through shared memory for that."""
MANY, SOME = 10, 3
"""Rows of a list from which on 16 and 8 of them are in flight."""
NARROW = 32
"""Columns up to which a program that passes over its rows several times has four places: each pass waits for
its loads, and a multiprocessor has no more than 32 programs. A graph attention of 50000 nodes with 16 edges
each takes 134 us with 4 rows of 4 places in flight, and 399 us with 16 rows of one (an H200)."""


def filing_seconds(edges: float) -> float:
    return FILING * LAUNCH + edges / FILED


def walk_seconds(problem: Problem, machine: Machine) -> float:
    """Rows are gathered one by one; short lists are little work for a program, and it waits as long."""
    rows = problem.edges.value * problem.features.value * 4 / GATHERED / machine.memory
    programs = problem.nodes.value * -(-problem.features.value // WIDEST)
    return LAUNCH + max(rows, programs / (RESIDENT * machine.sms) * WAITING)


def is_worth_filing(problem: Problem, machine: Machine) -> bool:
    """Whether atomics for every element should take longer than filing the rows and walking the lists."""
    elements = problem.edges.value * problem.features.value
    lists = filing_seconds(problem.edges.value) + walk_seconds(problem, machine)
    return elements / atomics_per_second(problem.result, machine) > WORTH * lists


def write(graph: Graph, group: Group, target: Target) -> Part:
    """The group's kernels and the lines that call them."""
    problem = Problem(graph, group)
    problem.check()
    if product(problem.result.shape[problem.dim + 1 :]).value < FEWEST_COLUMNS:
        raise Unfit("rows are short: a walk's lanes would be idle")
    if not target.settings.get(LISTS, is_worth_filing(problem, Machine.of(target.gpu))):
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
    chunks = f"triton.cdiv({problem.columns}, {constants['BLOCK_F']})"
    if problem.heads != ONE:
        chunks = f"{problem.heads.code()} * {chunks}"
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
    whole = 1 << max(problem.columns.value - 1, 1).bit_length()
    reads = sum(problem.graph.value(name).bytes for name in problem.group.reads(problem.graph))
    columns = min(whole, WIDEST // 2 if reads > cache / 2 else WIDEST)
    mean = problem.edges.value / max(problem.nodes.value, 1)
    rows = 16 if mean >= MANY else 8 if mean >= SOME else 4
    if asked.states and columns <= NARROW:
        rows = 4
    while rows > 8 and rows * columns * asked.wide > TILE:
        rows //= 2
    nodes = max(1, min(LOADED // rows, TILE // (rows * columns * asked.wide)))
    return 1 << nodes.bit_length() - 1, rows, columns


def _widths(columns: int) -> tuple[int, ...]:
    return tuple(width for width in (32, 64, 128) if width <= 2 * columns)

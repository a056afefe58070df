"""Products of matrices: one ``matmul`` with what stands before it and what follows, on tensor cores.

How it is computed is chosen by price (:mod:`~egg.expert.patterns.product.rules`): packed for tensor cores,
read as it lies, or streamed where one side is a vector; in one pass or in parts of the summed dimension.
What the tail needs decides on the tile: whole rows, whole groups of columns, or nothing.

Settings: ``grade`` (``fp32``, ``tf32x3``, ``ieee``, ``tf32``, ``half``), ``mode`` (``vector`` or ``tiles``),
``packing``, ``keep`` (packed weights stay until they change), ``fold`` (tiles compute their 16-bit operands),
``descriptors``, ``apart`` (small products of halves have a sum of their own), ``walk`` (few programs walk
over all tiles), ``spread`` (a reduction of rows is put together from tiles), and the constants ``BLOCK_M``,
``BLOCK_N``, ``BLOCK_K``, ``GROUP_M``, ``SPLIT_K``, ``NUM_WARPS``, ``NUM_STAGES``, ``ROWS``, ``PROGRAMS``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from egg.expert.emit.code import Code
from egg.expert.emit.device import MULTIPROCESSORS, TEXT, multiprocessors
from egg.expert.emit.host import Function, keeping
from egg.expert.emit.kernel import Kernel, Knobs, allocation
from egg.expert.emit.reader import Reader
from egg.expert.emit.words import PRODUCT
from egg.expert.graph import BYTES, Graph, Value
from egg.expert.index import loop_index
from egg.expert.parts import REACH, Group, Part, Target, Unfit, Use, spelled, within_reach
from egg.expert.patterns.product import prologue
from egg.expert.patterns.product.described import PADDING, PADDING_TEXT, wanted
from egg.expert.patterns.product.follow import SPREAD, Followed, RowOperation, crowds, follow
from egg.expert.patterns.product.groups import Groups
from egg.expert.patterns.product.problem import Problem
from egg.expert.patterns.product.prose import Prose
from egg.expert.patterns.product.rules import Wants, Way, apart, by_warp_group, choose, kept, stream
from egg.expert.patterns.product.tile_loads import Buffers, buffers
from egg.expert.patterns.product.triton.join import (
    LONGEST_ROW,
    Second,
    all_rows,
    finished,
    joined,
    partials_name,
    parts_name,
    store_part,
    store_partial,
)
from egg.expert.patterns.product.triton.loop import Main
from egg.expert.patterns.product.triton.loop_direct import DirectOperands
from egg.expert.patterns.product.triton.loop_packed import PackedOperands
from egg.expert.patterns.product.triton.pack import Packed, pack, padded_name
from egg.expert.patterns.product.triton.place import Place
from egg.expert.patterns.product.triton.tail import Frame, Tail
from egg.expert.patterns.product.triton.vector import Stream
from egg.expert.sizes import ONE, Size


def write(graph: Graph, group: Group, target: Target) -> Part:
    """The group as kernels and the lines that call them."""
    return _Writer(graph, group, target).part()


class _Writer:
    def __init__(self, graph: Graph, group: Group, target: Target) -> None:
        self.graph, self.group, self.target = graph, group, target
        self.problem = Problem.of(graph, group)
        prologue.check(self.problem, target)
        self.knobs = Knobs(group.name, target.settings)
        self.writes = group.writes(graph)
        self.device = f"{spelled(graph, group.reads(graph)[0])}.device"
        self.followed = self._followed()
        self.prose = Prose(self.problem, self.followed)
        self.groups = Groups.of(self.problem, self.followed.operations)
        self.code = Code(call=[] if self.groups is None else self.groups.call())
        self.handed: dict[str, Function] = {}
        """Packed weights, which are made apart and kept."""
        self.counts: list[str] = []
        """Of packed operands."""

    def _followed(self) -> Followed:
        """What follows the product, seen from a tile of its result."""
        problem = self.problem
        batch, row = loop_index("batch", problem.batch), loop_index("row", problem.rows)
        column = loop_index("column", problem.columns)
        followed = follow(problem, problem.result_index(batch, row, column), column)
        if lost := [name for name in self.writes if name not in followed.places]:
            raise Unfit(f"{lost} are needed elsewhere, but stand before the product")
        for name in self.writes:
            if any(stride.number == 0 for stride in self.graph.value(name).stride):
                raise Unfit(f"{name} would be stored more than once")
        return followed

    def part(self) -> Part:
        way, spread = self._way()
        if way.mode == "vector":
            self._vector(way)
        else:
            self._tiles(way, spread)
        fresh = (self.graph.value(name) for name in self.group.allocates(self.graph))
        outputs = [allocation(value, self.device) for value in fresh]
        lines = (*outputs, *self.code.call)
        summary = self.prose.summary(way)
        host = self.problem.host.function(lines, f"The {summary}.", self.handed)
        counts = (*self._counts(), *self.counts)
        return self.code.behind(host).part(self.knobs.constants(), summary, sizes=host.sizes, counts=counts)

    def _counts(self) -> tuple[str, ...]:
        """What offsets of 32 bits must reach: tensors, and the result, of which parts may be stored."""
        names = (*self.group.reads(self.graph), *self.writes)
        every = [*(self.graph.value(name).reach for name in names), self.problem.result.elements]
        return () if any(count.value >= REACH for count in every) else within_reach(every)

    # -- decisions ---------------------------------------------------------------------------------

    def _way(self) -> tuple[Way, RowOperation | None]:
        """The cheapest way, and the reduction whose rows are put together by a second kernel, if any."""
        problem, followed = self.problem, self.followed
        least = self.groups.slots if self.groups is not None else 1
        short = not followed.operations  # nothing but the store behind a tile
        wants = Wants(least_columns=least, may_walk=short, crowded=crowds(problem))
        plain = choose(problem, self.target, wants)
        if not followed.needs_rows or plain.mode == "vector":
            return plain, None
        if plain.tiles.split > 1 and problem.columns.value <= LONGEST_ROW:
            return plain, None
        found: list[tuple[Way, RowOperation | None]] = []
        if not self.target.settings.get("spread"):
            with suppress(Unfit):
                found.append((choose(problem, self.target, Wants(True, least, may_split=False)), None))
        if (operation := self._spread()) is not None:
            found.append((choose(problem, self.target, Wants(False, least, may_split=False)), operation))
        if not found:
            raise Unfit("the tail of the product needs whole rows, which are longer than a tile")
        return min(found, key=lambda pair: pair[0].seconds + (0 if pair[1] is None else 4e-6))

    def _spread(self) -> RowOperation | None:
        """The one reduction that may run across tiles: behind it there is one number per row."""
        found = [one for one in self.followed.operations if one.groups is None and not one.trivial]
        if len(found) != 1 or found[0].node.op != "reduce" or found[0].node["fn"] not in SPREAD:
            return None
        late = self._behind(found[0])
        later = self.followed.operations[self.followed.operations.index(found[0]) + 1 :]
        if self.groups is not None and any(operation.groups is not None for operation in later):
            return None
        if any(name in late and not self.followed.row_shaped(name) for name in self.followed.places):
            return None
        return found[0]

    def _behind(self, operation: RowOperation) -> frozenset[str]:
        """Values that a row operation's result goes into."""
        found = {operation.node.output}
        for node in self.group.nodes:
            if any(name in found for name in node.inputs):
                found |= set(node.outputs)
        return frozenset(found)

    # -- tiles -------------------------------------------------------------------------------------

    def _tiles(self, way: Way, spread: RowOperation | None) -> None:
        problem, tiles = self.problem, way.tiles
        split = tiles.split > 1
        whole = self.followed.needs_rows and spread is None and not split
        constants = self._tile_constants(way, whole)
        kernel = Kernel(
            f"{self.group.name}_kernel", self.prose.kernel(way), self.graph, PRODUCT, meta=constants
        )
        kernel.fixed = frozenset(s.name for size in (problem.depth, problem.columns) for s in size.factors)
        groups = None if split else self.groups
        plain = not whole and self.groups is None and spread is None
        turned = plain and way.mode == "direct" and way.grade != "fp32" and tiles.m < 64 <= tiles.n
        place = Place(problem, kernel, groups, turned)
        if way.mode == "packed":
            light = not whole and self.groups is None
            operands = self._packed(way, constants, place, light)
        else:
            pads = {weight.name for side in (problem.left, problem.right) if (weight := self._weight(side))}
            operands = DirectOperands(place, way.grade, wanted(problem, self.target, way), pads)
        main = Main(place, operands, split, way.walks)
        main.begin()
        main.loop()
        frame, masks = main.frame()
        reader = Reader(self.graph, self.group.nodes, kernel.body, masks, takes_rows=True)
        blocks = (constants["BLOCK_M"], constants["BLOCK_N"])
        columns = self._places if groups is not None else problem.columns.code()
        grid = f"triton.cdiv({problem.rows}, {blocks[0]}) * triton.cdiv({columns}, {blocks[1]})"
        grid = grid if problem.batch == ONE else f"{problem.batch} * {grid}"
        second: Second | None = None
        count = problem.host.local("tiles")
        self.code.call.append(f"{count} = {grid}")
        if split:
            store_part(problem, kernel, frame, masks, place.batch)
            second = self._join(constants["SPLIT_K"])
            grid = f"({count}, {constants['SPLIT_K']})"
        else:
            second = self._tail(kernel, reader, frame, place.batch, spread, constants)
            grid = f"(min({count}, {self._programs(way)}),)" if way.walks else f"({count},)"
        kernel.add_pointers(reader.pointers)
        if isinstance(operands, DirectOperands):
            self.code.helpers |= operands.helpers
            self._keep_aligned(operands.padded, [span.size for span in operands.parts])
        if operands.described:
            self.code.uses.add(Use.DESCRIPTORS)
        self.code.launch(kernel, grid, {"num_warps": self._warps, "num_stages": self._stages})
        self._add_second(second)

    def _tail(
        self,
        kernel: Kernel,
        reader: Reader,
        frame: Frame,
        batch: str,
        spread: RowOperation | None,
        constants: dict[str, str],
    ) -> Second | None:
        """All that follows, on the tile in registers; or up to a reduction that a second kernel finishes."""
        tail = Tail(self.problem, kernel, reader, frame, "total")
        if spread is None:
            tail.row_operations()
            tail.store(self.writes)
            return None
        late = self._behind(spread)
        operation = next(s for s in tail.followed.operations if s.node is spread.node)
        tail.row_operations(until=operation)
        tail.store(tuple(name for name in self.writes if name not in late))
        count = store_partial(self.problem, kernel, tail, operation, batch)
        across = f"triton.cdiv({self._places}, {constants['BLOCK_N']})"
        self.code.call.append(
            f"{partials_name(self.problem)} = torch.empty(({count}, {across}, {all_rows(self.problem)}), "
            f"device={self.device}, dtype=torch.float32)"
        )
        names = tuple(name for name in self.writes if name in late)
        return finished(self.problem, operation.node.output, across, count, names)

    def _tile_constants(self, way: Way, whole: bool) -> dict[str, str]:
        tiles, knobs = way.tiles, self.knobs
        packed = way.mode == "packed"
        limit = self.target.gpu.shared_per_block
        per_k = (4 if way.grade == "fp32" else 2) if packed else BYTES[self.problem.left.dtype]
        read = Buffers() if packed else buffers(self.problem)

        def fits(m: int, n: int) -> bool:
            room = per_k * read.elements(m, n, tiles.k, tiles.stages)
            return room <= limit and m * n <= 128 * 256 // (2 if way.grade == "fp32" else 1)

        ns = (
            ()
            if whole
            else tuple(n for n in (tiles.n // 2, tiles.n, tiles.n * 2) if n >= 64 and fits(tiles.m, n))
        )
        ms = tuple(m for m in (tiles.m // 2, tiles.m) if m >= 64)
        made = {"BLOCK_M": knobs.constant("BLOCK_M", tiles.m, ms if len(ms) > 1 else ())}
        if whole:
            name = self.problem.host.local("block_n")
            self.code.call.append(f"{name} = max(16, triton.next_power_of_2({self._places}))  # whole rows")
            made["BLOCK_N"] = name
        else:
            made["BLOCK_N"] = knobs.constant("BLOCK_N", tiles.n, ns if len(ns) > 1 else ())
        made["BLOCK_N"] = self._wide_enough(made["BLOCK_N"])
        made["BLOCK_K"] = knobs.constant("BLOCK_K", tiles.k)
        made["GROUP_M"] = knobs.constant("GROUP_M", 8, why="rows of tiles that share operands in L2")
        if tiles.split > 1:
            made["SPLIT_K"] = knobs.constant("SPLIT_K", tiles.split, why="parts of the summed dimension")
        self._warps = knobs.constant("NUM_WARPS", tiles.warps, (4, 8) if tiles.m * tiles.n >= 64 * 64 else ())
        self._stages = knobs.constant("NUM_STAGES", tiles.stages)
        return made

    @property
    def _places(self) -> str:
        """How many places of tiles a row of the result takes, as the host says it."""
        return self.groups.all_slots(False) if self.groups is not None else self.problem.columns.code()

    def _programs(self, way: Way) -> str:
        """How many programs walk over the tiles."""
        room = way.tiles.room(2 if way.grade == "tf32" else 4)
        fit = max(1, self.target.gpu.shared_per_block // room)
        self.code.helpers[MULTIPROCESSORS] = TEXT
        each = self.knobs.constant("PROGRAMS", fit, why="that run at once on a multiprocessor")
        return f"{each} * {multiprocessors(self.device)}"

    def _wide_enough(self, block: str) -> str:
        """A tile holds whole groups of columns, however wide they are at another size."""
        if self.groups is None:
            return block
        name = self.problem.host.local("block_n")
        self.code.call.append(f"{name} = max({block}, {self.groups.widest})  # whole groups of columns")
        return name

    def _packed(self, way: Way, constants: dict[str, str], place: Place, light: bool) -> PackedOperands:
        """``light``: behind the loop a tile needs few registers."""
        low = way.grade == "fp32"
        blocks = f"triton.cdiv({self.problem.depth}, {constants['BLOCK_K']}) * {constants['BLOCK_K']}"
        padded = f"{padded_name(self.problem)} = {blocks}  # whole blocks"
        fixed = {name: constants[name] for name in ("BLOCK_K", "SPLIT_K") if name in constants}
        made: list[tuple[Value | None, Packed]] = []
        for side, operand in (("left", self.problem.left), ("right", self.problem.right)):
            weight = self._weight(operand)
            device = self.device if weight is None else f"{spelled(self.graph, weight.name)}.device"
            packed = pack(self.problem, side, low, fixed, device)
            self.code.uses.add(Use.PACKING)
            self.counts += packed.reach.counts
            if weight is not None:
                self.code.add(packed.kernel, kept=True)
                self._keep(side, packed, (padded, *packed.call))
                self.code.uses.add(Use.KEPT_WEIGHTS)
            else:
                fresh = all(weight is not None for weight, _ in made)
                self.code.add(packed.kernel, (padded, *packed.call) if fresh else packed.call)
            made.append((weight, packed))
        return PackedOperands(
            place,
            made[0][1],
            made[1][1],
            halves=low,
            descriptors=self._descriptors(way),
            split=way.tiles.split > 1,
            apart=light and apart(way, self.target),
        )

    def _weight(self, operand: Value) -> Value | None:
        return kept(self.problem, self.target, operand)

    def _keep_aligned(self, padded: Mapping[str, str], widths: Sequence[Size]) -> None:
        """Copies of weights with aligned rows, which outlive the call; ``padded``: what they are called."""
        for name, local in padded.items():
            self.code.helpers[PADDING] = PADDING_TEXT
            self.handed[local] = keeping(PADDING, PADDING_TEXT, spelled(self.graph, name), widths)
            self.code.uses.add(Use.KEPT_WEIGHTS)

    def _keep(self, side: str, packed: Packed, lines: Sequence[str]) -> None:
        """A weight is packed by a function of its own, whose result outlives the call."""
        host, names = self.problem.host, (packed.packed, packed.scales)
        function = host.keeping(side, lines, packed.kernel.doc, names)
        self.code.helpers[function.name] = function.text
        self.code.functions.append(function.name)
        handed = host.local(f"packed_{side}")
        self.handed[handed] = function
        self.code.call.append(f"{', '.join(names)} = {handed}")

    def _descriptors(self, way: Way) -> bool:
        """The copy engine of sm_90 and later moves whole tiles of packed operands."""
        able = by_warp_group(self.target.gpu)
        asked = bool(self.target.settings.get("descriptors", able))
        beside = self.groups is None or self.groups.even
        return way.mode == "packed" and way.tiles.k % 8 == 0 and asked and beside

    # -- vectors -----------------------------------------------------------------------------------

    def _vector(self, way: Way) -> None:
        problem = self.problem
        operations = [operation for operation in self.followed.operations if not operation.trivial]
        probe = Stream(problem, Kernel("probe", "", self.graph, PRODUCT), False)
        tiles = stream(problem, self.target.gpu, probe.along)
        if "SPLIT_K" in self.target.settings:
            tiles = replace(tiles, split=int(self.target.settings["SPLIT_K"]))
        split = tiles.split > 1 or bool(operations)
        kernel = Kernel(f"{self.group.name}_kernel", self.prose.kernel(way), self.graph, PRODUCT)
        kernel.fixed = frozenset(s.name for s in problem.depth.factors)
        body = Stream(problem, kernel, split)
        rows = self.knobs.constant("ROWS", tiles.m, _around(tiles.m, 1, 128))
        kernel.meta = {
            "ROWS": rows,
            "BLOCK_K": self.knobs.constant("BLOCK_K", tiles.k, _around(tiles.k, 16, 2048)),
        }
        kernel.meta["WIDTH"] = body.width
        body.place()
        body.loop()
        frame, masks = body.frame()
        reader = Reader(self.graph, self.group.nodes, kernel.body, masks, takes_rows=True)
        grid = f"triton.cdiv({body.long}, {rows})"
        grid = grid if problem.batch == ONE else f"{problem.batch} * {grid}"
        second: Second | None = None
        if split:
            kernel.meta["SPLIT_K"] = self.knobs.constant(
                "SPLIT_K", tiles.split, why="parts of the summed dimension"
            )
            store_part(problem, kernel, frame, masks, body.batch)
            second = self._join(kernel.meta["SPLIT_K"])
            axes = [grid, kernel.meta["SPLIT_K"]]
        else:
            tail = Tail(problem, kernel, reader, frame, "total")
            tail.row_operations()
            tail.store(self.writes)
            axes = [grid]
        if body.blocks:
            axes = [grid, kernel.meta.get("SPLIT_K", "1"), body.blocks]
        grid = f"({', '.join(axes)}{',' if len(axes) == 1 else ''})"
        kernel.add_pointers(reader.pointers)
        self.code.launch(kernel, grid, {"num_warps": self.knobs.constant("NUM_WARPS", tiles.warps)})
        self._add_second(second)

    # -- putting together --------------------------------------------------------------------------

    def _join(self, split: str) -> Second:
        problem = self.problem
        whole = any(not operation.trivial for operation in self.followed.operations)
        if whole and problem.columns.value > LONGEST_ROW:
            raise Unfit("the tail of the product needs whole rows, which are too long for one program")
        self.code.call.append(
            f"{parts_name(problem)} = torch.empty(({split}, {all_rows(problem)}, {problem.columns}), "
            f"device={self.device}, dtype=torch.float32)"
        )
        return joined(problem, split, self.writes, whole, self.groups if whole else None)

    def _add_second(self, second: Second | None) -> None:
        if second is not None:
            self.code.launch(second.kernel, second.grid, {"num_warps": second.warps})


def _around(value: int, least: int, most: int) -> tuple[int, ...]:
    return tuple(v for v in (value // 2, value, value * 2) if least <= v <= most)

"""The main kernel of a product: which tile a program has, the loop over the summed dimension, then the tail.

Three loops share one frame. *Packed* operands come as fp16 tiles with the summed dimension contiguous; with
high and low halves a block is ``low*high + high*low + high*high``, summed from zero on the tensor cores and
added to the running total in ordinary fp32, because Hopper's tensor cores truncate when they accumulate.
*Direct* operands are read where they lie, through whatever stands before the product; for fp32 accuracy each
tile is split into such halves in registers, with scales of its own that are undone block by block.

Programs take tiles in bands of GROUP_M rows of tiles, so that those running together share operands in L2.
Where a tile is one step of work and much to store, nothing is loaded ahead, so that two programs have room on
a multiprocessor and one of them loads while the other stores. If asked to, as many programs as run at once
walk over all tiles instead, and the loads of one tile run while the one before is on its way to memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from egg.expert.graph import Value
from egg.expert.index import Expr, Index, loop_index
from egg.expert.parts import spelled
from egg.expert.patterns.product.described import HELPER, TEXT, Described, describe
from egg.expert.patterns.product.groups import Groups
from egg.expert.patterns.product.numbers import HALVES, ROUNDED
from egg.expert.patterns.product.pack import Packed
from egg.expert.patterns.product.problem import Problem
from egg.expert.patterns.product.tail import Frame
from egg.expert.patterns.product.text import DTYPES, Kernel, is_large, part_span
from egg.expert.patterns.product.triangles import cut
from egg.expert.reader import Reader, address
from egg.expert.sizes import ONE


@dataclass
class Main:
    """The main kernel in the making. ``turned``: the tile's first axis are the columns (few rows)."""

    problem: Problem
    kernel: Kernel
    grade: str
    split: bool
    turned: bool = False
    left: Packed | None = None
    right: Packed | None = None
    descriptors: bool = False
    walking: bool = False
    """Few programs walk over all tiles: the loads of one run while the one before is stored."""
    unrolled: bool = False
    """The summed dimension is a step or two."""
    groups: Groups | None = None
    """Groups of columns that the tail needs whole."""
    engine: bool = False
    """The copy engine brings those direct operands that can be described to it."""
    helpers: dict[str, str] = field(default_factory=dict)
    """Functions beside the kernel, of kernels and of the host."""

    def __post_init__(self) -> None:
        body = self.kernel.body
        names = ("batch", "row", "column", "left_row", "right_column", "left_k", "right_k")
        self.batch, self.row, self.column, self.left_row, self.right_column, self.left_k, self.right_k = (
            body.name(name) for name in names
        )
        self.slot, self.right_slot = body.name("slot"), body.name("right_slot")
        if self.groups is not None:
            self.kernel.meta |= self.groups.meta()
        self.wide = any(
            is_large(self.problem.graph.value(name))
            for name in (
                *self.problem.group.reads(self.problem.graph),
                *self.problem.group.writes(self.problem.graph),
            )
        )

    # -- the tile ----------------------------------------------------------------------------------

    def place(self) -> None:
        """Which tile this program computes, and which part of the summed dimension."""
        line, problem = self.kernel.body.line, self.problem
        if not self.walking:
            line("pid = tl.program_id(0)")
        line(f"tiles_m = tl.cdiv({problem.rows}, BLOCK_M)")
        columns = self.groups.all_slots(True) if self.groups is not None else problem.columns.code()
        line(f"tiles_n = tl.cdiv({columns}, BLOCK_N)")
        if self.walking:
            self.span()
            line("for pid in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):")
            self.kernel.body.indent += 1
        if problem.batch != ONE:
            cast = ".to(tl.int64)" if self.wide else ""
            line(f"{self.batch} = (pid // (tiles_m * tiles_n)){cast}")
            line("pid = pid % (tiles_m * tiles_n)")
        line("band_start = pid // (GROUP_M * tiles_n) * GROUP_M")
        line("band = tl.minimum(tiles_m - band_start, GROUP_M)")
        line("tile_m = band_start + pid % (GROUP_M * tiles_n) % band")
        line("tile_n = pid % (GROUP_M * tiles_n) // band")
        if not self.walking:
            self.span()

    def span(self) -> None:
        """From where to where this program sums."""
        line, depth = self.kernel.body.line, self.problem.depth
        if self.left is not None:
            line(f"padded: tl.constexpr = ({depth} + BLOCK_K - 1) // BLOCK_K * BLOCK_K")
        self._low, self._high = "0", "padded" if self.left is not None else str(depth)
        if self.split:
            line("part = tl.program_id(1)")
            line(part_span(depth))
            line("k_low = part * part_span")
            line(f"k_high = tl.minimum(k_low + part_span, {self._high})")
            self._low, self._high = "k_low", "k_high"
        elif not self.walking:
            batch, row, column = self._loops
            k = loop_index(self.left_k, self.problem.depth)
            body = self.kernel.body
            self._low, self._high = cut(self.problem, body, (batch, row, column, k), self._low, self._high)

    # -- loops -------------------------------------------------------------------------------------

    def loop(self) -> None:
        body = self.kernel.body
        shape = "(BLOCK_N, BLOCK_M)" if self.turned else "(BLOCK_M, BLOCK_N)"
        if self.left is not None and self.right is not None:
            self._packed_rows(self.left, self.right)
        else:
            self._direct_rows()
        if self.walking:
            self._tile_indices()
        body.line(f"total = tl.zeros({shape}, tl.float32)")
        steps = "tl.static_range" if self.walking or self.unrolled else "range"
        body.line(f"for k_start in {steps}({self._low}, {self._high}, BLOCK_K):")
        body.indent += 1
        if self.left is not None and self.right is not None:
            self._packed_block()
        else:
            self._direct_block()
        body.indent -= 1

    def _packed_rows(self, left: Packed, right: Packed) -> None:
        problem, line = self.problem, self.kernel.body.line
        batch = loop_index(self.batch, problem.batch)
        first = problem.operand_batch(problem.left, batch) * problem.rows
        begin = problem.operand_batch(problem.right, batch) * problem.columns
        self._starts = (_plus(first, "tile_m * BLOCK_M"), _plus(begin, "tile_n * BLOCK_N"))
        if self.descriptors:
            line(f"left_at = {_int32(self._starts[0], self.wide)}")
            line(f"right_at = {_int32(self._starts[1], self.wide)}")
            return
        large = 2 * max(left.rows.value, right.rows.value) * problem.depth.value >= 2**31
        cast = ".to(tl.int64)" if large else ""
        for name, size, tile, start, block in (
            ("left_at", problem.rows, "tile_m", first, "BLOCK_M"),
            ("right_at", problem.columns, "tile_n", begin, "BLOCK_N"),
        ):
            places = f"{tile} * {block} + tl.arange(0, {block})"
            if tile == "tile_n" and self._scattered:
                *before, places = self._column_lines(self.right_column, self.right_slot, "")
                for text in (*before, places):
                    line(text)
                places = self.right_column
            inner = f"tl.minimum({places}, {size} - 1){cast}"
            line(f"{name} = ({_plus(start, inner)})[:, None] * padded + tl.arange(0, BLOCK_K)[None, :]")

    @property
    def _scattered(self) -> bool:
        """Whether columns do not lie in the tile one beside the other."""
        return self.groups is not None and not self.groups.even

    def _column_lines(self, name: str, slot: str, shape: str) -> list[str]:
        places = "tile_n * BLOCK_N + tl.arange(0, BLOCK_N)"
        if self.groups is None:
            return [f"{name} = ({places}){shape}"]
        return self.groups.column_lines(name, slot, places, shape)

    def _packed_tile(self, side: str, half: str) -> str:
        """Text that loads one half of an operand's tile."""
        packed = self.left if side == "left" else self.right
        assert packed is not None
        if self.descriptors:
            rows = f"{side}_at" if half == "high" else f"{side}_at + {packed.rows}"
            return f"{side}_tiles.load([{rows}, k_start])"
        skip = "" if half == "high" else f" + ({packed.rows}) * padded"
        return f"tl.load({side}_ptr + {side}_at{skip} + k_start)"

    def _packed_block(self) -> None:
        line = self.kernel.body.line
        for side in ("left", "right"):
            packed = self.left if side == "left" else self.right
            assert packed is not None
            block = "BLOCK_M" if side == "left" else "BLOCK_N"
            if self.descriptors:
                shape = f"[{self.kernel.meta[block]}, {self.kernel.meta['BLOCK_K']}]"
                given = f"TensorDescriptor.from_tensor({packed.packed}, {shape})"
                self.kernel.operands[f"{side}_tiles"] = given
            else:
                self.kernel.operands[f"{side}_ptr"] = packed.packed
        line(f"left_high = {self._packed_tile('left', 'high')}")
        line(f"right_high = {self._packed_tile('right', 'high')}")
        if self.grade == "tf32":
            line("total = tl.dot(left_high, right_high.T, total)")
            return
        line(f"left_low = {self._packed_tile('left', 'low')}")
        line(f"right_low = {self._packed_tile('right', 'low')}")
        line("part_sum = tl.dot(left_low, right_high.T)  # small terms first, each block from zero")
        line("part_sum = tl.dot(left_high, right_low.T, part_sum)")
        line("part_sum = tl.dot(left_high, right_high.T, part_sum)")
        line("total += part_sum  # rounded to nearest, where tensor cores truncate")

    def _direct_rows(self) -> None:
        """Rows and columns beyond the last are the last once more: nothing to mask, and nothing is stored.

        Not so along what is contiguous in memory: there a clamped index would hide that neighbours are
        neighbours, and loads would be one element wide.
        """
        problem, line = self.problem, self.kernel.body.line
        cast = ".to(tl.int64)" if self.wide else ""
        self._left_turned = self._runs_along(problem.left, self.left_row)
        along = self._runs_along(problem.right, self.right_column)
        self._right_turned = not along
        self._operand_masks: dict[str, str] = {}
        self._described = self._describe() if self.engine else {}
        for side, name, tile, block, size, first, masked in (
            (
                "left",
                self.left_row,
                "tile_m",
                "BLOCK_M",
                problem.rows,
                not self._left_turned,
                self._left_turned,
            ),
            ("right", self.right_column, "tile_n", "BLOCK_N", problem.columns, self._right_turned, along),
        ):
            if side in self._described:
                start = _plus(self._described[side].first, f"{tile} * {block}")
                line(f"{side}_at = {_int32(start, self.wide)}")
                continue
            at = "[:, None]" if first else "[None, :]"
            whole = f"{tile} * {block} + tl.arange(0, {block})"
            if name == self.right_column and self._scattered:
                for text in self._column_lines(name, self.right_slot, at):
                    line(text)
                if masked:
                    self._operand_masks[name] = f"({name} < {size})"
                else:
                    line(f"{name} = tl.minimum({name}, {size} - 1)")
            elif masked:
                self._operand_masks[name] = f"({name} < {size})"
                line(f"{name} = ({whole}){cast}{at}")
            else:
                line(f"{name} = tl.minimum({whole}, {size} - 1){cast}{at}")

    def _describe(self) -> dict[str, Described]:
        """The operands that the copy engine brings."""
        problem, found = self.problem, {}
        for side, operand, name, k in (
            ("left", problem.left, self.left_row, self.left_k),
            ("right", problem.right, self.right_column, self.right_k),
        ):
            if side == "right" and self._scattered:
                continue
            made = describe(problem, operand, self._operand_index(operand), (self.batch, name, k))
            if made is not None:
                found[side] = made
                spelling = spelled(problem.graph, made.value.name)
                self.kernel.operands[f"{side}_tiles"] = made.given(spelling, side, self.kernel.meta)
        if found:
            self.helpers[HELPER] = TEXT
        return found

    def _runs_along(self, operand: Value, symbol: str) -> bool:
        return self.problem.contiguous_along(operand.name, self._operand_index(operand), symbol)

    def _operand_index(self, operand: Value) -> Index:
        problem = self.problem
        batch = loop_index(self.batch, problem.batch)
        if operand is problem.left:
            return problem.left_index(
                batch, loop_index(self.left_row, problem.rows), loop_index(self.left_k, problem.depth)
            )
        return problem.right_index(
            batch, loop_index(self.right_k, problem.depth), loop_index(self.right_column, problem.columns)
        )

    def _direct_block(self) -> None:
        problem, body = self.problem, self.kernel.body
        for side, name, last in (
            ("left", self.left_k, not self._left_turned),
            ("right", self.right_k, self._right_turned),
        ):
            if side not in self._described:
                body.line(f"{name} = k_start + tl.arange(0, BLOCK_K){'[None, :]' if last else '[:, None]'}")
        end = self._high
        masks = {name: f"({name} < {end})" for name in (self.left_k, self.right_k)} | self._operand_masks
        reader = Reader(problem.graph, problem.group.nodes, body, masks)
        left = self._operand_tile(reader, problem.left, "left_tile", (self.left_k, self.left_row))
        right = self._operand_tile(reader, problem.right, "right_tile", (self.right_k, self.right_column))
        self.kernel.add_pointers(reader.pointers)
        if self.grade == "fp32":
            self._split_block()
            return
        left = f"{left}.T" if self._left_turned else left
        right = f"{right}.T" if self._right_turned else right
        if self.turned:
            left, right = _transposed(right), _transposed(left)
        words = {"tf32x3": ', input_precision="tf32x3"', "ieee": ', input_precision="ieee"'}
        words |= {"tf32": ', input_precision="tf32"'}
        body.line(f"total = tl.dot({left}, {right}, total{words.get(self.grade, '')})")

    def _split_block(self) -> None:
        """Three fp16 products of the tiles in registers; the scales of this block are undone at once."""
        self.helpers["fp16_halves"] = HALVES
        line = self.kernel.body.line
        turned = {"left": self._left_turned, "right": self._right_turned}
        for side, inner in (("left", 1), ("right", 0)):
            axis = 1 - inner if turned[side] else inner
            line(f"{side}_high, {side}_low, {side}_scale = fp16_halves({side}_tile, {axis})")
        left, right = (f"{side}_{{}}{'.T' if turned[side] else ''}" for side in ("left", "right"))
        line(f"part_sum = tl.dot({left.format('low')}, {right.format('high')})")
        line(f"part_sum = tl.dot({left.format('high')}, {right.format('low')}, part_sum)")
        line(f"part_sum = tl.dot({left.format('high')}, {right.format('high')}, part_sum)")
        line(f"total += part_sum * {left.format('scale')} * {right.format('scale')}")

    def _operand_tile(self, reader: Reader, operand: Value, name: str, symbols: tuple[str, str]) -> str:
        """A tile of an operand in the type the tensor cores take it in; zero beyond the summed dimension."""
        problem, body = self.problem, self.kernel.body
        side = name.removesuffix("_tile")
        if side in self._described:
            body.line(f"{name} = {self._described[side].load(side)}")
            return name
        index = self._operand_index(operand)
        stored = problem.stored(operand.name, index)
        inside = " & ".join(reader.masks[s] for s in symbols if s in reader.masks)
        if stored is not None:
            value, at = stored
            body.line(
                f"{name} = tl.load({reader.pointer(value)} + {address(value, at)}, mask={inside}, other=0.0)"
            )
        else:
            text = reader.read(operand.name, index)
            body.line(f"{name} = tl.where({inside}, {text}, 0.0)")
            if self.grade == "half":
                body.line(f"{name} = {name}.to({DTYPES[operand.dtype]})")
        if self.grade == "tf32":
            self.helpers["round_tf32"] = ROUNDED
            body.line(f"{name} = round_tf32({name})")
        return name

    # -- behind the loop ---------------------------------------------------------------------------

    def frame(self) -> tuple[Frame, dict[str, str]]:
        """Indices of the finished tile, and their masks; scales of packed operands are undone."""
        problem = self.problem
        if not self.walking:
            self._tile_indices()
        if self.left is not None:
            self.kernel.body.line("total *= left_scale")
            self.kernel.body.line("total *= right_scale")
        index = problem.result_index(*self._loops)
        return Frame(*self._loops[1:], index, 0 if self.turned else 1), self._masks

    @property
    def _loops(self) -> tuple[Expr, Expr, Expr]:
        problem = self.problem
        return (
            loop_index(self.batch, problem.batch),
            loop_index(self.row, problem.rows),
            loop_index(self.column, problem.columns),
        )

    @property
    def _masks(self) -> dict[str, str]:
        problem = self.problem
        inside = f"({self.column} < {problem.columns})"
        return {
            self.row: f"({self.row} < {problem.rows})",
            self.column: inside if self.groups is None else self.groups.mask(self.column, self.slot),
        }

    def _tile_indices(self) -> None:
        """Lines for the tile's rows and columns, and for the scales that its operands were packed with."""
        problem, line = self.problem, self.kernel.body.line
        cast = ".to(tl.int64)" if self.wide else ""
        across, down = ("[None, :]", "[:, None]") if self.turned else ("[:, None]", "[None, :]")
        line(f"{self.row} = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)){cast}{across}")
        for text in self._column_lines(self.column, self.slot, down):
            line(text)
        batch, row, column = self._loops
        for side, packed, operand, at, size, symbol in (
            ("left", self.left, problem.left, row, problem.rows, self.row),
            ("right", self.right, problem.right, column, problem.columns, self.column),
        ):
            if packed is None:
                continue
            whole = problem.operand_batch(operand, batch) * size + at
            part = f"part * ({packed.rows}) + " if self.split else ""
            self.kernel.operands[f"{side}_scales_ptr"] = packed.scales
            where = f"{side}_scales_ptr + {part}{whole}"
            line(f"{side}_scale = tl.load({where}, mask={self._masks[symbol]}, other=0.0)")


def _plus(start: Expr, text: str) -> str:
    return text if start == Expr() else f"{start} + {text}"


def _int32(text: str, wide: bool) -> str:
    """Descriptors take 32-bit coordinates."""
    return f"({text}).to(tl.int32)" if wide and not text.startswith("tile") else text


def _transposed(text: str) -> str:
    return text.removesuffix(".T") if text.endswith(".T") else f"{text}.T"

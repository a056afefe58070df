"""The loop of a product over packed operands: fp16 tiles with the summed dimension contiguous, no masks.

With high and low halves a block is ``low*high + high*low + high*high``, summed from zero on the tensor cores
and added to the running total in ordinary fp32, because Hopper's tensor cores truncate when they accumulate.
Where registers allow, the two small products have a sum of their own that stays on the tensor cores to the
end (what is cut off there is nothing beside the large one): they are busy with it while a block is added.
"""

from __future__ import annotations

from dataclasses import dataclass

from egg.expert.graph import Value
from egg.expert.index import Expr, loop_index
from egg.expert.patterns.product.triton.pack import Packed
from egg.expert.patterns.product.triton.place import Place, plus
from egg.expert.sizes import Size


@dataclass
class PackedOperands:
    """Both operands, packed."""

    place: Place
    left: Packed
    right: Packed
    halves: bool
    """High and low; else high alone."""
    descriptors: bool
    split: bool
    apart: bool = False
    """The small products have a sum of their own."""

    def rows(self) -> None:
        """Lines that say where the tiles of both operands begin."""
        place, problem = self.place, self.place.problem
        line = place.kernel.body.line
        batch = loop_index(place.batch, problem.batch)
        first = problem.operand_batch(problem.left, batch) * problem.rows
        begin = problem.operand_batch(problem.right, batch) * problem.columns
        if self.descriptors:
            line(f"left_at = {place.coordinate(first, 'tile_m * BLOCK_M')}")
            line(f"right_at = {place.coordinate(begin, 'tile_n * BLOCK_N')}")
            return
        cast = ".to(tl.int64)" if self.left.reach.far or self.right.reach.far else ""
        for name, size, tile, start, block in (
            ("left_at", problem.rows, "tile_m", first, "BLOCK_M"),
            ("right_at", problem.columns, "tile_n", begin, "BLOCK_N"),
        ):
            places = f"{tile} * {block} + tl.arange(0, {block})"
            if tile == "tile_n" and place.scattered:
                *before, places = place.column_lines(place.right_column, place.right_slot, "")
                for text in (*before, places):
                    line(text)
                places = place.right_column
            inner = f"tl.minimum({places}, {size} - 1){cast}"
            line(f"{name} = ({plus(start, inner)})[:, None] * padded + tl.arange(0, BLOCK_K)[None, :]")

    def block(self) -> None:
        """Lines of one step along the summed dimension."""
        line = self.place.kernel.body.line
        self._hand_over("left", self.left, "BLOCK_M")
        self._hand_over("right", self.right, "BLOCK_N")
        line(f"left_high = {self._tile('left', self.left, 'high')}")
        line(f"right_high = {self._tile('right', self.right, 'high')}")
        if not self.halves:
            line("total = tl.dot(left_high, right_high.T, total)")
            return
        line(f"left_low = {self._tile('left', self.left, 'low')}")
        line(f"right_low = {self._tile('right', self.right, 'low')}")
        if self.apart:
            line("part_sum = tl.dot(left_high, right_high.T)  # each block from zero")
            line("small = tl.dot(left_low, right_high.T, small)")
            line("small = tl.dot(left_high, right_low.T, small)")
            line("total += part_sum * left_scale  # rounded to nearest, where tensor cores truncate")
            return
        line("part_sum = tl.dot(left_low, right_high.T)  # small terms first, each block from zero")
        line("part_sum = tl.dot(left_high, right_low.T, part_sum)")
        line("part_sum = tl.dot(left_high, right_high.T, part_sum)")
        line("total += part_sum  # rounded to nearest, where tensor cores truncate")

    @property
    def described(self) -> bool:
        return self.descriptors

    def _hand_over(self, side: str, packed: Packed, block: str) -> None:
        kernel = self.place.kernel
        if self.descriptors:
            shape = f"[{kernel.meta[block]}, {kernel.meta['BLOCK_K']}]"
            kernel.operands[f"{side}_tiles"] = f"TensorDescriptor.from_tensor({packed.packed}, {shape})"
        else:
            kernel.operands[f"{side}_ptr"] = packed.packed

    def _tile(self, side: str, packed: Packed, half: str) -> str:
        """Text that loads one half of an operand's tile."""
        if self.descriptors:
            rows = f"{side}_at" if half == "high" else f"{side}_at + {packed.rows}"
            return f"{side}_tiles.load([{rows}, k_start])"
        skip = "" if half == "high" else f" + ({packed.rows}) * padded"
        return f"tl.load({side}_ptr + {side}_at{skip} + k_start)"

    # -- scales ------------------------------------------------------------------------------------

    def row_scales(self) -> None:
        """The line that loads what undoes the scales of the tile's rows."""
        place, problem = self.place, self.place.problem
        self._scales("left", self.left, problem.left, place.loops[1], problem.rows, place.row)

    def column_scales(self) -> None:
        place, problem = self.place, self.place.problem
        self._scales("right", self.right, problem.right, place.loops[2], problem.columns, place.column)

    def undone(self) -> None:
        """Lines that undo all scales behind the loop."""
        line = self.place.kernel.body.line
        line("total += small * left_scale" if self.apart else "total *= left_scale")
        line("total *= right_scale")

    def _scales(self, side: str, packed: Packed, operand: Value, at: Expr, size: Size, symbol: str) -> None:
        place = self.place
        whole = place.problem.operand_batch(operand, place.loops[0]) * size + at
        part = f"part * ({packed.rows}) + " if self.split else ""
        place.kernel.operands[f"{side}_scales_ptr"] = packed.scales
        where = f"{side}_scales_ptr + {part}{whole}"
        place.kernel.body.line(f"{side}_scale = tl.load({where}, mask={place.masks[symbol]}, other=0.0)")

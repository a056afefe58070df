"""The main kernel of a product: which tile a program has, the loop over the summed dimension, then the tail.

Two loops share one frame: over packed operands (:mod:`.loop_packed`) and over
operands as they lie (:mod:`.loop_direct`).

Programs take tiles in bands of GROUP_M rows of tiles, so that those running together share operands in L2.
Where a tile is one step of work and much to store, nothing is loaded ahead, so that two programs have room on
a multiprocessor and one of them loads while the other stores. If asked to, as many programs as run at once
walk over all tiles instead, and the loads of one tile run while the one before is on its way to memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from egg.expert.emit.triton.types import TYPES
from egg.expert.index import loop_index
from egg.expert.patterns.product.problem import Span
from egg.expert.patterns.product.triton.loop_direct import DirectOperands
from egg.expert.patterns.product.triton.loop_packed import PackedOperands
from egg.expert.patterns.product.triton.place import Place, part_span
from egg.expert.patterns.product.triton.tail import Frame
from egg.expert.patterns.product.triton.triangles import cut
from egg.expert.sizes import ONE


@dataclass
class Main:
    """The main kernel in the making."""

    place: Place
    operands: PackedOperands | DirectOperands
    split: bool
    walking: bool = False
    """Few programs walk over all tiles: the loads of one run while the one before is stored."""

    @property
    def _packed(self) -> PackedOperands | None:
        return self.operands if isinstance(self.operands, PackedOperands) else None

    # -- the tile ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Which tile this program computes, and which part of the summed dimension."""
        place, problem = self.place, self.place.problem
        line = place.kernel.body.line
        if not self.walking:
            line("pid = tl.program_id(0)")
        line(f"tiles_m = tl.cdiv({problem.rows}, BLOCK_M)")
        columns = place.groups.all_slots(True) if place.groups is not None else problem.columns.code()
        line(f"tiles_n = tl.cdiv({columns}, BLOCK_N)")
        if self.walking:
            self._span()
            line("for pid in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):")
            place.kernel.body.indent += 1
        if problem.batch != ONE:
            line(f"{place.batch} = (pid // (tiles_m * tiles_n)){place.cast}")
            line("pid = pid % (tiles_m * tiles_n)")
        line("band_start = pid // (GROUP_M * tiles_n) * GROUP_M")
        line("band = tl.minimum(tiles_m - band_start, GROUP_M)")
        line("tile_m = band_start + pid % (GROUP_M * tiles_n) % band")
        line("tile_n = pid % (GROUP_M * tiles_n) // band")
        if not self.walking:
            self._span()

    def _span(self) -> None:
        """From where to where this program sums."""
        problem, body = self.place.problem, self.place.kernel.body
        line, depth = body.line, problem.depth
        if self._packed is not None:
            line(f"padded: tl.constexpr = ({depth} + BLOCK_K - 1) // BLOCK_K * BLOCK_K")
        self._low, self._high = "0", "padded" if self._packed is not None else str(depth)
        if self.split:
            line("part = tl.program_id(1)")
            line(part_span(depth))
            line("k_low = part * part_span")
            line(f"k_high = tl.minimum(k_low + part_span, {self._high})")
            self._low, self._high = "k_low", "k_high"
        elif not self.walking:
            loops = (*self.place.loops, loop_index(self.place.left_k, depth))
            self._low, self._high = cut(problem, body, loops, self._low, self._high)

    # -- the loop ----------------------------------------------------------------------------------

    def loop(self) -> None:
        body = self.place.kernel.body
        shape = "(BLOCK_N, BLOCK_M)" if self.place.turned else "(BLOCK_M, BLOCK_N)"
        if isinstance(self.operands, PackedOperands):
            self.operands.rows()
        else:
            self.operands.rows(self._spans)
        if self.walking or self._apart:
            self._indices(rows=True, columns=self.walking)
        dtype = TYPES["int32" if self.place.problem.whole_numbers else "float32"]
        body.line(f"total = tl.zeros({shape}, {dtype})")
        if self._apart:
            body.line(f"small = tl.zeros({shape}, tl.float32)")
        steps = "tl.static_range" if self.walking else "range"
        for span in self._spans:
            high = self._high if span == self.place.problem.whole else str(span.size)
            body.line(f"for k_start in {steps}({self._low}, {high}, BLOCK_K):")
            body.indent += 1
            if isinstance(self.operands, PackedOperands):
                self.operands.block()
            else:
                self.operands.block(high, span)
            body.indent -= 1

    @property
    def _spans(self) -> tuple[Span, ...]:
        """The summed dimension in as many loops as an operand has pieces, where one program sums all of it
        and operands are read as they lie; else in one."""
        problem, operands = self.place.problem, self.operands
        all_of_it = (self._low, self._high) == ("0", str(problem.depth))
        if isinstance(operands, PackedOperands) or operands.by_words or not all_of_it:
            return (problem.whole,)
        return problem.spans

    @property
    def _apart(self) -> bool:
        """Whether rows' scales are needed inside the loop already."""
        return self._packed is not None and self._packed.apart

    def _indices(self, rows: bool, columns: bool) -> None:
        """Lines for the tile's rows and columns, and for the scales that its operands were packed with."""
        place = self.place
        if rows:
            place.kernel.body.line(place.row_line())
        if columns:
            shape = "[:, None]" if place.turned else "[None, :]"
            for text in place.column_lines(place.column, place.slot, shape):
                place.kernel.body.line(text)
        if self._packed is not None and rows:
            self._packed.row_scales()
        if self._packed is not None and columns:
            self._packed.column_scales()

    # -- behind the loop ---------------------------------------------------------------------------

    def frame(self) -> tuple[Frame, dict[str, str]]:
        """Indices of the finished tile, and their masks; scales of packed operands are undone."""
        place = self.place
        if not self.walking:
            self._indices(rows=not self._apart, columns=True)
        if self._packed is not None:
            self._packed.undone()
        index = place.problem.result_index(*place.loops)
        return Frame(*place.loops[1:], index, 0 if place.turned else 1), place.masks

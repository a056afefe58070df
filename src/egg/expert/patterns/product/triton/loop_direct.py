"""The loop of a product over operands that are read where they lie, through whatever stands before it.

For fp32 accuracy each tile is split into fp16 halves in registers, with scales of its own that are undone
block by block. 16-bit operands that need nothing done to them may come by the copy engine. An operand that is
joined from pieces along the summed dimension has a loop for each piece, so that every tile is of one tensor.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from egg.expert.emit.reader import Reader, address
from egg.expert.emit.triton.types import TYPES
from egg.expert.graph import Value
from egg.expert.index import Expr, Index
from egg.expert.parts import spelled
from egg.expert.patterns.product.described import HELPER, TEXT, Described, describe
from egg.expert.patterns.product.problem import Span
from egg.expert.patterns.product.triton.numbers import HALVES, ROUNDED
from egg.expert.patterns.product.triton.place import Place
from egg.expert.patterns.product.words import Words, words_of
from egg.expert.sizes import Size

PRECISIONS = ("tf32x3", "ieee", "tf32")
"""Grades that Triton's product takes by name."""


@dataclass
class DirectOperands:
    """Both operands, as they lie."""

    place: Place
    grade: str
    engine: bool = False
    """The copy engine brings those that can be described to it."""
    pads: Collection[str] = ()
    """Weights of which a copy with aligned rows may be kept."""
    padded: dict[str, str] = field(default_factory=dict)
    """Those of which one is, with what the host calls it: a list of a copy for each of ``parts``."""
    helpers: dict[str, str] = field(default_factory=dict)
    """Functions beside the kernel, of kernels and of the host."""

    def __post_init__(self) -> None:
        problem = self.place.problem
        self._left_turned = self._runs_along(problem.left, self.place.left_row)
        self._right_turned = not self._runs_along(problem.right, self.place.right_column)
        self._masks: dict[str, str] = {}
        self._pointers: dict[str, str] = {}
        self._spans: tuple[Span, ...] = (problem.whole,)
        self._described: dict[tuple[str, Span], tuple[Described, str, str]] = {}
        """By side and span: what the copy engine brings, its argument in the kernel, and its row there."""
        self._words = self._packed() if self.grade == "half" and not self.place.scattered else None
        if self._words is not None:
            body = self.place.kernel.body
            self._word, self._lane = body.name("right_word"), body.name("right_lane")
            self._right_turned = (self._words.symbol == self.place.right_k) is self._words.contiguous

    @property
    def described(self) -> bool:
        """Whether the copy engine brings an operand."""
        return bool(self._described)

    @property
    def by_words(self) -> bool:
        """Whether the right operand is read by words that several elements share."""
        return self._words is not None

    def _runs_along(self, operand: Value, symbol: str) -> bool:
        """Of the longest piece, where it is joined from several."""
        longest = max(self.place.problem.spans, key=lambda span: span.size.value)
        index = self.place.operand_index(operand, longest)
        problem = self.place.problem
        runs = self.grade == "half" and problem.in_runs_along(operand.name, index, symbol)
        return runs or problem.contiguous_along(operand.name, index, symbol)

    # -- words -------------------------------------------------------------------------------------

    def _packed(self) -> Words | None:
        """How elements of the right operand share words, where it is computed by its tiles."""
        place, problem = self.place, self.place.problem
        sizes = {place.right_column: problem.columns, place.right_k: problem.depth}
        return words_of(problem, problem.right, place.operand_index(problem.right), sizes)

    def _at(self, name: str) -> str:
        """Which dimension of its tile an index of the right operand runs along."""
        first = (name == self.place.right_k) is not self._right_turned
        if self._words is None:
            return "[:, None]" if first else "[None, :]"
        if name == self._lane:
            inner = (self._words.symbol == self.place.right_k) is not self._right_turned
            return "[None, :, None]" if inner else "[None, None, :]"
        if name == self._words.symbol:
            return "[:, None, None]" if first else "[None, :, None]"
        return "[:, None, None]" if first else "[None, None, :]"

    def _word_lines(self, start: str, block: str) -> None:
        """Words of a tile that begins at element ``start``, and the places within one."""
        words, line = self._words, self.place.kernel.body.line
        assert words is not None
        places = f"({start}) // {words.each} + tl.arange(0, {block} // {words.each})"
        line(f"{self._word} = ({places}){self.place.cast}{self._at(words.symbol)}")
        line(f"{self._lane} = tl.arange(0, {words.each}){self._at(self._lane)}")

    # -- rows and columns --------------------------------------------------------------------------

    def rows(self, spans: tuple[Span, ...]) -> None:
        """Lines that say where the tiles of both operands lie, in loops over these spans.

        Rows and columns beyond the last are the last once more: nothing to mask, and nothing is stored. Not
        so along what is contiguous in memory: there a clamped index would hide that neighbours are
        neighbours, and loads would be one element wide.
        """
        place, problem = self.place, self.place.problem
        self._spans = spans
        if self.engine:
            self._describe()
        self._lines("left", place.left_row, "tile_m", "BLOCK_M", problem.rows, self._left_turned)
        self._lines("right", place.right_column, "tile_n", "BLOCK_N", problem.columns, not self._right_turned)

    def _lines(self, side: str, name: str, tile: str, block: str, size: Size, along: bool) -> None:
        """``along``: its rows, or columns, are what is contiguous."""
        place, line = self.place, self.place.kernel.body.line
        described = [self._described[side, span] for span in self._spans if (side, span) in self._described]
        for at, first in {at: made.first for made, _, at in described}.items():
            line(f"{at} = {place.coordinate(first, f'{tile} * {block}')}")
        if len(described) == len(self._spans):
            return
        if side == "right" and self._words is not None and self._words.symbol == name:
            self._word_lines(f"{tile} * {block}", block)
            self._masks[self._word] = f"({self._word} < {self._words.count})"
            return
        at = self._at(name) if side == "right" else "[None, :]" if along else "[:, None]"
        whole = f"{tile} * {block} + tl.arange(0, {block})"
        if along:
            self._masks[name] = f"({name} < {size})"
        if side == "right" and place.scattered:
            for text in place.column_lines(name, place.right_slot, at):
                line(text)
            if not along:
                line(f"{name} = tl.minimum({name}, {size} - 1)")
        elif along:
            line(f"{name} = ({whole}){place.cast}{at}")
        else:
            line(f"{name} = tl.minimum({whole}, {size} - 1){place.cast}{at}")

    def _describe(self) -> None:
        """The operands that the copy engine brings, span by span."""
        place, problem, body = self.place, self.place.problem, self.place.kernel.body
        for side, operand, name, k in (
            ("left", problem.left, place.left_row, place.left_k),
            ("right", problem.right, place.right_column, place.right_k),
        ):
            if side == "right" and place.scattered:
                continue
            rows: dict[Expr, str] = {}
            for span in self._spans:
                index = place.operand_index(operand, span)
                made = describe(problem, operand, index, (place.batch, name, k), span, self.pads)
                if made is None:
                    continue
                tiles = body.name(f"{side}_tiles") if rows else f"{side}_tiles"
                if made.first not in rows:
                    rows[made.first] = body.name(f"{side}_at") if rows else f"{side}_at"
                self._described[side, span] = made, tiles, rows[made.first]
                spelling = self._spelling(made, side, span)
                place.kernel.operands[tiles] = made.given(spelling, side, place.kernel.meta)
        if self._described:
            self.helpers[HELPER] = TEXT

    def _spelling(self, made: Described, side: str, span: Span) -> str:
        """What the host calls the matrix that is described."""
        if not made.padded:
            return spelled(self.place.problem.graph, made.value.name)
        copies = self.padded.setdefault(made.value.name, self.place.problem.host.local(f"aligned_{side}"))
        return f"{copies}[{self.parts.index(span)}]"

    @property
    def parts(self) -> list[Span]:
        """The spans as they lie along the summed dimension."""
        return sorted(self._spans, key=lambda span: span.start.low)

    # -- one step ----------------------------------------------------------------------------------

    def block(self, end: str, span: Span) -> None:
        """Lines of one step along a span of the summed dimension, where the loop ends at ``end``."""
        place, problem, body = self.place, self.place.problem, self.place.kernel.body
        for side, name, last in (
            ("left", place.left_k, not self._left_turned),
            ("right", place.right_k, self._right_turned),
        ):
            if side == "right" and self._words is not None:
                self._k_lines(name)
            elif (side, span) not in self._described:
                body.line(f"{name} = k_start + tl.arange(0, BLOCK_K){'[None, :]' if last else '[:, None]'}")
        masks = {name: f"({name} < {end})" for name in (place.left_k, place.right_k)} | self._masks
        if self._words is not None and self._words.symbol == place.right_k:
            masks[self._word] = f"({self._word} * {self._words.each} < {end})"
        nodes, scalars = problem.group.nodes, frozenset({place.batch})
        reader = Reader(problem.graph, nodes, body, masks, pointers=self._pointers, scalars=scalars)
        left = self._tile(reader, problem.left, "left", (place.left_k, place.left_row), span)
        right = self._tile(reader, problem.right, "right", (place.right_k, place.right_column), span)
        place.kernel.add_pointers(reader.pointers)
        if self.grade == "fp32":
            self._split()
            return
        left = f"{left}.T" if self._left_turned else left
        right = f"{right}.T" if self._right_turned else right
        if place.turned:
            left, right = _transposed(right), _transposed(left)
        option = f', input_precision="{self.grade}"' if self.grade in PRECISIONS else ""
        if problem.whole_numbers:
            option = ", out_dtype=tl.int32"  # before Triton 3.7 not read off the sums
        body.line(f"total = tl.dot({left}, {right}, total{option})")

    def _k_lines(self, name: str) -> None:
        """Where a tile of words lies along the summed dimension."""
        assert self._words is not None
        if self._words.symbol == name:
            self._word_lines("k_start", "BLOCK_K")
        else:
            self.place.kernel.body.line(f"{name} = (k_start + tl.arange(0, BLOCK_K)){self._at(name)}")

    def _split(self) -> None:
        """Three fp16 products of the tiles in registers; the scales of this block are undone at once."""
        self.helpers["fp16_halves"] = HALVES
        line = self.place.kernel.body.line
        turned = {"left": self._left_turned, "right": self._right_turned}
        for side, inner in (("left", 1), ("right", 0)):
            axis = 1 - inner if turned[side] else inner
            line(f"{side}_high, {side}_low, {side}_scale = fp16_halves({side}_tile, {axis})")
        left, right = (f"{side}_{{}}{'.T' if turned[side] else ''}" for side in ("left", "right"))
        line(f"part_sum = tl.dot({left.format('low')}, {right.format('high')})")
        line(f"part_sum = tl.dot({left.format('high')}, {right.format('low')}, part_sum)")
        line(f"part_sum = tl.dot({left.format('high')}, {right.format('high')}, part_sum)")
        line(f"total += part_sum * {left.format('scale')} * {right.format('scale')}")

    def _tile(self, reader: Reader, operand: Value, side: str, symbols: tuple[str, str], span: Span) -> str:
        """A tile of an operand in the type the tensor cores take it in; zero beyond the summed dimension."""
        problem, body, name = self.place.problem, self.place.kernel.body, f"{side}_tile"
        if (side, span) in self._described:
            made, tiles, at = self._described[side, span]
            body.line(f"{name} = {made.load(tiles, at)}")
            return name
        index = self.place.operand_index(operand, span)
        if side == "right" and self._words is not None:
            return self._unpacked(reader, operand, index, symbols)
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
                body.line(f"{name} = {name}.to({TYPES[operand.dtype]})")
        if self.grade == "tf32":
            self.helpers["round_tf32"] = ROUNDED
            body.line(f"{name} = round_tf32({name})")
        return name

    def _unpacked(self, reader: Reader, operand: Value, index: Index, symbols: tuple[str, str]) -> str:
        """A tile by words and places in them, laid together at the end."""
        words, body, name = self._words, self.place.kernel.body, "right_tile"
        assert words is not None
        text = reader.read(operand.name, words.substituted(index, self._word, self._lane))
        named = [self._word if s == words.symbol else s for s in symbols]
        inside = " & ".join(reader.masks[s] for s in named if s in reader.masks)
        body.line(f"{name} = tl.where({inside}, {text}, 0.0).to({TYPES[operand.dtype]})")
        shape = "BLOCK_N, BLOCK_K" if self._right_turned else "BLOCK_K, BLOCK_N"
        body.line(f"{name} = tl.reshape({name}, ({shape}))")
        return name


def _transposed(text: str) -> str:
    return text.removesuffix(".T") if text.endswith(".T") else f"{text}.T"

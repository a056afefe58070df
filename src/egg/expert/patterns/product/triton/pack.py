"""Making an operand ready for tensor cores: scaled by exact powers of two and rounded to fp16, once per call.

A row (of the left operand, or of the right one transposed) is scaled so that its largest magnitude lies in
[256, 512): then fp16 has 11 bits of it, and a second fp16 number for what was rounded off makes 22, whatever
the range of the row. The scale is undone behind the product, exactly. The summed dimension becomes the
contiguous one and is filled up with zeros to whole blocks, so the product needs no masks along it; whatever
stands before the product in the group (a transposition, an activation, a concatenation) is done on the way.

Where the summed dimension is worked on in parts, every part has its own scale, so that each part of each row
can be packed by a program of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from egg.expert.emit.kernel import Kernel
from egg.expert.emit.reader import Reader
from egg.expert.emit.words import PRODUCT
from egg.expert.graph import Value
from egg.expert.index import Index, loop_index, unflat
from egg.expert.parts import REACH
from egg.expert.patterns.product.problem import Problem
from egg.expert.patterns.product.rules import power_of_two
from egg.expert.sizes import ONE, Size, product

WHOLE_ROW = 8192
"""Elements of a row that one program holds at once."""
DEEPEST = 128
"""The largest block along the summed dimension."""
WHOLE_COLUMN = 1024
"""The same where it has sixteen rows at once, because those are what is contiguous."""


@dataclass(frozen=True)
class Reach:
    """How far into a packed operand offsets may lead: both halves, each row filled up to whole blocks."""

    rows: Size
    depth: Size

    @property
    def far(self) -> bool:
        """Whether 32 bits do not count as far, at the program's own size."""
        return 2 * self.rows.value * (self.depth.value + DEEPEST) >= REACH

    @property
    def counts(self) -> tuple[str, ...]:
        """What must stay within reach at other sizes."""
        named = self.rows.factors or self.depth.factors
        return (f"{self.rows * 2} * ({self.depth} + {DEEPEST})",) if named and not self.far else ()


@dataclass(frozen=True)
class Packed:
    """A packing kernel, its call, and the names of what it makes."""

    kernel: Kernel
    call: tuple[str, ...]
    packed: str
    scales: str
    rows: Size
    """Of all matrices of the operand together."""
    reach: Reach


def pack(problem: Problem, side: str, low_halves: bool, constants: dict[str, str], device: str) -> Packed:
    """``side``: ``left`` or ``right``. ``constants``: names in the file of BLOCK_K and SPLIT_K."""
    operand = problem.left if side == "left" else problem.right
    kernel = Kernel(f"{problem.group.name}_pack_{side}", "", problem.graph, PRODUCT)
    writer = _Writer(problem, kernel, side, operand, low_halves, "SPLIT_K" in constants)
    kernel.doc = _doc(problem, operand, writer.index(), low_halves)
    depth, rows, padded = problem.depth, writer.all_rows, padded_name(problem)
    along = problem.contiguous_along(operand.name, writer.index(), writer.row)
    whole = depth.value <= (WHOLE_COLUMN if along else WHOLE_ROW) and not writer.parts
    chunk = power_of_two(depth.value)
    block = 16 if along else max(1, min(8, 4096 // min(chunk, 2048)))
    if writer.matrices != ONE and not along:  # many small matrices: programs must not be as small
        block = max(block, 1024 // chunk)
    kernel.meta |= {"ROWS": str(block), **constants}
    writer.head()
    if whole:
        kernel.meta["WIDTH"] = f"triton.next_power_of_2({padded})"
        writer.whole()
    else:
        kernel.meta["WIDTH"] = "512" if along else "1024"  # enough in flight, though programs are few
        writer.in_pieces()
    kernel.add_pointers(writer.reader.pointers)
    kernel.fixed = frozenset(symbol.name for symbol in depth.factors)
    packed, scales = (problem.host.local(f"{side}_{what}") for what in ("halves", "scales"))
    kernel.results |= {"packed_ptr": packed, "scales_ptr": scales}
    parts = constants.get("SPLIT_K")
    halves = "2 * " if low_halves else ""
    programs = f"triton.cdiv({writer.rows}, {block})"
    programs = programs if writer.matrices == ONE else f"{writer.matrices} * {programs}"
    call = (
        f"{packed} = torch.empty(({halves}{rows}, {padded}), device={device}, dtype=torch.float16)",
        f"{scales} = torch.empty(({f'{parts}, {rows}' if parts else f'{rows},'}), device={device}, "
        "dtype=torch.float32)",
        *kernel.launch(
            f"({programs}, {parts})" if parts else f"({programs},)",
            {"num_warps": "8" if chunk > 4096 or along else "4"},
        ),
    )
    return Packed(kernel, call, packed, scales, rows, Reach(rows, depth))


def padded_name(problem: Problem) -> str:
    """What the host calls the summed dimension filled up to whole blocks."""
    return problem.host.local("padded")


def _doc(problem: Problem, operand: Value, index: Index, low_halves: bool) -> str:
    stored = problem.stored(operand.name, index)
    what = (
        f"{stored[0].path or stored[0].name}" if stored is not None else f"the {operand.name} computed here"
    )
    made = (
        "fp16 high and low halves, 22 bits together" if low_halves else "fp16, which has the mantissa of TF32"
    )
    return f"Pack {what} for tensor cores: rows scaled by powers of two, as {made}."


class _Writer:
    """Writes the body of one packing kernel."""

    def __init__(
        self, problem: Problem, kernel: Kernel, side: str, operand: Value, low_halves: bool, parts: bool
    ) -> None:
        self.problem, self.kernel, self.side, self.operand = problem, kernel, side, operand
        self.low_halves, self.parts = low_halves, parts
        inner = operand.shape[-2] if side == "left" else operand.shape[-1]
        self.all_rows = product(operand.shape[:-2]) * inner
        self.matrices = ONE if problem.flattened else product(operand.shape[:-2])
        """A batch of matrices is a batch of programs; where there is none, all rows are alike."""
        self.rows: Size = self.all_rows if self.matrices == ONE else inner
        self.matrix, self.row, self.k, self.packed_row = (
            kernel.body.name(name) for name in ("matrix", "row", "k", "packed_row")
        )
        self.row_mask = f"({self.row} < {self.rows})"
        self.reader = Reader(problem.graph, problem.group.nodes, kernel.body, {self.row: self.row_mask})

    def index(self) -> Index:
        """Into the operand, at the kernel's row and place along the summed dimension."""
        row, k = loop_index(self.row, self.rows), loop_index(self.k, self.problem.depth)
        if self.matrices == ONE:
            lead = (*self.operand.shape[:-2], self.operand.shape[-2 if self.side == "left" else -1])
            *outer, inner = unflat(row, lead)
        else:
            outer, inner = unflat(loop_index(self.matrix, self.matrices), self.operand.shape[:-2]), row
        return (*outer, inner, k) if self.side == "left" else (*outer, k, inner)

    def head(self) -> None:
        line = self.kernel.body.line
        cast = ".to(tl.int64)" if Reach(self.all_rows, self.problem.depth).far else ""
        pid = "tl.program_id(0)"
        if self.matrices != ONE:
            line(f"blocks = tl.cdiv({self.rows}, ROWS)")
            line(f"{self.matrix} = (tl.program_id(0) // blocks){cast}")
            pid = "(tl.program_id(0) % blocks)"
        line(f"{self.row} = {pid}{cast} * ROWS + tl.arange(0, ROWS)[:, None]")
        if self.matrices == ONE:
            self.packed_row = self.row
        else:
            line(f"{self.packed_row} = {self.matrix} * {_factor(self.rows)} + {self.row}")
        line(f"padded: tl.constexpr = ({self.problem.depth} + BLOCK_K - 1) // BLOCK_K * BLOCK_K")

    def whole(self) -> None:
        body = self.kernel.body
        body.line(f"{self.k} = tl.arange(0, WIDTH)[None, :]")
        self.reader.masks = {**self.reader.masks, self.k: f"({self.k} < {self.problem.depth})"}
        values = self._values()
        body.line(f"largest = tl.max(tl.abs({values}), axis=1, keep_dims=True)")
        self._scale()
        self._store(values, "padded")
        body.line(f"tl.store(scales_ptr + {self.packed_row}, inverse, mask={self.row_mask})")

    def in_pieces(self) -> None:
        body, k = self.kernel.body, self.k
        low, high, at = "0", "padded", ""
        if self.parts:
            body.line("part = tl.program_id(1)")
            body.line("part_span: tl.constexpr = (padded // BLOCK_K + SPLIT_K - 1) // SPLIT_K * BLOCK_K")
            body.line("k_low = part * part_span")
            body.line("k_high = tl.minimum(k_low + part_span, padded)")
            low, high, at = "k_low", "k_high", f"part * {_factor(self.all_rows)} + "
        inside = f"({k} < {high}) & " if self.parts else ""
        self.reader.masks = {**self.reader.masks, k: f"{inside}({k} < {self.problem.depth})"}
        body.line("largest = tl.zeros((ROWS, WIDTH), tl.float32)")
        for second in (False, True):
            body.line(f"for k_start in range({low}, {high}, WIDTH):")
            body.indent += 1
            body.line(f"{k} = k_start + tl.arange(0, WIDTH)[None, :]")
            self.reader.forget()
            values = self._values()
            if second:
                self._store(values, high)
            else:
                body.line(f"largest = tl.maximum(largest, tl.abs({values}))")
            body.indent -= 1
            if not second:
                body.line("largest = tl.max(largest, axis=1, keep_dims=True)")
                self._scale()
        body.line(f"tl.store(scales_ptr + {at}{self.packed_row}, inverse, mask={self.row_mask})")

    def _values(self) -> str:
        """The operand at the row and this stretch of the summed dimension; zero beyond its end."""
        index = self.index()
        stored = self.problem.stored(self.operand.name, index)
        text = self.reader.read(self.operand.name, index)
        if stored is None:
            text = self.kernel.body.let("values", f"tl.where({self.reader.masks[self.k]}, {text}, 0.0)")
        return text

    def _scale(self) -> None:
        line = self.kernel.body.line
        line("exponent = (largest.to(tl.int32, bitcast=True) >> 23) & 255")
        line("exponent = tl.minimum(tl.maximum(exponent, 9), 254)  # both scales stay normal numbers")
        line("row_scale = ((262 - exponent) << 23).to(tl.float32, bitcast=True)")
        line("inverse = ((exponent - 8) << 23).to(tl.float32, bitcast=True)")

    def _store(self, values: str, end: str) -> None:
        line, k = self.kernel.body.line, self.k
        line(f"scaled = {values} * row_scale")
        line("high_half = scaled.to(tl.float16)")
        line(f"inside = {self.row_mask} & ({k} < {end})")
        line(f"tl.store(packed_ptr + {self.packed_row} * padded + {k}, high_half, mask=inside)")
        if self.low_halves:
            line("low_half = (scaled - high_half.to(tl.float32)).to(tl.float16)")
            lower = f"({self.packed_row} + {self.all_rows})"
            line(f"tl.store(packed_ptr + {lower} * padded + {k}, low_half, mask=inside)")


def _factor(size: Size) -> str:
    text = size.code()
    return f"({text})" if " " in text else text

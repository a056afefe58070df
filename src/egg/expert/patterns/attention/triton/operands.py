"""How queries, keys and values come into a kernel: as they lie in memory, or packed for tensor cores.

fp32 does not exist on tensor cores, but two fp16 numbers hold 22 bits of one, if a power of two brings it
into their range. Each row of the queries has such a factor: what is small beside a large neighbour keeps its
digits. Values are summed over rows, so a whole tile of them shares one, which goes back into the sum when the
tile's product is added; so do keys where a program meets them tile by tile, as it saves a multiplication per
score. hi + lo of fp16 under a common factor keep all digits of what is up to 2^17 times smaller than the
largest. A product is then three products of halves, the smallest first.
"""

from __future__ import annotations

from dataclasses import dataclass

from egg.expert.emit.kernel import Kernel
from egg.expert.emit.reader import Reader, address
from egg.expert.emit.triton.types import TYPES
from egg.expert.emit.words import ATTENTION, PRODUCT
from egg.expert.graph import Value
from egg.expert.index import Index, loop_index, unflat
from egg.expert.parts import spelled
from egg.expert.patterns.attention.problem import Problem, braced
from egg.expert.sizes import Size

LARGEST_TILE = 8192
"""Elements that a program of a packing kernel holds."""


@dataclass(frozen=True)
class Way:
    """How a group is computed."""

    grade: str
    """``fp32``: halves, three products; ``tf32``: the upper halves alone; ``half``: as it lies, one product;
    ``tf32x3``, ``ieee``: fp32 as it lies."""
    descriptors: bool

    @property
    def packed(self) -> bool:
        return self.grade in ("fp32", "tf32")

    @property
    def halves(self) -> tuple[str, ...]:
        return ("high", "low") if self.grade == "fp32" else ("high",)

    @property
    def option(self) -> str:
        """A further argument of products of operands as they lie."""
        return f', input_precision="{self.grade}"' if self.grade in ("tf32x3", "ieee") else ""


@dataclass(frozen=True)
class Tile:
    """A tile of an operand as a kernel reads it."""

    side: str
    """``q``, ``k`` or ``v``."""
    rows: str
    columns: str
    """Names of the kernel's constants for its shape."""


def load(
    problem: Problem, kernel: Kernel, way: Way, tile: Tile, row: str, column: str, value: Value,
    inside: bool = False,
) -> None:  # fmt: skip
    """Lines that put a tile at ``row`` and ``column`` of the packed operand into ``k_high`` and ``k_low``;
    or one of the operand as it lies, by its loop indices, into ``k``. ``inside``: all of its rows are there.
    """
    body, side = kernel.body, tile.side
    if not way.packed:
        names = ("query" if side == "q" else "key", "width" if side == "v" else "depth")
        rows, columns = value.shape[-2:]
        place = problem.index(names[0], rows, names[1], columns)
        whole = f"(({names[1]} < {columns}) | ({braced(columns)} % {tile.columns} == 0))"
        masks = {names[0]: f"({names[0]} < {rows})", names[1]: whole}
        mask = whole if inside else " & ".join(masks.values())
        if side != "q" and problem.few and problem.computed(value):
            _compute(problem, kernel, side, value, place, masks)
            return
        stored, index = problem.stored(value.name, place)
        pointer = _pointer(kernel, stored, problem)
        body.line(f"{side} = tl.load({pointer} + {address(stored, index)}, mask={mask}, other=0.0)")
        return
    for half in way.halves:
        packed = packed_name(problem, side, half)
        if way.descriptors:
            shape = f"[{kernel.meta[tile.rows]}, {kernel.meta[tile.columns]}]"
            kernel.operands[f"{side}_{half}_tiles"] = f"TensorDescriptor.from_tensor({packed}, {shape})"
            body.line(f"{side}_{half} = {side}_{half}_tiles.load([{row}, {column}])")
        else:
            kernel.operands[f"{side}_{half}_ptr"] = packed
            rows = f"({row} + tl.arange(0, {tile.rows})).to(tl.int64)[:, None]"
            columns = f"{column} + tl.arange(0, {tile.columns})[None, :]"
            stride = f"{side}_stride"
            kernel.operands[stride] = f"{packed}.stride(0)"
            body.line(f"{side}_{half} = tl.load({side}_{half}_ptr + {rows} * {stride} + {columns})")


def _compute(
    problem: Problem, kernel: Kernel, side: str, value: Value, place: Index, masks: dict[str, str]
) -> None:
    """Keys or values that are computed from what lies in memory, a cache of 8 bits and its scales: where few
    queries read them, that is done once, and their 16 bits never reach memory."""
    reader = Reader(problem.graph, problem.group.nodes, kernel.body, masks)
    known = {given: pointer for pointer, given in kernel.operands.items()}
    reads = {name: spelled(problem.graph, name) for name in problem.group.reads(problem.graph)}
    reader.pointers |= {name: known[text] for name, text in reads.items() if text in known}
    text, inside = reader.read(value.name, place), " & ".join(masks.values())
    kernel.body.line(f"{side} = tl.where({inside}, {text}, 0.0).to({TYPES[value.dtype]})")
    kernel.add_pointers(reader.pointers)


def _pointer(kernel: Kernel, stored: Value, problem: Problem) -> str:
    name = f"{stored.name}_ptr"
    kernel.operands[name] = spelled(problem.graph, stored.name)
    return name


def packed_name(problem: Problem, side: str, half: str) -> str:
    return f"{problem.group.name}_{side}_{half}"


def scales_name(problem: Problem, side: str) -> str:
    return f"{problem.group.name}_{side}_scales"


def products(way: Way, into: str, left: str, right: str, turned: bool) -> list[str]:
    """``into = left @ right``, from zero."""
    end = ".T" if turned else ""
    if way.grade != "fp32":
        suffix = "_high" if way.packed else ""
        return [f"{into} = tl.dot({left}{suffix}, {right}{suffix}{end}{way.option})"]
    return [
        f"{into} = tl.dot({left}_low, {right}_high{end})  # small terms first",
        f"{into} = tl.dot({left}_high, {right}_low{end}, {into})",
        f"{into} = tl.dot({left}_high, {right}_high{end}, {into})",
    ]


@dataclass(frozen=True)
class Packing:
    """A kernel that packs one operand, and the lines that run it."""

    kernel: Kernel
    call: tuple[str, ...]


def pack(
    problem: Problem, way: Way, side: str, value: Value, blocks: tuple[str, str], device: str, padded: str,
    whole: str, by_tile: bool,
) -> Packing:  # fmt: skip
    """Pack an operand: rows in whole blocks of ``whole``, ``padded`` columns.

    One factor per row, or where ``by_tile`` per tile of ``blocks``.
    """
    rows, columns = value.shape[-2:]
    kernel = Kernel(f"{problem.group.name}_pack_{side}", _doc(way, side, by_tile), problem.graph, PRODUCT)
    kernel.body.taken |= ATTENTION
    if by_tile:
        kernel.meta = {"ROWS": blocks[0], "COLUMNS": blocks[1]}
    else:
        fit = max(1, LARGEST_TILE // _power(columns.value))
        kernel.meta = {"ROWS": f"min({blocks[0]}, {fit})", "COLUMNS": f"triton.next_power_of_2({padded})"}
    line = kernel.body.line
    cast = ".to(tl.int64)" if problem.wide_offsets else ""
    kernel.operands |= {"row_blocks": f"{problem.group.name}_{side}_rows // {kernel.meta['ROWS']}"}
    kernel.operands |= {"columns": padded}
    line("column_blocks = tl.cdiv(columns, COLUMNS)")
    line("tile = tl.program_id(0)")
    line("block = tile // column_blocks")
    line(f"batch = (block // row_blocks){cast}")
    line("row = (block % row_blocks) * ROWS + tl.arange(0, ROWS)[:, None]")
    line("column = (tile % column_blocks) * COLUMNS + tl.arange(0, COLUMNS)[None, :]")
    masks = {"row": f"(row < {rows})", "column": f"(column < {columns})"}
    reader = Reader(problem.graph, problem.group.nodes, kernel.body, masks)
    lead = unflat(loop_index("batch", problem.batch), problem.lead)
    text = reader.read(value.name, (*lead, loop_index("row", rows), loop_index("column", columns)))
    line(f"values = tl.where({masks['row']} & {masks['column']}, {text}, 0.0)")
    largest = "tl.max(tl.abs(values), axis=1, keep_dims=True)"
    line(f"largest = {f'tl.max({largest}, axis=0, keep_dims=True)' if by_tile else largest}")
    line("exponent = (largest.to(tl.int32, bitcast=True) >> 23) & 255")
    line("exponent = tl.minimum(tl.maximum(exponent, 15), 254)  # both factors stay normal numbers")
    line("values = values * ((268 - exponent) << 23).to(tl.float32, bitcast=True)  # below 2^15")
    line("inverse = ((exponent - 14) << 23).to(tl.float32, bitcast=True)")
    line("places = (block * ROWS + tl.arange(0, ROWS)[:, None]).to(tl.int64)")
    line("high_half = values.to(tl.float16)")
    line("tl.store(high_ptr + places * columns + column, high_half, mask=column < columns)")
    if "low" in way.halves:
        line("low_half = (values - high_half.to(tl.float32)).to(tl.float16)")
        line("tl.store(low_ptr + places * columns + column, low_half, mask=column < columns)")
    if by_tile:
        line("tl.store(scales_ptr + tile + tl.zeros((1, 1), tl.int32), inverse)")
    else:
        line("tl.store(scales_ptr + places, inverse)")
    kernel.add_pointers(reader.pointers)
    for half in way.halves:
        kernel.results[f"{half}_ptr"] = packed_name(problem, side, half)
    kernel.results["scales_ptr"] = scales_name(problem, side)
    return Packing(kernel, _call(problem, way, side, kernel, (rows, whole), device, padded, by_tile))


def _call(
    problem: Problem, way: Way, side: str, kernel: Kernel, rows: tuple[Size, str], device: str, padded: str,
    by_tile: bool,
) -> tuple[str, ...]:  # fmt: skip
    whole = f"{problem.group.name}_{side}_rows"
    lines = [f"{whole} = triton.cdiv({rows[0]}, {rows[1]}) * {rows[1]}  # whole blocks"]
    batches = problem.batch.code()
    for half in way.halves:
        shape = f"({batches} * {whole}, {padded})"
        lines.append(
            f"{packed_name(problem, side, half)} = torch.empty({shape}, device={device}, dtype=torch.float16)"
        )
    programs = f"{batches} * ({whole} // {braced_text(kernel.meta['ROWS'])})"
    if by_tile:
        programs += f" * triton.cdiv({padded}, {kernel.meta['COLUMNS']})"
    count = programs if by_tile else f"{batches} * {whole}"
    lines.append(
        f"{scales_name(problem, side)} = torch.empty(({count},), device={device}, dtype=torch.float32)"
    )
    return (*lines, *kernel.launch(f"({programs},)", {"num_warps": "4"}))


def braced_text(text: str) -> str:
    return f"({text})" if " " in text else text


def _doc(way: Way, side: str, by_tile: bool) -> str:
    what = {"q": "queries", "k": "keys", "v": "values"}[side]
    shared = "each tile" if by_tile else "each row"
    made = "high and low halves, 22 bits together" if way.grade == "fp32" else "the mantissa of TF32"
    return f"Pack the {what} for tensor cores: {shared} under one power of two, as fp16 ({made})."


def _power(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()

"""Items as tiles: one load for all elements of a batch's items, and one store.

The elements of an item lie beside each other. A load for each of them would reach into as many lines of
memory as there are threads, one element at a time; and the compiler takes time with the square of a kernel's
length for every load and store of a tensor. So a tile of all elements of the items of a program is loaded as
it lies, and split into its columns: ``tl.split`` takes the even and the odd ones apart, which again and
again leaves single columns, one register of a thread each. Results are joined the same way, backwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from egg.expert.emit.reader import Body, address
from egg.expert.emit.triton.scalar import is_literal
from egg.expert.graph import Value
from egg.expert.index import Expr, Index, as_expr, loop_index, unflat
from egg.expert.sizes import Size, product


@dataclass(frozen=True)
class Tile:
    """Where the items of a value are."""

    value: Value
    lead: Index
    """The item of a thread."""
    inner: tuple[Size, ...]
    """The dimensions of an item."""

    @classmethod
    def of(cls, value: Value, batch: Size) -> Tile | None:
        """``None`` where a value is no batch of items of known size."""
        for split in range(value.rank + 1):
            inner = value.shape[split:]
            if product(value.shape[:split]) == batch and not any(size.factors for size in inner):
                return cls(value, unflat(loop_index("at", batch), value.shape[:split]), inner)
        return None

    @property
    def count(self) -> int:
        return prod(size.number for size in self.inner)

    @property
    def columns(self) -> int:
        """A power of two."""
        return 1 << max(self.count - 1, 0).bit_length()

    @property
    def places(self) -> dict[tuple[int, ...], int]:
        """By row and column: how far an element lies behind the first one."""
        found: dict[tuple[int, ...], int] = {(): 0}
        strides = self.value.stride[len(self.lead) :]
        for size, stride in zip(self.inner, strides, strict=True):
            found = {
                (*place, number): at + number * stride.value
                for place, at in found.items()
                for number in range(size.number)
            }
        return found

    @property
    def is_dense(self) -> bool:
        """Whether the elements of an item lie without gaps, in whatever order."""
        strides = self.value.stride[len(self.lead) :]
        plain = not any(stride.factors for stride in strides)
        return plain and sorted(self.places.values()) == list(range(self.count))

    def index(self, place: tuple[int, ...]) -> Index:
        return (*self.lead, *map(as_expr, place))

    def _where(self, pointer: str, body: Body) -> tuple[str, str]:
        """The addresses of a tile, and which of them count."""
        first = address(self.value, (*self.lead, *(Expr() for _ in self.inner)))
        column = body.let("column", f"tl.arange(0, {self.columns})[None, :]")
        mask = "at_mask[:, None]"
        mask += f" & ({column} < {self.count})" if self.count < self.columns else ""
        return f"{pointer} + ({first})[:, None] + {column}", mask

    def loaded(self, pointer: str, body: Body, stem: str) -> dict[tuple[int, ...], str]:
        """Names of the elements, by row and column."""
        where, mask = self._where(pointer, body)
        whole = body.let(f"{stem}_tile", f"tl.load({where}, mask={mask}, other=0)")
        columns = _split(body, whole, self.columns, stem)
        return {place: columns[at] for place, at in self.places.items()}

    def store(self, pointer: str, body: Body, texts: dict[tuple[int, ...], str]) -> None:
        by_place = {at: texts[place] for place, at in self.places.items()}
        columns = [by_place.get(at, by_place[0]) for at in range(self.columns)]
        whole = _joined(body, [_column(text) for text in columns])
        where, mask = self._where(pointer, body)
        body.line(f"tl.store({where}, {whole}, mask={mask})")


def _split(body: Body, tile: str, columns: int, stem: str) -> list[str]:
    """The columns of a tile in their order."""
    if columns == 1:
        return [tile]
    even, odd = body.name(stem), body.name(stem)
    pairs = tile if columns == 2 else f"tl.reshape({tile}, (BLOCK, {columns // 2}, 2))"
    body.line(f"{even}, {odd} = tl.split({pairs})")
    halves = (_split(body, half, columns // 2, stem) for half in (even, odd))
    return [column for pair in zip(*halves, strict=True) for column in pair]


def _joined(body: Body, columns: Sequence[str]) -> str:
    """A tile of these columns."""
    if len(columns) == 1:
        return columns[0]
    even, odd = _joined(body, columns[::2]), _joined(body, columns[1::2])
    text = f"tl.join({even}, {odd})"
    return body.let("tile", text if len(columns) == 2 else f"tl.reshape({text}, (BLOCK, {len(columns)}))")


def _column(text: str) -> str:
    return f"tl.full((BLOCK,), {text}, tl.float32)" if is_literal(text) else text

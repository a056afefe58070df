"""The kernel that joins what tiles left of a norm's statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from egg.expert.emit.language import Argument, docstring
from egg.expert.emit.triton.language import TRITON
from egg.expert.sizes import Size

_DOC = (
    "The statistics of all tiles of a row as one: the common mean first, then every deviation from it. "
    "Leaves what is to be subtracted from a channel, and what it is multiplied with then."
)
_STATISTICS = """
pid = tl.program_id(0)
image = (pid // (channels // width)).to(tl.int64)
c = pid % (channels // width) * width + tl.arange(0, BLOCK_C)[None, :]
kept = tl.arange(0, BLOCK_C)[None, :] < width
parts_ptr += image * tiles * (2 * channels)
sums = tl.zeros((BLOCK_T, BLOCK_C), tl.float32)
for first in range(0, tiles, BLOCK_T):
    t = first + tl.arange(0, BLOCK_T)[:, None]
    count = tl.minimum(tl.maximum(positions - t * BLOCK_P, 0), BLOCK_P).to(tl.float32)
    part = tl.load(parts_ptr + t * (2 * channels) + c, mask=(t < tiles) & kept, other=0.0)
    sums += part * count
mean = tl.sum(tl.sum(sums, axis=0)) / (positions * 1.0 * width)
squares = tl.zeros((BLOCK_T, BLOCK_C), tl.float32)
for first in range(0, tiles, BLOCK_T):
    t = first + tl.arange(0, BLOCK_T)[:, None]
    inside = (t < tiles) & kept
    count = tl.minimum(tl.maximum(positions - t * BLOCK_P, 0), BLOCK_P).to(tl.float32)
    part = tl.load(parts_ptr + t * (2 * channels) + c, mask=inside, other=0.0)
    own = tl.load(parts_ptr + t * (2 * channels) + channels + c, mask=inside, other=0.0)
    squares += tl.where(inside, own + (part - mean) * (part - mean) * count, 0.0)
variance = tl.sum(tl.sum(squares, axis=0)) / (positions * 1.0 * width)
scale = tl.rsqrt(variance + {eps!r}) + tl.zeros((1, BLOCK_C), tl.float32)
"""
_WEIGHED = """scale = scale * tl.load(weight_ptr + c, mask=kept, other=0.0)
"""
_STORES = """tl.store(mean_ptr + image * channels + c, mean + tl.zeros((1, BLOCK_C), tl.float32), mask=kept)
tl.store(scale_ptr + image * channels + c, scale, mask=kept)
"""


@dataclass(frozen=True)
class Join:
    """The kernel, and what the host passes."""

    name: str
    tensors: Mapping[str, str]
    weight: str | None
    sizes: Mapping[str, str]
    channels: Size
    width: Size
    """Channels with statistics in common."""
    positions_each: str
    """Positions of a tile, as the host calls them."""
    eps: float

    def arguments(self) -> list[Argument]:
        constants = {
            "channels": self.channels.code(),
            "width": self.width.code(),
            "BLOCK_P": self.positions_each,
            "BLOCK_T": "64",
            "BLOCK_C": f"triton.next_power_of_2({self.width})",
        }
        weight = {} if self.weight is None else {"weight_ptr": self.weight}
        plain = {**self.tensors, **weight, **self.sizes}
        return [
            *(Argument(name, given) for name, given in plain.items()),
            *(Argument(name, given, known=True, by_name=True) for name, given in constants.items()),
        ]

    def definition(self) -> str:
        weighed = "" if self.weight is None else _WEIGHED
        body = f"{_STATISTICS}{weighed}{_STORES}".format(eps=self.eps)
        lines = [f"    {line}" for line in body.strip().split("\n")]
        return TRITON.definition(self.name, self.arguments(), docstring(_DOC), lines)

    def launch(self, grid: str) -> list[str]:
        return TRITON.launch(self.name, grid, self.arguments(), {"num_warps": "4"})

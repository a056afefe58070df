"""Loads of a tile of inputs that the compiler sees no runs in.

Where the positions of a tile are no multiple of two per row (or skip inputs), the compiler cannot know that
neighbours lie side by side, so neither dimension of a tile looks better to it. Triton 3.6 then puts lanes
along the first, which are channels and taps, and each lane reads four bytes of another row. In one dimension
there is no such choice: such tiles are loaded flat, and folded afterwards, with lanes along positions.
"""

from __future__ import annotations

from dataclasses import dataclass

from egg.expert.emit.reader import Reader, address
from egg.expert.graph import Value
from egg.expert.index import Index
from egg.expert.patterns.convolution.form import Form

DEEP = frozenset({"k", "ci", "jd", "jh", "jw", "ud", "uh", "uw"})
WIDE = frozenset({"n", "s", "p", "qd", "qh", "qw"})
"""Indices along the first and the second dimension of a tile."""


def runs(form: Form) -> bool:
    """Whether the compiler sees that some neighbouring positions read neighbouring inputs."""
    if form.windows is not None:
        return True
    if form.pointwise:
        return form.plane.value % 2 == 0
    return form.axes[-1].step == 1 and form.axes[-1].count.value % 2 == 0


@dataclass
class Gatherer(Reader):
    """Loads tiles of ``BLOCK_K`` by ``BLOCK_P`` inputs as one dimension."""

    def _load(self, value: Value, index: Index, guards: tuple[str, ...]) -> str:
        symbols = address(value, index).symbols()
        if symbols.isdisjoint(DEEP) or symbols.isdisjoint(WIDE):
            return super()._load(value, index, guards)
        at, mask = self._reached(value, index, guards)
        flat = "(BLOCK_K * BLOCK_P,)"
        parts = [f"{self.pointer(value)} + tl.reshape({at}, {flat})"]
        if mask:
            whole = f"tl.broadcast_to({mask}, (BLOCK_K, BLOCK_P))"
            parts += [f"mask=tl.reshape({whole}, {flat})", f"other={self.other}"]
        text = f"tl.reshape(tl.load({', '.join(parts)}), (BLOCK_K, BLOCK_P))"
        return self._loaded(value, text)

"""What is known of a kernel of the loops pattern while it is written: its rows, its text so far, and the
state that each gathering over a row has reached."""

from __future__ import annotations

from dataclasses import dataclass

from egg.expert.emit.kernel import Kernel
from egg.expert.patterns.loops.domain import PICK
from egg.expert.patterns.loops.triton.gathering import HELPERS, Tile
from egg.expert.patterns.loops.triton.reader import LoopBody, LoopReader
from egg.expert.patterns.loops.triton.selecting import FUNCTIONS
from egg.expert.patterns.loops.work import Plan, Work

CONSTANTS = ("BLOCK_X", "BLOCK_R", "LANES", "SPLITS", "PICKS")


@dataclass
class State:
    work: Work
    plan: Plan
    name: str
    form: str
    """How it goes over a row: ``blocks`` (one per program), ``whole``, ``looped``, ``stretch``, ``none``;
    ``strip`` is a walk down rows, ``apply`` is blocks, the last first: those are still in the cache."""

    def __post_init__(self) -> None:
        work, domain = self.work, self.work.domain
        self.kernel = Kernel(
            self.name, "", work.graph, body=LoopBody(), meta=dict.fromkeys(CONSTANTS, ""),
            fixed=work.size_names, order=work.sizes, wraps=False, width=110,
        )  # fmt: skip
        self.body.taken |= {*domain.names, PICK, *HELPERS, *FUNCTIONS, *CONSTANTS, "lane"}
        self.masks: dict[str, str] = {}
        self.reader = LoopReader(work.graph, work.group.nodes, self.body, self.masks)
        self.reader.axes = frozenset((*(domain.names[1:] if self.plan.rows else domain.names[2:]), PICK))
        self.reader.skips = self.plan.skips
        self.reader.outside = frozenset(domain.names[:1] if self.form == "strip" else domain.names[:2])
        self.states: dict[str, tuple[str, ...]] = {}
        self.results: dict[str, str] = {}
        self.before: dict[str, str] = {}
        """Totals of what lies before this program's stretch of a row, by the scans that go on from them."""
        self.outs: dict[str, str] = {}
        """Pointers of results, by their names."""
        self.parts: dict[str, str] = {}
        """Pointers of partial states, by the names of their tensors."""

    @property
    def body(self) -> LoopBody:
        assert isinstance(self.kernel.body, LoopBody)
        return self.kernel.body

    @property
    def tile(self) -> Tile:
        mask = self.masks.get(self.work.domain.names[2], "")
        return Tile(self.plan.rows, mask, folded=self.plan.folded, chunked=self.plan.lanes > 0)

    @property
    def taken_tile(self) -> Tile:
        """Of what selections take of the rows."""
        return (
            Tile(self.plan.rows, self.masks.get(PICK, ""), "PICKS") if self.work.domain.chosen else self.tile
        )

    def tile_of(self, anchor: str) -> Tile:
        return self.taken_tile if anchor in self.work.anchors.shorter else self.tile

    def length_of(self, anchor: str) -> str:
        """Elements of a row that an anchor runs over."""
        text = self.work.domain_of(anchor).reduced_size.code()
        return f"({text})" if " " in text else text

"""Which values of which constant are worth a measurement, by what the judge says a kernel waits for.

A point costs a compilation, so a sweep through all tiles is out of the question; and most points are known
to be worse before they are tried. An expert looks at the limiter: spilled registers ask for more warps or a
smaller tile, an empty last wave for another tile, traffic between L2 and the SMs for a larger one. So each
limiter has a short list of constants with the direction to go, and one step on the list is a few neighbours
of the value that the rule chose. Where the limiter says that no constant helps, none is tried.

Where a GPU times points side by side they are cheap enough to turn several constants at once, since the best
tile is rarely best with the warps and stages of another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from egg.core.bottleneck import MEANINGS, Bottleneck, Limiter
from egg.core.stage import Category, Stage
from egg.expert.assemble import short
from egg.expert.deciding.options import HEAVY, Base, heaviest
from egg.expert.moves import Move, Open, Set
from egg.expert.parts import Constant, Group, Part
from egg.expert.patterns import PATTERNS

MOST_POINTS = 2
"""Values of a constant that one step measures, beside what is there."""
NEAR_FLOOR = 1.15
"""A kernel within this factor of what good ones reach is left as it is."""
ATTAINABLE = {
    Limiter.DRAM: 0.87,
    Limiter.TENSOR: 0.7,
    Limiter.L2: 0.7,
    Limiter.FMA: 0.7,
    Limiter.SPECIAL: 0.7,
}
"""Where a unit is used up: the share of its peak that good kernels reach."""
MOST_TOGETHER = 4
"""Constants that are turned at once."""
LEAST_GAIN = 1.05
"""Predicted of the whole program, from which on a point is worth a measurement."""
BELIEVED = 0.3
"""Of what the diagnosis says could be gained, as much as a constant usually gets (an exponent)."""

UP, DOWN, BOTH = (1,), (-1,), (1, -1)


@dataclass(frozen=True)
class Knob:
    """A constant by the end of its name, where to go with it, and what that is."""

    name: str
    ways: tuple[int, ...]
    category: Category
    skills: tuple[str, ...]
    effect: str


def _warps(ways: tuple[int, ...]) -> Knob:
    return Knob("NUM_WARPS", ways, Category.WARP_COUNT, ("warp-count",), "registers and loads per thread")


def _splits(ways: tuple[int, ...]) -> Knob:
    skills = ("split-k", "split-reduction", "grid-fill")
    return Knob("SPLIT", ways, Category.SPLIT_WORK, skills, "more programs, each with less to do")


def _rows(ways: tuple[int, ...]) -> Knob:
    skills = ("rows-per-program", "grid-fill", "tail-wave")
    return Knob("BLOCK_X", ways, Category.WORK_PER_PROGRAM, skills, "rows per program")


ORDER = Knob(
    "GROUP_M", BOTH, Category.PROGRAM_ORDER, ("grouped-program-order", "swizzled-order"), "operands met in L2"
)


def _tile(ways: tuple[int, ...], *skills: str) -> tuple[Knob, ...]:
    """Tiles of products and convolutions, then those of loops."""
    gemm = (*skills, "tile-shape-gemm")
    loop = (*skills, "tile-shape-elementwise", "tile-shape-reduction", "rows-per-program")
    return (
        *(Knob(name, ways, Category.TILE_SHAPE, gemm, "the tile of the result")
          for name in ("BLOCK_N", "BLOCK_O", "BLOCK_M", "BLOCK_P")),
        *(Knob(name, ways, Category.TILE_SHAPE, loop, "elements per program")
          for name in ("BLOCK_R", "BLOCK_W", "ROWS", "BLOCK")),
    )  # fmt: skip


def _stages(ways: tuple[int, ...], *skills: str) -> Knob:
    names = (*skills, "pipeline-stages")
    return Knob("NUM_STAGES", ways, Category.PIPELINE_DEPTH, names, "loads that run ahead")


MAPPED: Mapping[Limiter, tuple[Knob, ...]] = {
    Limiter.SPILLS: (_warps(UP),),
    Limiter.OCCUPANCY_REGISTERS: (_warps(UP), _rows(DOWN)),
    Limiter.SMALL_GRID: (_splits(UP), _rows(DOWN)),
    Limiter.TAIL: (_splits(UP), _rows(DOWN)),
    Limiter.L2: (ORDER,),
    Limiter.DRAM: (ORDER,),
    Limiter.LATENCY: (_warps(BOTH), _rows(BOTH)),
    Limiter.SYNCHRONIZATION: (_warps(DOWN), _rows(UP)),
    Limiter.FMA: (_warps(BOTH),),
    Limiter.SPECIAL: (_warps(BOTH),),
}
"""What may change in the mapping stage, by what the kernel waits for, the most promising first."""
TILED: Mapping[Limiter, tuple[Knob, ...]] = {
    Limiter.SPILLS: _tile(DOWN, "register-pressure"),
    Limiter.OCCUPANCY_REGISTERS: _tile(DOWN, "register-pressure", "occupancy-when-it-matters"),
    Limiter.OCCUPANCY_SHARED: (_stages(DOWN, "shared-memory-budget"), *_tile(DOWN, "shared-memory-budget")),
    Limiter.SMALL_GRID: _tile(DOWN, "small-m-tiles"),
    Limiter.TAIL: _tile(DOWN),
    Limiter.L2: _tile(UP),
    Limiter.DRAM: _tile(UP),
    Limiter.LATENCY: (_stages(UP), *_tile(BOTH)),
    Limiter.TENSOR: (*_tile(UP), _stages(UP)),
    Limiter.TENSOR_IDLE: (*_tile(BOTH), _stages(BOTH)),
    Limiter.NARROW: _tile(UP),
    Limiter.UNCOALESCED: _tile(UP),
    Limiter.FMA: _tile(DOWN),
    Limiter.SPECIAL: _tile(DOWN),
}
"""The same for the tiling stage."""
KNOBS = {Stage.MAPPING: MAPPED, Stage.TILING: TILED}


@dataclass(frozen=True)
class Tuning:
    """One step of tuning: moves, with what they are against and what they should do."""

    group: str
    category: Category
    against: str
    sentence: str
    moves: tuple[Move, ...]
    gain: float
    """Predicted, of the whole program."""
    effect: str
    skills: tuple[str, ...]


@dataclass(frozen=True)
class Turn:
    """A constant of a group, and the values to try beside its own."""

    knob: Knob
    name: str
    now: int
    values: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} {' or '.join(str(value) for value in self.values)}, not {self.now}"


def tunings(base: Base, stage: Stage, *, together: bool = False) -> Iterator[Tuning]:
    """The steps worth taking in a stage, those of the heaviest group first.

    A step turns one constant, or ``together`` all that the limiter names and the warps with them; the mapping
    stage then leaves the warps to the tiling stage, if that has a tile to turn: one measurement serves both.
    """
    for share, group, part in heaviest(base):
        found = base.bottleneck(part)
        if found is None or share < HEAVY:
            continue
        lost = room(found)
        gain = 1.0 / (1.0 - share + share / lost**BELIEVED)
        if lost < NEAR_FLOOR or gain < LEAST_GAIN:
            continue
        against = f"{group.name}: {MEANINGS[found.limiter]}"
        if stage is Stage.MEMORY:
            yield from _switches(base, group, part, found.limiter, against, gain)
        turns = list(_turns(group, part, KNOBS.get(stage, {}).get(found.limiter, ())))
        if together and stage is Stage.TILING and turns:
            turns = [*turns[: MOST_TOGETHER - 1], *_turns(group, part, (_warps(BOTH),))]
        if together and stage is Stage.MAPPING and any(_turns(group, part, TILED.get(found.limiter, ()))):
            turns = [turn for turn in turns if turn.knob.category is not Category.WARP_COUNT]
        if together and len(turns) > 1:
            yield _joint(group, turns[:MOST_TOGETHER], against, gain)
            continue
        for turn in turns:
            knob, moves = turn.knob, (Open(group.name, turn.name, turn.values),)
            sentence = f"{group.name}: {turn}"
            yield Tuning(group.name, knob.category, against, sentence, moves, gain, knob.effect, knob.skills)


def _turns(group: Group, part: Part, knobs: tuple[Knob, ...]) -> Iterator[Turn]:
    for knob in knobs:
        for constant in part.constants:
            name = short(group.name, constant.name)
            if matches(name, knob.name) and (values := neighbours(name, constant, knob.ways)):
                yield Turn(knob, name, int(constant.value), values)


def _joint(group: Group, turns: list[Turn], against: str, gain: float) -> Tuning:
    """All of them in any combination with what they are now, beginning with the first one turned alone."""
    first, *others = turns
    skills = tuple(dict.fromkeys(skill for turn in turns for skill in turn.knob.skills))
    return Tuning(
        group.name,
        first.knob.category,
        against,
        f"{group.name}: {'; '.join(map(str, turns))}; in any combination",
        (
            Open(group.name, first.name, (*first.values, first.now)),
            *(Open(group.name, turn.name, (turn.now, *turn.values)) for turn in others),
        ),
        gain,
        first.knob.effect,
        skills,
    )


def room(found: Bottleneck) -> float:
    """How many times faster a kernel could be with other constants; at least 1.

    By the diagnosis, where something is in the way. Where a unit is used up, only what is lost against good
    kernels that use it up can be won: the work stays.
    """
    if found.limiter in ATTAINABLE:
        return max(1.0, (found.headroom or 1.0) * ATTAINABLE[found.limiter])
    return max(1.0, found.gain)


def matches(name: str, knob: str) -> bool:
    return name == knob or (knob == "SPLIT" and name in ("SPLIT_K", "SPLITS"))


SAFE: Mapping[str, tuple[int, ...]] = {"GROUP_M": (1, 4, 8, 16), "NUM_STAGES": (2,)}
"""Values that any kernel takes, for constants to which a pattern gives no choices."""


def neighbours(name: str, constant: Constant, ways: tuple[int, ...]) -> tuple[int, ...]:
    """The next values in each direction, out of those that the kernel takes."""
    offered = constant.choices if len(constant.choices) > 1 else SAFE.get(name, ())
    values = sorted({value for value in (*offered, constant.value) if type(value) is int})
    if len(values) < 2 or constant.value not in values:
        return ()
    at = values.index(constant.value)
    found = (values[at + way] for way in ways if 0 <= at + way < len(values))
    return tuple(dict.fromkeys(found))[:MOST_POINTS]


def _switches(
    base: Base, group: Group, part: Part, limiter: Limiter, against: str, gain: float
) -> Iterator[Tuning]:
    for switch in PATTERNS[group.pattern].switches:
        if limiter in switch.limiters and switch.use not in part.uses and base.gpu.vendor == switch.vendor:
            moves = (Set(group.name, switch.use.value, True),)
            sentence = f"{group.name}: {switch.effect}"
            yield Tuning(
                group.name, switch.category, against, sentence, moves, gain, switch.effect, switch.skills
            )

"""The other structures worth trying, each with the gain that is expected of it, the largest first.

Every option is a recipe. It is written (which takes a moment and no GPU), or only the group that it means,
and priced against the base: groups that stay as they are cost what was seen of them, what is new costs its
estimate (:mod:`egg.expert.deciding.estimate`). Where the judge's diagnosis of the base says what a kernel
waits for, that decides which other ways are looked at, since an estimate knows nothing of registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from egg.core.bottleneck import Bottleneck, Diagnosed
from egg.core.resources import KernelResources
from egg.core.stage import Category
from egg.expert.assemble import Written
from egg.expert.cost import Cost
from egg.expert.deciding.estimate import by_the_library, costs, replaying, seen_seconds, total
from egg.expert.fusion.choices import Structure
from egg.expert.graph import Node
from egg.expert.moves import Alone, Set, Without
from egg.expert.parts import Group, Part, Setting, Target
from egg.expert.pattern import BELIEVED, CROWDED, FREE, Alternative
from egg.expert.patterns import PATTERNS
from egg.expert.writing.replay import FEWEST, SETTINGS, decided
from egg.hardware.gpus import Gpu

LEAST_GAIN = 1.03
"""Predicted, from which on a structure is worth a measurement."""
HEAVY = 0.1
"""Share of the time on the GPU from which on a group is looked at by itself."""


@dataclass(frozen=True)
class Base:
    """What is known of the file that others are held against."""

    file: Written
    gpu: Gpu
    grades: Mapping[str, str]
    kernels: tuple[KernelResources, ...] = ()
    """As the judge's compiler made them; empty where it did not say."""
    diagnosis: Diagnosed | None = None

    @property
    def structure(self) -> Structure:
        return self.file.structure

    @cached_property
    def estimated(self) -> tuple[Cost, ...]:
        return costs(self.structure, self.gpu, self.grades)

    @cached_property
    def known(self) -> tuple[Cost, ...]:
        """As seen, or else as estimated."""
        estimated = self.estimated
        seen = seen_seconds(self.structure, self.kernels, self.gpu, estimated)
        return tuple(
            Cost(guess.device if found is None else found, guess.host)
            for guess, found in zip(estimated, seen, strict=True)
        )

    def bottleneck(self, part: Part) -> Bottleneck | None:
        """Of the kernel that takes longest among a part's."""
        names = {*part.kernels, *(f"{name}_kernel" for name in part.kernels)}
        found = [k for k in self.diagnosis.kernels if k.kernel in names] if self.diagnosis else []
        return max(found, key=lambda k: k.share, default=None)


def predicted_gain(base: Base, file: Written, option: Alternative) -> float:
    """How many times faster the option should be.

    What is written otherwise around the same operator is scaled by how far the estimate of that group was
    from what was seen of it: estimates of the same work err alike.
    """
    own: dict[str, tuple[Part, Cost, float]] = {}
    pairs = zip(base.structure.groups, base.structure.parts, base.known, base.estimated, strict=True)
    for group, part, known, guess in pairs:
        if not PATTERNS[group.pattern].fallback:
            own[PATTERNS.anchor_value(group)] = part, known, known.device / max(guess.device, 1e-9)
    after: list[Cost] = []
    other, relief = file.structure, option.relief or {}
    guesses = costs(other, base.gpu, base.grades)
    for group, part, guess in zip(other.groups, other.parts, guesses, strict=True):
        place = PATTERNS.anchor_value(group)
        if PATTERNS[group.pattern].fallback or place not in own:
            after.append(guess)
            continue
        before, known, bias = own[place]
        same = before.kernels == part.kernels and before.constants == part.constants
        device = known.device if same else guess.device * bias / relief.get(place, 1.0)
        after.append(Cost(device, guess.host))
    return _total(base.known, base.file, base.gpu) / max(_total(after, file, base.gpu), 1e-9)


def sketched(
    base: Base, option: Alternative, settings: Mapping[str, Mapping[str, Setting]]
) -> Written | None:
    """The base with only the groups written anew that an option means: enough for a price, no file.

    ``None`` for options that change which operator is in which group. ``settings``: the base's, by group.
    """
    sets = [move for move in option.moves if isinstance(move, Set)]
    of_all = [move for move in sets if move.group == SETTINGS]
    if len(sets) < len(option.moves) or any(move.name != "replay" for move in of_all):
        return None
    structure = base.structure
    if len(of_all) == len(sets):
        pairs = list(zip(structure.groups, structure.parts, strict=True))
        replays = decided(structure.graph, pairs, base.gpu, True).replays
        return replace(base.file, replays=replays)
    parts = list(structure.parts)
    for at, group in enumerate(structure.groups):
        own = {move.name: move.value for move in sets if move.group == group.name}
        if own:
            graded = {"grade": base.grades[group.pattern]} if group.pattern in base.grades else {}
            target = Target(base.gpu, {**graded, **settings.get(group.name, {}), **own})
            parts[at] = PATTERNS[group.pattern].write(structure.graph, group, target)
    return replace(base.file, structure=replace(structure, parts=tuple(parts)))


def forward_seconds(base: Base) -> float:
    """Of one forward, as seen or else as estimated."""
    return _total(base.known, base.file, base.gpu)


def _total(each: Iterable[Cost], file: Written, gpu: Gpu) -> float:
    return total(each, replaying(file.structure, gpu) if file.replays else None)


# -- what could be otherwise --------------------------------------------------------------------------


def options(base: Base, library: bool) -> Iterator[Alternative]:
    """Other ways for the groups of ``base``; ``library``: whether calls of libraries are allowed."""
    if library:
        yield from _by_the_library(base)
    if not base.file.replays and sum(len(part.launches) for part in base.structure.parts) >= FEWEST:
        yield REPLAYED
    for share, group, part in heaviest(base):
        if share < HEAVY:
            break
        anchor, found = PATTERNS.anchor_of(group), base.bottleneck(part)
        yield from PATTERNS[group.pattern].alternatives(group, part, found)
        if anchor is not None and found is not None:
            yield from _relieved(base.structure, group, anchor, found)


REPLAYED = Alternative(
    Category.LAUNCH_REDUCTION,
    "the host takes longer to make the launches than the GPU to run them",
    "replay all launches as one CUDA graph",
    (Set(SETTINGS, "replay", True),),
    "launches at a microsecond each",
    ("graph-capture", "launch-reduction"),
)


def heaviest(base: Base) -> list[tuple[float, Group, Part]]:
    """Groups with kernels and their share of the time on the GPU; those that share a name are one."""
    weight: dict[str, float] = {}
    first: dict[str, tuple[Group, Part]] = {}
    for group, part, cost in zip(base.structure.groups, base.structure.parts, base.known, strict=True):
        weight[group.name] = weight.get(group.name, 0.0) + cost.device
        first.setdefault(group.name, (group, part))
    whole = sum(weight.values()) or 1.0
    ranked = sorted(weight, key=lambda name: -weight[name])
    ours = (name for name in ranked if not PATTERNS[first[name][0].pattern].fallback)
    return [(weight[name] / whole, *first[name]) for name in ours]


def _by_the_library(base: Base) -> Iterator[Alternative]:
    """For each pattern: the groups that the library should compute faster, together."""
    graph = base.structure.graph
    for pattern in PATTERNS.anchored:
        if pattern.left is None:
            continue
        worth: dict[str, list[str]] = {}
        every = 0
        for group, cost in zip(base.structure.groups, base.known, strict=True):
            if group.pattern != pattern.name:
                continue
            every += 1
            library = by_the_library(graph, group, base.gpu, base.grades)
            if library is not None and library.device < cost.device:
                worth.setdefault(group.name, []).append(PATTERNS.anchor_value(group))
        if worth:
            ours = [name for names in worth.values() for name in names]
            all_of_them = (Without(pattern.name),)
            yield Alternative(
                Category.ALGORITHM_REPLACEMENT,
                pattern.left.against,
                pattern.left.sentence.format(", ".join(worth)),
                all_of_them if len(ours) == every else tuple(Without(pattern.name, name) for name in ours),
                "the library's algorithm and one more pass over its result",
                pattern.left.skills,
            )


def _relieved(structure: Structure, group: Group, anchor: Node, found: Bottleneck) -> Iterator[Alternative]:
    """A tail that crowds out the accumulators goes into a pass of its own."""
    tail = [node for node in group.nodes if node is not anchor and node.op not in FREE]
    if found.limiter in CROWDED and found.gain > LEAST_GAIN and tail:
        places = [PATTERNS.anchor_value(other) for other in structure.groups if other.name == group.name]
        yield Alternative(
            Category.KERNEL_SPLIT,
            "what follows the product holds registers that its accumulators need",
            f"{group.name}: the product alone, what follows it in a pass of its own",
            tuple(Alone(group.pattern, place) for place in places),
            "fewer registers per program, one more pass over the result",
            ("redundant-work-removal",),
            {place: max(1.0, found.gain) ** BELIEVED for place in places},
        )


def worth_trying(priced: Iterable[tuple[float, Alternative]]) -> list[tuple[float, Alternative]]:
    """Those that promise enough, the most first."""
    return sorted((p for p in priced if p[0] >= LEAST_GAIN), key=lambda p: -p[0])

"""What is changed after a refusal: the next more careful way to write the same program.

A ladder without memory. Its rungs are given by the refusal and by the recipe that was refused, mildest first;
rungs that change nothing are passed over, and so are files that were refused before. So every repair leaves
less to go wrong, and the ladder has an end: all but one group left to PyTorch.

Where the evidence names the place (a function, a line of ``forward``), only the group there is written more
carefully. An error in accuracy is mended by finer products, of convolutions first: PyTorch runs most, but not
all of them in TF32.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from egg.core.evaluation import Refusal
from egg.core.source import Candidate
from egg.expert.assemble import NothingToWrite, Written
from egg.expert.deciding.estimate import operations
from egg.expert.deciding.options import anchor_of
from egg.expert.fusion.choices import FREE, Structure
from egg.expert.fusion.structure import ANCHORS
from egg.expert.moves import Alone, Grade, Move, Recipe, Set, Without
from egg.expert.parts import Group, Unfit
from egg.expert.writing.replay import SETTINGS

PATTERNS = ("convolution", "attention", "recurrent", "product")
"""In the order in which they are given up."""
FINENESS = ("tf32", "fp32", "tf32x3", "ieee")
"""Grades, the coarsest first."""
INEXACT = 5e-3
"""Relative error up to which a result is inexact; beyond it, it is wrong."""
SLIGHT = 4.0
"""Times the allowed error up to which a few finer convolutions may be enough."""
LIGHT = 0.34
"""Share of the convolutions' operations that those few may have."""
CROWDING = frozenset({"limits.timeout", "limits.memory"})
"""Too much of something: more kernels with less in each would not help."""

Write = Callable[[Recipe], Written]


@dataclass(frozen=True)
class Mend:
    """Moves, and the sentence that explains them."""

    moves: tuple[Move, ...]
    sentence: str


def mended(
    recipe: Recipe, refusal: Refusal, tried: Collection[str], write: Write, library: bool
) -> tuple[Recipe, Mend] | None:
    """The next recipe and what is different in it; ``None`` at the ladder's end.

    ``tried``: hashes of files that were refused; ``library``: whether calls of libraries are allowed.
    """
    try:
        written = write(recipe)
    except (NothingToWrite, Unfit):
        return None
    for mend in _rungs(recipe, refusal, written):
        after = recipe.after(*mend.moves)
        if after == recipe:
            continue
        try:
            file = write(after)
        except (NothingToWrite, Unfit):
            continue
        if file.source == written.source or Candidate(file.source).hash in tried:
            continue
        if file.structure.left_to_pytorch and not library:
            continue
        return after, mend
    return None


def _rungs(recipe: Recipe, refusal: Refusal, written: Written) -> Iterator[Mend]:
    if inexact(refusal):
        yield from _finer(recipe, refusal, written.structure)
    elif _remembers(refusal):
        yield from _forgetful(written)
    elif group := located(refusal, written):
        yield from _group_alone(group, written.structure)
    yield from _simpler(refusal, written.structure)
    yield from _all_but_one(written.structure)


# -- accuracy ------------------------------------------------------------------------------------------


def inexact(refusal: Refusal) -> bool:
    """Whether a result was compared and found near, but not near enough."""
    found = re.search(r"relative rms error ([\d.e+-]+)", refusal.evidence)
    return found is not None and refusal.reason.startswith(("correctness.", "state.")) and (
        float(found[1].rstrip(".")) <= INEXACT
    )  # fmt: skip


def _finer(recipe: Recipe, refusal: Refusal, structure: Structure) -> Iterator[Mend]:
    if sums := _amplified_sums(structure):
        yield Mend(_left(sums), "exponentials follow cumulative sums: PyTorch's own are rounded as there")
    if slight := _light_convolutions(refusal, structure):
        yield Mend(
            tuple(Set(name, "grade", "fp32") for name in slight if not _set(recipe, name)),
            f"the reference runs some convolutions in fp32: {', '.join(slight)} with split operands",
        )
    for grade, told in (
        ("fp32", "the reference's convolutions run in fp32 here: split operands instead of one TF32 product"),
        ("ieee", "convolutions on ordinary units"),
    ):
        if _coarser(recipe, structure, "convolution", grade):
            yield Mend((Grade("convolution", grade), *_regraded(recipe, structure, grade)), told)
        if grade == "fp32" and _coarser(recipe, structure, "product", "tf32x3"):
            yield Mend((Grade("product", "tf32x3"),), "products in three TF32 parts, without packing")
    if _coarser(recipe, structure, "product", "ieee"):
        yield Mend((Grade("product", "ieee"),), "products on ordinary units")


def _amplified_sums(structure: Structure) -> list[Group]:
    """Cumulative sums in a program that takes exponentials.

    ``exp`` of a sum near 40 turns its last bit into a relative error of 4e-6, more than the judge allows
    where the reference was lucky; only the same order of summation has the same luck.
    """
    if not any(node.op == "pointwise" and node.get("fn") == "exp" for node in structure.graph.nodes):
        return []
    return [
        group
        for group in structure.groups
        if group.pattern == "loops" and any(n.op == "scan" and n["fn"] == "sum" for n in group.nodes)
    ]


def _light_convolutions(refusal: Refusal, structure: Structure) -> tuple[str, ...]:
    """Names of the groups with the least work, where a slight error leaves the choice."""
    times = [float(number) for number in re.findall(r"([\d.]+)x the allowed", refusal.evidence)]
    if not times or max(times) > SLIGHT:
        return ()
    work: dict[str, float] = {}
    for group in structure.groups:
        for node in group.nodes if group.pattern == "convolution" else ():
            if node.op == "conv":
                work[group.name] = work.get(group.name, 0.0) + operations(structure.graph, node)
    light: list[str] = []
    left = LIGHT * sum(work.values())
    for name in sorted(work, key=lambda name: work[name]):
        left -= work[name]
        if left < 0:
            break
        light.append(name)
    return tuple(light)


def _set(recipe: Recipe, group: str) -> bool:
    return "grade" in recipe.settings.get(group, {})


def _regraded(recipe: Recipe, structure: Structure, grade: str) -> tuple[Move, ...]:
    """What was set for single groups follows."""
    names = dict.fromkeys(g.name for g in structure.groups if g.pattern == "convolution")
    return tuple(Set(name, "grade", grade) for name in names if _set(recipe, name))


def _coarser(recipe: Recipe, structure: Structure, pattern: str, grade: str) -> bool:
    """Whether the pattern is there and not as fine as that."""
    now = recipe.grades.get(pattern, "tf32" if pattern == "convolution" else "fp32")
    fineness = FINENESS.index(now) if now in FINENESS else 0
    return any(g.pattern == pattern for g in structure.groups) and fineness < FINENESS.index(grade)


# -- what is kept between calls ------------------------------------------------------------------------


def _remembers(refusal: Refusal) -> bool:
    """Whether a call saw something of an earlier one, or could not be recorded."""
    return refusal.reason.startswith("state.") or "captur" in refusal.evidence


def _forgetful(written: Written) -> Iterator[Mend]:
    if written.replays:
        yield Mend((Set(SETTINGS, "replay", False),), "every call makes its own launches")
    names = dict.fromkeys(g.name for g in written.structure.groups if g.pattern in PATTERNS)
    yield Mend(tuple(Set(name, "keep", False) for name in names), "no packed weight is kept between calls")


# -- what does not work --------------------------------------------------------------------------------


def located(refusal: Refusal, written: Written) -> Group | None:
    """The group that the evidence points at: by a kernel's name, or by the launch at a line of it."""
    by_kernel: dict[str, Group] = {}
    for group, part in zip(written.structure.groups, written.structure.parts, strict=True):
        for name in (*part.kernels, *part.helpers):
            if name.startswith(group.name) or group.name in name:
                by_kernel.setdefault(name, group)
                by_kernel.setdefault(f"{name}_kernel", group)
    lines = written.source.splitlines()
    if at := re.match(r"line (\d+) in (\w+)", refusal.evidence):
        if at[2] in by_kernel:
            return by_kernel[at[2]]
        for line in reversed(lines[: int(at[1])]):
            launch = re.match(r"\s*(?:\w+ = )?(\w+)[\[(]", line)
            if launch and launch[1] in by_kernel:
                return by_kernel[launch[1]]
            if line.lstrip().startswith("def "):
                break
    named = [name for name in by_kernel if re.search(rf"\b{name}\b", refusal.evidence)]
    return by_kernel[max(named, key=len)] if named else None


def _group_alone(group: Group, structure: Structure) -> Iterator[Mend]:
    """The group, and those that are the same: nothing rides on it; then PyTorch has it."""
    alike = [other for other in structure.groups if other.name == group.name]
    if group.pattern == "recurrent":
        yield Mend((Set(group.name, "mode", "steps"),), f"each step of {group.name} is a launch of its own")
    if group.pattern in PATTERNS:
        places = [anchor_of(other) for other in alike]
        if sum(node.op not in FREE for node in group.nodes) > 1:
            yield Mend(
                tuple(Alone(group.pattern, place) for place in places), f"nothing rides on {group.name}"
            )
        left = tuple(Without(group.pattern, place) for place in places)
        yield Mend(left, f"{group.name} stays with PyTorch")
    elif group.pattern == "loops":
        yield Mend(_left(alike), f"{group.name} stays with PyTorch")


def _left(groups: Sequence[Group]) -> tuple[Move, ...]:
    """PyTorch has these loops; what is free goes where it is read."""
    made = (
        node.outputs[0] for group in groups for node in group.nodes if node.outputs and node.op not in FREE
    )
    return tuple(Without("loops", name) for name in made)


def _simpler(refusal: Refusal, structure: Structure) -> Iterator[Mend]:
    kernels: dict[str, int] = {}
    for group, part in zip(structure.groups, structure.parts, strict=True):
        if group.pattern in PATTERNS:
            kernels[group.pattern] = kernels.get(group.pattern, 0) + len(part.kernels)
    used = [pattern for pattern in PATTERNS if pattern in kernels]
    crowded = refusal.reason in CROWDING
    if "recurrent" in used:  # programs that wait for each other may wait for ever
        names = dict.fromkeys(group.name for group in structure.groups if group.pattern == "recurrent")
        steps = tuple(Set(name, "mode", "steps") for name in names)
        yield Mend(steps, "each step of a recurrent layer is a launch of its own")
    if used and not crowded and not inexact(refusal):
        told = "nothing rides on products, convolutions and attention"
        yield Mend(tuple(Alone(pattern) for pattern in used), told)
    for pattern in sorted(used, key=lambda p: -kernels[p]) if crowded else used:
        yield Mend((Without(pattern),), f"what {pattern} would write stays with PyTorch")


def _all_but_one(structure: Structure) -> Iterator[Mend]:
    """One pass over memory is ours, the rest PyTorch's; the larger ones first."""
    loops = [group for group in structure.groups if group.pattern == "loops"]
    anchors = tuple(Without(patterns[0]) for patterns in ANCHORS.values())
    for kept in sorted(loops, key=lambda group: -len(group.nodes)):
        others = [group for group in loops if group is not kept]
        yield Mend((*anchors, *_left(others)), f"only {kept.name} is ours")

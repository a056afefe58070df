"""What is changed after a refusal: the next more careful way to write the same program.

A ladder without memory. Its rungs are given by the refusal and by the recipe that was refused, mildest first;
rungs that change nothing are passed over, and so are files that were refused before. So every repair leaves
less to go wrong, and the ladder has an end: all but one group left to PyTorch.

Where the evidence names the place (a function, a line of ``forward``), only the group there is written more
carefully. An error in accuracy is repaired by finer products, of convolutions first: PyTorch runs most of
them in TF32, but not all. Those that the library computes with the channels last get the reference's layout
before that: the library chooses by shape and layout which of them it runs in TF32.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from itertools import zip_longest

from egg.core.evaluation import Refusal
from egg.core.source import Candidate
from egg.expert.assemble import CHANNELS_LAST, NothingToWrite, Written
from egg.expert.deciding.evidence import facts_of, inexact, remembers
from egg.expert.fusion.choices import Structure
from egg.expert.moves import Alone, Grade, Move, Recipe, Set, Without
from egg.expert.parts import Group, Unfit
from egg.expert.pattern import FREE, Pattern, Refused, Repair, Symptom, left_to_pytorch
from egg.expert.patterns import PATTERNS
from egg.expert.writing.replay import SETTINGS

GIVEN_UP = tuple(sorted(PATTERNS.anchored, key=lambda pattern: pattern.keeps))
"""Patterns in the order in which they are given up."""
FINENESS = ("tf32", "fp32", "tf32x3", "ieee")
"""Grades, the coarsest first."""
CROWDING = frozenset({"limits.timeout", "limits.memory"})
"""Too much of something: more kernels with less in each would not help."""

Write = Callable[[Recipe], Written]


def repaired(
    recipe: Recipe, refusal: Refusal, tried: Collection[str], write: Write, library: bool
) -> tuple[Recipe, Repair] | None:
    """The next recipe and what is different in it; ``None`` at the ladder's end.

    ``tried``: hashes of files that were refused; ``library``: whether calls of libraries are allowed.
    """
    try:
        written = write(recipe)
    except (NothingToWrite, Unfit):
        return None
    for repair in candidates(recipe, refusal, written):
        after = recipe.after(*repair.moves)
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
        return after, repair
    return None


def candidates(recipe: Recipe, refusal: Refusal, written: Written) -> Iterator[Repair]:
    if inexact(refusal):
        yield from _finer(recipe, refusal, written.structure)
    elif remembers(refusal):
        yield from _nothing_kept(written)
    elif group := located(refusal, written):
        yield from _group_alone(group, recipe, written.structure)
    yield from _simpler(refusal, recipe, written.structure)
    yield from _all_but_one(written.structure)


# -- accuracy ------------------------------------------------------------------------------------------


def _finer(recipe: Recipe, refusal: Refusal, structure: Structure) -> Iterator[Repair]:
    """The library's convolutions as the reference calls them; what patterns know to be rounded otherwise;
    then finer products, each pattern's mildest first."""
    if _lays_singles_out(structure):
        sentence = "fp32 convolutions of the library in the reference's layout, by which it chooses TF32"
        yield Repair((Set(SETTINGS, CHANNELS_LAST, False),), sentence)
    refused = Refused(Symptom.INEXACT, recipe, facts_of(refusal).excess)
    for pattern in PATTERNS.values():
        yield from pattern.repairs(structure.graph, _written_by(pattern, structure), refused)
    for finer in zip_longest(*([(p, step) for step in p.finer] for p in PATTERNS.values())):
        for pattern, step in filter(None, finer):
            if _coarser(recipe, structure, pattern, step.grade):
                moves = (Grade(pattern.name, step.grade), *_regraded(recipe, structure, pattern, step.grade))
                yield Repair(moves, step.sentence)


def _lays_singles_out(structure: Structure) -> bool:
    """Whether the library has fp32 convolutions whose results have the channels last."""
    fallback = [group for group in structure.groups if PATTERNS[group.pattern].fallback]
    made = (structure.graph.result(node) for group in fallback for node in group.nodes if node.op == "conv")
    return any(value.dtype == "float32" and not value.contiguous for value in made)


def _written_by(pattern: Pattern, structure: Structure) -> list[Group]:
    return [group for group in structure.groups if group.pattern == pattern.name]


def _set(recipe: Recipe, group: str) -> bool:
    return "grade" in recipe.settings.get(group, {})


def _regraded(recipe: Recipe, structure: Structure, pattern: Pattern, grade: str) -> tuple[Move, ...]:
    """What was set for single groups follows."""
    names = dict.fromkeys(group.name for group in _written_by(pattern, structure))
    return tuple(Set(name, "grade", grade) for name in names if _set(recipe, name))


def _coarser(recipe: Recipe, structure: Structure, pattern: Pattern, grade: str) -> bool:
    """Whether the pattern is there and not as fine as that."""
    now = recipe.grades.get(pattern.name, pattern.grade)
    fineness = FINENESS.index(now) if now in FINENESS else 0
    return bool(_written_by(pattern, structure)) and fineness < FINENESS.index(grade)


# -- what is kept between calls ------------------------------------------------------------------------


def _nothing_kept(written: Written) -> Iterator[Repair]:
    if written.replays:
        yield Repair((Set(SETTINGS, "replay", False),), "every call makes its own launches")
    names = dict.fromkeys(g.name for g in written.structure.groups if PATTERNS[g.pattern].anchors)
    yield Repair(tuple(Set(name, "keep", False) for name in names), "no packed weight is kept between calls")


# -- what does not work --------------------------------------------------------------------------------


def located(refusal: Refusal, written: Written) -> Group | None:
    """The group that the evidence points at: by a kernel's name, or by the launch at a line of it."""
    by_kernel: dict[str, Group] = {}
    for group, part in zip(written.structure.groups, written.structure.parts, strict=True):
        for name in (*part.launched, *part.functions):
            by_kernel.setdefault(name, group)
            by_kernel.setdefault(f"{name}_kernel", group)
    seen = facts_of(refusal)
    if seen.function in by_kernel:
        return by_kernel[seen.function]
    if launched := _launched_before(written.source, seen.line, by_kernel):
        return by_kernel[launched]
    named = [name for name in by_kernel if name in seen.functions]
    return by_kernel[max(named, key=len)] if named else None


def _launched_before(source: str, line: int | None, known: Collection[str]) -> str | None:
    """The function of the file that is called or launched at a line, or last before it."""
    if line is None:
        return None
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    around = [node for node in functions if node.lineno <= line <= (node.end_lineno or node.lineno)]
    calls = [node for node in ast.walk(around[-1]) if isinstance(node, ast.Call)] if around else []
    found = {node.lineno: name for node in calls if (name := _called(node)) in known and node.lineno <= line}
    return found[max(found)] if found else None


def _called(call: ast.Call) -> str:
    """The name of a function that is called, or of a kernel that is launched."""
    match call.func:
        case ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name)):
            return name
    return ""


def _group_alone(group: Group, recipe: Recipe, structure: Structure) -> Iterator[Repair]:
    """The group, and those that are the same: nothing rides on it; then PyTorch has it."""
    alike = [other for other in structure.groups if other.name == group.name]
    pattern = PATTERNS[group.pattern]
    yield from pattern.repairs(structure.graph, alike, Refused(Symptom.FAILING, recipe, located=True))
    if pattern.anchors:
        places = [PATTERNS.anchor_value(other) for other in alike]
        if sum(node.op not in FREE for node in group.nodes) > 1:
            yield Repair(
                tuple(Alone(group.pattern, place) for place in places), f"nothing rides on {group.name}"
            )
        left = tuple(Without(group.pattern, place) for place in places)
        yield Repair(left, f"{group.name} {_left_to(pattern)}")
    elif pattern.streams:
        yield Repair(left_to_pytorch(alike), f"{group.name} stays with PyTorch")


def _simpler(refusal: Refusal, recipe: Recipe, structure: Structure) -> Iterator[Repair]:
    kernels: dict[str, int] = {}
    for group, part in zip(structure.groups, structure.parts, strict=True):
        kernels[group.pattern] = kernels.get(group.pattern, 0) + len(part.kernels)
    used = [pattern for pattern in GIVEN_UP if pattern.name in kernels]
    crowded = refusal.reason in CROWDING
    for pattern in used:
        groups = _written_by(pattern, structure)
        yield from pattern.repairs(structure.graph, groups, Refused(Symptom.FAILING, recipe))
    if used and not crowded and not inexact(refusal):
        sentence = "nothing rides on products, convolutions and attention"
        yield Repair(tuple(Alone(pattern.name) for pattern in used), sentence)
    for pattern in sorted(used, key=lambda p: -kernels[p.name]) if crowded else used:
        yield Repair((Without(pattern.name),), f"what {pattern.name} would write {_left_to(pattern)}")


def _left_to(pattern: Pattern) -> str:
    return "becomes a plain pass over memory" if pattern.leaves_passes else "stays with PyTorch"


def _all_but_one(structure: Structure) -> Iterator[Repair]:
    """One pass over memory is ours, the rest PyTorch's; the larger ones first."""
    passes = _written_by(PATTERNS.streaming, structure)
    anchors = tuple(Without(pattern.name) for pattern in PATTERNS.anchored)
    anchors += tuple(
        Without(PATTERNS.streaming.name, PATTERNS.anchor_value(group))
        for pattern in PATTERNS.anchored
        if pattern.leaves_passes
        for group in _written_by(pattern, structure)
    )
    for kept in sorted(passes, key=lambda group: -len(group.nodes)):
        others = [group for group in passes if group is not kept]
        yield Repair((*anchors, *left_to_pytorch(others)), f"only {kept.name} is ours")

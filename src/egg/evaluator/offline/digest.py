"""A kernel's compiled code for a reader with little room: what it consists of, then its hottest loop.

The *hottest* loop is an estimate from the text alone: every loop is taken to go round ten times, so
that a loop's instructions count ten times as much with each loop that encloses them. A loop that only
waits (for a copy that is late) does not count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from egg.core.listing import SASS as SASS_LANGUAGE
from egg.core.listing import Listing
from egg.evaluator.offline.loops import AMDGCN, PTX, SASS, Loop, Syntax, loops
from egg.evaluator.offline.resources import SASS_KINDS

MOST_SHOWN = 24_000
"""Characters of a digest, where the caller has no limit of its own."""
TRIPS = 10
NEVER = "@!PT"
"""The predicate of instructions that are never executed; the assembler puts some between operations."""
OPCODES_SHOWN = 6
WORK = frozenset(SASS_KINDS) - {"spills", "barriers", "waits", "shuffles", "conversions"}
"""Kinds of which one at least makes a loop more than a wait."""
LOOP_SHARE, AROUND_SHARE = 0.55, 0.2
"""Of the room that is left: the loop, then the code around it; PTX has the rest."""

_PTX_KINDS = {
    "tensor cores": r"wgmma\.mma_async|mma\.|tcgen05\.mma",
    "global loads": r"ld\.global",
    "global stores": r"st\.global",
    "asynchronous copies": r"cp\.async\.(?!commit|wait|bulk\.commit|bulk\.wait)",
    "shared loads": r"ld\.shared|ldmatrix",
    "shared stores": r"st\.shared|stmatrix",
    "spills": r"ld\.local|st\.local",
    "barriers": r"bar\.|barrier\.",
    "waits": r"cp\.async\.(?:bulk\.)?wait|mbarrier|wgmma\.(?:wait|fence|commit)|fence|membar",
    "atomics": r"atom\.|red\.",
    "shuffles": r"shfl\.|redux\.",
    "special functions": r"(?:ex2|lg2|rcp|rsqrt|sqrt|sin|cos|tanh)\.",
    "arithmetic": r"(?:fma|add|sub|mul)\.(?:\w+\.)*(?:f|bf)\d+",
    "conversions": r"cvt\.",
}
_AMD_KINDS = {
    "tensor cores": r"v_(?:mfma|smfmac|wmma|swmmac)_",
    "global loads": r"(?:global|buffer|flat)_load_(?!lds)",
    "global stores": r"(?:global|buffer|flat)_store_",
    "asynchronous copies": r"(?:global|buffer)_load_lds_",
    "shared loads": r"ds_(?:read|load)",
    "shared stores": r"ds_(?:write|store)",
    "spills": r"scratch_",
    "barriers": r"s_barrier",
    "waits": r"s_wait",
    "atomics": r"(?:global|buffer|flat)_atomic",
    "shuffles": r"ds_(?:bpermute|permute|swizzle)_|v_permlane",
    "special functions": r"v_(?:exp|log|rcp|rsq|sqrt|sin|cos)_",
    "arithmetic": r"v_(?:pk_)?(?:fmac?|add|sub|mul|mad|mac)_f",
    "conversions": r"v_cvt_",
}
_LINE = re.compile(r'//## File "[^"]*", line (\d+)')
_LOC = re.compile(r"\s*\.loc\s+\d+\s+(\d+)")
_PADDING = re.compile(r"\s+")


@dataclass(frozen=True)
class Language:
    """An assembly language: how it is written, and what its opcodes do."""

    name: str
    syntax: Syntax
    kinds: Mapping[str, re.Pattern[str]]


def _compiled(kinds: Mapping[str, str]) -> Mapping[str, re.Pattern[str]]:
    return MappingProxyType({kind: re.compile(pattern) for kind, pattern in kinds.items()})


IN_SASS = Language("SASS", SASS, SASS_KINDS)
IN_PTX = Language("PTX", PTX, _compiled(_PTX_KINDS))
IN_AMDGCN = Language("AMDGCN", AMDGCN, _compiled(_AMD_KINDS))


@dataclass(frozen=True)
class Instruction:
    """One instruction: where it stands in the text, and the line of the source that it comes from."""

    number: int
    source: int
    """0 where that is not known."""
    opcode: str
    text: str
    loops: int = 0


def instructions(text: str, language: Language) -> list[Instruction]:
    """In the order of the text, without what fills space."""
    found: list[Instruction] = []
    source = 0
    for number, line in enumerate(text.splitlines()):
        if marked := _LINE.search(line) or _LOC.match(line):
            source = int(marked.group(1))
        elif (seen := language.syntax.instruction.search(line)) and (
            seen.group(2) not in language.syntax.ignored
        ):
            predicate, opcode, operands = (part or "" for part in seen.groups())
            if predicate.strip() == NEVER:
                continue
            written = _PADDING.sub(" ", f"{predicate}{opcode} {operands}").strip()
            found.append(Instruction(number, source, opcode, written))
    return found


def digest(listing: Listing, target: str, most: int = MOST_SHOWN) -> str:
    """A listing in at most about ``most`` characters, what matters most first."""
    language = IN_PTX if not listing.code else IN_SASS if listing.language == SASS_LANGUAGE else IN_AMDGCN
    text = listing.code or listing.ptx
    every = instructions(text, language)
    hot = hottest(every, loops(text, language.syntax), language)
    lines = [*_head(listing, target, language, every), *_about(hot, language)]
    room = most - sum(len(line) + 1 for line in lines)
    for title, code, share in _parts(listing, language, every, hot):
        shown = [title, *_cut([_written(one) for one in code], int(room * share))]
        room -= sum(len(line) + 1 for line in shown)
        lines += ["", *shown]
    return "\n".join(lines)


def hottest(
    every: Sequence[Instruction], found: Sequence[Loop], language: Language
) -> tuple[int, list[Instruction]]:
    """Depth and instructions of the loop that takes most of the time, as far as the text says; 0 and none."""
    by_line = {one.number: one for one in every}
    best: tuple[float, int, list[Instruction]] = (0.0, 0, [])
    for loop in found:
        body = [by_line[line] for line in loop.lines if line in by_line]
        counts = _kinds(body, language)
        weight = float(len(body) * TRIPS**loop.depth) if any(counts.get(kind) for kind in WORK) else 0.0
        best = max(best, (weight, loop.depth, body), key=lambda one: one[0])
    return best[1], best[2]


def _head(listing: Listing, target: str, language: Language, every: Sequence[Instruction]) -> Iterator[str]:
    row = listing.resources
    several = (
        f", specialisation {listing.specialisation} of {listing.specialisations} "
        f"(`{listing.kernel}:2` is the second)"
        if listing.specialisations > 1
        else ""
    )
    yield (
        f"{listing.kernel} for {target}{several}: grid {' x '.join(map(str, row.grid))}, "
        f"{row.launches} launches, {row.num_warps} warps, {row.num_stages} stages, "
        f"{row.registers} registers, {row.spill_bytes} spill bytes, {row.shared_bytes} bytes of shared memory"
    )
    missing = "" if listing.code else " (no disassembler is here, so there is no machine code)"
    yield f"{language.name}{missing}: {len(every)} instructions"
    yield from _counted(every, language)


def _about(hot: tuple[int, list[Instruction]], language: Language) -> Iterator[str]:
    depth, body = hot
    if not body:
        yield "No loop."
        return
    sources = sorted({one.source for one in body if one.source})
    where = f", from lines {sources[0]} to {sources[-1]} of the file" if sources else ""
    yield (
        f"Hottest loop, by depth and length of the code (nothing was executed): {len(body)} instructions at "
        f"depth {depth}{where}"
    )
    yield from _counted(body, language)


def _parts(
    listing: Listing, language: Language, every: Sequence[Instruction], hot: tuple[int, list[Instruction]]
) -> Iterator[tuple[str, Sequence[Instruction], float]]:
    """The loop, what lies around it, and the same loop in PTX; with the share of the room for each."""
    body = hot[1]
    inside = {one.number for one in body}
    around = [one for one in every if one.number not in inside]
    if body:
        yield f"{language.name} of that loop (line of the file | instruction):", body, LOOP_SHARE
        yield f"{language.name} outside that loop:", around, AROUND_SHARE
    else:
        yield f"{language.name} (line of the file | instruction):", around, LOOP_SHARE
    if not listing.code or not listing.ptx:
        return
    ptx = instructions(listing.ptx, IN_PTX)
    in_ptx = hottest(ptx, loops(listing.ptx, PTX), IN_PTX)[1]
    title = f"PTX of its hottest loop ({len(in_ptx)} instructions):" if in_ptx else "PTX:"
    yield title, in_ptx or ptx, 1.0


def _kinds(code: Sequence[Instruction], language: Language) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for one in code:
        kind = next((kind for kind, pattern in language.kinds.items() if pattern.match(one.opcode)), None)
        if kind is not None:
            found.setdefault(kind, Counter())[one.opcode] += 1
    return found


def _counted(code: Sequence[Instruction], language: Language) -> Iterator[str]:
    """A line for each kind, with its opcodes: their suffixes hold widths and shapes."""
    found = _kinds(code, language)
    for kind in language.kinds:
        if kind not in found:
            continue
        opcodes = found[kind].most_common()
        shown = ", ".join(f"{opcode} {count}" for opcode, count in opcodes[:OPCODES_SHOWN])
        more = f" and {len(opcodes) - OPCODES_SHOWN} other opcodes" if len(opcodes) > OPCODES_SHOWN else ""
        yield f"- {kind} {found[kind].total()}: {shown}{more}"
    rest = len(code) - sum(counts.total() for counts in found.values())
    yield f"- addresses, moves and control {rest}"
    if "spills" not in found:
        yield "- spills 0"


def _written(one: Instruction) -> str:
    return f"{one.source or '':>4} | {one.text}"


def _cut(lines: Sequence[str], room: int) -> list[str]:
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            return [*kept, f"[... {len(lines) - len(kept)} more]"]
        kept.append(line)
    return kept

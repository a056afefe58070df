"""Loops of a kernel, read from the text of its machine code or of its PTX.

An instruction is in a loop if the flow of control can come back to it. A branch backwards alone does
not say so: the compiler moves what is seldom executed, such as waiting once more for a copy that is
late, behind the end of the kernel and branches back from there. So the text is cut into blocks that
run from a label or a branch to the next one, and those that can reach themselves are looked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

MOST_NESTED = 16
"""Depth of nested loops that is looked at."""


@dataclass(frozen=True)
class Syntax:
    """How an assembly language writes labels, instructions and branches."""

    label: re.Pattern[str]
    instruction: re.Pattern[str]
    """Its groups: the predicate, the opcode, the operands."""
    target: re.Pattern[str]
    """A label among the operands."""
    ending: frozenset[str]
    """What may go on elsewhere than with the next instruction."""
    ignored: frozenset[str] = frozenset()
    """Opcodes that fill space."""

    def ends(self, opcode: str) -> bool:
        return opcode.partition(".")[0] in self.ending


SASS = Syntax(
    label=re.compile(r"\s*(\.L_\w+):"),
    instruction=re.compile(r"/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*)"),
    target=re.compile(r"`\((\.L_\w+)\)"),
    ending=frozenset(("BRA", "BRX", "CALL", "EXIT", "JMP", "RET")),
    ignored=frozenset(("NOP",)),
)
"""NVIDIA's machine code, as its disassembler prints it."""
PTX = Syntax(
    label=re.compile(r"\s*(\$L__BB\w+):"),
    instruction=re.compile(r"^\s+(@!?%p\w+\s+)?([a-z][\w.:]*)(?![\w.:])([^;]*);"),
    target=re.compile(r"(\$L__BB\w+)"),
    ending=frozenset(("bra", "brx", "exit", "ret", "trap")),
)
AMDGCN = Syntax(
    label=re.compile(r"\s*(\.LBB\w+):"),
    instruction=re.compile(r"^\s+()([a-z]+_\w+)([^;]*)"),
    target=re.compile(r"(\.LBB\w+)"),
    ending=frozenset(("s_branch", "s_setpc_b64", "s_endpgm"))
    | {f"s_cbranch_{on}" for on in ("scc0", "scc1", "vccz", "vccnz", "execz", "execnz")},
    ignored=frozenset(("s_nop", "s_code_end")),
)


@dataclass(frozen=True)
class Loop:
    """One loop: how many loops it lies in, itself included, and its lines by number, in their order."""

    depth: int
    lines: tuple[int, ...]


@dataclass
class _Block:
    lines: list[int] = field(default_factory=list)
    target: str = ""
    falls_through: bool = True
    following: list[int] = field(default_factory=list)


def looped_instructions(disassembly: str) -> int:
    """How many instructions can be come back to, ``NOP`` not counted.

    Functions that are called are not followed; a call of a label within the kernel is a branch by
    another name. The compiler ends a kernel with a branch to itself, which is no loop.
    """
    return sum(len(loop.lines) for loop in loops(disassembly) if loop.depth == 1)


def loops(text: str, syntax: Syntax = SASS) -> list[Loop]:
    """All loops, an outer one before those inside it.

    Blocks that reach each other form a loop. What is still a loop without the branches back to the
    block by which it is entered lies inside it.
    """
    blocks = _flow(text, syntax)
    found = _nested([block.following for block in blocks], set(range(len(blocks))), 1)
    return [
        Loop(depth, tuple(line for i in sorted(nodes) for line in blocks[i].lines)) for depth, nodes in found
    ]


def _flow(text: str, syntax: Syntax) -> list[_Block]:
    """The blocks in the order of the text, each with the blocks that control may go to next."""
    blocks, labels = [_Block()], dict[str, int]()
    for number, line in enumerate(text.splitlines()):
        if label := syntax.label.match(line):
            blocks.append(_Block())
            labels[label.group(1)] = len(blocks) - 1
        elif (found := syntax.instruction.search(line)) and found.group(2) not in syntax.ignored:
            predicate, opcode, operands = found.groups()
            block = blocks[-1]
            block.lines.append(number)
            if not syntax.ends(opcode):
                continue
            name = opcode.partition(".")[0]
            target = syntax.target.search(operands)
            block.target = target.group(1) if target else ""
            # BRA.U UP0, `(.L_x_1) names its condition before the target
            conditional = "cbranch" in name or (name == "BRA" and "," in operands)
            block.falls_through = bool(predicate) or name == "CALL" or conditional
            blocks.append(_Block())
    for i, block in enumerate(blocks):
        if block.falls_through and i + 1 < len(blocks):
            block.following.append(i + 1)
        if block.target in labels:
            block.following.append(labels[block.target])
        if block.following == [i] and len(block.lines) == 1:
            block.following = []
    return blocks


def _nested(following: list[list[int]], nodes: set[int], depth: int) -> Iterator[tuple[int, set[int]]]:
    """The loops among ``nodes`` with their depth."""
    edges = [[t for t in targets if t in nodes] if i in nodes else [] for i, targets in enumerate(following)]
    for component in _cycles(edges):
        yield depth, component
        if depth == MOST_NESTED:
            continue
        outside = [t for i, targets in enumerate(following) if i not in component for t in targets]
        header = min(component & set(outside) or component)
        inner = [[t for t in targets if t != header] for targets in edges]
        yield from _nested(inner, component, depth + 1)


def _cycles(following: list[list[int]]) -> list[set[int]]:
    """The components of a graph whose nodes can reach themselves, by their first node.

    Nodes that reach each other form a component. Walking along the edges and noting each node when all
    that follows it is done, then walking against them in the reverse order, gathers one component a walk.
    """
    before: list[list[int]] = [[] for _ in following]
    for node, targets in enumerate(following):
        for target in targets:
            before[target].append(node)
    done: list[int] = []
    met: set[int] = set()
    for node in range(len(following)):
        done += _walk(node, following, met)
    met.clear()
    components = (set(_walk(node, before, met)) for node in reversed(done))
    cyclic = (c for c in components if len(c) > 1 or any(node in following[node] for node in c))
    return sorted(cyclic, key=min)


def _walk(start: int, edges: list[list[int]], met: set[int]) -> list[int]:
    """Everything that is reached from ``start`` and was not met before, each behind what it leads to."""
    if start in met:
        return []
    met.add(start)
    left: list[int] = []
    path = [(start, iter(edges[start]))]
    while path:
        node, rest = path[-1]
        onward = next((target for target in rest if target not in met), None)
        if onward is None:
            left.append(node)
            path.pop()
        else:
            met.add(onward)
            path.append((onward, iter(edges[onward])))
    return left

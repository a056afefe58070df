"""How much of a kernel's machine code lies in loops, read from NVIDIA's disassembly.

An instruction is in a loop if the flow of control can come back to it. A branch backwards alone does
not say so: the compiler moves what is seldom executed, such as waiting once more for a copy that is
late, behind the end of the kernel and branches back from there. So the text is cut into blocks that
run from a label or a branch to the next one, and those that can reach themselves are looked for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_LABEL = re.compile(r"\s*(\.L_\w+):")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)([^;]*)")
_TARGET = re.compile(r"`\((\.L_\w+)\)")
_ENDING = frozenset(("BRA", "BRX", "CALL", "EXIT", "JMP", "RET"))
"""What may go on elsewhere than with the next instruction."""


@dataclass
class _Block:
    instructions: int = 0
    target: str = ""
    falls_through: bool = True
    following: list[int] = field(default_factory=list)


def looped_instructions(disassembly: str) -> int:
    """How many instructions can be come back to, ``NOP`` not counted.

    Functions that are called are not followed; a call of a label within the kernel is a branch by
    another name. The compiler ends a kernel with a branch to itself, which is no loop.
    """
    blocks = _flow(disassembly)
    return sum(blocks[i].instructions for i in _on_cycles([block.following for block in blocks]))


def _flow(disassembly: str) -> list[_Block]:
    """The blocks in the order of the text, each with the blocks that control may go to next."""
    blocks, labels = [_Block()], dict[str, int]()
    for line in disassembly.splitlines():
        if label := _LABEL.match(line):
            blocks.append(_Block())
            labels[label.group(1)] = len(blocks) - 1
        elif (found := _INSTRUCTION.search(line)) and found.group(2) != "NOP":
            predicate, opcode, operands = found.groups()
            block = blocks[-1]
            block.instructions += 1
            name = opcode.partition(".")[0]
            if name not in _ENDING:
                continue
            target = _TARGET.search(operands)
            block.target = target.group(1) if target else ""
            # BRA.U UP0, `(.L_x_1) names its condition before the target
            block.falls_through = bool(predicate) or name == "CALL" or (name == "BRA" and "," in operands)
            blocks.append(_Block())
    for i, block in enumerate(blocks):
        if block.falls_through and i + 1 < len(blocks):
            block.following.append(i + 1)
        if block.target in labels:
            block.following.append(labels[block.target])
        if block.following == [i] and block.instructions == 1:
            block.following = []
    return blocks


def _on_cycles(following: list[list[int]]) -> set[int]:
    """The nodes of a graph that can reach themselves.

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
    components = (_walk(node, before, met) for node in reversed(done))
    return {
        node
        for component in components
        for node in component
        if len(component) > 1 or node in following[node]
    }


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

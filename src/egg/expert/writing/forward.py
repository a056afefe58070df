"""``ModelNew.forward``: the sizes it needs, then group after group, then the results in their form.

Groups come with their lines; here those that are not needed are left out, and library calls that follow each
other share one block.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from egg.expert.emit.layout import brought
from egg.expert.emit.names import words
from egg.expert.graph import Graph, Origin
from egg.expert.nesting import whole_text
from egg.expert.parts import Group, Part, Unfit, spelled
from egg.expert.reading.held import input_values
from egg.expert.reading.rows import attribute_text
from egg.expert.writing.breaking import LIMIT
from egg.expert.writing.domain import follows_inputs, written_inputs
from egg.expert.writing.heading import Parts, left_to_pytorch
from egg.expert.writing.layout import laid_out
from egg.expert.writing.repeats import LONGEST_COMMENT, rolled
from egg.expert.writing.slots import block_of

VIEWS = "Views of what is in memory."


def forward_lines(graph: Graph, parts: Parts) -> list[str]:
    """The body of the method, without the guard at its top."""
    live = _live_blocks(graph, parts)
    functions = (name for _, part in parts for name in (*part.kernels, *part.helpers))
    taken = {*graph.symbols, *(value.name for value in input_values(graph)), *functions}
    rows, names = rolled(live, _flat(graph.results), taken)
    blocks = [_brought(graph, live), _moved(graph, live), _sizes(graph, parts), *rows]
    lines: list[str] = []
    for place, block in enumerate(block for block in blocks if block):
        lines += block if place == 0 else ["", *block]
    if sum(map(bool, blocks)) > 1:
        lines.append("")
    result = block_of("", f"return {_returned(graph)}").renamed(names)
    return [*lines, *laid_out(result.text, 8)]


def _brought(graph: Graph, blocks: Iterable[tuple[str, list[str]]]) -> list[str]:
    """Arguments under the names of the graph, and lying in memory as kernels and calls take them to.

    A call with another layout pays for a copy; one with this layout for the question alone. What the program
    writes into is no copy: the guard has seen that it lies so already. Where results follow the layout of
    inputs, the guard has seen all of them.
    """
    mentioned = set(_flat(graph.results)).union(*(words(line) for _, lines in blocks for line in lines))
    ready = {v.name for v in input_values(graph)} if follows_inputs(graph) else written_inputs(graph)
    lines = []
    for value in input_values(graph):
        request = "" if value.name in ready or value.name not in mentioned else brought(value)
        if request is None:
            raise Unfit(f"the argument {value.path} has gaps in memory, or shares elements")
        if request or value.path != value.name:
            lines.append(f"        {value.name} = {value.path}{request}")
    return lines


def _moved(graph: Graph, blocks: Iterable[tuple[str, list[str]]]) -> list[str]:
    """Tensors in plain attributes, which ``Module.to`` leaves where they were made: to where the input is.

    One in a list or a tuple gets other memory: there is no assigning to a tuple.
    """
    held = [v.path for v in graph.values.values() if v.origin is Origin.CONSTANT]
    given = next((name for name in graph.arguments if name is not None), None)
    text = "\n".join(line for _, lines in blocks for line in lines)
    used = [path for path in map(attribute_text, held) if re.search(rf"{re.escape(path)}(?![\w.\[])", text)]
    tensors = [f"{path}.data" if path.endswith("]") else path for path in used]
    return [f"        {tensor} = {tensor}.to({given}.device)" for tensor in tensors if given is not None]


def _sizes(graph: Graph, parts: Parts) -> list[str]:
    """Every named size that ``forward`` mentions, and those that these are computed from."""
    needed = {name for _, part in parts for name in part.sizes}
    needed |= {name for _, part in parts for line in part.call for name in words(line)}
    for name in reversed(list(graph.symbols)):
        if name in needed:
            needed |= words(graph.symbols[name])
    lines: list[str] = []
    run: list[tuple[str, str]] = []
    """Sizes of one tensor, which share a line."""
    for name, text in graph.symbols.items():
        if name not in needed or name == text:
            continue
        joined = [*run, (name, text)]
        alike = _tensor(text) is not None and run and _tensor(text) == _tensor(run[0][1])
        if run and not (alike and len(_shared(joined)) <= LIMIT):
            lines.append(_shared(run))
            joined = [(name, text)]
        run = joined
    return [*lines, _shared(run)] if run else lines


def _tensor(text: str) -> str | None:
    """``x`` of ``x.shape[0]``."""
    found = re.fullmatch(r"([\w.\[\]]+)\.shape\[-?\d+\]", text)
    return found.group(1) if found else None


def _shared(run: Sequence[tuple[str, str]]) -> str:
    return f"        {', '.join(name for name, _ in run)} = {', '.join(text for _, text in run)}"


def _live_blocks(graph: Graph, parts: Parts) -> list[tuple[str, list[str]]]:
    """Comment and lines for each group; library calls that follow each other share one block.

    A library call whose result is not mentioned is left out: views that a later call folded into itself.
    """
    needed = set(_flat(graph.results))
    idle = _self_copies([line for _, part in parts for line in part.call])
    kept: list[tuple[list[tuple[Group, Part]], list[str]]] = []
    """Groups of one block, and their lines; from the last to the first."""
    for group, part in reversed(parts):
        lines = [line for line in part.call if line not in idle]
        if not part.kernels:
            lines = _needed_lines(lines, needed)
        needed |= {word for line in lines for word in words(line)}
        if lines and kept and not part.kernels and not kept[-1][0][0][1].kernels:
            before, after = kept.pop()
            kept.append(([(group, part), *before], [*lines, *after]))
        elif lines:
            kept.append(([(group, part)], lines))
    return [(_comment(block), lines) for block, lines in reversed(kept)]


def _self_copies(lines: Iterable[str]) -> set[str]:
    """Lines that copy a buffer onto itself: PyTorch's own call has written it already."""
    held: dict[str, str] = {}
    found: set[str] = set()
    for line in lines:
        if match := re.fullmatch(r"(\w+) = (self\.[\w.\[\]]+)", line):
            held[match.group(1)] = match.group(2)
        match = re.fullmatch(r"(self\.[\w.\[\]]+)\.copy_\((\w+)\)", line)
        if match and held.get(match.group(2)) == match.group(1):
            found.add(line)
    return found


def _needed_lines(lines: list[str], needed: set[str]) -> list[str]:
    kept: list[str] = []
    mentioned = set(needed)
    for line in reversed(lines):
        plain = re.match(r"(\w+) = (?!.*(batch_norm|dropout|randn?|_)\().*$", line)
        if plain and plain.group(1) not in mentioned:
            continue
        mentioned |= words(line.split(" = ", 1)[-1] if plain else line)
        kept.append(line)
    return kept[::-1]


def _comment(block: Parts) -> str:
    """What a block does: of a kernel the first words of its summary, else which calls are PyTorch's."""
    group, part = block[0]
    if not part.kernels:
        left = left_to_pytorch(block)
        rooms = any(node.op == "joined" for group, _ in block for node in group.nodes)
        other = "Room for what is joined, each part stored in place." if rooms else VIEWS
        summary = f"Left to PyTorch: {left}." if left else other
        return summary if len(summary) <= LONGEST_COMMENT else "Left to PyTorch."
    summary = re.split(r"[.:;](?:\s|$)", " ".join(part.summary.split()), maxsplit=1)[0]
    return f"{summary or group.name.replace('_', ' ')}."


def _flat(results: Iterable[Any]) -> Iterable[str]:
    for result in results:
        if isinstance(result, str):
            yield result
        elif result is not None:
            yield from _flat(result)


def _returned(graph: Graph) -> str:
    texts = [spelled(graph, str(result)) for result in graph.results]
    whole = whole_text(graph.form, texts)
    return whole[1:-1] if graph.form == "tuple" and len(texts) > 1 else whole

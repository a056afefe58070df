"""The docstring of a kernel file: what the program is, what each kernel does, and what is left to PyTorch."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from egg.expert.emit.kinds import kind_of
from egg.expert.parts import Group, Part
from egg.expert.writing.breaking import LIMIT

Parts = Sequence[tuple[Group, Part]]

FREE = frozenset({"view", "constant", "update", "joined"})
"""Kinds of node that are not worth a mention."""


def module_docstring(parts: Parts, title: Sequence[str]) -> str:
    """The title, a line for each kernel, and what is left to PyTorch."""
    first, *rest = [_plain(line) for line in title] or ["A program in Triton."]
    blocks = ["\n".join(wrapped(first, LIMIT - 3)), *("\n".join(wrapped(line, LIMIT)) for line in rest)]
    kernels = [
        "\n".join(wrapped(f"{', '.join(part.kernels)}: {_plain(part.summary)}", LIMIT, "    ", "        "))
        for _, part in parts
        if part.kernels
    ]
    if kernels:
        blocks.append("\n".join(["Kernels:", *dict.fromkeys(kernels)]))
    if left := left_to_pytorch(parts):
        blocks.append("\n".join(wrapped(f"Left to PyTorch: {left}.", LIMIT)))
    text = "\n\n".join(block for block in blocks if block)
    return f'"""{text}"""' if "\n" not in text else f'"""{text}\n"""'


def left_to_pytorch(parts: Parts) -> str:
    """The operators of groups without a kernel, in words, each with how often it occurs."""
    counts: dict[str, int] = {}
    for group, part in parts:
        for node in group.nodes if not part.kernels else ():
            if node.op not in FREE:
                word = kind_of(node)
                counts[word] = counts.get(word, 0) + 1
    return ", ".join(word if count == 1 else f"{word} ({count} times)" for word, count in counts.items())


def _plain(text: str) -> str:
    """Fit for a docstring in three double quotes."""
    text = " ".join(text.split()).replace("\\", "/").replace('"""', "'''")
    return text + " " if text.endswith('"') else text


def wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    wrapper = textwrap.TextWrapper(width, first, rest, break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(text)

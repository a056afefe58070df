"""Lists that several groups walk: layers over the same edges file their rows once.

Each group is written with lists of its own. Where an earlier group has filed the same rows under the same
places, by the same kernels on the same tensors, a later one walks those lists. Values never change, so the
lists of equal indices hold the same rows; their order within a list is open in any case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from keyword import iskeyword

from egg.expert.emit.names import read_by
from egg.expert.parts import Part

_COUNTS = re.compile(r"(\w+)_counts = torch\.zeros\(")
_LISTS = r"(counts|ranks|first|edges|sources(?:_\d+)?)"
_FILING = re.compile(r"\w+_(?:count|stretch|fill)_kernel\[")


def with_shared_lists(parts: Sequence[Part]) -> list[Part]:
    """The parts of this pattern in the order they run, with lists filled by the first that needs them."""
    known: dict[tuple[str, ...], str] = {}
    return [_walking(part, known) for part in parts]


def _walking(part: Part, known: dict[tuple[str, ...], str]) -> Part:
    """``known``: by the launches that fill lists, what the tensors of these lists are called."""
    statements = _statements(part.call)
    stem = next((found[1] for text in statements if (found := _COUNTS.match(text))), "")
    filing = [text for text in statements if _FILING.match(text)]
    if not stem or not filing:
        return part
    does = tuple(_essence(text, stem, part) for text in filing)
    if does not in known:
        for other in [other for other, name in known.items() if name == stem]:
            del known[other]  # groups that are written alike call their lists alike
        known[does] = stem
        return part
    own = re.compile(rf"\b{stem}_{_LISTS}\b")
    kept = [text for text in statements if text not in filing and not own.match(text)]
    call = own.sub(rf"{known[does]}_\1", "\n".join(kept)).split("\n")
    read = read_by(call)
    return replace(
        part,
        call=tuple(call),
        kernels={name: text for name, text in part.kernels.items() if not _FILING.match(f"{name}[")},
        constants=tuple(constant for constant in part.constants if constant.name in read),
        launches=tuple(launch for launch in part.launches if not _FILING.match(f"{launch.kernel}[")),
    )


def _essence(launch: str, stem: str, part: Part) -> str:
    """What a launch does: what its kernel does, with the values of constants, and lists without names."""
    values = {constant.name: str(constant.value) for constant in part.constants}
    kernel, _, rest = " ".join(launch.split()).partition("[")
    rest = re.sub(rf"\b{stem}_{_LISTS}\b", r"\1", rest)
    rest = re.sub(r"\w+", lambda found: values.get(found[0], found[0]), rest)
    return f"{_without_names(part.kernels[kernel])}[{rest}"


def _without_names(kernel: str) -> str:
    """A kernel with its names numbered as they are met."""
    numbers: dict[str, str] = {}
    return re.sub(
        r"(?<![\w.])[A-Za-z_]\w*",
        lambda found: found[0] if iskeyword(found[0]) else numbers.setdefault(found[0], f"n{len(numbers)}"),
        kernel,
    )


def _statements(lines: Iterable[str]) -> list[str]:
    """A call's lines, with those that go on where one ends joined to it."""
    found: list[str] = []
    for line in lines:
        if found and line[:1] in (" ", ")", "]"):
            found[-1] += f"\n{line}"
        else:
            found.append(line)
    return found

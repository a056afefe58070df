"""Pick a compiled kernel by its name, and write down its code."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from egg.core.listing import AMDGCN, SASS, Listing, Listings
from egg.evaluator.offline.describe import Launched, resources_of
from egg.evaluator.offline.resources import disassembled, read_usage

MOST_CHARACTERS = 2 << 20
"""Of one text: what lies behind is cut off."""
SEPARATOR = ":"
"""Between the name of a kernel and the number of its specialisation."""


def listings(launched: Sequence[Launched], wanted: str, timeout_s: float = 15) -> Listings:
    """The code of the kernel ``wanted``, ``NAME`` or ``NAME:2``; without a name that of the only kernel.

    A kernel that is compiled several times (other constants, other dtypes) has a specialisation for
    each, the one with the largest launch first.
    """
    names = tuple(dict.fromkeys(one.name for one in launched))
    name, _, number = wanted.partition(SEPARATOR)
    if not name and len(names) == 1:
        (name,) = names
    of_that_name = sorted((one for one in launched if one.name == name), key=lambda one: -prod(one.grid))
    place = int(number) - 1 if number.isdecimal() else 0 if not number else -1
    if not 0 <= place < len(of_that_name):
        return Listings(names, None)
    return Listings(names, _listing(of_that_name[place], place, len(of_that_name), timeout_s))


def _listing(one: Launched, place: int, number: int, timeout_s: float) -> Listing:
    asm = one.kernel.asm
    amd = str(asm.get("amdgcn", ""))
    code = amd or disassembled(one.kernel, timeout_s)
    usage = read_usage(one.kernel, timeout_s, instructions=bool(code))
    return Listing(
        kernel=one.name,
        specialisation=place + 1,
        specialisations=number,
        resources=resources_of(one.kernel, usage, name=one.name, grid=one.grid, launches=one.launches),
        language="" if not code else AMDGCN if amd else SASS,
        code=code[:MOST_CHARACTERS],
        ptx=str(asm.get("ptx", ""))[:MOST_CHARACTERS],
    )

"""What a worker's replies must look like. A reply of another form is the candidate's forgery, not our bug.

A form is a Python type, a list of one form (any number of such), a dict of one form under
``str`` (any keys), a :class:`Fields` that names the keys, or a :class:`Maybe` that may be
missing its value. Numbers must be finite, except where an output may rightly be none.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from egg.core.resources import Access, InstructionMix, KernelWork


@dataclass(frozen=True)
class Fields:
    """A JSON object with these keys; ``optional`` ones may be missing."""

    required: dict[str, Any]
    optional: dict[str, Any]


@dataclass(frozen=True)
class Maybe:
    """``null``, or a value of this form."""

    form: Any


def fields(optional: dict[str, Any] | None = None, **required: Any) -> Fields:
    return Fields(required, optional or {})


ANY_NUMBER = "a number, NaN or infinity"
AMOUNT = "a number that is not negative, and below LARGEST"
COUNT = "a whole number that is not negative, and below MOST_COUNTED"
GRID = "at most three counts"
LARGEST = 1 << 63
"""Beyond it an integer is no count of anything, and may be too long for arithmetic."""
MOST_COUNTED = 1 << 40
"""Of programs, instructions, registers: products of several such numbers stay within a float's range."""


def fields_of(cls: type, **others: Any) -> Fields:
    """All fields of a dataclass of counts: numbers are amounts, ``others`` have their own forms."""
    plain = {"float": AMOUNT, "int": COUNT, "bool": bool, "str": str}
    return Fields({f.name: others.get(f.name) or plain[str(f.type)] for f in dataclasses.fields(cls)}, {})


OUTPUT = fields(
    {
        "shape": [int],
        "dtype": str,
        "device": str,
        "layout": str,
        "stride": [int],
        "storage": int,
        "number": ANY_NUMBER,
    },
    path=str,
    type=str,
)
ACCESS = fields_of(Access)
WORK = fields_of(KernelWork, tensor_flops={str: AMOUNT}, accesses=[ACCESS])
INSTRUCTIONS = fields_of(InstructionMix)
RESOURCES = fields(
    {"code": str, "instructions": Maybe(INSTRUCTIONS), "work": Maybe(WORK)},
    name=str, grid=GRID, registers=COUNT, spill_bytes=COUNT, shared_bytes=COUNT, num_warps=COUNT,
    num_stages=COUNT, tensor_core_instructions=COUNT, widest_load_bits=COUNT, launches=COUNT,
)  # fmt: skip
BUILT = fields(state={str: fields(shape=[int], dtype=str)}, parameters=[str])
SKETCH = (int, float, float, [float], [ANY_NUMBER])
WORK_DONE = (float, float, float)
RECORD: dict[str, Any] = {
    "ops": {str: int}, "moves": {str: int}, "copies": {str: int}, "reads": {str: int}, "launches": {str: int},
    "work": (WORK_DONE, WORK_DONE),
}  # fmt: skip

REPLIES: dict[str, Any] = {
    "load": BUILT,
    "fresh": BUILT,
    "forward": fields(
        **RECORD,
        outputs=[OUTPUT],
        threads=int,
        sketches=[SKETCH],
        moved=[SKETCH],
        aliases=[(str, str)],
        launched={str: int},
    ),
    "observe": fields(calls=[fields(**RECORD, kinds=[str])]),
    "gradients": fields(requires=[bool], error=str, given=[str]),
    "recheck": fields(outputs=[OUTPUT]),
    "drop": fields(shared=[(int, int)], within=[(int, [(str, str)])]),
    "contenders": fields(unfit=[str]),
    "time": fields(milliseconds=[float]),
    "kernels": fields(kernels=[RESOURCES], unread=int),
    "profile": fields(microseconds={str: float}, streams=[int]),
    "capture": fields(
        {"unsupported": str, "kernels": [str], "ops": {str: int}, "faults": [{str: str}]},
        compiled=COUNT,
        launched=bool,
    ),
    "configure": fields({"names": {str: str}}, most=COUNT),
    "fence": fields(unavailable=str, failed=str, damaged=[str]),
    "integrity": fields(changed=[str]),
    "canary": fields(healthy=bool),
    "pattern": fields(kernels={str: int}),
    "compile_pattern": fields(kernels={str: int}),
}


def fits(value: Any, form: Any) -> bool:
    """Whether a decoded JSON value has the given form."""
    if isinstance(form, Fields):
        return (
            isinstance(value, dict)
            and all(key in value and fits(value[key], inner) for key, inner in form.required.items())
            and all(fits(value[key], inner) for key, inner in form.optional.items() if key in value)
        )
    if isinstance(form, Maybe):
        return value is None or fits(value, form.form)
    if isinstance(form, list):
        return isinstance(value, list) and all(fits(item, form[0]) for item in value)
    if isinstance(form, tuple):
        return isinstance(value, list) and len(value) == len(form) and all(map(fits, value, form))
    if isinstance(form, dict):
        inner = form[str]
        return isinstance(value, dict) and all(fits(item, inner) for item in value.values())
    if form == AMOUNT:
        return fits(value, float) and 0 <= value < LARGEST
    if form == GRID:
        return isinstance(value, list) and len(value) <= 3 and all(fits(size, COUNT) for size in value)
    if form == COUNT:
        return type(value) is int and 0 <= value < MOST_COUNTED
    if form is int or (type(value) is int and form in (float, ANY_NUMBER)):
        return type(value) is int and abs(value) < LARGEST
    if form is float:
        return type(value) is float and math.isfinite(value)
    return type(value) is (float if form == ANY_NUMBER else form)


def well_formed(command: str, reply: dict[str, Any]) -> bool:
    return command not in REPLIES or fits(reply, REPLIES[command])

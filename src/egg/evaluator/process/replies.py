"""What a worker's replies must look like. A reply of another form is the candidate's forgery, not our bug.

A form is a Python type, a list of one form (any number of such), a dict of one form under
``str`` (any keys), or a :class:`Fields` that names the keys. Numbers must be finite, except
where an output may rightly be none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Fields:
    """A JSON object with these keys; ``optional`` ones may be missing."""

    required: dict[str, Any]
    optional: dict[str, Any]


def fields(optional: dict[str, Any] | None = None, **required: Any) -> Fields:
    return Fields(required, optional or {})


ANY_NUMBER = "a number, NaN or infinity"
LARGEST = 1 << 63
"""Beyond it an integer is no count of anything, and may be too long for arithmetic."""

OUTPUT = fields(
    {"shape": [int], "dtype": str, "device": str, "layout": str, "number": ANY_NUMBER}, path=str, type=str
)
RESOURCES = fields(
    name=str, grid=[int], registers=int, spill_bytes=int, shared_bytes=int, num_warps=int, num_stages=int,
    tensor_core_instructions=int, widest_load_bits=int, launches=int,
)  # fmt: skip
BUILT = fields(state={str: fields(shape=[int], dtype=str)}, parameters=[str])
FINGERPRINT = (int, float, float)

REPLIES: dict[str, Any] = {
    "load": BUILT,
    "fresh": BUILT,
    "forward": fields(
        outputs=[OUTPUT], ops={str: int}, launches={str: int}, threads=int, fingerprints=[FINGERPRINT]
    ),
    "recheck": fields(outputs=[OUTPUT]),
    "time": fields(milliseconds=[float]),
    "profile": fields(microseconds={str: float}, streams=[int]),
    "capture": fields({"unsupported": str}, kernels=[RESOURCES], launched=bool),
    "canary": fields(healthy=bool),
}


def fits(value: Any, form: Any) -> bool:
    """Whether a decoded JSON value has the given form."""
    if isinstance(form, Fields):
        return (
            isinstance(value, dict)
            and all(key in value and fits(value[key], inner) for key, inner in form.required.items())
            and all(fits(value[key], inner) for key, inner in form.optional.items() if key in value)
        )
    if isinstance(form, list):
        return isinstance(value, list) and all(fits(item, form[0]) for item in value)
    if isinstance(form, tuple):
        return isinstance(value, list) and len(value) == len(form) and all(map(fits, value, form))
    if isinstance(form, dict):
        inner = form[str]
        return isinstance(value, dict) and all(fits(item, inner) for item in value.values())
    if form is int or (type(value) is int and form in (float, ANY_NUMBER)):
        return type(value) is int and abs(value) < LARGEST
    if form is float:
        return type(value) is float and math.isfinite(value)
    return type(value) is (float if form == ANY_NUMBER else form)


def well_formed(command: str, reply: dict[str, Any]) -> bool:
    return command not in REPLIES or fits(reply, REPLIES[command])

"""The table of coverage: only a verdict of the judge makes a row accepted."""

from __future__ import annotations

import json

import pytest

from benchmarks.coverage.__main__ import _verdict

REFUSAL = {"gate": "build", "reason": "build.compile", "evidence": "line 3"}


@pytest.mark.parametrize(
    ("printed", "outcome"),
    [
        (json.dumps({"verdict": {"performance": {"kind": "compiled"}}}), "accepted"),
        (json.dumps({"verdict": {"refusal": REFUSAL}}), "rejected"),
        (json.dumps({"message": "no such task"}), "fault"),
        (json.dumps({"verdict": {}}), "fault"),
        (json.dumps({}), "fault"),
        ("", "fault"),
        ("Traceback", "fault"),
    ],
)
def test_what_a_judge_prints_is_counted_as_what_it_is(printed: str, outcome: str) -> None:
    assert _verdict(printed)["outcome"] == outcome

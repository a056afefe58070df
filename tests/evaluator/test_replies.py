"""Replies come from a process that may be forging them: only the agreed forms get through."""

from __future__ import annotations

import pytest

from egg.evaluator.process.replies import well_formed

GOOD = {
    "load": {"state": {"weight": {"shape": [2, 3], "dtype": "torch.float32"}}, "parameters": ["weight"]},
    "forward": {
        "outputs": [{"path": "0", "type": "Tensor", "shape": [2], "dtype": "torch.float32"}],
        "ops": {"mm": 1},
        "launches": {"kernel": 2},
        "threads": 0,
        "moves": {"cat": 1},
        "copies": {"clone": 1},
        "reads": {"floats": 1},
        "work": [[1.0, 2.0, 0.0], [1.0, 2.0, 0.0]],
        "sketches": [[4, 1.5, 2, [0.5, 3.0, 15.0], [1.0, 2.0]]],
        "moved": [],
        "aliases": [],
        "launched": {"kernel": 2},
    },
    "time": {"milliseconds": [0.5, 1]},
    "capture": {"compiled": 1, "launched": True},
    "kernels": {"kernels": [], "unread": 0},
    "canary": {"healthy": True},
}


@pytest.mark.parametrize("command", GOOD)
def test_what_a_worker_says_is_understood(command: str) -> None:
    assert well_formed(command, {"id": 3, **GOOD[command]})


@pytest.mark.parametrize(
    ("command", "change"),
    [
        ("load", {"state": None}),
        ("load", {"state": {"weight": {"shape": [2.5], "dtype": "x"}}}),
        ("load", {"parameters": "weight"}),
        ("forward", {"outputs": [{"path": "0"}]}),
        ("forward", {"outputs": [{"path": "0", "type": "number", "number": "1"}]}),
        ("forward", {"outputs": [{"path": "0", "type": "number", "number": 10**400}]}),
        ("forward", {"ops": {"mm": True}}),
        ("forward", {"launches": []}),
        ("forward", {"sketches": [[1]]}),
        ("forward", {"sketches": [[4, float("nan"), 2.0, [], []]]}),
        ("forward", {"threads": 1 << 80}),
        ("time", {"milliseconds": [float("inf")]}),
        ("time", {"milliseconds": [10**400]}),
        ("time", {"milliseconds": 1.0}),
        ("capture", {"compiled": -1}),
        ("kernels", {"kernels": [{"name": "k"}]}),
        ("canary", {"healthy": 1}),
    ],
)
def test_a_forged_form_is_refused(command: str, change: dict) -> None:
    assert not well_formed(command, {"id": 3, **GOOD[command], **change})


@pytest.mark.parametrize("command", GOOD)
def test_nothing_may_be_left_out(command: str) -> None:
    assert not well_formed(command, {"id": 3})

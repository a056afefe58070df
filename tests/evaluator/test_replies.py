"""Replies come from a process that may be forging them: only the agreed forms get through."""

from __future__ import annotations

from typing import Any

import pytest

from egg.core.codec import to_json
from egg.evaluator.task.gradient_ways import Way
from egg.evaluator.transport import protocol
from egg.evaluator.transport.protocol import REQUESTS, Request, reply_to, request_from
from egg.evaluator.transport.slots import Slot
from egg.evaluator.transport.strict import Malformed, plain

RECORD = {
    "ops": {"mm": 1},
    "moves": {"cat": 1},
    "copies": {"clone": 1},
    "reads": {"floats": 1},
    "launches": {"kernel": 2},
    "before": {"products": 1.0, "others": 2.0, "moved": 0.0, "fused": 0.0},
    "work": {"products": 1.0, "others": 2, "moved": 0.0, "fused": 0.0},
    "parts": {"sum": 1},
    "lossy": 1,
    "narrowed": {"torch.bfloat16": 1},
    "overwritten": 1,
}
OUTPUT = {
    "path": "0", "type": "Tensor", "shape": [2], "dtype": "torch.float32", "device": "cpu",
    "layout": "torch.strided", "stride": [1], "storage": 1 << 47, "number": None, "whole": None,
}  # fmt: skip
NUMBER = {**dict.fromkeys(OUTPUT), "path": "1", "type": "number", "number": float("nan")}
INTEGER = {**NUMBER, "number": float(1 << 60), "whole": "1000000000000001"}
SKETCH = {"numel": 4, "total": -1.5, "norm": 2, "moments": [0.5, 3.0, 15.0], "samples": [1.0, float("inf")]}
FORWARD: dict[str, Any] = {
    "record": RECORD,
    "outputs": [OUTPUT, NUMBER, INTEGER],
    "threads": 0,
    "sketches": [SKETCH],
    "moved": [],
    "aliases": [["0", "an input"]],
    "launched": {"kernel": 2},
    "drew": False, "found": [], "returned": "tensor", "handed": [["kernel's n", "3"]], "left": "",
    "stands": "9f86d081",
}  # fmt: skip
GOOD: dict[str, dict[str, Any]] = {
    "load": {
        "state": {"weight": {"shape": [2, 3], "dtype": "torch.float32"}},
        "parameters": ["weight"],
        "forward": [["x", ""], ["scale", "1.0"]],
    },
    "forward": FORWARD,
    "gradients": {
        "requires": [True], "error": "", "given": ["input 0"], "intact": True, "outputs": [OUTPUT],
        "record": RECORD,
    },
    "show": {"found": [{"name": "load", "shape": [2], "values": [1.0, float("nan")]}]},
    "time": {"milliseconds": [0.5, 1]},
    "capture": {
        "unsupported": "", "compiled": 1, "launched": True, "kernels": ["k"], "ops": {}, "faults": [],
        "uncompiled": 0,
    },
    "kernels": {"kernels": [], "unread": 0},
    "canary": {"healthy": True},
    "asked": {"launches": [["kernel", [["n", "3"]]]], "unsupported": ""},
    "excerpt": {"without": "", "launches": [["kernel", 8, 2]], "whole": False, "answered": FORWARD},
    "follows": {"tensors": 2, "new": 1, "unwatched": 5 << 30},
    "contributes": {"draws": 6, "own": True},
    "needs": {"own": False},
    "calls": {"records": [RECORD]},
    "drop": {"shared": [[0, 1]], "within": [[0, [["0", "itself"]]]], "live": 3},
    "configure": {"most": 2, "names": {"kernel": "BLOCK: 64"}, "choices": 1},
}  # fmt: skip


def read(command: str, data: Any) -> Any:
    request = object.__new__(REQUESTS[command])
    return reply_to(request, data)


@pytest.mark.parametrize("command", GOOD)
def test_a_reply_of_the_protocol_is_read_and_written_alike(command: str) -> None:
    found = read(command, GOOD[command])
    assert to_json(plain(found)) == to_json(GOOD[command])


@pytest.mark.parametrize(
    ("command", "change"),
    [
        ("load", {"state": None}),
        ("load", {"state": {"weight": {"shape": [2.5], "dtype": "x"}}}),
        ("load", {"state": {"weight": {"shape": [1] * 65, "dtype": "x"}}}),
        ("load", {"parameters": "weight"}),
        ("load", {"forward": [["x"]]}),
        ("load", {"another": 1}),
        ("forward", {"outputs": [{"path": "0"}]}),
        ("forward", {"outputs": [{**NUMBER, "number": "1"}]}),
        ("forward", {"outputs": [{**NUMBER, "number": 10**400}]}),
        ("forward", {"record": {**RECORD, "ops": {"mm": True}}}),
        ("forward", {"record": {**RECORD, "ops": {"mm": -1}}}),
        ("forward", {"record": {**RECORD, "launches": []}}),
        (
            "forward",
            {
                "record": {
                    **RECORD,
                    "work": {"products": float("nan"), "others": 0.0, "moved": 0.0, "fused": 0.0},
                }
            },
        ),
        ("forward", {"sketches": [[1]]}),
        ("forward", {"sketches": [{**SKETCH, "total": float("nan")}]}),
        ("forward", {"threads": 1 << 80}),
        ("forward", {"aliases": [["0"]]}),
        ("forward", {"drew": 0}),
        ("forward", {"returned": 0}),
        ("gradients", {"intact": None}),
        ("show", {"found": [{"name": "load", "shape": [2], "values": ["1"]}]}),
        ("time", {"milliseconds": [float("inf")]}),
        ("time", {"milliseconds": [10**400]}),
        ("time", {"milliseconds": 1.0}),
        ("capture", {"compiled": -1}),
        ("capture", {"faults": [{"reason": "kernel.out_of_bounds"}]}),
        ("kernels", {"kernels": [{"name": "k"}]}),
        ("canary", {"healthy": 1}),
        ("asked", {"launches": [["kernel"]]}),
        ("asked", {"launches": [["kernel", [["n", 3]]]]}),
        ("excerpt", {"launches": [["kernel", 8, -2]]}),
        ("excerpt", {"whole": "yes"}),
        ("drop", {"shared": [[0, 1, 2]]}),
        ("configure", {"names": ["kernel"]}),
    ],
)
def test_a_forged_form_is_refused(command: str, change: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        read(command, {**GOOD[command], **change})


@pytest.mark.parametrize("command", GOOD)
def test_nothing_may_be_left_out(command: str) -> None:
    for key in GOOD[command]:
        with pytest.raises(Malformed, match=command):
            read(command, {name: value for name, value in GOOD[command].items() if name != key})


@pytest.mark.parametrize("data", [None, [], 3, "reply", {"id": 3}])
@pytest.mark.parametrize("command", sorted(REQUESTS))
def test_what_is_no_reply_is_refused(command: str, data: Any) -> None:
    with pytest.raises(Malformed):
        read(command, data)


SLOTS = (Slot(0, 8, (2,), (1,), "float32"), Slot(512, 12, (2,), (1,), "float32", 1))
CALL = protocol.CallSet("structure", SLOTS, (SLOTS[0], None))


@pytest.mark.parametrize(
    "request_made",
    [
        protocol.Warm("cpu", watch=True),
        protocol.Weights({"own": "theirs"}, {"theirs": SLOTS[1]}),
        protocol.Forward(CALL, 7, protocol.Options(skip=("k",), sketch=protocol.SketchTerms(1, (2, 3)))),
        protocol.Time(protocol.Session((CALL,), [[["copy", 1]]], (SLOTS,), (5,)), 0, CALL.outputs, 1, True),
        protocol.Contenders((None, "source"), "inputs", SLOTS, 3, 2),
        protocol.Gradients(CALL, {"input 0": SLOTS[0]}, 7, Way(alone="input 0", between=True), True),
    ],
)
def test_a_request_arrives_as_it_was_made(request_made: Request[Any]) -> None:
    assert request_from(request_made.message()) == request_made

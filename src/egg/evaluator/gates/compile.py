"""Build, on a machine without a GPU: compile every launch for the target, at the task's full size."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from egg.core.codec import from_json
from egg.core.resources import KernelResources
from egg.evaluator import exchange
from egg.evaluator.exam import Exam, Refused

COMPILE_SECONDS = 90.0


def run(exam: Exam) -> dict[str, Any]:
    offline = exam.offline
    assert offline is not None
    structure, specs = _full_size_inputs(exam)
    child = offline.nursery.child()
    offline.nursery.prepare()
    try:
        child.request("load", exam.care.build_seconds, **exam.load_request(offline.full), build=False)
        reply = child.request(
            "capture",
            min(COMPILE_SECONDS, exam.care.build_seconds),
            inputs=structure,
            specs=specs,
            target=offline.compiler_target(),
        )
    finally:
        child.end()
    if "unsupported" in reply:
        exam.warnings.append(f"not compiled for {offline.target.name}: {reply['unsupported']}")
        return {"compiled": False, "reason": reply["unsupported"]}
    if not reply["launched"]:
        raise Refused(
            "provenance.no_kernel", "at the task's full size forward launches no Triton kernel",
            "the work must be done by the file's own kernels at every size",
        )  # fmt: skip
    offline.kernels = tuple(from_json(KernelResources, k) for k in reply["kernels"])
    return {"compiled": len(offline.kernels), "target": offline.target.name}


def _full_size_inputs(exam: Exam) -> tuple[str, list[dict[str, Any]]]:
    """The task's inputs at full size as forms only: made on fake tensors, in no memory."""
    assert exam.offline is not None
    with FakeTensorMode(allow_non_fake_inputs=True):
        inputs = exam.offline.full.inputs(0, torch.device("cpu"), exam.policy.precision)
    structure, tensors = exchange.pack(inputs)
    specs = [
        {"shape": list(t.shape), "stride": list(t.stride()), "dtype": str(t.dtype).removeprefix("torch.")}
        for t in tensors
    ]
    return structure, specs

"""Build, on a machine without a GPU: compile every launch for the target, at the task's full size.

The process that compiled lives on until the verdict. Only of an accepted candidate is it asked what the
machine code looks like: a disassembler takes longer than most kernels take to compile.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from egg.core.codec import from_json
from egg.core.resources import KernelResources
from egg.evaluator import exchange
from egg.evaluator.exam import Exam, Refused
from egg.evaluator.process.child import Fault

COMPILE_SECONDS = 90.0


def run(exam: Exam) -> dict[str, Any]:
    offline = exam.offline
    assert offline is not None
    structure, specs = _full_size_inputs(exam)
    offline.child = child = offline.nursery.child()
    offline.nursery.prepare()
    child.request("load", exam.care.build_seconds, **exam.load_request(offline.full), build=False)
    reply = child.request(
        "capture",
        min(COMPILE_SECONDS, exam.care.build_seconds),
        inputs=structure,
        specs=specs,
        target=offline.compiler_target(),
    )
    if "unsupported" in reply:
        exam.warnings.append(f"not compiled for {offline.target.name}: {reply['unsupported']}")
        return {"compiled": False, "reason": reply["unsupported"]}
    if not reply["launched"]:
        raise Refused(
            "provenance.no_kernel", "at the task's full size forward launches no Triton kernel",
            "the work must be done by the file's own kernels at every size",
        )  # fmt: skip
    return {"compiled": reply["compiled"], "target": offline.target.name}


def described(exam: Exam) -> tuple[KernelResources, ...]:
    """The compiled kernels, as the candidate's process describes them.

    It could forge all of it, so it is information, and no verdict rests on it: where it fails there
    are no descriptions, and a warning.
    """
    assert exam.offline is not None
    child = exam.offline.child
    if child is None:
        return ()
    try:
        reply = child.request("kernels", COMPILE_SECONDS, every=True)
    except Fault as fault:
        exam.warnings.append(f"the kernels could not be described: {fault}"[:300])
        return ()
    return tuple(from_json(KernelResources, kernel) for kernel in reply["kernels"])


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

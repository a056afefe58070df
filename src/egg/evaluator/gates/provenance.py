"""Provenance: own kernels really ran, their result is used, and libraries did not do all the work."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch

from egg.core.codec import from_json
from egg.core.policy import LibraryCalls
from egg.core.resources import KernelResources
from egg.evaluator.care import Profile
from egg.evaluator.exam import Exam, Refused
from egg.evaluator.ops import Recorder, alike, fingerprint
from egg.evaluator.process.child import Fault
from egg.evaluator.reference import Case, same_values

FIG_LEAF = "a kernel beside the whole PyTorch program is no rewrite: take over at least one of its operations"

KERNELS_SECONDS = 60.0
LEAST_SHARE = 0.005
"""Of the GPU time: a fused tail behind a library's product takes several times that."""

FAMILIES = {
    name: family
    for family, members in {
        "matmul": "mm bmm addmm baddbmm addbmm matmul linear dot inner vdot mv addmv _int_mm _scaled_mm",
        "convolution": "convolution convolution_overrideable mkldnn_convolution cudnn_convolution "
        "cudnn_convolution_transpose _slow_conv2d_forward thnn_conv2d conv_depthwise3d _conv_depthwise2d",
        "attention": "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
        "_scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention_for_cpu "
        "_scaled_dot_product_attention_math scaled_dot_product_attention",
    }.items()
    for name in members.split()
}
"""Operations that are the same thing to a fig leaf."""


def run(exam: Exam) -> dict[str, Any]:
    exam.other_weights()  # a branch behind a gate that is zero as built is looked at too
    case = exam.reference.case("provenance", golden=False)
    exam.place(case)
    with exam.yielding():  # its kernels are compiled now
        first = exam.ask(case, traced=True)
    exam.check_form(case, first["outputs"])
    normal = [answer.clone() for answer in _answers(exam, case, first)]
    second = exam.ask(case, traced=True, poison=False)
    launches: dict[str, int] = second["launches"] or first["launches"]
    if not launches:
        raise Refused(
            "provenance.no_kernel", "no Triton kernel was launched during forward",
            "the work must be done by the file's own kernels",
        )  # fmt: skip
    if second["threads"]:
        raise Refused(
            "provenance.thread", f"{second['threads']} threads were started: what they compute is not seen",
            "compute in the calling thread, on the current stream",
        )  # fmt: skip
    library = dict(Counter(second["ops"]) | Counter(first["ops"]))
    _check_library(exam, case, library)
    own = set(first["launches"]) | set(second["launches"])
    if exam.device.type == "cuda":
        _read_kernels(exam, case)
    _check_kernels_matter(exam, case, normal, sorted(own))
    exam.provenance = {"kernels": launches, "library_ops": library, "own_share": None}
    if exam.device.type == "cuda" and _profiled(exam.care.profile, library):
        share = exam.provenance["own_share"] = _own_share(exam, case, own)
        if share is not None and share < LEAST_SHARE:
            raise Refused("provenance.fig_leaf", f"own kernels take {share:.2%} of the GPU time", FIG_LEAF)
        exam.restart()  # a process that was profiled is not one to time
    return dict(exam.provenance)


def _profiled(whose: Profile, library: Mapping[str, int]) -> bool:
    return whose is Profile.EVERYBODYS or (whose is Profile.SHARED and bool(library))


def _answers(exam: Exam, case: Case, reply: Mapping[str, Any]) -> list[torch.Tensor]:
    """Every output as a tensor, where it lies; one that was not given is NaN."""
    numbers = {described["path"]: described.get("number", math.nan) for described in reply["outputs"]}
    return [
        torch.tensor(numbers.get(path, math.nan), dtype=torch.float64) if tensor is None else tensor
        for (path, _), tensor in zip(case.outputs, exam.outputs(), strict=True)
    ]


def _check_library(exam: Exam, case: Case, library: Mapping[str, int]) -> None:
    if exam.policy.library_calls is LibraryCalls.FORBID and library:
        raise Refused(
            "provenance.library", f"PyTorch operations outside own kernels: {_listed(library)}",
            "under --library-calls forbid every operation must be in the file's own kernels",
        )  # fmt: skip
    with Recorder() as recorder:
        exam.reference.run(case.inputs)
    wanted, done = _by_family(recorder.compute), _by_family(library)
    if wanted and not wanted - done:
        raise Refused(
            "provenance.fig_leaf",
            f"every operation of the reference still runs in PyTorch: {_listed(recorder.compute)}",
            FIG_LEAF,
        )


def _check_kernels_matter(exam: Exam, case: Case, normal: list[torch.Tensor], kernels: list[str]) -> None:
    """Switch all own kernels off in a new instance: the output must change, and PyTorch must not find it.

    The second part tells a fig leaf from a rewrite: if, with the kernels off, some library
    operation still produces the very answer, then the kernels only carried it around.
    """
    given = zip(case.outputs, normal, strict=True)
    answers = [fingerprint(t) for (_, expected), t in given if isinstance(expected, torch.Tensor)]
    try:
        exam.fresh()
        reply = exam.ask(case, traced=True, skip=kernels)
    except Fault:
        if not exam.process.alive:
            raise
        exam.fresh()  # it cannot even answer without them: they matter
        return
    without = _answers(exam, case, reply)
    if all(map(same_values, normal, without)):
        raise Refused(
            "provenance.decoy", f"with {', '.join(kernels)} replaced by no-ops the output is the same",
            "the kernels' results are not used; something else computes the answer",
        )  # fmt: skip
    produced = [tuple(f) for f in reply["fingerprints"]]
    if answers and all(any(alike(answer, p) for p in produced) for answer in answers):
        raise Refused(
            "provenance.fig_leaf",
            f"PyTorch finds the answer without {', '.join(kernels)}: {_listed(reply['ops'])}",
            FIG_LEAF,
        )
    exam.fresh()


def _read_kernels(exam: Exam, case: Case) -> None:
    """Have the candidate's process describe its kernels as they were compiled for this GPU.

    The candidate could forge all of it, so it is information for whoever writes the next
    kernel and no verdict rests on it: where it fails there are no descriptions, and a warning,
    and a new process goes on as if nothing had been asked. The instance that was called is
    replaced by a new one when its kernels are switched off, which is next.
    """
    exam.make_room()
    slots = [s.to_json() for s in exam.sets[0].inputs]
    try:
        exam.request("watch", KERNELS_SECONDS, inputs=case.structure, slots=slots, seed=0)
        with exam.sharing.apart():
            reply = exam.request("kernels", KERNELS_SECONDS, keep_cache=True)
    except Fault as fault:
        exam.warnings.append(f"the kernels could not be described: {fault}"[:300])
        exam.restart()
    else:
        exam.kernels = tuple(from_json(KernelResources, kernel) for kernel in reply["kernels"])
        if reply["unread"] > 0:
            exam.warnings.append(f"{reply['unread']} kernels more were launched than described")


def _own_share(exam: Exam, case: Case, own: set[str]) -> float | None:
    exam.make_room()
    profile = exam.request(
        "profile", 120, inputs=case.structure, slots=[s.to_json() for s in exam.sets[0].inputs], seed=0
    )
    spent: dict[str, float] = profile["microseconds"]
    total = sum(spent.values())
    if not total:
        exam.warnings.append("the profiler saw no device activity: the share of own kernels is unknown")
        return None
    if len(profile["streams"]) > 1:
        exam.warnings.append(f"work on {len(profile['streams'])} streams")
    return sum(t for name, t in spent.items() if name in own) / total


def _by_family(ops: Mapping[str, int]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for name, count in ops.items():
        counted[FAMILIES.get(name, name.rstrip("_"))] += count  # in place it is the same operation
    return counted


def _listed(ops: Mapping[str, int]) -> str:
    return ", ".join(f"{name} x{count}" if count > 1 else name for name, count in sorted(ops.items()))

"""Build, on a machine without a GPU: compile every launch for the target, at the task's full size.

The process that compiled lives on until the verdict. Only of an accepted candidate is it asked what the
machine code looks like: a disassembler takes longer than most kernels take to compile.
"""

from __future__ import annotations

import ast
import math
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from egg.core.errors import TaskError
from egg.core.evaluation import RefusalFacts
from egg.core.policy import Precision
from egg.core.resources import KernelResources
from egg.evaluator.process.handle import Fault, WorkerHandle
from egg.evaluator.task.program import Program, form_of, map_tensors
from egg.evaluator.transport import exchange, protocol
from egg.evaluator.transport.slots import Slot
from egg.evaluator.trial.levels import Probes
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Notes, Offline, Trial
from egg.evaluator.trial.watch import FAMILIES

COMPILE_SECONDS = 90.0
EVERY_SECONDS = 75.0
"""More, where every configuration of an autotuner is compiled."""
FEWER = "name fewer configurations in triton.autotune: a tuner may choose any of them, so each must be tried"
KERNEL_SECONDS = 30.0
"""For each kernel of a file that tunes nothing; an autotuner compiles each of them many times."""
SLOW = (
    "the compiler does not come to an end: smaller tiles, fewer unrolled iterations (tl.static_range), "
    "shorter chains of tl.join and reshape"
)
MOST_WITH_VALUES = 16 << 20
"""Bytes of inputs that are sent along with their values."""


UNSEEN = "branch on sizes only where both ways can be run: the judge without a GPU runs another size"
NOT_CAPTURED = (
    "host code must run without the values of tensors, or on small inputs with them: compute on the device, "
    "or judge it on a GPU"
)


def run(trial: Trial) -> Notes:
    offline = trial.offline
    assert offline is not None
    if offline.captured is not None:
        return {"compiled": len(offline.captured.kernels), "target": offline.target.name, "at": "as before"}
    question = capture_request(trial)
    offline.worker = compiler(trial)
    reply = asked(trial, offline.worker, question)
    if reply.unsupported:
        reply = asked(trial, offline.worker, _with_values(trial, question))
    offline.captured = reply
    if reply.uncompiled:
        raise Refused(
            "correctness.configuration",
            f"{reply.uncompiled} configurations of autotuners were not compiled for {offline.target.name}: "
            "there was no time left",
            FEWER,
        )
    if reply.unsupported:
        return {"compiled": False, "reason": reply.unsupported}
    if not reply.launched:
        raise Refused(
            "provenance.no_kernel", "at the task's full size forward launches no Triton kernel",
            "the work must be done by the file's own kernels at every size",
        )  # fmt: skip
    offline.own_sizes = _sizes(question.specs)
    return {"compiled": reply.compiled, "target": offline.target.name, "at": offline.own_sizes}


def compiler(trial: Trial) -> WorkerHandle:
    """A process in which the candidate's launches can be compiled."""
    offline = trial.offline
    assert offline is not None
    worker = offline.forkserver.worker()
    offline.forkserver.prepare()
    worker.ask(replace(trial.load_request(offline.full), build=False), trial.settings.build_seconds)
    return worker


def asked(trial: Trial, worker: WorkerHandle, question: protocol.Capture) -> protocol.Captured:
    """What the launches compile to; a compiler that does not come to an end is a refusal."""
    assert trial.offline is not None
    limit = min(_seconds_for(trial.candidate.source), trial.settings.build_seconds)
    limit += EVERY_SECONDS if question.every else 0.0
    try:
        return worker.ask(question, limit)
    except Fault as fault:
        if fault.reason != "limits.timeout":
            raise
        what = "forward and backward launch" if question.backward else "forward launches"
        evidence = f"what {what} was not compiled for {trial.offline.target.name} within {limit:g} s"
        raise Refused(fault.reason, evidence, SLOW) from fault


def capture_request(trial: Trial) -> protocol.Capture:
    """What is followed at the task's own size."""
    assert trial.offline is not None
    inputs = forms_of_inputs(trial.offline.full, trial.policy.precision)
    structure, tensors = exchange.pack(inputs)
    specs = specs_of(tensors)
    every = trial.settings.domain is Probes.ALL and "autotune" in trial.candidate.source
    return protocol.Capture(structure, specs, trial.offline.compiler_target(), every=every)


def check(trial: Trial) -> Notes:
    """Refuse what is wrong at the task's own size; behind the build, whose faults explain more."""
    offline = trial.offline
    assert offline is not None
    assert offline.captured is not None
    for fault in offline.captured.faults:
        evidence = f"at the task's own size ({offline.own_sizes}): {fault.evidence}"
        hint = HINTS.get(fault.reason, "see the evidence")
        raise Refused(fault.reason, evidence, hint, facts=AT_OWN_SIZE)
    return {}


AT_OWN_SIZE = RefusalFacts(own_size=True)
HINTS = {
    "kernel.out_of_bounds": "mask with the tensor's true extent, and compute offsets that pass 2**31 "
    "elements in 64 bits: `tl.program_id(0).to(tl.int64)`",
    "correctness.unwritten": "the grid must cover the whole output at the task's own size, "
    "not only at smaller ones",
}


def compare(trial: Trial) -> Notes:
    """What runs at the task's own size must have run at the size that was interpreted.

    A kernel or an operation that appears only there was never checked. Where the task could be brought to
    another size at which it does appear, that size is judged next.
    """
    offline = trial.offline
    assert offline is not None
    captured, ran = must_compile(offline), trial.provenance
    assert ran is not None
    followed = _same_numbers(trial)
    if not offline.changes:
        return followed
    kernels = [name for name in captured.kernels if name not in ran.kernels]
    known = {_family(name) for name in ran.library_ops}
    ops = [name for name in captured.ops if _family(name) not in known]
    if not kernels and not ops:
        return {"as_at_full_size": True} | followed
    only = [f"kernels {', '.join(kernels)}"] if kernels else []
    only += [f"PyTorch's {', '.join(ops)}"] if ops else []
    raise Refused(
        "provenance.other_branch",
        f"at the task's own size forward runs {' and '.join(only)}, which it does not run at the "
        "size interpreted",
        UNSEEN,
        facts=AT_OWN_SIZE,
    )


def must_compile(offline: Offline) -> protocol.Captured:
    """What was captured; a call whose launches could not be is refused."""
    captured = offline.captured
    assert captured is not None
    if captured.unsupported:
        evidence = f"not compiled for {offline.target.name}: {captured.unsupported}"
        raise Refused("build.not_compiled", evidence, NOT_CAPTURED)
    return captured


def _same_numbers(trial: Trial) -> Notes:
    """At one size, host code must launch the same for the target as in the interpreter.

    It is followed on fake tensors of the size that was interpreted. A constant of compilation, or a number,
    that no interpreted launch of that kernel was given means that the file tells the two apart. What an
    autotuner chooses is left out.
    """
    offline = trial.offline
    assert offline is not None
    if offline.worker is None or not offline.worker.alive:
        return {}
    sample, program = trial.reference.sample, trial.reference.program
    specs = _specs_as_laid(trial.buffers.sets[0].inputs)
    init = exchange.whole(program.init_arguments())
    question = protocol.Follow(sample.structure, specs, offline.compiler_target(), init)
    reply = offline.worker.ask(question, trial.settings.build_seconds)
    if reply.unsupported:
        return {"numbers": f"not followed: {reply.unsupported}"[:200]}
    tuned = _tuned(trial.candidate.source)
    seen: dict[str, list[dict[str, str]]] = {}
    for kernel, numbers in trial.connection.request(protocol.Asked()).launches:
        seen.setdefault(kernel, []).append({n: v for n, v in numbers if n not in tuned})
    for kernel, numbers in reply.launches:
        wanted = {n: v for n, v in numbers if n not in tuned}
        launched = seen.get(kernel, [])
        if launched and wanted not in launched:
            nearest = min(launched, key=lambda one: len(_unlike(one, wanted)))
            other = ", ".join(
                f"{n} = {wanted.get(n)} where the interpreter was given {nearest.get(n)}"
                for n in _unlike(nearest, wanted)
            )
            raise Refused(
                "provenance.other_branch",
                f"for {offline.target.name}, at the same size, forward launches kernel {kernel} with {other}",
                "host code must not depend on where it runs: derive arguments from shapes and dtypes",
            )
    return {"numbers": len(reply.launches)}


def _seconds_for(source: str) -> float:
    """How long capturing and compiling may take: the compiler itself cannot be interrupted."""
    kernels = max(1, source.count("triton.jit"))
    return COMPILE_SECONDS if "autotune" in source else min(COMPILE_SECONDS, kernels * KERNEL_SECONDS)


def _unlike(one: dict[str, str], other: dict[str, str]) -> list[str]:
    return sorted(n for n in one.keys() | other.keys() if one.get(n) != other.get(n))


def _tuned(source: str) -> set[str]:
    """Names of arguments that configurations of an autotuner set: keys of dictionaries in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Config"):
            for part in ast.walk(node):
                if isinstance(part, ast.Dict):
                    found |= {k.value for k in part.keys if isinstance(k, ast.Constant)}  # type: ignore[misc]
                elif isinstance(part, ast.Call) and ast.unparse(part.func) == "dict":
                    found |= {k.arg for k in part.keywords if k.arg}
    return found


def _family(name: str) -> str:
    """In place or not is the same operation."""
    return FAMILIES.get(name, name).removesuffix("_")


def _with_values(trial: Trial, question: protocol.Capture) -> protocol.Capture:
    """Inputs with values for host code that reads them: the task's own where they are small."""
    assert trial.offline is not None
    nbytes = sum(math.prod(s.shape) * getattr(torch, s.dtype).itemsize for s in question.specs)
    whole = not trial.offline.changes or nbytes <= MOST_WITH_VALUES
    program = trial.offline.full if whole else trial.reference.program
    inputs = program.inputs(secrets.randbits(32), torch.device("cpu"), trial.policy.precision)
    init = None if whole else exchange.whole(program.init_arguments())
    return replace(question, example=exchange.whole(inputs), init=init)


def _sizes(specs: Sequence[protocol.InputForm]) -> str:
    return ", ".join(f"{' x '.join(map(str, s.shape)) or 'a number'} {s.dtype}" for s in specs[:4])


def described(trial: Trial) -> tuple[KernelResources, ...]:
    """The compiled kernels, as the candidate's process describes them.

    It could forge all of it, so it is information, and no verdict rests on it: where it fails there
    are no descriptions, and a warning.
    """
    assert trial.offline is not None
    worker = trial.offline.worker
    if worker is None:
        return ()
    try:
        return worker.ask(protocol.Kernels(every=True, keep_cache=False), COMPILE_SECONDS).kernels
    except Fault as fault:
        trial.warnings.append(f"the kernels could not be described: {fault}"[:300])
        return ()


def forms_of_inputs(program: Program, precision: Precision) -> list[Any]:
    """The task's inputs as forms only: made on fake tensors, in no memory.

    A task that looks at what it has made (``lengths.max().item()``) is made for once with values.
    """
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            return program.inputs(0, torch.device("cpu"), precision)
    except TaskError:
        return map_tensors(program.inputs(0, torch.device("cpu"), precision), form_of)


def specs_of(tensors: Sequence[torch.Tensor]) -> tuple[protocol.InputForm, ...]:
    return tuple(
        protocol.InputForm(
            tuple(t.shape),
            tuple(t.stride()),
            str(t.dtype).removeprefix("torch."),
            int(t.storage_offset()),
            t.requires_grad,
            t.untyped_storage()._cdata,
        )
        for t in tensors
    )


def _specs_as_laid(slots: Sequence[Slot]) -> tuple[protocol.InputForm, ...]:
    """Of inputs as they lie where kernels are interpreted."""
    return tuple(protocol.InputForm(s.shape, s.stride, s.dtype, s.lead, s.learns, s.offset) for s in slots)

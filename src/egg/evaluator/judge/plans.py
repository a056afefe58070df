"""Record a plan of a candidate: at the task's own call, and at the size at which it is interpreted.

The host code runs in a candidate's process, a new one for each size, and what comes back is text. Here it
is put into the frame of a plan file and verified. A plan holds a size that the judge without a GPU runs,
since it answers no other call. Both calls are straight-line data, and one program up to sizes
(:mod:`egg.evaluator.plan.likeness`): what is asked of the smaller one is meant for the task's own.
"""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from egg.core.errors import MachineError, TaskError
from egg.core.evaluation import Gate, PlanAnswer, RecordedPlan, Refusal
from egg.core.policy import Precision
from egg.core.source import Candidate, Task
from egg.evaluator.gates.compile import forms_of_inputs, specs_of
from egg.evaluator.gates.hints import hint_for
from egg.evaluator.judge.constructors import check, private_names, settings
from egg.evaluator.judge.question import PlanRequest
from egg.evaluator.judge.reduction import other_sizes, reduced
from egg.evaluator.plan.assemble import OWN_NAMES, Signature, assembled, form_literal, whole_form
from egg.evaluator.plan.likeness import Call, Likeness, likeness
from egg.evaluator.plan.skeleton import skeleton
from egg.evaluator.plan.spelling import Unspelled
from egg.evaluator.plan.verify import refusal
from egg.evaluator.process.handle import Fault, ForkServer
from egg.evaluator.process.patterns import compiler_target
from egg.evaluator.reference.for_callers import for_callers
from egg.evaluator.reference.lasting import lasting
from egg.evaluator.reference.reference import Reference
from egg.evaluator.task.attributes import unsaved_of
from egg.evaluator.task.meta import on_meta
from egg.evaluator.task.precision import HALF_DTYPES
from egg.evaluator.task.program import Program
from egg.evaluator.task.reachable import Unfollowable
from egg.evaluator.task.seeds import BUILD_SEED
from egg.evaluator.transport import exchange, protocol
from egg.hardware.gpus import Gpu

RECORD_SECONDS = 150.0
UNSUPPORTED = "plan.unsupported"
STEPS, SIZES = "plan.steps", "plan.sizes"
ONE_PROGRAM = (
    "most checks are made at a smaller size, so the call must take the same steps there: launch the same "
    "kernels and call the same functions at every size, or raise an error at the sizes that this program is "
    "not for (assert x.shape[0] % 128 == 0), and a size between is taken; where the task's own size alone "
    "takes these steps, give the task sizes of which a smaller one takes them too"
)
SAME_SHARE = (
    "numbers of slices, views and functions of the library must follow from sizes in one way at every size: "
    "a dimension, a part of one, a product of several; choose no other split where the sizes are large"
)
MOST_DRAWN = 2**25
"""Elements of parameters and buffers up to which constructors are compared at the task's own size."""


@dataclass(frozen=True)
class Recorder:
    """Where host code runs to be recorded, and the GPU that it is given."""

    forkserver: ForkServer
    target: Gpu


@dataclass(frozen=True)
class _Call:
    """One recorded signature."""

    words: str
    signature: Signature
    noted: protocol.Planned
    state: tuple[str, ...]


class _Refused(Exception):
    def __init__(self, reason: str, evidence: str, hint: str) -> None:
        super().__init__(evidence)
        self.refusal = Refusal(Gate.PLAN, reason, evidence, hint)


def recorded(request: PlanRequest, recorder: Recorder) -> PlanAnswer:
    """The plan, verified; what cannot be recorded is a refusal with the reason."""
    try:
        calls = [_recorded_at(request, recorder, request.task)]
        calls += _at_other_sizes(request, recorder, calls[0])
        kernels = tuple(dict.fromkeys(name for call in calls for name in call.noted.kernels))
        source = assembled(
            request.task.source, request.candidate.source, kernels, [c.signature for c in calls],
            f"{request.candidate.name} ({request.candidate.sha256})",
        )  # fmt: skip
        check(_buildable(request))
        moving = _moving(request)
    except _Refused as refused:
        return PlanAnswer(None, refused.refusal)
    except Unspelled as reason:
        return PlanAnswer(None, Refusal(Gate.PLAN, UNSUPPORTED, reason.what, reason.hint))
    wrong = refusal(source, request.task.source, calls[0].state, moving)
    if wrong is not None:
        return PlanAnswer(None, wrong)
    plan, own = Candidate(source), calls[0].noted
    branches = [likeness(_read(calls[0]), _read(call)).branches for call in calls[1:]]
    found = tuple(dict.fromkeys(itertools.chain(*branches)))
    return PlanAnswer(
        RecordedPlan(
            plan.hash, plan.sha256, source, tuple(call.words for call in calls), kernels,
            own.launches, own.operators, own.allocations, not found, found,
        )
    )  # fmt: skip


def _buildable(request: PlanRequest) -> Task:
    """The task at its own size, or where its parameters take long to draw, at the smallest."""
    with Program.load(request.task) as program:
        large = sum(t.numel() for t in on_meta(program).state_dict().values()) > MOST_DRAWN
    small = [*_sizes(request)] if large else []
    return small[0] if small else request.task


def _at_other_sizes(request: PlanRequest, recorder: Recorder, own: _Call) -> list[_Call]:
    """At the first size that the judge would try at which the file takes the steps of the task's own size:
    the size that is interpreted, then those between. Where it runs at some of these and takes others at each,
    there is no plan."""
    other: Likeness | None = None
    for task in _sizes(request):
        with suppress(_Refused):
            call = _recorded_at(request, recorder, task)
            if call.signature.form == own.signature.form:
                continue
            found = likeness(_read(own), _read(call))
            if not found.difference:
                return [call]
            other = other or found
    if other is not None:
        reason, hint = (SIZES, SAME_SHARE) if other.is_number else (STEPS, ONE_PROGRAM)
        evidence = f"another program at the task's own size than at every smaller one: {other.difference}"
        raise _Refused(reason, evidence, hint)
    return []


def _read(call: _Call) -> Call:
    return Call(call.noted.statements, call.noted.result, call.signature.form)


def _sizes(request: PlanRequest) -> Iterator[Task]:
    try:
        small = reduced(request.task, None).size
    except (MachineError, TaskError):  # then it is not interpreted either
        return
    if not small.changes:
        return
    yield small.task
    for size in other_sizes(request.task, small):
        yield size.task


def _recorded_at(request: PlanRequest, recorder: Recorder, task: Task) -> _Call:
    with Program.load(task) as program:
        inputs = forms_of_inputs(program, request.precision)
        module = on_meta(program)
        half = HALF_DTYPES.get(request.precision)
        module = module.to(dtype=half) if half is not None else module
        state, unsaved = _forms(module.state_dict()), _forms(unsaved_of(module))
        modes = [part.training for part in module.modules()]
        weights = [*module.parameters(), *module.buffers()]
        kept = settings(module, private_names(task.source))
        built = list(_built(program).values())
        init = exchange.whole(program.init_arguments())
        given = _arguments(program, inputs)
    structure, tensors = exchange.pack(inputs)
    named = [path for name, value in list(given.items())[: len(inputs)] for path in _paths(value, name)]
    made = skeleton(task.source)
    if tuple(given) != made.parameters:
        raise Unspelled("the task's forward has other arguments than its text says", "write them out")
    noted = _noted(
        request, recorder, init,
        protocol.Plan(
            structure, specs_of(tensors), tuple(named), state, unsaved,
            compiler_target(recorder.target), request.candidate.source, (*OWN_NAMES, *given),
        ),
    )  # fmt: skip
    form = whole_form(list(given.values()), built, weights, modes)
    signature = Signature(
        form, noted.statements, noted.result, tuple(kept), form_literal(list(kept.values()))
    )
    return _Call(_words(given), signature, noted, tuple(form.name for form in (*state, *unsaved)))


def _forms(tensors: Mapping[str, torch.Tensor]) -> tuple[protocol.NamedForm, ...]:
    return tuple(protocol.NamedForm(name, tuple(t.shape), str(t.dtype)) for name, t in tensors.items())


def _noted(request: PlanRequest, recorder: Recorder, init: str, asked: protocol.Plan) -> protocol.Planned:
    worker = recorder.forkserver.worker()
    recorder.forkserver.prepare()
    load = protocol.Load(
        request.candidate.source, init, BUILD_SEED, request.precision.value, asked.target,
        restricted=True, build=False,
    )  # fmt: skip
    try:
        worker.ask(load, RECORD_SECONDS)
        noted = worker.ask(asked, RECORD_SECONDS)
    except Fault as fault:
        raise _Refused(fault.reason, fault.evidence, hint_for(fault.reason)) from fault
    finally:
        worker.end()
    if noted.unsupported:
        raise _Refused(UNSUPPORTED, f"cannot be recorded: {noted.unsupported}", noted.hint)
    if not noted.kernels:
        raise _Refused(
            "provenance.no_kernel", "the recorded call launches no Triton kernel",
            "the work must be done by the file's own kernels",
        )  # fmt: skip
    return noted


def _arguments(program: Program, inputs: list[Any]) -> dict[str, Any]:
    """What forward is called with, by name, with the defaults of what is left out."""
    forward = inspect.signature(program.module.__dict__["Model"].forward)
    bound = forward.bind(None, *inputs)
    bound.apply_defaults()
    return dict(list(bound.arguments.items())[1:])


def _built(program: Program) -> dict[str, Any]:
    """What the constructor takes, by name, with the defaults of what is left out."""
    model = program.module.__dict__["Model"]
    if "__init__" not in vars(model):
        return {}
    args, kwargs = program.init_arguments()
    bound = inspect.signature(model.__init__).bind(None, *args, **kwargs)
    bound.apply_defaults()
    return dict(list(bound.arguments.items())[1:])


def _paths(value: Any, name: str) -> Iterator[str]:
    """How a plan names each tensor of an argument."""
    if isinstance(value, torch.Tensor):
        yield name
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _paths(item, f"{name}[{place}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _paths(item, f"{name}[{json.dumps(key) if isinstance(key, str) else key!r}]")


def _words(given: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {' x '.join(map(str, value.shape)) or 'a number'} {str(value.dtype).removeprefix('torch.')}"
        if isinstance(value, torch.Tensor)
        else f"{name} a {type(value).__name__}"
        for name, value in given.items()
    )


def _moving(request: PlanRequest) -> set[str]:
    """The buffers that the task's own forward changes, seen at a small size."""
    try:
        task = reduced(request.task, None).size.task
    except (MachineError, TaskError):
        task = request.task
    with Program.load(task) as program:
        reference = Reference(program, Precision.MATCH, torch.device("cpu"))
        if lost := sorted({*unsaved_of(reference.module)}.intersection(reference.leaves)):
            raise Unspelled(
                f"forward moves {', '.join(lost[:3])}, which no state_dict holds and nothing compares",
                "save it with the module (persistent=True): then what a call leaves there is compared",
            )
        if reference.writes:
            raise Unspelled(
                f"forward writes to its inputs ({', '.join(map(str, reference.writes))}), which no plan does",
                "judge the file itself",
            )
        if left := sorted(for_callers(reference)):
            raise Unspelled(
                f"forward leaves {', '.join(left[:3])} in attributes for its callers, which no plan writes",
                "judge the file itself; or return it with the answer, or keep it in a buffer that is saved",
            )
    try:
        left = lasting(task, Precision.MATCH)
    except Unfollowable:
        left = ["more objects than can be followed"]
    if left:
        raise Unspelled(
            f"forward leaves {', '.join(left[:3])} behind, which no plan writes",
            "judge the file itself; or return it with the answer, or keep it in a buffer that is saved",
        )
    return reference.moving

"""A candidate's process writes down one call as a plan: statements as text, which the verifier reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from egg.evaluator.offline.launch import CompileFailed
from egg.evaluator.offline.target import GpuTarget
from egg.evaluator.plan.record import Request, record
from egg.evaluator.plan.spelling import Unspelled
from egg.evaluator.transport import exchange, protocol
from egg.evaluator.worker.held import parameters_of, state_of
from egg.evaluator.worker.precompile import tensors_like

FITS = "choose tiles and stages that fit the target's limits"


def planned(make: Callable[[], nn.Module], asked: protocol.Plan) -> protocol.Planned:
    request = Request(
        make,
        partial(tensors_like, asked.specs),
        partial(exchange.unpack, asked.inputs),
        asked.names,
        {form.name: (form.shape, form.dtype) for form in asked.state},
        {form.name: (form.shape, form.dtype) for form in asked.unsaved},
        state_of,
        parameters_of,
        asked.source,
        GpuTarget.of(asked.target),
        asked.taken,
    )
    try:
        found = record(request)
    except Unspelled as reason:
        return protocol.Planned(unsupported=reason.what, hint=reason.hint)
    except CompileFailed as reason:
        return protocol.Planned(unsupported=str(reason), hint=FITS)
    return protocol.Planned(
        "",
        "",
        found.statements,
        found.result,
        found.kernels,
        found.launches,
        found.operators,
        found.allocations,
    )

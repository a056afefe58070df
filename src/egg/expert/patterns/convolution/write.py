"""Convolutions, ordinary and transposed, in one to three dimensions, with what follows them in the
epilogue.

Six ways to write one, each with a file of its own:

- ``packed``: operands brought into the order and the numbers that tensor cores want, then the inner loop of
  a good matrix product (:mod:`.triton.packed`). What nearly every large
  convolution takes.
- ``direct``: operands gathered where they lie (:mod:`.triton.direct`): one tap, or
  so little work that packing would take longer than the convolution.
- ``pointwise``: one tap of up to 128 channels and many positions: weights times positions as they lie
  (:mod:`.triton.pointwise`).
- ``window``: few input channels, so that all inputs of a position fit one tile
  (:mod:`.triton.window`).
- ``shallow``: few input channels and many positions: packed operands, with weights that are loaded once for
  some tiles (:mod:`.triton.shallow`).
- ``depthwise``: one input channel per output channel, of which there may be one (:mod:`.triton.depthwise`).

Settings: ``mode`` is one of these, ``grade`` how exactly fp32 operands are multiplied
(:mod:`~egg.expert.patterns.convolution.grade`); further the constants by name.
"""

from __future__ import annotations

from dataclasses import replace

from egg.expert.graph import Graph
from egg.expert.parts import Group, Part, Target, Unfit
from egg.expert.patterns.convolution.across import lies_across
from egg.expert.patterns.convolution.form import Form
from egg.expert.patterns.convolution.grade import Grade
from egg.expert.patterns.convolution.norms import write_norms
from egg.expert.patterns.convolution.sums import write_sums
from egg.expert.patterns.convolution.tiles import exactness_is_free, keeping_pays, packing_pays, rows_pay
from egg.expert.patterns.convolution.triton.depthwise import write_depthwise
from egg.expert.patterns.convolution.triton.direct import write_direct
from egg.expert.patterns.convolution.triton.packed import write_packed
from egg.expert.patterns.convolution.triton.pointwise import write_pointwise
from egg.expert.patterns.convolution.triton.shallow import write_shallow
from egg.expert.patterns.convolution.triton.window import windowed, write_window
from egg.expert.sizes import ONE

LEAST_STORED = 2**20
"""Elements of an operand from which on a pass joins its pieces."""
FEW_OUTPUTS = 4
"""Output channels per group up to which one input channel each is a stencil rather than a product."""


def write(graph: Graph, group: Group, target: Target) -> Part:
    """One convolution and what follows it as kernels."""
    for cut in (write_norms, write_sums):
        if part := cut(graph, group, target, _write):
            return part
    return _write(graph, group, target)


def _write(graph: Graph, group: Group, target: Target) -> Part:
    form = Form.of(graph, group)
    if "mode" not in target.settings and form.x.elements.value >= LEAST_STORED and lies_across(form):
        raise Unfit("the operand is joined from pieces with their channels innermost: a pass joins them")
    grade = _grade(form, target)
    match str(target.settings.get("mode") or _mode(form, grade, target)):
        case "packed":
            return write_packed(form, grade, target)
        case "direct":
            return write_direct(form, grade, target)
        case "pointwise":
            return write_pointwise(form, grade, target)
        case "window":
            return write_window(form, grade, target)
        case "shallow":
            return write_shallow(form, grade, target)
        case "depthwise":
            return write_depthwise(form, target)
        case other:
            raise Unfit(f"no way to write a convolution is called {other}")


def _grade(form: Form, target: Target) -> Grade:
    """As PyTorch would, or finer where that costs nothing."""
    grade = Grade.of(form, target)
    if grade.name == "tf32" and "grade" not in target.settings:
        free = "mode" not in target.settings and (windowed(form) or exactness_is_free(form, target.gpu))
        return replace(grade, name="fp32") if free else grade
    return grade


def _mode(form: Form, grade: Grade, target: Target) -> str:
    alone = form.groups == ONE and form.outputs != ONE
    stencil = form.inputs == ONE and not alone and form.outputs.value <= FEW_OUTPUTS
    if stencil and not form.phased and form.plane != ONE:
        return "depthwise"
    if windowed(form) and grade.name != "ieee":
        return "window"
    if rows_pay(form, grade, target.gpu):
        return "pointwise"
    if not packing_pays(form, grade, target.gpu):
        return "direct"
    return "shallow" if keeping_pays(form, target.gpu) else "packed"

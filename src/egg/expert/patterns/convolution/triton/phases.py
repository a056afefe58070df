"""Phases of a transposed convolution: what a program must know of its own.

Outputs of neighbouring phases lie side by side in memory. Where the innermost axis has two, a program sums
both, one after the other, and joins them: rows are then written whole. With one phase each, every program
would write every other number, and half of each sector twice. The phases of other axes are rows of their own,
and programs of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from egg.expert.emit.kernel import Kernel
from egg.expert.patterns.convolution.axis import Axis
from egg.expert.patterns.convolution.form import Form
from egg.expert.sizes import Size


def define_steps(form: Form, kernel: Kernel) -> None:
    for axis in form.phased:
        if axis.count.factors:
            kernel.body.line(f"steps_{axis.letter}: tl.constexpr = {axis.count_text}")


def define_phases(form: Form, kernel: Kernel) -> None:
    """Which taps a phase has and where they begin: one number each per program."""
    line = kernel.body.line
    for axis in form.apart:
        x, at = axis.letter, f"r{axis.letter} + {axis.padding}" if axis.padding else f"r{axis.letter}"
        if axis.pace == 1:
            line(f"first_{x} = 0")
        else:
            base = f"({at})" if axis.shared == 1 else f"({at}) // {axis.shared}"
            scaled = f"{base} * {axis.inverse}" if axis.inverse != 1 else base
            line(f"first_{x} = {scaled} % {axis.pace}")
        line(f"origin_{x} = ({at} - first_{x} * {axis.dilation}) // {axis.stride}")
        if axis.uniform:
            line(f"taps_{x}: tl.constexpr = {axis.most_taps}")
            continue
        taps = f"({axis.kernel + axis.pace - 1} - first_{x}) // {axis.pace}"
        line(
            f"taps_{x} = {taps}"
            if axis.shared == 1
            else f"taps_{x} = tl.where(({at}) % {axis.shared} == 0, {taps}, 0)"
        )


def define_phase(form: Form, kernel: Kernel, phase: int) -> None:
    """The same for one phase of the axis whose phases a program has all of."""
    axis, line = form.axes[-1], kernel.body.line
    line(f"first_{axis.letter} = {axis.first(phase)}")
    line(f"origin_{axis.letter} = {axis.origin(phase)}")
    line(f"taps_{axis.letter} = {axis.taps(phase)}")


def leave_out(form: Form, kernel: Kernel, axes: Sequence[Axis]) -> None:
    """Positions that are no outputs in some phases."""
    for axis in axes:
        if axis.out.over(Size(axis.phases)) is None:
            kernel.body.line(f"inside &= q{axis.letter} * {axis.phases} + r{axis.letter} < {axis.out}")


def join_phases(form: Form, kernel: Kernel, *sums: str) -> None:
    kernel.body.line(f"acc = tl.reshape(tl.join({', '.join(sums)}), (BLOCK_O, {form.width} * BLOCK_P))")

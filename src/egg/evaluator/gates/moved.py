"""Buffers that the reference's forward moves: how near to its own the candidate's must arrive."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch

from egg.evaluator.compare.compare import Floor, floor_for, of_buffer
from egg.evaluator.reference.answers import bits, same_values
from egg.evaluator.reference.reference import Reference
from egg.evaluator.reference.yardstick import unit_of

COUNTER = "num_batches_tracked"
"""Only read by a norm whose momentum is ``None``; then the statistics are other ones too."""
MOVE, SIZE, SIZE_OF_HALF = 1e-3, 1e-5, {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""What may be off: of the largest move, and of the largest element; of its own move and size besides."""
OWN_ERRORS = 4.0
"""How many times the reference's own largest error a buffer may be off by."""
OWN_ERRORS_EACH = 32.0
"""How many times the reference's own error of an element that element may be off by."""
SUMS = 2.0
"""How many times as much of a buffer as of an answer another order may change: sums in it may cancel."""
MANTISSA = MappingProxyType({torch.bfloat16: 7, torch.float16: 10, torch.float32: 23, torch.float64: 52})
"""Stored bits of it."""
LEAST = 1e-30
"""Smaller numbers may be flushed to zero."""


def another_order(reference: Reference, dtype: torch.dtype) -> Floor:
    """What another order of sums may move a value by, as in an answer of this dtype.

    A number of 64 bits in a program of 32 is made of sums of 32 bits: a kernel may take parts of them so.
    """
    if dtype is torch.float64:
        unit = unit_of(reference.sample.inputs, reference.module)
        dtype = torch.float64 if unit <= torch.finfo(torch.float64).eps else torch.float32
    return floor_for(dtype, reference.precision)


def is_counter(name: str, value: torch.Tensor) -> bool:
    """Whether a buffer is the count of batches that a norm keeps: one integer."""
    return name.endswith(COUNTER) and value.numel() == 1 and value.dtype == torch.int64


def exact_enough(theirs: torch.Tensor, ours: torch.Tensor, exact: torch.Tensor, order: Floor) -> bool:
    """Whether a buffer is as near to the ``exact`` one as the reference's: all elements together, those of
    one magnitude, and slices of one scale.

    Each element has room for a thousandth of its move (:func:`arrived`), which a sum over few bits would fit
    into as well. But not all elements of an honest one are off by as much: they are off as an answer may be,
    by some times what the reference is, or by what another ``order`` of sums may change.
    """
    wide, own, got = (t.double().flatten() for t in (exact, ours, theirs))
    known = wide.isfinite() & own.isfinite() & got.isfinite()
    if not known.any():
        return True
    wide, own, got = (t[known] for t in (wide, own, got))
    sums = SUMS * order.rms_factor * order.roundoff * _rms(wide)
    if float(_rms(got - wide)) > float(OWN_ERRORS * _rms(own - wide) + sums):
        return False
    return of_buffer([t.double() for t in (theirs, ours, exact)], order).ratio <= SUMS


def _rms(values: torch.Tensor) -> torch.Tensor:
    return values.square().mean().sqrt()


MEAN, VARIANCE = "running_mean", "running_var"


def scale_of(name: str, state: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """What the channels of a norm vary by: errors of its statistics are in proportion to it.

    ``None`` for other buffers.
    """
    before, _, kind = name.rpartition(".")
    variance = state.get(f"{before}.{VARIANCE}" if before else VARIANCE)
    if variance is None or kind not in (MEAN, VARIANCE):
        return None
    wide = variance.double().clamp_min(0.0)
    return wide.sqrt() if kind == MEAN else wide


def usual(errors: Mapping[str, torch.Tensor], state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Each element's own error, or the usual one for its scale where its own is smaller than that.

    The usual one is the median of a norm, of the norm where that is largest: a library decides for each layer
    by its shape which arithmetic it uses, and one that a TF32 convolution leaves nearly exact is luck.
    """
    scales = {name: scale_of(name, state) for name in errors}
    shares: dict[str, float] = {}
    for name, scale in scales.items():
        if scale is not None and scale.shape == errors[name].shape:
            kind, known = name.rpartition(".")[2], scale.isfinite() & (scale > 0.0)
            if known.any():
                share = float((errors[name].to(scale)[known] / scale[known]).median())
                shares[kind] = max(shares.get(kind, 0.0), share)
    found = dict(errors)
    for name, scale in scales.items():
        if scale is not None and scale.shape == errors[name].shape:
            least = (scale * shares.get(name.rpartition(".")[2], 0.0)).nan_to_num(0.0, 0.0, 0.0)
            found[name] = torch.maximum(errors[name].to(scale), least)
    return found


def parts(value: torch.Tensor) -> torch.Tensor:
    """Both parts of complex numbers, each of which is rounded by itself; others as they are."""
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


def usual_nans(theirs: torch.Tensor, ours: torch.Tensor) -> bool:
    """Whether every NaN is one that arithmetic makes, or has the bits of the reference's.

    Its other bits say nothing, and a file could keep something there. Processors set the first bit of the
    mantissa alone or all of them; a cast to a wider type appends zeros.
    """
    theirs, ours = parts(theirs), parts(ours)
    width = MANTISSA.get(ours.dtype)
    if width is None or theirs.dtype is not ours.dtype:
        return True
    own, mantissa = bits(ours), (1 << width) - 1
    odd = theirs.isnan() & (bits(theirs) != own)
    found = bits(theirs)[odd].long() & mantissa
    usual = [1 << (width - 1)] + [((1 << n) - 1) << (width - n) for n in MANTISSA.values() if n <= width]
    return bool(torch.isin(found, torch.tensor(usual, device=found.device)).all())


def arrived(
    theirs: torch.Tensor,
    ours: torch.Tensor,
    before: torch.Tensor,
    *,
    errors: torch.Tensor | None = None,
    singly: bool = True,
) -> bool:
    """Whether every element is where the reference leaves it.

    It may be off by a thousandth of the largest move at most, by the rounding of the largest element, and by
    some of the reference's largest error. That alone would leave room for channels that are small beside
    others, so an element is held to its own move, size and error as well: ``errors``, where the reference's
    were measured (``singly``: not where they cannot be). What the reference leaves infinite or NaN must be
    that, and allows the finite elements nothing. A complex number is two elements.
    """
    theirs, ours, before = map(parts, (theirs, ours, before))
    if not ours.is_floating_point() or not ours.numel():
        return same_values(theirs, ours)
    wide, own, old = theirs.double(), ours.double(), before.double()
    own_error = torch.zeros_like(own) if errors is None else errors.to(own)
    moves, sizes = (t.nan_to_num(0.0, 0.0, 0.0).abs() for t in (own - old, own))
    rounding = SIZE_OF_HALF.get(ours.dtype, SIZE)
    whole = MOVE * moves.max() + rounding * sizes.max() + OWN_ERRORS * own_error.max()
    each = MOVE * moves + rounding * sizes + OWN_ERRORS_EACH * own_error + LEAST
    allowed = torch.minimum(whole, each) if singly else whole
    near = own.isfinite() & ((wide - own).abs() <= allowed)
    return bool((near | (wide == own) | (wide.isnan() & own.isnan())).all())

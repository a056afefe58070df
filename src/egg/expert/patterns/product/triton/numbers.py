"""What kernels do with an operand's numbers before the tensor cores get them, as functions of their own."""

from __future__ import annotations

ROUNDED = '''@triton.jit
def round_tf32(value):
    """To the nearest of TF32's numbers: tensor cores would cut the low bits off, always towards zero."""
    bits = (value.to(tl.int32, bitcast=True) + 0x1000) & -8192
    return tl.where(value == value, bits.to(tl.float32, bitcast=True), value)'''

HALVES = '''@triton.jit
def fp16_halves(tile, axis: tl.constexpr):
    """A tile scaled along the summed axis by powers of two, as fp16 high and low halves with 22 bits
    together, and what undoes the scale.
    """
    largest = tl.max(tl.abs(tile), axis=axis, keep_dims=True)
    exponent = (largest.to(tl.int32, bitcast=True) >> 23) & 255
    exponent = tl.minimum(tl.maximum(exponent, 9), 254)  # both scales stay normal numbers
    scaled = tile * ((262 - exponent) << 23).to(tl.float32, bitcast=True)
    high_half = scaled.to(tl.float16)
    low_half = (scaled - high_half.to(tl.float32)).to(tl.float16)
    return high_half, low_half, ((exponent - 8) << 23).to(tl.float32, bitcast=True)'''

"""The interpreter's op builder with right arithmetic and watched memory.

Triton's semantic layer asks the builder for one operation at a time. The subclass here
answers the ones that are wrong out of the box: anything on bf16 (computed in float32 and
rounded to nearest even, as the hardware does), casts between narrow floats, matrix products
at their input precision, libdevice calls, and every access to memory.

The builder's signatures changed over Triton's releases only in trailing cache-policy
arguments, which an interpreter ignores; they are taken as ``*policy``.
"""

from __future__ import annotations

import math
import re
from dataclasses import fields, replace
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from egg.evaluator.interpreter import approximate, contract, dot, narrow, special, undefined
from egg.evaluator.interpreter.atomics import AtomicBuilder
from egg.evaluator.interpreter.fault import KernelFault
from egg.evaluator.interpreter.handles import (
    AsmResult,
    TensorHandle,
    active_values,
    garbage,
    is_bf16,
    larger,
    mask_data,
    native,
    peek,
    smaller,
    widened,
)
from egg.evaluator.interpreter.scratch import Scratch
from egg.evaluator.interpreter.session import any_order

_ir: Any = interpreter._ir  # type: ignore[attr-defined]

_PTX_APPROXIMATION = re.compile(r"\s*(\w+)\.approx(?:\.ftz)?\.f32\s+\$0,\s*\$1\s*;?\s*")
_REGISTERS = re.compile(r"\s*=&?[rf]\s*,\s*[rf]\s*")
"""Constraints of one result and one operand, in registers of 32 bits."""


class MendedBuilder(AtomicBuilder):
    """See the module's text. ``space`` and ``races`` belong to the launch in progress."""

    scratch: Scratch | None
    """Of the launch in progress, for descriptors that its programs make; none while its arguments are."""
    copies: bool
    """Whether the copy engine loads and stores now: through a descriptor."""

    def adopt_options(self) -> None:
        """Take what the CUDA backend takes, and drop overflow checks that no assert ever reads."""
        precisions = tuple(name.lower() for name in _ir.INPUT_PRECISION.__members__)
        wanted = {
            "allowed_dot_input_precisions": precisions,
            "sanitize_overflow": False,
            "max_num_imprecise_acc_default": 1 << 30,
        }
        known = {field.name for field in fields(self.options)}
        self.options = replace(self.options, **{k: v for k, v in wanted.items() if k in known})

    # arithmetic

    def binary_op(self, lhs: Any, rhs: Any, op: Any) -> Any:
        if is_bf16(lhs):
            result = op(narrow.bf16_to_f32(lhs.data), widened(rhs).data)
            if result.dtype == np.bool_:
                return TensorHandle(result, tl.int1)
            return self.computed(TensorHandle(narrow.f32_to_bf16(result), tl.bfloat16))
        handle = super().binary_op(lhs, rhs, op)
        # Comparisons yield int1; the stock interpreter labels them with their operands' type.
        return TensorHandle(handle.data, tl.int1) if handle.data.dtype == np.bool_ else self.computed(handle)

    def computed(self, handle: Any) -> Any:
        """What arithmetic gave, with a GPU's NaN in a kernel that has been seen to look at a float's bits."""
        if self.space.reads_bits and handle.dtype.scalar.is_floating():
            return TensorHandle(undefined.not_a_number(handle.data, is_bf16(handle)), handle.dtype)
        return handle

    def unary_op(self, arg: Any, op: Any) -> Any:
        if is_bf16(arg):
            return self.computed(
                TensorHandle(narrow.f32_to_bf16(op(narrow.bf16_to_f32(arg.data))), tl.bfloat16)
            )
        handle = super().unary_op(arg, op)
        return handle if op is np.negative else self.computed(handle)

    def ternary_op(self, lhs: Any, rhs: Any, other: Any, op: Any) -> Any:
        if op is not np.where and is_bf16(other):
            result = op(widened(lhs).data, widened(rhs).data, widened(other).data)
            return TensorHandle(narrow.f32_to_bf16(result), tl.bfloat16)
        return super().ternary_op(lhs, rhs, other, op)

    def create_fmul(self, lhs: Any, rhs: Any) -> Any:
        return contract.remember(self.binary_op(lhs, rhs, np.multiply), lhs, rhs)

    def create_fadd(self, lhs: Any, rhs: Any) -> Any:
        once = contract.contracted(lhs, rhs, 1)
        return (
            self.binary_op(lhs, rhs, np.add)
            if once is None
            else self.computed(TensorHandle(once, tl.float32))
        )

    def create_fsub(self, lhs: Any, rhs: Any) -> Any:
        once = contract.contracted(lhs, rhs, -1)
        return (
            self.binary_op(lhs, rhs, np.subtract)
            if once is None
            else self.computed(TensorHandle(once, tl.float32))
        )

    def create_minnumf(self, lhs: Any, rhs: Any) -> Any:
        return self.binary_op(lhs, rhs, smaller())

    def create_maxnumf(self, lhs: Any, rhs: Any) -> Any:
        return self.binary_op(lhs, rhs, larger())

    def create_clampf(self, arg: Any, lo: Any, hi: Any, propagate_nans: Any) -> Any:
        if propagate_nans == _ir.PROPAGATE_NAN.NONE:
            return self.binary_op(self.binary_op(arg, lo, larger()), hi, smaller())
        return self.ternary_op(arg, lo, hi, np.clip)

    def create_fma(self, x: Any, y: Any, z: Any) -> Any:
        """One rounding: the product is exact in float64 for every narrower type."""
        if z.data.dtype == np.float64:
            return super().create_fma(x, y, z)
        exact = [widened(h).data.astype(np.float64) for h in (x, y, z)]
        result = exact[0] * exact[1] + exact[2]
        if is_bf16(z):
            return TensorHandle(narrow.f32_to_bf16(result.astype(np.float32)), tl.bfloat16)
        return self.computed(TensorHandle(result.astype(z.data.dtype), z.dtype.scalar))

    def create_erf(self, arg: Any) -> Any:
        return self.unary_op(arg, special.elementwise(math.erf))

    def create_rsqrt(self, arg: Any) -> Any:
        return self.unary_op(arg, lambda x: (1 / np.sqrt(approximate.flushed(x))).astype(x.dtype))

    def create_sqrt(self, arg: Any) -> Any:
        return self.unary_op(arg, lambda x: np.sqrt(approximate.flushed(x)))

    def create_exp2(self, arg: Any) -> Any:
        return self.unary_op(arg, lambda x: approximate.flushed(np.exp2(x)))

    def create_frem(self, lhs: Any, rhs: Any) -> Any:
        return self.binary_op(lhs, rhs, approximate.remainder)

    def create_dot(self, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        if self.races is not None:
            self.races.pipelines.dot(self.races.program)
        left, right = (dot.operand(h.data, h.dtype.scalar.name) for h in (a, b))
        precision = getattr(input_precision, "name", "IEEE")
        both_f32 = left.dtype == right.dtype == np.float32 and a.dtype.scalar == tl.float32
        acc = widened(d)
        if a.dtype.scalar.is_fp8() and b.dtype.scalar.is_fp8() and acc.data.dtype == np.float32:
            return TensorHandle(
                dot.product_of_bytes(left, right, acc.data, int(max_num_imprecise_acc)), d.dtype.scalar
            )
        result = dot.product(left, right, acc.data, precision if both_f32 else "IEEE")
        if is_bf16(d):
            return TensorHandle(narrow.f32_to_bf16(result), tl.bfloat16)
        return TensorHandle(result, d.dtype.scalar)

    # what the language leaves undefined

    def create_fp_to_si(self, src: Any, dst_type: Any) -> Any:
        kind = interpreter._get_np_dtype(dst_type)
        return TensorHandle(undefined.whole(self._plain(src).data, kind), dst_type.scalar)

    create_fp_to_ui = create_fp_to_si

    def create_sdiv(self, lhs: Any, rhs: Any) -> Any:
        quotient = self.create_idiv(lhs, rhs)
        return TensorHandle(undefined.divided(quotient.data, lhs.data, rhs.data, False), quotient.dtype)

    create_udiv = create_sdiv

    def create_srem(self, lhs: Any, rhs: Any) -> Any:
        rest = self.binary_op(lhs, rhs, np.fmod)
        return TensorHandle(undefined.divided(rest.data, lhs.data, rhs.data, True), rest.dtype)

    create_urem = create_srem

    def create_shl(self, lhs: Any, rhs: Any) -> Any:
        moved = self.binary_op(lhs, rhs, np.left_shift)
        return TensorHandle(undefined.shifted(moved.data, lhs.data, rhs.data, np.left_shift), moved.dtype)

    def create_lshr(self, lhs: Any, rhs: Any) -> Any:
        moved = self.binary_op(lhs, rhs, np.right_shift)
        return TensorHandle(undefined.shifted(moved.data, lhs.data, rhs.data, np.right_shift), moved.dtype)

    def create_ashr(self, lhs: Any, rhs: Any) -> Any:
        moved = super().create_ashr(lhs, rhs)
        return TensorHandle(undefined.shifted(moved.data, lhs.data, rhs.data, np.right_shift), moved.dtype)

    def create_gather(self, src: Any, indices: Any, axis: int) -> Any:
        return TensorHandle(undefined.gathered(src.data, indices.data, axis), src.dtype.scalar)

    def create_histogram(self, data: Any, bins: int, mask: Any) -> Any:
        inside = super().create_histogram(data, bins, mask)
        return TensorHandle(undefined.counted(inside.data, data.data, mask_data(mask)), inside.dtype)

    def create_ptr_to_int(self, src: Any, dst_type: Any) -> Any:
        shown = self.space.exposed(src.data)
        return TensorHandle(shown.view(interpreter._get_np_dtype(dst_type)), dst_type.scalar)

    def create_int_to_ptr(self, src: Any, dst_type: Any) -> Any:
        self.space.recast = True
        return TensorHandle(self.space.pointed(src.data), dst_type.scalar)

    def create_bitcast(self, src: Any, dst_type: Any) -> Any:
        self.space.recast |= dst_type.scalar.is_ptr()
        self.space.looked |= src.dtype.scalar.is_floating()
        return super().create_bitcast(src, dst_type)

    # order

    def create_cat(self, lhs: Any, rhs: Any) -> Any:
        """``tl.cat(..., can_reorder=True)``: the elements of both, in an order that nothing promises."""
        joined = np.concatenate([lhs.data, rhs.data])
        return TensorHandle(joined[any_order(joined.size)], lhs.dtype.scalar)

    def create_reshape(self, arg: Any, shape: Any, allow_reorder: Any) -> Any:
        if not allow_reorder:
            return super().create_reshape(arg, shape, allow_reorder)
        flat = arg.data.reshape(-1)
        return TensorHandle(flat[any_order(flat.size)].reshape(shape), arg.dtype.scalar)

    # casts

    def cast_impl(self, src: Any, dst_type: Any) -> Any:
        target = dst_type.scalar
        src = self._plain(src)
        if target == tl.bfloat16:
            return TensorHandle(narrow.f32_to_bf16(src.data.astype(np.float32)), target)
        if target.name in narrow.FLOAT8:
            return TensorHandle(narrow.f32_to_f8(src.data.astype(np.float32), target.name), target)
        return super().cast_impl(src, dst_type)

    def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        target, source = dst_type.scalar, src.dtype.scalar
        toward_zero = rounding_mode == _ir.ROUNDING_MODE.RTZ
        plain = self._plain(src)
        if toward_zero and target == tl.bfloat16:
            return TensorHandle(narrow.f32_to_bf16_toward_zero(plain.data.astype(np.float32)), target)
        exotic = {t.name for t in (source, target) if t.is_fp8()} - narrow.FLOAT8.keys()
        if toward_zero or exotic:
            return super().create_fp_to_fp(src, dst_type, rounding_mode)
        return self.cast_impl(plain, dst_type)

    @staticmethod
    def _plain(src: Any) -> Any:
        """A narrow float's bits as float32 values; anything else untouched."""
        if src.data.dtype == np.uint8 and src.dtype.scalar.name in narrow.FLOAT8:
            return TensorHandle(narrow.f8_to_f32(src.data, src.dtype.scalar.name), tl.float32)
        return widened(src)

    def get_bf16(self, value: float) -> Any:
        return TensorHandle(narrow.f32_to_bf16(np.array([value], dtype=np.float32)), tl.bfloat16)

    # functions from elsewhere

    def create_extern_elementwise(
        self, lib_name: str, lib_path: str, symbol: str, args: list[Any], ret_type: Any, is_pure: bool
    ) -> Any:
        from egg.evaluator.interpreter.libdevice import lookup

        function = lookup(symbol)
        if function is None:
            raise KernelFault("unsupported", f"{self.where()}: {symbol} has no CPU counterpart here")
        scalar = ret_type.scalar
        result = function(*(arg.data for arg in args))
        return TensorHandle(np.asarray(result).astype(interpreter._get_np_dtype(scalar)), scalar)

    def create_inline_asm(
        self, asm: str, constraints: str, values: list[Any], types: Any, is_pure: bool, pack: int
    ) -> Any:
        """The one-instruction approximations that kernels do use; other assembly cannot be judged.

        They take and give float32. Registers have no type in PTX: of another dtype the bits would be read.
        """
        match = _PTX_APPROXIMATION.fullmatch(asm)
        function = approximate.INSTRUCTIONS.get(match[1]) if match else None
        fits = _REGISTERS.fullmatch(constraints) and len(values) == 1 and len(types) == 1
        fits = fits and values[0].dtype.scalar == tl.float32 and types[0].scalar == tl.float32
        if function is None or not fits or pack != 1:  # of two elements $1 is the second result
            raise KernelFault(
                "unsupported", f"{self.where()}: inline assembly cannot be interpreted: {asm!r}"
            )
        return AsmResult([TensorHandle(function(values[0].data), values[0].dtype.scalar)])

    # memory

    def create_load(self, ptr: Any, *policy: Any) -> Any:
        return self.create_masked_load(ptr, None, None)

    def create_store(self, ptr: Any, val: Any, *policy: Any) -> Any:
        return self.create_masked_store(ptr, val, None)

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *policy: Any, **named: Any) -> Any:
        element = ptrs.get_element_ty()
        dtype = interpreter._get_np_dtype(element)
        mask = mask_data(mask)
        real, touched = self.space.translate(ptrs.data, mask, dtype.itemsize, "load")
        self.left_behind(touched, dtype.itemsize, "load")
        if self.races is not None:
            for part in touched:
                self.races.load(part, dtype.itemsize, copied=self.copies)
        if other is not None:
            fill = other.data
        elif mask is None or mask.all():
            fill = np.zeros(real.shape, dtype=dtype)
        else:
            fill = garbage(element, dtype, real.shape)
        lanes = np.ones(real.shape, dtype=bool) if mask is None else mask
        return TensorHandle(native.load(real, lanes, fill, dtype), element)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *policy: Any, **named: Any) -> Any:
        mask = mask_data(mask)
        data = value.data
        real, touched = self.space.translate(ptrs.data, mask, data.itemsize, "store")
        self.left_behind(touched, data.itemsize, "store")
        if self.races is not None:
            for part in touched:
                active = active_values(data, part, real.shape)
                self.races.store(
                    part,
                    data.itemsize,
                    lambda part=part: peek(part, data.dtype),
                    active,
                    copied=self.copies,
                )
        lanes = np.ones(real.shape, dtype=bool) if mask is None else mask
        return native.store(real, data, lanes)

    def create_make_tensor_descriptor(self, base: Any, *form: Any, **named: Any) -> Any:
        """One that a program makes lies in scratch memory, which the file's own allocator gives."""
        if self.scratch is not None:
            self.scratch.need(self.where())
        return super().create_make_tensor_descriptor(base, *form, **named)

    def create_descriptor_load(self, desc: Any, indices: list[Any], *policy: Any) -> Any:
        """NaN padding of bf16 must be written as bits; everything else the original does well."""
        element = desc.base.dtype.element_ty
        self.copies = True
        try:
            if element != tl.bfloat16 or desc.padding != _ir.PADDING_OPTION.PAD_NAN:
                return super().create_descriptor_load(desc, indices, *policy)
            ptrs, mask = desc.materialize_pointers(indices)
            other = TensorHandle(np.full(ptrs.data.shape, narrow.BF16_NAN), element)
            return self.create_masked_load(ptrs, mask, other)
        finally:
            self.copies = False

    def create_descriptor_store(self, desc: Any, value: Any, indices: list[Any]) -> Any:
        self.copies = True
        try:
            return super().create_descriptor_store(desc, value, indices)
        finally:
            self.copies = False

    def create_barrier(self) -> None:
        if self.races is not None:
            self.races.barrier()

    def create_assume(self, condition: Any) -> None:
        if not np.asarray(condition.data).all():
            raise KernelFault("hint", f"{self.where()}: what tl.assume(...) states does not hold")

"""Atomics in the interpreter: watched for races, and by lot in any order of their lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from egg.evaluator.interpreter import narrow
from egg.evaluator.interpreter.handles import TensorHandle, is_bf16, mask_data, native
from egg.evaluator.interpreter.memory import AddressSpace, Touched
from egg.evaluator.interpreter.races import Accumulates, RaceDetector
from egg.evaluator.interpreter.session import LOT, any_order

_ir: Any = interpreter._ir  # type: ignore[attr-defined]
_Stock: Any = interpreter.InterpreterBuilder


class AtomicBuilder(_Stock):
    """The part of the builder that changes memory atomically."""

    space: AddressSpace
    """Of the launch in progress; so is ``races``."""
    races: RaceDetector | None
    before_atomic: Callable[[], None] | None
    """Where programs take turns: hands over to another."""

    def where(self) -> str:
        return f"kernel {self.space.kernel}, program {self.space.program}"

    def left_behind(self, touched: list[Touched], itemsize: int, action: str) -> None:
        """Watch for loads of what an earlier call left, where they are looked for."""
        if self.space.session.left is not None:
            self.space.session.left.touch(self.space.kernel, touched, itemsize, action)

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        real = self._atomic_addresses(ptr, None, val.data.itemsize, Accumulates.NOTHING, sem, scope)
        return super().create_atomic_cas(TensorHandle(real, ptr.dtype), cmp, val, sem, scope)

    def create_atomic_rmw(self, op: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        kinds = {_ir.ATOMIC_OP.FADD: Accumulates.FLOATS, _ir.ATOMIC_OP.XCHG: Accumulates.NOTHING}
        real = self._atomic_addresses(
            ptr, mask, val.data.itemsize, kinds.get(op, Accumulates.COUNTS), sem, scope
        )
        if op == _ir.ATOMIC_OP.FADD and val.data.itemsize == 2:
            return self._half_atomic_add(real, val, mask_data(mask))
        if LOT.cast and real.size > 1:
            return self._in_any_order(op, TensorHandle(real, ptr.dtype), val, mask, sem, scope)
        return super().create_atomic_rmw(op, TensorHandle(real, ptr.dtype), val, mask, sem, scope)

    def _in_any_order(self, op: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        """The lanes of one atomic reach an element that they share in no order that anything promises."""
        order = any_order(ptr.data.size)
        shuffled = (
            TensorHandle(np.broadcast_to(h.data, ptr.data.shape).ravel()[order], h.dtype)
            for h in (ptr, val, mask)
        )
        found = super().create_atomic_rmw(op, *shuffled, sem, scope)
        before = np.empty_like(found.data)
        before[order] = found.data
        return TensorHandle(before.reshape(ptr.data.shape), found.dtype)

    def create_atomic_load(self, ptr: Any, mask: Any, sem: Any, scope: Any) -> Any:
        element = ptr.get_element_ty()
        dtype = interpreter._get_np_dtype(element)
        real = self._atomic_addresses(ptr, mask, dtype.itemsize, Accumulates.READS, sem, scope)
        lanes = np.ones(real.shape, dtype=bool) if mask is None else mask_data(mask)
        return TensorHandle(native.load(real, lanes, np.zeros(real.shape, dtype=dtype), dtype), element)

    def create_atomic_store(self, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        real = self._atomic_addresses(ptr, mask, val.data.itemsize, Accumulates.NOTHING, sem, scope)
        lanes = np.ones(real.shape, dtype=bool) if mask is None else mask_data(mask)
        return native.store(real, val.data, lanes)

    def create_atomic_poll(self, ptr: Any, expected: Any, timeout_ns: Any, sem: Any, scope: Any) -> Any:
        """Programs run in turn: what is not there yet will never come while this one waits."""
        value = self.create_atomic_load(ptr, None, sem, scope)
        matched = value.data == expected.data
        if timeout_ns is None and not matched.all():
            self.space.session.waits(f"{self.where()}: waits for another program, which runs only later")
        return TensorHandle(np.asarray(matched), tl.int1)

    def _atomic_addresses(
        self, ptr: Any, mask: Any, itemsize: int, accumulates: Accumulates, sem: Any, scope: Any
    ) -> np.ndarray:
        """Where an atomic happens. One whose scope is its own block (CTA) orders nothing between programs."""
        if self.before_atomic is not None:
            self.before_atomic()
        real, touched = self.space.translate(ptr.data, mask_data(mask), itemsize, "atomic")
        self.left_behind(touched, itemsize, "atomic")
        if self.races is not None:
            kinds = _ir.MEM_SEMANTIC
            between = scope != _ir.MEM_SYNC_SCOPE.CTA
            acquires = sem in (kinds.ACQUIRE, kinds.ACQUIRE_RELEASE)
            releases = sem in (kinds.RELEASE, kinds.ACQUIRE_RELEASE)
            for part in touched:
                self.races.atomic(part, itemsize, accumulates, acquires, releases, between=between)
        return real

    def _half_atomic_add(self, real: np.ndarray, val: Any, mask: np.ndarray | None) -> Any:
        """16-bit float adds, lane by lane in order: each rounds, and lanes may share an element."""
        old = np.zeros(real.shape, dtype=val.data.dtype)
        bf16 = is_bf16(val)
        addends = np.broadcast_to(val.data, real.shape)
        lanes = np.ones(real.shape, dtype=bool) if mask is None else np.broadcast_to(mask, real.shape)
        one, zero = np.ones(1, dtype=bool), np.zeros(1, dtype=old.dtype)
        for lane in zip(*np.nonzero(lanes), strict=True):
            address = real[lane].reshape(1)
            before = native.load(address, one, zero, old.dtype)
            if bf16:
                after = narrow.f32_to_bf16(narrow.bf16_to_f32(before) + narrow.bf16_to_f32(addends[lane]))
            else:
                after = before + addends[lane]
            native.store(address, after, one)
            old[lane] = before[0]
        return TensorHandle(old, val.dtype.scalar)

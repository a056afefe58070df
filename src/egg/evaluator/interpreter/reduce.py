"""Reductions and scans: right for bf16 and NaN, and by whole arrays instead of element by element.

The stock interpreter calls a custom combine function once per element, in Python. Combine
functions are associative and elementwise by Triton's rules, so a reduction is a tree of
combinations of halves (log n calls on arrays), and a scan is the classic
doubling scheme over the chunks that threads hold. The tree is also how a GPU adds, which
matters to 16-bit sums.

A scan keeps the order of its elements, but not their association: how many a thread holds is drawn where
lots are. A reduction does not: a GPU exchanges values between lanes
that are half a warp apart, then a quarter, and which element lies in which lane is the layout's affair.
So the axis is shuffled first, always in the same way unless lots are drawn: a combine
function that does not commute is wrong here as it is there. Of equal extremes the variants that do not
break ties to the left return any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from egg.evaluator.interpreter import narrow
from egg.evaluator.interpreter.handles import TensorHandle, larger, smaller
from egg.evaluator.interpreter.session import LOT, any_order

_CHUNKS = (4, 1, 2, 8)
"""Elements of a scan that one thread may hold, by lot; the first where none is drawn."""

Arrays = list[np.ndarray]
Combine = Callable[[Arrays, Arrays], Arrays]


def make_tensor(data: np.ndarray, dtype: Any) -> Any:
    """Wrap an array as the language's tensor; a scalar is an array of one element, unblocked."""
    data = np.asarray(data).astype(interpreter._get_np_dtype(dtype), copy=False)
    if data.ndim == 0:
        return tl.core.tensor(TensorHandle(data.reshape(1), dtype.scalar), dtype)
    return tl.core.tensor(TensorHandle(data, dtype.scalar), tl.block_type(dtype, list(data.shape)))


def tree(arrays: Arrays, combine: Combine) -> Arrays:
    """Shuffle axis 0, then combine its two halves until one element is left, as lanes of a warp do."""
    order = any_order(arrays[0].shape[0])
    arrays = [a[order] for a in arrays]
    while (length := arrays[0].shape[0]) > 1:
        half = length // 2
        merged = combine([a[:half] for a in arrays], [a[half : 2 * half] for a in arrays])
        arrays = [
            np.concatenate([m, a[2 * half :]]) if length % 2 else m
            for m, a in zip(merged, arrays, strict=True)
        ]
    return [a[0] for a in arrays]


def doubling_scan(arrays: Arrays, combine: Combine) -> Arrays:
    """Inclusive prefix along axis 0: after step d each element covers its last 2d inputs.

    The first d elements are complete and keep their values; they take part in the
    combination all the same, because a block's length must stay a power of two.
    """
    distance = 1
    while distance < arrays[0].shape[0]:
        earlier = [np.concatenate([a[:distance], a[:-distance]]) for a in arrays]
        merged = combine(earlier, arrays)
        arrays = [np.concatenate([a[:distance], m[distance:]]) for a, m in zip(arrays, merged, strict=True)]
        distance *= 2
    return arrays


def chunked_scan(arrays: Arrays, combine: Combine, chunk: int) -> Arrays:
    """Inclusive prefix along axis 0 as a GPU finds it: each thread's ``chunk`` in order, then the threads.

    What stands before a thread's chunk is combined with every partial result in it.
    """
    threads = arrays[0].shape[0] // chunk
    rows = [a.reshape(threads, chunk, *a.shape[1:]) for a in arrays]
    partial = [[a[:, 0] for a in rows]]
    for step in range(1, chunk):
        partial.append(combine(partial[-1], [a[:, step] for a in rows]))
    before = doubling_scan(partial[-1], combine)
    shifted = [np.concatenate([a[:1], a[:-1]]) for a in before]
    done: list[Arrays] = []
    for mine in partial:
        merged = combine(shifted, mine)
        done.append([np.concatenate([p[:1], m[1:]]) for p, m in zip(mine, merged, strict=True)])
    return [
        np.stack(steps, axis=1).reshape(a.shape)
        for steps, a in zip(zip(*done, strict=True), arrays, strict=True)
    ]


def combiner(function: Any, dtypes: Sequence[Any]) -> Combine:
    """A kernel's combine function as a function on arrays."""

    def combine(left: Arrays, right: Arrays) -> Arrays:
        tensors = [make_tensor(a, t) for a, t in zip([*left, *right], [*dtypes, *dtypes], strict=True)]
        result = function(*tensors)
        results = result if isinstance(result, tuple | tl.tuple) else (result,)
        shape = left[0].shape
        return [
            np.broadcast_to(getattr(getattr(r, "handle", None), "data", r), shape).astype(a.dtype, copy=False)
            for r, a in zip(results, left, strict=True)
        ]

    return combine


def _plain_axis(axis: Any, ndim: int) -> int | None:
    axis = axis.value if isinstance(axis, tl.constexpr) else axis
    if axis is None:
        return None
    if not -ndim <= axis < ndim:
        raise ValueError(f"axis {axis} out of bounds for a tensor of {ndim} dimensions")
    return axis % ndim


class MendedReduce(interpreter.ReduceOps):
    def apply_impl(self, input: tuple[Any, ...]) -> Any:
        """The common reductions by one numpy call, any other by the tree."""
        self.axis = _plain_axis(self.axis, input[0].handle.data.ndim)
        first, dtype = input[0].handle.data, input[0].dtype
        values = narrow.bf16_to_f32(first) if dtype == tl.bfloat16 else first
        standard, function = tl.standard, self.combine_fn
        if function is standard._elementwise_max:
            return self._pack(_extreme(larger(), values, self.axis), dtype, first.ndim)
        if function is standard._elementwise_min:
            return self._pack(_extreme(smaller(), values, self.axis), dtype, first.ndim)
        if function is standard._sum_combine and values.dtype != np.float16 and dtype != tl.bfloat16:
            return self._pack(np.sum(values, axis=self.axis, dtype=values.dtype), dtype, first.ndim)
        if function is standard._argmax_combine_tie_break_left:
            return self._extreme_and_index(values, dtype, larger(), np.argmax, -np.inf)
        if function is standard._argmin_combine_tie_break_left:
            return self._extreme_and_index(values, dtype, smaller(), np.argmin, np.inf)
        if function is standard._argmax_combine_tie_break_fast:
            return self._extreme_and_index(values, dtype, larger(), _any_place(np.argmax), -np.inf)
        if function is standard._argmin_combine_tie_break_fast:
            return self._extreme_and_index(values, dtype, smaller(), _any_place(np.argmin), np.inf)
        arrays = [t.handle.data.reshape(-1) if self.axis is None else t.handle.data for t in input]
        arrays = [np.moveaxis(a, self.axis or 0, 0) for a in arrays]
        results = tree(arrays, combiner(function, [t.dtype for t in input]))
        return tuple(self._pack(r, t.dtype, first.ndim, True) for r, t in zip(results, input, strict=True))

    def _extreme_and_index(
        self, values: np.ndarray, dtype: Any, best: Any, index_of: Any, worst: float
    ) -> Any:
        comparable = values
        if values.dtype.kind == "f" and np.isnan(values).any():
            comparable = np.where(np.isnan(values), values.dtype.type(worst), values)
        value = self._pack(_extreme(best, values, self.axis), dtype, values.ndim)
        index = index_of(comparable, axis=self.axis)
        return value, self._pack(np.asarray(index), tl.int32, values.ndim)

    def _pack(self, data: np.ndarray, dtype: Any, ndim: int, as_bits: bool = False) -> Any:
        data = np.asarray(data)
        if self.keep_dims:
            data = data.reshape((1,) * ndim) if self.axis is None else np.expand_dims(data, self.axis)
        if dtype == tl.bfloat16 and not as_bits:
            data = narrow.f32_to_bf16(data)
        tensor = make_tensor(data, dtype)
        if not as_bits:
            builder: Any = interpreter.interpreter_builder
            tensor.handle = builder.computed(tensor.handle)
        return tensor


def _any_place(index_of: Any) -> Any:
    """The place of one of several equal extremes: the last of them, or by lot."""

    def place(values: np.ndarray, axis: int | None) -> np.ndarray:
        values = values.reshape(-1) if axis is None else values
        along = axis or 0
        count = values.shape[along]
        order = any_order(count) if LOT.cast else np.arange(count)[::-1]
        return order[index_of(np.take(values, order, axis=along), axis=along)]

    return place


def _extreme(ufunc: Any, values: np.ndarray, axis: int | None) -> np.ndarray:
    return ufunc.reduce(values.reshape(-1)) if axis is None else ufunc.reduce(values, axis=axis)


class MendedScan(interpreter.ScanOps):
    def apply_impl(self, input: tuple[Any, ...]) -> Any:
        """Running sums and products of wide types by numpy, any other scan by doubling."""
        axis = _plain_axis(self.axis, input[0].handle.data.ndim) or 0
        arrays = [np.moveaxis(t.handle.data, axis, 0) for t in input]
        arrays = [a[::-1] for a in arrays] if self.reverse else arrays
        wide = input[0].dtype != tl.bfloat16 and arrays[0].dtype != np.float16
        if wide and self.combine_fn is tl.standard._sum_combine:
            arrays = [np.cumsum(arrays[0], axis=0, dtype=arrays[0].dtype)]
        elif wide and self.combine_fn is tl.standard._prod_combine:
            arrays = [np.cumprod(arrays[0], axis=0, dtype=arrays[0].dtype)]
        else:
            combine = combiner(self.combine_fn, [t.dtype for t in input])
            chunk = _CHUNKS[LOT.seed % len(_CHUNKS)]
            long = arrays[0].shape[0] > 2 * chunk > 2
            arrays = chunked_scan(arrays, combine, chunk) if long else doubling_scan(arrays, combine)
        arrays = [a[::-1] for a in arrays] if self.reverse else arrays
        return [
            make_tensor(np.ascontiguousarray(np.moveaxis(a, 0, axis)), t.dtype)
            for a, t in zip(arrays, input, strict=True)
        ]


def mend() -> None:
    """The language's ``reduce`` and ``associative_scan`` look these classes up when called."""
    interpreter.ReduceOps = MendedReduce
    interpreter.ScanOps = MendedScan

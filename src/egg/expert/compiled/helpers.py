"""Device functions that generated kernels call by the names of Inductor's helper module, written for a file.

Each is a definition of the file; a kernel gets those that it calls, and those that they call. A helper that
is not in :data:`HELPERS` (random numbers, sorting, bisection) keeps its kernel from being taken.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping

_TEXTS = (
    '''
@triton.jit
def maximum(a, b):
    """The larger of two; NaN where one of them is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    '''
@triton.jit
def minimum(a, b):
    """The smaller of two; NaN where one of them is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    '''
@triton.jit
def max2(x, dim):
    """The largest along a dimension; NaN where there is one."""
    return tl.reduce(x, dim, maximum)
''',
    '''
@triton.jit
def min2(x, dim):
    """The smallest along a dimension; NaN where there is one."""
    return tl.reduce(x, dim, minimum)
''',
    """
@triton.jit
def multiply(a, b):
    return a * b
""",
    '''
@triton.jit
def prod(x, dim):
    """The product along a dimension."""
    return tl.reduce(x, dim, multiply)
''',
    """
@triton.jit
def either(a, b):
    return a | b
""",
    '''
@triton.jit
def any(x, dim):
    """Whether one along a dimension is true."""
    return tl.reduce(x, dim, either)
''',
    '''
@triton.jit
def larger_with_index(value_a, index_a, value_b, index_b):
    """The larger value and where it is: NaN before all numbers, the first of equal ones."""
    nan_a, nan_b = value_a != value_a, value_b != value_b
    equal = (value_a == value_b) | (nan_a & nan_b)
    first = (value_a > value_b) | (nan_a & (value_b == value_b)) | (equal & (index_a < index_b))
    return tl.where(first, value_a, value_b), tl.where(first, index_a, index_b)
''',
    '''
@triton.jit
def smaller_with_index(value_a, index_a, value_b, index_b):
    """The smaller value and where it is: NaN before all numbers, the first of equal ones."""
    nan_a, nan_b = value_a != value_a, value_b != value_b
    equal = (value_a == value_b) | (nan_a & nan_b)
    first = (value_a < value_b) | (nan_a & (value_b == value_b)) | (equal & (index_a < index_b))
    return tl.where(first, value_a, value_b), tl.where(first, index_a, index_b)
''',
    """
@triton.jit
def maximum_with_index(value_a, index_a, value_b, index_b):
    return larger_with_index(value_a, index_a, value_b, index_b)
""",
    """
@triton.jit
def minimum_with_index(value_a, index_a, value_b, index_b):
    return smaller_with_index(value_a, index_a, value_b, index_b)
""",
    '''
@triton.jit
def max_with_index(value, index, dim):
    """The largest along a dimension, and its index."""
    return tl.reduce((value, index), dim, larger_with_index)
''',
    '''
@triton.jit
def min_with_index(value, index, dim):
    """The smallest along a dimension, and its index."""
    return tl.reduce((value, index), dim, smaller_with_index)
''',
    '''
@triton.jit
def welford_reduce(value, mean, m2, weight, first_iteration):
    """Mean, sum of squared deviations and count after one more value."""
    count = weight + 1
    deviation = value - mean
    moved = mean + deviation / count
    return moved, m2 + deviation * (value - moved), count
''',
    '''
@triton.jit
def welford_combine(mean_a, m2_a, weight_a, mean_b, m2_b, weight_b):
    """Mean, sum of squared deviations and count of two sets together; either may be empty."""
    weight = weight_a + weight_b
    share = tl.where(weight == 0.0, 0.0, weight_b / weight)
    apart = mean_b - mean_a
    return mean_a + apart * share, m2_a + m2_b + apart * apart * weight_a * share, weight
''',
    '''
@triton.jit
def welford(mean, m2, weight, dim):
    """Mean, sum of squared deviations and count along a dimension."""
    return tl.reduce((mean, m2, weight), dim, welford_combine)
''',
    """
@triton.jit
def online_exp(x, use_fast_math: tl.constexpr):
    return tl.exp2(x * 1.4426950408889634) if use_fast_math else libdevice.exp(x)
""",
    '''
@triton.jit
def online_softmax_combine(largest, total, value, use_fast_math: tl.constexpr):
    """The largest value so far and the sum of exponentials below it, after one more value."""
    new = maximum(largest, value)
    empty = new == float("-inf")
    kept = tl.where(empty, 1.0, online_exp(largest - new, use_fast_math))
    added = tl.where(empty, 1.0, online_exp(value - new, use_fast_math))
    return new, total * kept + added
''',
    '''
@triton.jit
def online_softmax_reduce(largest, total, dim, use_fast_math: tl.constexpr):
    """The largest value along a dimension, and the sum of exponentials below it."""
    top = max2(largest, dim)
    below = tl.expand_dims(top, dim)
    distance = tl.where(below == float("-inf"), 0.0, largest - below)
    return top, tl.sum(total * online_exp(distance, use_fast_math), dim)
''',
    '''
@triton.jit
def select_one(x, mask, dim, keep_dims=False):
    """The one element along a dimension where ``mask`` is true."""
    return tl.sum(tl.where(mask, x, 0), dim, keep_dims=keep_dims).to(x.dtype)
''',
    '''
@triton.jit
def promote_to_tensor(x):
    """A number as a tensor of one element."""
    return x + tl.zeros((1,), tl.int1)
''',
    '''
@triton.jit
def div_floor_integer(a, b):
    """The quotient of integers, rounded down."""
    quotient = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), quotient - 1, quotient)
''',
    '''
@triton.jit
def remainder_integer(a, b):
    """The remainder of integers, with the sign of the divisor."""
    remainder = a % b
    return tl.where((remainder != 0) & ((remainder < 0) != (b < 0)), remainder + b, remainder)
''',
    '''
@triton.jit
def state_and_value(value, state: tl.constexpr, VALUE: tl.constexpr, WORD: tl.constexpr):
    """A word of a scan: the state in its lower half, the bits of the value in its upper one."""
    bits = value.to(VALUE, bitcast=True).to(WORD) << VALUE.primitive_bitwidth
    return bits | tl.full([], state, WORD)
''',
    '''
@triton.jit
def exclusive_scan_decoupled_lookback(
    scratch_base, block_value, index, combine_fn, DTYPE_VALUE_AS_UINT: tl.constexpr, DTYPE_PACK: tl.constexpr
):
    """What the programs before this one combine to, by decoupled look-back; the first gets zero.

    Every program has a word, zero before the launch: state 1 says that it holds the program's own block,
    state 2 that it holds everything up to there. A program publishes its block, goes back from its
    predecessor until it finds a word of state 2, and publishes the whole. One atomic reads or writes state
    and value together, so nothing else has to be ordered. A GPU starts programs in the order of their
    numbers: those that are waited for have started.
    """
    if index > 0:
        own = state_and_value(block_value, 1, DTYPE_VALUE_AS_UINT, DTYPE_PACK)
        tl.atomic_xchg(scratch_base + index, own, sem="relaxed")
    before = tl.zeros([], block_value.dtype)
    place = index - 1
    while place >= 0:
        word = tl.atomic_add(scratch_base + place, tl.full([], 0, DTYPE_PACK), sem="relaxed")
        state = word.to(DTYPE_VALUE_AS_UINT)
        if state != 0:
            bits = (word >> DTYPE_VALUE_AS_UINT.primitive_bitwidth).to(DTYPE_VALUE_AS_UINT)
            value = bits.to(block_value.dtype, bitcast=True)
            if place == index - 1:
                before = value
            else:
                before = combine_fn(value, before)
            place = tl.where(state == 2, -1, place - 1)
    whole = block_value
    if index > 0:
        whole = combine_fn(before, block_value)
    word = state_and_value(whole, 2, DTYPE_VALUE_AS_UINT, DTYPE_PACK)
    tl.atomic_xchg(scratch_base + index, word, sem="relaxed")
    return before
''',
    '''
@triton.jit
def exclusive_scan_decoupled_lookback_64(scratch_base, block_value, index, combine_fn):
    """What the programs before this one combine to, for values of 64 bits; the first gets zero.

    Every program has three words, zero before the launch: its state, its block, and everything up to it.
    No atomic moves state and value together, so the state is released behind the value that it
    announces, and acquired before that value is read.
    """
    if index > 0:
        tl.store(scratch_base + 3 * index + 1, block_value.to(tl.uint64, bitcast=True))
        tl.debug_barrier()
        tl.atomic_xchg(scratch_base + 3 * index, tl.full([], 1, tl.uint64), sem="release")
    before = tl.zeros([], block_value.dtype)
    place = index - 1
    while place >= 0:
        state = tl.atomic_add(scratch_base + 3 * place, tl.full([], 0, tl.uint64), sem="acquire")
        if state != 0:
            bits = tl.load(scratch_base + 3 * place + state.to(tl.int32))
            value = bits.to(block_value.dtype, bitcast=True)
            if place == index - 1:
                before = value
            else:
                before = combine_fn(value, before)
            place = tl.where(state == 2, -1, place - 1)
    whole = block_value
    if index > 0:
        whole = combine_fn(before, block_value)
    tl.store(scratch_base + 3 * index + 2, whole.to(tl.uint64, bitcast=True))
    tl.debug_barrier()
    tl.atomic_xchg(scratch_base + 3 * index, tl.full([], 2, tl.uint64), sem="release")
    return before
''',
)

INTERNAL = frozenset(
    {"multiply", "either", "larger_with_index", "smaller_with_index", "online_exp", "state_and_value"}
)
"""Functions that others call, and no kernel by name."""
_ALL: Mapping[str, str] = {
    found.group(1): text.strip() for text in _TEXTS if (found := re.search(r"^def (\w+)\(", text, re.M))
}
HELPERS = frozenset(_ALL) - INTERNAL
"""Names that kernels may call."""
RENAMED: Mapping[str, str] = {
    "any": "any_true",
    "max2": "largest_along",
    "min2": "smallest_along",
    "exclusive_scan_decoupled_lookback": "scan_of_earlier",
    "exclusive_scan_decoupled_lookback_64": "scan_of_earlier_64",
}
"""Names that a file has another one for: built-in functions, and those that say too little."""


def file_name(helper: str) -> str:
    """What a helper is called in a file."""
    return RENAMED.get(helper, helper)


def definitions(called: Iterable[str]) -> dict[str, str]:
    """The definitions of helpers and of what they call, by their names in a file, callees first."""
    found: dict[str, str] = {}

    def add(name: str) -> None:
        for node in ast.walk(ast.parse(_ALL[name])):
            if isinstance(node, ast.Name) and node.id in _ALL:
                add(node.id)
        found.setdefault(file_name(name), _renamed(_ALL[name]))

    for name in called:
        add(name)
    return found


def _renamed(text: str) -> str:
    for name, new in RENAMED.items():
        text = re.sub(rf"(?<![.\w]){name}\b(?=[(,)])", new, text)
    return text

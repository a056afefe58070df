"""Functions that the walk through time calls, and the product of the input's share."""

from __future__ import annotations

from egg.expert.emit.kernel import DeviceFunction

PROJECT = DeviceFunction(
    "project_input",
    '''@triton.jit
def project_input(
    x_ptr, w_ptr, b_ptr, gates_ptr, rows, columns, depth,
    HAS_BIAS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    """x w^T + b for every step at once: this half of the work has no chain through time."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, depth, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        inside = (k < depth)[None, :]
        x = tl.load(x_ptr + m[:, None] * depth + k[None, :], mask=(m < rows)[:, None] & inside, other=0.0)
        w = tl.load(w_ptr + n[:, None] * depth + k[None, :], mask=(n < columns)[:, None] & inside, other=0.0)
        sums = tl.dot(x, w.T, sums, input_precision="tf32x3")
    if HAS_BIAS:
        sums += tl.load(b_ptr + n, mask=n < columns, other=0.0)[None, :]
    at = m[:, None] * columns + n[None, :]
    tl.store(gates_ptr + at, sums, mask=(m < rows)[:, None] & (n < columns)[None, :])''',
)
TILE = DeviceFunction(
    "weight_tile",
    '''@triton.jit
def weight_tile(w_ptr, place, there, k, hidden, wanted):
    """These rows of the weights, transposed while loading: [part, k, row]; zeros where none are wanted."""
    inside = (k < hidden)[:, :, None] & there[None, None, :] & wanted
    return tl.load(w_ptr + place[None, None, :] * hidden + k[:, :, None], mask=inside, other=0.0)''',
)
LARGEST = DeviceFunction(
    "largest_weight",
    '''@triton.jit
def largest_weight(w):
    """Of each row."""
    return tl.max(tl.max(tl.abs(w), axis=1), axis=0)''',
)
SIZE = DeviceFunction(
    "finite_size",
    '''@triton.jit
def finite_size(x):
    """The magnitude, and nothing where there is none: an infinite row must not scale the others away."""
    size = tl.abs(x)
    return tl.where(size < float("inf"), size, 0.0)''',
)
HALVES = DeviceFunction(
    "halves",
    '''@triton.jit
def halves(x):
    """A scaled number as two of 16 bits: 22 significant bits together."""
    high = x.to(tl.float16)
    return high, (x - high.to(tl.float32)).to(tl.float16)''',
)
ADD = DeviceFunction(
    "add_product",
    '''@triton.jit
def add_product(a_high, a_low, w_high, w_low, sums, EXACT: tl.constexpr):
    """Three of the four products of halves; the first alone where 11 significant bits will do."""
    if EXACT:
        sums = tl.dot(a_high, w_low, sums)
        sums = tl.dot(a_low, w_high, sums)
    return tl.dot(a_high, w_high, sums)''',
)
SIGMOID = DeviceFunction(
    "cell_sigmoid",
    """@triton.jit
def cell_sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))""",
)
TANH = DeviceFunction(
    "cell_tanh",
    '''@triton.jit
def cell_tanh(x):
    """From an exponential that cannot overflow, and from a series where that would cancel."""
    e = tl.exp(-2.0 * tl.abs(x))
    far = tl.where(x < 0, e - 1.0, 1.0 - e) / (1.0 + e)
    square = x * x
    near = x * (1.0 + square * (-1.0 / 3.0 + square * (2.0 / 15.0 - square * (17.0 / 315.0))))
    return tl.where(square < 0.01, near, far)''',
)
WAIT = DeviceFunction(
    "wait_for",
    '''@triton.jit
def wait_for(counter_ptr, count):
    """Until so many programs have published; what they stored before is then visible here."""
    published = tl.atomic_add(counter_ptr, 0, sem="acquire")
    while published < count:
        published = tl.atomic_add(counter_ptr, 0, sem="acquire")''',
)

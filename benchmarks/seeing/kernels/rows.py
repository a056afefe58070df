"""Along rows and down columns: softmax, norms, sums, running sums, transposes."""

import triton
import triton.language as tl


@triton.jit
def softmax(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    """A row per program, whole in registers."""
    row = tl.program_id(0).to(tl.int64) * width
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + c, mask=c < width, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row + c, e / tl.sum(e, axis=0), mask=c < width)


@triton.jit
def softmax_in_pieces(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    """A row per program, read once for the sum and once more for the result."""
    row = tl.program_id(0).to(tl.int64) * width
    c = tl.arange(0, BLOCK)
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        x = tl.load(x_ptr + row + start + c, mask=start + c < width, other=float("-inf"))
        larger = tl.maximum(largest, x)
        total = total * tl.exp(largest - larger) + tl.exp(x - larger)
        largest = larger
    top = tl.max(largest, axis=0)
    scale = 1.0 / tl.sum(total * tl.exp(largest - top), axis=0)
    for start in range(0, width, BLOCK):
        x = tl.load(x_ptr + row + start + c, mask=start + c < width, other=float("-inf"))
        tl.store(y_ptr + row + start + c, tl.exp(x - top) * scale, mask=start + c < width)


@triton.jit
def layer_norm(x_ptr, w_ptr, b_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    c = tl.arange(0, BLOCK)
    inside = c < width
    x = tl.load(x_ptr + row + c, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / width
    centred = tl.where(inside, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / width + 1e-5)
    w = tl.load(w_ptr + c, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + c, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + row + c, (centred * scale * w + b).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def rms_norm_in_pieces(x_ptr, w_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    c = tl.arange(0, BLOCK)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        x = tl.load(x_ptr + row + start + c, mask=start + c < width, other=0.0).to(tl.float32)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares, axis=0) / width + 1e-6)
    for start in range(0, width, BLOCK):
        inside = start + c < width
        x = tl.load(x_ptr + row + start + c, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + start + c, mask=inside, other=0.0).to(tl.float32)
        tl.store(y_ptr + row + start + c, (x * scale * w).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def row_sum(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    c = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        total += tl.load(x_ptr + row + start + c, mask=start + c < width, other=0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def column_sum(x_ptr, y_ptr, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """A strip of columns per program, walked from top to bottom."""
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    r = tl.arange(0, ROWS)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, rows, ROWS):
        inside = (start + r < rows)[:, None] & (c < columns)[None, :]
        total += tl.load(x_ptr + (start + r)[:, None] * columns + c[None, :], mask=inside, other=0.0)
    tl.store(y_ptr + c, tl.sum(total, axis=0), mask=c < columns)


@triton.jit
def running_sum(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    c = tl.arange(0, BLOCK)
    before = 0.0
    for start in range(0, width, BLOCK):
        x = tl.load(x_ptr + row + start + c, mask=start + c < width, other=0.0)
        tl.store(y_ptr + row + start + c, tl.cumsum(x, axis=0) + before, mask=start + c < width)
        before += tl.sum(x, axis=0)


@triton.jit
def transpose(x_ptr, y_ptr, rows, columns, BR: tl.constexpr, BC: tl.constexpr):
    """Tile by tile, through shared memory."""
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = (r < rows)[:, None] & (c < columns)[None, :]
    x = tl.load(x_ptr + r[:, None] * columns + c[None, :], mask=inside)
    tl.store(y_ptr + c[:, None] * rows + r[None, :], tl.trans(x), mask=tl.trans(inside))


@triton.jit
def transpose_by_row(x_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    """A row of the result per program: reads go down a column."""
    column = tl.program_id(0)
    r = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x_ptr + r * columns + column, mask=r < rows)
    tl.store(y_ptr + column * rows + r, value, mask=r < rows)

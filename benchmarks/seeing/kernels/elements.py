"""Element by element: streams, strides, arithmetic, special functions, indices."""

import triton
import triton.language as tl


@triton.jit
def add(a_ptr, b_ptr, y_ptr, length, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < length
    tl.store(y_ptr + i, tl.load(a_ptr + i, mask=inside) + tl.load(b_ptr + i, mask=inside), mask=inside)


@triton.jit
def strided_copy(x_ptr, y_ptr, length, STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < length
    tl.store(y_ptr + i, tl.load(x_ptr + i * STRIDE, mask=inside), mask=inside)


@triton.jit
def shared_stream(x_ptr, y_ptr, length, BLOCK: tl.constexpr):
    """A stream divided among however many programs there are."""
    for block in range(tl.program_id(0), tl.cdiv(length, BLOCK), tl.num_programs(0)):
        i = block * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + i, 2 * tl.load(x_ptr + i, mask=i < length), mask=i < length)


@triton.jit
def polynomial(x_ptr, y_ptr, length, rounds, BLOCK: tl.constexpr):
    """Sixteen multiply-adds per round."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < length, other=0.0)
    y = tl.zeros((BLOCK,), tl.float32)
    for _ in range(rounds):
        for coefficient in tl.static_range(16):
            y = y * x + (coefficient - 7.5)
    tl.store(y_ptr + i, y, mask=i < length)


@triton.jit
def exponentials(x_ptr, y_ptr, length, rounds, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < length, other=0.0)
    y = x
    for _ in range(rounds):
        y = tl.exp(-y) * x
    tl.store(y_ptr + i, y, mask=i < length)


@triton.jit
def gelu(x_ptr, y_ptr, length, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < length, other=0.0).to(tl.float32)
    y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(y_ptr + i, y.to(y_ptr.dtype.element_ty), mask=i < length)


@triton.jit
def take_rows(table_ptr, index_ptr, y_ptr, width, BLOCK: tl.constexpr):
    """An embedding: one row of the table per program."""
    row = tl.load(index_ptr + tl.program_id(0)).to(tl.int64)
    c = tl.arange(0, BLOCK)
    value = tl.load(table_ptr + row * width + c, mask=c < width)
    tl.store(y_ptr + tl.program_id(0).to(tl.int64) * width + c, value, mask=c < width)


@triton.jit
def take_elements(table_ptr, index_ptr, y_ptr, length, BLOCK: tl.constexpr):
    """Four bytes from anywhere in the table, for every element."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < length
    at = tl.load(index_ptr + i, mask=inside, other=0)
    tl.store(y_ptr + i, tl.load(table_ptr + at, mask=inside), mask=inside)

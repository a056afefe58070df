"""Layers: attention, convolution as a product, depthwise convolution."""

import triton
import triton.language as tl


@triton.jit
def attention(
    q_ptr, k_ptr, v_ptr, y_ptr, tokens, scale,
    WIDTH: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """One head and BM queries per program; scores never leave registers. ``tokens`` is a multiple of both."""
    head = tl.program_id(1).to(tl.int64) * tokens * WIDTH
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n, d = tl.arange(0, BN), tl.arange(0, WIDTH)
    q = tl.load(q_ptr + head + m[:, None] * WIDTH + d[None, :])
    largest = tl.full((BM,), float("-inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, WIDTH), tl.float32)
    end = tl.program_id(0) * BM + BM if CAUSAL else tokens
    for start in range(0, end, BN):
        k = tl.load(k_ptr + head + (start + n)[None, :] * WIDTH + d[:, None])
        scores = tl.dot(q, k) * scale
        if CAUSAL:
            scores = tl.where((start + n)[None, :] <= m[:, None], scores, float("-inf"))
        larger = tl.maximum(largest, tl.max(scores, axis=1))
        p = tl.exp2(scores - larger[:, None])
        fade = tl.exp2(largest - larger)
        weight = weight * fade + tl.sum(p, axis=1)
        v = tl.load(v_ptr + head + (start + n)[:, None] * WIDTH + d[None, :])
        total = tl.dot(p.to(v.dtype), v, total * fade[:, None])
        largest = larger
    y = total / weight[:, None]
    tl.store(y_ptr + head + m[:, None] * WIDTH + d[None, :], y.to(y_ptr.dtype.element_ty))


@triton.jit
def convolution(
    x_ptr, w_ptr, y_ptr, batch, inputs, height, width, outputs,
    SIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Same size, stride 1, channels last: pixels by output channels, over SIDE x SIDE x input channels."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    column, row, image = m % width, (m // width) % height, m // (width * height)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(0, SIDE * SIDE * inputs, BK):
        tap, first = step // inputs, step % inputs
        r, c = row + tap // SIDE - SIDE // 2, column + tap % SIDE - SIDE // 2
        inside = (image < batch) & (r >= 0) & (r < height) & (c >= 0) & (c < width)
        at = ((image * height + r) * width + c)[:, None] * inputs + (first + k)[None, :]
        x = tl.load(x_ptr + at, mask=inside[:, None], other=0.0)
        w = tl.load(
            w_ptr + (step + k)[:, None] * outputs + n[None, :], mask=(n < outputs)[None, :], other=0.0
        )
        total = tl.dot(x, w, total)
    kept = (image < batch)[:, None] & (n < outputs)[None, :]
    tl.store(y_ptr + m[:, None] * outputs + n[None, :], total.to(y_ptr.dtype.element_ty), mask=kept)


@triton.jit
def depthwise(x_ptr, w_ptr, y_ptr, channels, height, width, SIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Channels first, one plane per program along the second axis; every tap is a load of its own."""
    plane = tl.program_id(1).to(tl.int64)
    channel = plane % channels
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row, column = i // width, i % width
    total = tl.zeros((BLOCK,), tl.float32)
    for tap in tl.static_range(SIDE * SIDE):
        r, c = row + tap // SIDE - SIDE // 2, column + tap % SIDE - SIDE // 2
        inside = (r >= 0) & (r < height) & (c >= 0) & (c < width)
        x = tl.load(x_ptr + plane * height * width + r * width + c, mask=inside, other=0.0)
        total += x * tl.load(w_ptr + channel * SIDE * SIDE + tap)
    tl.store(y_ptr + plane * height * width + i, total, mask=i < height * width)

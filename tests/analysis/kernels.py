"""Kernels to reason about: two of known character, and any."""

from __future__ import annotations

from hypothesis import strategies as st

from egg.core.resources import Access, InstructionMix, KernelResources, KernelWork
from egg.hardware.gpus import resolve

MIX = InstructionMix(
    total=400, tensor_core=0, arithmetic=60, special=4, global_loads=8, global_stores=8, shared_loads=2,
    shared_stores=2, local=0, async_copies=0, atomics=0, barriers=2, shuffles=10, narrowest_load_bits=128,
    widest_store_bits=128,
)  # fmt: skip
TENSOR_MIX = InstructionMix(
    total=900, tensor_core=32, arithmetic=60, special=0, global_loads=0, global_stores=16, shared_loads=8,
    shared_stores=8, local=0, async_copies=24, atomics=0, barriers=4, shuffles=0, narrowest_load_bits=0,
    widest_store_bits=128, warp_group=32,
)  # fmt: skip


def stream(megabytes: float, flops: float = 0.0, special: float = 0.0) -> KernelWork:
    """Reads one tensor and writes one of the same size, each once."""
    size = megabytes * 1e6
    accesses = (Access("x", False, size, size, size), Access("y", True, size, size, size))
    return KernelWork({}, 0.0, flops, special, accesses, iterations=1.0)


def product(m: int, n: int, k: int, tile: int = 128, precision: str = "fp16") -> KernelWork:
    """A tiled product of 16-bit matrices: every operand is read once per tile of the other side."""
    a, b, c = 2.0 * m * k, 2.0 * k * n, 4.0 * m * n
    accesses = (
        Access("a", False, a * n / tile, a * n / tile, a),
        Access("b", False, b * m / tile, b * m / tile, b),
        Access("c", True, c, c, c),
    )
    flops = 2.0 * m * n * k
    on_cores = {} if precision == "ieee" else {precision: flops}
    return KernelWork(on_cores, flops if precision == "ieee" else 0.0, 0.0, 0.0, accesses, iterations=k / 64)


SOFTMAX = KernelResources(
    "softmax_rows", (16384, 1, 1), 32, 0, 16, 4, 3, 0, 128, instructions=MIX, work=stream(64, 5e7, 1.6e7)
)
GEMM = KernelResources(
    "gemm", (32, 32, 1), 168, 0, 98304, 8, 3, 32, 128, instructions=TENSOR_MIX, work=product(4096, 4096, 4096)
)

gpus = st.sampled_from([resolve(name) for name in ("A100", "H100", "H200", "L4", "RTX 4090", "T4", "MI300X")])
amounts = st.floats(0.0, 1e12)


@st.composite
def _accesses(draw: st.DrawFn) -> Access:
    asked = draw(st.floats(0.0, 1e11))
    return Access(
        draw(st.sampled_from(("", "x", "y"))),
        draw(st.booleans()),
        asked,
        asked * draw(st.floats(1.0, 32.0)),
        draw(st.sampled_from((0.0, 1e6, 1e9))),
    )


works = st.builds(
    KernelWork,
    tensor_flops=st.dictionaries(
        st.sampled_from(("fp16", "bf16", "tf32", "fp8", "int8")), amounts, max_size=2
    ),
    product_flops=amounts,
    flops=amounts,
    special=amounts,
    accesses=st.lists(_accesses(), max_size=4).map(tuple),
    iterations=st.floats(1.0, 1e4),
    imbalance=st.floats(1.0, 100.0),
)
kernels = st.builds(
    KernelResources,
    name=st.just("k"),
    grid=st.lists(st.integers(1, 5000), min_size=1, max_size=3).map(tuple),
    registers=st.integers(1, 255),
    spill_bytes=st.integers(0, 4096),
    shared_bytes=st.integers(0, 232448),
    num_warps=st.sampled_from((1, 2, 4, 8, 16, 32)),
    num_stages=st.integers(1, 12),
    tensor_core_instructions=st.sampled_from((0, 4, 512)),
    widest_load_bits=st.sampled_from((8, 16, 32, 64, 128, 256)),
    launches=st.integers(1, 50),
    instructions=st.none() | st.sampled_from((MIX, TENSOR_MIX)),
    work=st.none() | works,
)

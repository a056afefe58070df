"""Three kernels of a real H200 under Nsight Compute: a product of 2048, a copy of every 32nd, torch's add."""

from __future__ import annotations

from dataclasses import replace

from egg.core.bottleneck import Limiter
from tests.analysis.profiles import MB, PLANTED, Planted, matrix_kernel, product, resources, streaming

_PRODUCT = matrix_kernel(
    "mm", 256, product(2048, 2048, 2048, (128, 128), "fp16"), registers=116, shared_bytes=98304
)
_ADD = resources("add", 4096, streaming(16.8 * MB, 16.8 * MB))
READINGS = {
    "mm": Planted(
        Limiter.TENSOR, _PRODUCT, 0.03376,
        {
            "dram_read_bytes": 8398336, "dram_written_bytes": 66816, "dram_share": 0.0521,
            "l2_bytes": 226700896,
            "l2_share": 0.5544, "l2_hit_rate": 0.9207, "l1_share": 0.5976, "sm_share": 0.5042,
            "tensor_share": 0.6281,
            "tensor_instructions": 262144, "fma_share": 0.0499, "alu_share": 0.0742, "lsu_share": 0.1604,
            "issue_share": 0.2289, "occupancy": 0.2356, "occupancy_limit": 0.25, "blocks_by_registers": 2,
            "blocks_by_shared": 2, "blocks_by_warps": 8, "blocks_by_slots": 32, "waves": 0.97, "grid": 256,
            "threads": 256,
            "registers": 116, "shared_bytes": 99328, "load_requests": 524288, "load_sectors": 8388608,
            "store_requests": 32768, "store_sectors": 524288, "shared_wavefronts": 3785378,
            "shared_conflicts": 16405,
            "local_instructions": 0, "instructions": 6084608, "cycles": 63026.88, "sm_cycles_mean": 50586.47,
            "sm_cycles_most": 53414, "sm_cycles_least": 36758, "stall_memory": 2.61, "stall_shared": 0.26,
            "stall_barrier": 7.62, "stall_fence": 0, "stall_queue": 1.06, "stall_math": 0.23,
            "stall_tensor": 0.23,
            "stall_fixed": 1.51, "stall_fetch": 0.11,
        },
    ),
    "strided": Planted(
        Limiter.UNCOALESCED, replace(PLANTED["strided_copy"].kernel, name="strided"), 0.09808,
        {
            "dram_read_bytes": 268450048, "dram_written_bytes": 16205824, "dram_share": 0.6033,
            "l2_bytes": 298944800,
            "l2_share": 0.8534, "l2_hit_rate": 0.1398, "l1_share": 0.1798, "sm_share": 0.0071,
            "tensor_share": 0,
            "fma_share": 0.0007, "alu_share": 0.0024, "lsu_share": 0.0074, "issue_share": 0.0049,
            "occupancy": 0.8144,
            "occupancy_limit": 1.0, "blocks_by_registers": 21, "blocks_by_shared": 32, "blocks_by_warps": 16,
            "blocks_by_slots": 32, "waves": 1.94, "grid": 4096, "threads": 128, "load_requests": 131072,
            "load_sectors": 4194304, "store_requests": 32768, "store_sectors": 524288,
            "shared_wavefronts": 16384,
            "shared_conflicts": 0, "local_instructions": 0, "instructions": 458752, "cycles": 192973,
            "sm_cycles_mean": 184483.85, "sm_cycles_most": 189006, "stall_memory": 578.27,
            "stall_shared": 109.52,
            "stall_barrier": 0, "stall_queue": 1678.76, "stall_math": 0.13, "stall_fixed": 1.69,
            "stall_fetch": 1.3,
        },
    ),
    "add": Planted(
        Limiter.DRAM, _ADD, 0.009056,
        {
            "dram_read_bytes": 16782848, "dram_written_bytes": 581376, "dram_share": 0.4001,
            "l2_bytes": 50969024,
            "l2_share": 0.7546, "l2_hit_rate": 0.523, "l1_share": 0.3304, "sm_share": 0.0723,
            "tensor_share": 0,
            "fma_share": 0.0366, "alu_share": 0.0137, "lsu_share": 0.0458, "issue_share": 0.07,
            "occupancy": 0.6901,
            "occupancy_limit": 1.0, "blocks_by_registers": 16, "blocks_by_shared": 32, "blocks_by_warps": 16,
            "blocks_by_slots": 32, "waves": 1.94, "grid": 4096, "threads": 128, "load_requests": 32768,
            "load_sectors": 524288, "store_requests": 32768, "store_sectors": 524288,
            "shared_wavefronts": 16384,
            "shared_conflicts": 0, "local_instructions": 0, "instructions": 491520, "cycles": 18637.15,
            "sm_cycles_mean": 13548.42, "sm_cycles_most": 14747, "stall_memory": 122.9, "stall_shared": 5.94,
            "stall_barrier": 0, "stall_queue": 5.53, "stall_math": 0.13, "stall_fixed": 2.24,
            "stall_fetch": 1.74,
        },
    ),
}  # fmt: skip

"""Which of Nsight Compute's metrics are asked for at a stage, and which of our counters they become.

Every metric costs a share of a replay: the GPU's counter registers hold a few at a time, and a
kernel is run again for each filling. So a stage asks for what its decisions hang on: the structure
for traffic and time, the mapping for how programs fill the GPU, the tiling for the arithmetic units
and shared memory, the memory stage for sectors and caches. What a launch itself says (grid, blocks
per SM by each limit) costs nothing and is always asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from egg.core.profile import Counter
from egg.core.stage import Stage

PERCENT = 0.01


@dataclass(frozen=True)
class Source:
    """The metrics whose sum, times ``scale``, is a counter."""

    metrics: tuple[str, ...]
    scale: float = 1.0
    arch: str = ""
    """The only architecture that has it; empty where all do."""


def _sum(*metrics: str, arch: str = "") -> Source:
    return Source(metrics, arch=arch)


def _share(metric: str) -> Source:
    return Source((metric,), PERCENT)


def _active(metric: str) -> Source:
    return _share(f"{metric}.avg.pct_of_peak_sustained_active")


def _elapsed(metric: str) -> Source:
    return _share(f"{metric}.avg.pct_of_peak_sustained_elapsed")


def _stall(*kinds: str, arch: str = "") -> Source:
    names = (f"smsp__average_warps_issue_stalled_{kind}_per_issue_active.ratio" for kind in kinds)
    return _sum(*names, arch=arch)


SOURCES: Mapping[Counter, Source] = MappingProxyType(
    {
        Counter.NANOSECONDS: _sum("gpu__time_duration.sum"),
        Counter.DRAM_READ_BYTES: _sum("dram__bytes_read.sum"),
        Counter.DRAM_WRITTEN_BYTES: _sum("dram__bytes_write.sum"),
        Counter.DRAM_SHARE: _elapsed("dram__throughput"),
        Counter.L2_BYTES: _sum("lts__t_bytes.sum"),
        Counter.L2_SHARE: _elapsed("lts__throughput"),
        Counter.L2_HIT_RATE: _share("lts__t_sector_hit_rate.pct"),
        Counter.L1_SHARE: _active("l1tex__throughput"),
        Counter.L1_HIT_RATE: _share("l1tex__t_sector_hit_rate.pct"),
        Counter.SM_SHARE: _elapsed("sm__throughput"),
        Counter.TENSOR_SHARE: _active("sm__pipe_tensor_cycles_active"),
        Counter.TENSOR_INSTRUCTIONS: _sum("sm__inst_executed_pipe_tensor.sum"),
        Counter.FMA_SHARE: _active("sm__pipe_fma_cycles_active"),
        Counter.ALU_SHARE: _active("sm__inst_executed_pipe_alu"),
        Counter.SPECIAL_SHARE: _active("sm__inst_executed_pipe_xu"),
        Counter.LSU_SHARE: _active("sm__inst_executed_pipe_lsu"),
        Counter.ISSUE_SHARE: _active("smsp__issue_active"),
        Counter.OCCUPANCY: _active("sm__warps_active"),
        Counter.OCCUPANCY_LIMIT: _share("sm__maximum_warps_per_active_cycle_pct"),
        Counter.BLOCKS_BY_REGISTERS: _sum("launch__occupancy_limit_registers"),
        Counter.BLOCKS_BY_SHARED: _sum("launch__occupancy_limit_shared_mem"),
        Counter.BLOCKS_BY_WARPS: _sum("launch__occupancy_limit_warps"),
        Counter.BLOCKS_BY_SLOTS: _sum("launch__occupancy_limit_blocks"),
        Counter.WAVES: _sum("launch__waves_per_multiprocessor"),
        Counter.GRID: _sum("launch__grid_size"),
        Counter.THREADS: _sum("launch__block_size"),
        Counter.REGISTERS: _sum("launch__registers_per_thread"),
        Counter.SHARED_BYTES: _sum(
            "launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic"
        ),
        Counter.LOAD_REQUESTS: _sum("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"),
        Counter.LOAD_SECTORS: _sum("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"),
        Counter.STORE_REQUESTS: _sum("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"),
        Counter.STORE_SECTORS: _sum("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"),
        Counter.SHARED_WAVEFRONTS: _sum("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"),
        Counter.SHARED_CONFLICTS: _sum("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"),
        Counter.LOCAL_INSTRUCTIONS: _sum(
            "smsp__inst_executed_op_local_ld.sum", "smsp__inst_executed_op_local_st.sum"
        ),
        Counter.INSTRUCTIONS: _sum("smsp__inst_executed.sum"),
        Counter.ATOMIC_SECTORS: _sum("lts__t_sectors_op_atom.sum", "lts__t_sectors_op_red.sum"),
        Counter.CYCLES: _sum("sm__cycles_elapsed.avg"),
        Counter.SM_CYCLES_MEAN: _sum("sm__cycles_active.avg"),
        Counter.SM_CYCLES_MOST: _sum("sm__cycles_active.max"),
        Counter.SM_CYCLES_LEAST: _sum("sm__cycles_active.min"),
        Counter.STALL_MEMORY: _stall("long_scoreboard"),
        Counter.STALL_SHARED: _stall("short_scoreboard"),
        Counter.STALL_BARRIER: _stall("barrier"),
        Counter.STALL_FENCE: _stall("membar"),
        Counter.STALL_QUEUE: _stall("lg_throttle", "mio_throttle", "tex_throttle"),
        Counter.STALL_MATH: _stall("math_pipe_throttle"),
        Counter.STALL_TENSOR: _stall("gmma", arch="sm_90"),
        Counter.STALL_FIXED: _stall("wait"),
        Counter.STALL_FETCH: _stall("no_instruction"),
    }
)

_CORE = frozenset(
    {
        Counter.NANOSECONDS, Counter.DRAM_READ_BYTES, Counter.DRAM_WRITTEN_BYTES, Counter.DRAM_SHARE,
        Counter.L2_BYTES, Counter.L2_SHARE, Counter.SM_SHARE, Counter.OCCUPANCY, Counter.OCCUPANCY_LIMIT,
        Counter.BLOCKS_BY_REGISTERS, Counter.BLOCKS_BY_SHARED, Counter.BLOCKS_BY_WARPS,
        Counter.BLOCKS_BY_SLOTS, Counter.WAVES, Counter.GRID, Counter.THREADS, Counter.REGISTERS,
        Counter.SHARED_BYTES,
    }
)  # fmt: skip

_MORE: Mapping[Stage, frozenset[Counter]] = MappingProxyType(
    {
        Stage.STRUCTURE: frozenset({Counter.L2_HIT_RATE, Counter.TENSOR_SHARE, Counter.FMA_SHARE}),
        Stage.MAPPING: frozenset(
            {
                Counter.CYCLES, Counter.SM_CYCLES_MEAN, Counter.SM_CYCLES_MOST, Counter.SM_CYCLES_LEAST,
                Counter.ISSUE_SHARE, Counter.L2_HIT_RATE, Counter.ATOMIC_SECTORS, Counter.STALL_BARRIER,
                Counter.STALL_MEMORY, Counter.LOCAL_INSTRUCTIONS, Counter.INSTRUCTIONS,
            }
        ),
        Stage.TILING: frozenset(
            {
                Counter.TENSOR_SHARE, Counter.TENSOR_INSTRUCTIONS, Counter.FMA_SHARE, Counter.ALU_SHARE,
                Counter.SPECIAL_SHARE, Counter.LSU_SHARE, Counter.ISSUE_SHARE, Counter.SHARED_WAVEFRONTS,
                Counter.SHARED_CONFLICTS, Counter.LOCAL_INSTRUCTIONS, Counter.INSTRUCTIONS,
                Counter.STALL_MEMORY, Counter.STALL_SHARED, Counter.STALL_BARRIER, Counter.STALL_QUEUE,
                Counter.STALL_MATH, Counter.STALL_TENSOR, Counter.STALL_FIXED, Counter.STALL_FETCH,
            }
        ),
        Stage.MEMORY: frozenset(
            {
                Counter.L1_SHARE, Counter.L1_HIT_RATE, Counter.L2_HIT_RATE, Counter.LSU_SHARE,
                Counter.LOAD_REQUESTS, Counter.LOAD_SECTORS, Counter.STORE_REQUESTS, Counter.STORE_SECTORS,
                Counter.SHARED_WAVEFRONTS, Counter.SHARED_CONFLICTS, Counter.LOCAL_INSTRUCTIONS,
                Counter.INSTRUCTIONS, Counter.ATOMIC_SECTORS, Counter.STALL_MEMORY, Counter.STALL_QUEUE,
                Counter.STALL_FENCE,
            }
        ),
    }
)  # fmt: skip


def counters_of(stage: Stage | None) -> frozenset[Counter]:
    """What a stage looks at; everything where no stage is named, or one that tunes nothing of its own."""
    return _CORE | _MORE[stage] if stage is not None and stage in _MORE else frozenset(SOURCES)


def metrics_for(stage: Stage | None, arch: str = "") -> tuple[str, ...]:
    """Nsight Compute's names of what a stage looks at on a GPU of ``arch``."""
    wanted = counters_of(stage)
    names: dict[str, None] = {}
    for counter, source in SOURCES.items():
        if counter in wanted and source.arch in ("", arch):
            names.update(dict.fromkeys(source.metrics))
    return tuple(names)


def counters_from(values: Mapping[str, float]) -> dict[str, float]:
    """Our counters from the metrics that one launch has; one that lacks a metric is left out."""
    return {
        counter.value: source.scale * sum(values[name] for name in source.metrics)
        for counter, source in SOURCES.items()
        if all(name in values for name in source.metrics)
    }

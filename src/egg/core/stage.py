"""The two stages of an expert's work, and the kinds of change each allows.

Stage 1 decides the *structure* (what is fused, which algorithm, how many kernels); stage 2
keeps it and tunes for the hardware in three ordered steps: *mapping* of work to programs,
*tiling* of tensors, *memory* traffic. Before them a *seed* is written; behind them the best
kernel is *regraded* with full care.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Stage(StrEnum):
    SEED = "seed"
    STRUCTURE = "structure"
    MAPPING = "mapping"
    TILING = "tiling"
    MEMORY = "memory"
    REGRADE = "regrade"

    @property
    def tunes(self) -> bool:
        """Whether the stage keeps the structure and adjusts it to the hardware."""
        return self in (Stage.MAPPING, Stage.TILING, Stage.MEMORY)


class Category(StrEnum):
    """One kind of change; a plan names exactly one."""

    OPERATOR_FUSION = "operator_fusion"
    ALGORITHM_REPLACEMENT = "algorithm_replacement"
    ALGEBRAIC_SIMPLIFICATION = "algebraic_simplification"
    KERNEL_SPLIT = "kernel_split"
    LAUNCH_REDUCTION = "launch_reduction"
    DATA_LAYOUT = "data_layout"

    PROGRAM_ORDER = "program_order"
    WORK_PER_PROGRAM = "work_per_program"
    SPLIT_WORK = "split_work"
    PERSISTENCE = "persistence"
    WARP_COUNT = "warp_count"

    TILE_SHAPE = "tile_shape"
    LOOP_BLOCKING = "loop_blocking"
    PIPELINE_DEPTH = "pipeline_depth"

    ACCESS_WIDTH = "access_width"
    CACHE_POLICY = "cache_policy"
    REDUNDANT_TRAFFIC = "redundant_traffic"
    OPERAND_LAYOUT = "operand_layout"
    ASYNC_COPY = "async_copy"


CATEGORIES: Mapping[Stage, tuple[Category, ...]] = MappingProxyType(
    {
        Stage.STRUCTURE: (
            Category.OPERATOR_FUSION,
            Category.ALGORITHM_REPLACEMENT,
            Category.ALGEBRAIC_SIMPLIFICATION,
            Category.KERNEL_SPLIT,
            Category.LAUNCH_REDUCTION,
            Category.DATA_LAYOUT,
        ),
        Stage.MAPPING: (
            Category.PROGRAM_ORDER,
            Category.WORK_PER_PROGRAM,
            Category.SPLIT_WORK,
            Category.PERSISTENCE,
            Category.WARP_COUNT,
        ),
        Stage.TILING: (Category.TILE_SHAPE, Category.LOOP_BLOCKING, Category.PIPELINE_DEPTH),
        Stage.MEMORY: (
            Category.ACCESS_WIDTH,
            Category.CACHE_POLICY,
            Category.REDUNDANT_TRAFFIC,
            Category.OPERAND_LAYOUT,
            Category.ASYNC_COPY,
        ),
    }
)
"""The kinds of change that each stage plans; the others plan none."""


class Metric(StrEnum):
    """What a change may be expected to move."""

    TIME = "time"
    LAUNCHES = "launches"
    DRAM_TRAFFIC = "dram_traffic"
    L2_HIT_RATE = "l2_hit_rate"
    OCCUPANCY = "occupancy"
    REGISTERS = "registers"
    SPILLS = "spills"
    SHARED_MEMORY = "shared_memory"
    TENSOR_CORE_USE = "tensor_core_use"
    LOAD_WIDTH = "load_width"
    INSTRUCTIONS = "instructions"

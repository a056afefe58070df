"""Too little at once: launches, grids, waves, residency, waiting for one another, waiting for memory."""

from __future__ import annotations

import math

from egg.analysis.rules.finding import Finding, evidence, saturation, without
from egg.analysis.rules.units import UNITS
from egg.analysis.rules.view import KernelView
from egg.analysis.rules.waste import SHARED_PER_BARRIER, in_itself
from egg.core.bottleneck import Evidence, Limiter
from egg.core.profile import Counter

ALL_UNITS = frozenset(UNITS)

LAUNCH_SHARE = 0.5
"""A kernel that takes less than twice its launch is there for the launch."""
SMALL_GRID_BELOW = 0.9
"""Programs per SM."""
LEAST_STRETCH = 1.15
UNFILLED = 0.8
"""Achieved over possible occupancy, below which the last wave is felt within the SMs too."""
FEW_WAVES = 8.0

ENOUGH_OCCUPANCY = 0.375
"""With so many of the slots taken a kernel hides memory's latency; more helps little."""
TENSOR_WARPS = 8
"""Resident warps that keep an SM's tensor cores busy: two for each of four."""
TENSOR_GROUP_WARPS = 4
"""The same for instructions of a warp group, which run while the group goes on: one group is enough."""
MOST_BY_OCCUPANCY = 4.0
FILLED = 0.8
"""Waves from which on residency, and not the grid, says how much runs at once."""

ATOMIC_SECONDS = 0.6e-9
"""Between two atomics on one address: L2 does about one per clock."""
LEAST_WAITING = 0.25
LEAST_ATOMIC_SECTORS = 0.2
BARRIERS_IN_CODE = 0.03


def launch(view: KernelView) -> Finding | None:
    """The kernel is about as short as launching it."""
    if not view.milliseconds:
        return None
    share = min(1.0, view.launch_milliseconds / view.milliseconds)
    if share < LAUNCH_SHARE:
        return None
    return Finding(
        Limiter.LAUNCH,
        without(share),
        (
            Evidence("milliseconds", view.milliseconds, "ms", "One launch takes so long."),
            Evidence("launch", view.launch_milliseconds, "ms", "A launch costs so much by itself."),
        ),
        "the kernel runs beside others (streams, graphs), so that its launch is hidden",
        ALL_UNITS,
        above_floor=False,
    )


def small_grid(view: KernelView) -> Finding | None:
    """Fewer programs than SMs: the others have nothing to do. A chain of single loads could not use them."""
    if view.grid is None or view.grid >= SMALL_GRID_BELOW * view.gpu.sms or view.chained:
        return None
    return Finding(
        Limiter.SMALL_GRID,
        view.gpu.sms / max(1, view.grid),
        (
            Evidence("grid", view.grid, "programs", f"The GPU has {view.gpu.sms} SMs."),
            *evidence("waves", view.waves, "", "The launch fills the GPU so many times."),
            *_evenness(view),
        ),
        "the work cannot be split further, or other kernels run on the idle SMs at the same time",
    )


def tail(view: KernelView) -> Finding | None:
    """SMs without work while the last wave, or the longest programs, finish."""
    if view.grid is None or view.grid < SMALL_GRID_BELOW * view.gpu.sms:
        return None
    stretch = _stretch(view)
    if stretch < LEAST_STRETCH:
        return None
    imbalance = view.work.imbalance if view.work and view.work.imbalance >= LEAST_STRETCH else None
    return Finding(
        Limiter.TAIL,
        stretch,
        (
            *evidence(
                "waves",
                view.waves,
                "",
                "The launch fills the GPU so many times; a bit over a whole number is worst.",
            ),
            *_evenness(view),
            *evidence(
                "imbalance", imbalance, "x", "The busiest program has so many times the work of the mean one."
            ),
            Evidence(
                "stretch", stretch, "x", "It takes so many times as long as the same work spread evenly."
            ),
        ),
        "the SMs are evenly busy (sm_evenness near 1) or programs of the next kernel fill the gap",
    )


def _stretch(view: KernelView) -> float:
    """Time over that of evenly spread work: counted over the SMs, else by waves and the busiest program.

    Cycles are counted per SM, so waves that leave every SM partly filled do not show in them; there
    the achieved occupancy must be short of the possible one as well.
    """
    waves, achieved = view.waves, view.counter(Counter.OCCUPANCY)
    rounds = math.ceil(waves) / waves if waves is not None and 1.0 < waves < FEW_WAVES else 1.0
    if view.counter(Counter.SM_CYCLES_MOST) and view.evenness > 0:
        partly = achieved is not None and achieved < UNFILLED * (view.occupancy_limit or 0.0)
        return max(1.0 / view.evenness, rounds if partly else 1.0)
    return max(view.predicted.tail if view.predicted else 1.0, rounds)


def _evenness(view: KernelView) -> tuple[Evidence, ...]:
    if not view.counter(Counter.SM_CYCLES_MOST):
        return ()
    return evidence(
        "sm_evenness", view.evenness, "", "The mean SM has work in this share of the busiest one's cycles."
    )


def occupancy_by_registers(view: KernelView) -> Finding | None:
    return _occupancy(view, "registers", Limiter.OCCUPANCY_REGISTERS, "registers")


def occupancy_by_shared(view: KernelView) -> Finding | None:
    return _occupancy(view, "shared", Limiter.OCCUPANCY_SHARED, "shared memory")


def _occupancy(view: KernelView, by: str, limiter: Limiter, what: str) -> Finding | None:
    """Too few warps to wait while others work. Counts only where the grid would fill more."""
    if view.held is None or view.held[1] != by or view.occupancy_limit is None or view.num_warps is None:
        return None
    if view.waves is None or view.waves < FILLED:
        return None
    blocks = max(1, view.held[0])
    occupancy = max(view.occupancy_limit, 1.0 / view.gpu.warps_per_sm)
    gain = min(MOST_BY_OCCUPANCY, _enough(view) / occupancy)
    if gain <= 1.0:
        return None
    kernel = view.resources
    registers = view.counter(Counter.REGISTERS) or (kernel.registers if kernel else None)
    shared = view.counter(Counter.SHARED_BYTES) or (kernel.shared_bytes if kernel else None)
    return Finding(
        limiter,
        gain,
        (
            Evidence(
                "occupancy_limit", view.occupancy_limit, "", "This share of an SM's warps can be resident."
            ),
            Evidence("resident_programs", blocks, "", f"An SM holds so many at once; {what} allows no more."),
            *evidence("registers", registers, "", "Each thread has so many."),
            *evidence("shared_bytes", shared, "B", "Each program asks for so much."),
            *evidence(
                "stall_memory",
                view.stalls.get("memory"),
                "",
                "A warp waits for memory in this share of its time.",
            ),
            Evidence(
                "busiest_unit",
                view.busiest(),
                "",
                "The busiest unit is used to this share: none is at its wall.",
            ),
        ),
        f"the programs hide their own latency: the busiest unit's use near 1, or the time does not "
        f"change when {what} per program is halved",
    )


def _enough(view: KernelView) -> float:
    """Occupancy from which on more does not help."""
    if not view.is_product:
        return ENOUGH_OCCUPANCY
    grouped = view.mix is not None and view.mix.warp_group > 0
    return (TENSOR_GROUP_WARPS if grouped else TENSOR_WARPS) / view.gpu.warps_per_sm


def synchronization(view: KernelView) -> Finding | None:
    """Warps wait at barriers and fences, or queue for one address; whichever costs more."""
    found = [f for f in (_barriers(view), _atomics(view), _guessed_barriers(view)) if f is not None]
    return max(found, key=lambda f: f.gain, default=None)


def _barriers(view: KernelView) -> Finding | None:
    """In a pipelined product the barrier is how warps wait for operands and tensor cores: no cause there."""
    waiting = view.stalls.get("barrier", 0.0) + view.stalls.get("fence", 0.0)
    if waiting < LEAST_WAITING or view.is_product:
        return None
    return Finding(
        Limiter.SYNCHRONIZATION,
        without(waiting),
        (
            Evidence(
                "stall_barrier", waiting, "", "A warp waits at barriers and fences in this share of its time."
            ),
            *evidence(
                "stall_memory",
                view.stalls.get("memory"),
                "",
                "A warp waits for memory in this share of its time.",
            ),
        ),
        "the barrier only shows what the slowest warp waits for: stall_memory or stall_shared larger",
    )


def _atomics(view: KernelView) -> Finding | None:
    """Updates of one address are done one after the other. How many meet there: asked over existing bytes."""
    share, meeting = 0.0, None
    if view.work is not None and view.milliseconds:
        met = [a.bytes / a.argument_bytes for a in view.work.accesses if a.atomic and a.argument_bytes]
        meeting = max(met, default=None)
        share = min(1.0, (meeting or 0.0) * ATOMIC_SECONDS * 1e3 / view.milliseconds)
    sectors = view.counter(Counter.ATOMIC_SECTORS)
    others = (view.counter(Counter.LOAD_SECTORS) or 0.0) + (view.counter(Counter.STORE_SECTORS) or 0.0)
    part = sectors / (sectors + others) if sectors else 0.0
    queued = part >= LEAST_ATOMIC_SECTORS and saturation(view.busiest()) <= 0.0
    if share < LEAST_WAITING and not queued:
        return None
    gain = max(without(share), without(1.0 - view.busiest()) if queued else 1.0)
    return Finding(
        Limiter.SYNCHRONIZATION,
        gain,
        (
            *evidence(
                "updates_per_address",
                meeting,
                "",
                "So many updates meet on one address, if they are evenly spread.",
            ),
            *evidence(
                "atomic_time",
                share or None,
                "",
                "This share of the time goes by if the updates are done one after the other.",
            ),
            *evidence("atomic_sectors", part or None, "", "This share of all sectors were atomics."),
        ),
        "the atomics spread over many addresses, or each program waits for its loads rather than "
        "for the update (stall_memory with few atomics)",
    )


def _guessed_barriers(view: KernelView) -> Finding | None:
    """Without stall counters: the loop is not about memory, and the code is full of barriers."""
    mix = view.mix
    if view.stalls or mix is None or not mix.total or view.is_product or not in_itself(view):
        return None
    share = mix.barriers / mix.total
    if share < BARRIERS_IN_CODE or mix.shared_loads + mix.shared_stores >= SHARED_PER_BARRIER * mix.barriers:
        return None
    return Finding(
        Limiter.SYNCHRONIZATION,
        without(1.0 - view.busiest()),
        (
            Evidence("barriers_in_code", share, "", "This share of the machine code are barriers."),
            Evidence(
                "busiest_unit",
                view.busiest(),
                "",
                "The busiest unit that the model knows is used to this share.",
            ),
        ),
        "counters show stall_barrier below 0.25: without them this is a guess",
    )


def latency(view: KernelView) -> Finding | None:
    """What is left when nothing is used up: each program waits for its own loads and results."""
    busiest = view.busiest()
    gain = without((1.0 - saturation(busiest)) * (1.0 - busiest)) if view.uses else 1.0
    if view.stalls:
        waiting = sum(view.stalls.get(reason, 0.0) for reason in ("memory", "shared", "fixed", "fetch"))
        gain = min(gain, without(waiting))
    iterations = view.work.iterations if view.work else None
    return Finding(
        Limiter.LATENCY,
        gain,
        (
            Evidence(
                "busiest_unit",
                busiest,
                "",
                "The busiest unit is used to this share of what good kernels reach.",
            ),
            *evidence(
                "stall_memory",
                view.stalls.get("memory"),
                "",
                "A warp waits for memory in this share of its time.",
            ),
            *evidence(
                "issue_share", view.shares.get("issue"), "", "A scheduler issued in this share of its cycles."
            ),
            *evidence(
                "occupancy", view.counter(Counter.OCCUPANCY), "", "This share of an SM's warps was resident."
            ),
            *evidence(
                "iterations",
                iterations,
                "",
                "A program makes so many trips through its inner loop, one after the other.",
            ),
            *evidence(
                "latency_time",
                _modelled(view, "latency"),
                "",
                "Programs wait for their own loads in this share of the time, by the model.",
            ),
            *evidence(
                "dependence_time",
                _modelled(view, "dependence"),
                "",
                "Warps wait for their own last instruction in this share of the time, by the model.",
            ),
        ),
        "a unit is near its peak after all (dram_share, l2_share, tensor_share, fma_share)"
        if view.uses
        else "anything more is known of it: only its time was seen",
    )


def _modelled(view: KernelView, part: str) -> float | None:
    """Of the time, what the model says of one part; ``None`` where it cannot say."""
    if view.predicted is None or not view.milliseconds:
        return None
    return min(1.0, view.predicted.parts[part] / view.milliseconds)

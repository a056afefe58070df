"""Units that are used up: memory, L2, tensor cores, arithmetic, special functions.

All five ask the same: how close to what good kernels reach is the unit, and how soon would
the next one be a wall? The gain of removing a wall is the time now over the time that the next
wall allows, as far as this one is felt at all; the work itself has to be done still, so a kernel
at its floor gains nothing.
"""

from __future__ import annotations

from egg.analysis.rules.finding import AT, NEAR, Finding, evidence, saturation, without
from egg.analysis.rules.units import REREADING_HIT_RATE
from egg.analysis.rules.view import KernelView
from egg.core.bottleneck import Evidence, Limiter

INSTRUCTIONS = frozenset({"arithmetic", "issue"})


def dram(view: KernelView) -> Finding | None:
    """Memory bandwidth is used up. Fewer bytes would relieve the caches on the way as well."""
    relieves = frozenset({"dram", "l2", "l1", "lsu"})
    seen = (
        _use(view, "dram", "This share of memory's bandwidth is in use; at its roof only fewer bytes help."),
        *_rate(view),
        *evidence(
            "traffic_ratio",
            view.traffic_ratio,
            "x",
            "Memory moves so many times the distinct bytes that had to move.",
        ),
        *evidence(
            "l2_hit_rate",
            view.l2_hit_rate,
            "",
            "L2 answers this share of its requests itself.",
        ),
    )
    return _wall(
        view,
        Limiter.DRAM,
        view.use("dram"),
        relieves,
        seen,
        f"dram_share is below {NEAR:g} once the kernel runs with cold caches and other work off the GPU, "
        "or most of the moved bytes were not asked for (sector_efficiency)",
    )


def l2(view: KernelView) -> Finding | None:
    """The way between L2 (or L1) and the SMs is used up by data that memory gave only once."""
    hits = view.l2_hit_rate
    cached = max(view.use("l1"), view.use("lsu"))
    use = max(view.use("l2") if hits is None or hits >= REREADING_HIT_RATE else 0.0, cached)
    if use <= view.use("dram"):
        return None
    seen = (
        _use(view, "l2", "This share of the bandwidth between L2 and the SMs is in use."),
        *evidence(
            "l2_hit_rate",
            hits,
            "",
            "L2 answers this share of its requests itself: the same data is fetched again.",
        ),
        *evidence(
            "reread_ratio", view.reread_ratio, "x", "L2 is asked for so many times the distinct bytes."
        ),
        *evidence("l1_share", view.shares.get("l1"), "", "This share of L1's throughput is in use."),
    )
    return _wall(
        view,
        Limiter.L2,
        use,
        frozenset({"l2", "l1", "lsu"}),
        seen,
        "l2_share falls when the same tile is kept in shared memory or registers, and the time does not",
    )


def tensor(view: KernelView) -> Finding | None:
    """Tensor cores are busy with products."""
    seen = (
        _use(
            view,
            "tensor",
            "This share of the tensor cores is in use"
            + ("; good kernels stop near 0.75." if view.is_counted("tensor") else "."),
        ),
        *_flops(view),
    )
    return _wall(
        view,
        Limiter.TENSOR,
        view.use("tensor"),
        frozenset({"tensor"}),
        seen,
        f"tensor_share is below {NEAR:g}, or cuBLAS does the same product much faster",
    )


def fma(view: KernelView) -> Finding | None:
    """Ordinary instructions fill the arithmetic pipes or the schedulers that issue them."""
    use = max(view.use("arithmetic"), view.use("issue"))
    seen = (
        _use(view, "arithmetic", "The busiest ordinary arithmetic pipe is used to this share."),
        *evidence(
            "issue_share", view.shares.get("issue"), "", "A scheduler issued in this share of its cycles."
        ),
        *evidence(
            "stall_math",
            view.stalls.get("math"),
            "",
            "A warp waits for a busy pipe in this share of its time.",
        ),
    )
    return _wall(
        view,
        Limiter.FMA,
        use,
        INSTRUCTIONS,
        seen,
        f"fma_share and issue_share are below {NEAR:g}, or the arithmetic is a matrix product in disguise",
    )


def special(view: KernelView) -> Finding | None:
    """Exponentials, roots, divisions; with the ordinary instructions that each of them brings along."""
    seen = (
        _use(view, "special", "This share of the units for exponentials, roots and divisions is in use."),
    )
    return _wall(
        view,
        Limiter.SPECIAL,
        view.use("special"),
        INSTRUCTIONS | {"special"},
        seen,
        "special_share stays high when the exponentials are left out (conversions use the same unit)",
    )


def _wall(
    view: KernelView,
    limiter: Limiter,
    use: float,
    relieves: frozenset[str],
    seen: tuple[Evidence, ...],
    unless: str,
) -> Finding | None:
    felt = saturation(use)
    if felt <= 0.0:
        return None
    gain = without(felt * (1.0 - view.busiest(relieves)))
    known = any(e.value == use for e in seen)
    at = evidence(
        "use",
        None if known else use,
        "",
        f"This is the share of what good kernels reach; {AT:g} and above is a wall.",
    )
    return Finding(limiter, gain, (*seen, *at), unless, relieves)


def _use(view: KernelView, unit: str, says: str) -> Evidence:
    source = "" if view.is_counted(unit) else " Modelled: what the work needs over the time taken."
    name = "fma_share" if unit == "arithmetic" else f"{unit}_share"
    return Evidence(name, view.shares.get(unit, 0.0), "", says + source)


def _rate(view: KernelView) -> tuple[Evidence, ...]:
    """Bytes per second over the memory bus: counted, else the distinct ones."""
    moved = (
        view.dram_bytes if view.dram_bytes is not None else (view.work.distinct_bytes if view.work else None)
    )
    if not moved or not view.milliseconds:
        return ()
    rate = moved / view.milliseconds * 1e-9
    return evidence(
        "dram_rate",
        rate,
        "TB/s",
        f"Memory moves so much; the data sheet says {view.gpu.bandwidth * 1e-12:.2f}.",
    )


def _flops(view: KernelView) -> tuple[Evidence, ...]:
    if not view.tensor_flops or not view.milliseconds:
        return ()
    rate = view.tensor_flops / view.milliseconds * 1e-9
    return evidence("tensor_rate", rate, "TFLOP/s", "Tensor cores do products at this rate.")

"""Work that need not be: spills, unasked bytes, small accesses, conflicts, products off the tensor cores."""

from __future__ import annotations

from egg.analysis.predict import NARROW_COPY
from egg.analysis.rules.finding import Finding, evidence, without
from egg.analysis.rules.view import KernelView
from egg.core.bottleneck import Evidence, Limiter

MEMORY = frozenset({"dram", "l2", "l1", "lsu"})

LOCAL_COST = 2.5
"""A spill takes so many times its share of the instructions: it goes through L1 and may miss."""
LEAST_LOCAL_SHARE = 0.03
LEAST_SPILL_BYTES = 16
MANY_IN_CODE = 0.05
"""Of the machine code: so many spills are not only around the loop."""
UNSEEN_SPILLS = 0.25
"""Part of the time, where nothing says how often the spilled registers are used."""

UNCOALESCED_BELOW = 0.6
"""Sector efficiency. Misaligned rows and ragged ends come to 0.8; every other element to 0.5."""

NARROW_BITS = 16
"""Loads of 32 bits per thread still reach memory's bandwidth at full occupancy; 16 and 8 do not."""
ENOUGH_BITS = 32

LEAST_CONFLICT_SHARE = 0.2
LEAST_SHARED_IN_CODE = 0.12
"""Of the machine code, shared-memory instructions: below it they do not explain a slow kernel."""
SHARED_PER_BARRIER = 3.0
"""Shared-memory instructions for each barrier: a reduction has one or two, an exchange of data has more."""
LEAST_LOADED = 4.0
"""Bytes that a thread loads in each trip through the loop of a kernel that waits for memory."""
UNEXPLAINED = 1.6
"""Times slower than predicted, from which on something must be there that the model does not see."""

IDLE_TENSOR_BELOW = 0.55
"""Use of the tensor cores, of what good kernels reach."""


def spills(view: KernelView) -> Finding | None:
    """Registers that did not fit are written to local memory and read back, through L1, L2 and DRAM."""
    kernel, mix = view.resources, view.mix
    bytes_spilled = kernel.spill_bytes if kernel else None
    if view.local_share is not None:
        if view.local_share < LEAST_LOCAL_SHARE:
            return None
        gain, relieves = without(LOCAL_COST * view.local_share), MEMORY | {"issue"}
    elif bytes_spilled is not None and bytes_spilled >= LEAST_SPILL_BYTES:
        gain, relieves = without(_spilled_time(view)), frozenset[str]()
    else:
        return None
    in_code = mix.local / mix.total if mix and mix.total else None
    return Finding(
        Limiter.SPILLS,
        gain,
        (
            *evidence("spill_bytes", bytes_spilled, "B", "So much per thread did not fit into registers."),
            *evidence(
                "local_share",
                view.local_share,
                "",
                "This share of the executed instructions moves spilled registers.",
            ),
            *evidence(
                "local_in_code", in_code, "", "This share of the machine code moves spilled registers."
            ),
        ),
        "the spills lie outside the inner loop: local_share below 0.03",
        relieves,
    )


def _spilled_time(view: KernelView) -> float:
    """Part of the time that spills take: what the model says, or their share of the code, or, where the
    code is full of them, all that the model does not explain.

    The rest of the machine bounds the gain, so spills beside the inner loop of a kernel that is near
    its roof come to nothing.
    """
    mix = view.mix
    modelled = view.parts["spills"] / view.milliseconds if view.parts and view.milliseconds else 0.0
    in_code = mix.local / mix.total if mix and mix.total else None
    if in_code is None:
        return max(modelled, UNSEEN_SPILLS)
    unexplained = (
        1.0 - 1.0 / view.unexplained if in_code >= MANY_IN_CODE and view.unexplained > UNEXPLAINED else 0.0
    )
    return max(modelled, LOCAL_COST * in_code, unexplained)


def uncoalesced(view: KernelView) -> Finding | None:
    """Most bytes of the touched sectors were not asked for; felt as far as memory or caches are busy.

    Memory moves sectors in pairs, which counters see and the model does not.
    """
    efficiency = view.sector_efficiency
    if efficiency is None or efficiency > UNCOALESCED_BELOW:
        return None
    pairs = 1.0 if view.is_counted("dram") else 2.0
    felt = min(1.0, max(pairs * view.use("dram"), *(view.use(unit) for unit in MEMORY)))
    return Finding(
        Limiter.UNCOALESCED,
        without(felt * (1.0 - efficiency)),
        (
            Evidence(
                "sector_efficiency",
                efficiency,
                "",
                "This share of the bytes in the touched sectors was asked for.",
            ),
            *evidence(
                "sectors_per_load",
                view.sectors_per_load,
                "",
                "A warp's load touches so many sectors; 4 is plain for 32 bits per thread.",
            ),
            *evidence(
                "traffic_ratio", view.traffic_ratio, "x", "Memory moves so many times the distinct bytes."
            ),
            Evidence(
                "memory_use",
                felt,
                "",
                "Memory or caches are used to this share of what they reach: so far the waste is felt.",
            ),
        ),
        "neighbouring programs use the rest of the sectors while they lie in L2 "
        "(traffic_ratio near 1 and l2_share low)",
        MEMORY,
    )


def narrow(view: KernelView) -> Finding | None:
    """Contiguous, but one or two bytes per thread: the pipes are full of requests long before memory is.

    The model counts what is asked of L2 as if L1 kept nothing; so only a counted L2 speaks against it.
    """
    bits = view.load_bits
    if bits is None or bits > NARROW_BITS or (view.mix is not None and view.mix.async_copies):
        return None
    if view.parts and not (view.leads("dram") or view.leads("l2") or view.is_product):
        return None
    return Finding(
        Limiter.NARROW,
        ENOUGH_BITS / bits,
        (
            Evidence("widest_load_bits", bits, "bit", "A thread loads so much at a time; 128 is full width."),
            *evidence(
                "sectors_per_load",
                view.sectors_per_load,
                "",
                "A warp's load touches so many sectors; full width has 16.",
            ),
            *evidence(
                "lsu_share", view.shares.get("lsu"), "", "This share of the load and store pipe is in use."
            ),
            Evidence(
                "dram_share",
                view.shares.get("dram", 0.0),
                "",
                "This share of memory's bandwidth is in use: not its roof.",
            ),
        ),
        "dram_share is at its roof all the same, or the widest load is of something small "
        "while the data comes by asynchronous copies",
        frozenset({"l1", "lsu", "issue"} | (set() if view.is_counted("l2") else {"l2"})),
    )


def bank_conflicts(view: KernelView) -> Finding | None:
    """Threads of a warp want different words of one bank; the access is repeated until all are served."""
    share = view.conflict_share
    if share is None:
        return _guessed_conflicts(view)
    if share < LEAST_CONFLICT_SHARE:
        return None
    waiting = view.stalls.get("shared", 0.0) + view.stalls.get("queue", 0.0)
    felt = max(view.use("l1"), min(1.0, waiting))
    return Finding(
        Limiter.BANK_CONFLICTS,
        without(share * felt),
        (
            Evidence(
                "bank_conflict_share",
                share,
                "",
                "This share of the passes through shared memory only conflicts cause.",
            ),
            Evidence(
                "stall_shared",
                waiting,
                "",
                "A warp waits for shared memory and its queue in this share of its time.",
            ),
            *evidence(
                "l1_share",
                view.shares.get("l1"),
                "",
                "This share of the throughput of L1 and shared memory is in use.",
            ),
        ),
        "shared memory is not waited for: stall_shared and stall_queue small, l1_share low",
        frozenset({"l1", "lsu"}),
    )


def _guessed_conflicts(view: KernelView) -> Finding | None:
    """Without counters only this can be seen: something slows a kernel that lives in shared memory."""
    mix = view.mix
    if mix is None or not mix.total or mix.tensor_core or not in_itself(view):
        return None
    accesses = mix.shared_loads + mix.shared_stores
    share = accesses / mix.total
    if share < LEAST_SHARED_IN_CODE or accesses < SHARED_PER_BARRIER * mix.barriers:
        return None
    return Finding(
        Limiter.BANK_CONFLICTS,
        without(1.0 - view.busiest()),
        (
            Evidence(
                "shared_in_code", share, "", "This share of the machine code reads or writes shared memory."
            ),
            Evidence(
                "busiest_unit",
                view.busiest(),
                "",
                "The busiest unit that the model knows is used to this share.",
            ),
        ),
        "counters show bank_conflict_share below 0.2: without them this is a guess",
        frozenset({"l1", "lsu"}),
    )


def in_itself(view: KernelView) -> bool:
    """Whether a kernel is slow for what it does within an SM: its loop hardly loads, or it is slower than
    its work and resources explain."""
    return view.loaded_per_trip < LEAST_LOADED or view.unexplained >= UNEXPLAINED


def tensor_idle(view: KernelView) -> Finding | None:
    """Products that tensor cores could do, done elsewhere; or tensor cores that wait for operands."""
    return _off_tensor_cores(view) or _waiting_tensor_cores(view)


def _off_tensor_cores(view: KernelView) -> Finding | None:
    """The time such products would take, as accurate, on tensor cores is what could be reached."""
    there, work = view.product_on_tensor_cores, view.work
    if there is None or work is None or not view.milliseconds or not view.leads("product"):
        return None
    next_wall = max(there, view.parts["dram"], view.parts["tensor"])
    return Finding(
        Limiter.TENSOR_IDLE,
        view.milliseconds / next_wall,
        (
            Evidence(
                "product_flops",
                work.product_flops,
                "FLOP",
                "So much of matrix products is done on ordinary units.",
            ),
            *evidence(
                "tensor_core_instructions", None if view.uses_tensor_cores else 0.0, "", "The code has none."
            ),
            Evidence(
                "on_tensor_cores",
                there,
                "ms",
                "The same products would take so long there, split so as to stay fp32-grade.",
            ),
            *evidence(
                "fma_share",
                view.shares.get("arithmetic"),
                "",
                "This share of the ordinary arithmetic pipes is in use.",
            ),
        ),
        "the products are in fp64, or an exact fp32 rounding of every product is asked for",
        frozenset({"arithmetic", "issue", "l1", "lsu"}),
        above_floor=False,
    )


def _waiting_tensor_cores(view: KernelView) -> Finding | None:
    if not view.is_product or "tensor" not in view.uses or view.use("tensor") >= IDLE_TENSOR_BELOW:
        return None
    mix = view.mix
    older = (
        mix is not None
        and mix.tensor_core > 0
        and not mix.warp_group
        and view.gpu.arch in ("sm_90", "sm_100")
    )
    ahead = mix.async_copies if mix is not None else None
    narrowest = mix.narrowest_copy_bits if mix is not None else 0
    return Finding(
        Limiter.TENSOR_IDLE,
        without(1.0 - view.use("tensor")),
        (
            Evidence(
                "tensor_share",
                view.shares["tensor"],
                "",
                "Products that need the tensor cores keep this share of them busy.",
            ),
            *evidence(
                "bank_conflict_share",
                view.conflict_share,
                "",
                "This share of the passes through shared memory is wasted on conflicts.",
            ),
            *evidence("async_copies", ahead, "", "Instructions in the code bring operands ahead of time."),
            *evidence(
                "narrowest_copy_bits",
                narrowest if 0 < narrowest <= NARROW_COPY else None,
                "bit",
                "A thread copies so much at a time: an operand is turned around on its way, which is slow.",
            ),
            *evidence(
                "older_instructions",
                1.0 if older else None,
                "",
                "The matrix instructions are those of one warp, not of a warp group.",
            ),
        ),
        "another unit is at its wall (dram_share, l2_share, special_share), or the tile is too small "
        "for the product to matter",
        frozenset({"l1", "lsu", "issue"}),
    )

"""The GPU table: what each GPU has, and the most it can do at each precision.

Peaks are *dense* (no structured sparsity) and are those of the fastest unit that takes
operands of that precision, tensor cores included: the table answers "can any program be this
fast?", so where a data sheet gives two figures (fp16 accumulation at twice the rate of fp32
accumulation on consumer cards, fp64 tensor cores beside fp64 FMA) the larger one stands here.
They are taken at the vendor's boost clock; a card that boosts beyond it can exceed them by a
few percent, so whoever rejects on them leaves a margin.

Every row names its source. Sizes are bytes, rates are per second.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from egg.core.errors import UsageError

KIB = 1024
MIB = 1024 * KIB
GB = 10**9
TERA = 1e12

PRECISIONS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")


@dataclass(frozen=True)
class Gpu:
    """One GPU model. ``peaks`` maps a precision to operations per second; absent means no such unit."""

    name: str
    vendor: str
    architecture: str
    arch: str
    """The compiler's name for it: ``sm_90``, ``gfx942``."""
    sms: int
    """Streaming multiprocessors, or compute units."""
    shared_per_block: int
    """The most one block may ask for (opt-in)."""
    shared_per_sm: int
    registers_per_sm: int
    """32-bit registers."""
    l2_bytes: int
    memory_bytes: int
    bandwidth: float
    peaks: Mapping[str, float]
    source: str
    aliases: tuple[str, ...] = field(default=(), repr=False)
    """Other names it goes by, as the driver and people write them. Its architecture's name is among them
    where it is the card meant when only that is given."""

    def __post_init__(self) -> None:
        unknown = set(self.peaks) - set(PRECISIONS)
        if unknown:
            raise ValueError(f"{self.name}: unknown precisions {sorted(unknown)}")
        object.__setattr__(self, "peaks", MappingProxyType(dict(self.peaks)))

    @property
    def warp_size(self) -> int:
        return 64 if self.vendor == "amd" else 32

    @property
    def backend(self) -> str:
        """Triton's name for the compiler backend."""
        return "hip" if self.vendor == "amd" else "cuda"

    @property
    def triton_arch(self) -> int | str:
        """What ``triton.backends.compiler.GPUTarget`` takes as its arch: ``90``, ``"gfx942"``."""
        return int(self.arch.removeprefix("sm_")) if self.vendor == "nvidia" else self.arch


def _peaks(**tera: float) -> dict[str, float]:
    return {precision: rate * TERA for precision, rate in tera.items()}


_A100_PEAKS = _peaks(fp64=19.5, fp32=19.5, tf32=156, bf16=312, fp16=312, int8=624)
_H100_SXM_PEAKS = _peaks(fp64=66.9, fp32=66.9, tf32=494.7, bf16=989.4, fp16=989.4, fp8=1978.9, int8=1978.9)
_MI300X_PEAKS = _peaks(fp64=163.4, fp32=163.4, tf32=653.7, bf16=1307.4, fp16=1307.4, fp8=2614.9, int8=2614.9)


def _nvidia(
    name: str,
    architecture: str,
    arch: str,
    sms: int,
    *,
    shared_kib: int,
    l2_mib: int,
    memory_gb: int,
    bandwidth_gbs: float,
    peaks: dict[str, float],
    source: str,
    aliases: tuple[str, ...] = (),
) -> Gpu:
    """An NVIDIA row: 64Ki registers per SM, and one KiB of shared memory per block kept by the system
    (Turing, with 64 KiB in all, gives a block everything)."""
    kept = 0 if arch == "sm_75" else KIB
    return Gpu(
        name=name,
        vendor="nvidia",
        architecture=architecture,
        arch=arch,
        sms=sms,
        shared_per_block=shared_kib * KIB - kept,
        shared_per_sm=shared_kib * KIB,
        registers_per_sm=65536,
        l2_bytes=l2_mib * MIB,
        memory_bytes=memory_gb * GB,
        bandwidth=bandwidth_gbs * GB,
        peaks=peaks,
        source=source,
        aliases=aliases,
    )


def _amd(name: str, memory_gb: int, bandwidth_gbs: float, source: str, aliases: tuple[str, ...] = ()) -> Gpu:
    """A CDNA 3 row: 64 KiB of LDS and 512 KiB of vector registers per compute unit, 4 MiB of L2 on each
    of eight dies (the runtime reports one die's)."""
    return Gpu(
        name=name,
        vendor="amd",
        architecture="CDNA 3",
        arch="gfx942",
        sms=304,
        shared_per_block=64 * KIB,
        shared_per_sm=64 * KIB,
        registers_per_sm=131072,
        l2_bytes=32 * MIB,
        memory_bytes=memory_gb * GB,
        bandwidth=bandwidth_gbs * GB,
        peaks=_MI300X_PEAKS,
        source=source,
        aliases=aliases,
    )


def _a100(name: str, memory_gb: int, bandwidth_gbs: float, aliases: tuple[str, ...]) -> Gpu:
    return _nvidia(
        name,
        "Ampere",
        "sm_80",
        108,
        shared_kib=164,
        l2_mib=40,
        memory_gb=memory_gb,
        bandwidth_gbs=bandwidth_gbs,
        peaks=_A100_PEAKS,
        source="NVIDIA A100 data sheet",
        aliases=aliases,
    )


GPUS: tuple[Gpu, ...] = (
    _a100("A100-SXM4-40GB", 40, 1555, ("A100 SXM 40GB", "A100 40GB", "A100-40")),
    _a100("A100-SXM4-80GB", 80, 2039, ("A100", "A100 SXM", "A100 SXM 80GB", "A100 80GB", "A100-80", "sm_80")),
    _a100("A100-PCIE-40GB", 40, 1555, ("A100 40GB PCIe",)),
    _a100("A100-PCIE-80GB", 80, 1935, ("A100 80GB PCIe", "A100 PCIe")),
    _nvidia(
        "H100 SXM",
        "Hopper",
        "sm_90",
        132,
        shared_kib=228,
        l2_mib=50,
        memory_gb=80,
        bandwidth_gbs=3350,
        peaks=_H100_SXM_PEAKS,
        source="NVIDIA H100 data sheet",
        aliases=("H100", "H100 80GB HBM3", "H100 SXM5", "H100 SXM5 80GB", "H100 SXM 80GB", "sm_90"),
    ),
    _nvidia(
        "H100 PCIe",
        "Hopper",
        "sm_90",
        114,
        shared_kib=228,
        l2_mib=50,
        memory_gb=80,
        bandwidth_gbs=2039,
        peaks=_peaks(fp64=51.2, fp32=51.2, tf32=378, bf16=756, fp16=756, fp8=1513, int8=1513),
        source="NVIDIA H100 architecture white paper",
        aliases=("H100 PCIe 80GB", "H100 80GB PCIe"),
    ),
    _nvidia(
        "H100 NVL",
        "Hopper",
        "sm_90",
        132,
        shared_kib=228,
        l2_mib=50,
        memory_gb=94,
        bandwidth_gbs=3938,
        peaks=_peaks(fp64=60, fp32=60, tf32=417.5, bf16=835.5, fp16=835.5, fp8=1671, int8=1671),
        source="NVIDIA H100 NVL data sheet",
    ),
    _nvidia(
        "H200",
        "Hopper",
        "sm_90",
        132,
        shared_kib=228,
        l2_mib=60,
        memory_gb=141,
        bandwidth_gbs=4800,
        peaks=_H100_SXM_PEAKS,
        source="NVIDIA H200 data sheet",
        aliases=("H200 SXM", "H200 141GB HBM3e", "H200 SXM 141GB"),
    ),
    _nvidia(
        "B200",
        "Blackwell",
        "sm_100",
        148,
        shared_kib=228,
        l2_mib=126,
        memory_gb=180,
        bandwidth_gbs=8000,
        peaks=_peaks(fp64=40, fp32=80, tf32=1250, bf16=2500, fp16=2500, fp8=5000, int8=5000),
        source="NVIDIA Blackwell data sheet; the GB200 column where it is the higher of the two",
        aliases=("B200 SXM", "B200 180GB", "sm_100"),
    ),
    _nvidia(
        "L40S",
        "Ada Lovelace",
        "sm_89",
        142,
        shared_kib=100,
        l2_mib=96,
        memory_gb=48,
        bandwidth_gbs=864,
        peaks=_peaks(fp64=1.43, fp32=91.6, tf32=183, bf16=366, fp16=366, fp8=733, int8=733),
        source="NVIDIA L40S data sheet",
        aliases=("sm_89",),
    ),
    _nvidia(
        "L4",
        "Ada Lovelace",
        "sm_89",
        58,
        shared_kib=100,
        l2_mib=48,
        memory_gb=24,
        bandwidth_gbs=300,
        peaks=_peaks(fp64=0.49, fp32=30.3, tf32=60, bf16=121, fp16=121, fp8=242.5, int8=242.5),
        source="NVIDIA L4 data sheet",
    ),
    _nvidia(
        "RTX 4090",
        "Ada Lovelace",
        "sm_89",
        128,
        shared_kib=100,
        l2_mib=72,
        memory_gb=24,
        bandwidth_gbs=1008,
        peaks=_peaks(fp64=1.29, fp32=82.6, tf32=82.6, bf16=165.2, fp16=330.3, fp8=660.6, int8=660.6),
        source="NVIDIA Ada GPU architecture white paper",
        aliases=("4090",),
    ),
    _nvidia(
        "RTX 5090",
        "Blackwell",
        "sm_120",
        170,
        shared_kib=100,
        l2_mib=96,
        memory_gb=32,
        bandwidth_gbs=1792,
        peaks=_peaks(fp64=1.64, fp32=104.8, tf32=104.8, bf16=209.5, fp16=419, fp8=838, int8=838),
        source="NVIDIA RTX Blackwell GPU architecture white paper",
        aliases=("5090", "sm_120"),
    ),
    _nvidia(
        "RTX 3090",
        "Ampere",
        "sm_86",
        82,
        shared_kib=100,
        l2_mib=6,
        memory_gb=24,
        bandwidth_gbs=936,
        peaks=_peaks(fp64=0.556, fp32=35.6, tf32=35.6, bf16=71.2, fp16=142.3, int8=284.7),
        source="NVIDIA Ampere GA102 architecture white paper",
        aliases=("3090",),
    ),
    _nvidia(
        "RTX A6000",
        "Ampere",
        "sm_86",
        84,
        shared_kib=100,
        l2_mib=6,
        memory_gb=48,
        bandwidth_gbs=768,
        peaks=_peaks(fp64=0.605, fp32=38.7, tf32=77.4, bf16=154.8, fp16=154.8, int8=309.7),
        source="NVIDIA Ampere GA102 architecture white paper",
        aliases=("A6000", "sm_86"),
    ),
    _nvidia(
        "A10",
        "Ampere",
        "sm_86",
        72,
        shared_kib=100,
        l2_mib=6,
        memory_gb=24,
        bandwidth_gbs=600,
        peaks=_peaks(fp64=0.488, fp32=31.2, tf32=62.5, bf16=125, fp16=125, int8=250),
        source="NVIDIA A10 data sheet",
    ),
    _nvidia(
        "T4",
        "Turing",
        "sm_75",
        40,
        shared_kib=64,
        l2_mib=4,
        memory_gb=16,
        bandwidth_gbs=320,
        peaks=_peaks(fp64=0.254, fp32=8.1, fp16=65, int8=130),
        source="NVIDIA T4 data sheet",
        aliases=("sm_75",),
    ),
    _amd("MI300X", 192, 5300, "AMD Instinct MI300X data sheet", ("gfx942",)),
    _amd("MI325X", 256, 6000, "AMD Instinct MI325X data sheet"),
)


def find(name: str) -> Gpu | None:
    """The GPU a name means, or ``None``. Takes what the driver reports (``NVIDIA A100-SXM4-80GB``) and
    what people write (``a100``), but never a near miss: a laptop part or a MIG slice that shares a model
    number has other peaks, and a wrong row is worse than none."""
    wanted = _key(name)
    return next((gpu for gpu in GPUS if wanted in {_key(n) for n in (gpu.name, *gpu.aliases)}), None)


def resolve(name: str) -> Gpu:
    """Like :func:`find`, for a name the user typed: an unknown one is their mistake to hear about."""
    gpu = find(name)
    if gpu is None:
        known = ", ".join(g.name for g in GPUS)
        raise UsageError(f"unknown GPU: {name!r}", f"known are {known}")
    return gpu


def _key(name: str) -> str:
    """Lower case, letters and digits only, without the maker's and the product line's names."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "".join(w for w in words if w not in {"nvidia", "amd", "geforce", "instinct", "tesla", "oam"})

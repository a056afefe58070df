"""The GPU table: what each GPU has, and the most it can do with each precision on each unit.

The figures are data: ``gpus.toml`` beside this file, read when it is first asked for. An
*architecture* says what every multiprocessor of its kind has; a GPU adds what its vendor
publishes of the model. Peaks are *dense* (no structured sparsity) and at the vendor's boost
clock, which a card can exceed by a few percent: a check against them leaves a margin.

Two questions are asked of a row, and they have different answers. "Can any program be this
fast?" takes :attr:`Gpu.peaks`, the fastest unit whatever it is. "How long will this kernel
take?" takes :attr:`Gpu.vector` or :attr:`Gpu.tensor`, the unit the kernel really uses; on
consumer cards tensor cores that add up in fp32, as Triton's ``tl.dot`` does, run at half rate.

Sizes are bytes, clocks hertz, rates per second.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from egg.core.errors import UsageError

KIB = 1024
MIB = 1024 * KIB
GB = 10**9
MEGA = 1e6
TERA = 1e12

PRECISIONS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")
VENDORS = ("nvidia", "amd")


@dataclass(frozen=True)
class Architecture:
    """What every multiprocessor (or compute unit) of one kind has.

    The three mappings give operations per clock by precision, a multiply-add being two.
    ``tensor`` is what every card of the architecture reaches with fp32 sums; workstation and
    data-centre cards of an architecture that also has consumer cards reach twice that.
    """

    arch: str
    """The compiler's name for it: ``sm_90``, ``gfx942``."""
    name: str
    vendor: str
    registers_per_sm: int
    """32-bit registers."""
    shared_per_sm: int
    shared_per_block: int
    """The most one block may ask for (opt-in)."""
    warps_per_sm: int
    """Resident at once, at most; so are the blocks."""
    blocks_per_sm: int
    vector: Mapping[str, float]
    tensor: Mapping[str, float]
    tensor_fp16_accumulation: Mapping[str, float]
    source: str
    checked: tuple[str, ...] = field(default=(), repr=False)
    unverified: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Gpu:
    """One GPU model. The peaks map a precision to operations per second; absent means no such unit."""

    name: str
    vendor: str
    architecture: str
    arch: str
    """The compiler's name for it: ``sm_90``, ``gfx942``."""
    sms: int
    """Streaming multiprocessors, or compute units."""
    clock: float
    """Boost clock of the vendor's vector peaks."""
    shared_per_block: int
    """The most one block may ask for (opt-in)."""
    shared_per_sm: int
    registers_per_sm: int
    """32-bit registers."""
    warps_per_sm: int
    """Resident at once, at most; so are the blocks."""
    blocks_per_sm: int
    l2_bytes: int
    memory_bytes: int
    bandwidth: float
    vector: Mapping[str, float]
    """Peaks of the ordinary units."""
    tensor: Mapping[str, float]
    """Peaks of tensor or matrix cores, sums in fp32 (int32 for int8)."""
    source: str
    tensor_fp16_accumulation: Mapping[str, float] = field(default_factory=dict)
    """Peaks of tensor cores with sums in fp16, where that is faster."""
    tensor_clock: float | None = None
    """Clock of the tensor peaks, where the vendor takes them at a lower one; fp64 keeps ``clock``."""
    base_clock: float | None = None
    attained: Mapping[str, float] = field(default_factory=dict, repr=False)
    """Operations per second that kernels and libraries were seen to reach on it, by what they do; empty for
    a card on which nothing was measured."""
    checked: tuple[str, ...] = field(default=(), repr=False)
    """Pages the figures were held against."""
    unverified: tuple[str, ...] = field(default=(), repr=False)
    """Columns of the table for which no such page was found."""
    aliases: tuple[str, ...] = field(default=(), repr=False)
    """Other names it goes by, as the driver and people write them. Its architecture's name is among them
    where it is the card meant when only that is given."""

    def __post_init__(self) -> None:
        for unit in ("vector", "tensor", "tensor_fp16_accumulation"):
            peaks = getattr(self, unit)
            unknown = set(peaks) - set(PRECISIONS)
            if unknown:
                raise ValueError(f"{self.name}: {unit}: unknown precisions {sorted(unknown)}")
            object.__setattr__(self, unit, MappingProxyType(dict(peaks)))
        object.__setattr__(self, "attained", MappingProxyType(dict(self.attained)))

    @property
    def peaks(self) -> Mapping[str, float]:
        """By precision, the fastest unit that takes operands of it: what no program can pass."""
        units = (self.vector, self.tensor, self.tensor_fp16_accumulation)
        return MappingProxyType(
            {p: max(u[p] for u in units if p in u) for p in PRECISIONS if any(p in u for u in units)}
        )

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


@dataclass(frozen=True)
class Table:
    architectures: Mapping[str, Architecture]
    gpus: tuple[Gpu, ...]


@functools.cache
def table() -> Table:
    """The table this package ships, read once."""
    return read_table(importlib.resources.files("egg.hardware").joinpath("gpus.toml").read_text("utf-8"))


if TYPE_CHECKING:
    GPUS: tuple[Gpu, ...]
    """All rows of the shipped table."""
else:

    def __getattr__(name: str) -> Any:
        """``GPUS`` is read when it is first asked for, not when this module is imported."""
        if name == "GPUS":
            return table().gpus
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def find(name: str) -> Gpu | None:
    """The GPU a name means, or ``None``. Takes what the driver reports (``NVIDIA A100-SXM4-80GB``) and
    what people write (``a100``), but never a near miss: a laptop part or a MIG slice that shares a model
    number has other peaks, and a wrong row is worse than none."""
    wanted = name_key(name)
    return next((gpu for gpu in table().gpus if wanted in _keys(gpu)), None)


def resolve(name: str) -> Gpu:
    """Like :func:`find`, for a name the user typed: an unknown one is their mistake to hear about."""
    gpu = find(name)
    if gpu is None:
        known = ", ".join(g.name for g in table().gpus)
        raise UsageError(f"unknown GPU: {name!r}", f"known are {known}")
    return gpu


@functools.cache
def reference() -> Gpu:
    """The card whose attained rates stand for all others, scaled by their peaks."""
    return next(gpu for gpu in table().gpus if gpu.attained)


def name_key(name: str) -> str:
    """Lower case, letters and digits only, without the maker's and the product line's names."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "".join(w for w in words if w not in {"nvidia", "amd", "geforce", "instinct", "tesla", "oam"})


def _keys(gpu: Gpu) -> set[str]:
    return {name_key(name) for name in (gpu.name, *gpu.aliases)}


def read_table(text: str) -> Table:
    """A table in the form of ``gpus.toml``; :class:`ValueError` names the row and the column at fault."""
    data = tomllib.loads(text)
    stray = set(data) - {"architecture", "gpu"}
    if stray:
        raise ValueError(f"GPU table: unknown sections {sorted(stray)}")
    architectures = {arch: _architecture(arch, row) for arch, row in data.get("architecture", {}).items()}
    gpus = tuple(_gpu(row, number, architectures) for number, row in enumerate(data.get("gpu", ()), 1))
    owners: dict[str, Gpu] = {}
    for gpu in gpus:
        for key in _keys(gpu):
            if owners.setdefault(key, gpu) is not gpu:
                raise ValueError(f"GPU table: gpu {gpu.name}: {key!r} also means {owners[key].name}")
            if not key:
                raise ValueError(f"GPU table: gpu {gpu.name}: aliases: one of them names no model")
    return Table(MappingProxyType(architectures), gpus)


class _Row:
    """One row of the table; every column is taken once, and what is left over was misspelt."""

    def __init__(self, where: str, columns: Mapping[str, Any]) -> None:
        self._where, self._left = where, dict(columns)

    def fault(self, column: str, what: str) -> ValueError:
        return ValueError(f"GPU table: {self._where}: {column}: {what}")

    def text(self, column: str) -> str:
        value = self._left.pop(column, None)
        if not isinstance(value, str) or not value.strip():
            raise self.fault(column, f"expected a text, found {value!r}")
        return value

    def texts(self, column: str) -> tuple[str, ...]:
        value = self._left.pop(column, [])
        if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
            raise self.fault(column, f"expected a list of texts, found {value!r}")
        return tuple(value)

    def number(self, column: str) -> float:
        return self._positive(column, self._left.pop(column, None))

    def optional(self, column: str) -> float | None:
        return self.number(column) if column in self._left else None

    def whole(self, column: str) -> int:
        value = self.number(column)
        if value != int(value):
            raise self.fault(column, f"expected a whole number, found {value!r}")
        return int(value)

    def peaks(self, column: str, scale: float = 1.0) -> dict[str, float]:
        value = self._left.pop(column, {})
        if not isinstance(value, dict):
            raise self.fault(column, f"expected rates by precision, found {value!r}")
        for precision in value:
            if precision not in PRECISIONS:
                raise self.fault(column, f"{precision!r} is none of {', '.join(PRECISIONS)}")
        return {p: self._positive(f"{column}.{p}", rate) * scale for p, rate in value.items()}

    def rates(self, column: str, scale: float) -> dict[str, float]:
        """Positive numbers by any name."""
        value = self._left.pop(column, {})
        if not isinstance(value, dict):
            raise self.fault(column, f"expected rates by name, found {value!r}")
        return {name: self._positive(f"{column}.{name}", rate) * scale for name, rate in value.items()}

    def nothing_left(self) -> None:
        for column in self._left:
            raise self.fault(column, "unknown column")

    def _positive(self, column: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise self.fault(column, f"expected a positive number, found {value!r}")
        return value


def _architecture(arch: str, columns: Mapping[str, Any]) -> Architecture:
    row = _Row(f"architecture {arch}", columns)
    vendor = row.text("vendor")
    if vendor not in VENDORS:
        raise row.fault("vendor", f"unknown: {vendor!r}; known are {', '.join(VENDORS)}")
    made = Architecture(
        arch=arch,
        name=row.text("name"),
        vendor=vendor,
        registers_per_sm=row.whole("registers_per_sm"),
        shared_per_sm=row.whole("shared_per_sm_kib") * KIB,
        shared_per_block=row.whole("shared_per_block_kib") * KIB,
        warps_per_sm=row.whole("warps_per_sm"),
        blocks_per_sm=row.whole("blocks_per_sm"),
        **{unit: MappingProxyType(peaks) for unit, peaks in _units(row, 1.0)},
        source=row.text("source"),
        checked=row.texts("checked"),
        unverified=_columns(row, columns),
    )
    row.nothing_left()
    if "fp32" not in made.vector:
        raise row.fault("vector", "fp32 is missing")
    return made


def _gpu(columns: Mapping[str, Any], number: int, architectures: Mapping[str, Architecture]) -> Gpu:
    row = _Row(f"gpu {columns.get('name', f'number {number}')}", columns)
    arch = row.text("arch")
    if arch not in architectures:
        raise row.fault("arch", f"no [architecture.{arch}]; known are {', '.join(architectures)}")
    kind = architectures[arch]
    tensor_clock, base_clock = row.optional("tensor_clock_mhz"), row.optional("base_clock_mhz")
    made = Gpu(
        name=row.text("name"),
        vendor=kind.vendor,
        architecture=kind.name,
        arch=arch,
        sms=row.whole("sms"),
        clock=row.number("clock_mhz") * MEGA,
        tensor_clock=tensor_clock and tensor_clock * MEGA,
        base_clock=base_clock and base_clock * MEGA,
        shared_per_block=kind.shared_per_block,
        shared_per_sm=kind.shared_per_sm,
        registers_per_sm=kind.registers_per_sm,
        warps_per_sm=kind.warps_per_sm,
        blocks_per_sm=kind.blocks_per_sm,
        l2_bytes=row.whole("l2_mib") * MIB,
        memory_bytes=row.whole("memory_gb") * GB,
        bandwidth=row.number("bandwidth_gbs") * GB,
        **dict(_units(row, TERA)),
        attained=row.rates("attained", TERA),
        source=row.text("source"),
        checked=row.texts("checked"),
        unverified=_columns(row, columns),
        aliases=row.texts("aliases"),
    )
    row.nothing_left()
    if "fp32" not in made.vector:
        raise row.fault("vector", "fp32 is missing")
    return made


def _units(row: _Row, scale: float) -> Iterator[tuple[str, dict[str, float]]]:
    for unit in ("vector", "tensor", "tensor_fp16_accumulation"):
        yield unit, row.peaks(unit, scale)


def _columns(row: _Row, columns: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns a row calls unverified, which must be its own."""
    named = row.texts("unverified")
    for column in named:
        if column not in columns:
            raise row.fault("unverified", f"{column!r} is no column of this row")
    return named

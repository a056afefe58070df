"""What the compiler and a candidate's host code need to know of a GPU that is not there."""

from __future__ import annotations

from dataclasses import dataclass, fields

from triton.backends.compiler import GPUTarget

from egg.core.errors import UsageError


@dataclass(frozen=True)
class GpuTarget:
    """An architecture to compile for.

    ``shared_limit`` is the most shared memory one block may ask for, in bytes. The other
    numbers only answer host code that sizes its grid by them (persistent kernels ask for
    the number of multiprocessors): they are those of the architecture's best-known card.
    """

    backend: str
    arch: int | str
    shared_limit: int
    warp_size: int = 32
    multiprocessors: int = 132
    memory_bytes: int = 80 << 30
    card: str = "GPU"

    @classmethod
    def of(cls, target: object) -> GpuTarget:
        """From a value with the same fields, as a request carries it."""
        return cls(**{field.name: getattr(target, field.name) for field in fields(cls)})

    @property
    def name(self) -> str:
        return f"sm_{self.arch}" if self.backend == "cuda" else str(self.arch)

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability as ``torch.cuda`` reports it (ROCm answers 9.4 for gfx942)."""
        if isinstance(self.arch, int):
            return divmod(self.arch, 10)
        digits = self.arch.removeprefix("gfx")
        return int(digits[:-2]), int(digits[-2], 16)

    @property
    def triton(self) -> GPUTarget:
        return GPUTarget(self.backend, self.arch, self.warp_size)


_TARGETS = (
    GpuTarget("cuda", 80, 166_912, multiprocessors=108, card="NVIDIA A100-SXM4-80GB"),
    GpuTarget("cuda", 86, 101_376, multiprocessors=84, memory_bytes=48 << 30, card="NVIDIA RTX A6000"),
    GpuTarget("cuda", 89, 101_376, multiprocessors=142, memory_bytes=48 << 30, card="NVIDIA L40S"),
    GpuTarget("cuda", 90, 232_448, multiprocessors=132, card="NVIDIA H100 80GB HBM3"),
    GpuTarget("cuda", 100, 232_448, multiprocessors=148, memory_bytes=180 << 30, card="NVIDIA B200"),
    GpuTarget("cuda", 120, 101_376, multiprocessors=170, memory_bytes=32 << 30, card="NVIDIA RTX 5090"),
    GpuTarget("hip", "gfx942", 65_536, 64, 304, 192 << 30, "AMD Instinct MI300X"),
)


def resolve_target(target: str | GpuTarget) -> GpuTarget:
    """The table's entry for ``sm_90``, ``sm90``, ``90`` or ``gfx942``; a :class:`GpuTarget` as it is."""
    if isinstance(target, GpuTarget):
        return target
    wanted = target.lower().replace("sm_", "").replace("sm", "").removesuffix("a")
    for known in _TARGETS:
        if str(known.arch) == wanted:
            return known
    raise UsageError(
        f"no compilation target called {target!r}", "one of " + ", ".join(known.name for known in _TARGETS)
    )

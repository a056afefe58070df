"""Try out files that hold a whole pattern: a program, its kernels, and inputs for both.

A candidate is judged without trust; a pattern is only asked whether it works:
it is interpreted against its own reference, and compiled for GPUs that are not there. It is a stranger's
code all the same, so it runs in the confined processes that candidates run in.

One process tries many patterns one after the other, since starting one costs as much as a small pattern
does. A pattern that fails in a process that others have used is tried again in a new one: what is reported of
it does not depend on who came before.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from egg.evaluator.process.handle import Fault, ForkServer, WorkerHandle
from egg.evaluator.process.sandbox import Limits
from egg.evaluator.transport.protocol import CompilePattern, Counts, Pattern, Request, Warm
from egg.hardware.gpus import Gpu

GIB = 1 << 30
RUN_SECONDS = 60.0
COMPILE_SECONDS = 120.0
_NEEDS_A_GPU = re.compile(r"CUDAGraph|CUDA error|CUDA-capable|NVIDIA driver|compiled with CUDA")
"""What PyTorch's builds, with CUDA and without, say of recording a graph where there is no GPU."""
_LINE = re.compile(r"kernel \S+ on \S+: line (\d+)|^line (\d+) in ")


@dataclass(frozen=True)
class PatternProblem:
    """What is wrong with a pattern."""

    reason: str
    """``pattern.wrong``, ``build.compile``, ``kernel.race``, ``limits.timeout``, ..."""
    evidence: str
    line: int
    """Of the file, from 1; 1 where it is not known."""


class PatternRunner:
    """Tries patterns in confined processes of its own, until it is closed."""

    def __init__(self) -> None:
        ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limits = Limits(address_space=min(8 * GIB, ram // 2), resident=min(8 * GIB, ram // 2))
        self._interpreter = _Bench(ForkServer("interpret", limits, Warm("cpu", watch=True)))
        self._compiler = _Bench(ForkServer("compile", limits, Warm("cpu", watch=False)))

    def __enter__(self) -> PatternRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._interpreter.close()
        self._compiler.close()

    def problems(self, source: str, gpus: Sequence[Gpu]) -> tuple[PatternProblem, ...]:
        """Everything that running a pattern, and compiling it for ``gpus``, shows to be wrong with it."""
        targets = [compiler_target(gpu) for gpu in gpus]
        found = [self._interpreted(source, targets[0] if targets else None)]
        for target in targets:
            found.append(self._compiler.problem(CompilePattern(source, target), COMPILE_SECONDS))
        return tuple(dict.fromkeys(problem for problem in found if problem is not None))

    def _interpreted(self, source: str, target: dict[str, Any] | None) -> PatternProblem | None:
        """As if a GPU were there; a file that records a graph, which takes a real one, as on a CPU."""
        problem = self._interpreter.problem(Pattern(source, target), RUN_SECONDS)
        if problem is None or not _NEEDS_A_GPU.search(problem.evidence):
            return problem
        return self._interpreter.problem(Pattern(source, None), RUN_SECONDS)


class _Bench:
    """A forkserver, and the worker of it that is at work."""

    def __init__(self, forkserver: ForkServer) -> None:
        self._forkserver = forkserver
        self._worker: WorkerHandle | None = None

    def problem(self, request: Request[Counts], seconds: float) -> PatternProblem | None:
        used = self._worker is not None
        try:
            self._ask(request, seconds)
        except Fault as fault:
            self._end()
            if used:
                return self.problem(request, seconds)
            return _problem(fault)
        return None

    def _ask(self, request: Request[Counts], seconds: float) -> None:
        if self._worker is None:
            self._worker = self._forkserver.worker()
        self._worker.ask(request, seconds)

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.end()
        self._worker = None

    def close(self) -> None:
        self._end()
        self._forkserver.close()


def _problem(fault: Fault) -> PatternProblem:
    found = _LINE.search(fault.evidence)
    return PatternProblem(fault.reason, fault.evidence, int(found[1] or found[2]) if found else 1)


def compiler_target(gpu: Gpu) -> dict[str, Any]:
    """A GPU as the compiler's side knows it: the fields of its ``GpuTarget``."""
    return {
        "backend": gpu.backend, "arch": gpu.triton_arch, "shared_limit": gpu.shared_per_block,
        "warp_size": gpu.warp_size, "multiprocessors": gpu.sms, "memory_bytes": gpu.memory_bytes,
        "card": gpu.name,
    }  # fmt: skip

"""Compile recorded launches for a target under a time limit, and say in plain words what went wrong."""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import triton
from triton.compiler import ASTSource, make_backend
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources

from egg.core.resources import KernelResources
from egg.evaluator.offline.describe import describe_kernels, resources_of
from egg.evaluator.offline.launch import Capture, CompileFailed, Launch
from egg.evaluator.offline.resources import read_usage
from egg.evaluator.offline.seams import replaced
from egg.evaluator.offline.target import GpuTarget, resolve_target
from egg.evaluator.work.arguments import Argument

_MAX_THREADS = 1_024
_MAX_GRID = (2**31 - 1, 65_535, 65_535)
_TENSOR_MEMORY_COLUMNS = 512
_REGISTERS = 65_536
"""Of 32 bits, for all threads of a program; handed out to a thread in units of eight."""
_REGISTER_UNIT = 8
_MAX_THREADS_PER_SM = 2_048
_MAX_PROGRAMS_PER_SM = 32
_UNCHECKED_OPTIONS = ("launch_pdl",)
"""Whether the kernel waits for the one before is seen on a GPU alone."""

_COMPILER_ERRORS = (
    triton.TritonError,
    RuntimeError,
    ValueError,
    TypeError,
    AssertionError,
    LookupError,
    AttributeError,
    NameError,
    ArithmeticError,
    SyntaxError,
)
"""What Triton raises of a kernel it cannot compile. ``OSError`` and ``MemoryError`` are the machine's."""

MOST_CROWDED = 5.0
"""Times longer that a compilation may take on a busy machine."""


class Refused(Exception):
    """A :class:`CompileFailed`, and what Triton would have raised at the launch (``None``: nothing)."""

    def __init__(self, failure: CompileFailed, error: BaseException | None) -> None:
        super().__init__(str(failure))
        self.failure, self.error = failure, error


@dataclass(frozen=True)
class Binary:
    """A kernel compiled for a target, how often it is launched, and the largest of its launches."""

    name: str
    kernel: Any
    """The ``CompiledKernel``."""
    grid: tuple[int, ...]
    arguments: Mapping[str, Argument]
    launches: int
    key: str = ""
    """Of the launches' specialisation."""


def compile_launch(launch: Launch, target: str | GpuTarget, timeout_s: float = 15) -> KernelResources:
    """Compile one launch for ``target`` and read its resources; :class:`CompileFailed` where that is refused.

    The time limit is kept with an alarm in the main thread. It interrupts Triton's Python
    front end and the wait for ``ptxas`` (which is then killed); a pass inside the C++
    compiler cannot be interrupted and is only noticed when it returns. So the caller's hard
    deadline on this process is what bounds the worst case, and outside the main thread it
    is the only bound.
    """
    kernel = _kernel_of(launch, resolve_target(target), timeout_s)
    (row,) = describe_kernels([Binary(launch.kernel, kernel, launch.grid, launch.arguments, launch.count)])
    return row


def compile_all(
    capture: Capture, target: str | GpuTarget, timeout_s: float = 15
) -> tuple[KernelResources, ...]:
    """Compile every distinct specialisation of a capture once, and read instructions and work of each.

    Launches that compile to the same binary share a row: ``launches`` adds them up, ``grid``
    and ``work`` are those of the largest.
    """
    return tuple(describe_kernels(binaries(capture, target, timeout_s)))


def binaries(capture: Capture, target: str | GpuTarget, timeout_s: float = 15) -> list[Binary]:
    """What a capture's launches compile to; :class:`CompileFailed` names what does not.

    What the capture compiled for the same target is not compiled again.
    """
    resolved = resolve_target(target)
    known = capture.compiled if capture.target == resolved else {}
    found = []
    for key, launches in _specialisations(capture, resolved).items():
        largest = max(launches, key=lambda launch: launch.size)
        if isinstance(failure := known.get(key), CompileFailed):
            raise failure
        kernel = capture.kernels[key] if key in known else _kernel_of(largest, resolved, timeout_s)
        count = sum(launch.count for launch in launches)
        found.append(Binary(largest.kernel, kernel, largest.grid, largest.arguments, count, key))
    return found


def compiled_rows(capture: Capture) -> tuple[KernelResources, ...]:
    """What the capture itself compiled its launches to: registers and memory, not instructions or work.

    For callers that only ask whether everything compiles; :class:`CompileFailed` names what does not.
    """
    rows = []
    for key, launches in _specialisations(capture, capture.target).items():
        outcome = capture.compiled.get(key)
        if outcome is None:
            name = launches[0].kernel
            outcome = CompileFailed(name, capture.target.name, "not compiled in time", "timeout")
        if isinstance(outcome, CompileFailed):
            raise outcome
        rows.append(replace(outcome, launches=sum(launch.count for launch in launches)))
    return tuple(rows)


def _specialisations(capture: Capture, target: GpuTarget) -> dict[str, list[Launch]]:
    """The launches by what they compile to, all of them possible on ``target``."""
    groups: dict[str, list[Launch]] = {}
    for launch in capture.launches:
        _check_grid(launch, target)
        groups.setdefault(launch.key, []).append(launch)
    return groups


def _kernel_of(launch: Launch, target: GpuTarget, timeout_s: float) -> Any:
    try:
        return compile_kernel(launch, target, timeout_s)[0]
    except Refused as refused:
        raise refused.failure from refused.error


def crowding() -> float:
    """How much longer than alone a compilation takes on this machine now: what wants to run, per core. Limits
    are for a machine of one's own; on a busy one they would refuse kernels that compile in a second."""
    return min(max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0), MOST_CROWDED)


def compile_kernel(launch: Launch, target: GpuTarget, timeout_s: float) -> tuple[Any, KernelResources]:
    """The compiled kernel, and of its resources what is known without disassembling it.

    A disassembler takes longer to start than most kernels take to compile, and an autotuner has many
    compiled of which it launches one. :class:`Refused` where nothing comes of it.
    """
    patience = timeout_s * crowding()
    deadline = time.monotonic() + patience
    diagnostics: list[str] = []
    try:
        with _diagnostics_to(diagnostics), _limits_before_assembly(target), _time_limit(patience):
            kernel = triton.compile(_source(launch), target=target.triton, options=_options(launch))
        metadata = kernel.metadata
        _check_limits(target, metadata.shared, getattr(metadata, "tmem_size", None), metadata.num_warps)
        usage = read_usage(kernel, max(deadline - time.monotonic(), 5), instructions=False)
        # What loading the binary would have filled in: host code sizes persistent grids by it.
        kernel.n_regs, kernel.n_spills = usage.registers, usage.spill_bytes // 4
        kernel.n_max_threads = _MAX_THREADS
        _check_registers(target, usage.registers, metadata.num_warps)
        if launch.options.get("launch_cooperative_grid"):
            _check_resident(target, launch, usage.registers, metadata)
    except (_TimeUp, subprocess.TimeoutExpired):
        reason = f"not compiled within {timeout_s:g} s; smaller tiles or less unrolling compile faster"
        raise Refused(CompileFailed(launch.kernel, target.name, reason, "timeout"), None) from None
    except _COMPILER_ERRORS as error:
        raise Refused(_explain(launch, target, error, "".join(diagnostics)), error) from error
    return kernel, resources_of(kernel, usage, name=launch.kernel, grid=launch.grid, launches=launch.count)


def _source(launch: Launch) -> Any:
    source = getattr(launch.fn, "ASTSource", ASTSource)
    return source(launch.fn, dict(launch.signature), dict(launch.constexprs), dict(launch.attrs))


def _options(launch: Launch) -> dict[str, Any]:
    """What was asked for at the launch; what belongs to the architecture is left to the target."""
    of_the_target = {"arch", "backend_name", "warp_size", "extern_libs"}
    asked = {k: v for k, v in launch.options.items() if k not in of_the_target}
    return {
        **asked,
        "num_warps": launch.num_warps,
        "num_stages": launch.num_stages,
        "num_ctas": launch.num_ctas,
    }


def _check_limits(target: GpuTarget, shared: int, tensor_memory: int | None, num_warps: int) -> None:
    """What the driver checks when a kernel is loaded; Triton's own exception where it refuses."""
    for what, needed, limit in (
        ("shared memory", shared, target.shared_limit),
        ("tensor memory", tensor_memory or 0, _TENSOR_MEMORY_COLUMNS),
        ("threads", num_warps * target.warp_size, _MAX_THREADS),
    ):
        if needed > limit:
            raise OutOfResources(needed, limit, what)


def _check_registers(target: GpuTarget, registers: int, num_warps: int) -> None:
    """A launch whose threads need more registers than a multiprocessor has fails on every call."""
    per_thread = -(-registers // _REGISTER_UNIT) * _REGISTER_UNIT
    needed = per_thread * num_warps * target.warp_size
    if target.backend == "cuda" and needed > _REGISTERS:
        raise OutOfResources(needed, _REGISTERS, "registers")


def _check_resident(target: GpuTarget, launch: Launch, registers: int, metadata: Any) -> None:
    """A cooperative launch fails unless all of its programs are resident at once."""
    threads = metadata.num_warps * target.warp_size
    per_thread = max(-(-registers // _REGISTER_UNIT) * _REGISTER_UNIT, _REGISTER_UNIT)
    per_sm = min(
        _MAX_PROGRAMS_PER_SM,
        _MAX_THREADS_PER_SM // threads,
        _REGISTERS // (per_thread * threads),
        target.shared_limit // max(metadata.shared, 1),
    )
    programs, resident = math.prod(launch.grid), per_sm * target.multiprocessors
    if target.backend == "cuda" and programs > resident:
        raise OutOfResources(programs, resident, "programs resident at once")


@contextmanager
def _limits_before_assembly(target: GpuTarget) -> Iterator[None]:
    """Refuse what cannot be launched before ``ptxas`` works on it: huge tiles are what it is slowest at."""
    backend = type(make_backend(target.triton))
    assemble = getattr(backend, "make_cubin", None)
    if assemble is None:
        yield
        return

    def checked(self: Any, src: Any, metadata: dict[str, Any], *rest: Any) -> Any:
        _check_limits(target, metadata["shared"], metadata.get("tmem_size"), metadata["num_warps"])
        return assemble(self, src, metadata, *rest)

    with replaced(backend, make_cubin=checked):
        yield


def _check_grid(launch: Launch, target: GpuTarget) -> None:
    for name in _UNCHECKED_OPTIONS:
        if launch.options.get(name):
            reason = f"{name} cannot be checked without a GPU; launch without it"
            raise CompileFailed(launch.kernel, target.name, reason, "options")
    for axis, asked, limit in zip("xyz", launch.grid, _MAX_GRID, strict=False):
        if target.backend == "cuda" and asked > limit:
            reason = f"grid {launch.grid} is too large: at most {limit} programs along {axis}"
            raise CompileFailed(launch.kernel, target.name, reason, "resources")


class _TimeUp(BaseException):
    """Not an ``Exception``: the compiler's own handlers would swallow it."""


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise :class:`_TimeUp` in the main thread after ``seconds``; an outer alarm goes on afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: Any) -> None:
        raise _TimeUp

    start = time.monotonic()
    outer, interval = signal.getitimer(signal.ITIMER_REAL)
    handler = signal.signal(signal.SIGALRM, ring)
    # It rings again every second: an exception raised inside a finaliser is lost.
    signal.setitimer(signal.ITIMER_REAL, min(seconds, outer or seconds), 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if outer:
            left = max(outer - (time.monotonic() - start), 1e-3)
            signal.setitimer(signal.ITIMER_REAL, left, interval)


@contextmanager
def _diagnostics_to(lines: list[str]) -> Iterator[None]:
    """Keep what is printed: C++ passes report on descriptor 2, Triton dumps failing PTX on stdout."""
    with tempfile.TemporaryFile() as file:
        saved = os.dup(2)
        try:
            os.dup2(file.fileno(), 2)
            with contextlib.redirect_stdout(io.StringIO()):
                yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            lines.append(file.read(1 << 20).decode(errors="replace"))


def _explain(launch: Launch, target: GpuTarget, error: BaseException, diagnostics: str) -> CompileFailed:
    """Line, source and reason, where the compiler's own message has them among pages of IR.

    Errors in a function called by the kernel are wrapped once per call: the innermost one
    names the line that is wrong.
    """
    if isinstance(error, OutOfResources):
        reason = f"out of resource: {error.name}, needs {error.required}, has {error.limit}"
        return CompileFailed(launch.kernel, target.name, reason, "resources")
    if isinstance(error, CompilationError):
        inner = error
        while isinstance(inner.__cause__, CompilationError):
            inner = inner.__cause__
        line, source = _locate(launch.fn, inner)
        reason = (inner.error_message or type(inner).__name__).strip()
        return CompileFailed(launch.kernel, target.name, _shorten(reason), "error", line, source)
    text = str(error) or type(error).__name__
    if "PassManager" in text or "ptxas" in text:
        line, reason = _from_diagnostics(diagnostics if "PassManager" in text else text)
        return CompileFailed(launch.kernel, target.name, _shorten(reason or text), "error", line)
    return CompileFailed(launch.kernel, target.name, _shorten(text))


def _locate(fn: Any, error: CompilationError) -> tuple[int, str]:
    """Line number in the candidate's file and its text, for an error in ``fn`` or in a function it calls."""
    lineno = getattr(error.node, "lineno", 0)
    if not lineno or not error.src:
        return 0, ""
    lines = error.src.splitlines()
    text = lines[lineno - 1].strip() if lineno <= len(lines) else ""
    candidates = [fn, *(value for value in fn.__globals__.values() if hasattr(value, "raw_src"))]
    owner: Any = next((f for f in candidates if getattr(f, "src", None) == error.src), None)
    if owner is None:
        return 0, text
    decorators = next((i for i, raw in enumerate(owner.raw_src) if raw.lstrip().startswith("def ")), 0)
    return owner.starting_line_number + decorators + lineno - 1, text


def _from_diagnostics(text: str) -> tuple[int, str]:
    """The first ``file:line:column: error: ...`` of an MLIR pass or of ptxas."""
    if found := re.search(r"^\S*?\.py\"?:(\d+):\d+\S*: error: (.*)$", text, re.MULTILINE):
        return int(found.group(1)), found.group(2)
    found = re.search(r"; (?:error|fatal)\s*: (.*)$", text, re.MULTILINE)
    found = found or re.search(r"^.*?\berror: (.*)$", text, re.MULTILINE)
    return 0, found.group(1) if found else ""


def _shorten(text: str, limit: int = 400) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"

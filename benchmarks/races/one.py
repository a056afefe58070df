"""Race the forms of one program in this process: ours, eager PyTorch, ``torch.compile`` and its modes.

Every form has its own module with the same weights. All forms are built and warmed up first, which may happen
beside other processes; then one lock is held while they are timed, so that nothing else of the race is on the
GPU. Rounds call the forms in random order, behind a write of more than the L2 cache.
"""

from __future__ import annotations

import fcntl
import importlib.util
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.domain.files import written
from egg.core.source import Task

Call = Callable[[], Any]
Row = dict[str, Any]
MODES = {"compile": {}, "reduce": {"mode": "reduce-overhead"}, "autotune": {"mode": "max-autotune"}}
WARM_UP, ROUNDS, LONG_MS, LONG_ROUNDS, PROFILED = 6, 25, 20.0, 8, 4
FLUSHED_BYTES = 256 << 20


def raced(task: Task, modes: tuple[str, ...], lock: Path, kernel: str | None = None) -> Row:
    """The row of one program. What cannot be written, built or called stands in ``failed``, by form."""
    began = time.monotonic()
    row: Row = {"task": task.name, "failed": {}, "error": {}, "ms": {}, "host_us": {}, "kernels_us": {}}
    calls: dict[str, Call] = {}
    reference = namespace(task.source, "task")
    torch.manual_seed(0)
    arguments = [moved(value) for value in reference["get_inputs"]()]
    init = reference["get_init_inputs"]()
    model = reference["Model"](*init).cuda()
    makers: dict[str, Callable[[], Callable[..., Any]]] = {"eager": lambda: model}
    makers["ours"] = lambda: loaded(task, kernel, init, model, row)
    for mode in modes:
        makers[mode] = lambda mode=mode: torch.compile(twin(reference, init, model), **MODES[mode])
    expected: list[torch.Tensor] = []
    results: Any = None
    with torch.no_grad():
        for name, make in makers.items():
            try:
                module = make()
                calls[name] = lambda module=module: module(*arguments)
                for _ in range(WARM_UP):
                    results = calls[name]()
                torch.cuda.synchronize()
                expected = expected or [tensor.clone() for tensor in tensors(results)]
                row["error"][name] = distance(tensors(results), expected)
            except Exception as reason:  # a form that fails is a cell of the table, the others are raced
                row["failed"][name] = f"{type(reason).__name__}: {reason}"[:400]
                calls.pop(name, None)
        row["built_s"] = round(time.monotonic() - began, 1)
        with held(lock):
            time_calls(calls, row)
            row["kernels_us"] = {name: kernels(call) for name, call in calls.items()}
    row["seconds"] = round(time.monotonic() - began, 1)
    return row


def loaded(
    task: Task, kernel: str | None, init: list[Any], model: torch.nn.Module, row: Row
) -> torch.nn.Module:
    """``ModelNew`` of the first kernel file, or of the file that is given, with the weights of ``model``."""
    began = time.monotonic()
    source = kernel or written(task).source
    row["writing_s"] = round(time.monotonic() - began, 1)
    return twin(namespace(source, "kernel"), init, model, "ModelNew")


def twin(
    names: dict[str, Any], init: list[Any], model: torch.nn.Module, cls: str = "Model"
) -> torch.nn.Module:
    torch.manual_seed(0)
    module = names[cls](*init).cuda()
    module.load_state_dict(model.state_dict())
    return module


def namespace(source: str, name: str) -> dict[str, Any]:
    """The names of a program's text, run from a file: Triton reads the text of its kernels there."""
    with tempfile.NamedTemporaryFile("w", suffix=f"_{name}.py", delete=False) as file:
        file.write(source)
    spec = importlib.util.spec_from_file_location(f"raced_{name}", file.name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where torch.compile looks for a module's names
    spec.loader.exec_module(module)
    return vars(module)


def moved(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.cuda()
    if isinstance(value, dict):
        return {key: moved(item) for key, item in value.items()}
    return type(value)(map(moved, value)) if isinstance(value, (list, tuple)) else value


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for item in items for tensor in tensors(item)]


def distance(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest relative error (rms) of an output."""
    errors = [0.0]
    for one, other in zip(found, expected, strict=True):
        exact = other.double() if not other.is_complex() else other.to(torch.complex128)
        error = (one.to(exact.dtype) - exact).abs().square().mean() / exact.abs().square().mean().clamp_min(
            1e-30
        )
        errors.append(error.sqrt().item())
    return max(errors)


@contextmanager
def held(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def time_calls(calls: dict[str, Call], row: Row) -> None:
    """Medians over rounds in random order: milliseconds by events, microseconds of the host until a call
    returns."""
    flush = torch.empty(FLUSHED_BYTES, dtype=torch.int8, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in calls}
    hosts: dict[str, list[float]] = {name: [] for name in calls}
    order, chance, count, done = list(calls), random.Random(0), ROUNDS, 0
    while done < count:
        chance.shuffle(order)
        for name in order:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flush.zero_()
            begin.record()
            entered = time.perf_counter()
            calls[name]()
            hosts[name].append((time.perf_counter() - entered) * 1e6)
            end.record()
            torch.cuda.synchronize()
            times[name].append(begin.elapsed_time(end))
        done += 1
        if done == 1 and sum(values[0] for values in times.values()) > LONG_MS:
            count = LONG_ROUNDS
    row["ms"] = {name: round(statistics.median(values), 4) for name, values in times.items()}
    row["host_us"] = {name: round(statistics.median(values), 1) for name, values in hosts.items()}


def kernels(call: Call, most: int = 12) -> list[tuple[str, float, float]]:
    """Name, microseconds and launches of a call's kernels, the longest first."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(PROFILED):
            call()
        torch.cuda.synchronize()
    events = [event for event in seen.key_averages() if event.self_device_time_total > 0]
    rows = [
        (event.key[:70], round(event.self_device_time_total / PROFILED, 1), event.count / PROFILED)
        for event in events
    ]
    return sorted(rows, key=lambda row: -row[1])[:most]

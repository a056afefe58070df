"""Is the predicted time right? Kernel variants, compiled and predicted anywhere, timed on a GPU.

    PYTHONPATH=src python benchmarks/seeing/predictions.py --measure --out variants.jsonl      # on the GPU
    PYTHONPATH=src python benchmarks/seeing/predictions.py --compare variants.jsonl            # anywhere
    PYTHONPATH=src python benchmarks/seeing/predictions.py --dry-run --only softmax            # without one

``--measure`` compiles every variant by several processes side by side, without the GPU and as if it
were not there (what they compile, Triton's cache keeps for the timing), then times one after the other:
memory allocated before, the L2 cache flushed before every call, events on the GPU's own clock, the
median. A line holds the time and the compiler's figures, so that ``--compare`` needs neither. It ends
with 0 where rank correlation and median error are as good as they should be.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from comparing import compare
from variants import Tensor, Variant, all_variants

from egg.core.codec import to_json
from egg.core.resources import KernelResources

CALLS, WARM_CALLS = 20, 3
ENOUGH_SECONDS = 0.4
"""Of calls of one variant, after which fewer than all of them will do."""
COMPILE_SECONDS = 100.0
FLUSH_BYTES = 512 << 20
"""Ten times any L2, and long enough to write that the launch is queued before the GPU is free for it."""


def main() -> int:
    options = arguments()
    if options.compare:
        return compare(options.compare, options.gpu, options.markdown)
    wanted = [
        v
        for v in all_variants()
        if not options.only or any(p in v.family + " " + v.name for p in options.only)
    ]
    if options.dry_run:
        return dry_run(wanted, options.target, options.jobs)
    if options.out is None:
        raise SystemExit("--measure needs --out FILE")
    return measure(wanted, options.out, options.jobs)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--measure", action="store_true", help="time every variant on this machine's GPU")
    what.add_argument("--dry-run", action="store_true", help="compile and predict every variant for --target")
    what.add_argument("--compare", type=Path, metavar="FILE", help="predictions against what --measure kept")
    parser.add_argument("--out", type=Path, help="JSON lines; variants that are in it are not timed again")
    parser.add_argument(
        "--only", action="append", help="part of a family's or variant's name; may be repeated"
    )
    parser.add_argument("--target", default="H200", help="for --dry-run")
    parser.add_argument("--gpu", help="for --compare: the GPU in whose row of the table the times belong")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that compile")
    parser.add_argument("--markdown", type=Path, help="for --compare: tables and summary as a page")
    return parser.parse_args()


@dataclass(frozen=True)
class Compiled:
    """The compiler's figures of one variant, or why there are none."""

    name: str
    resources: KernelResources | None
    error: str
    seconds: float


def compile_variant(name: str, target: str) -> Compiled:
    """Capture the launch on fake tensors and compile it for ``target``; for a process without a GPU."""
    from torch import nn

    from egg.evaluator.offline import CaptureUnsupported, CompileFailed, capture, compile_all
    from egg.hardware.gpus import resolve

    variant = next(v for v in all_variants() if v.name == name)

    class Launching(nn.Module):
        def forward(self, *tensors: Any) -> None:
            variant.launch(list(tensors))

    started = time.monotonic()
    arch = resolve(target).arch
    try:
        captured = capture(
            Launching,
            lambda: [form(t) for t in variant.tensors],
            arch,
            compile_timeout_s=COMPILE_SECONDS,
            compile_budget_s=COMPILE_SECONDS,
        )
        (resources,) = compile_all(captured, arch, COMPILE_SECONDS)
    except (CaptureUnsupported, CompileFailed) as error:
        return Compiled(name, None, str(error), time.monotonic() - started)
    return Compiled(name, resources, "", time.monotonic() - started)


def form(tensor: Tensor) -> Any:
    import torch

    return torch.empty(tensor.shape, dtype=getattr(torch, tensor.dtype), device="cuda")


def compiled(variants: Sequence[Variant], target: str, jobs: int) -> Iterator[Compiled]:
    """As they are done, by ``jobs`` processes which see no GPU."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
            futures = {pool.submit(compile_variant, v.name, target): v.name for v in variants}
            for done in as_completed(futures):
                try:
                    yield done.result()
                except BrokenProcessPool as error:
                    yield Compiled(futures[done], None, f"a compiling process died: {error}", 0.0)
    finally:
        if hidden is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = hidden


def dry_run(variants: Sequence[Variant], target: str, jobs: int) -> int:
    """All that can be done without the GPU: resources, work and prediction of every variant."""
    from egg.analysis.predict import predict
    from egg.hardware.gpus import resolve

    gpu, failed = resolve(target), 0
    for done in compiled(variants, target, jobs):
        r = done.resources
        if r is None:
            failed += 1
            print(f"{done.name}: {done.error}", flush=True)
            continue
        predicted = predict(r, gpu)
        took = "not predicted" if predicted is None else f"{predicted.milliseconds:.4f} ms"
        print(
            f"{done.name}: {took}; grid {r.grid}, {r.registers} registers, {r.spill_bytes} B spilled, "
            f"{r.shared_bytes} B shared, {r.tensor_core_instructions} tensor-core instructions, "
            f"loads of {r.widest_load_bits} bits; {done.seconds:.1f} s",
            flush=True,
        )
        if r.work is None or predicted is None:
            failed += 1
    print(f"{len(variants) - failed} of {len(variants)} compiled and predicted")
    return 1 if failed else 0


def measure(variants: Sequence[Variant], out: Path, jobs: int) -> int:
    """Compile all side by side, then time one after the other; a line as soon as both are known."""
    import torch
    import triton

    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU here to measure on; --dry-run does the rest")
    known = {json.loads(line)["name"] for line in out.read_text().splitlines()} if out.exists() else set()
    left = [v for v in variants if v.name not in known]
    started = time.monotonic()
    name = torch.cuda.get_device_name()
    machine = {
        "gpu": name,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": sys.version.split()[0],
    }
    facts = {done.name: done for done in compiled(left, name, jobs)}
    print(f"{len(left)} variants compiled in {time.monotonic() - started:.0f} s", flush=True)
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    with out.open("a", encoding="utf-8") as file:
        for variant in left:
            done = facts[variant.name]
            if done.resources is None:
                print(f"{variant.name}: not compiled: {done.error}", flush=True)
                continue
            times = time_variant(variant, flush)
            row = {
                "name": variant.name, "family": variant.family, "milliseconds": median(times),
                "least": min(times), "most": max(times), "calls": len(times),
                "resources": to_json(done.resources), "machine": machine,
            }  # fmt: skip
            print(json.dumps(row), file=file, flush=True)
            print(f"{variant.name}: {median(times):.4f} ms", flush=True)
    print(f"done in {time.monotonic() - started:.0f} s")
    return 0


def time_variant(variant: Variant, flush: Any) -> list[float]:
    """Milliseconds of up to :data:`CALLS` calls, each with a cold L2, on the GPU's own clock."""
    import torch

    torch.manual_seed(0)
    tensors = [made(t) for t in variant.tensors]
    for _ in range(WARM_CALLS):
        variant.launch(tensors)
    torch.cuda.synchronize()
    times: list[float] = []
    started = time.monotonic()
    while len(times) < CALLS and (len(times) < 5 or time.monotonic() - started < ENOUGH_SECONDS):
        flush.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        variant.launch(tensors)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return times


def made(tensor: Tensor) -> Any:
    import torch

    dtype = getattr(torch, tensor.dtype)
    if tensor.below is not None:
        return torch.randint(0, tensor.below, tensor.shape, dtype=dtype, device="cuda")
    if not dtype.is_floating_point:
        return torch.zeros(tensor.shape, dtype=dtype, device="cuda")
    return torch.randn(tensor.shape, dtype=dtype, device="cuda")


if __name__ == "__main__":
    sys.exit(main())

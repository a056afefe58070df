"""One task from its text to compiled kernels, where there is no GPU: the file is written, every launch of one
forward at full size is captured and compiled for the target, and its time is predicted."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from record import blank
from rows import Row, significant
from tasks import key_of
from torch._subclasses.fake_tensor import FakeTensorMode

from egg.analysis.predict import predict
from egg.analysis.program import predicted_milliseconds
from egg.core.errors import EggError
from egg.core.evaluation import Compiled
from egg.core.policy import Precision
from egg.core.resources import KernelResources
from egg.core.source import Task, content_hash
from egg.evaluator.process.handle import Fault, ForkServer
from egg.evaluator.process.machine import limits_for
from egg.evaluator.process.patterns import compiler_target
from egg.evaluator.task.facts import gpu_facts, program_facts
from egg.evaluator.task.program import Program
from egg.evaluator.task.seeds import BUILD_SEED
from egg.evaluator.transport import exchange
from egg.evaluator.transport.protocol import Capture, InputForm, Kernels, Load, Warm
from egg.expert.assemble import NothingToWrite, Written, graph_of, kernel_file
from egg.expert.moves import Recipe
from egg.hardware.gpus import Gpu

BUILD_SECONDS, COMPILE_SECONDS = 120.0, 400.0
"""Whole networks have many kernels, and nobody waits for this batch."""


class Compiler:
    """A process that compiles for a GPU that is not there, kept warm between tasks."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        limits = limits_for(torch.device("cpu"))
        self._forkserver = ForkServer("compile", limits, Warm("cpu", watch=False))

    def kernels(self, task: Task, source: str) -> tuple[KernelResources, ...]:
        """What the compiler makes of every launch. Raises :class:`Fault` where the file does not work."""
        worker = self._forkserver.worker()
        self._forkserver.prepare()
        target = compiler_target(self.gpu)
        try:
            with Program.load(task) as program:
                with FakeTensorMode(allow_non_fake_inputs=True):
                    inputs = program.inputs(0, torch.device("cpu"), Precision.MATCH)
                arguments = exchange.whole(program.init_arguments())
            structure, tensors = exchange.pack(inputs)
            load = Load(source, arguments, BUILD_SEED, Precision.MATCH.value, target, build=False)
            worker.ask(load, BUILD_SECONDS)
            reply = worker.ask(Capture(structure, tuple(map(_spec, tensors)), target), COMPILE_SECONDS)
            if reply.unsupported:
                raise Fault("capture.unsupported", reply.unsupported)
            if not reply.launched:
                raise Fault("provenance.no_kernel", "forward launches no Triton kernel at full size")
            return worker.ask(Kernels(every=True), COMPILE_SECONDS).kernels
        finally:
            worker.end()

    def close(self) -> None:
        self._forkserver.close()


def compile_task(task: Task, compiler: Compiler, files: Path) -> Row:
    """The row: a file or the reason why there is none, and what the compiler says of it."""
    level, problem = key_of(task)
    place = files / f"{level}_{problem}"
    seconds: dict[str, float] = {}
    began = time.perf_counter()
    try:
        written = kernel_file(task, graph_of(task), Recipe(), compiler.gpu)
        seconds["writing"] = round(time.perf_counter() - began, 2)
        place.mkdir(parents=True, exist_ok=True)
        (place / "kernel.py").write_text(written.source, encoding="utf-8")
        started = time.perf_counter()
        kernels = compiler.kernels(task, written.source)
        seconds["compiling"] = round(time.perf_counter() - started, 2)
        row = {**blank(task, "compiled"), **_figures(task, written, kernels, compiler.gpu)}
    except NothingToWrite as reason:
        row = blank(task, f"no file: {reason}")
    except Fault as fault:
        row = blank(task, f"does not compile: {fault.reason}: {fault.evidence}"[:400])
    except EggError as error:
        row = blank(task, f"no file: {error.message}"[:400])
    except Exception as error:  # ours: the batch goes on, and the row says what to mend
        row = blank(task, f"no file: {type(error).__name__}: {error}"[:300])
        row["trace"] = traceback.format_exc()[-1500:]
    row["seconds"] = {"all": round(time.perf_counter() - began, 2), **seconds}
    return row


def _figures(
    task: Task, written: Written, kernels: tuple[KernelResources, ...], gpu: Gpu
) -> Mapping[str, Any]:
    floor = gpu_facts(gpu, Precision.MATCH, program_facts(task)).floor_milliseconds
    left = written.structure.left_to_pytorch
    compiled = Compiled(gpu.name, kernels, floor, "full")
    return {
        "structure": {
            "groups": [f"{group.pattern}: {group.name}" for group in written.structure.groups],
            "kernels": written.structure.kernels,
            "moves": [],
        },
        "library_ops": list(left),
        "launches": sum(kernel.launches for kernel in kernels),
        "compiled": [_kernel(kernel, gpu) for kernel in kernels],
        "predicted_ms": significant(predicted_milliseconds(compiled, gpu, len(left))),
        "floor_ms": significant(floor),
        "target": gpu.name,
        "kernel": content_hash(written.source),
    }


def _kernel(kernel: KernelResources, gpu: Gpu) -> dict[str, Any]:
    predicted = predict(kernel, gpu)
    return {
        "name": kernel.name,
        "launches": kernel.launches,
        "registers": kernel.registers,
        "spill_bytes": kernel.spill_bytes,
        "shared_bytes": kernel.shared_bytes,
        "warps": kernel.num_warps,
        "stages": kernel.num_stages,
        "ms": significant(predicted.milliseconds) if predicted is not None else None,
    }


def _spec(tensor: torch.Tensor) -> InputForm:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return InputForm(tuple(tensor.shape), tuple(tensor.stride()), dtype)

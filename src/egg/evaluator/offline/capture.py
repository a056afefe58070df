"""Run ``ModelNew`` at full size on a GPU that is not there, and record what it launches."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import triton
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from triton import knobs
from triton.runtime.jit import JITFunction

from egg.core.errors import MachineError
from egg.core.resources import KernelResources
from egg.evaluator.offline.compile import Refused, compile_kernel, crowding
from egg.evaluator.offline.fakecuda import pretended_cuda
from egg.evaluator.offline.fakedriver import Recorder, Trace, recording_launches
from egg.evaluator.offline.faketensors import CountOutsideOps, Inside, PretendCuda, describe, move_parameters
from egg.evaluator.offline.launch import Capture, CaptureUnsupported, CompileFailed, Launch, RawOutput
from egg.evaluator.offline.seams import replaced
from egg.evaluator.offline.target import GpuTarget, resolve_target
from egg.evaluator.task.dimensions import leaves
from egg.evaluator.task.program import map_tensors, outputs_of


class CompileOnce:
    """Compiles each specialisation once per capture, within a budget.

    What is refused is kept with the exception Triton would have raised, so that host code
    that catches it behaves as on a GPU. Running out of time refuses nothing: the launch is
    taken to be possible, and left to the compilation of the capture.
    """

    def __init__(self, target: GpuTarget, timeout_s: float, budget_s: float) -> None:
        self.target, self.timeout_s, self.left_s = target, timeout_s, budget_s
        self.outcomes: dict[str, KernelResources | CompileFailed] = {}
        self.kernels: dict[str, Any] = {}
        self.refusals: list[tuple[BaseException, CompileFailed]] = []
        self._answers: dict[str, tuple[Any, BaseException | None]] = {}

    def __call__(self, launch: Launch) -> tuple[Any, BaseException | None]:
        if launch.key not in self._answers:
            self._answers[launch.key] = self._compile(launch)
        return self._answers[launch.key]

    def _compile(self, launch: Launch) -> tuple[Any, BaseException | None]:
        if self.left_s <= 0:
            return None, None
        start = time.monotonic()
        try:
            kernel, resources = compile_kernel(launch, self.target, min(self.timeout_s, self.left_s))
        except Refused as refused:
            if refused.failure.kind != "timeout" or self.left_s >= self.timeout_s:
                self.outcomes[launch.key] = refused.failure
            if refused.error is not None:
                self.refusals.append((refused.error, refused.failure))
            return None, refused.error
        finally:
            self.left_s -= (time.monotonic() - start) / crowding()
        self.outcomes[launch.key], self.kernels[launch.key] = resources, kernel
        return kernel, None


def capture(
    build: Callable[[], nn.Module],
    inputs: Callable[[], list[Any]],
    target: str | GpuTarget = "sm_90",
    *,
    compile_timeout_s: float = 15,
    compile_budget_s: float = 90,
    real: bool = False,
    answers: Sequence[Any] | None = None,
    backward: bool = False,
    every_s: float = 0.0,
) -> Capture:
    """Build the model, call it twice on fake tensors, and return what the second call asks of the GPU.

    ``build`` and ``inputs`` run inside the pretence, so they may create tensors of any
    size and may import the candidate (a file that queries the device when imported needs
    that). The first call is the warm-up: there a candidate tunes, packs or records a graph.

    Kernels are compiled for ``target`` as they are launched (at most ``compile_timeout_s``
    each and ``compile_budget_s`` together); :attr:`Capture.compiled` keeps the results, which say
    nothing of instructions and work yet.

    Fake tensors have no values. Host code that reads one gets the next of ``answers``, where
    there are any; with ``real`` the inputs are ordinary tensors, and what it reads is true as far as
    PyTorch computed it (kernels are not run).

    For ``every_s`` seconds configurations of autotuners behind the first that fits are compiled as well.

    With ``backward`` everything floating requires a gradient, and each call is gone back from.

    Raises :class:`CompileFailed` where a refused kernel makes ``forward`` fail, and
    :class:`CaptureUnsupported` where it cannot be followed for any other reason.
    """
    if knobs.runtime.interpret:
        raise MachineError(
            "kernels cannot be captured while TRITON_INTERPRET is set",
            "run the capture in a worker process of its own",
        )
    resolved = resolve_target(target)
    compiler = CompileOnce(resolved, compile_timeout_s, compile_budget_s + every_s)
    recorder = Recorder(resolved, compiler)
    recorder.every, recorder.every_until = every_s > 0, time.monotonic() + every_s
    recorder.answers = None if answers is None else iter(answers)
    call = _gone_back if backward else _called
    with pretence(recorder, real), torch.no_grad():
        try:
            model, arguments = build(), inputs()
            with recorder.into(Trace()) as first:
                call(model, arguments)
            with recorder.into(Trace()) as steady:
                outputs = call(model, arguments)
            described = describe(outputs)
            raw = tuple(_raw_outputs(recorder, outputs, arguments))
        except CompileFailed:
            raise
        except Exception as error:
            chain = [id(e) for e in _chain(error)]
            refused = next((failure for e, failure in compiler.refusals if id(e) in chain), None)
            refused = refused or _refused_launch(error, resolved)
            if refused is not None:
                raise refused from error
            raise CaptureUnsupported(reason_of(error)) from error
    return Capture(
        target=resolved,
        launches=steady.launches,
        outside_ops=dict(steady.ops),
        outputs=described,
        first_call_launches=first.launches,
        each=tuple(steady.each),
        seen_ops=dict(first.ops | steady.ops),
        raw_outputs=raw,
        scalars=tuple(recorder.scalars),
        compiled=compiler.outcomes,
        kernels=compiler.kernels,
        uncompiled=recorder.uncompiled,
    )


def _called(model: nn.Module, arguments: list[Any]) -> Any:
    return model(*arguments)


def _gone_back(model: nn.Module, arguments: list[Any]) -> Any:
    """Forward and backward; returns what forward did."""
    given = map_tensors(arguments, lambda t: t.detach().requires_grad_() if t.is_floating_point() else t)
    with torch.enable_grad():
        outputs = model(*given)
        tensors = [t for _, t in outputs_of(outputs) if isinstance(t, torch.Tensor) and t.requires_grad]
        torch.autograd.backward(tensors, [torch.ones_like(t) for t in tensors])
    return outputs


def _raw_outputs(recorder: Recorder, outputs: Any, arguments: list[Any]) -> Iterator[RawOutput]:
    """Outputs in memory that nobody has written before the call; an input that is handed back is none."""
    given = [_storage(leaf) for _, leaf in leaves(arguments)]
    for path, leaf in outputs_of(outputs) if outputs is not None else ():
        if not isinstance(leaf, torch.Tensor) or not leaf.numel() or _storage(leaf) in given:
            continue
        if _storage(leaf) in recorder.raw:
            size = leaf.element_size()
            first = int(leaf.storage_offset()) * size
            last = first + size * (
                1 + sum((n - 1) * s for n, s in zip(leaf.shape, leaf.stride(), strict=True))
            )
            yield RawOutput(path, int(leaf.data_ptr()) - first, first, last - 1, leaf.numel() * size)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


@contextmanager
def pretence(recorder: Recorder, real: bool) -> Iterator[None]:
    """Everything that makes this process look like one with a GPU.

    The fake mode is created first (it imports much of PyTorch, which must see the real
    ``torch.cuda``), and the function mode is entered last, so that it is asked first.
    """
    fake_tensors, inside = nullcontext() if real else FakeTensorMode(allow_non_fake_inputs=True), Inside()
    with (
        recording_launches(recorder),
        pretended_cuda(recorder),
        fake_tensors,
        CountOutsideOps(recorder, inside),
        replaced(nn.Module, _apply=move_parameters),
        replaced(FakeTensor, device=inside.device_property()),
        PretendCuda(inside),
    ):
        yield


def _chain(error: BaseException | None) -> list[BaseException]:
    """The exception and what caused it."""
    chain: list[BaseException] = []
    while error is not None and len(chain) < 32:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain


def _refused_launch(error: Exception, target: GpuTarget) -> CompileFailed | None:
    """Triton's own objection to the arguments or options of a launch, raised before anything is compiled."""
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames[-1][0].f_code.co_filename.startswith(os.path.dirname(str(triton.__file__))):
        return None
    for frame, _ in reversed(frames):
        fn = frame.f_locals.get("self")
        if isinstance(fn, JITFunction) and frame.f_code.co_name == "run":
            message = str(error).replace("dynamic_func()", f"{fn.__name__}()")
            return CompileFailed(fn.__name__, target.name, f"cannot be launched: {message}")
    return None


def reason_of(error: Exception) -> str:
    """A sentence for the candidate's author: what happened, and at which line of theirs."""
    own_package = os.path.dirname(os.path.dirname(__file__))
    libraries = (*(os.path.dirname(str(path)) for path in (torch.__file__, triton.__file__)), own_package)
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith(libraries) and not f.filename.startswith("<frozen")]
    place = f" (line {own[-1].lineno}: `{own[-1].line}`)" if own else ""
    if isinstance(error, DataDependentOutputException):
        return f"the host code needs a tensor's values, which do not exist here{place}"
    if isinstance(error, DynamicOutputShapeException):
        return f"a shape depends on a tensor's values, which do not exist here{place}"
    message = str(error).strip().splitlines()
    return (
        f"running without a GPU raised {type(error).__name__}: {message[0][:300] if message else ''}{place}"
    )

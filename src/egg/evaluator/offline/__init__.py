"""Compile a candidate for a GPU that is not there, at the task's full size, in no memory.

Two steps, both meant for the untrusted worker process of a machine without a GPU:

1. :func:`capture` runs ``ModelNew`` on fake tensors that claim to live on ``cuda:0`` and
   records every Triton launch instead of performing it;
2. :func:`compile_launch` and :func:`compile_all` hand what was recorded to the Triton
   compiler with an explicit target and read registers, spills, shared memory and the
   instruction mix from the binary, and the work of the launch from Triton's IR.

Nothing measured comes out of here: only what the compiler decided.
"""

from egg.evaluator.offline.capture import capture
from egg.evaluator.offline.compile import compile_all, compile_launch
from egg.evaluator.offline.describe import describe_kernel
from egg.evaluator.offline.launch import Capture, CaptureUnsupported, CompileFailed, Launch
from egg.evaluator.offline.target import GpuTarget, resolve_target

__all__ = [
    "Capture",
    "CaptureUnsupported",
    "CompileFailed",
    "GpuTarget",
    "Launch",
    "capture",
    "compile_all",
    "compile_launch",
    "describe_kernel",
    "resolve_target",
]

"""What the forkserver does once so that no candidate has to wait for it.

Triton's first compilation in a process loads its passes and the rest of its front end. PyTorch's
first fake tensor imports its compiler: a second or two. Triton's first launch builds a helper
library with the C compiler.
The first two are inherited by fork as memory, the last as files, which every worker gets a
copy of. No CUDA context is made here: forked workers could not use it.
"""

from __future__ import annotations

import os
import sys
from enum import StrEnum


class Kind(StrEnum):
    """What the workers of a forkserver are for."""

    INTERPRET = "interpret"
    COMPILE = "compile"
    CUDA = "cuda"


def prewarm(kind: Kind, cache: str) -> None:
    """Import and compile ahead; what can be inherited as files goes to ``cache``."""
    _import_and_compile(kind, cache)
    from egg.evaluator.restrict.execute import guarded_names

    guarded_names()


def _import_and_compile(kind: Kind, cache: str) -> None:
    from egg.evaluator import worker  # noqa: F401

    if kind is Kind.INTERPRET:
        import triton.compiler.code_generator  # noqa: F401 - the first launch of a kernel imports it

        from egg.evaluator.interpreter import autotune, hints, language, launch, libdevice  # noqa: F401

        return
    from egg.evaluator import offline  # noqa: F401
    from egg.evaluator.worker import precompile  # noqa: F401

    os.environ["TRITON_CACHE_DIR"] = cache
    _name_by_version()
    _compile_once()
    if kind is Kind.COMPILE:
        _pretend_once()
    else:
        import torch.fx.experimental.symbolic_shapes  # noqa: F401 - autograd imports it at the first gradient

        _build_driver_library()


def _pretend_once() -> None:
    """The first fake tensor of a process imports most of ``torch._dynamo``."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        torch.empty(1).add(1)


def _name_by_version() -> None:
    """Triton files what it compiles under a digest of its installation: half a gigabyte, a second or two.

    That tells installations apart which share a folder for good. Here the folder is new, and the
    forkserver's and its workers' alone: the version will do.
    """
    import triton
    from triton.runtime import cache

    cache.triton_key = lambda: triton.__version__  # pyright: ignore[reportAttributeAccessIssue]


def _compile_once() -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from egg.evaluator.worker.canary import increment

    signature = {"pointer": "*fp32", "size": "i32", "BLOCK": "constexpr"}
    source = ASTSource(increment, signature, {(2,): 256}, {(0,): [["tt.divisibility", 16]]})
    triton.compile(source, target=GPUTarget("cuda", 90, 32))


def _build_driver_library() -> None:
    """Newer Tritons ship it ready-made; where building it fails, the first launch will say why."""
    try:
        from triton.backends.nvidia.driver import CudaUtils
    except ImportError:
        return
    try:
        CudaUtils()
    except Exception as error:  # a convenience only: the worker that needs it reports the fault properly
        print(f"egg: Triton's driver library was not built ahead: {error}", file=sys.stderr)

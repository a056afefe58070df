"""Contenders: other files in a candidate's process, to take turns with it under the clock.

They hold the candidate's own weights and no copy of them. Where that is possible they are built on the meta
device, because drawing random weights for a large layer, only to drop them, takes seconds.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from egg.evaluator.worker import faults

Construct = Callable[[], nn.Module]
Settle = Callable[[nn.Module], nn.Module]


def sharing(weights: Mapping[str, torch.Tensor], construct: Construct, settle: Settle) -> nn.Module:
    """A module that ``construct`` makes, with ``weights`` in the place of its own.

    ``settle`` moves what else it holds to where the candidate is. A module whose constructor looks at values,
    or that keeps tensors which are never loaded, is built in full.
    """
    try:
        with torch.device("meta"):
            shell = construct()
        shell.load_state_dict(weights, strict=False, assign=True)
        whole = not any(tensor.is_meta for tensor in _tensors(shell))
    except Exception:  # whatever a constructor may raise without values; in full it says so again
        whole, shell = False, None
    if shell is None or not whole:
        shell = construct()
        shell.load_state_dict(weights, strict=False, assign=True)
    return settle(shell)


def loaded(
    builders: Sequence[Construct | None],
    call: Callable[[nn.Module], object],
    threads: int,
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> tuple[list[nn.Module | None], list[str]]:
    """Build each, and have it compile its kernels, so many at a time.

    The modules, and for each why it does not run: empty where it does, or where there was none to build.
    They are built in this thread, which will time them: what a file sets for its thread when it is
    imported (Triton's allocator, say) is there then, and goes along to where it is first called.
    ``waiting`` surrounds what this thread waits for the others' first calls.
    """
    modules: list[nn.Module | None] = []
    unfit: list[str] = []
    for build in builders:
        try:
            modules.append(build() if build is not None else None)
            unfit.append("")
        except BaseException as error:
            modules.append(None)
            unfit.append(_reason(error))

    def why_not(module: nn.Module) -> str:
        try:
            call(module)
        except BaseException as error:
            return _reason(error)
        return ""

    with waiting(), ThreadPoolExecutor(threads) as pool:
        first_calls = {
            number: pool.submit(contextvars.copy_context().run, why_not, module)
            for number, module in enumerate(modules)
            if module is not None
        }
    for number, first in first_calls.items():
        unfit[number] = first.result()
    return modules, unfit


def _reason(error: BaseException) -> str:
    return faults.describe(error).evidence or "it does not run"


def _tensors(module: nn.Module) -> list[torch.Tensor]:
    """What a module holds, registered or not; what is hidden inside other objects is not found."""
    held = [value for part in module.modules() for value in vars(part).values()]
    return [leaf for leaf in tree_leaves(held) if isinstance(leaf, torch.Tensor)]

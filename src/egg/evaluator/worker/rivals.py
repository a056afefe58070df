"""Other files in a candidate's process, to take turns with it under the clock.

They hold the candidate's own weights and no copy of them. Where that is possible they are built on the meta
device, because drawing random weights for a large layer, only to drop them, takes seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from egg.evaluator.worker import faults

_BUILDING = threading.Lock()
"""One at a time: the seed of the generator and the module table of Python are everybody's."""

Construct = Callable[[], nn.Module]


def sharing(
    weights: Mapping[str, torch.Tensor], construct: Construct, settle: Callable[[nn.Module], nn.Module]
) -> nn.Module:
    """A module that ``construct`` makes, with ``weights`` in the place of its own.

    ``settle`` moves one that had to be built in full to where the candidate is.
    """
    with torch.device("meta"):
        shell = construct()
    shell.load_state_dict(weights, assign=True)
    if any(tensor.is_meta for tensor in _tensors(shell)):
        shell = settle(construct())
        shell.load_state_dict(weights, assign=True)
    return shell


def loaded(
    builders: Sequence[Construct | None], call: Callable[[nn.Module], object], threads: int
) -> tuple[list[nn.Module | None], list[str]]:
    """Build each and have it compile its kernels, so many at a time.

    The modules, and for each why it does not run: empty where it does, or where there was none to build.
    """
    modules: list[nn.Module | None] = [None] * len(builders)

    def why_not(number: int) -> str:
        build = builders[number]
        try:
            if build is not None:
                with _BUILDING:
                    built = build()
                call(built)
                modules[number] = built
        except BaseException as error:
            return faults.describe(error)["evidence"] or "it does not run"
        return ""

    with ThreadPoolExecutor(threads) as pool:
        return modules, list(pool.map(why_not, range(len(builders))))


def _tensors(module: nn.Module) -> list[torch.Tensor]:
    """Everything a module holds, registered or not."""
    held = [value for part in module.modules() for value in vars(part).values()]
    return [leaf for leaf in tree_leaves(held) if isinstance(leaf, torch.Tensor)]

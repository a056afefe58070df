"""Weights that change without ``load_state_dict``: in place, by other memory, by other parameters."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from egg.evaluator.transport.protocol import Written
from egg.evaluator.worker.held import parts_of, state_of

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
_vars = vars


@torch.no_grad()
def rewrite(module: nn.Module, state: Mapping[str, torch.Tensor], how: Written) -> None:
    """Give the module the values of ``state``. Buffers change in place however parameters do, and a parameter
    of two names stays one."""
    held = state_of(module)
    replaced: dict[int, nn.Parameter] = {}
    for prefix, part in parts_of(module):
        parameters = _vars(part)["_parameters"]
        for name, old in parameters.items():
            value = state.get(prefix + name)
            if old is None or value is None or how is Written.IN_PLACE:
                continue
            if how is Written.REPLACED:
                new = nn.Parameter(value, requires_grad=old.requires_grad)
                parameters[name] = replaced.setdefault(id(old), new)
            else:
                old.data = _laid(value, how)
    for name, value in state.items():
        if how is Written.IN_PLACE or name not in _names(module):
            held[name].copy_(value)


def _laid(value: torch.Tensor, how: Written) -> torch.Tensor:
    last = FORMATS.get(value.dim()) if how is Written.CHANNELS_LAST else None
    return value if last is None else value.contiguous(memory_format=last)


def _names(module: nn.Module) -> set[str]:
    """Of the parameters, each of several included."""
    return {prefix + name for prefix, part in parts_of(module) for name in _vars(part)["_parameters"]}

"""Operators over lists of tensors (``torch._foreach_add_``, as optimizers call them), tensor by tensor.

Such an operator does to each tensor of its lists what the operator without the prefix does to one, so a
program that calls it is one that calls that, as often as the lists are long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

PREFIX = "_foreach_"
SINGLE: Mapping[str, Callable[..., Any]] = {
    "norm": torch.linalg.vector_norm,
    "maximum": torch.clamp_min,
    "minimum": torch.clamp_max,
    "maximum_": torch.Tensor.clamp_min_,
    "minimum_": torch.Tensor.clamp_max_,
}
"""Where the operator of one tensor has another name, or where one that also takes numbers has."""
VALUED = frozenset(["addcmul", "addcdiv", "addcmul_", "addcdiv_"])
"""Operators of three tensors, whose factor has a name in the form of one tensor."""


def each_of_lists(name: str, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """What ``torch.NAME`` does to lists of tensors, by calls for one tensor at a time; ``NotImplemented``
    where there is no such call."""
    single = name.removeprefix(PREFIX)
    in_place = single.endswith("_")
    call = SINGLE.get(single) or getattr(torch.Tensor if in_place else torch, single, None)
    lists = [value for value in args if isinstance(value, list | tuple)]
    named = {_NAMES.get(key, key): value for key, value in named.items()}
    if single in VALUED and len(args) > 3:
        args, named = args[:3], {**named, "value": args[3]}
    if call is None or not lists or isinstance(named.get("value"), torch.Tensor):
        return NotImplemented
    results = [
        call(*(_at(value, place) for value in args), **{key: _at(v, place) for key, v in named.items()})
        for place in range(len(lists[0]))
    ]
    return args[0] if in_place else tuple(results)


_NAMES = {"scalars": "value"}


def _at(value: Any, place: int) -> Any:
    return value[place] if isinstance(value, list | tuple) else value

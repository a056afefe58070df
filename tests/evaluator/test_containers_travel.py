"""Inputs arrive in the containers that the task's generator makes."""

from __future__ import annotations

from collections import OrderedDict, namedtuple

import torch

from egg.evaluator.transport import exchange

Pair = namedtuple("Pair", ["left", "right"])


def test_containers_keep_their_types() -> None:
    x = torch.ones(2)
    given = [OrderedDict(a=x, b=[x, 1]), {"c": (x,)}, Pair(x, None)]
    structure, tensors = exchange.pack(given)
    found = exchange.unpack(structure, tensors)
    assert [type(part) for part in found] == [OrderedDict, dict, Pair]
    assert type(found[0]["b"]) is list
    assert type(found[1]["c"]) is tuple

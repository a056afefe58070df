"""Modules of many kinds under the backend: never wrong, recorded or not, with kernels or without.

The kernel of a recorded graph is the task's own text under the name of a kernel file. What it computes in the
place of the graph, bound to the module's tensors, must be what the module computes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from egg.core.source import content_sha256
from egg.modules.backend import Backend
from egg.store import Store, Tuned
from tests.modules.kinds import KINDS, REFUSED, Call

MADE = {**KINDS, **{name: make for name, (make, _) in REFUSED.items()}}
WRONG = {"an_error_of_its_own"}
TAKEN = {"scaled_dot_product_attention", "transformer_encoder_layer", "rotary_positions", "no_grad_inside"}
"""Kinds that must not fall through to the fallback."""


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def made(name: str) -> Call:
    """A module of that kind, the same at every call."""
    torch.manual_seed(5)
    return MADE[name]()


def called(call: Call) -> tuple[Any, Any]:
    """What a call gives, and its arguments afterwards."""
    module, args, kwargs = call
    args, kwargs = copy.deepcopy((args, kwargs))
    torch.manual_seed(3)
    with torch.no_grad():
        return module(*args, **kwargs), (args, kwargs)


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for item in value.values() for t in tensors(item)]
    if isinstance(value, list | tuple):
        return [t for item in value for t in tensors(item)]
    return [t for item in vars(value).values() for t in tensors(item)] if hasattr(value, "__dict__") else []


@pytest.mark.parametrize("name", sorted(set(MADE) - WRONG))
def test_the_answer_is_the_modules_with_kernels_and_without(tmp_path: Path, name: str):
    store, backend = Store(tmp_path, lambda text: pytest.fail(text)), Backend()
    options = {"store": str(tmp_path), "fallback": "eager", "unmeasured": True}
    wanted = called(made(name))
    for turn in ("recorded", "kernels"):
        torch._dynamo.reset()
        backend.reset()
        module, *given = made(name)
        found = called((torch.compile(module, backend=backend, options=options), *given))
        assert len(tensors(found)) == len(tensors(wanted))
        for ours, theirs in zip(tensors(found), tensors(wanted), strict=True):
            torch.testing.assert_close(ours, theirs, equal_nan=True)
            assert (ours.stride(), ours.dtype) == (theirs.stride(), theirs.dtype)
        if turn == "recorded":
            entries = store.entries()
            for entry in entries:
                kernel = entry.task.replace("class Model(", "class ModelNew(")
                store.tuned(entry.key, kernel, Tuned(content_sha256(kernel), {}))
    rows = backend.stats()
    assert {row["route"] for row in rows} <= {"kernel", "left"}
    assert sum(row["counts"]["kernel"] for row in rows) >= len(entries)
    assert all(row["reason"] for row in rows if row["route"] == "left")
    assert not any(row["counts"]["failure"] or row["counts"]["outside"] for row in rows)
    if name in TAKEN:
        assert [row["route"] for row in rows] == ["kernel"]

"""Watching operators does not load PyTorch's compiler; where it is loaded, it is kept out as PyTorch does."""

from __future__ import annotations

import subprocess
import sys

from egg.evaluator.operators.ops import Recorder
from egg.evaluator.tensors.modes import LightMode

WATCHES = """
import sys
import torch
from egg.evaluator.transport.arena import poison
from egg.evaluator.operators.ops import Recorder
from egg.evaluator.operators.sketches import Sketcher

with Recorder(fill_empties=poison, sketcher=Sketcher(0, [3])) as recorder:
    torch.empty(3).add(1)
assert recorder.compute == {"add": 1}, recorder.compute
assert "torch._dynamo" not in sys.modules
"""


def test_a_process_that_watches_operators_does_not_load_the_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", WATCHES], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_where_the_compiler_is_loaded_it_is_kept_out() -> None:
    import torch._dynamo

    seen: list[bool] = []

    class Watch(LightMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(torch.compiler.is_compiling())
            return func(*args, **(kwargs or {}))

    compiled = torch.compile(lambda x: x + 1, backend="eager")
    with Watch(), Recorder() as recorder:
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert seen
    assert not any(seen)
    assert recorder.compute["add"] == 1

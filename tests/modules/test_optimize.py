"""``egg.optimize`` from end to end, in a process whose kernels run in Triton's interpreter."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.modules.programs import ROOT, Ended, Program, run_programs

pytestmark = pytest.mark.timeout(900)  # three programs in one process, on a machine that may be busy
PROGRAM = """
import json, sys
import torch
from torch import nn

import egg


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, x, *, scale=1.0):
        return {"hidden": x + torch.nn.functional.silu(self.linear(self.norm(x))) * scale, "given": x}


torch.manual_seed(0)
block, x = Block().eval(), torch.randn(6, 16)
settings = dict(budget="sketch", folder=sys.argv[1] + "/run", progress=False, use_unmeasured=True)
fast = egg.optimize(block, (x,), {"scale": 2.0}, **settings)
seen = {"verdict": fast.result.verdict, "text": str(fast.result)}


def error(x):
    with torch.no_grad():
        return float((fast(x, scale=2.0)["hidden"] - block(x, scale=2.0)["hidden"]).abs().max())


seen["errors"] = [error(x), error(torch.randn(3, 16))]
optimizer = torch.optim.SGD(fast.parameters(), lr=0.1)
fast(x, scale=2.0)["hidden"].square().sum().backward()
optimizer.step()
seen["errors"].append(error(x))
fast(x, scale=3.0)
seen["kernel"], seen["reasons"] = fast.stats().kernel, dict(fast.stats().reasons)
again = egg.load(fast.save(sys.argv[1] + "/kept"), block, use_unmeasured=True)
with torch.no_grad():
    again(x, scale=2.0)
seen["again"] = again.stats().kernel
seen["judged"] = egg.judge(fast, fast.result.source, level="quick").accepted
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ended, ...]:
    """The program above, and two examples as they are, with kernels in the interpreter."""
    folder = tmp_path_factory.mktemp("optimize")
    script = folder / "program.py"
    script.write_text(PROGRAM, encoding="utf-8")
    examples = ROOT / "examples" / "programs"
    programs = (
        Program(str(script), (str(folder),), str(folder)),
        Program(str(examples / "block_in_training.py"), (), str(folder)),
        Program(str(examples / "transformer_inference.py"), (str(folder / "store"),), str(folder)),
    )
    return tuple(run_programs(programs, interpret=True))


@pytest.fixture(scope="module")
def seen(ended: tuple[Ended, ...]) -> dict[str, Any]:
    return json.loads(ended[0].output().splitlines()[-1])


def test_a_module_is_optimized_and_its_kernel_answers(seen: dict[str, Any]) -> None:
    assert seen["verdict"] == "unmeasured"
    assert "no GPU" in seen["text"]
    assert max(seen["errors"]) < 1e-4
    assert seen["kernel"] == 3


def test_what_the_kernel_is_not_for_is_counted(seen: dict[str, Any]) -> None:
    assert seen["reasons"] == {"gradients are wanted": 1, "an argument is 3.0, not 2.0": 1}


def test_it_is_loaded_and_judged_again(seen: dict[str, Any]) -> None:
    assert seen["again"] == 1
    assert seen["judged"]


def test_the_example_runs(ended: tuple[Ended, ...]) -> None:
    assert "kernel 3, original 3" in ended[1].output()


def test_the_transformer_runs_on_one_kernel_for_all_its_blocks(ended: tuple[Ended, ...]) -> None:
    (row,) = ended[2].output().splitlines()
    assert row.startswith("kernel ")
    assert "'kernel': 9, 'fallback': 0" in row

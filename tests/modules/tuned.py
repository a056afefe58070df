"""Two stores that programs recorded into, tuned, and what further programs found there.

A program that infers and one that trains record their graphs in the process of the tests; ``egg tune`` finds
kernels for them, judged at a narrow level full; both go on in another process, on the kernels. The tests look
at different sides of this.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from egg.cli.app import app
from tests.modules.programs import Ended, Program, run_here, run_programs
from tests.warm import NARROW, brief_full

INFERRING = """
import json, sys
import torch, egg

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(16))
        self.register_buffer("shift", torch.rand(16))

    def forward(self, x):
        return torch.relu(x * self.weight) + self.shift

torch.manual_seed(int(sys.argv[1]))
options = {"fallback": "eager", "unmeasured": True, **json.loads(sys.argv[2])}
worst = 0.0
with torch.inference_mode():
    for block in (Block(), Block()):
        run = torch.compile(block, backend=egg.backend, options=options)
        for rows in (4, 4):
            x = torch.randn(rows, 16)
            worst = max(worst, (run(x) - block(x)).abs().max().item())
        x = torch.randn(4, 16, 2)[:, :, 0]
        worst = max(worst, (run(x) - block(x)).abs().max().item())
print(json.dumps({"worst": worst, "graphs": egg.backend.stats()}))
"""
TRAINING = """
import copy, json, sys
import torch, egg
from torch.nn import functional as F

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, x):
        return F.gelu(self.norm(x))

torch.manual_seed(int(sys.argv[1]))
block = Block()
options = {"fallback": "eager", "unmeasured": True}
run = torch.compile(block, backend=egg.backend, options=options, dynamic=False)
optimizer = torch.optim.SGD(block.parameters(), lr=0.1)
worst = 0.0
for rows in map(int, sys.argv[2:]):
    x, target = torch.randn(rows, 8), torch.randint(0, 8, (rows,))
    exact = copy.deepcopy(block).double()
    exact.zero_grad()
    F.cross_entropy(exact(x.double()), target).backward()
    optimizer.zero_grad()
    F.cross_entropy(run(x), target).backward()
    for found, wanted in zip(block.parameters(), exact.parameters()):
        error = (found.grad - wanted.grad).abs().max() / wanted.grad.abs().max()
        worst = max(worst, error.item())
    optimizer.step()
print(json.dumps({"worst": worst, "graphs": egg.backend.stats()}))
"""


def egg(*arguments: object) -> dict[str, Any]:
    """What a command says as JSON."""
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def found(ended: Ended) -> dict[str, Any]:
    return json.loads(ended.output().splitlines()[-1])


@dataclass(frozen=True)
class Stores:
    """What the programs printed, before and after tuning."""

    inferring: Path
    training: Path
    recorded: tuple[dict[str, Any], ...]
    """By the inferring program, and by the training one."""
    listed: int
    """Entries that the inferring program left."""
    tuned: tuple[list[str], ...]
    """The states that tuning reports, for either store."""
    again: tuple[dict[str, Any], ...]
    """The inferring program, the training one, and the training one with other shapes, in a process
    that interprets kernels."""


@cache
def tuned_stores(folder: Path) -> Stores:
    """One of the two graphs of the inferring program is tuned, the heavier one; both of the training one."""
    inferring, training = folder / "inferring", folder / "training"
    for name, text in (("infers", INFERRING), ("trains", TRAINING)):
        (folder / f"{name}.py").write_text(text, encoding="utf-8")

    def infers(seed: int) -> Program:
        environ = {"EGG_STORE": str(inferring)}
        return Program(str(folder / "infers.py"), (str(seed), "{}"), str(folder), environ)

    def trains(*numbers: int) -> Program:
        environ = {"EGG_STORE": str(training)}
        return Program(str(folder / "trains.py"), tuple(map(str, numbers)), str(folder), environ)

    recorded = [run_here(program) for program in (infers(1), trains(1, 6, 6))]
    listed = len(egg("kernels", "list", "--store", inferring)["entries"])
    with brief_full(NARROW):
        tuned = (
            egg("tune", "--store", inferring, "--limit", 1, "--budget", "sketch"),
            egg("tune", "--store", training, "--budget", "sketch"),
        )
    again = run_programs((infers(2), trains(2, 6, 6, 6), trains(3, 6, 9, 6)), interpret=True)
    return Stores(
        inferring,
        training,
        tuple(map(found, recorded)),
        listed,
        tuple([row["state"] for row in rows["tuned"]] for rows in tuned),
        tuple(map(found, again)),
    )


def without_the_interpreter(stores: Stores) -> dict[str, Any]:
    """The inferring program where a kernel cannot run."""
    environ = {"EGG_STORE": str(stores.inferring)}
    script = stores.inferring.parent / "infers.py"
    return found(run_here(Program(str(script), ("3", "{}"), str(script.parent), environ)))

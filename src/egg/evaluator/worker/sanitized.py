"""One forward of a candidate, by itself, to be watched by compute-sanitizer."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from egg.core.policy import Precision
from egg.evaluator.task.precision import HALF_DTYPES
from egg.evaluator.task.program import map_tensors
from egg.evaluator.transport import exchange
from egg.evaluator.worker.importing import import_candidate


def main(folder: Path) -> None:
    os.chdir(folder)
    (args, kwargs), inputs, seed, precision = exchange.unwhole((folder / "work").read_text())
    torch.manual_seed(seed)
    module = import_candidate((folder / "candidate.py").read_text()).ModelNew(*args, **kwargs)
    module = module.to(device="cuda", dtype=HALF_DTYPES.get(Precision(precision)))
    on_device = map_tensors(inputs, lambda tensor: tensor.cuda())
    with torch.no_grad():
        module(*on_device)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

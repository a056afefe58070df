"""The time to the first answer of one model in a new process, compiled by Inductor or with the backend egg.

``python -m benchmarks.models.start MODEL STORE compile|egg`` makes the model, then takes the time from
importing the backend to the first result. The caches of Inductor and Triton are those of the environment; run
it twice for empty ones and full ones. The store has kernels and verdicts from before.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch

from benchmarks.models.zoo import MODELS, call_of, on_device, synchronize


def first_answer(name: str, store: str, form: str, scale: int) -> dict[str, Any]:
    example = on_device(name, scale)
    synchronize()
    began = time.perf_counter()
    graphs = []
    if form == "compile":
        call_of(example, torch.compile(example.module))()
    else:
        import egg

        call_of(example, torch.compile(example.module, backend=egg.backend, options={"store": store}))()
        graphs = [f"{graph['route']}: {graph['reason']}" for graph in egg.backend.stats()]
    synchronize()
    return {"first_answer_seconds": time.perf_counter() - began, "routes": graphs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("store")
    parser.add_argument("form", choices=("compile", "egg"))
    parser.add_argument("--scale", type=int, default=1)
    given = parser.parse_args()
    print(json.dumps(first_answer(given.model, given.store, given.form, given.scale)))


if __name__ == "__main__":
    main()

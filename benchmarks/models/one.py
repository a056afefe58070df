"""One model in a process of its own: recorded for tuning, tuned, or measured in every form side by side.

``python -m benchmarks.models.one record MODEL STORE`` runs one call, so that the store has the model's
graphs. ``... tune MODEL STORE`` optimizes the heaviest of them. ``... measure MODEL STORE`` compiles all
forms, lets them take turns on the same call, and prints a row as JSON: the time of a call in each form, and
how far its outputs are from those of a wider type.
"""

from __future__ import annotations

import argparse
import copy
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

import egg
from benchmarks.models.zoo import MODELS, Example
from egg.api.tuning import Here, tune, waiting
from egg.api.watching import Watcher
from egg.core.settings import Settings
from egg.engine.budgets import find_budget
from egg.modules import trial
from egg.store import Store

FORMS = ("eager", "compile", "reduce-overhead", "max-autotune", "egg")
ROUNDS, ROUND_SECONDS = 15, 0.05
DECIDED = len(trial.FORMS) * (trial.WARM + trial.ROUNDS) + 1
"""Calls after which the backend has chosen between the forms of a graph."""

Call = Callable[[], Any]


def on_device(name: str, scale: int, device: str) -> Example:
    torch.manual_seed(0)
    made = MODELS[name](scale)
    args, kwargs = tree_map_only(torch.Tensor, lambda t: t.to(device), (made.args, made.kwargs))
    return Example(made.module.to(device), args, kwargs, made.trains)


def call_of(example: Example, called: Callable[..., Any]) -> Call:
    """One call of the model, or one step up to the gradients."""

    def infer() -> Any:
        with torch.no_grad():
            return example.outputs(called)

    def train() -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        example.module.zero_grad(set_to_none=True)
        loss = example.outputs(called).loss
        loss.backward()
        return loss

    return train if example.trains else infer


def compiled(example: Example, form: str, store: str) -> Callable[..., Any]:
    if form == "eager":
        return example.module
    if form == "compile":
        return torch.compile(example.module)
    if form == "egg":
        return torch.compile(example.module, backend=egg.backend, options={"store": store})
    return torch.compile(example.module, mode=form)


def results(example: Example, call: Call) -> list[torch.Tensor]:
    """What one call computes, in fp64: its outputs, or its gradients."""
    made = call()
    found = [p.grad for p in example.module.parameters()] if example.trains else tree_leaves(made)
    return [t.detach().double() for t in found if isinstance(t, torch.Tensor) and t.is_floating_point()]


def distance(found: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    """The root of the mean squared difference of all results, relative to that of the exact ones."""
    off = sum(((a - b) ** 2).sum() for a, b in zip(found, exact, strict=True))
    return float((off / sum((b**2).sum() for b in exact)) ** 0.5)


def exact_results(example: Example) -> list[torch.Tensor]:
    """In fp64 where the model has fp32, in fp32 where it has 16 bits: the width that fits."""
    narrow = next(example.module.parameters()).dtype
    wide = torch.float64 if narrow is torch.float32 else torch.float32

    def widened(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(wide) if tensor.is_floating_point() else tensor

    args, kwargs = tree_map_only(torch.Tensor, widened, (example.args, example.kwargs))
    other = Example(copy.deepcopy(example.module).to(wide), args, kwargs, example.trains)
    return results(other, call_of(other, other.module))


def seconds(call: Call, count: int) -> float:
    synchronize()
    start = time.perf_counter()
    for _ in range(count):
        call()
    synchronize()
    return (time.perf_counter() - start) / count


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def record(example: Example, store: str) -> dict[str, Any]:
    """Graphs are the same whatever answers them, and nothing is compiled for those that run eagerly."""
    options = {"store": store, "fallback": "eager"}
    call_of(example, torch.compile(example.module, backend=egg.backend, options=options))()
    return {"graphs": egg.backend.stats()}


def tune_heaviest(folder: Path, budget: str, limit: int) -> None:
    """What ``egg tune`` does, for machines without the packages of the command line."""
    store, here = Store(folder, print), Here.now()
    settings = Settings(team="expert", budget=find_budget(budget), skills=())
    chosen = waiting(store, here).entries[:limit]
    for entry in tune(store, chosen, settings, here, os.environ, lambda _: nullcontext(Watcher())):
        print(entry.name, entry.state, flush=True)


@contextmanager
def alone(lock: Path | None) -> Iterator[None]:
    """Meanwhile no other process that holds to ``lock`` measures."""
    if lock is None:
        yield
        return
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def measure(example: Example, store: str, forms: tuple[str, ...], lock: Path | None) -> dict[str, Any]:
    torch._dynamo.config.recompile_limit = 64
    exact = exact_results(example)
    calls: dict[str, Call] = {}
    first: dict[str, float] = {}
    far: dict[str, float] = {}
    for form in forms:
        calls[form] = call_of(example, compiled(example, form, store))
        first[form] = seconds(calls[form], 1)
        far[form] = distance(results(example, calls[form]), exact)
        with alone(lock if form == "egg" else None):
            seconds(calls[form], DECIDED if form == "egg" else 3)
    times: dict[str, list[float]] = {form: [] for form in forms}
    with alone(lock):
        counts = {form: max(1, int(ROUND_SECONDS / seconds(call, 3))) for form, call in calls.items()}
        for _ in range(ROUNDS):
            for form, call in calls.items():
                times[form].append(1e3 * seconds(call, counts[form]))
    return {
        "milliseconds": {form: median(found) for form, found in times.items()},
        "quartiles": {form: quantiles(found, n=4) for form, found in times.items()},
        "first_answer_seconds": first,
        "error": far,
        "graphs": egg.backend.stats(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("record", "tune", "measure"))
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("store")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--budget", default="quick")
    parser.add_argument("--limit", type=int, default=4, help="graphs that are tuned")
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--lock", type=Path, help="a file that processes measuring at the same time share")
    given = parser.parse_args()
    if given.step == "tune":
        tune_heaviest(Path(given.store), given.budget, given.limit)
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    example = on_device(given.model, given.scale, device)
    if given.step == "record":
        row = record(example, given.store)
    else:
        row = measure(example, given.store, tuple(given.forms.split(",")), given.lock)
    gpu = torch.cuda.get_device_name() if device == "cuda" else ""
    print(
        json.dumps(
            {"model": given.model, "scale": given.scale, "gpu": gpu, "torch": torch.__version__, **row}
        )
    )


if __name__ == "__main__":
    main()

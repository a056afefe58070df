"""One model in a process of its own: recorded for tuning, tuned, or measured in every form side by side.

``python -m benchmarks.models.one record MODEL STORE`` runs one call, so that the store has the model's
graphs. ``... tune MODEL STORE`` optimizes the heaviest of them. ``... measure MODEL STORE`` compiles all
forms, lets them take turns on the same call, and prints a row as JSON: the time of a call in each form and
its share on the host, how often the backend was faster than each other form, how far outputs are from those
of a wider type, and what tuning made of the graphs.
"""

from __future__ import annotations

import argparse
import copy
import fcntl
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

import egg
from benchmarks.models.tuning import tune_heaviest, verdicts
from benchmarks.models.zoo import MODELS, Call, Example, call_of, on_device, synchronize
from egg.modules.trial import MOST_CALLS

FORMS = ("eager", "compile", "reduce-overhead", "max-autotune", "egg")
ROUNDS, ROUND_SECONDS = 15, 0.1


def compiled(example: Example, form: str, store: str) -> Callable[..., Any]:
    if form == "eager":
        return example.module
    if form == "compile":
        return torch.compile(example.module)
    if form == "egg":
        # what trains is replayed by Inductor alone, and only where the program asks for that
        replay = {"triton.cudagraphs": True} if example.trains else {}
        return torch.compile(example.module, backend=egg.backend, options={"store": store, **replay})
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


def host_milliseconds(call: Call) -> float:
    """How long the host is busy with a call that finds the GPU idle: what goes before its first launch keeps
    the GPU waiting, and all of it bounds the calls that a program can make in a row."""
    taken = []
    for _ in range(5):
        synchronize()
        start = time.perf_counter()
        call()
        taken.append(1e3 * (time.perf_counter() - start))
    return min(taken)


def record(example: Example, store: str) -> dict[str, Any]:
    """Graphs are the same whatever answers them, and nothing is compiled for those that run eagerly."""
    options = {"store": store, "fallback": "eager"}
    call_of(example, torch.compile(example.module, backend=egg.backend, options=options))()
    return {"graphs": egg.backend.stats()}


def measure(example: Example, store: str, forms: tuple[str, ...], lock: int | None) -> dict[str, Any]:
    """Compile all forms; then, with nothing else running, let the backend decide and time forms in turns."""
    torch._dynamo.config.recompile_limit = 64
    phases, began = {}, time.monotonic()
    exact = exact_results(example)
    calls: dict[str, Call] = {}
    far: dict[str, float] = {}
    failed: dict[str, str] = {}
    for form in forms:
        call = call_of(example, compiled(example, form, store))
        try:
            seconds(call, 1)
        except torch._dynamo.exc.BackendCompilerFailed as error:
            failed[form] = str(error).splitlines()[0]
            continue
        calls[form], far[form] = call, distance(results(example, call), exact)
    phases["compile"] = time.monotonic() - began
    if lock is not None:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the process ends
    phases["wait"] = time.monotonic() - began - phases["compile"]
    if "egg" in calls:
        decide(calls["egg"])
        far["egg"] = distance(results(example, calls["egg"]), exact)
    times = timed(calls)
    phases["time"] = time.monotonic() - began - phases["compile"] - phases["wait"]
    return {
        "milliseconds": {form: median(found) for form, found in times.items()},
        "quartiles": {form: quantiles(found, n=4) for form, found in times.items()},
        "gains": gains(times),
        "host": {form: host_milliseconds(call) for form, call in calls.items()},
        "error": far,
        "failed": failed,
        "graphs": egg.backend.stats(),
        "entries": verdicts(store),
        "seconds": {phase: round(taken, 1) for phase, taken in phases.items()},
    }


def decide(call: Call) -> None:
    """Call until the backend has chosen between the forms of every graph."""
    for _ in range(MOST_CALLS):
        call()
        if not any(graph["pending"] for graph in egg.backend.stats()):
            break
    seconds(call, 3)


def gains(times: dict[str, list[float]]) -> dict[str, list[float]]:
    """Quartiles of how many times faster than each other form the backend was in the same round."""
    return {
        form: quantiles([other / own for own, other in zip(times["egg"], found, strict=True)], n=4)
        for form, found in times.items()
        if "egg" in times and form != "egg"
    }


def timed(calls: dict[str, Call]) -> dict[str, list[float]]:
    """Milliseconds of a call in each form, in rounds.

    Forms come in another order in each: a GPU at its limit of power runs slower behind a form that kept it
    busy than behind one that did not.
    """
    counts = {
        form: max(1, int(ROUND_SECONDS / min(seconds(call, 1) for _ in range(3))))
        for form, call in calls.items()
    }
    times: dict[str, list[float]] = {form: [] for form in calls}
    draw = random.Random(0)
    for _ in range(ROUNDS):
        for form in draw.sample(list(calls), len(calls)):
            times[form].append(1e3 * seconds(calls[form], counts[form]))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("record", "tune", "measure"))
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("store")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--budget", default="quick")
    parser.add_argument("--limit", type=int, default=4, help="graphs that are tuned")
    parser.add_argument("--seconds", type=float, default=0.0, help="time to tune in, 0: without a limit")
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--lock", type=int, help="the descriptor of a file that is locked while it is timed")
    given = parser.parse_args()
    if given.step == "tune":
        print(json.dumps(tune_heaviest(Path(given.store), given.budget, given.limit, given.seconds)))
        return
    example = on_device(given.model, given.scale)
    if given.step == "record":
        row = record(example, given.store)
    else:
        row = measure(example, given.store, tuple(given.forms.split(",")), given.lock)
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    print(json.dumps({"scale": given.scale, "gpu": gpu, "torch": torch.__version__, **row}))


if __name__ == "__main__":
    main()

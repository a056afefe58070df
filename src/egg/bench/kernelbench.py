"""KernelBench's own layout: a bench as its analysis reads it, and its kernels read back for judging.

As found in the public repository ScalingIntelligence/KernelBench, in facts
(``scripts/benchmark_eval_analysis.py`` at 1cd33c1 and as it pairs by name since the end of 2025,
``scripts/eval_from_generations.py`` at 07baefd, ``scripts/generate_baseline_time.py`` at 15e83c3,
``src/score.py`` at 7ed4e98, ``results/timing`` at 509ed99):

- A kernel is ``runs/RUN/level_L_problem_P_sample_S_kernel.py``.
- ``runs/RUN/eval_results.json`` maps a problem's number, as text, to a list of samples, each with
  ``sample_id``, ``compiled``, ``correctness``, ``metadata``, ``runtime`` and ``runtime_stats``. The level
  is not in it, so a run holds one level. The analysis reads sample 0 only.
- ``runtime`` is in milliseconds, -1.0 where nothing was timed; statistics are ``mean``, ``std``, ``min``,
  ``max``, ``num_trials``, ``hardware``, ``device``.
- ``results/timing/HARDWARE/baseline_time_torch.json`` (and ``..._torch_compile_inductor_MODE.json``) maps
  ``levelL`` to file names of problems (``1_name.py``) to such statistics; a speedup is ``mean / runtime``.
- A problem without a result is taken as wrong. Newer versions pair results and baselines by name, and leave
  a problem without a baseline out of the count; older ones pair them *by position*, and put problems that
  have no result behind all others.

Therefore every task of a level gets a result and a baseline entry, in the order of its number, failed ones
too: a failed task was not timed, and its entry says -1.0 over 0 trials; its value is never used, but a
missing entry would make ``fast_p`` a fraction of fewer tasks. Only a correct kernel without a time against
a baseline is left out of that baseline's file. Correct is here what the judge accepts *and* KernelBench's
own tolerance passes.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from egg.bench.rows import Basis, Opponent, Passed, Refused, Row, latest
from egg.core.errors import MachineError, UsageError
from egg.core.evaluation import Gate, Interval
from egg.core.source import Candidate, Task, content_hash, content_sha256

BASELINE_FILES: Mapping[str, str] = {
    "eager": "baseline_time_torch",
    "compile": "baseline_time_torch_compile_inductor_default",
    "reduce-overhead": "baseline_time_torch_compile_inductor_reduce-overhead",
}
NOT_TIMED = -1.0
_KERNEL = re.compile(r"level_(\d{1,9})_problem_(\d{1,9})_sample_(\d{1,9})_kernel\.py")
_OWN_KERNEL = re.compile(r"(\d{1,9})_(\d{1,9})\.py")
"""Level and problem, as the folder ``kernels`` of a bench names its files."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """A kernel file in KernelBench's layout."""

    level: int
    problem: int
    sample: int
    candidate: Candidate

    @property
    def file_name(self) -> str:
        return kernel_file_name(self.level, self.problem, self.sample)


@dataclass(frozen=True)
class Written:
    """What was written, and what that layout cannot hold."""

    runs: tuple[Path, ...]
    """A folder per level."""
    baselines: tuple[Path, ...]
    left_out: tuple[str, ...]
    """Tasks without a level and a number, and correct kernels without a time, in words."""


@dataclass(frozen=True)
class Paired:
    """Kernels and the tasks they are for."""

    pairs: tuple[tuple[Task, Sample], ...]
    """In the order of the tasks, then of the samples."""
    without_kernel: tuple[Task, ...]
    without_task: tuple[Sample, ...]


def kernel_file_name(level: int, problem: int, sample: int = 0) -> str:
    return f"level_{level}_problem_{problem}_sample_{sample}_kernel.py"


# -- writing -----------------------------------------------------------------------------------------


def write(
    folder: Path,
    name: str,
    rows: Iterable[Row],
    kernels: Mapping[str, str],
    *,
    basis: Basis = Basis.DEFAULT,
    hardware: str | None = None,
) -> Written:
    """Write a bench as ``folder/runs/NAME_levelL`` and ``folder/results/timing/HARDWARE``.

    ``folder`` may be a KernelBench checkout; nothing that is there is written over. ``kernels`` are sources
    by their hash, and must hold every kernel that was accepted. ``basis`` chooses the baselines' precision:
    PyTorch's defaults, as KernelBench has them, by default.
    """
    counted = list(latest(rows).values())
    numbered = [row for row in counted if row.level is not None and row.problem is not None]
    numbered.sort(key=lambda row: (row.level, row.problem))
    _check(name, numbered)
    sources = {row.key: source for row in numbered if (source := _source(row, kernels)) is not None}
    levels = {level: [row for row in numbered if row.level == level] for level in _levels(numbered)}
    runs = {level: folder / "runs" / f"{name}_level{level}" for level in levels}
    place = folder / "results" / "timing" / _hardware(numbered, hardware)
    for taken in runs.values():
        if taken.exists():
            raise UsageError(f"{taken} is there already", "give the run another name with --name")
    if place.exists():
        raise UsageError(
            f"{place} is there already", "give the folder of baselines another name with --hardware"
        )
    for level, run in runs.items():
        _write_run(run, levels[level], sources)
    timed = [
        opponent for opponent in BASELINE_FILES if any(row.opponent(opponent, basis) for row in numbered)
    ]
    baselines = [
        _write_json(place / f"{BASELINE_FILES[opponent]}.json", _baseline(levels, opponent, basis))
        for opponent in timed
    ]
    left_out = [f"{row.key}: no level and number" for row in counted if row not in numbered]
    left_out += [
        f"{row.key}: correct, but not timed against {opponent}"
        for opponent in timed or ("eager",)
        for row in numbered
        if _baseline_entry(row, row.opponent(opponent, basis)) is None
    ]
    return Written(tuple(runs.values()), tuple(baselines), tuple(left_out))


def _check(name: str, numbered: Sequence[Row]) -> None:
    if not numbered:
        raise UsageError(
            "no task of this bench has a level and a number", "KernelBench's layout is for its own problems"
        )
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise UsageError(f"{name!r} cannot be a run's name", "letters, digits, dots and dashes")
    for (level, named), count in Counter((row.level, _baseline_name(row)) for row in numbered).items():
        if count > 1:
            raise UsageError(
                f"level {level} has {count} tasks called {named}",
                "KernelBench's baselines go by file name: give each task its own, as in 7_relu",
            )


def _levels(rows: Sequence[Row]) -> list[int]:
    return sorted({row.level for row in rows if row.level is not None})


def _source(row: Row, kernels: Mapping[str, str]) -> str | None:
    """The text of the kernel that was judged; a refused one need not be at hand."""
    source = kernels.get(row.kernel or "")
    if source is not None and _is_that_of(row, source):
        return source
    if row.accepted:
        raise UsageError(
            f"the kernel of {row.key} is not at hand: {row.kernel}", "keep the runs' folders with the bench"
        )
    return None


def _is_that_of(row: Row, source: str) -> bool:
    """Rows of earlier versions have the kernel's name alone."""
    return content_hash(source) == row.kernel and row.kernel_sha256 in ("", content_sha256(source))


def _hardware(rows: Sequence[Row], name: str | None) -> str:
    """A folder's name for the GPU; two kinds of GPU cannot share a file of times."""
    gpus = sorted({row.timing.gpu for row in rows if row.timing is not None})
    if len(gpus) > 1:
        raise UsageError(
            f"this bench was timed on {' and '.join(gpus)}",
            "KernelBench's baselines are of one GPU: split it",
        )
    name = name or (gpus[0] if gpus else "no GPU")
    return re.sub(r"[^A-Za-z0-9.-]+", "_", name).strip("._") or "GPU"


def _write_run(run: Path, rows: Sequence[Row], sources: Mapping[str, str]) -> None:
    for row in rows:
        if row.key in sources:
            assert row.level is not None
            assert row.problem is not None
            path = run / kernel_file_name(row.level, row.problem)
            _write_text(path, sources[row.key])
    _write_json(run / "eval_results.json", {str(row.problem): [_result(row)] for row in rows})


def _result(row: Row) -> Json:
    """One sample as KernelBench's evaluation leaves it."""
    timing, verdict = row.timing, row.verdict
    correct = isinstance(verdict, Passed) and verdict.kernelbench
    stats = _statistics(timing.milliseconds, timing.rounds, timing.gpu) if timing is not None else {}
    return {
        "sample_id": 0,
        "compiled": isinstance(verdict, Passed)
        or (isinstance(verdict, Refused) and verdict.gate not in (Gate.STATIC, Gate.BUILD)),
        "correctness": correct,
        "metadata": _metadata(row),
        "runtime": stats["mean"] if correct and stats else NOT_TIMED,
        "runtime_stats": stats if correct else {},
    }


def _metadata(row: Row) -> Json:
    verdict = row.verdict
    metadata: Json = {"egg_verdict": verdict.kind, "egg_precision": row.policy.precision.value}
    match verdict:
        case Refused(gate=gate, reason=reason):
            metadata |= {"egg_gate": gate.value, "egg_reason": reason}
        case Passed(timing=timing, kernelbench=within):
            metadata |= {"hardware": timing.gpu} if timing is not None else {}
            metadata |= {} if within else {"egg_reason": "outside KernelBench's own tolerance"}
        case _:
            metadata |= {"egg_reason": verdict.reason}
    return metadata


def _baseline(levels: Mapping[int, Sequence[Row]], opponent: str, basis: Basis) -> Json:
    return {
        f"level{level}": {
            _baseline_name(row): entry
            for row in rows
            if (entry := _baseline_entry(row, row.opponent(opponent, basis))) is not None
        }
        for level, rows in levels.items()
    }


def _baseline_name(row: Row) -> str:
    return f"{row.name.removesuffix('.py')}.py"


def _baseline_entry(row: Row, opponent: Opponent | None) -> Json | None:
    """The opponent's times; a stand-in for a failed task, and nothing for a correct kernel without a time."""
    if opponent is not None and row.timing is not None:
        return _statistics(opponent.milliseconds, opponent.rounds, row.timing.gpu)
    if isinstance(row.verdict, Passed) and row.verdict.kernelbench:
        return None
    untimed = dict.fromkeys(("mean", "std", "min", "max"), NOT_TIMED)
    return {**untimed, "num_trials": 0, "hardware": row.versions.get("gpu", ""), "device": "cuda"}


def _statistics(found: Interval, rounds: Sequence[float], gpu: str) -> Json:
    """Over the rounds' medians; where rounds were not kept, the median is all there is."""
    times = rounds or (found.median,)
    statistics = {"mean": fmean(times), "std": pstdev(times), "min": min(times), "max": max(times)}
    return {**statistics, "num_trials": len(times), "hardware": gpu, "device": "cuda"}


def _write_json(path: Path, data: Json) -> Path:
    return _write_text(path, json.dumps(data, indent=4) + "\n")


def _write_text(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as reason:
        raise MachineError(f"cannot write {path}: {reason.strerror}", "choose another folder") from None
    return path


# -- reading -----------------------------------------------------------------------------------------


def read_kernels(run: Path) -> list[Sample]:
    """The kernels of a run folder, by level, problem and sample; other files are passed over.

    The folder may also be ``kernels`` of a bench, whose files are sample 0.

    A file that is no program is a kernel all the same: the judge says what is wrong with it.
    """
    try:
        samples = [sample for path in run.iterdir() if (sample := _sample(path)) is not None]
    except OSError as reason:
        raise UsageError(
            f"cannot read {run}: {reason.strerror}", "name a folder of KernelBench's runs"
        ) from None
    if not samples:
        raise UsageError(
            f"no kernels in {run}",
            f"files are called {kernel_file_name(1, 1)}, in a folder of runs/",
        )
    twice = [where for where, count in Counter(map(_place, samples)).items() if count > 1]
    if twice:
        level, problem, sample = twice[0]
        raise UsageError(
            f"{run} has sample {sample} of level {level}, problem {problem} twice", "remove one of the files"
        )
    return sorted(samples, key=_place)


def _sample(path: Path) -> Sample | None:
    match = _KERNEL.fullmatch(path.name) or _OWN_KERNEL.fullmatch(path.name)
    if match is None:
        return None
    level, problem, sample = map(int, (*match.groups(), 0)[:3])
    return Sample(level, problem, sample, Candidate(path.read_text("utf-8", errors="replace"), path.stem))


def _place(sample: Sample) -> tuple[int, int, int]:
    return sample.level, sample.problem, sample.sample


def paired(samples: Iterable[Sample], tasks: Iterable[Task]) -> Paired:
    """Kernels beside their tasks, by level and number; what has no counterpart is named, not dropped."""
    by_place: dict[tuple[int | None, int | None], list[Sample]] = {}
    for sample in samples:
        by_place.setdefault((sample.level, sample.problem), []).append(sample)
    pairs: list[tuple[Task, Sample]] = []
    without: list[Task] = []
    for task in tasks:
        own = by_place.pop((task.level, task.problem_id), [])
        pairs += [(task, sample) for sample in own]
        if not own:
            without.append(task)
    return Paired(tuple(pairs), tuple(without), tuple(s for rest in by_place.values() for s in rest))

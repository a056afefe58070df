"""What calls of a task leave in Python objects, wherever these are: a plan can leave nothing there.

A plan has no memory of its own, and the gates compare what forward leaves in parameters, in saved buffers
and in public attributes. So a task whose calls leave something elsewhere has no plan. That is decided by what
differs between runs, and not by kinds of places: the file is loaded and called anew several times, and all
that its module and its names lead to is described behind each call (:mod:`egg.evaluator.task.reachable`).
Left is what a repeated run leaves again (no clock or address decides it) and that

* is another one where the inputs are others, were it only in what the first call kept; or
* behind other weights, or behind one call more on the same inputs, unless forward reads it in the call that
  writes it: packed or normalized weights can be made again by whoever wants them.

What depends on neither (a table of constants, a flag that something was prepared) is no memory.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from egg.core.errors import TaskError
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.reference.answers import same_values
from egg.evaluator.reference.for_callers import another, show_another
from egg.evaluator.task.distributions import rerandomise
from egg.evaluator.task.indices import in_range
from egg.evaluator.task.precision import precision_scope
from egg.evaluator.task.program import Program, map_tensors, outputs_of
from egg.evaluator.task.reachable import Found, reachable
from egg.evaluator.task.seeds import BUILD_SEED, FORWARD_SEED
from egg.evaluator.task.structure import plain, plain_tensor

CALLS = 6
FIRST = 1
"""Calls behind which things are prepared: some are there from the second call on."""
SECONDS = 2.0
"""After which one that has changed nothing is not called again."""
CPU = torch.device("cpu")
Tokens = dict[str, Any]


def lasting(task: Task, precision: Precision) -> list[str]:
    """The paths of what calls leave for later ones or for callers, beside parameters and saved buffers."""
    if not _changes(task, precision):
        return []
    given, others = ([secrets.randbits(48) for _ in range(CALLS)] for _ in range(2))
    weights = secrets.randbits(48)
    lives = [_lived(task, precision, seeds) for seeds in (given, others, given)]
    one, other, again = lives
    stable = {path for path in one[-1] if _alike(one, again, path)}
    if found := [path for path in one[-1] if path in stable and not _alike(one, other, path)]:
        return _shown(found)
    before_last, last = _lived(task, precision, given[:1] * CALLS)[-2:]
    heavier = _lived(task, precision, given, weights)[-1] or one[-1]
    for path in sorted(stable.intersection(last)):
        if before_last.get(path) != last[path]:
            made_anew = not _follows(task, precision, given, path, at_once=False)
            found += [] if made_anew and _follows(task, precision, given, path, at_once=True) else [path]
        elif heavier.get(path) != one[-1][path]:
            ways = (_follows(task, precision, given, path, at_once=at_once) for at_once in (False, True))
            found += [] if any(ways) else [path]
    return _shown(found)


def _changes(task: Task, precision: Precision) -> bool:
    """Whether anything is another one behind some calls than it was before them: mostly nothing is."""
    until = time.perf_counter() + SECONDS
    with _life(task, precision, []) as life:
        before = life.tokens()
        for number in range(CALLS):
            life.draw(secrets.randbits(48))
            life.call(number)
            if life.tokens() != before:
                return True
            if number >= FIRST and time.perf_counter() > until:
                break
    return False


def _alike(one: list[Tokens], other: list[Tokens], path: str) -> bool:
    return all(a.get(path) == b.get(path) for a, b in zip(one, other, strict=True))


def _shown(paths: list[str]) -> list[str]:
    """As the file writes them, without what is in one another."""
    whole = [path for path in paths if not any(path != p and path.startswith(p) for p in paths)]
    return [re.sub(r"\._modules\['([^']*)'\]", r".\1", path) for path in whole]


@dataclass(frozen=True)
class _Life:
    """A task loaded anew, with its inputs."""

    program: Program
    module: nn.Module
    precision: Precision
    given: list[list[Any]]

    def draw(self, seed: int) -> None:
        self.given.append(map_tensors(self.program.inputs(seed, CPU, self.precision), plain_tensor))

    def call(self, number: int) -> list[Any]:
        torch.manual_seed(FORWARD_SEED)
        with precision_scope(self.precision), in_range():
            return [leaf for _, leaf in outputs_of(plain(self.program.run(self.module, self.given[number])))]

    def found(self) -> Found:
        return reachable(self.module, self.program.module)

    def tokens(self) -> Tokens:
        return {path: met.token for path, met in self.found().items()}


@contextmanager
def _life(task: Task, precision: Precision, seeds: list[int]) -> Iterator[_Life]:
    with Program.load(task) as program:
        with precision_scope(precision):
            module = program.build(BUILD_SEED, CPU, precision)
        life = _Life(program, module, precision, [])
        for seed in seeds:
            life.draw(seed)
        yield life


def _lived(task: Task, precision: Precision, seeds: list[int], weights: int | None = None) -> list[Tokens]:
    """What is there behind each call but the first ones; nothing, where there is no answer under other
    ``weights``."""
    with _life(task, precision, seeds) as life:
        if weights is not None:
            rerandomise(life.module, weights)
        behind = []
        try:
            for number in range(CALLS):
                life.call(number)
                behind.append(life.tokens())
        except TaskError:
            if weights is None:
                raise
            return [{}]
        return behind[FIRST:]


def _follows(task: Task, precision: Precision, seeds: list[int], path: str, *, at_once: bool) -> bool:
    """Whether an answer follows from what forward finds there: from what earlier calls have left, or
    ``at_once`` from what it has just written."""
    usual, other = (_last_answer(task, precision, seeds, *way) for way in (("", False), (path, at_once)))
    if usual is None or other is None:
        return usual is not None
    return len(other) != len(usual) or not all(map(_same, usual, other))


def _last_answer(
    task: Task, precision: Precision, seeds: list[int], path: str, at_once: bool
) -> list[Any] | None:
    """Of the last call, where there is one; ``path``: with another value there."""
    with _life(task, precision, seeds) as life:
        for number in range(CALLS - 1):
            life.call(number)
        met = life.found().get(path)
        if path and met is not None:
            if not at_once:
                met.put(another(met.value))
            elif isinstance(met.owner, nn.Module):
                show_another(met.owner, met.key)
        try:
            return [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in life.call(CALLS - 1)]
        except TaskError:
            return None


def _same(one: Any, other: Any) -> bool:
    return same_values(torch.as_tensor(one), torch.as_tensor(other))

"""Oracles that outlive the handle which asked for them, for tests that are not about starting one.

A new oracle imports PyTorch, its compiler and Triton: six to seven seconds of CPU time, more than most
verdicts. Commands and runs open one each and close it at their end. :func:`warm_oracles` lets them take an
oracle that another test has closed. The oracle itself is the product's, in processes and confinement; only
one that answered its last question is kept, and only where its environment is that of the test session.

:func:`brief_full` makes level full as wide as ever and shorter: 160 calls in a row of an interpreted kernel
take six seconds. What those calls find is asserted by the tests of the gate, which give their own settings.
With :data:`NARROW` it asks little more than level quick does: for tests of what leads to a verdict, and of
what follows from one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from egg.core.policy import Level
from egg.evaluator.judge import oracle as product
from egg.evaluator.judge.oracle import Oracle
from egg.evaluator.judge.question import Question
from egg.evaluator.trial.levels import LEVELS, LevelSettings

IDLE = 1
"""Oracles that wait at most; each takes half a gigabyte."""
BRIEF = replace(LEVELS[Level.FULL], calls=12)
NARROW = replace(LEVELS[Level.QUICK], regrades=1)

_START, _CLOSE, _ASKED, _INTERRUPT = Oracle.start, Oracle.close, Oracle._asked, Oracle.interrupt


@dataclass
class Kept:
    """The oracles that wait, as a process and both ends of the talk with it."""

    environment: dict[str, str]
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    """Starts every oracle: a process dies with the thread that started it."""
    waiting: list[tuple[Any, Any, Any]] = field(default_factory=list)
    busy: set[Oracle] = field(default_factory=set)
    """Those with a question that is not answered: closed in the middle of it, they end."""
    spent: set[Oracle] = field(default_factory=set)
    """Those that were interrupted: their process may still be on its way to its end."""
    active: bool = True

    def suits(self, device: str) -> bool:
        return self.active and device == "cpu" and product._environment(device) == self.environment

    def start(self, oracle: Oracle) -> None:
        if oracle._process is not None and oracle._process.poll() is None:
            return
        if not self.suits(oracle.device):
            _START(oracle)
            return
        while self.waiting:
            oracle._process, oracle._channel, oracle._printed = self.waiting.pop()
            if oracle._process.poll() is None:
                return
            _CLOSE(oracle)
        self.thread.submit(_START, oracle).result()

    def close(self, oracle: Oracle) -> None:
        process = oracle._process
        alive = process is not None and process.poll() is None
        answered = alive and oracle not in self.busy | self.spent
        if answered and self.suits(oracle.device) and len(self.waiting) < IDLE:
            oracle._process = None
            self.waiting.append((process, oracle._channel, oracle._printed))
        else:
            _CLOSE(oracle)
            self.spent.discard(oracle)

    def asked(self, oracle: Oracle, question: Question, *more: Any) -> Any:
        self.busy.add(oracle)
        try:
            return _ASKED(oracle, question, *more)
        finally:
            self.busy.discard(oracle)

    def interrupt(self, oracle: Oracle) -> None:
        self.spent.add(oracle)
        _INTERRUPT(oracle)

    def end(self) -> None:
        for process, channel, printed in self.waiting:
            oracle = Oracle("cpu", task_seconds=1.0)
            oracle._process, oracle._channel, oracle._printed = process, channel, printed
            _CLOSE(oracle)
        self.waiting.clear()
        self.thread.shutdown()


@contextlib.contextmanager
def warm_oracles() -> Iterator[Kept]:
    """Oracles of this process are taken from those that were closed before, and kept when they are closed."""
    kept = Kept(product._environment("cpu"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Oracle, "_asked", lambda *given: kept.asked(*given))
        patch.setattr(Oracle, "start", lambda oracle: kept.start(oracle))
        patch.setattr(Oracle, "close", lambda oracle: kept.close(oracle))
        patch.setattr(Oracle, "interrupt", lambda oracle: kept.interrupt(oracle))
        yield kept
    kept.end()


@contextlib.contextmanager
def brief_full(full: LevelSettings = BRIEF) -> Iterator[None]:
    """Level full asks less, where a question leaves its settings to the level."""
    ask = Oracle._asked

    def asked(oracle: Oracle, question: Question, *more: Any) -> Any:
        shorter = question.settings is None and question.policy.level is Level.FULL
        return ask(oracle, replace(question, settings=full) if shorter else question, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Oracle, "_asked", asked)
        yield

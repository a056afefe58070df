"""The forms of one compiled graph, timed on its own calls: the fastest one stays.

A region that is faster by itself need not make the model faster: what the compiler fused across its border
is lost. Where launches take the host longer than the GPU needs to run them, a CUDA graph of the whole gains
more than any kernel. And what Inductor compiles may be slower than the operators one by one. So the first
calls of a model take turns between its forms, each call computed once, by one of them, and timed by the GPU's
own clock, from an idle GPU to the last result: launches that keep the GPU waiting count.

All forms warm up first. Then they are timed in rounds, one call of each form in a round; what is far behind
is dropped after a few rounds, and its memory is released, so that the close ones get most of the calls.
Rounds make the comparison robust: what else happens on the machine meanwhile delays all forms alike. Every
second round goes backwards: a GPU at its limit of power runs slower behind a form that kept it busy, and
would do so behind the same one in every round. A form stays in the place of one that does less where it is
faster in three of four rounds; one with kernels must be so against every form without, so that within the
noise it is Inductor's code that stays. The verdict is kept in the store, so that a later process compiles one
form alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

import torch

from egg.modules.replay import Replayed

Call = Callable[..., Any]
WARM = 3
"""Calls of each form that are not timed. A form that is replayed runs, is recorded, and is replayed."""
STAGES = ((3, 1.5), (6, 1.15), (12, 1.0))
"""Rounds in all, and how many times longer than the fastest a form may take to stay for more of them."""
ROUNDS = STAGES[-1][0]
LEAST_GAIN = 0.01
RESOLUTION = 1e-3
"""Milliseconds that the GPU's clock can tell apart."""


@dataclass(frozen=True)
class Form:
    """How a graph runs."""

    kernels: bool = False
    """With the store's kernels in the places of its layers."""
    eager: bool = False
    """The rest operator by operator, and not compiled by Inductor."""
    replayed: bool = False
    """As a CUDA graph."""

    def __str__(self) -> str:
        parts = [f"{'with' if self.kernels else 'without'} kernels"]
        parts += [name for name in ("eager", "replayed") if getattr(self, name)]
        return ", ".join(parts)


PLAIN, REPLAYED = Form(), Form(replayed=True)
EAGER, EAGER_REPLAYED = Form(eager=True), Form(eager=True, replayed=True)
KERNELS, KERNELS_REPLAYED = Form(kernels=True), Form(kernels=True, replayed=True)
KERNELS_EAGER, KERNELS_EAGER_REPLAYED = Form(True, True), Form(True, True, True)
FORMS = (
    PLAIN, REPLAYED, EAGER, EAGER_REPLAYED,
    KERNELS_EAGER, KERNELS_EAGER_REPLAYED, KERNELS, KERNELS_REPLAYED,
)  # fmt: skip
"""Those that do more come later. Kernels with operators one by one come before kernels with Inductor's code,
which takes longer to start."""
MOST_CALLS = len(FORMS) * (WARM + ROUNDS)
"""Calls after which a trial has ended."""

Times = Mapping[Form, list[float]]
"""Milliseconds of each round, for each form that was timed."""


@dataclass(frozen=True)
class Verdict:
    """The form that stays, and why."""

    form: Form
    times: Times
    """The first is the simplest form: the plain one, or eager where Inductor fails."""
    given_up: Mapping[Form, str]
    """Forms that were not timed, each with the reason."""

    @property
    def ratio(self) -> float:
        """How many times faster than the simplest form it is."""
        own, simplest = self.times[self.form], next(iter(self.times.values()))
        return median(theirs / ours for ours, theirs in zip(own, simplest, strict=False))


class Trial:
    """Answers calls with one of several forms, and with the fastest one once that is known."""

    def __init__(self, forms: Mapping[Form, Call], decided: Callable[[Verdict], None]) -> None:
        self._forms = {form: forms[form] for form in FORMS if form in forms}
        self._simplest = next(iter(self._forms))
        self._plain = self._forms[self._simplest]
        self._decided = decided
        self._warm = [form for form in self._forms for _ in range(WARM)]
        """The calls to come that are not timed."""
        self._round: list[Form] = []
        """The calls to come of this round."""
        self._backwards = False
        self._events: dict[Form, list[Any]] = {form: [] for form in self._forms}
        self._given_up: dict[Form, str] = {}
        self._chosen: Call | None = None

    def __call__(self, *args: Any) -> Any:
        if self._chosen is not None:
            return self._chosen(*args)
        if torch.cuda.is_current_stream_capturing():  # by the caller: nothing can be timed
            return self._plain(*args)
        if self._warm:
            return self._answered(self._warm.pop(0), args)
        if not self._round:
            self._round = list(self._forms)[:: -1 if self._backwards else 1]
            self._backwards = not self._backwards
        made = self._timed(self._round.pop(0), args)
        if not self._round:
            self._end_round()
        return made

    def _timed(self, form: Form, args: tuple[Any, ...]) -> Any:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        made = self._answered(form, args, start.record)
        end.record()
        if form in self._forms:
            self._events[form].append((start, end))
        return made

    def _answered(self, form: Form, args: tuple[Any, ...], start: Callable[[], Any] = lambda: None) -> Any:
        """The answer of a form; one that fails is given up, and the simplest one answers.

        Inputs that are changed in place might have been changed by half. Then the error is the caller's.
        """
        call, before = self._forms[form], _versions(args)
        start()
        try:
            made = call(*args)
        except Exception as error:
            if form == self._simplest or _versions(args) != before:
                raise
            self._give_up(form, f"{type(error).__name__}: {error}".splitlines()[0])
            return self._plain(*args)
        if isinstance(call, Replayed) and call.obstacle:
            self._give_up(form, call.obstacle)
        return made

    def _give_up(self, form: Form, reason: str) -> None:
        self._given_up[form] = reason
        self._events.pop(form, None)
        self._drop([form])

    def _drop(self, forms: list[Form]) -> None:
        """Release what the forms hold: the memory of a recording is as large as that of a call."""
        for form in forms:
            self._forms.pop(form, None)
        self._warm = [form for form in self._warm if form in self._forms]
        self._round = [form for form in self._round if form in self._forms]
        if forms:
            torch.cuda.empty_cache()

    def _end_round(self) -> None:
        """Drop what is far behind after some rounds; after the last one, or with one form left, decide."""
        rounds = max(map(len, self._events.values()))
        limit = next((limit for count, limit in STAGES if count == rounds), None)
        if limit is None:
            return
        torch.cuda.synchronize()
        times = {
            form: [max(start.elapsed_time(end), RESOLUTION) for start, end in events]
            for form, events in self._events.items()
        }
        best = min(median(times[form]) for form in self._forms)
        self._drop([form for form in self._forms if rounds < ROUNDS and min(times[form]) > limit * best])
        if rounds < ROUNDS and len(self._forms) > 1:
            return
        chosen = fastest(times, list(self._forms))
        self._chosen = self._forms[chosen]
        self._drop([form for form in self._forms if form != chosen])
        del self._plain
        self._decided(Verdict(chosen, times, self._given_up))


def fastest(times: Times, left: Sequence[Form]) -> Form:
    """The last form that is faster than the one kept before it, beyond the noise; with kernels, faster than
    all forms without.

    ``left`` are those that were not dropped. The first form of ``times``, the simplest, is dropped where its
    fastest round is far behind the others, which is beyond the noise.
    """
    kept = next(iter(times))
    for form in (form for form in FORMS if form in left and form != kept):
        others = [other for other in left if form.kernels and not other.kernels]
        if all(faster(times[form], times[other]) for other in (kept, *others)):
            kept = form
    return kept if kept in left else min(left, key=lambda form: median(times[form]))


def faster(form: list[float], other: list[float]) -> bool:
    """Whether it is faster, beyond the noise, in three of four of the rounds that both took part in."""
    gains = [theirs / own for own, theirs in zip(form, other, strict=False)]
    return quantiles(gains, n=4, method="inclusive")[0] > 1 + LEAST_GAIN


def _versions(args: tuple[Any, ...]) -> list[int]:
    return [a._version for a in args if isinstance(a, torch.Tensor) and not a.is_inference()]

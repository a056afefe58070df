"""Figures and names as a report writes them: a speedup with its interval, a share, a price, an opponent."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Protocol

from egg.core.evaluation import Interval
from egg.report.quantities import milliseconds, percent

NONE = "\N{EN DASH}"
"""Where there is no figure."""
TO = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"
_RATIO = re.compile(r"(?<=\d)x\b")


class Ranged(Protocol):
    """Anything with two ends, which may not be known."""

    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


def times(value: float | None) -> str:
    """``1.97×``, ``12.3×``, ``0.084×``: three digits that count, two decimals at least around one."""
    if value is None or not math.isfinite(value):
        return NONE
    return f"{_figure(value)}{TIMES}"


def speed(found: Interval | None) -> str:
    """The median of a speedup: ``1.97×``; ``0.998×`` where two decimals would hide that it is below 1."""
    if found is None:
        return NONE
    apart = found.high < 1 or found.low > 1
    digits = next((n for n in (2, 3, 4) if round(found.median, n) != 1), 2) if apart else 2
    return f"{found.median:.{digits}f}{TIMES}" if digits > 2 else times(found.median)


def ends(value: Ranged | None) -> str:
    """``1.96–1.98``, of an interval's two ends, with as many digits as tell them apart; empty without one."""
    if value is None or value.low is None or value.high is None:
        return ""
    low, high = _figure(value.low), _figure(value.high)
    for decimals in (3, 4):
        if low == high and value.low < value.high:
            low, high = f"{value.low:.{decimals}f}", f"{value.high:.{decimals}f}"
    return f"{low}{TO}{high}"


def share_ends(value: Ranged | None) -> str:
    if value is None or value.low is None or value.high is None:
        return ""
    return f"{100 * value.low:.0f}{TO}{100 * value.high:.0f}%"


def share(value: float | None) -> str:
    return NONE if value is None else percent(value)


def time(value: float | None) -> str:
    """Milliseconds, with the Greek letter that a page can show."""
    return NONE if value is None else milliseconds(value).replace(" us", " \N{GREEK SMALL LETTER MU}s")


def seconds(value: float | None) -> str:
    """``0.2 s``, ``48 s``, ``3 min 05 s``, ``2 h 10 min``."""
    if value is None or not math.isfinite(value):
        return NONE
    if value < 59.5:
        return f"{value:.2g} s" if value < 9.95 else f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60:,} h {minutes % 60:02d} min"


def money(value: float | None) -> str:
    if value is None:
        return NONE
    return f"${value:,.2f}" if value >= 1 or value == 0 else f"${value:.2g}"


def count(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}"


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def error(value: float | None) -> str:
    """A relative error: ``3.0e-07``."""
    return NONE if value is None else f"{value:.1e}"


def opponent(name: str) -> str:
    """A baseline as people call it."""
    known = {
        "eager": "eager PyTorch",
        "compile": "torch.compile",
        "reduce-overhead": "torch.compile, reduce-overhead",
        "best": "the best baseline",
    }
    return known.get(name, name)


def sentence(text: str) -> str:
    """Words of ours as a sentence: a capital first, a full stop last, ``1.3x`` as it is written by hand."""
    shown = stopped(_RATIO.sub(TIMES, text))
    return shown[:1].upper() + shown[1:]


def stopped(text: str) -> str:
    """A sentence with its full stop; it may begin with a name, so the first letter stays."""
    shown = text.strip()
    return shown if not shown or shown.endswith((".", "!", "?", ":")) else f"{shown}."


def _figure(value: float) -> str:
    if value >= 99.95:
        return f"{value:,.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.0995 else f"{value:.2g}"


FILTERS: dict[str, Callable[..., Any]] = {
    "times": times,
    "ends": ends,
    "speed": speed,
    "share": share,
    "share_ends": share_ends,
    "ms": time,
    "seconds": seconds,
    "money": money,
    "count": count,
    "plural": plural,
    "error": error,
    "opponent": opponent,
    "sentence": sentence,
    "stopped": stopped,
}

"""What a bench has cost, and whether a limit on the whole leaves room for another task."""

from __future__ import annotations

from collections.abc import Iterable

from egg.api.benching.news import Ended, Moved, News
from egg.bench.rows import Row


class Meter:
    """The money of every task, in flight or ended, as its row and its news tell it; in US dollars, of the
    calls whose price is known."""

    def __init__(self, rows: Iterable[Row], limit: float | None = None) -> None:
        self._money = {row.key: row.spent.money for row in rows}
        self._limit = limit

    def hear(self, news: News) -> None:
        match news:
            case Moved(key=key, money=money):
                self._note(key, money)
            case Ended(row=row):
                self._note(row.key, row.spent.money)

    def _note(self, key: str, money: float) -> None:
        """What was paid stays paid, whatever a row that a fault has cut short knows of it."""
        self._money[key] = max(money, self._money.get(key, 0.0))

    def leaves_room(self) -> bool:
        return not self.reached

    @property
    def reached(self) -> str:
        """What was spent of how much, where that is all; empty below the limit."""
        spent = sum(self._money.values())
        if self._limit is None or spent < self._limit:
            return ""
        return f"${spent:.4f} of ${self._limit:g} are spent"

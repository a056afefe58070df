"""Count the trips of a loop by looking at few of them.

What a loop carries (pointers, counters) is put forward in even steps, as its first trip shows them, and trips
are sampled. Where a trip shows that the steps are not even after all, the trips are run one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from egg.evaluator.work.carried import Carried, Uneven, as_guess, same, stepping, truth
from egg.evaluator.work.sampling import Tally, add, added_up
from egg.evaluator.work.tally import Amount, Steps, Watch, bounds, matters

FEWEST_TRIPS, MOST_TRIPS = 5, 12
"""That are looked at in one loop."""
LONGEST_WALK = 256
"""Trips that are run one after the other where a loop cannot be sampled."""
_FARTHEST = 1 << 40
"""Trips of a loop whose end is searched."""

Body = Callable[[int, Carried], Carried]
"""Runs one trip with what the one before handed on, and hands on itself."""


class Counting:
    """What has been counted of a program, and how its loops are."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._tally: Tally = {}
        self.complete = True
        """Nothing that was counted depends on data."""
        self.watch: Watch | None = None
        """Receives every access before it is counted."""

    def _count(self, key: Hashable, amount: float) -> None:
        if amount:
            self._tally[key] = self._tally.get(key, 0.0) + amount

    def _apart(self, work: Callable[..., Carried], *given: object) -> tuple[Tally, Carried]:
        """Do something with a tally of its own."""
        outer, self._tally = self._tally, {}
        try:
            results = work(*given)
            return self._tally, results
        finally:
            self._tally = outer

    def _trips_of_while(
        self,
        start: Carried,
        ask: Callable[[Carried], Carried],
        body: Body,
    ) -> int | None:
        """How often the condition holds; ``None`` where it follows from data, or no end is found.

        What is carried is put forward in even steps; the end is bracketed by doubling, then by
        halving. Whether the steps were even shows at that end: if not, the trips are walked.
        """

        def holds(carried: Carried) -> bool | None:
            _, results = self._apart(ask, carried)
            return truth(results[0]) if results else None

        def after(carried: Carried) -> Carried:
            return self._apart(body, 0, carried)[1]

        first = holds(start)
        if not first:
            return None if first is None else 0
        carried = after(start)
        try:
            at = stepping(start, carried)
            low, high = 0, 1
            while high < _FARTHEST and holds(at(high)):
                low, high = high, high * 2
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if holds(at(middle)) else (low, middle)
            if holds(at(high)) is False and all(map(same, after(at(low)), at(high))):
                return high
        except Uneven:
            pass
        for trip in range(1, LONGEST_WALK):
            answer = holds(carried)
            if not answer or self._steps.short:
                return trip if answer is False else None
            carried = after(carried)
        return None

    def _loop(self, trips: int, start: Carried, body: Body, *, innermost: bool) -> Carried:
        """Count so many trips; what the loop hands on behind the last of them.

        A trip that loads is waited for; where an inner loop loads, only its trips are counted so. Iterations
        are those of the ``innermost`` loop alone.
        """
        if trips == 0:
            return start
        total, results = self._apart(self._trips, trips, start, body)
        if innermost:
            self._count("iterations", trips)
        if "waits" not in total and any(isinstance(key, Amount) and not key.site.store for key in total):
            self._count("waits", trips)
        add(self._tally, total)
        return results

    def _trips(self, trips: int, start: Carried, body: Body) -> Carried:
        """Count the trips of a loop by looking at few of them, if what it carries goes on in even steps."""
        first, second = self._apart(body, 0, start)
        if trips == 1:
            add(self._tally, first)
            return second
        mark = self.watch.mark() if self.watch is not None else 0
        try:
            at = stepping(start, second)
            seen: dict[int, Carried] = {0: second}

            def look(trip: int) -> Tally:
                if trip == 0:
                    return first
                counted, results = self._apart(body, trip, at(trip))
                if not all(map(same, results, at(trip + 1))):
                    raise Uneven
                seen[trip] = results
                return counted

            total = added_up(
                trips,
                look,
                least=FEWEST_TRIPS,
                most=MOST_TRIPS,
                exact=matters,
                bound=bounds,
                enough=lambda: self._steps.short,
            )
        except Uneven:
            if self.watch is not None:
                self.watch.take_back(mark)
            return self._walk(trips, first, second, body)
        self.complete = self.complete and len(seen) > 1
        add(self._tally, total)
        return seen.get(trips - 1) or at(trips)

    def _walk(self, trips: int, first: Tally, carried: Carried, body: Body) -> Carried:
        """Run trip after trip; what is beyond the means is taken to be like what came before."""
        total, most = dict(first), {key: first[key] for key in filter(bounds, first)}
        walked = 1
        while walked < min(trips, LONGEST_WALK) and not self._steps.short:
            counted, carried = self._apart(body, walked, carried)
            add(total, counted)
            for key in filter(bounds, counted):
                most[key] = max(most.get(key, 0.0), counted[key])
            walked += 1
        total |= {key: amount * walked for key, amount in most.items()}
        add(self._tally, total, trips / walked)
        if walked < trips:
            self.complete = False
            return tuple(map(as_guess, carried))
        return carried

"""Follow one program of a launch through Triton's IR and count what it does.

Integers and addresses are computed; of everything else only the amount is counted. Loops are
not run to their end: their trips are sampled, with what a loop carries (pointers, counters)
put forward in even steps, as its first trip shows them. Where a trip shows that the steps are
not even after all, the trips are run one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from math import inf

from egg.evaluator.work import costs
from egg.evaluator.work.access import Accessed, accessed, described
from egg.evaluator.work.arguments import TensorArgument
from egg.evaluator.work.carried import Carried, Uneven, as_guess, held, same, scalar, stepping, truth
from egg.evaluator.work.sampling import Tally, add, added_up
from egg.evaluator.work.tally import Amount, Product, Steps, Watch, bounds, matters
from egg.evaluator.work.tiles import evaluate, unknown
from egg.evaluator.work.ttir import Function, Module, Op, Region
from egg.evaluator.work.values import INTEGER_OPS, Known, Number

FEWEST_TRIPS, MOST_TRIPS = 5, 12
"""That are looked at in one loop."""
LONGEST_WALK = 256
"""Trips that are run one after the other where a loop cannot be sampled."""
_FARTHEST = 1 << 40
"""Trips of a loop whose end is searched."""
_DEEPEST_CALL, _MOST_BLOCKS = 8, 64
_ACCESSED_PER_STEP, _COMPUTED_PER_STEP = 200, 3_000
"""Elements of a tile that take as long as one more operation."""

_TERMINATORS = frozenset(
    ("cf.br", "cf.cond_br", "tt.return", "scf.yield", "scf.condition", "tt.reduce.return", "tt.scan.return")
)
_LOOPS = frozenset(("scf.for", "scf.while"))
_FOR = re.compile(r"(?:unsigned\s+)?(%\S+) = (%\S+) to (%\S+) step (%\S+)(?:\s+iter_args\(([^)]*)\))?")
_TARGET = re.compile(r"(\^[\w$.\-]+)(?:\(([^()]*)\))?")
_REFERENCES = re.compile(r"%[\w.$\-#]+")

Env = dict[str, Known]


class Program:
    """One program: its place in the grid, and what has been counted of it."""

    def __init__(
        self,
        module: Module,
        arguments: Env,
        tensors: Mapping[str, TensorArgument],
        grid: tuple[int, ...],
        place: tuple[int, ...],
        steps: Steps,
    ) -> None:
        self._module, self._tensors = module, tensors
        self._grid, self._place, self._steps = grid, place, steps
        self._env: Env = dict(arguments)
        self._tally: Tally = {}
        self._calls = 0
        self.complete = True
        """Nothing that was counted depends on data."""
        self.wide = False
        """Whether integers of 32 bits are computed in 64."""
        self.watch: Watch | None = None
        """Receives every access before it is counted."""
        self._unsure = 0
        """Branches and loops under way of which data decide whether they are run, or how often."""
        self._endless = 0
        """Those of them that are counted once and may run more often, or do other things."""

    def run(self, function: Function) -> Tally:
        self._run_function(function)
        return self._tally

    # one operation after the other

    def _run_function(self, function: Function) -> Carried:
        """From block to block until it returns."""
        blocks = {block.label: block for block in function.body.blocks}
        block, given = function.body.blocks[0], ()
        for _ in range(_MOST_BLOCKS):
            self._bind(block.arguments, given)
            end = self._run_ops(block.ops)
            if end is None or not end.name.startswith("cf."):
                return self._values(end.operands) if end is not None else ()
            label, given = self._branch(end, function.body)
            if label not in blocks:
                break
            block = blocks[label]
        self.complete = False
        return ()

    def _branch(self, op: Op, body: Region) -> tuple[str, Carried]:
        """Where ``cf.br`` or ``cf.cond_br`` goes on, and with what. Where data decide, the longer way."""
        targets = [
            (label, self._values(_REFERENCES.findall(inside.split(":")[0])))
            for label, inside in _TARGET.findall(op.text)
        ]
        if op.name == "cf.br" or len(targets) < 2:
            return targets[0] if targets else ("", ())
        answer = truth(self._env.get(op.operands[0]) if op.operands else None)
        if answer is not None:
            return targets[0] if answer else targets[1]
        self.complete = False
        self._unsure += 1  # until the function returns
        self._endless += 1
        lengths = {block.label: len(block.ops) for block in body.blocks}
        return max(targets, key=lambda target: lengths.get(target[0], 0))

    def _run_region(self, region: Region, given: Carried = ()) -> Carried:
        """A region of one block; what its last operation hands back."""
        if not region.blocks:
            return ()
        self._bind(region.blocks[0].arguments, given)
        end = self._run_ops(region.blocks[0].ops)
        return self._values(end.operands) if end is not None else ()

    def _run_ops(self, ops: Sequence[Op]) -> Op | None:
        """Up to the terminator, which is handed back."""
        for op in ops:
            if op.name in _TERMINATORS:
                return op
            self._steps.take(1)
            self._bind(op.results, self._results(op))
        return None

    def _results(self, op: Op) -> Carried:
        """Count one operation; what comes out of it."""
        if op.name in _CONTROL:
            return _CONTROL[op.name](self, op)
        if op.name == "tt.make_tensor_descriptor":
            return (described(op, self._env),)
        if self.watch is not None:
            self.watch.access(op, self._env, sure=not self._unsure)
        touched = accessed(op, self._env, self._tensors)
        if touched is not None:
            self._steps.take(op.inputs[0].elements / _ACCESSED_PER_STEP if op.inputs else 0)
            self._count(Amount(touched.site, "bytes"), touched.touched.bytes)
            self._count(Amount(touched.site, "sectors"), touched.touched.sectors)
            self._count(Amount(touched.site, "granules"), touched.touched.granules)
            if touched.site.store:
                self._count(Amount(touched.site, "most"), self._most(op, touched))
            self.complete = self.complete and touched.sure
            return (unknown(op, touched.result),) if touched.result else ()
        results = evaluate(op, self._values(op.operands), self._place, self._grid, wide=self.wide)
        self._count_arithmetic(op, results)
        self._steps.take(sum(map(held, results)) / _COMPUTED_PER_STEP)
        return results

    def _most(self, op: Op, touched: Accessed) -> float:
        """Bytes that a store may write at most: all lanes where data decide which."""
        if self._endless:
            return inf
        return touched.touched.bytes if touched.sure else op.inputs[0].elements * op.inputs[0].itemsize

    def _count_arithmetic(self, op: Op, results: Carried) -> None:
        """Floating-point work, and integer work on what was read from memory or hashes."""
        if op.name in ("tt.dot", "tt.dot_scaled"):
            precision, flops = costs.product(op)
            self._count(Product(precision) if precision else "product", flops)
            return
        flops, special = costs.combined(op) if op.regions else costs.arithmetic(op)
        name, type = op.name.rpartition(".")[2], costs.result_type(op)
        if name in INTEGER_OPS and type.element != "i1":
            guessed = any(isinstance(value, Number) and value.guessed for value in results)
            flops += type.elements if guessed or name in ("mulhiui", "xori") else 0
        self._count("flops", flops)
        self._count("special", special)

    def _count(self, key: Hashable, amount: float) -> None:
        if amount:
            self._tally[key] = self._tally.get(key, 0.0) + amount

    def _bind(self, names: Sequence[str], given: Sequence[Known]) -> None:
        for i, name in enumerate(names):
            self._env[name] = given[i] if i < len(given) else None

    def _values(self, names: Sequence[str]) -> Carried:
        return tuple(self._env.get(name) for name in names)

    def _apart(self, work: Callable[..., Carried], *given: object) -> tuple[Tally, Carried]:
        """Do something with a tally of its own."""
        outer, self._tally = self._tally, {}
        try:
            results = work(*given)
            return self._tally, results
        finally:
            self._tally = outer

    # control flow

    def _if(self, op: Op) -> Carried:
        """Where data decide, the first branch is counted; the count is whole if the other is like it."""
        then, otherwise = (*op.regions, Region(), Region())[:2]
        answer = truth(self._env.get(op.operands[0]) if op.operands else None)
        if answer is not None:
            return self._run_region(then if answer else otherwise)
        self._unsure += 1
        counted, results = self._apart(self._run_region, then)
        other, _ = self._apart(self._run_region, otherwise)
        self._unsure -= 1
        self.complete = self.complete and counted == other
        for key in filter(bounds, other):
            counted[key] = max(counted.get(key, 0.0), other[key])
        add(self._tally, counted)
        return tuple(map(as_guess, results))

    def _call(self, op: Op) -> Carried:
        named = re.search(r"@([\w.$\-]+)", op.text)
        function = self._module.functions.get(named.group(1)) if named else None
        if function is None or not function.body.blocks or self._calls >= _DEEPEST_CALL:
            self.complete = False
            return tuple(unknown(op, type) for type in op.outputs)
        outer, given = self._env, self._values(op.operands)
        unsure, endless = self._unsure, self._endless
        self._env = dict(zip((p.reference for p in function.parameters), given, strict=False))
        self._calls += 1
        try:
            return self._run_function(function)
        finally:
            self._env, self._calls = outer, self._calls - 1
            self._unsure, self._endless = unsure, endless

    def _for(self, op: Op) -> Carried:
        head = _FOR.match(op.text)
        if head is None or not op.regions:
            self.complete = False
            return tuple(unknown(op, type) for type in op.outputs)
        counter, names, start = head.group(1), *self._initial(head.group(5) or "")
        low, high, step = (scalar(self._env.get(head.group(i))) for i in (2, 3, 4))
        unsure = low is None or high is None or not step or step < 0
        if low is None or high is None or not step or step < 0:
            self.complete = False
            low, high, step = low or 0, (low or 0) + 1, 1
        first, by, trips = low, step, max(0, -(-(high - low) // step))

        def body(trip: int, carried: Carried) -> Carried:
            self._env[counter] = Number(first + trip * by)
            self._bind(names, carried)
            return self._run_region(op.regions[0])

        self._unsure += unsure
        self._endless += unsure
        try:
            return self._loop(op, trips, start, body)
        finally:
            self._unsure -= unsure
            self._endless -= unsure

    def _while(self, op: Op) -> Carried:
        inside = re.match(r"\(([^)]*)\)", op.text)
        if len(op.regions) != 2 or inside is None:
            self.complete = False
            return tuple(unknown(op, type) for type in op.outputs)
        names, start = self._initial(inside.group(1))
        before, after = op.regions

        def ask(carried: Carried) -> Carried:
            self._bind(names, carried)
            return self._run_region(before, carried)

        def body(trip: int, carried: Carried) -> Carried:
            return self._run_region(after, ask(carried)[1:])

        self._unsure += 1  # trips are tried that are never made
        trips = self._trips_of_while(start, ask, body)
        self._unsure -= trips is not None
        if trips is None:
            self.complete = False
        self._endless += trips is None
        carried = self._loop(op, 1 if trips is None else trips, start, body)
        self._endless -= trips is None
        _, results = self._apart(ask, carried)
        self._unsure -= trips is None
        return results[1:]

    def _initial(self, text: str) -> tuple[list[str], Carried]:
        """``%acc_14 = %acc, %p_8 = %p``: the names a loop carries, and what they start with."""
        pairs = [part.partition("=") for part in text.split(",") if "=" in part]
        return [name.strip() for name, _, _ in pairs], self._values([given.strip() for _, _, given in pairs])

    def _trips_of_while(
        self,
        start: Carried,
        ask: Callable[[Carried], Carried],
        body: Callable[[int, Carried], Carried],
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

    def _loop(self, op: Op, trips: int, start: Carried, body: Callable[[int, Carried], Carried]) -> Carried:
        """Count so many trips; what the loop hands on behind the last of them.

        A trip that loads is waited for; where an inner loop loads, only its trips are counted so.
        """
        if trips == 0:
            return start
        total, results = self._apart(self._trips, trips, start, body)
        if not any(map(_has_loop, op.regions)):
            self._count("iterations", trips)
        if "waits" not in total and any(isinstance(key, Amount) and not key.site.store for key in total):
            self._count("waits", trips)
        add(self._tally, total)
        return results

    def _trips(self, trips: int, start: Carried, body: Callable[[int, Carried], Carried]) -> Carried:
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

    def _walk(
        self, trips: int, first: Tally, carried: Carried, body: Callable[[int, Carried], Carried]
    ) -> Carried:
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


def _has_loop(region: Region) -> bool:
    return any(
        op.name in _LOOPS or any(map(_has_loop, op.regions)) for block in region.blocks for op in block.ops
    )


_CONTROL: dict[str, Callable[[Program, Op], Carried]] = {
    "scf.if": Program._if,
    "scf.for": Program._for,
    "scf.while": Program._while,
    "tt.call": Program._call,
}

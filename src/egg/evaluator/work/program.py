"""Follow one program of a launch through Triton's IR and count what it does.

Integers and addresses are computed; of everything else only the amount is counted. Loops are
not run to their end: their trips are sampled (:mod:`egg.evaluator.work.trips`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import inf

from egg.evaluator.work import costs
from egg.evaluator.work.access import Accessed, accessed, described
from egg.evaluator.work.arguments import TensorArgument
from egg.evaluator.work.carried import Carried, as_guess, held, scalar, truth
from egg.evaluator.work.sampling import Tally, add
from egg.evaluator.work.tally import Amount, Product, Steps, bounds
from egg.evaluator.work.tiles import evaluate, unknown
from egg.evaluator.work.trips import Counting
from egg.evaluator.work.ttir import Function, Module, Op, Region
from egg.evaluator.work.values import INTEGER_OPS, Known, Number

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


class Program(Counting):
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
        super().__init__(steps)
        self._module, self._tensors = module, tensors
        self._grid, self._place = grid, place
        self._env: Env = dict(arguments)
        self._calls = 0
        self.wide = False
        """Whether integers of 32 bits are computed in 64."""
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

    def _bind(self, names: Sequence[str], given: Sequence[Known]) -> None:
        for i, name in enumerate(names):
            self._env[name] = given[i] if i < len(given) else None

    def _values(self, names: Sequence[str]) -> Carried:
        return tuple(self._env.get(name) for name in names)

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
            return self._loop(trips, start, body, innermost=_innermost(op))
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
        carried = self._loop(1 if trips is None else trips, start, body, innermost=_innermost(op))
        self._endless -= trips is None
        _, results = self._apart(ask, carried)
        self._unsure -= trips is None
        return results[1:]

    def _initial(self, text: str) -> tuple[list[str], Carried]:
        """``%acc_14 = %acc, %p_8 = %p``: the names a loop carries, and what they start with."""
        pairs = [part.partition("=") for part in text.split(",") if "=" in part]
        return [name.strip() for name, _, _ in pairs], self._values([given.strip() for _, _, given in pairs])


def _innermost(op: Op) -> bool:
    return not any(map(_has_loop, op.regions))


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

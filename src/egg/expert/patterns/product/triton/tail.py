"""What happens to a finished tile of a product: bias, pointwise work, norms and reductions, then the stores.

The tile is in registers in fp32, so everything that needs only this tile is free of traffic. Values are read
backwards from what is stored; only row operations (norms, softmax, reductions) are computed on the way, in
the order of the program, because they need many elements at once. Columns beyond the last one hold
``f(bias)``, not 0, and are replaced by the neutral element before anything is reduced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from egg.expert.emit.kernel import Kernel
from egg.expert.emit.reader import Reader, address, pointer_stem
from egg.expert.graph import Value
from egg.expert.index import Expr, Index
from egg.expert.parts import Unfit
from egg.expert.patterns.product.follow import Followed, RowOperation, follow
from egg.expert.patterns.product.groups import Groups
from egg.expert.patterns.product.problem import Problem
from egg.expert.sizes import ONE

NEUTRAL = {"sum": "0.0", "mean": "0.0", "norm": "0.0", "var": "0.0", "max": "-float('inf')",
           "min": "float('inf')", "logsumexp": "-float('inf')"}  # fmt: skip


@dataclass(frozen=True)
class Frame:
    """How a tile lies over the result: loop indices, and which axis the columns run along."""

    row: Expr
    column: Expr
    anchor: Index
    """The index of the product's result."""
    axis: int = 1
    """Of the tile, along the columns."""
    shape: tuple[str, str] = ("BLOCK_M", "BLOCK_N")
    """Of the tile, as the kernel spells it, rows and columns."""
    alone: str = "tl.arange(0, 1)[:, None]"
    """What gives addresses the shape of the tile where the result has one row and one column."""

    def where(self, at: Expr) -> str:
        """An address as text, in a shape that the tile can be stored through."""
        if at.symbols() & (self.row.symbols() | self.column.symbols()):
            return str(at)
        return f"{at} + {self.alone}" if at != Expr() else self.alone

    def guards(self, symbols: Iterable[str], masks: Mapping[str, str]) -> str:
        """The mask of a store whose address has these symbols; nothing where all of the tile is stored."""
        names = [s for s in sorted(symbols) if s in masks] or [s for s in (self.alone,) if s in masks]
        return " & ".join(dict.fromkeys(masks[s] for s in names))


class Tail:
    """Writes the tail of one kernel, whose tile is in the variable ``total``."""

    def __init__(self, problem: Problem, kernel: Kernel, reader: Reader, frame: Frame, total: str) -> None:
        self.problem, self.kernel, self.reader, self.frame = problem, kernel, reader, frame
        self.body = reader.body
        self.followed: Followed = follow(problem, frame.anchor, frame.column)
        self.groups = Groups.of(problem, self.followed.operations)
        if self.groups is not None:
            kernel.meta |= self.groups.meta()
        self._hold(problem.result, total)

    def _hold(self, value: Value, text: str) -> None:
        """A value is in registers from here on."""
        place = self.followed.places[value.name]
        made: list[str] = []

        def held(index: Index) -> str:
            if index != place:
                raise Unfit(f"{value.name} is needed at another place than it is computed at")
            if value.name == self.problem.result.name and self.problem.bias is not None and not made:
                made.append(self.body.let("total", f"{text} + {self._bias(index)}"))
            return made[0] if made else text

        self.reader.bound[value.name] = held

    def _bias(self, index: Index) -> str:
        bias = self.problem.bias
        assert bias is not None
        return self._along(bias, index)

    def _along(self, operand: Value, index: Index) -> str:
        """An operand that broadcasts to the index's shape."""
        skip = len(index) - operand.rank
        return self.reader.read(
            operand.name,
            tuple(
                Expr() if size == ONE else at for at, size in zip(index[skip:], operand.shape, strict=True)
            ),
        )

    # -- row operations ----------------------------------------------------------------------------

    def row_operations(self, until: RowOperation | None = None) -> None:
        """Compute the row operations in order, all or those before one."""
        for operation in self.followed.operations:
            if operation is until:
                return
            self.row_operation(operation)

    def row_operation(self, operation: RowOperation) -> None:
        node = operation.node
        result = self.problem.graph.result(node)
        x = self.input_of(operation)
        if operation.trivial and node.op == "reduce":
            text = x
        elif node.op == "reduce":
            text = self._whole_reduction(operation, x)
        elif node.op == "softmax":
            text = self._softmax(operation, x)
        else:
            text = self._norm(operation, x)
        self._hold(result, text)

    def hold_result(self, operation: RowOperation, text: str) -> None:
        """A row operation was computed elsewhere; its result is in registers."""
        self._hold(self.problem.graph.result(operation.node), text)

    def input_of(self, operation: RowOperation) -> str:
        name = str(operation.node.inputs[0])
        return self.reader.read(name, self.followed.places[name])

    def _over(self, fn: str, text: str) -> str:
        return f"tl.{fn}({text}, axis={self.frame.axis}, keep_dims=True)"

    def masked(self, x: str, neutral: str) -> str:
        inside = " & ".join(
            self.reader.masks[s] for s in self.frame.column.symbols() if s in self.reader.masks
        )
        return f"tl.where({inside}, {x}, {neutral})" if inside else x

    def partial(self, operation: RowOperation, x: str) -> tuple[str, ...]:
        """What one tile contributes to a reduction: one number per row, or two for logsumexp."""
        fn = operation.node["fn"]
        if fn == "norm":
            x = f"tl.abs({x})" if operation.node.get("order", 2) == 1 else f"{x} * {x}"
        x = self.body.let("inside", self.masked(x, NEUTRAL[fn]))
        if fn in ("max", "min"):
            return (self.body.let("extreme", self._over(fn, x)),)
        if fn != "logsumexp":
            return (self.body.let("summed", self._over("sum", x)),)
        top = self.body.let("top", self._over("max", x))
        finite = self.body.let("finite", f"tl.where({top} == -float('inf'), 0.0, {top})")
        return finite, self.body.let("summed", self._over("sum", f"tl.exp({x} - {finite})"))

    def finished(self, operation: RowOperation, parts: tuple[str, ...]) -> str:
        fn, size = operation.node["fn"], self.problem.columns.code()
        match fn:
            case "mean":
                return self.body.let("mean", f"{parts[0]} / ({size})")
            case "norm" if operation.node.get("order", 2) == 2:
                return self.body.let("length", f"tl.sqrt({parts[0]})")
            case "logsumexp":
                return self.body.let("logsumexp", f"{parts[0]} + tl.log({parts[1]})")
        return parts[0]

    def _whole_reduction(self, operation: RowOperation, x: str) -> str:
        if operation.node["fn"] != "var":
            return self.finished(operation, self.partial(operation, x))
        size, correction = self.problem.columns.code(), operation.node.get("correction", 1)
        mean = self.body.let("mean", f"{self._over('sum', self.masked(x, '0.0'))} / ({size})")
        centred = self.body.let("centred", self.masked(f"{x} - {mean}", "0.0"))
        return self.body.let(
            "variance", f"{self._over('sum', f'{centred} * {centred}')} / ({size} - {correction})"
        )

    def _softmax(self, operation: RowOperation, x: str) -> str:
        x = self.body.let("inside", self.masked(x, "-float('inf')"))
        shifted = self.body.let("shifted", f"{x} - {self._over('max', x)}")
        if operation.node.get("log"):
            return self.body.let("logs", f"{shifted} - tl.log({self._over('sum', f'tl.exp({shifted})')})")
        powers = self.body.let("powers", f"tl.exp({shifted})")
        return self.body.let("shares", f"{powers} / {self._over('sum', powers)}")

    # -- norms -------------------------------------------------------------------------------------

    def _norm(self, operation: RowOperation, x: str) -> str:
        node, place = operation.node, self.followed.places[operation.node.output]
        if node["kind"] == "batch":
            normal = self._running(node, x, place)
        elif operation.groups is not None:
            normal = self._by_groups(node["eps"], x)
        else:
            normal = self._by_row(node, x)
        weights = self.problem.graph.operands(node)[1:3]
        for operand, sign in zip(weights, "*+", strict=False):
            if operand is not None:
                at = self._weight_place(node, operand, place)
                normal = self.body.let("normal", f"{normal} {sign} {self.reader.read(operand.name, at)}")
        return normal

    def _weight_place(self, node: Any, operand: Value, place: Index) -> Index:
        return place[-operand.rank :] if node["kind"] in ("layer", "rms") else (place[1],)

    def _running(self, node: Any, x: str, place: Index) -> str:
        mean, variance = (self.reader.read(str(name), (place[1],)) for name in node.inputs[3:5])
        return self.body.let("normal", f"({x} - {mean}) * tl.rsqrt({variance} + {node['eps']!r})")

    def _by_row(self, node: Any, x: str) -> str:
        size, centred = self.problem.columns.code(), x
        if node["kind"] != "rms":
            mean = self.body.let("mean", f"{self._over('sum', self.masked(x, '0.0'))} / ({size})")
            centred = f"{x} - {mean}"
        centred = self.body.let("centred", self.masked(centred, "0.0"))
        variance = self.body.let("variance", f"{self._over('sum', f'{centred} * {centred}')} / ({size})")
        return self.body.let("normal", f"{centred} * tl.rsqrt({variance} + {node['eps']!r})")

    def _by_groups(self, eps: float, x: str) -> str:
        """A group is a run of columns inside the tile: the tile with groups as an axis of its own."""
        if self.frame.axis != 1:
            raise Unfit("groups of columns in a turned tile")
        rows, columns = self.frame.shape
        even = self.groups is not None and self.groups.even
        slots = "GROUP_WIDTH" if even else "GROUP_SLOTS"
        grouped = self.body.let("grouped", f"tl.reshape({x}, ({rows}, {columns} // {slots}, {slots}))")
        inside = "{}"
        if not even:
            used = self.body.let("used", "tl.arange(0, GROUP_SLOTS)[None, None, :] < GROUP_WIDTH")
            inside = f"tl.where({used}, {{}}, 0.0)"
        summed = f"tl.sum({inside.format(grouped)}, axis=2, keep_dims=True)"
        mean = self.body.let("mean", f"{summed} / GROUP_WIDTH")
        centred = self.body.let("centred", inside.format(f"{grouped} - {mean}"))
        variance = self.body.let(
            "variance", f"tl.sum({centred} * {centred}, axis=2, keep_dims=True) / GROUP_WIDTH"
        )
        return self.body.let(
            "normal", f"tl.reshape({centred} * tl.rsqrt({variance} + {eps!r}), ({rows}, {columns}))"
        )

    # -- results -----------------------------------------------------------------------------------

    def store(self, names: tuple[str, ...]) -> None:
        for name in names:
            value, place = self.problem.graph.value(name), self.followed.places[name]
            text = self.reader.read(name, place)
            at = address(value, place)
            mask = self.frame.guards(at.symbols(), self.reader.masks)
            guard = f", mask={mask}" if mask else ""
            pointer = self.body.name(f"{pointer_stem(value)}_ptr")
            self.kernel.results[pointer] = value.name
            self.body.line(f"tl.store({pointer} + {self.frame.where(at)}, {text}{guard})")

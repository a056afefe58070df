"""Groups of columns in a tile: what a group norm behind a product needs.

A tile is cut into groups by a reshape, and a reshape wants powers of two. Where groups are that wide, columns
lie in the tile as they are. Where they are not (or might not be, at another size of the program), each group
gets as many *slots* as the next power of two, and a tile holds whole groups, the slots that are left over
belonging to no column.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from egg.expert.parts import Unfit
from egg.expert.patterns.product.follow import RowOperation
from egg.expert.patterns.product.problem import Problem
from egg.expert.patterns.product.rules import power_of_two
from egg.expert.sizes import Size, aligned


@dataclass(frozen=True)
class Groups:
    """``count`` groups, all of one width."""

    problem: Problem
    count: Size

    @classmethod
    def of(cls, problem: Problem, operations: Iterable[RowOperation]) -> Groups | None:
        counts = {operation.groups for operation in operations if operation.groups is not None}
        if len(counts) > 1:
            raise Unfit("two norms with groups of different width behind a product")
        return cls(problem, counts.pop()) if counts else None

    @property
    def even(self) -> bool:
        """Whether a group's width is a power of two at every size."""
        pairs = aligned(self.problem.columns.values, self.count.values)
        return all(columns // count == power_of_two(columns // count) for columns, count in pairs)

    @property
    def slots(self) -> int:
        """Of a group, at the program's own size."""
        return power_of_two(self.problem.columns.value // self.count.value)

    # -- on the host -------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, str]:
        """What the host calls a group's width and its slots."""
        local = self.problem.host.local
        return local("group_width"), local("group_slots")

    def call(self) -> list[str]:
        width, slots = self.names
        exact = self.problem.columns.over(self.count)
        count = self.count.code()
        divided = f"{_operand(self.problem.columns.code())} // {_operand(count)}"
        lines = [f"{width} = {exact.code() if exact is not None else divided}"]
        if not self.even:
            lines.append(f"{slots} = triton.next_power_of_2({width})  # places of a group in a tile")
        return lines

    def meta(self) -> dict[str, str]:
        width, slots = self.names
        return {"GROUP_WIDTH": width} if self.even else {"GROUP_WIDTH": width, "GROUP_SLOTS": slots}

    def all_slots(self, in_kernel: bool) -> str:
        """How many places a row takes."""
        if self.even:
            return self.problem.columns.code()
        width, slots = ("GROUP_WIDTH", "GROUP_SLOTS") if in_kernel else self.names
        return f"{_operand(self.problem.columns.code())} // {width} * {slots}"

    @property
    def widest(self) -> str:
        """What a tile must at least hold, as the host says it."""
        return self.names[0] if self.even else self.names[1]

    # -- in kernels --------------------------------------------------------------------------------

    def column_lines(self, name: str, slot: str, places: str, shape: str) -> list[str]:
        """Lines that make the column index of a tile; ``places``: its flat positions."""
        if self.even:
            return [f"{name} = ({places}){shape}"]
        return [
            f"{slot} = ({places}){shape}",
            f"{name} = {slot} // GROUP_SLOTS * GROUP_WIDTH + {slot} % GROUP_SLOTS",
        ]

    def mask(self, name: str, slot: str) -> str:
        inside = f"({name} < {self.problem.columns})"
        return inside if self.even else f"({slot} % GROUP_SLOTS < GROUP_WIDTH) & {inside}"


def _operand(text: str) -> str:
    return f"({text})" if " " in text else text

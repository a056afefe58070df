"""What the file says of a product: its kernel's docstring and a summary."""

from __future__ import annotations

from dataclasses import dataclass

from egg.expert.patterns.product.follow import Followed
from egg.expert.patterns.product.problem import Problem
from egg.expert.patterns.product.rules import Way


@dataclass(frozen=True)
class Prose:
    problem: Problem
    followed: Followed

    def kernel(self, way: Way) -> str:
        """The kernel's docstring."""
        how = {
            "packed": "from packed operands: three fp16 products per block give fp32 accuracy"
            if way.grade == "fp32"
            else "from packed fp16 operands",
            "direct": "from the operands as they lie"
            + (", split into fp16 halves in registers: fp32 accuracy" if way.grade == "fp32" else ""),
            "vector": "in one read of the larger operand",
        }[way.mode]
        tail = self._tail()
        return f"The product {how}{f', then {tail} on the tile in registers' if tail else ''}."

    def _tail(self) -> str:
        after = [
            n
            for n in self.problem.group.nodes
            if n.op != "view" and any(o in self.followed.places for o in n.outputs)
        ]
        found = [
            n.label or str(n.get("fn") or n.get("kind") or n.op) for n in after if n is not self.problem.node
        ]
        found = ["bias", *found] if self.problem.bias is not None else found
        return ", ".join(dict.fromkeys(found))

    def summary(self, way: Way) -> str:
        """What is fused, and how."""
        tail = self._tail()
        sizes = f"{self.problem.rows.value}x{self.problem.columns.value}x{self.problem.depth.value}"
        return f"product {sizes} at {way.grade} grade ({way.mode}){f' with {tail}' if tail else ''}"

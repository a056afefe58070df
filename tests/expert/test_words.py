"""Products with weights of four bits, eight in a word: each word is loaded once, whichever way it runs."""

from __future__ import annotations

from functools import cache

import pytest

from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task.program import Program, outputs_of
from egg.expert.algebra.simplify import simplify
from egg.expert.fusion.choices import Structure
from egg.expert.fusion.structure import structured
from egg.expert.graph import Graph
from egg.expert.parts import Group, Part, Target
from egg.expert.patterns import PATTERNS
from egg.expert.patterns.product import write as product
from egg.expert.patterns.product.pattern import Product
from egg.expert.reading.capture import capture
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.expert.captured import CPU, program, resized
from tests.ledgers import INTERPRETED

KNOBS = "M, W, G, L = 12, 6, 3, 32"
OTHERS = "M, W, G, L = 29, 6, 3, 32"
SHIFTS = "self.register_buffer('shifts', torch.tensor([0, 16, 4, 20, 8, 24, 12, 28], dtype=torch.int32))"
HIGH = "2**30"
FORMS = {
    "words along the columns": (
        "w = ((q[:, :, None] >> self.shifts) & 15).flatten(1) - 8;"
        "return x @ (w.to(x.dtype) * s.repeat_interleave(L, dim=0))",
        f"torch.randint(-{HIGH}, {HIGH}, (G * L, W), dtype=torch.int32), torch.rand(G, 8 * W).half()",
        "right_tile = tl.reshape(right_tile, (BLOCK_K, BLOCK_N))",
    ),
    "words along the summed dimension": (
        "w = ((q[:, None, :] >> self.shifts[:, None]) & 15).flatten(0, 1) - 8;"
        "return x @ (w.to(x.dtype) * s)",
        f"torch.randint(-{HIGH}, {HIGH}, (G * L // 8, 8 * W)).int(), torch.rand(1, 8 * W).half()",
        "right_tile = tl.reshape(right_tile, (BLOCK_K, BLOCK_N))",
    ),
    "rows of words, transposed": (
        "w = ((q[:, :, None] >> self.shifts) & 15).flatten(1) - 8;"
        "return x @ (w.to(x.dtype) * s).T",
        f"torch.randint(-{HIGH}, {HIGH}, (8 * W, G * L // 8)).int(), torch.rand(8 * W, 1).half()",
        "right_tile = tl.reshape(right_tile, (BLOCK_N, BLOCK_K))",
    ),
}  # fmt: skip


def task_of(name: str) -> Task:
    forward, inputs, _ = FORMS[name]
    return program(forward, f"torch.randn(M, G * L, dtype=torch.float16), {inputs}", SHIFTS, KNOBS, "x, q, s")


@cache
def written(task: Task) -> Structure:
    class Folded(Product):
        def write(self, graph: Graph, group: Group, target: Target) -> Part:
            settings = {"fold": True, "mode": "direct", "BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32}
            return product.write(graph, group, Target(target.gpu, settings))

    return structured(simplify(capture(task)), Target(resolve("H200")), PATTERNS.with_(Folded()))


@pytest.mark.parametrize("name", FORMS)
def test_words_are_loaded_once_and_unpacked_by_the_tile(name: str) -> None:
    task = task_of(name)
    structure = written(task)
    (group,), (part,) = structure.groups, structure.parts
    assert group.pattern == "product"
    assert FORMS[name][2] in part.kernels[f"{group.name}_kernel"]
    for sized in (task, resized(task, KNOBS, OTHERS)):
        text = harness.source(structure.graph, structure.parts)
        INTERPRETED.once(lambda sized=sized: compare(structure, sized), text, sized.source)


def compare(structure: Structure, task: Task) -> None:
    loaded = Program.load(task)
    module, inputs = loaded.build(0, CPU, Precision.MATCH), loaded.inputs(0, CPU, Precision.MATCH)
    (got,) = harness.run(structure.graph, structure.parts, inputs, module.state_dict())
    with loaded:
        (want,) = [tensor.double() for _, tensor in outputs_of(loaded.run(module, inputs))]
    off = (got.double() - want).abs().max()
    assert off <= 1e-2 * want.square().mean().sqrt()


def test_elements_that_have_words_of_their_own_are_read_as_before() -> None:
    task = program(
        "return x @ (q.to(x.dtype) * s)",
        "torch.randn(M, 64).half(), torch.randint(-9, 9, (64, 48), dtype=torch.int8), torch.rand(48).half()",
        "pass", KNOBS, "x, q, s",
    )  # fmt: skip
    (part,) = written(task).parts
    assert not any("tl.reshape" in text for text in part.kernels.values())


def test_a_pass_unpacks_words_before_a_product_of_what_it_stores() -> None:
    forward, inputs, _ = FORMS["words along the columns"]
    knobs = "M, W, G, L = 16, 1376, 32, 128"
    task = program(forward, f"torch.randn(M, G * L, dtype=torch.float16), {inputs}", SHIFTS, knobs, "x, q, s")
    structure = structured(simplify(capture(task)), Target(resolve("H200")))
    assert [group.pattern for group in structure.groups] == ["loops", "product"]


@pytest.mark.parametrize("rows", [2, 8])
def test_a_few_rows_of_a_computed_operand_are_a_product_on_tensor_cores(rows: int) -> None:
    """Ordinary units would compute it from every row of the other operand anew."""
    given = "torch.randn(M, 4096).half(), torch.randint(-9, 9, (14336, 4096), dtype=torch.int8)"
    knobs = f"M, W, G, L = {rows}, 6, 3, 32"
    task = program("return F.linear(x, q.to(x.dtype))", given, "pass", knobs, "x, q")
    (part,) = structured(simplify(capture(task)), Target(resolve("H200"))).parts
    assert any("tl.dot(" in text for text in part.kernels.values()) == (rows > 2)

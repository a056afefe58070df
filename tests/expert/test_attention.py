"""Attention: recognised in its spellings, and written so that it is right at every size, against fp64."""

# ruff: noqa: E501 (programs, one a line)

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator import offline
from egg.evaluator.offline.compile import compiled_rows
from egg.evaluator.task.precision import double_scope
from egg.evaluator.task.program import Program, outputs_of, to_double
from egg.expert.algebra.mask_layout import masks_by_key
from egg.expert.algebra.simplify import simplify
from egg.expert.fusion.choices import Structure
from egg.expert.fusion.structure import structured
from egg.expert.graph import Graph, Node
from egg.expert.parts import Group, Part, Target, Unfit
from egg.expert.patterns import PATTERNS
from egg.expert.patterns.attention import write as attention
from egg.expert.patterns.attention.pattern import Attention
from egg.expert.reading.capture import capture
from egg.expert.sizes import ONE
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.expert.captured import CPU, check, program, resized
from tests.expert.compiling import module_of
from tests.ledgers import COMPILED, INTERPRETED

KNOBS = "B, N, L, S, D = 2, 2, 37, 45, 24"
OTHERS = "B, N, L, S, D = 3, 2, 19, 50, 16"
H200 = resolve("H200")
SQUARE = ", ".join(["torch.randn(B, N, L, D)"] * 3)
CROSS = "torch.randn(B, N, L, D), torch.randn(B, N, S, D), torch.randn(B, N, S, D)"
FLOORS = {torch.float32: (1.5e-5, 1.9e-6), torch.float16: (3.9e-3, 4.9e-4), torch.bfloat16: (3.1e-2, 3.9e-3)}
"""Of the largest error and the mean square one, relative to the result's mean square, as the judge has them."""

CAUSAL = (
    "s.masked_fill(torch.tril(torch.ones(L, L)) == 0, float('-inf'))",
    "s.masked_fill(torch.triu(torch.ones(L, L), diagonal=1).bool(), float('-inf'))",
    "s + torch.triu(torch.full((L, L), float('-inf')), diagonal=1)",
    "torch.where(torch.arange(L)[:, None] >= torch.arange(L)[None, :], s, float('-inf'))",
)
MASKED = (
    "s.masked_fill(torch.tril(torch.ones(L, L), diagonal=1) == 0, float('-inf'))",
    "s.masked_fill(torch.tril(torch.ones(L, L), diagonal=-1) == 1, float('-inf'))",
    "s + torch.tril(torch.full((L, L), float('-inf')), diagonal=-1)",
    "s.masked_fill(torch.arange(L)[:, None] > torch.arange(L)[None, :], float('-inf'))",
    "s + v @ v.transpose(-2, -1).tanh()",
)
PIECES = (
    "torch.relu(q @ k.transpose(-2, -1)) @ v",
    "torch.softmax(q @ k.transpose(-2, -1), -2) @ v",
    "torch.softmax((q @ k.transpose(-2, -1)).masked_fill(torch.tril(torch.ones(L, L)) == 0, -1.0), -1) @ v",
    "torch.log_softmax(q @ k.transpose(-2, -1), -1) @ v",
)
MULTI = (
    "y = self.a(x); q, k, v = [t.reshape(B, L, N, D).transpose(1, 2).reshape(B * N, L, D) for t in y.chunk(3, -1)];"
    "s = torch.bmm(q, k.transpose(1, 2)).view(B, N, L, L) / math.sqrt(D) + m;"
    "return torch.bmm(s.softmax(-1).view(B * N, L, L), v).view(B, N, L, D).transpose(1, 2).reshape(B, L, N * D)"
)
DECODE = (
    "s = (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).float();"
    "s = s.masked_fill(torch.arange(S) >= n[:, None, None, None], float('-inf'));"
    "return s.softmax(dim=-1).to(q.dtype) @ v"
)
CACHED = ", ".join(
    f"torch.randn(B, N, {rows}, D, dtype=torch.bfloat16)" for rows in ("3", "S", "S")
) + ", torch.arange(B) % 3 * S // 2"  # fmt: skip


def task_of(forward: str, inputs: str = SQUARE, layers: str = "pass", arguments: str = "q, k, v") -> Task:
    return program(forward, inputs, layers, KNOBS, arguments)


def attended(scores: str) -> str:
    """From scores ``s`` that were written out to the result, with a dropout that does nothing."""
    whole = scores.replace("s.", "S_.").replace("s +", "S_ +").replace(" s,", " S_,")
    product = "((q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(q.shape[-1])))"
    return f"F.dropout(torch.softmax({whole.replace('S_', product)}, -1), 0.0) @ v"


def together(*results: str) -> str:
    return f"return {', '.join(results)}"


@cache
def simple(task: Task) -> Graph:
    return simplify(capture(task))


def attentions(graph: Graph) -> list[Node]:
    return [node for node in graph if node.op == "attention"]


def both_sizes(graph: Graph, task: Task) -> None:
    check(graph, task)
    check(graph, resized(task, KNOBS, OTHERS))


# -- recognition --------------------------------------------------------------------------------------


def test_triangles_that_are_certain_become_a_flag() -> None:
    task = task_of(together(*map(attended, CAUSAL)))
    graph = simple(task)
    assert [node["causal"] for node in attentions(graph)] == [True] * len(CAUSAL)
    assert len(graph.nodes) == len(CAUSAL)
    both_sizes(graph, task)


def test_other_masks_stay_operands() -> None:
    task = task_of(together(*map(attended, MASKED)))
    graph = simple(task)
    assert [(node["causal"], node.inputs[3] is None) for node in attentions(graph)] == [(False, False)] * len(
        MASKED
    )
    assert not any(node.op == "softmax" for node in graph)
    both_sizes(graph, task)


def test_what_is_no_attention_stays_as_it_is() -> None:
    graph = simple(task_of(together(*PIECES)))
    assert not attentions(graph)


def test_low_scores_for_what_is_masked_are_kept_where_a_row_may_have_no_other() -> None:
    lowest = "torch.finfo(q.dtype).min"
    task = task_of(together(attended(f"s.masked_fill(torch.tril(torch.ones(L, L)) == 0, {lowest})"),
                            attended("s.masked_fill(torch.tril(torch.ones(L, L)) == 0, -1e4)"),
                            attended(f"s.masked_fill(m, {lowest})")),
                   f"{SQUARE}, torch.rand(L, L) > 0.9", arguments="q, k, v, m")  # fmt: skip
    graph = simple(task)
    found = [(node["causal"], node.get("fill")) for node in attentions(graph)]
    assert found == [(True, None), (True, -1e4), (False, torch.finfo(torch.float32).min)]
    both_sizes(graph, task)


def test_softmax_in_fp32_between_16_bit_products_is_attention() -> None:
    whole = task_of(DECODE, CACHED, arguments="q, k, v, n")
    (node,) = attentions(simple(whole))
    assert not node["causal"]
    assert node.inputs[3] is not None
    assert not any(node.op in ("matmul", "softmax") for node in simple(whole))
    mixed = "return (q.half() @ k.half().transpose(-2, -1)).float().softmax(-1) @ v"
    assert not attentions(simple(task_of(mixed)))


def test_numbers_added_before_the_scale_are_scaled_with_the_scores() -> None:
    task = task_of("return torch.softmax((q @ k.transpose(-2, -1) + m @ n.transpose(-2, -1)) * 0.3, -1) @ v",
                   f"{SQUARE}, {SQUARE.partition(', torch')[0]}, torch.randn(B, N, L, D)", arguments="q, k, v, m, n")  # fmt: skip
    graph = simple(task)
    (node,) = attentions(graph)
    assert node["scale"] == 0.3
    assert node.inputs[3] is not None
    both_sizes(graph, task)


SEVERAL = task_of(
    together(
        attended("(s + n).masked_fill(~m, float('-inf'))"),
        attended("s.masked_fill(~m, float('-inf')) + n"),
        attended("((s + t).view(B, 1, N, L, L) + n[:, None]).view(B, N, L, L)"),
        attended("(s + n + t).masked_fill(torch.tril(torch.ones(L, L)) == 0, float('-inf'))"),
    ),
    f"{SQUARE}, (torch.rand(L, L) > 0.4) | torch.eye(L).bool(), torch.randn(B, 1, L, L), torch.randn(N, L, L)",
    arguments="q, k, v, m, n, t",
)
"""Biases and masks one after the other, as windows with shifts and slopes of heads have them."""


def test_several_masks_are_one() -> None:
    graph = simple(SEVERAL)
    assert len(attentions(graph)) == 4
    assert not any(node.op in ("matmul", "softmax") for node in graph)
    both_sizes(graph, SEVERAL)


def test_a_low_score_before_a_bias_is_no_mask() -> None:
    inputs = f"{SQUARE}, torch.rand(L, L) > 0.5, torch.randn(B, 1, L, L)"
    task = task_of(together(attended("s.masked_fill(m, -1e4) + n")), inputs, arguments="q, k, v, m, n")
    assert not attentions(simple(task))


# -- kernels ------------------------------------------------------------------------------------------

SMALL = {"BLOCK_M": 16, "BLOCK_N": 16}
PACKED = {**SMALL, "packing": True}
WIDE = {"mode": "wide", "BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 16, "BLOCK_W": 16}
TWO = task_of(
    together(
        *(f"F.scaled_dot_product_attention(q, k, v{more})" for more in (", scale=0.3", ", is_causal=True"))
    ),
    CROSS,
)
NARROW = task_of(
    together(
        *(f"F.scaled_dot_product_attention({names}, is_causal=True)" for names in ("q, k, v", "a, b, c"))
    ),
    ", ".join(f"torch.randn(B, N, L, D).{to}()" for to in ("half", "bfloat16") for _ in range(3)),
    "pass",
    "q, k, v, a, b, c",
)
BUFFER = "self.register_buffer('seen', torch.tril(torch.ones(64, 64)).view(1, 1, 64, 64))"
MASKS = task_of(
    together(
        attended("s.masked_fill(self.seen[:, :, :L, :L] == 0, float('-inf'))"),
        "F.scaled_dot_product_attention(q, k, v, m)",
        attended("s.masked_fill(~m, float('-inf'))"),
        attended("s + n"),
    ),
    f"{SQUARE}, (torch.rand(L, L) > 0.4) & (torch.arange(L) % 5 > 0)[:, None], torch.randn(B, 1, L, L)",
    BUFFER,
    "q, k, v, m, n",
)
AROUND = task_of(
    MULTI, "torch.randn(B, L, N * D), torch.randn(1, L, L)", "self.a = nn.Linear(N * D, 3 * N * D)", "x, m"
)
FOLLOWED = task_of(
    "return torch.relu(F.scaled_dot_product_attention(q * 2, k, v)).transpose(1, 2).reshape(B, L, N * D)"
)
FEW = task_of(DECODE, CACHED, arguments="q, k, v, n")
ENDED = task_of(
    "return F.scaled_dot_product_attention(q, k, v, n[:, None, None, None] >= torch.arange(S))",
    f"{CROSS}, torch.arange(B) % 3 * S // 2 - 1",
    arguments="q, k, v, n",
)
UP_TO = task_of(
    together(
        *(f"F.scaled_dot_product_attention(q, k, v, {mask})" for mask in (
            "n[:, None, None, None] >= torch.arange(S)", "~(torch.arange(S) > n[:, None, None, None])", "None",
            "torch.arange(S) % 3 < n[:, None, None, None]"))
    ),
    f"{CROSS}, torch.arange(B) % 3 * S // 2 - 1",
    arguments="q, k, v, n",
)  # fmt: skip
WINDOW = task_of(
    "d = torch.arange(L)[:, None] - torch.arange(L)[None, :];"
    " return F.scaled_dot_product_attention(q, k, v, (d >= 2) & (d < 9))"
)
"""The first two rows see nothing at all."""
EIGHT_BITS = task_of(
    "k, v = keys.to(q.dtype) * a, values.to(q.dtype) * (b.abs() + 0.01);"
    "return (q @ k.transpose(-2, -1) * 0.1).softmax(-1) @ v",
    "torch.randn(B, N, 3, D, dtype=torch.float16), "
    + ", ".join(
        ["torch.randint(-9, 9, (B, N, S, D), dtype=torch.int8)"] * 2 + ["torch.rand(B, N, S, 1).half()"] * 2
    ),
    arguments="q, keys, values, a, b",
)
"""A cache of 8 bits with scales."""
FILLS = task_of(
    together(
        attended("s.masked_fill(self.seen[:, :, :L, :L] == 0, -1e9)"),
        attended("s.masked_fill(~m, -1e4)"),
        attended("s.masked_fill(torch.arange(L) >= n[:, None, None, None], torch.finfo(q.dtype).min)"),
        attended("torch.where(d < 9, s, -1e5)").replace("d < 9", "(d >= 2) & (d < 9)"),
    ).replace("return", "d = torch.arange(L)[:, None] - torch.arange(L)[None, :]; return", 1),
    f"{SQUARE}, (torch.rand(L, L) > 0.4) & (torch.arange(L) % 5 > 0)[:, None], torch.arange(B) % 3 * L // 2",
    BUFFER,
    "q, k, v, m, n",
)
"""A finite score for what is masked: rows that see nothing are the mean of all values."""
ABSORBED = task_of(
    "s = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5;"
    " m = (1.0 - (torch.arange(q.shape[2]) < n[:, None]).to(q.dtype)) * torch.finfo(q.dtype).min;"
    " return (s + m[:, None, None, :]).softmax(-1) @ v",
    "torch.randn(B, N, L, D).half(), torch.randn(B, N, L, D).half(), torch.randn(B, N, L, D).half(), "
    "torch.arange(B) % 3 * L // 2",
    arguments="q, k, v, n",
)
"""The lowest number of 16 bits is added in 16 bits: the first batch has no key, and weighs all alike."""
SCALES = task_of(
    together(
        *(f"F.scaled_dot_product_attention(q, k, v{more})" for more in (
            ", scale=0.3", ", scale=-0.3", ", m", ", m.to(q.dtype)"))
    ),
    "torch.randn(B, N, L, D).half(), torch.randn(B, N, S, D).half(), torch.randn(B, N, S, D).half(), "
    "torch.arange(L * S).view(L, S) % 3 > 0",
    arguments="q, k, v, m",
)  # fmt: skip
CASES: dict[str, tuple[Task, dict[str, Any]]] = {
    "as it lies": (TWO, SMALL),
    "packed": (TWO, {**PACKED, "BLOCK_M": 32}),
    "packed, by pointers": (TWO, {**PACKED, "BLOCK_N": 32, "descriptors": False}),
    "wide": (TWO, WIDE),
    "narrow types": (NARROW, SMALL),
    "narrow types, wide": (NARROW, WIDE),
    "narrow types, scaled": (SCALES, SMALL),
    "numbers that absorb the scores": (ABSORBED, SMALL),
    "numbers that absorb the scores, wide": (ABSORBED, WIDE),
    "masks": (MASKS, {**PACKED, "BLOCK_M": 32}),
    "several masks": (SEVERAL, SMALL),
    "masks, wide": (MASKS, {**WIDE, "descriptors": False}),
    "views around": (AROUND, PACKED),
    "followed": (FOLLOWED, PACKED),
    "few queries": (FEW, SMALL),
    "few queries, split": (FEW, {"SPLIT": 3, "BLOCK_N": 16}),
    "up to an end": (UP_TO, SMALL),
    "up to an end, packed and split": (ENDED, {**PACKED, "SPLIT": 2}),
    "a window": (WINDOW, {"BLOCK_M": 16, "BLOCK_N": 16}),
    "a window, packed": (WINDOW, {**PACKED, "BLOCK_M": 16, "BLOCK_N": 16}),
    "computed keys and values": (EIGHT_BITS, {**SMALL, "SPLIT": 2}),
    "finite scores": (FILLS, SMALL),
    "finite scores, packed": (FILLS, {**PACKED, "BLOCK_N": 32}),
    "finite scores, split": (FILLS, {**SMALL, "SPLIT": 2}),
    "finite scores, wide": (FILLS, WIDE),
    "causal, followed, split": (task_of(
        "return torch.relu(F.scaled_dot_product_attention(q, k, v, is_causal=True)).transpose(1, 2)"
    ), {**SMALL, "SPLIT": 3}),
}  # fmt: skip


def written(task: Task, settings: dict[str, Any]) -> Structure:
    class Settled(Attention):
        def write(self, graph: Graph, group: Group, target: Target) -> Part:
            return attention.write(graph, group, Target(target.gpu, settings))

    structure = structured(simple(task), Target(H200), PATTERNS.with_(Settled()))
    assert {g.pattern for g in structure.groups if any(n.op == "attention" for n in g.nodes)} == {"attention"}
    return structure


def compared(structure: Structure, task: Task, factors: tuple[float, ...] = ()) -> None:
    text = harness.source(structure.graph, structure.parts)
    INTERPRETED.once(lambda: compare(structure, task, factors), text, task.source, factors)


def compare(structure: Structure, task: Task, factors: tuple[float, ...]) -> None:
    loaded = Program.load(task)
    module, inputs = loaded.build(0, CPU, Precision.MATCH), loaded.inputs(0, CPU, Precision.MATCH)
    inputs = [t * factor for t, factor in zip(inputs, factors, strict=True)] if factors else inputs
    ours = harness.run(structure.graph, structure.parts, inputs, module.state_dict())
    double, exact = to_double(module, inputs)
    with loaded, double_scope():
        wanted = [tensor for _, tensor in outputs_of(loaded.run(double, exact))]
    for got, want in zip(ours, wanted, strict=True):
        assert isinstance(want, torch.Tensor)
        most, mean = FLOORS[got.dtype]
        assert torch.equal(got.isnan(), want.isnan())
        off, scale = (got.double() - want).nan_to_num(), want.nan_to_num().square().mean().sqrt()
        assert off.abs().max() <= most * scale
        assert off.square().mean().sqrt() <= mean * scale


@pytest.mark.parametrize("name", CASES)
def test_right_at_every_size(name: str) -> None:
    task, settings = CASES[name]
    structure = written(task, settings)
    compared(structure, task)
    compared(structure, resized(task, KNOBS, OTHERS))


@pytest.mark.parametrize("settings", [PACKED, WIDE], ids=["flash", "wide"])
def test_packed_operands_keep_their_digits_in_any_range(settings: dict[str, Any]) -> None:
    compared(written(TWO, settings), TWO, (1e-7, 1e7, 1e20))


@pytest.mark.parametrize("settings", [SMALL, {**WIDE, "descriptors": False}], ids=["flash", "wide"])
def test_a_nan_beside_a_mask_is_not_lost(settings: dict[str, Any]) -> None:
    """A row whose weights add up to NaN is not one that sees nothing."""
    forward, mask = (
        "return F.scaled_dot_product_attention(q, k, v, m)",
        "torch.arange(L * L).view(L, L) % 3 > 0",
    )
    task = task_of(forward, f"{SQUARE}, {mask}", arguments="q, k, v, m")
    structure, loaded = written(task, settings), Program.load(task)
    inputs = loaded.inputs(0, CPU, Precision.MATCH)
    inputs[0][0, 1, 3, 2] = float("nan")
    (found,) = harness.run(structure.graph, structure.parts, inputs)
    assert found[0, 1, 3].isnan().all()
    assert found.isnan().sum() == found.shape[-1]
    inputs[1][1, 0, 5, 2] = float("nan")  # of a key that a third of the queries do not see
    (found,) = harness.run(structure.graph, structure.parts, inputs)
    assert found[1, 0].isnan().all()


def test_views_are_read_and_stored_where_they_belong() -> None:
    structure = written(AROUND, {})
    assert [group.pattern for group in structure.groups] == ["product", "attention"]


def test_scores_are_scaled_with_the_difference_where_the_largest_is_the_same() -> None:
    texts = ["\n".join(part.kernels.values()) for part in written(SCALES, SMALL).parts]
    late = ["scores * score_scale - " in text for text in texts if "score_scale" in text]
    assert late == [True, False, True, False]


def test_lone_programs_of_wide_heads_run_further_ahead() -> None:
    """Few queries of many heads over one cache: fewer programs than multiprocessors, none waits for another."""
    task = program(
        "return (q @ k.transpose(1, 2) * 0.1).float().softmax(-1).to(q.dtype) @ k",
        "torch.randn(B, 128, 512, dtype=torch.bfloat16), torch.randn(B, 4096, 512, dtype=torch.bfloat16)",
        knobs="B = 16",
        arguments="q, k",
    )
    (part,) = written(task, {}).parts
    constants = {c.name: c.value for c in part.constants}
    assert int(constants["ATTENTION_SUMS_NUM_STAGES"]) > int(constants["ATTENTION_NUM_STAGES"])
    text = "\n".join(part.kernels.values())
    assert text.index("ahead = tl.load(maxima_ptr + places)") < text.index("factor = tl.exp2(ahead - base)")


def test_settings_become_constants_named_after_the_group() -> None:
    (part, _) = written(TWO, {"BLOCK_M": 64, "packing": True}).parts
    assert {c.name: c.value for c in part.constants}["ATTENTION_BLOCK_M"] == 64
    assert sum(bool(c.choices) for c in part.constants) <= 3


def test_few_queries_compute_their_keys_and_values_on_the_way_and_many_do_not() -> None:
    assert [group.pattern for group in written(EIGHT_BITS, {}).groups] == ["attention"]
    many = Task("many", EIGHT_BITS.source.replace("B, N, 3, D", "B, N, 300, D"))
    assert [group.pattern for group in written(many, {}).groups] == ["loops", "loops", "attention"]


def test_the_bounds_of_a_stored_mask_are_kept_until_it_changes() -> None:
    forward = attended("s.masked_fill(self.seen[:, :, :L, :L] == 0, -1e9)")
    (part,) = written(task_of(f"return {forward}", SQUARE, BUFFER), SMALL).parts
    assert [launch.kept for launch in part.launches] == [True, False]
    (part,) = written(task_of(f"return {forward}", SQUARE, BUFFER), {**SMALL, "keep": False}).parts
    assert not any(launch.kept for launch in part.launches)


BIASED = (
    "d = torch.arange(L)[:, None] - torch.arange(L)[None, :];"
    "bias = self.table(d.abs().clamp(max=7)).permute(2, 0, 1)[None];"
    "return torch.softmax(q @ k.transpose(-2, -1) + bias, -1) @ v"
)


def test_a_bias_that_is_looked_up_is_stored_by_key() -> None:
    task = task_of(BIASED, SQUARE, "self.table = nn.Embedding(8, N)")
    graph = masks_by_key(simple(task))
    (table,) = [node for node in graph if node.op == "gather"]
    queries, keys, _ = graph.result(table).shape
    assert graph.result(table).stride == (keys, ONE, queries * keys)
    structure = structured(graph, Target(H200))
    compared(structure, task)
    compared(structure, resized(task, KNOBS, OTHERS))


def test_unfit_says_why() -> None:
    graph = simple(TWO)
    with pytest.raises(Unfit, match="no grade"):
        attention.write(
            graph, Group("attention", graph.nodes[:1], "attention"), Target(H200, {"grade": "fp8"})
        )
    with pytest.raises(Unfit, match="exactly one"):
        attention.write(graph, Group("attention", graph.nodes, "attention"), Target(H200))


@pytest.mark.parametrize(("heads", "split"), [("1, 4", 4), ("32, 8", 0)], ids=["alone", "many"])
def test_keys_are_shared_out_where_programs_are_few(heads: str, split: int) -> None:
    structure = written(resized(FEW, KNOBS, f"B, N, L, S, D = {heads}, 7, 1024, 64"), {})
    (part,) = structure.parts
    assert len(part.kernels) == (2 if split else 1)
    assert {c.name.rpartition("_")[2]: c.value for c in part.constants}.get("SPLIT", 0) == split


def test_blocks_behind_the_end_are_not_read() -> None:
    """The bound is known without looking at the mask: no kernel is needed to find it."""
    (part,) = written(FEW, {}).parts
    (text,) = part.kernels.values()
    assert "reach = tl.minimum(tl.maximum(n, 0)" in text


def test_blocks_before_the_first_key_are_not_read_and_places_are_counted_in_32_bits() -> None:
    (part,) = written(WINDOW, {}).parts
    assert "in range(tl.maximum(first, clear), reach, BLOCK_N):" in part.kernels["flash_sub_ge_lt_attention"]
    assert not [name for name, text in part.kernels.items() if "int64" in text]


BIG = "B, N, L, S, D = 4, 8, 1024, 1024, {}"


@pytest.mark.parametrize(("depth", "settings"), [(128, {}), (1024, {})], ids=["flash", "wide"])
def test_compiles_for_hopper_without_spills(depth: int, settings: dict[str, Any], tmp_path: Path) -> None:
    task = resized(
        task_of("return F.scaled_dot_product_attention(q, k, v, is_causal=True)", CROSS),
        KNOBS,
        BIG.format(depth),
    )
    structure = written(task, settings)
    path = tmp_path / "written.py"
    path.write_text(harness.source(structure.graph, structure.parts))

    def inputs() -> list[torch.Tensor]:
        return [torch.empty((4, 8, 1024, depth), device="cuda") for _ in range(3)]

    def compile_all() -> None:
        captured = offline.capture(module_of(path), inputs, "sm_90")
        rows = offline.compile_all(captured, "sm_90") if depth <= 128 else compiled_rows(captured)
        compiled = {kernel.name: kernel for kernel in rows}
        assert all(kernel.spill_bytes == 0 for kernel in compiled.values())
        main = compiled["attention_products" if depth > 128 else "flash_attention"].instructions
        assert depth > 128 or (main is not None and main.warp_group > 0)

    COMPILED.once(compile_all, path.read_text())

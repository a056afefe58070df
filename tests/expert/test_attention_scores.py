"""Attention whose scores go through functions before the mask, or share their softmax with a sink."""

# ruff: noqa: E501 (programs, one a line)

from __future__ import annotations

from typing import Any

import pytest

from egg.core.source import Task
from egg.expert.deciding.estimate import costs
from egg.expert.fusion.choices import Choices, Structure
from egg.expert.fusion.structure import structured
from egg.expert.graph import Graph
from egg.expert.parts import Target
from egg.expert.patterns import PATTERNS
from egg.expert.sizes import ONE
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.expert.captured import resized
from tests.expert.test_attention import (
    KNOBS,
    OTHERS,
    PACKED,
    SMALL,
    SQUARE,
    WIDE,
    attentions,
    both_sizes,
    compared,
    simple,
    task_of,
    together,
    written,
)

H200 = resolve("H200")
S = "(q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5)"
TRIANGLE = "torch.ones(L, L, dtype=torch.bool).triu(1)"
SINKS = "self.sinks = nn.Parameter(torch.randn(N))"
COLUMN = "self.sinks.reshape(1, -1, 1, 1).expand(B, -1, s.shape[-2], -1)"


def capped(scores: str, cap: float = 2.0) -> str:
    return f"({cap} * torch.tanh({scores} / {cap}))"


CAPPED = task_of(
    together(
        f"torch.softmax({capped(S)}, -1) @ v",
        f"torch.softmax({capped(S)}.masked_fill({TRIANGLE}, float('-inf')), -1) @ v",
        f"torch.softmax({capped(S)} + n, -1) @ v",
        f"torch.softmax({capped(S)}.masked_fill(~m, -1e9), -1) @ v",
        f"torch.softmax(({capped(S)} + n).masked_fill(~m, float('-inf')), -1) @ v",
    ),
    f"{SQUARE}, (torch.rand(L, L) > 0.4) | torch.eye(L).bool(), torch.randn(B, 1, L, L)",
    arguments="q, k, v, m, n",
)
"""Below a cap, then masked in the usual ways."""
HALF = task_of(
    f"s = {capped(S, 5.0)}.masked_fill({TRIANGLE}, float('-inf')); return s.float().softmax(-1).to(q.dtype) @ v",
    ", ".join(["torch.randn(B, N, L, D, dtype=torch.bfloat16)"] * 3),
)
TEMPERATURE = task_of(
    "s = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1);"
    "s = s * torch.clamp(self.scale, max=4.6).exp() + n;"
    "return torch.softmax(s, -1) @ v, torch.softmax((1.0 - w[..., None]) / ((q @ k.transpose(-2, -1)).abs() + 1), -1) @ v",
    f"{SQUARE}, torch.randn(N, L, L), torch.randn(B, 1, L)",
    "self.scale = nn.Parameter(torch.randn(N, 1, 1))",
    "q, k, v, n, w",
)
"""A number of the head as a factor, and one of the query before the score."""
FUNCTIONS = task_of(
    together(
        f"torch.softmax(torch.clamp({S}, -1.0, 0.5) * 3 + n, -1) @ v",
        f"torch.softmax(F.silu({S} + 0.25), -1) @ v",
        f"torch.softmax({S}.abs() ** 0.5, -1) @ v",
    ),
    f"{SQUARE}, torch.randn(L, L)",
    arguments="q, k, v, n",
)
WINDOW = "d = torch.arange(L)[:, None] - torch.arange(L)[None, :]; m = (d >= 2) & (d < 9);"
"""The first two rows see nothing."""
JOINED = task_of(
    f"{WINDOW} s = {S}.masked_fill(~m, float('-inf')); a = torch.cat([s, {COLUMN}], -1); a = a - a.max(-1, keepdim=True).values;"
    f"s = {S} + n; b = torch.cat([{COLUMN}, s], -1);"
    f"s = {capped(S)}; c = torch.cat([s, {COLUMN}], -1);"
    f"e = F.pad({S}, (0, 1), value=0.5);"
    "return a.softmax(-1)[..., :-1] @ v, b.softmax(-1)[..., 1:] @ v, c.softmax(-1)[..., :-1] @ v, e.softmax(-1)[..., :L] @ v",
    f"{SQUARE}, torch.randn(L, L)",
    SINKS,
    "q, k, v, n",
)
"""One more column, behind the scores or before them, or by padding."""
SUMMED = task_of(
    f"s = {S}; t = s.max(-1, keepdim=True).values.clamp(min=0); e = torch.exp(s - t); a = e / (e.sum(-1, keepdim=True) + torch.exp(-t));"
    f"s = {S} * 0.5; t = s.amax(-1, keepdim=True); e = torch.exp(s - t); b = e / (e.sum(-1, keepdim=True) + torch.exp(self.sinks[:, None, None] - t));"
    f"e = torch.exp({S} * 0.25); c = e / (1 + e.sum(-1, keepdim=True));"
    "return a @ v, b @ v, c @ v",
    SQUARE,
    SINKS,
)
RESCALED = task_of(
    f"{WINDOW} t = self.sinks[:, None, None]; s = {S}.masked_fill(~m, float('-inf')); l = torch.logsumexp(s, -1, keepdim=True);"
    f"u = {S} * 0.5; r = torch.logsumexp(u, -1, keepdim=True);"
    "return (s.softmax(-1) @ v) * torch.sigmoid(l - t), (u.softmax(-1) @ v) * torch.exp(r - torch.logaddexp(r, t))",
    SQUARE,
    SINKS,
)
"""An ordinary softmax whose result is multiplied with what a sink leaves; rows that see nothing are NaN."""
FEW = task_of(
    f"s = {capped(S)}.masked_fill(torch.arange(S) >= n[:, None, None, None], float('-inf')); a = torch.cat([s, {COLUMN}], -1);"
    "return a.softmax(-1)[..., :-1] @ v",
    ", ".join(f"torch.randn(B, N, {rows}, D, dtype=torch.bfloat16)" for rows in ("3", "S", "S"))
    + ", torch.arange(B) % 3 * S // 2",
    "self.sinks = nn.Parameter(torch.randn(N, dtype=torch.bfloat16))",
    "q, k, v, n",
)
SPREAD = task_of(
    f"k, v = k[:, :, None], v[:, :, None]; s = {capped(S)}.masked_fill({TRIANGLE}, float('-inf')); return s.softmax(-1) @ v",
    "torch.randn(B, N, 3, L, D), torch.randn(B, N, L, D), torch.randn(B, N, L, D)",
)
"""Three heads of queries for each of keys and values, which broadcast."""
NOT = task_of(
    f"s = {capped(S)}; a = {S}.masked_fill(m, float('-inf')).tanh().softmax(-1) @ v; b = torch.cat([{S}, {COLUMN}], -1);"
    f"c = {capped(S)};"
    "return a, b.softmax(-1) @ torch.cat([v, v[:, :, :1]], 2), c.softmax(-1) @ v, c, b.softmax(-1)[..., 2:] @ v[:, :, 1:]",
    f"{SQUARE}, torch.rand(L, L) > 0.5",
    SINKS,
    "q, k, v, m",
)

COUNTS = {"capped": (CAPPED, 5), "half": (HALF, 1), "temperature": (TEMPERATURE, 2), "functions": (FUNCTIONS, 3),
          "joined": (JOINED, 4), "summed": (SUMMED, 3), "rescaled": (RESCALED, 2), "few": (FEW, 1), "spread": (SPREAD, 1)}  # fmt: skip


@pytest.mark.parametrize("name", COUNTS)
def test_recognised_and_means_the_same(name: str) -> None:
    task, count = COUNTS[name]
    graph = simple(task)
    assert len(attentions(graph)) == count
    assert not any(node.op in ("matmul", "softmax", "cat", "pad") for node in graph)
    if "bfloat16" not in task.source:
        both_sizes(graph, task)


def test_what_is_needed_elsewhere_or_masked_before_a_function_stays_as_it_is() -> None:
    assert not attentions(simple(NOT))


CASES: dict[str, tuple[Task, dict[str, Any]]] = {
    "capped": (CAPPED, SMALL),
    "capped, packed": (CAPPED, {**PACKED, "BLOCK_M": 32}),
    "capped, wide": (CAPPED, WIDE),
    "capped, narrow types": (HALF, SMALL),
    "capped, narrow types, wide": (HALF, WIDE),
    "temperature": (TEMPERATURE, SMALL),
    "temperature, wide": (TEMPERATURE, WIDE),
    "functions": (FUNCTIONS, SMALL),
    "joined": (JOINED, SMALL),
    "joined, packed": (JOINED, PACKED),
    "joined, wide": (JOINED, {**WIDE, "descriptors": False}),
    "joined, split": (JOINED, {**PACKED, "SPLIT": 2}),
    "summed": (SUMMED, SMALL),
    "rescaled": (RESCALED, SMALL),
    "rescaled, wide": (RESCALED, WIDE),
    "spread": (SPREAD, SMALL),
    "few queries": (FEW, {"SPLIT": 3, "BLOCK_N": 16}),
}


@pytest.mark.parametrize("name", CASES)
def test_right_at_every_size(name: str) -> None:
    task, settings = CASES[name]
    structure = written(task, settings)
    compared(structure, task)
    compared(structure, resized(task, KNOBS, OTHERS))


def test_one_kernel_computes_all() -> None:
    causal = f"return torch.softmax({capped(S)}.masked_fill({TRIANGLE}, float('-inf')), -1) @ v"
    (part,) = written(task_of(causal), {**SMALL, "packing": False}).parts
    assert len(part.launches) == 1
    (text,) = part.kernels.values()
    assert text.count("libdevice.tanh") == 2  # where all keys are seen, and on the edge
    (part,) = written(HALF, SMALL).parts
    assert not any("libdevice" in text for text in part.kernels.values())


def test_heads_that_share_keys_have_sinks_of_their_own() -> None:
    forward = (
        "k, v = (t[:, :, None].expand(B, N, 3, S, D).reshape(B, N * 3, S, D) for t in (k, v)); s = q @ k.transpose(-2, -1) * 0.2;"
        f"return torch.cat([s, {COLUMN}], -1).softmax(-1)[..., :-1] @ v"
    )
    shapes = ("N * 3, 2", "N, S", "N, S")
    inputs = ", ".join(f"torch.randn(B, {shape}, D, dtype=torch.float16)" for shape in shapes)
    sinks = "self.sinks = nn.Parameter(torch.randn(N * 3, dtype=torch.float16))"
    task = task_of(forward, inputs, sinks)
    (node,) = attentions(simple(task))
    graph = simple(task)
    queries, sink = (graph.value(str(node.inputs[place])) for place in (0, 4))
    assert sink.shape == (*queries.shape[:3], ONE)
    compared(written(task, SMALL), task)


@pytest.mark.parametrize(
    "task", [CAPPED, TEMPERATURE, JOINED, SUMMED], ids=["capped", "temperature", "joined", "summed"]
)
def test_left_to_pytorch_it_is_written_out(task: Task) -> None:
    structure = left_to_pytorch(simple(task))
    assert "scaled_dot_product" not in harness.source(structure.graph, structure.parts)
    compared(structure, task)


def left_to_pytorch(graph: Graph) -> Structure:
    return structured(graph, Target(H200), PATTERNS, Choices(frozenset({"attention"})))


def test_functions_and_stored_scores_have_their_price() -> None:
    forward = "return torch.softmax({}, -1) @ v"
    sizes = "B, N, L, S, D = 1, 32, 2048, 2048, 128"
    inputs = ", ".join(["torch.randn(B, N, L, D, dtype=torch.bfloat16)"] * 3)
    plain, curved = (
        written(resized(task_of(forward.format(scores), inputs), KNOBS, sizes), {})
        for scores in (S, capped(S))
    )
    (ours,), (theirs,) = (costs(one, H200, {}) for one in (plain, curved))
    assert ours.device < theirs.device < 2 * ours.device
    left = costs(left_to_pytorch(curved.graph), H200, {})
    assert sum(cost.device for cost in left) > 3 * theirs.device

"""What the built-in team decides before anything is measured: other structures, constants, repairs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from egg.core.bottleneck import Bottleneck, Diagnosed, Limiter
from egg.core.evaluation import Gate, Refusal, RefusalFacts
from egg.core.profile import Rung
from egg.core.resources import KernelResources
from egg.core.source import Candidate, Task
from egg.core.stage import Category, Stage
from egg.engine.stages import SEARCH
from egg.engine.tunables import read_space
from egg.expert.assemble import Written, graph_of, kernel_file, short
from egg.expert.deciding.estimate import costs, seen_seconds, total
from egg.expert.deciding.evidence import facts_of, inexact
from egg.expert.deciding.first import first_recipe
from egg.expert.deciding.options import Base, options, predicted_gain, sketched
from egg.expert.deciding.repairs import FINENESS, located, repaired
from egg.expert.deciding.tuning import neighbours, room, tunings
from egg.expert.graph import Graph
from egg.expert.moves import Alone, Grade, Open, Recipe, Set, Without, change_text, moves_in
from egg.expert.parts import Constant
from egg.expert.pattern import Alternative
from egg.hardware.gpus import resolve
from tests.analysis.kernels import GEMM, SOFTMAX
from tests.expert.captured import program

GPU = resolve("H200")
TASK = Task(
    "conv_linear",
    """
import torch
from torch import nn

batch = 64
channels = 64
size = 64
wide = 1024

class Model(nn.Module):
    def __init__(self, channels, wide):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.fc = nn.Linear(channels, wide)

    def forward(self, x):
        x = torch.relu(self.conv(x))
        x = torch.tanh(self.fc(x.mean((2, 3))))
        return torch.cumsum(x, 1)

def get_inputs():
    return [torch.randn(batch, channels, size, size)]

def get_init_inputs():
    return [channels, wide]
""",
)


@cache
def graph() -> Graph:
    return graph_of(TASK)


@cache
def write(recipe: Recipe) -> Written:
    return kernel_file(TASK, graph(), recipe, GPU)


def refusal(reason: str, evidence: str) -> Refusal:
    return Refusal(Gate.CORRECTNESS, reason, evidence, "")


def patterns(written: Written) -> list[str]:
    return [group.pattern for group in written.structure.groups]


def bottleneck(kernel: str, limiter: Limiter, gain: float, headroom: float | None = None) -> Bottleneck:
    return Bottleneck(kernel, limiter, gain, headroom, 0.9, (), "")


def kernels(slow: str, milliseconds: float) -> tuple[KernelResources, ...]:
    """Resources of every kernel of the seed; one of them takes long."""
    names = {name for part in write(Recipe()).structure.parts for name in part.kernels}
    launches = round(milliseconds / 0.2)
    return tuple(
        replace(GEMM if name == slow else SOFTMAX, name=name, launches=launches if name == slow else 1)
        for name in sorted(names)
    )


def base(slow: str = "", milliseconds: float = 0.0, *found: Bottleneck) -> Base:
    diagnosis = Diagnosed(Rung.TIMES, found[0], found, {}) if found else None
    return Base(write(Recipe()), GPU, {}, kernels(slow, milliseconds) if slow else (), diagnosis)


def main_kernel(pattern: str, recipe: Recipe | None = None) -> tuple[str, str]:
    """Name of the group and of its kernel that computes."""
    structure = write(recipe or Recipe()).structure
    at = [group.pattern for group in structure.groups].index(pattern)
    names = [name for name in structure.parts[at].kernels if name.endswith("_kernel")]
    return structure.groups[at].name, names[-1]


# -- other structures --------------------------------------------------------------------------------


def test_groups_cost_what_was_seen_of_them() -> None:
    structure = write(Recipe()).structure
    guessed = costs(structure, GPU, {})
    assert all(cost.device > 0 for cost in guessed)
    assert total(guessed) >= max(sum(c.device for c in guessed), sum(c.host for c in guessed))
    _, slow = main_kernel("convolution")
    seen = seen_seconds(structure, kernels(slow, 20.0), GPU, guessed)
    assert max(range(len(seen)), key=lambda at: seen[at] or 0.0) == patterns(write(Recipe())).index(
        "convolution"
    )
    assert seen_seconds(structure, (), GPU, guessed) == (None,) * len(structure.groups)


def test_a_convolution_is_left_to_the_library_only_if_it_was_seen_to_be_slow() -> None:
    _, slow = main_kernel("convolution")
    for given, worth in ((base(), False), (base(slow, 20.0), True)):
        gains = {
            option.moves: predicted_gain(given, write(Recipe().after(*option.moves)), option)
            for option in options(given, library=True)
            if option.moves[0] == Without("convolution")
        }
        assert any(gain > 2 for gain in gains.values()) is worth
    forbidden = options(base(slow, 20.0), library=False)
    assert not any(isinstance(move, Without) for option in forbidden for move in option.moves)


def test_a_tail_that_crowds_out_registers_gets_a_pass_of_its_own() -> None:
    name, slow = main_kernel("convolution")
    given = base(slow, 2.0, bottleneck(slow, Limiter.SPILLS, 3.0))
    found = [o for o in options(given, library=True) if isinstance(o.moves[0], Alone)]
    assert [option.sentence.split(":")[0] for option in found] == [name]
    other = write(Recipe().after(*found[0].moves))
    assert "relu" not in next(g.name for g in other.structure.groups if g.pattern == "convolution")
    assert 1.0 < predicted_gain(given, other, found[0]) < 2.0


# -- the first one -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch", "height", "left"), [(2, 7, True), (64, 56, False)])
def test_few_positions_of_many_channels_are_left_to_the_library(batch: int, height: int, left: bool) -> None:
    task = program(
        "torch.relu(self.a(x))",
        "torch.randn(B, C, H, H)",
        "self.a = nn.Conv2d(C, C, 3, padding=1, bias=False)",
        f"B, C, H = {batch}, 256, {height}",
    )
    captured = graph_of(task)

    def file(recipe: Recipe) -> Written:
        return kernel_file(task, captured, recipe, GPU)

    first = first_recipe(file, GPU, library=True)
    assert bool(first.left) is left
    assert first_recipe(file, GPU, library=False) == Recipe()
    assert patterns(file(first)) == (["library", "loops"] if left else ["convolution"])


HALVES = "self.a = nn.Linear(C, D); self.to(torch.{dtype})"


@pytest.mark.parametrize(
    ("forward", "sizes", "dtype", "wanted"),
    [
        # The bias is the library's epilogue, and the residual joins the norm's pass.
        ("F.layer_norm(self.a(x) + y, (D,))", (8192, 1024, 1024), "float16", ["library", "loops"]),
        # An exact GELU of a deep product crowds the registers.
        ("F.gelu(self.a(x)) * 2", (8192, 1024, 4096), "float16", ["library", "loops"]),
        # Little depth: the pass that a tail saves takes longer than the product.
        ("torch.relu(self.a(x)) * y", (65536, 64, 256), "float16", ["product"]),
        # fp32 operands are split: nothing of the library's is as fast.
        ("F.layer_norm(self.a(x) + y, (D,))", (8192, 1024, 1024), "float32", ["product", "loops"]),
    ],
    ids=["residual", "gelu", "shallow", "fp32"],
)
def test_16_bit_products_are_the_librarys_unless_what_rides_on_them_pays(
    forward: str, sizes: tuple[int, int, int], dtype: str, wanted: list[str]
) -> None:
    task = program(
        forward,
        f"torch.randn(B, C, dtype=torch.{dtype}), torch.randn(B, D, dtype=torch.{dtype})",
        HALVES.format(dtype=dtype),
        f"B, C, D = {', '.join(map(str, sizes))}",
        "x, y",
    )
    captured = graph_of(task)
    first = first_recipe(lambda recipe: kernel_file(task, captured, recipe, GPU), GPU, library=True)
    made = kernel_file(task, captured, first, GPU)
    found = [group.pattern for group, part in zip(made.structure.groups, made.structure.parts, strict=True)
             if part.kernels or any(node.op not in ("view", "constant") for node in group.nodes)]  # fmt: skip
    assert found == wanted


def test_of_calls_that_are_all_the_librarys_one_stays_ours() -> None:
    """Linear layers around an attention: each is the library's by its price, and a file needs a kernel."""
    task = program(
        "q, k, v = self.a(x).unflatten(-1, (3, 16, 64)).permute(2, 0, 3, 1, 4).unbind(0);"
        "return self.b(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))",
        "torch.randn(B, 257, D).half()",
        "self.a, self.b = nn.Linear(D, 3 * D).half(), nn.Linear(D, D).half()",
        "B, D = 64, 1024",
    )
    captured = graph_of(task)
    first = first_recipe(lambda recipe: kernel_file(task, captured, recipe, GPU), GPU, library=True)
    made = patterns(kernel_file(task, captured, first, GPU))
    assert [made.count(name) for name in ("attention", "product")] == [1, 0]


def test_nothing_but_library_calls_is_no_file() -> None:
    alone = program(
        "self.a(x)", "torch.randn(B, C, H, H)", "self.a = nn.Conv2d(C, C, 3)", "B, C, H = 2, 256, 9"
    )
    first = first_recipe(lambda recipe: kernel_file(alone, graph_of(alone), recipe, GPU), GPU, library=True)
    assert first == Recipe()


def test_an_option_of_one_group_is_priced_without_a_file() -> None:
    given = base()
    name, _ = main_kernel("product")
    (option,) = [o for o in options(given, library=True) if o.moves[0] == Set(name, "packing", False)] or [
        Alternative(Category.DATA_LAYOUT, "", "", (Set(name, "packing", True),), "")
    ]
    sketch = sketched(given, option, {})
    assert sketch is not None
    whole = write(Recipe().after(*option.moves))
    prices = [predicted_gain(given, file, option) for file in (sketch, whole)]
    assert prices[0] == pytest.approx(prices[1], rel=0.02)
    assert sketched(given, replace(option, moves=(Without("convolution"),)), {}) is None


# -- constants ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limiter", "stage", "name", "wanted"),
    [
        (Limiter.SPILLS, Stage.TILING, "BLOCK_P", -1),
        (Limiter.SPILLS, Stage.MAPPING, "NUM_WARPS", +1),
        (Limiter.OCCUPANCY_SHARED, Stage.TILING, "NUM_STAGES", -1),
    ],
)
def test_the_limiter_says_which_constant_goes_where(
    limiter: Limiter, stage: Stage, name: str, wanted: int
) -> None:
    group, slow = main_kernel("convolution")
    given = base(slow, 5.0, bottleneck(slow, limiter, 2.0))
    moves = [tuning.moves[0] for tuning in tunings(given, stage)]
    values = {c.name: c.value for part in given.structure.parts for c in part.constants}
    opened = {move.name: move for move in moves if isinstance(move, Open)}
    now = values[f"{group.upper()}_{name}"]
    if name in opened:
        assert all((value > int(now)) == (wanted > 0) for value in opened[name].values)
        assert len(opened[name].values) <= 2
    else:  # there is nothing beyond
        assert name == "NUM_WARPS"


def test_where_points_are_cheap_constants_are_turned_together() -> None:
    group, slow = main_kernel("convolution")
    given = base(slow, 5.0, bottleneck(slow, Limiter.TENSOR_IDLE, 2.0))
    (tuning,) = tunings(given, Stage.TILING, together=True)
    opened = {move.name: move for move in tuning.moves if isinstance(move, Open)}
    assert len(opened) == len(tuning.moves) > 1
    values = {c.name: c.value for part in given.structure.parts for c in part.constants}
    for name, move in opened.items():
        assert values[f"{group.upper()}_{name}"] in move.values, "what is there takes part"
        assert len(set(move.values)) == len(move.values) > 1
    assert moves_in(change_text(tuning.sentence, tuning.moves)) == tuning.moves
    space = read_space(write(Recipe().after(*tuning.moves)).source)
    assert space is not None
    tried = {short(group, tunable.name): set(tunable.values) for tunable in space.tunables}
    assert tried == {name: set(move.values) for name, move in opened.items()}
    assert tuning.category is Category.TILE_SHAPE
    assert "NUM_WARPS" in opened
    single = [t.moves for t in tunings(given, Stage.TILING)]
    assert all(len(moves) == 1 for moves in single)


def test_the_warps_are_turned_with_the_tile_and_not_a_second_time_before() -> None:
    _, slow = main_kernel("convolution")
    given = base(slow, 5.0, bottleneck(slow, Limiter.LATENCY, 2.0))
    alone = [move.name for t in tunings(given, Stage.MAPPING) for move in t.moves if isinstance(move, Open)]
    assert alone == ["NUM_WARPS"]
    assert not list(tunings(given, Stage.MAPPING, together=True))
    (tuning,) = tunings(given, Stage.TILING, together=True)
    assert {"BLOCK_P", "NUM_WARPS"} <= {move.name for move in tuning.moves if isinstance(move, Open)}


@pytest.mark.parametrize("limiter", Limiter)
@pytest.mark.parametrize("stage", [Stage.MAPPING, Stage.TILING, Stage.MEMORY])
def test_every_step_belongs_in_its_stage(limiter: Limiter, stage: Stage) -> None:
    (row,) = [row for row in SEARCH if row.stage is stage]
    for pattern in ("convolution", "product"):
        _, slow = main_kernel(pattern)
        given = base(slow, 5.0, bottleneck(slow, limiter, 2.0, 3.0))
        for together in (False, True):
            for tuning in tunings(given, stage, together=together):
                assert tuning.category in row.assignment.categories


def test_nothing_is_tuned_near_what_good_kernels_reach_or_where_little_time_goes() -> None:
    _, slow = main_kernel("convolution")
    near = base(slow, 5.0, bottleneck(slow, Limiter.DRAM, 1.0, 1.2))
    small = base("", 0.0, bottleneck(main_kernel("product")[1], Limiter.SPILLS, 2.0))
    for given in (near, small):
        assert not [t for stage in (Stage.MAPPING, Stage.TILING, Stage.MEMORY) for t in tunings(given, stage)]
    assert room(bottleneck("k", Limiter.DRAM, 3.0, None)) == 1.0


def test_neighbours_are_values_that_the_kernel_takes() -> None:
    warps = Constant("K_NUM_WARPS", 4, (2, 4, 8))
    assert neighbours("NUM_WARPS", warps, (1, -1)) == (8, 2)
    assert neighbours("NUM_WARPS", replace(warps, value=8), (1,)) == ()
    assert neighbours("BLOCK_K", Constant("K_BLOCK_K", 64), (1, -1)) == ()
    assert neighbours("GROUP_M", Constant("K_GROUP_M", 8), (1, -1)) == (16, 4)


# -- repairs -----------------------------------------------------------------------------------------


def test_inexact_is_not_wrong() -> None:
    evidence = "seed 1, output 0: relative rms error {} where the reference has 7.21e-08; 170.1x the allowed"
    assert inexact(refusal("correctness.error", evidence.format("2.71e-04")))
    assert not inexact(refusal("correctness.error", evidence.format("2.71e-01")))
    assert not inexact(refusal("build.compile", "relative rms error 1e-4"))


def test_a_repair_goes_by_facts_and_not_by_words() -> None:
    """Words count where there is nothing else: in logs of versions without facts."""
    near = RefusalFacts(relative_error=1e-4)
    assert inexact(replace(refusal("correctness.error", "in whatever words"), facts=near))
    words = "output 0: relative rms error 1.00e-04, 3.0x the allowed max error"
    assert not inexact(replace(refusal("correctness.error", words), facts=RefusalFacts()))
    assert inexact(refusal("correctness.error", words))
    assert facts_of(refusal("correctness.error", words)).excess == 3.0
    place = facts_of(refusal("candidate.error", "line 7 in forward: RuntimeError: k_kernel"))
    assert (place.line, place.function, "k_kernel" in place.functions) == (7, "forward", True)


def test_finer_grades_come_for_convolutions_first() -> None:
    error = refusal(
        "correctness.error", "relative rms error 2.7e-04 where the reference has 7e-08; 99x the allowed"
    )
    recipe, moves = Recipe(), []
    for _ in range(3):
        found = repaired(recipe, error, (), write, library=True)
        assert found is not None
        recipe = found[0]
        moves += [move for move in found[1].moves if isinstance(move, Grade)]
    assert (moves[0].pattern, moves[0].grade) == ("convolution", "fp32")
    for pattern in ("convolution", "product"):
        grades = [FINENESS.index(move.grade) for move in moves if move.pattern == pattern]
        assert grades == sorted(set(grades))


def test_programs_that_wait_for_each_other_give_way_to_launches() -> None:
    task = program(
        "self.r(x)[0]",
        "torch.randn(T, B, I)",
        "self.r = nn.GRU(I, H)",
        "T, B, I, H = 16, 4, 64, 256",
    )
    read = graph_of(task)

    def file(recipe: Recipe) -> Written:
        return kernel_file(task, read, recipe, GPU)

    hung = refusal("limits.timeout", "the forward did not end in 60 s")
    found = repaired(Recipe(), hung, (), file, library=True)
    assert found is not None
    assert [str(move) for move in found[1].moves] == ["set recurrent mode steps"]


def test_only_the_group_that_failed_is_written_more_carefully() -> None:
    group, kernel = main_kernel("convolution")
    crash = refusal("build.compile", f"CompileFailed: {kernel} needs too much shared memory")
    found = located(crash, write(Recipe()))
    assert found is not None
    assert found.name == group
    lines = write(Recipe()).source.splitlines()
    at = next(n for n, line in enumerate(lines, 1) if f"{kernel}[" in line)
    function = next(line for line in reversed(lines[:at]) if line.lstrip().startswith("def "))
    place = function.split("(")[0].split()[-1]
    fault = refusal("kernel.illegal_access", f"line {at} in {place}: an illegal memory access")
    assert located(fault, write(Recipe())) == found
    recipe = Recipe()
    for wanted in (Alone, Without):
        named = replace(crash, evidence=main_kernel("convolution", recipe)[1])
        after = repaired(recipe, named, (), write, library=True)
        assert after is not None
        recipe = after[0]
        assert all(isinstance(move, wanted) and move.at for move in after[1].moves)
    left = patterns(write(recipe))
    assert "convolution" not in left
    assert "product" in left


@pytest.mark.parametrize("library", [True, False])
@pytest.mark.parametrize("reason", ["limits.timeout", "candidate.error", "state.stale"])
def test_the_ladder_ends_and_never_repeats_itself(reason: str, library: bool) -> None:
    fault = refusal(reason, "no answer")
    recipe, tried = Recipe(), [Candidate(write(Recipe()).source).hash]
    for _ in range(20):
        found = repaired(recipe, fault, tried, write, library)
        if found is None:
            break
        recipe = found[0]
        name = Candidate(write(recipe).source).hash
        assert name not in tried
        tried.append(name)
    else:
        pytest.fail("it goes on for ever")
    last = write(recipe).structure
    if library:
        assert [group.pattern for group in last.groups].count("loops") == 1
        assert set(patterns(write(recipe))) == {"loops", "library"}
    else:
        assert not last.left_to_pytorch


def test_what_is_kept_between_calls_is_given_up_first() -> None:
    found = repaired(Recipe(), refusal("state.stale", "the answer was an old one"), (), write, library=True)
    assert found is None or all(isinstance(move, Set | Alone) for move in found[1].moves)


# -- attention -----------------------------------------------------------------------------------------

GROUPED = (
    "k = k[:, :, None].expand(B, G, R, T, D).reshape(B, G * R, T, D); "
    "v = v[:, :, None].expand(B, G, R, T, D).reshape(B, G * R, T, D); "
    "return F.scaled_dot_product_attention(q * 2, k, v{causal}).transpose(1, 2).reshape(B, Q, -1) + 1"
)


def grouped_attention(queries: int, causal: bool) -> Task:
    kind = "dtype=torch.float16"
    return program(
        GROUPED.format(causal=", is_causal=True" if causal else ""),
        f"torch.randn(B, G * R, Q, D, {kind}), *torch.randn(2, B, G, T, D, {kind})",
        knobs=f"B, G, R, Q, T, D = 4, 8, 4, {queries}, 2048, 64",
        arguments="q, k, v",
    )


def test_queries_of_a_group_are_rows_of_one_tile_in_a_decoder() -> None:
    graph = graph_of(grouped_attention(1, causal=False))
    (node,) = [node for node in graph.nodes if node.op == "attention"]
    assert [size.value for size in graph.value(str(node.inputs[0])).shape] == [4, 8, 4, 64]
    assert node.inputs[1:3] == ("k", "v"), "read once, not repeated"
    (found,) = [
        node for node in graph_of(grouped_attention(2048, causal=True)).nodes if node.op == "attention"
    ]
    assert found.inputs[1] != "k", "a causal mask tells queries apart"


def test_many_queries_without_a_mask_are_the_librarys() -> None:
    task = grouped_attention(2048, causal=True)
    captured = graph_of(task)
    first = first_recipe(lambda recipe: kernel_file(task, captured, recipe, GPU), GPU, library=True)
    assert first.left == {("attention", "attention")}
    text = kernel_file(task, captured, first, GPU).source
    body = " ".join(text[text.index("class ModelNew") :].split())
    assert "scaled_dot_product_attention( mul, k, v, is_causal=True, enable_gqa=True, )" in body
    few = grouped_attention(1, causal=False)
    assert first_recipe(lambda r: kernel_file(few, graph_of(few), r, GPU), GPU, library=True) == Recipe()

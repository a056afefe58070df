"""What a prompt is told of a run: everything while there is room, the essential always."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from egg.core.evaluation import Gate, Interval, Refusal
from egg.core.plan import Diagnosis, Plan, Prediction
from egg.core.space import Sweep, SweepPoint
from egg.core.stage import Category, Metric, Stage
from egg.core.step import (
    Attempt,
    Contract,
    Decision,
    Gain,
    Handoff,
    KernelRole,
    Origin,
    Score,
    Step,
    Trajectory,
)
from egg.core.tokens import estimate_tokens
from egg.memory import render_contract, render_handoffs, render_score, render_trajectory
from egg.memory.phrases import SIGNATURE, one_line, signatures

PLENTY = 1_000_000
CONTRACT = Contract(
    (
        KernelRole("partial", 1, ("reduce",), "Partial sums of a slice."),
        KernelRole("matmul", 2, ("dot", "atomic"), ""),
        KernelRole("fallback", 0, (), ""),
    ),
    {"addmm": 2},
)
SCORE = Score(True, Interval(0.0402, 0.0399, 0.0405), Interval(1.8, 1.78, 1.82), 0.0061, 0.028, faster=True)


def plan(change: str = "Raise BLOCK_M from 64 to 128", predicted: float = 1.3) -> Plan:
    return Plan(
        Category.TILE_SHAPE, "the last wave is half empty",
        change, Prediction(predicted, Metric.TIME, "2 waves -> 1"), "bigger-tiles",
    )  # fmt: skip


def step(
    number: int,
    decision: Decision = Decision.NOT_BETTER,
    ratio: float | None = 1.04,
    attempts: tuple[Attempt, ...] = (),
    sweep: Sweep | None = None,
    of: Plan | None = None,
) -> Step:
    gain = None if ratio is None else Gain(ratio, ratio > 1.01, True)
    return Step(
        number, Stage.TILING, "base", of or plan(f"Change number {number}"), attempts, decision,
        f"reason of {number}", "candidate", gain, sweep,
    )  # fmt: skip


def refused(
    code: str = "build.compile", origin: Origin = Origin.OPTIMIZE, evidence: str = "line 7"
) -> Attempt:
    diagnosis = Diagnosis("the mask is missing", "add it to the load") if origin is Origin.REPAIR else None
    return Attempt("c", origin, diagnosis, Refusal(Gate.BUILD, code, evidence, "look at the mask"))


# -- what is told --------------------------------------------------------------------------------


def test_a_prediction_stands_beside_its_outcome() -> None:
    text = render_trajectory(Trajectory(Stage.TILING, (step(3, of=plan()),)), PLENTY)
    assert "Step 3 (tile_shape, skill bigger-tiles): **not better**. reason of 3." in text
    assert "change: Raise BLOCK_M from 64 to 128." in text
    assert "against: the last wave is half empty." in text
    assert "expected to move: time: 2 waves -> 1." in text
    assert "predicted 1.30x, measured 1.04x: missed, it fell short" in text


def test_outcomes_are_named_in_both_directions() -> None:
    def rendered(predicted: float, gain: Gain | None) -> str:
        one = Step(1, Stage.TILING, "b", plan("x", predicted), (), Decision.NOT_BETTER, "r", None, gain)
        return render_trajectory(Trajectory(Stage.TILING, (one,)), PLENTY)

    assert "predicted 1.30x, measured 1.27x: as predicted" in rendered(1.3, Gain(1.27, True, True))
    assert "measured 2.00x: missed, it went beyond" in rendered(1.3, Gain(2.0, True, True))
    assert "predicted 1.10x, measured 1.00x (within the noise): missed, it fell short" in rendered(
        1.1, Gain(1.0, False, True)
    )
    assert "predicted 1.02x, measured 1.00x (within the noise): as predicted" in rendered(
        1.02, Gain(1.0, False, True)
    )
    assert "predicted 1.30x, estimated 1.04x: missed" in rendered(1.3, Gain(1.04, True, False))
    assert "measured 0.70x: missed, it fell short" in rendered(1.3, Gain(0.7, False, True))
    assert "predicted 1.30x, never timed" in rendered(1.3, None)


def test_each_failure_is_told_once() -> None:
    failed = step(
        1, Decision.FAILED, None, (refused(), refused(origin=Origin.REPAIR), refused("build.shared"))
    )
    again = step(2, Decision.FAILED, None, (refused(),))
    text = render_trajectory(Trajectory(Stage.TILING, (failed, again)), PLENTY)
    section = text.split("## Failures not to be repeated\n")[1].split("\n\n")[0]
    assert [line.split(" (when")[0] for line in section.splitlines()] == [
        "- build: build.compile",
        "- build: build.shared",
        "- build: build.compile",
    ]
    assert all("(when trying: " in line for line in section.splitlines())
    assert len(set(section.splitlines())) == 3


def test_the_open_repair_chain_is_told_apart() -> None:
    objected = Attempt("d", Origin.REPAIR, Diagnosis("a", "b"), None, "it repeats step 2")
    chain = (refused(evidence="expected 2\nfound 3"), objected)
    text = render_trajectory(Trajectory(Stage.TILING, (step(1),), chain), PLENTY)
    history, section = text.split("## Open repair chain of this step\n")
    assert "expected 2 found 3" in section
    assert "expected 2" not in history.split("## Failures")[0]
    assert "hint: look at the mask." in section
    assert "followed the diagnosis: a -> b." in section
    assert "2. repair: it repeats step 2" in section


def test_a_sweep_is_told_by_its_winner_and_its_spread() -> None:
    points = (
        SweepPoint({"BLOCK": 512, "NUM_WARPS": 4}, "a", 0.05, "measured"),
        SweepPoint({"BLOCK": 1024, "NUM_WARPS": 8}, "b", 0.04, "measured"),
        SweepPoint({"BLOCK": 2048, "NUM_WARPS": 8}, "c", None, "shared memory over the limit"),
    )
    text = render_trajectory(Trajectory(Stage.TILING, (step(1, sweep=Sweep(12, points, "b")),)), PLENTY)
    assert "swept 3 of 12 points, 1 refused; best BLOCK=1024, NUM_WARPS=8 at 0.04 ms" in text
    assert "slowest BLOCK=512, NUM_WARPS=4 at 0.05 ms" in text


def test_nothing_happened_is_said_by_nothing() -> None:
    assert render_trajectory(Trajectory(Stage.SEED), PLENTY) == ""
    assert render_handoffs((), PLENTY) == ""


def test_the_contract_names_kernels_blocks_and_libraries() -> None:
    assert render_contract(CONTRACT).splitlines() == [
        "The structure is fixed to:",
        "- `partial` x1: reduce. Partial sums of a slice.",
        "- `matmul` x2: dot, atomic",
        "- `fallback` not launched at this size: elementwise",
        "- left to libraries: `addmm` x2",
    ]


def test_a_score_says_how_it_is_known() -> None:
    assert render_score(SCORE) == (
        "measured 0.0402 [0.0399, 0.0405] ms, 1.8 [1.78, 1.82]x over eager, noise 0.6%, faster than eager, "
        "1.44 times the roofline floor of 0.028 ms."
    )
    predicted = Score(False, Interval(2.0, 2.0, 2.0), None, 0.05, None, None)
    assert render_score(predicted) == "predicted 2 ms."
    assert render_score(None) == "no kernel was accepted yet."


def handoff(stage: Stage, tried: tuple[Step, ...], contract: Contract | None, left: str) -> Handoff:
    return Handoff(stage, f"no gain in 3 steps of {stage.value}", contract, "best", SCORE, tried, left)


def test_a_plan_that_was_promoted_after_a_repair_is_no_failure() -> None:
    """The line names the repair: the next plan of that kind needs it."""
    worked = Attempt("d", Origin.REPAIR, Diagnosis("the mask is missing", "add it to the load"))
    repaired = step(1, Decision.PROMOTED, 1.4, (refused(), worked))
    text = render_trajectory(Trajectory(Stage.TILING, (repaired,)), PLENTY)
    assert "Failures not to be repeated" not in text
    assert "1 file failed on the way: build: build.compile" in text
    assert "repaired by: the mask is missing -> add it to the load." in text


def test_the_best_kernel_is_that_of_all_stages() -> None:
    passed = (handoff(Stage.STRUCTURE, (step(1),), CONTRACT, "latency"),)
    better = replace(SCORE, milliseconds=Interval(0.001, 0.001, 0.001))
    assert render_score(better) in render_handoffs(passed, PLENTY, better)
    assert render_score(SCORE) not in render_handoffs(passed, PLENTY, better)


def test_handoffs_tell_contract_score_losses_and_the_open_bottleneck() -> None:
    structure = handoff(Stage.STRUCTURE, (step(1, Decision.PROMOTED, 1.4), step(2)), CONTRACT, "latency")
    mapping = handoff(Stage.MAPPING, (step(3, Decision.FAILED, None, (refused(),)),), None, "the tail wave")
    text = render_handoffs((structure, mapping), PLENTY)
    assert render_contract(CONTRACT) in text
    assert render_score(SCORE) in text
    assert text.count("## Structure contract") == 1
    order = [
        text.index(s)
        for s in ("## Stage structure", "Change number 2", "## Stage mapping", "Change number 3")
    ]
    assert order == sorted(order)
    assert "reason of 2" in text
    assert "Open bottleneck: the tail wave." in text
    assert "It ended: no gain in 3 steps of mapping." in text
    assert "- build: build.compile" in text


# -- what goes first -----------------------------------------------------------------------------


def steps_in(text: str) -> set[int]:
    return {int(n) for n in re.findall(r"^- Step (\d+)", text, re.MULTILINE)}


def in_full(text: str) -> set[int]:
    return {int(n) for n in re.findall(r"^  - change: Change number (\d+)", text, re.MULTILINE)}


MIXED = Trajectory(
    Stage.TILING,
    (
        step(1, Decision.PROMOTED, 1.3),
        step(2, Decision.UNUSABLE, None),
        step(3, Decision.NOT_BETTER, 1.28),
        step(4, Decision.NOT_BETTER, 0.7),
        step(5, Decision.REPEATED, None),
        step(6, Decision.NOT_BETTER, 1.28),
    ),
)


def test_details_go_first_then_whole_steps_and_the_least_informative_before_the_others() -> None:
    vanished: list[int] = []
    shortened: list[int] = []
    for budget in range(estimate_tokens(render_trajectory(MIXED, PLENTY)), -1, -1):
        text = render_trajectory(MIXED, budget)
        shortened += sorted({*range(1, 7)} - in_full(text) - {*shortened})
        vanished += sorted({*range(1, 7)} - steps_in(text) - {*vanished})
        assert not vanished or len(shortened) == 6
    assert shortened == vanished == [2, 5, 3, 4, 1, 6]


def test_what_is_left_out_is_counted() -> None:
    text = render_trajectory(MIXED, 0)
    assert text == "## Tried in this stage (tiling)\n(6 earlier steps left out)"
    smaller = estimate_tokens(render_trajectory(MIXED, PLENTY))
    while "left out" not in (text := render_trajectory(MIXED, smaller)):
        smaller -= 1
    assert "(1 earlier step left out)" in text


def test_the_open_chain_outlasts_the_history() -> None:
    trajectory = Trajectory(Stage.TILING, MIXED.steps, (refused(evidence="alpha"), refused(evidence="omega")))
    full = estimate_tokens(render_trajectory(trajectory, PLENTY))
    for budget in range(full, -1, -3):
        text = render_trajectory(trajectory, budget)
        if "omega" not in text:
            assert "alpha" not in text
        if steps_in(text):
            assert "1. first file: build: build.compile" in text


# -- whatever was remembered ---------------------------------------------------------------------

words = st.text(max_size=60)
refusals = st.builds(Refusal, st.sampled_from(Gate), words, st.text(max_size=900), words)
attempts = st.builds(
    Attempt,
    st.just("c"),
    st.sampled_from(Origin),
    st.none() | st.builds(Diagnosis, words, words),
    st.none() | refusals,
    st.just("") | st.text(max_size=500),
)
plans = st.builds(
    Plan, st.sampled_from(Category), words, st.text(max_size=900),
    st.builds(Prediction, st.floats(0.01, 100), st.sampled_from(Metric), words), st.none() | words,
)  # fmt: skip
gains = st.builds(Gain, st.floats(0.01, 100), st.booleans(), st.booleans())
sweeps = st.builds(
    Sweep,
    st.integers(1, 100),
    st.lists(
        st.builds(SweepPoint, st.just({"B": 1}), st.just("h"), st.none() | st.floats(0.01, 9), words),
        max_size=3,
    ).map(tuple),
    st.sampled_from(["h", "other"]),
)
steps = st.builds(
    Step, st.integers(1, 99), st.sampled_from(Stage), st.just("b"), st.none() | plans,
    st.lists(attempts, max_size=2).map(tuple), st.sampled_from(Decision), st.text(max_size=900),
    st.none(), st.none() | gains, st.none() | sweeps,
)  # fmt: skip
trajectories = st.builds(
    Trajectory,
    st.sampled_from(Stage),
    st.lists(steps, max_size=4).map(tuple),
    st.lists(attempts, max_size=3).map(tuple),
)
roles = st.builds(KernelRole, words, st.integers(0, 5), st.just(("dot",)), words)
contracts = st.builds(Contract, st.lists(roles, max_size=2).map(tuple), st.just({"addmm": 1}))
handoffs = st.lists(
    st.builds(
        Handoff, st.sampled_from(Stage), words, st.none() | contracts, st.none(), st.none() | st.just(SCORE),
        st.lists(steps, max_size=2).map(tuple), words,
    ),
    max_size=3,
).map(tuple)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(trajectories, st.integers(0, 1500))
def test_a_trajectory_fits_wherever_the_essential_does(trajectory: Trajectory, budget: int) -> None:
    text = render_trajectory(trajectory, budget)
    essential = render_trajectory(trajectory, 0)
    if estimate_tokens(essential) <= budget:
        assert estimate_tokens(text) <= budget
    else:
        assert text == essential or estimate_tokens(text) <= budget
    assert text == render_trajectory(trajectory, budget)
    lines = text.splitlines()
    for signature in signatures(trajectory.failure_signatures):
        assert f"- {signature}" in lines
        assert len(signature) <= SIGNATURE


@settings(max_examples=60, deadline=None)
@given(handoffs, st.integers(0, 1500))
def test_handoffs_fit_wherever_the_essential_does(passed: tuple[Handoff, ...], budget: int) -> None:
    text = render_handoffs(passed, budget)
    essential = render_handoffs(passed, 0)
    if estimate_tokens(essential) <= budget:
        assert estimate_tokens(text) <= budget
    else:
        assert text == essential or estimate_tokens(text) <= budget
    assert text == render_handoffs(passed, budget)
    known = [h.contract for h in passed if h.contract is not None]
    if known:
        assert render_contract(known[-1]) in text
    for handoff in passed:
        for signature in signatures(Trajectory(handoff.stage, handoff.tried).failure_signatures):
            assert f"- {signature}" in text


@given(st.text(), st.integers(4, 50))
def test_free_text_becomes_one_line_of_limited_length(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1

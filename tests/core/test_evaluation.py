from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.core.errors import EggError, KernelFileError, MachineError, TaskError, UsageError
from egg.core.evaluation import (
    Accepted,
    Baseline,
    Compiled,
    Contender,
    Correctness,
    Evaluation,
    Gate,
    GateRecord,
    Interval,
    KernelResources,
    Machine,
    Measured,
    Provenance,
    Refusal,
    Rejected,
)
from egg.core.policy import Level, LibraryCalls, Policy, Precision

numbers = st.floats(allow_nan=False)
intervals = st.tuples(*[st.floats(0, 1e6)] * 3).map(sorted).map(lambda v: Interval(v[1], v[0], v[2]))
words = st.text(max_size=20)
correctness = st.builds(
    Correctness, st.integers(0, 99), numbers, numbers, numbers, numbers, kernelbench=st.booleans()
)
counts = st.dictionaries(words, st.integers(0, 9), max_size=3)
provenance = st.builds(Provenance, counts, counts, own_share=st.none() | st.floats(0, 1))
measured = st.builds(
    Measured,
    gpu=st.text(min_size=1, max_size=9),
    milliseconds=intervals,
    baselines=st.lists(st.builds(Baseline, words, intervals, intervals), max_size=3).map(tuple),
    noise_floor=st.floats(0, 1),
    wall_milliseconds=numbers,
    wall_speedup=numbers,
    floor_milliseconds=st.none() | numbers,
    faster=st.booleans(),
)
resources = st.builds(
    KernelResources,
    words,
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    *[st.integers(0, 255)] * 7,
    launches=st.integers(1, 9),
)
compiled = st.builds(Compiled, words, st.lists(resources, max_size=2).map(tuple), st.none() | numbers, words)
accepted = st.builds(Accepted, correctness, provenance, measured | compiled)
rejected = st.builds(Rejected, st.builds(Refusal, st.sampled_from(Gate), words, words, words))
notes = st.dictionaries(words, st.integers() | words | st.booleans(), max_size=3)
gates = st.lists(
    st.builds(GateRecord, st.sampled_from(Gate), st.booleans(), st.floats(0, 99), notes), max_size=3
)
policies = st.builds(
    Policy, st.sampled_from(Precision), st.sampled_from(LibraryCalls), st.sampled_from(Level)
)
machines = st.builds(
    Machine, st.just("cuda"), words, words, words, words, words, st.lists(words, max_size=3).map(tuple)
)
evaluations = st.builds(
    Evaluation,
    words,
    words,
    words,
    words,
    policies,
    machines,
    accepted | rejected,
    gates.map(tuple),
    st.lists(words, max_size=2).map(tuple),
    st.floats(0, 1e4),
)


@given(evaluations)
def test_json_holds_everything(evaluation):
    """Through text and back, infinities included, with no union member mistaken for another."""
    text = json.dumps(evaluation.to_json(), allow_nan=False)
    assert Evaluation.from_json(json.loads(text)) == evaluation


def test_another_schema_is_refused():
    with pytest.raises(ValueError, match=r"egg\.evaluation/2"):
        Evaluation.from_json({"schema": "egg.evaluation/0"})


def test_an_evaluation_of_version_1_is_read_with_its_contenders():
    machine = Machine("cuda", "NVIDIA H200", "3.12", "2.11", "3.6")
    verdict = Rejected(Refusal(Gate.TIMING, "limits.died", "the process ended", "look at it"))
    contenders = (
        Contender("a", Interval(1.0, 1.0, 1.0), Interval(2.0, 2.0, 2.0)),
        Contender("b", None, None, "died"),
    )
    now = Evaluation("t", "h", "c", "h", Policy(), machine, verdict, (), contenders=contenders)
    old = now.to_json() | {"schema": "egg.evaluation/1"}
    old["rivals"] = old.pop("contenders")
    assert Evaluation.from_json(old) == now


def test_nan_survives_json():
    checked = Correctness(1, math.nan, math.inf, 0.0, 0.0, False)
    machine = Machine("cpu", "", "3.11", "2.13", "3.9")
    verdict = Accepted(checked, Provenance({}, {}, None), Compiled("sm_90", (), None, "full"))
    evaluation = Evaluation("t", "h", "c", "h", Policy(), machine, verdict, ())
    back = Evaluation.from_json(json.loads(json.dumps(evaluation.to_json(), allow_nan=False)))
    assert isinstance(back.verdict, Accepted)
    assert math.isnan(back.verdict.correctness.worst_max_error)
    assert math.isinf(back.verdict.correctness.worst_rms_error)


def _timed(gpu: str) -> Measured:
    one = Interval(1.0, 1.0, 1.0)
    return Measured(gpu, one, (), 0.01, 1.0, 1.0, None, False)


def test_a_measured_time_needs_a_gpu():
    with pytest.raises(ValueError, match="GPU"):
        _timed("")
    verdict = Accepted(Correctness(1, 0, 0, 0, 0, True), Provenance({}, {}, None), _timed("NVIDIA H200"))
    with pytest.raises(ValueError, match="without a GPU"):
        Evaluation("t", "h", "c", "h", Policy(), Machine("cpu", "", "3", "2", "3"), verdict, ())


def test_an_interval_holds_its_median():
    with pytest.raises(ValueError, match="interval"):
        Interval(median=3.0, low=1.0, high=2.0)


def test_exit_codes_belong_to_the_errors():
    assert (UsageError("x").exit_code, TaskError("x").exit_code, KernelFileError("x").exit_code) == (2, 2, 2)
    assert (MachineError("x").exit_code, EggError("x").exit_code) == (3, 3)
    assert str(UsageError("what", "how")) == "what\n  hint: how"

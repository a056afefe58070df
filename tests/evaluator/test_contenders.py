"""Other files that are timed beside a candidate, in a session without a GPU."""

from __future__ import annotations

import pytest

from egg.core.source import Candidate
from egg.evaluator.gates import side_by_side, timing
from egg.evaluator.transport import protocol
from egg.evaluator.trial.refused import Refused
from egg.evaluator.worker.session import Session
from tests.evaluator.test_timing_gates import HONEST, trial_for

__all__ = ["trial_for"]


KERNEL = """
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr):
    pass
"""
"""What every file must hold to be looked at; nothing launches it here."""


def slower(times: int) -> str:
    work = f"        for _ in range({50 * times}):\n            torch.sort(x)\n"
    return KERNEL + HONEST.replace("        return x", f"{work}        return x")


def test_files_that_run_beside_the_candidate_are_ranked_and_nothing_is_checked(trial_for) -> None:
    fails = slower(0).replace("return x * self.weight", "raise RuntimeError('no such tile')")
    later = slower(0).replace(
        "        return x",
        "        self.calls = getattr(self, 'calls', 0) + 1\n        assert self.calls < 2, 'only once'\n"
        "        return x",
    )
    wrong = slower(0).replace("x * self.weight", "x + self.weight")
    contenders = (slower(1), slower(8), fails, later, wrong, HONEST, "no Python")
    trial = trial_for(slower(3), contenders=contenders)
    assert side_by_side.prepare(trial) == {"contenders": 7, "unfit": 3}
    notes = side_by_side.run(trial)
    assert set(notes["times"]) == {"A", "A'", "0", "1", "4"}
    ranked = trial.side_by_side.ranked
    assert [contender.candidate_hash for contender in ranked] == [
        Candidate(source).hash for source in contenders
    ]
    faster, slow, failing, once, other, unwritten, unread = ranked
    gains = [contender.gain.median if contender.gain else 0.0 for contender in (slow, faster, other)]
    assert 0 < gains[0] < 1 < 1.5 < gains[1] < gains[2], (
        "nor does a side-by-side timing see that the last one is wrong"
    )
    assert "no such tile" in failing.reason
    assert "only once" in once.reason
    assert "static.no_kernel" in unwritten.reason
    assert "static" in unread.reason
    assert trial.checks.worst.checks == 0
    assert trial.deferred == []


def test_contenders_run_on_the_weights_of_the_candidate(trial_for) -> None:
    tells = slower(0).replace(
        "return x * self.weight", "raise RuntimeError(f'weights {float(self.weight.double().sum()):.6f}')"
    )
    trial = trial_for(slower(0), contenders=(tells,))
    side_by_side.prepare(trial)
    total = float(trial.reference.module.state_dict()["weight"].double().sum())
    assert trial.side_by_side.unfit == [f"line 22 in forward: RuntimeError: weights {total:.6f}"]


def test_a_contender_that_keeps_a_tensor_of_its_own_is_built_in_full(trial_for) -> None:
    table = (
        slower(0)
        .replace("self.weight = nn", "self.table = [torch.arange(3.0)]\n        self.weight = nn")
        .replace("return x *", "return (x + self.table[0].sum()) *")
    )
    trial = trial_for(slower(0), contenders=(table,))
    assert side_by_side.prepare(trial) == {"contenders": 1, "unfit": 0}


def test_a_contender_whose_constructor_looks_at_values_is_built_in_full(trial_for) -> None:
    looks = slower(0).replace(
        "self.weight = nn",
        "self.steps = [s.item() for s in torch.linspace(0, 1, 3)]\n        self.weight = nn",
    )
    trial = trial_for(slower(0), contenders=(looks,))
    assert side_by_side.prepare(trial) == {"contenders": 1, "unfit": 0}


def test_a_contender_with_a_buffer_of_its_own_takes_part(trial_for) -> None:
    own = (
        slower(0)
        .replace("self.weight = nn", "self.register_buffer('room', torch.ones(3))\n        self.weight = nn")
        .replace("return x *", "return (x + self.room.sum()) *")
    )
    trial = trial_for(slower(0), contenders=(own,))
    assert side_by_side.prepare(trial) == {"contenders": 1, "unfit": 0}


def test_what_a_file_sets_for_its_thread_is_there_when_it_is_timed(trial_for) -> None:
    sets = "import contextvars\nKEPT = contextvars.ContextVar('kept')\nKEPT.set(1)\n" + slower(0).replace(
        "return x *", "return KEPT.get() * x *"
    )
    trial = trial_for(slower(0), contenders=(sets,))
    trial.side_by_side.files = ()  # the static gate has nothing for such imports: past it
    trial.timed = cases = timing.placed_questions(trial)
    call = trial.buffers.call_set(cases[0], 0)
    reply = trial.connection.request(protocol.Contenders((sets,), call.inputs, call.slots, 0, 2))
    assert reply == protocol.Ranked(("",))
    assert timing.turn(trial, cases, 2, 0)


def test_a_reply_about_other_files_is_a_forgery(trial_for, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = trial_for(slower(0), contenders=(slower(1),))
    monkeypatch.setattr(Session, "on_contenders", lambda self, asked: protocol.Ranked(()))
    with pytest.raises(Refused) as refused:
        side_by_side.prepare(trial)
    assert refused.value.reason == "timing.forged"

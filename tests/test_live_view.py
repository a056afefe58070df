"""The live view and its plain lines: what they show, and that nothing in a log drives the terminal."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from egg.api.runs import Progress, advance, replay
from egg.api.watching import Watcher
from egg.cli.live import Lines, LiveView, live
from egg.cli.render import console
from egg.cli.summary import run_view, steps_view
from egg.cli.words import duration, money, one_line
from egg.core.conversation import Usage
from egg.core.settings import Caps, ModelChoice
from egg.engine.scripted import ScriptedJudge, ScriptedTeam
from egg.engine.state import Ledger
from tests.engine import scripts
from tests.engine.scripts import FULL, act, begin, settings

EVIL = "\x1b[2J\x1b]0;owned\x07 evil"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def drawn(view: LiveView, width: int = 140) -> str:
    buffer = io.StringIO()
    Console(file=buffer, width=width, highlight=False, markup=False).print(view.render())
    return buffer.getvalue()


def advanced(folder: Path, watcher: Watcher, script=FULL) -> Progress:
    return advance(folder, lambda started, journal: ScriptedTeam(script), ScriptedJudge(act), watcher=watcher)


def test_before_anything_happened_it_says_that_it_starts():
    assert "starting" in drawn(LiveView(Path("run")))


def test_it_shows_stage_activity_best_steps_and_what_is_used(tmp_path):
    clock = Clock()
    folder = tmp_path / "run"
    given = replace(
        settings(caps=Caps(cost=2.0, tokens=90_000, minutes=30)), model=ModelChoice("openai", "gpt-4o")
    )
    begin(folder, given)
    frames: list[str] = []

    class Framed(LiveView):
        def event(self, event, state, new):
            super().event(event, state, new)
            frames.append(drawn(self))

    view = Framed(folder, clock)
    advanced(folder, view)
    first, last = frames[0], frames[-1]
    assert "double for H200  team scripted (gpt-4o)" in first
    assert "no accepted kernel yet" in first
    middle = next(frame for frame in frames if "mapping, step 4" in frame)
    assert "best so far  1 ms, 1.00x (1.00 to 1.00) eager" in middle
    assert "operator_fusion" in middle
    assert "1.50x" in middle
    assert "2.00x" in middle
    assert "promoted" in middle
    assert "failed" in middle
    assert "ended" in last
    assert "$0.0000 of $2" in last
    assert "0 of 90,000 tokens" in last
    assert "left" in last
    assert str(folder) in last


def test_the_activity_follows_the_questions_and_the_judge(tmp_path):
    clock = Clock()
    folder = tmp_path / "run"
    begin(folder, settings(caps=Caps(minutes=10)))
    view = LiveView(folder, clock)
    with pytest.raises(KeyboardInterrupt):
        advanced(folder, _stops_at_once(view))
    view.asked("designer")
    clock.now += 75
    assert "asking designer, 1:15" in drawn(view)
    assert "1:15 used, 8:45 left" in drawn(view)
    view.text("two words ")
    view.text("and two more")
    assert "asking designer, about 5 tokens so far" in drawn(view)
    view.waiting(8.2, "rate limited\x1b[31m")
    assert "waiting 8 s for the endpoint: rate limited" in drawn(view)
    view.text("again")
    assert "asking designer, about 1 token so far" in drawn(view)
    view.judging(12)
    assert "judging 12 kernels" in drawn(view)
    view.stop()
    assert "stopped" in drawn(view)


def _stops_at_once(view: LiveView) -> Watcher:
    class Stops(Watcher):
        def event(self, event, state, new):
            view.event(event, state, new)
            raise KeyboardInterrupt

    return Stops()


def test_on_a_terminal_it_is_redrawn_in_place_and_stays(tmp_path):
    folder = tmp_path / "run"
    begin(folder)
    buffer = io.StringIO()
    screen = Console(file=buffer, force_terminal=True, width=120, height=60, highlight=False, markup=False)
    with live(screen, folder) as view:
        advanced(folder, view)
    text = buffer.getvalue()
    assert "\x1b[?25l" in text  # the cursor is hidden,
    assert text.rstrip().endswith("\x1b[?25h")  # and comes back
    assert "tile_shape" in text
    assert "ended" in text


def test_many_steps_show_the_last_ones(tmp_path):
    folder = tmp_path / "run"
    begin(folder)
    view = LiveView(folder)
    state = advanced(folder, view).state
    many = replace(state, steps=tuple(replace(state.steps[1], number=n) for n in range(1, 41)))
    view.event(state.started, many, True)
    assert "(28 earlier steps)" in drawn(view)
    assert len(drawn(view).splitlines()) < 40


def test_piped_there_is_a_line_for_everything_worth_telling(tmp_path):
    folder = tmp_path / "run"
    begin(folder)
    buffer = io.StringIO()
    advanced(folder, Lines(console(buffer)))
    lines = buffer.getvalue().splitlines()
    assert lines[0] == "run double-1: double for H200, team scripted"
    for wanted in (
        "stage seed",
        "step 2: operator_fusion (predicted 1.50x): fuse the product into the load",
        "step 2: promoted: 2.000x the base, measured, beyond the noise (predicted 1.50x, came out at 2.00x)",
        "step 5: swept 3 of 3 points",
        "stage structure ended: its 2 steps are used",
        "structure agreed: double",
    ):
        assert wanted in lines, wanted
    assert lines[-1].startswith("ended, faster: ")
    assert any("rejected at correctness" in line for line in lines)
    assert any("not taken: the structure contract is broken" in line for line in lines)


def test_the_reason_of_a_step_is_not_said_again_by_its_stage(tmp_path):
    folder = tmp_path / "run"
    begin(folder)
    buffer = io.StringIO()
    script = {"coder.seed seed 1": scripts.draft("2.0 ms"), **scripts.PASSING}
    progress = advanced(folder, Lines(console(buffer)), script)
    lines = buffer.getvalue().splitlines()
    assert sum(scripts.NOTHING.reason in line for line in lines) == 4, "once for each of four stages"
    assert "stage tiling ended: nothing worth optimizing" in lines
    shown = io.StringIO()
    console(shown).print(steps_view(progress.state.steps), run_view(folder, progress))
    assert shown.getvalue().count(scripts.NOTHING.reason) == 4


def test_of_what_is_read_back_only_the_number_is_told(tmp_path):
    folder = tmp_path / "run"
    begin(folder)
    script = dict(FULL)
    del script["tuner tiling 1"]
    with pytest.raises(Exception, match="no Plan or Pass"):
        advanced(folder, Watcher(), script)
    count = len((folder / "events.jsonl").read_text().splitlines())
    buffer = io.StringIO()
    advanced(folder, Lines(console(buffer)))
    lines = buffer.getvalue().splitlines()
    assert lines[0] == f"read back {count} events"
    assert lines[1].startswith("step 5: tile_shape")
    buffer = io.StringIO()
    replay(folder, Lines(console(buffer)))
    assert buffer.getvalue() == ""


@pytest.mark.parametrize("where", ["plain", "terminal"])
def test_nothing_a_model_says_drives_the_terminal(tmp_path, where):
    """Plans, objections and names with escape sequences, in every view."""
    folder = tmp_path / "run"
    script = {
        **FULL,
        "designer structure 1": replace(scripts.plan(scripts.Category.OPERATOR_FUSION), change=EVIL),
        "designer structure 2": scripts.Pass(EVIL),
        "tuner mapping 1": scripts.Pass(EVIL),
    }
    begin(folder, replace(settings(), model=ModelChoice("openai", EVIL)))
    buffer = io.StringIO()
    if where == "plain":
        screen = console(buffer)
        progress = advanced(folder, Lines(screen), script)
    else:
        screen = Console(file=buffer, force_terminal=True, width=120, height=60, highlight=False)
        with live(screen, folder) as view:
            progress = advanced(folder, view, script)
    screen.print(run_view(folder, progress))
    text = buffer.getvalue()
    assert "evil" in text
    assert "\x1b[2J" not in text
    assert "\x1b]0" not in text
    assert "\x07" not in text
    assert where == "terminal" or "\x1b" not in text


@pytest.mark.parametrize(
    ("ledger", "text"),
    [
        (Ledger(Usage(), 0.25, 3), "$0.2500"),
        (Ledger(Usage(), 0.0, 3, 3), "unpriced"),
        (Ledger(Usage(), 0.25, 3, 1), "$0.2500 and 1 unpriced call"),
    ],
)
def test_calls_without_a_price_are_never_free(ledger, text):
    assert money(ledger) == text


def test_numbers_and_words():
    assert [duration(s) for s in (-3, 0, 59.6, 3599, 3661)] == ["0:00", "0:00", "1:00", "59:59", "1:01:01"]
    assert one_line("a\n  b\x00c") == "a b\N{REPLACEMENT CHARACTER}c"
    assert len(one_line("word " * 200)) <= 240

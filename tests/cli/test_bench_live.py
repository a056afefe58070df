"""What is seen while a bench goes on: news in, counts, time left, lines and a drawn view out."""

from __future__ import annotations

import io
import signal
from pathlib import Path

import pytest
from rich.console import Console

from egg.api.benching.news import Began, Ended, Lost, Moved, Opened
from egg.bench.rows import NoKernel, Row, Spent, Unable
from egg.cli.bench_board import Board, row_text, time_left
from egg.cli.bench_live import STOPPING, BenchLines, BenchView, stop_shown
from egg.core.stage import Stage
from tests.bench.made import failed, passed, task
from tests.report.made import HOSTILE


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clock: Clock) -> Board:
    return Board(clock)


def row(n: int, speedup: float = 2.0, **spent: float) -> Row:
    return passed(task(n), {"eager": speedup, "compile": speedup / 2}, spent=Spent(**spent))  # type: ignore[arg-type]


def began(n: int) -> Began:
    return Began(f"1/{n}", f"{n}_op", resumed=False)


def opened(count: int, workers: int = 2, rows: tuple[Row, ...] = ()) -> Opened:
    return Opened(rows, tuple(task(n) for n in range(1, count + 1)), workers)


def drawn(view: BenchView, width: int = 100) -> str:
    screen = Console(file=io.StringIO(), width=width, no_color=True, highlight=False)
    screen.print(view.render())
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_time_left_is_work_left_shared_out_to_the_workers(board, clock):
    board.hear(opened(6, workers=2))
    assert board.seconds_left is None
    board.hear(began(1))
    board.hear(began(2))
    clock.now = 10.0
    board.hear(Ended(row(1)))
    board.hear(Ended(row(2)))
    assert board.seconds_left == pytest.approx(20.0)  # four tasks of 10 s, two at a time
    board.hear(began(3))
    board.hear(began(4))
    clock.now = 14.0
    assert board.seconds_left == pytest.approx((2 * 10 + 2 * 6) / 2)
    assert (board.left, len(board.flights), len(board.rows)) == (2, 2, 2)


def test_a_task_that_takes_longer_than_others_is_never_promised_at_once(board, clock):
    board.hear(opened(2, workers=4))
    board.hear(began(1))
    board.hear(began(2))
    clock.now = 10.0
    board.hear(Ended(row(1)))
    clock.now = 1000.0
    assert board.seconds_left == pytest.approx(1.0)


def test_the_last_task_to_begin_takes_its_time_however_many_workers_there_are(board, clock):
    board.hear(opened(9, workers=8))
    for n in range(1, 9):
        board.hear(began(n))
    clock.now = 10.0
    for n in range(1, 9):
        board.hear(Ended(row(n)))
    assert board.seconds_left == pytest.approx(10.0)


def test_rows_of_earlier_sessions_tell_what_a_task_takes(board):
    board.hear(opened(4, workers=2, rows=(row(11, wall_seconds=30.0), row(12, wall_seconds=50.0))))
    assert board.total == 6
    assert board.seconds_left == pytest.approx(4 * 40 / 2)


def test_money_of_tasks_in_flight_is_counted_once(board):
    board.hear(opened(3, rows=(row(9, money=1.0, input_tokens=10),)))
    board.hear(began(1))
    board.hear(Moved("1/1", Stage.SEED, "asking coder", money=0.25, tokens=100))
    board.hear(Moved("1/1", Stage.SEED, "judging 1 kernel", money=0.5, tokens=200))
    assert (board.money, board.tokens) == (1.5, 210)
    board.hear(Ended(row(1, money=0.75, input_tokens=250)))
    assert (board.money, board.tokens) == (1.75, 260)


def test_news_of_a_task_that_nobody_is_at_change_nothing(board):
    board.hear(opened(2))
    board.hear(Moved("1/1", Stage.SEED, "late"))
    board.hear(Lost("1/1", "gone", retried=True))
    assert board.flights == {}
    assert board.left == 2


def test_a_lost_task_is_left_to_do_again(board):
    board.hear(opened(2))
    board.hear(began(1))
    board.hear(Lost("1/1", "its process ended with SIGKILL", retried=True))
    assert (board.left, len(board.flights)) == (2, 0)


@pytest.mark.parametrize(
    ("ended", "message"),
    [
        (row(1, 3.0), "accepted, 1 ms, 3.00x eager, 1.50x compile"),
        (passed(task(1), None), "accepted; no GPU measured it"),
        (failed(task(1)), "refused at correctness: it was seen"),
        (failed(task(1), NoKernel("it gave up")), "no kernel: it gave up"),
        (failed(task(1), Unable("no memory")), "machine unable: no memory"),
    ],
)
def test_every_end_has_its_words(ended, message):
    assert row_text(ended) == message


def test_time_is_told_as_roughly_as_it_is_known():
    texts = [time_left(s) for s in (None, 0.2, 75, 100, 3600, 9000)]
    assert texts == [
        "time left not known yet",
        "about 1 s left",
        "about 75 s left",
        "about 2 min left",
        "about 60 min left",
        "about 2 h 30 min left",
    ]


def test_lines_tell_each_row_once_with_what_is_left(board, clock):
    out = io.StringIO()
    tell = BenchLines(Console(file=out, width=40, no_color=True), board)
    tell(opened(2, workers=1, rows=(row(9, wall_seconds=5.0),)))
    tell(began(1))
    tell(Moved("1/1", Stage.SEED, "asking coder"))
    clock.now = 65.0
    tell(Ended(row(1, wall_seconds=65.0, money=0.5)))
    tell(Lost("1/2", f"it died {HOSTILE}", retried=True))
    tell(Began("1/2", "2_op", resumed=True))
    tell(Ended(row(2, wall_seconds=1.0)))
    lines = out.getvalue().splitlines()
    assert lines[0] == "2 tasks to do, 1 done before; 1 worker"
    assert lines[1].startswith(
        "[2/3] 1/1 1_op: accepted, 1 ms, 2.00x eager, 1.00x compile, 1:05; about 65 s left"
    )
    assert "$0.50" in lines[1]
    assert lines[2].startswith("1/2: it died")
    assert lines[2].endswith("; tried once more")
    assert lines[3] == "1/2 2_op goes on where it was"
    assert "; all done" in lines[4]
    assert len(lines) == 5
    assert "\x1b" not in out.getvalue()


def test_the_view_shows_what_is_done_in_flight_and_left(board, clock):
    view = BenchView("llm-ops: 4 tasks", Path("place"), board)
    assert "starting" in drawn(view)
    view(opened(4))
    view(began(1))
    view(began(2))
    view(Moved("1/2", Stage.STRUCTURE, "judging 4 kernels", steps=2, speedup=1.25))
    clock.now = 60.0
    view(Ended(row(1)))
    text = drawn(view)
    assert "1 of 4" in text
    assert "1 in flight, 2 left" in text
    assert "structure" in text
    assert "step 3, judging 4 kernels" in text
    assert "1.25x" in text
    assert "1/1 1_op: accepted" in text
    assert "about 63 s left" in text  # two of 60 s and the rest of one, two at a time
    view(Ended(failed(task(2), Unable("no memory"))))
    assert "1 the machine failed" in drawn(view)
    view.stop()
    assert "stopped" in drawn(view)
    assert "in place" in drawn(view)


def test_many_tasks_in_flight_and_hostile_words_fit_the_screen(board):
    view = BenchView("many", Path("place"), board)
    view(opened(40, workers=40))
    for n in range(1, 41):
        view(Began(f"1/{n}", HOSTILE, resumed=n % 2 == 0))
        view(Moved(f"1/{n}", Stage.SEED, HOSTILE))
    text = drawn(view, width=80)
    assert "and 24 more" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_notes_of_a_pool_are_told_like_everything_else(board):
    out = io.StringIO()
    BenchLines(Console(file=out, width=40, no_color=True), board).note(
        f"node b left out: torch 2.9 {HOSTILE}"
    )
    view = BenchView("many", Path("place"), board)
    view(opened(2))
    view.note(f"node b left out: torch 2.9 {HOSTILE}")
    for text in (out.getvalue(), drawn(view)):
        assert "node b left out: torch 2.9" in text
        assert "\x1b" not in text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_stops_a_bench_sees_at_once_that_it_was_understood(board, number):
    out = io.StringIO()
    lines = BenchLines(Console(file=out, width=80, no_color=True), board)
    view = BenchView("many", Path("place"), board)
    view(opened(2))
    before = signal.getsignal(number)
    for shown in (lines, view):
        with pytest.raises(KeyboardInterrupt), stop_shown(shown) as came:
            signal.raise_signal(number)
        assert came == [number]
        assert signal.getsignal(number) is before
    assert out.getvalue() == f"{STOPPING}\n"
    assert STOPPING in drawn(view)
    view.stop()
    assert STOPPING not in drawn(view)


def test_a_signal_in_the_middle_of_a_line_stops_all_the_same(board):
    class Busy(io.StringIO):
        def write(self, text: str) -> int:
            raise RuntimeError("reentrant call")

    lines = BenchLines(Console(file=Busy(), width=80), board)
    with pytest.raises(KeyboardInterrupt), stop_shown(lines) as came:
        signal.raise_signal(signal.SIGINT)
    assert came == [signal.SIGINT]

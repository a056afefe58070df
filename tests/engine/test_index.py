"""What stands beside a log is made from it, whole, at any time, and says what the log says."""

from __future__ import annotations

import ast
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from egg.core.events import Evaluated, Proposed, RunStarted
from egg.core.source import content_hash
from egg.core.step import Origin
from egg.engine.index import kernel_file, read_event, write_index
from egg.engine.log import LogError, LogWriter, read_log
from tests import samples
from tests.engine.logs import BROKEN, FUSED, SEED, TUNED, sample_events, write_log


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run with its projections."""
    write_log(tmp_path)
    write_index(tmp_path, read_log(tmp_path))
    return tmp_path


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "index.sqlite")) as index:
        return index.execute(query).fetchall()


def everything(folder: Path) -> dict[str, object]:
    """All that the projections say."""
    tables = ("events", "steps", "evaluations", "exchanges")
    contents: dict[str, object] = {table: rows(folder, f"SELECT * FROM {table}") for table in tables}
    kernels = sorted((folder / "kernels").rglob("*"))
    return contents | {str(path.relative_to(folder)): path.read_text() for path in kernels if path.is_file()}


class TestTables:
    def test_every_event_and_where_it_lies(self, run: Path) -> None:
        data = (run / "events.jsonl").read_bytes()
        found = rows(run, "SELECT n, at, kind, offset, length FROM events ORDER BY n")
        assert len(found) == len(sample_events())
        for entry, line, (n, at, kind, offset, length) in zip(
            read_log(run), data.splitlines(keepends=True), found, strict=True
        ):
            assert (n, at, kind) == (entry.number, entry.at, entry.event.kind)
            assert data[offset : offset + length] == line

    def test_every_event_knows_its_stage_and_step(self, run: Path) -> None:
        found = rows(run, "SELECT stage, step, count(*) FROM events GROUP BY stage, step ORDER BY min(n)")
        assert found == [
            (None, None, 3),
            ("seed", None, 2),
            ("seed", 1, 11),
            ("structure", None, 2),
            ("structure", 2, 7),
            ("structure", 3, 10),
            ("mapping", None, 1),
            ("tiling", None, 2),
            ("tiling", 4, 12),
            ("memory", None, 2),
            ("memory", 5, 3),
        ]

    def test_a_model_call_that_led_to_nothing_yet_has_no_step(self, tmp_path: Path) -> None:
        write_log(tmp_path, sample_events()[:3])
        write_index(tmp_path, read_log(tmp_path))
        assert rows(tmp_path, "SELECT stage, step FROM events WHERE kind = 'model.exchanged'") == [
            ("seed", None)
        ]
        with LogWriter(tmp_path) as log:
            log.append(sample_events()[3])
        write_index(tmp_path, read_log(tmp_path))
        assert rows(tmp_path, "SELECT stage, step FROM events WHERE kind = 'model.exchanged'") == [
            ("seed", 1)
        ]

    def test_steps_hold_prediction_beside_outcome(self, run: Path) -> None:
        fields = "number, stage, category, skill, predicted, gain, measured, decision, candidate"
        assert rows(run, f"SELECT {fields} FROM steps") == [
            (1, "seed", None, None, None, None, None, "promoted", content_hash(SEED)),
            (
                2,
                "structure",
                "operator_fusion",
                "fuse-row-reduction",
                1.8,
                1.8,
                1,
                "promoted",
                content_hash(FUSED),
            ),
            (3, "structure", "kernel_split", None, 1.05, None, None, "repeated", None),
            (4, "tiling", "warp_count", None, 1.1, 1.08, 1, "promoted", content_hash(TUNED[8])),
            (5, "memory", None, None, None, None, None, "passed", None),
        ]
        assert rows(run, "SELECT reason FROM steps WHERE number = 3") == [("nothing new was written",)]

    def test_evaluations(self, run: Path) -> None:
        assert rows(run, "SELECT * FROM evaluations WHERE job = '1-seed-a'") == [
            ("1-seed-a", content_hash(BROKEN), "rejected", "static", "static.no_model", None, None, None)
        ]
        assert rows(run, "SELECT * FROM evaluations WHERE job = '2-optimize-a'") == [
            ("2-optimize-a", content_hash(FUSED), "accepted", None, None, 0.0402, 1.8, 0.0061)
        ]
        assert rows(run, "SELECT count(*) FROM evaluations") == [(6,)]

    def test_a_kernel_judged_without_a_gpu_has_no_time(self, tmp_path: Path) -> None:
        started = sample_events()[0]
        assert isinstance(started, RunStarted)
        judged = replace(samples.compiled(), task_hash=started.task.hash)
        write_log(tmp_path, (started, Evaluated("1", judged)))
        write_index(tmp_path, read_log(tmp_path))
        found = rows(tmp_path, "SELECT verdict, milliseconds, speedup, noise FROM evaluations")
        assert found == [("accepted", None, None, None)]

    def test_exchanges(self, run: Path) -> None:
        assert rows(run, "SELECT count(*), sum(input_tokens), sum(output_tokens) FROM exchanges") == [
            (11, 11 * 1200, 11 * 350)
        ]
        assert rows(run, "SELECT n, purpose, model, cost, seconds FROM exchanges LIMIT 1") == [
            (3, "coder.seed", "some-model", 0.0125, 3.25)
        ]


class TestKernels:
    def test_every_proposed_file_with_sweep_points_apart(self, run: Path) -> None:
        found = {str(p.relative_to(run / "kernels")): p.read_text() for p in (run / "kernels").rglob("*.py")}
        assert found == {
            f"001-seed-{content_hash(BROKEN)}.py": BROKEN,
            f"001-repair-{content_hash(SEED)}.py": SEED,
            f"002-optimize-{content_hash(FUSED)}.py": FUSED,
            f"003-optimize-{content_hash(BROKEN)}.py": BROKEN,
            f"004-optimize-{content_hash(TUNED[4])}.py": TUNED[4],
            f"sweep/004-sweep-{content_hash(TUNED[2])}.py": TUNED[2],
            f"sweep/004-sweep-{content_hash(TUNED[8])}.py": TUNED[8],
        }
        for source in found.values():
            ast.parse(source)

    def test_those_already_there_are_not_written_again(self, run: Path) -> None:
        before = {path: path.stat().st_mtime_ns for path in (run / "kernels").rglob("*.py")}
        write_index(run, read_log(run))
        assert {path: path.stat().st_mtime_ns for path in (run / "kernels").rglob("*.py")} == before

    def test_line_ends_and_odd_characters_are_kept(self, tmp_path: Path) -> None:
        source = "x = 1\r\n# ümlaut, \u2028, \ud83d\n"
        proposed = Proposed(7, Origin.SEED, content_hash(source), source)
        write_log(tmp_path, (sample_events()[0], proposed))
        write_index(tmp_path, read_log(tmp_path))
        data = (tmp_path / "kernels" / f"007-seed-{proposed.candidate}.py").read_bytes()
        assert data.decode("utf-8", "surrogatepass") == proposed.source

    @pytest.mark.parametrize("name", ["../../outside", "/tmp/outside", "a/b", "", ".", "x" * 300, "a\0b"])
    def test_a_log_cannot_name_a_place_outside(self, tmp_path: Path, name: str) -> None:
        folder = tmp_path / "run"
        write_log(folder, (sample_events()[0], Proposed(1, Origin.SEED, name, FUSED)))
        with pytest.raises(LogError, match="was altered"):
            read_log(folder)
        assert not list(tmp_path.rglob("*.py"))

    def test_where_a_kernel_lies(self, tmp_path: Path) -> None:
        proposed = Proposed(12, Origin.SWEEP, "00ff" * 4, "")
        assert kernel_file(tmp_path, proposed) == tmp_path / "kernels/sweep/012-sweep-00ff00ff00ff00ff.py"


class TestRebuilding:
    def test_from_nothing_but_the_log(self, run: Path) -> None:
        before = everything(run)
        (run / "index.sqlite").unlink()
        shutil.rmtree(run / "kernels")
        write_index(run, read_log(run))
        assert everything(run) == before

    def test_stage_by_stage_comes_to_the_same(self, tmp_path: Path, run: Path) -> None:
        grown = tmp_path / "grown"
        with LogWriter(grown) as log:
            entries = []
            for entry in read_log(run):
                entries.append(replace(log.append(entry.event), at=entry.at))
                if entry.event.kind in ("stage.closed", "run.closed"):
                    write_index(grown, entries)
        assert everything(grown) == everything(run)

    @pytest.mark.parametrize("junk", [b"", b"SQLite format 3\0", b"\0" * 5000, b"junk" * 4000])
    def test_over_a_half_written_index_and_leftovers(self, run: Path, junk: bytes) -> None:
        before = everything(run)
        (run / "index.sqlite").write_bytes(junk)
        (run / ".index.sqlite.new").write_bytes(junk)
        kernel = next((run / "kernels").glob("002-*.py"))
        kernel.write_bytes(kernel.read_bytes()[:100])
        kernel.with_name(f".{kernel.name}.new").write_bytes(b"half")
        write_index(run, read_log(run))
        assert everything(run) == before
        assert not list(run.rglob("*.new"))

    def test_over_an_index_cut_at_any_place(self, run: Path) -> None:
        whole = (run / "index.sqlite").read_bytes()
        entries = read_log(run)
        for cut in range(0, len(whole), 1500):
            (run / "index.sqlite").write_bytes(whole[:cut])
            assert read_event(run, 20) == entries[19]

    def test_a_reader_keeps_what_it_opened(self, run: Path) -> None:
        with closing(sqlite3.connect(run / "index.sqlite")) as open_before:
            assert open_before.execute("SELECT count(*) FROM events").fetchone() == (55,)
            write_index(run, read_log(run)[:10])
            assert open_before.execute("SELECT count(*) FROM events").fetchone() == (55,)
        assert rows(run, "SELECT count(*) FROM events") == [(10,)]

    def test_killed_while_it_is_made(self, run: Path) -> None:
        """Whatever the moment, what stands there is whole."""
        before = everything(run)
        script = (
            "import sys\nfrom pathlib import Path\n"
            "from egg.engine.index import write_index\nfrom egg.engine.log import read_log\n"
            "folder = Path(sys.argv[1])\nentries = read_log(folder)\nprint('go', flush=True)\n"
            "while True:\n    write_index(folder, entries)\n"
        )
        for delay in (0.0, 0.003, 0.011, 0.019):
            process = subprocess.Popen(
                [sys.executable, "-c", script, str(run)], stdout=subprocess.PIPE, text=True
            )
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(delay)
            process.kill()
            process.communicate()
            assert everything(run) == before
        write_index(run, read_log(run))
        assert not list(run.rglob("*.new"))

    def test_a_log_shorter_than_what_is_to_be_indexed(self, run: Path) -> None:
        entries = read_log(run)
        before = everything(run)
        data = (run / "events.jsonl").read_bytes()
        (run / "events.jsonl").write_bytes(data[: len(data) // 2])
        with pytest.raises(LogError, match="ends before event"):
            write_index(run, entries)
        assert everything(run) == before

    def test_a_torn_last_line_is_not_indexed(self, run: Path) -> None:
        with (run / "events.jsonl").open("ab") as log:
            log.write(b'{"n":56,"at":"20')
        write_index(run, read_log(run))
        assert rows(run, "SELECT count(*) FROM events") == [(55,)]
        with pytest.raises(LogError, match="has no event 56"):
            read_event(run, 56)


class TestReadingOne:
    def test_by_its_place(self, run: Path) -> None:
        for entry in read_log(run):
            assert read_event(run, entry.number) == entry

    def test_only_its_own_line_is_read(self, run: Path) -> None:
        """Everything else in the log may be anything: the index says where to look."""
        entry = read_log(run)[19]
        ((offset, length),) = rows(run, "SELECT offset, length FROM events WHERE n = 20")
        data = (run / "events.jsonl").read_bytes()
        line = data[offset : offset + length]
        (run / "events.jsonl").write_bytes(b"\0" * offset + line)
        assert read_event(run, 20) == entry

    @pytest.mark.parametrize(
        "state", ["missing", "older", "junk", "wrong places", "wrong types", "no tables"]
    )
    def test_without_a_usable_index(self, run: Path, state: str) -> None:
        entries, index = read_log(run), run / "index.sqlite"
        if state == "missing":
            index.unlink()
        elif state == "older":
            write_index(run, entries[:5])
        elif state == "junk":
            index.write_bytes(b"junk" * 1000)
        elif state == "no tables":
            index.write_bytes(b"")
        else:
            change = "offset = offset + 1" if state == "wrong places" else "offset = 'here', length = -1"
            with closing(sqlite3.connect(index)) as open_index, open_index:
                open_index.execute(f"UPDATE events SET {change}")
        assert [read_event(run, n) for n in (1, 20, 55)] == [entries[0], entries[19], entries[54]]

    @pytest.mark.parametrize("n", [0, -1, 56, 10**30])
    def test_one_that_is_not_there(self, run: Path, n: int) -> None:
        with pytest.raises(LogError, match="has no event") as refused:
            read_event(run, n)
        assert refused.value.hint == "its events are 1 to 55"

    def test_no_run(self, tmp_path: Path) -> None:
        with pytest.raises(LogError, match="no run in"):
            read_event(tmp_path, 1)
        (tmp_path / "events.jsonl").write_bytes(b"{")
        with pytest.raises(LogError, match="no run in"):
            read_event(tmp_path, 1)

    def test_a_folder_with_an_odd_name(self, tmp_path: Path) -> None:
        folder = tmp_path / "a run? 100% #1"
        write_log(folder, sample_events()[:4])
        write_index(folder, read_log(folder))
        (folder / "events.jsonl").write_bytes(b"\0" + (folder / "events.jsonl").read_bytes()[1:])
        assert read_event(folder, 3).event == sample_events()[2]

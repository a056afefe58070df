"""Logs that were cut off or altered: a kill at any byte loses the last line alone, and damage is named."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from egg.core.events import (
    SCHEMA,
    SentBack,
)
from egg.engine.log import LogError, LogWriter, read_log
from tests.engine.logs import write_log
from tests.engine.test_log import NEXT, SHORT, START, edited, events_of


class TestKilledAtAnyByte:
    def test_at_every_byte_of_the_last_two_lines(self, tmp_path: Path) -> None:
        whole = write_log(tmp_path / "whole", SHORT).read_bytes()
        ends = [m.end() for m in re.finditer(b"\n", whole)]
        for cut in range(ends[1], len(whole) + 1):
            folder = tmp_path / str(cut)
            folder.mkdir()
            (folder / "events.jsonl").write_bytes(whole[:cut])
            survivors = list(SHORT[: sum(end <= cut for end in ends)])
            assert events_of(read_log(folder)) == survivors
            with LogWriter(folder) as log:
                assert events_of(log.history) == survivors
                log.append(NEXT)
            assert events_of(read_log(folder)) == [*survivors, NEXT]

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_whatever_is_left_behind_the_last_whole_line(
        self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        """Cut anywhere behind the first line, then anything a disk may show there; and several times over."""
        folder = tmp_path_factory.mktemp("run")
        path = write_log(folder, SHORT)
        expected = list(SHORT)
        for _ in range(data.draw(st.integers(1, 3), label="kills")):
            whole = path.read_bytes()
            ends = [m.end() for m in re.finditer(b"\n", whole)]
            cut = data.draw(st.integers(ends[0], len(whole)), label="cut")
            kept = sum(end <= cut for end in ends)
            junk = data.draw(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"")), label="junk")
            final = data.draw(st.sampled_from([b"", b"\n"]), label="final newline")
            tail = whole[ends[kept - 1] : cut] + junk
            if final and _is_json(tail):
                final = b""
            path.write_bytes(whole[: ends[kept - 1]] + tail + final)
            expected = [*expected[:kept], NEXT]
            assert events_of(read_log(folder)) == expected[:-1]
            with LogWriter(folder) as log:
                log.append(NEXT)
            assert events_of(read_log(folder)) == expected

    @pytest.mark.parametrize("torn", [b"", b'{"n":1,"at"', b"\0" * 500, b"\0\0\n", b"\n"])
    def test_a_run_killed_before_its_first_line_was_whole(self, tmp_path: Path, torn: bytes) -> None:
        (tmp_path / "events.jsonl").write_bytes(torn)
        with pytest.raises(LogError, match="no run in"):
            read_log(tmp_path)
        write_log(tmp_path, SHORT)
        assert events_of(read_log(tmp_path)) == list(SHORT)

    def test_killed_while_writing(self, tmp_path: Path) -> None:
        """A real process, killed at some moment, several times on one log: all it confirmed is there."""
        write_log(tmp_path, (START,))
        script = (
            "import sys\nfrom pathlib import Path\nfrom egg.core.events import SentBack\n"
            "from egg.engine.log import LogWriter\n"
            "with LogWriter(Path(sys.argv[1])) as log:\n"
            "    while True:\n"
            "        n = log.append(SentBack('designer', 1, 'x' * 20000)).number\n"
            "        print(n, flush=True)\n"
        )
        for moment in (1, 5, 12):
            process = subprocess.Popen(
                [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
            )
            assert process.stdout is not None
            heard = [process.stdout.readline() for _ in range(moment)]
            process.send_signal(signal.SIGKILL)
            heard += process.stdout.read().splitlines(keepends=True)
            process.wait()
            confirmed = [int(line) for line in heard if line.endswith("\n")]
            assert len(confirmed) >= moment
            assert len(read_log(tmp_path)) >= confirmed[-1]
        with LogWriter(tmp_path) as log:
            log.append(NEXT)
        assert events_of(read_log(tmp_path))[-1] == NEXT

    def test_a_full_disk_takes_nothing_half(self, tmp_path: Path) -> None:
        """A limit on file size cuts a write short just as a full disk does."""
        write_log(tmp_path, (START,))
        script = (
            "import resource, sys\nfrom pathlib import Path\nfrom egg.core.events import SentBack\n"
            "from egg.core.errors import MachineError\nfrom egg.engine.log import LogWriter\n"
            "with LogWriter(Path(sys.argv[1])) as log:\n"
            "    resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000))\n"
            "    log.append(SentBack('designer', 1, 'fits'))\n"
            "    try:\n"
            "        log.append(SentBack('designer', 1, 'x' * 20000))\n"
            "    except MachineError as error:\n"
            "        print(error)\n"
            "    log.append(SentBack('designer', 1, 'fits again'))\n"
        )
        done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "cannot write" in done.stdout
        assert "make room on the disk" in done.stdout
        assert [e.objection for e in events_of(read_log(tmp_path)) if isinstance(e, SentBack)] == [
            "fits",
            "fits again",
        ]
        assert (tmp_path / "events.jsonl").read_bytes().endswith(b"\n")


class TestDamage:
    @pytest.mark.parametrize("place", ["nothing here", "a/b"])
    def test_no_run(self, tmp_path: Path, place: str) -> None:
        with pytest.raises(LogError, match="no run in") as refused:
            read_log(tmp_path / place)
        assert refused.value.exit_code == 2
        assert "events.jsonl" in refused.value.hint

    def test_a_file_instead_of_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(LogError, match="no run in"):
            read_log(tmp_path / "file")

    @pytest.mark.parametrize(
        "line",
        [
            b"",
            b"{",
            b"\0\0\0",
            b"\xff\xfe",
            b"17",
            b"[]",
            b"{}",
            b'{"n":3,"at":"x","event":[]}',
            b"[" * 10**5,
        ],
    )
    def test_in_the_middle(self, tmp_path: Path, line: bytes) -> None:
        path = write_log(tmp_path, SHORT)
        lines = path.read_bytes().split(b"\n")
        path.write_bytes(b"\n".join([*lines[:2], line, *lines[3:]]))
        with pytest.raises(LogError, match=r"line 3 .* is damaged") as refused:
            read_log(tmp_path)
        assert "keep its first 2 lines" in refused.value.hint

    def test_a_last_line_that_is_whole_but_wrong_is_no_torn_line(self, tmp_path: Path) -> None:
        path = write_log(tmp_path, SHORT)
        path.write_bytes(path.read_bytes() + b'{"n":5}\n')
        with pytest.raises(LogError, match=r"line 5 .* is damaged"):
            read_log(tmp_path)

    @pytest.mark.parametrize(
        ("line", "change", "message"),
        [
            (3, lambda row: row.update(n=4), "line 3 .* its number is 4"),
            (3, lambda row: row.update(n="3"), "line 3 .* its number is '3'"),
            (1, lambda row: row.update(n=0), "line 1 .* its number is 0"),
            (4, lambda row: row["event"].pop("role"), "line 4 .* says is no answer.sent_back event .*role"),
            (2, lambda row: row["event"].update(stage="cooking"), "line 2 .*cooking"),
            (
                1,
                lambda row: row["event"]["task"].update(source="def"),
                "line 1 .* says is no run.started event",
            ),
            (1, lambda row: row["event"].update(facts=3), "line 1 .* says is no run.started event"),
            (1, lambda row: row["event"].update(kind="stage.opened"), "begins with 'stage.opened'"),
            (3, lambda row: row["event"].update(kind="run.danced"), "line 3 .* does not know: 'run.danced'"),
            (4, lambda row: row["event"].update(kind=[1]), r"line 4 .* does not know: \[1\]"),
            (4, lambda row: row["event"].pop("kind"), "line 4 .* does not know: None"),
        ],
    )
    def test_a_line_that_says_something_else(
        self, tmp_path: Path, line: int, change: Callable[[dict[str, Any]], object], message: str
    ) -> None:
        path = write_log(tmp_path, SHORT)
        edited(path, line, change)
        with pytest.raises(LogError, match=message) as refused:
            read_log(tmp_path)
        assert refused.value.hint

    def test_a_missing_line(self, tmp_path: Path) -> None:
        path = write_log(tmp_path, SHORT)
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(lines[0] + b"".join(lines[2:]))
        with pytest.raises(LogError, match=r"line 2 .* its number is 3"):
            read_log(tmp_path)

    @pytest.mark.parametrize(
        ("schema", "who"), [("egg.run/3", "a newer"), ("egg.run/0", "another"), (None, "another")]
    )
    def test_another_schema_is_named_before_anything_else_is_read(
        self, tmp_path: Path, schema: str | None, who: str
    ) -> None:
        path = write_log(tmp_path, SHORT)
        edited(
            path,
            1,
            lambda row: (row["event"].clear(), row["event"].update(kind="run.started", schema=schema)),
        )
        edited(path, 2, lambda row: row["event"].update(kind="something.new"))
        with pytest.raises(LogError, match=f"made by {who} version of egg") as refused:
            read_log(tmp_path)
        assert repr(schema) in refused.value.message
        assert repr(SCHEMA) in refused.value.message

    def test_a_log_that_may_not_be_read(self, tmp_path: Path) -> None:
        (tmp_path / "events.jsonl").mkdir()
        with pytest.raises(LogError, match="cannot read"):
            read_log(tmp_path)


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data.decode())
    except (ValueError, RecursionError):
        return False
    return True
